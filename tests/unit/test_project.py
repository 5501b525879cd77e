"""The repository itself: what is pinned, packaged, documented and never committed."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import hymt_local
from hymt_local.catalog import load_catalog
from hymt_local.cli.app import COMMANDS

REPOSITORY = Path(__file__).parents[2]
CONSTRAINTS = ("constraints.txt", "constraints-dev.txt")
MAX_FILE_BYTES = 9_000_000
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:root|home|work|tmp)/\w")
REGISTRY_HOST = re.compile(r"[p]ypi\.org|[p]ythonhosted|[r]egistry\.npmjs|[d]eb\.debian")


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return what git tracks; in an unpacked source archive, every file."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=False)
    if listed.returncode:
        return tuple(path for path in REPOSITORY.rglob("*") if path.is_file())
    paths = (REPOSITORY / name for name in listed.stdout.decode().split("\0") if name)
    return tuple(path for path in paths if path.is_file())


# Dependencies


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_pinned_versions_have_hashes_and_no_address(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    assert "://" not in text
    requirements = re.split(r"\n(?=\S)", text.strip())
    assert len(requirements) > 20
    unhashed = [line for line in requirements if "==" in line and "--hash=sha256:" not in line]
    assert unhashed == []
    assert all("==" in line for line in requirements if not line.startswith("#"))


def test_the_engine_is_pinned_exactly_and_not_hashed() -> None:
    (engine,) = [entry for entry in project()["project"]["dependencies"] if entry.startswith("llama-cpp-python")]
    assert re.fullmatch(r"llama-cpp-python==\d+\.\d+\.\d+", engine)
    for name in CONSTRAINTS:
        assert "llama-cpp-python" not in (REPOSITORY / name).read_text(encoding="utf-8")


def test_doctor_names_the_engine_that_is_required() -> None:
    from hymt_local.cli.doctor_engine import ENGINE_REQUIREMENT

    assert ENGINE_REQUIREMENT in project()["project"]["dependencies"]


def test_every_dependency_says_what_it_is_for() -> None:
    lines = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    groups = project()["dependency-groups"]
    requirements = [*project()["project"]["dependencies"], *(entry for group in groups.values() for entry in group)]
    for requirement in requirements:
        assert any(re.match(rf'\s+"{re.escape(requirement)}",\s+# \w', line) for line in lines), requirement


def test_the_prescribed_dependencies_are_there() -> None:
    names = {re.split(r"[<>=\[;]", entry)[0] for entry in project()["project"]["dependencies"]}
    assert names >= {"llama-cpp-python", "huggingface-hub", "gguf", "textual", "platformdirs", "sentencepiece"}
    assert project()["project"]["requires-python"] == ">=3.11"


def test_uv_records_nothing_here() -> None:
    assert "uv.lock" in (REPOSITORY / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert REPOSITORY / "uv.lock" not in tracked_files()


# The package


def test_the_version_is_one_constant() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", hymt_local.__version__)
    assert "version" in project()["project"]["dynamic"]
    assert project()["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "hymt_local.__version__"}


def test_the_packaged_data_is_found() -> None:
    package = Path(str(resources.files("hymt_local")))
    assert {"demo", "echo", "Hy-MT2-7B"} <= {spec.id for spec in load_catalog().models}
    assert (package / "tui" / "hymt.tcss").is_file()
    assert (package / "py.typed").is_file()


def test_every_package_is_installed() -> None:
    packages = set(project()["tool"]["setuptools"]["packages"])
    for name, folder in (("hymt_local", REPOSITORY / "hymt_local"), ("hymt_convert", REPOSITORY / "convert")):
        found = {".".join((name, *path.parent.relative_to(folder).parts)) for path in folder.rglob("__init__.py")}
        assert found <= packages


def test_the_entry_point_exists() -> None:
    from hymt_local.__main__ import main

    assert project()["project"]["scripts"] == {"hymt": f"{main.__module__}:{main.__name__}"}


# Documents


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE"])
def test_the_documents_are_there(name: str) -> None:
    assert (REPOSITORY / name).stat().st_size > 500


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_readme(command: str) -> None:
    assert re.search(rf"\bhymt {command}\b", (REPOSITORY / "README.md").read_text(encoding="utf-8"))


def test_the_two_commands_are_on_the_readmes_first_screen() -> None:
    first_screen = "\n".join((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()[:40])
    assert "make run" in first_screen
    assert "make test" in first_screen


def test_the_architecture_names_only_modules_that_exist() -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    modules = {path.name for path in tracked_files() if path.suffix == ".py"}
    assert set(re.findall(r"\b\w+\.py\b", text)) <= modules


# What is never committed


def test_no_tracked_file_is_too_large() -> None:
    assert [path for path in tracked_files() if path.stat().st_size > MAX_FILE_BYTES] == []


def test_no_tracked_text_names_a_machine_path_or_a_registry() -> None:
    named = []
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" in data[:8192]:
            continue
        text = data.decode("utf-8", "replace")
        named += [
            f"{path.name}: {match.group()}" for match in (*MACHINE_PATH.finditer(text), *REGISTRY_HOST.finditer(text))
        ]
    assert named == []


def test_no_build_product_is_tracked() -> None:
    parts = {part for path in tracked_files() for part in path.relative_to(REPOSITORY).parts}
    assert parts & {"__pycache__", ".venv", "build", "dist", ".hypothesis", ".pytest_cache", "uv.lock"} == set()
