"""Bad model files, imported or pointed at: one clear error, status 3, and nothing left behind."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Completed, RunHymt
from tests.toy_models import ToyGeometry, ToyModel, write_toy_model

ANY_ID = "Hunyuan-MT-7B"

MakeFile = Callable[[Path], object]


def truncated(path: Path) -> None:
    write_toy_model(path)
    os.truncate(path, path.stat().st_size // 2)


def cut_in_the_header(path: Path) -> None:
    write_toy_model(path)
    os.truncate(path, 400)


def many_tensors(path: Path) -> None:
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60) + bytes(64))


def loop(path: Path) -> None:
    path.symlink_to(path.name)


BAD_FILES: dict[str, tuple[MakeFile, str]] = {
    "missing": (lambda path: None, "there is no file"),
    "a folder": (lambda path: path.mkdir(), "is a directory"),
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "truncated": (truncated, "truncated"),
    "cut in the header": (cut_in_the_header, "truncated"),
    "random bytes": (lambda path: path.write_bytes(bytes(range(256)) * 40), "not a GGUF"),
    "text": (lambda path: path.write_text("# My notes\n" * 50), "text"),
    "HTML": (lambda path: path.write_text("<!DOCTYPE html>\n<html><title>404</title></html>" * 9), "HTML"),
    "absurd counts": (many_tensors, "corrupt"),
    "another architecture": (lambda path: write_toy_model(path, ToyModel(architecture="llama")), "llama"),
    "too many layers": (lambda path: write_toy_model(path, ToyModel(ToyGeometry(layers=513, hidden=32))), "513"),
    "a link to itself": (loop, "symbolic links"),
    "a device": (lambda path: path.symlink_to("/dev/null"), "file"),
}


def assert_one_error(done: Completed, *, said: str) -> None:
    assert (done.status, done.out) == (3, b"")
    what, hint = done.err.splitlines()
    assert what.startswith("error: ")
    assert said.casefold() in what.casefold()
    assert hint.startswith("hint: ")
    assert "Traceback" not in done.err


@pytest.mark.parametrize(("make", "said"), BAD_FILES.values(), ids=BAD_FILES)
def test_importing_a_bad_file_is_one_error_and_leaves_nothing(
    hymt_here: RunHymt, tmp_path: Path, isolated_environment: Path, make: MakeFile, said: str
) -> None:
    file = tmp_path / "some model.gguf"
    make(file)
    assert_one_error(hymt_here("models", "import", str(file), "--as", ANY_ID), said=said)
    assert not (isolated_environment / "data").exists()


@pytest.mark.parametrize("kind", ["missing", "truncated", "HTML", "random bytes"])
def test_an_imported_file_that_went_bad_is_one_error_and_is_not_loaded(
    hymt_here: RunHymt, tmp_path: Path, isolated_environment: Path, kind: str
) -> None:
    hymt_here("models", "import", str(write_toy_model(tmp_path / "good.gguf")), "--as", ANY_ID)
    (file,) = (isolated_environment / "data" / "models").glob("*.gguf")
    file.unlink()
    BAD_FILES[kind][0](file)
    done = hymt_here("hello", "-f", "en", "-t", "fr", environ={"HYMT_MODEL": ANY_ID})
    assert_one_error(done, said="is gone" if kind == "missing" else "has changed")


@pytest.mark.parametrize("kind", ["truncated", "HTML", "another architecture"])
def test_a_manifest_that_vouches_for_a_bad_file_is_not_believed(
    hymt_here: RunHymt, tmp_path: Path, isolated_environment: Path, kind: str
) -> None:
    hymt_here("models", "import", str(write_toy_model(tmp_path / "good.gguf")), "--as", ANY_ID)
    (manifest,) = (isolated_environment / "data" / "models").glob("*.json")
    make, said = BAD_FILES[kind]
    bad = tmp_path / "bad.gguf"
    make(bad)
    status = bad.stat()
    entry = {"path": str(bad), "size_bytes": status.st_size, "modified_ns": status.st_mtime_ns}
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **entry}))
    assert_one_error(hymt_here("hello", "-f", "en", "-t", "fr", "-m", ANY_ID), said=said)


def test_a_path_in_place_of_a_model_says_to_import_it(hymt_here: RunHymt, tmp_path: Path) -> None:
    file = write_toy_model(tmp_path / "good.gguf")
    for environ, flags in (({}, ("-m", str(file))), ({"HYMT_MODEL": str(file)}, ())):
        done = hymt_here("hello", "-f", "en", "-t", "fr", *flags, environ=environ)
        assert_one_error(done, said="is a file, not a model reference")
        assert "hymt models import" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema = 1\n[[model]]\n", "model"),
        ("schema = 2\n", "schema"),
        ("schema = [", "models.toml"),
        ("schema = 1\n[[models]]\nid = 'x'\n", "models[0]"),
    ],
)
def test_a_bad_catalog_of_the_user_is_one_configuration_error(
    hymt_here: RunHymt, isolated_environment: Path, text: str, said: str
) -> None:
    (isolated_environment / "config").mkdir()
    (isolated_environment / "config" / "models.toml").write_text(text)
    done = hymt_here("hello", "-m", "echo", "-f", "en", "-t", "fr")
    assert (done.status, done.out) == (2, b"")
    what, _ = done.err.splitlines()
    assert "models.toml" in what
    assert said in what


def test_a_model_of_the_users_catalog_can_be_imported_and_used(
    hymt_here: RunHymt, tmp_path: Path, isolated_environment: Path
) -> None:
    (isolated_environment / "config").mkdir()
    (isolated_environment / "config" / "models.toml").write_text(
        'schema = 1\n[[models]]\nid = "Mine"\ntitle = "Mine"\nfamily = "dense-7B"\n'
        'template_set = "mt1"\nlicence = "Apache-2.0"\nname_patterns = ["^mine"]\n'
    )
    done = hymt_here("models", "import", str(write_toy_model(tmp_path / "mine.gguf")))
    assert (done.status, done.err) == (0, "")
    assert done.text.startswith("Mine:F32\t")
    assert hymt_here("models", "use", "mine").text == "Mine:F32\n"
