"""`hymt models verify`, `rm` and `use --for`: what is checked, what is deleted and what never is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest

from hymt_local.paths import Paths
from tests.cli.conftest import Completed, RunHymt
from tests.toy_models import ToyModel, write_toy_model

ANY_ID = "Hunyuan-MT-7B"
REF = "Hunyuan-MT-7B:F32"


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return write_toy_model(tmp_path / "toy.gguf")


@pytest.fixture(autouse=True)
def no_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hymt_local.installed.demo_file", lambda: tmp_path / "absent")


@pytest.fixture
def linked(hymt_here: RunHymt, toy: Path, paths: Paths) -> Path:
    """An imported model: the link in the models folder."""
    assert hymt_here("models", "import", str(toy), "--as", ANY_ID).status == 0
    (file,) = paths.models_dir.glob("*.gguf")
    return file


def the_error(done: Completed, status: int) -> str:
    assert (done.status, done.out) == (status, b"")
    what, _ = done.err.splitlines()
    return what.removeprefix("error: ")


# verify


@pytest.mark.usefixtures("linked")
def test_a_sound_model_is_verified_by_its_hash(hymt_here: RunHymt) -> None:
    for arguments in ([], [ANY_ID], [REF.lower()]):
        done = hymt_here("models", "verify", *arguments)
        assert (done.status, done.err) == (0, "")
        _, row = done.text.splitlines()
        assert row.split()[:2] == ["ok", REF]
        assert "the file that was imported, sha256 " in row


def test_one_changed_byte_is_found_and_the_way_out_named(hymt_here: RunHymt, linked: Path) -> None:
    status = linked.stat()
    data = bytearray(linked.read_bytes())
    data[-1] ^= 1
    linked.write_bytes(data)
    os.utime(linked, ns=(status.st_atime_ns, status.st_mtime_ns))
    done = hymt_here("models", "verify")
    assert done.status == 3
    assert "FAIL" in done.text
    assert f"-> {REF}: `hymt models rm {REF}`, then pull or import it again" in done.text


@pytest.mark.parametrize("damage", ["truncated", "gone", "another file"])
def test_damage_is_found(hymt_here: RunHymt, linked: Path, damage: str) -> None:
    if damage == "truncated":
        os.truncate(linked, 1000)
    elif damage == "gone":
        linked.unlink()
    else:
        linked.write_text("<html>")
    done = hymt_here("models", "verify", "--json")
    assert (done.status, done.err) == (3, "")
    (result,) = json.loads(done.out)["models"]
    assert (result["ref"], result["outcome"]) == (REF, "failed")


def test_a_file_that_was_only_touched_is_taken_up_again(hymt_here: RunHymt, linked: Path) -> None:
    os.utime(linked, ns=(1, 1))
    assert "has changed" in the_error(hymt_here("models", "use", ANY_ID), 3)
    assert hymt_here("models", "verify").status == 0
    assert hymt_here("models", "use", ANY_ID).status == 0


def test_a_manifest_that_cannot_be_read_is_a_finding(hymt_here: RunHymt, linked: Path, paths: Paths) -> None:
    (paths.models_dir / "broken.json").write_text("{")
    done = hymt_here("models", "verify")
    assert done.status == 3
    assert "broken.json" in done.text


def test_verifying_what_is_not_installed_is_an_error(hymt_here: RunHymt) -> None:
    assert "is not installed" in the_error(hymt_here("models", "verify", "Hy-MT2-7B"), 3)
    assert "no such option: --nonsense" in the_error(hymt_here("models", "verify", "--nonsense"), 2)


def test_a_file_of_anybody_goes_to_the_converters_checks(hymt_here: RunHymt, toy: Path) -> None:
    done = hymt_here("models", "verify", str(toy), "--header-only")
    assert str(toy) in done.text
    assert "structure" in done.text or "header" in done.text


# rm


def test_an_imported_file_loses_its_link_and_keeps_itself(
    hymt_here: RunHymt, toy: Path, linked: Path, paths: Paths
) -> None:
    done = hymt_here("models", "rm", ANY_ID, "--yes")
    assert (done.status, done.text, done.err) == (0, f"{REF}\n", "")
    assert toy.exists()
    assert list(paths.models_dir.iterdir()) == []


def test_a_file_used_where_it_lies_is_never_deleted(
    hymt_here: RunHymt, toy: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(18, "cross-device")))
        hymt_here("models", "import", str(toy), "--as", ANY_ID)
    done = hymt_here("models", "rm", ANY_ID, "--yes")
    assert done.err == f"note: {toy} stays: it was not put there by hymt-local\n"
    assert toy.exists()
    assert list(paths.models_dir.iterdir()) == []


def test_a_file_that_the_user_put_into_the_models_folder_is_never_deleted(hymt_here: RunHymt, paths: Paths) -> None:
    paths.models_dir.mkdir(parents=True)
    file = write_toy_model(paths.models_dir / "mine.gguf")
    hymt_here("models", "import", str(file), "--as", ANY_ID)
    assert hymt_here("models", "rm", ANY_ID, "--yes").status == 0
    assert list(paths.models_dir.iterdir()) == [file]


def test_a_manifest_of_an_earlier_version_tells_by_the_links_name(
    hymt_here: RunHymt, linked: Path, paths: Paths
) -> None:
    (manifest,) = paths.models_dir.glob("*.json")
    fields = json.loads(manifest.read_text())
    del fields["is_ours"]
    manifest.write_text(json.dumps(fields))
    assert hymt_here("models", "rm", ANY_ID, "--yes").status == 0
    assert not linked.exists()


def test_without_a_terminal_nothing_is_removed_unasked(hymt_here: RunHymt, linked: Path) -> None:
    assert the_error(hymt_here("models", "rm", ANY_ID), 2) == f"{REF} is not removed without a question"
    assert linked.exists()


@pytest.mark.parametrize(("answer", "status"), [(True, 0), (False, 130)])
def test_on_a_terminal_the_question_names_the_file(
    hymt_here: RunHymt, linked: Path, monkeypatch: pytest.MonkeyPatch, answer: bool, status: int
) -> None:
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("hymt_local.cli.models.removing._can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    assert hymt_here("models", "rm", ANY_ID).status == status
    assert asked == [f"Remove {REF} and delete {linked} (0.4 MB)?"]
    assert linked.exists() != answer


@pytest.mark.usefixtures("linked")
def test_settings_that_name_a_removed_model_are_forgotten(hymt_here: RunHymt) -> None:
    hymt_here("models", "use", ANY_ID)
    hymt_here("models", "use", "echo", "--for", "en-fr")
    hymt_here("models", "use", ANY_ID, "--for", "en-zh")
    hymt_here("models", "import", str(write_toy_model(Path(os.environ["HYMT_HOME"]) / "x.gguf", ToyModel(seed=1))),
              "--as", "Hy-MT2-7B")  # fmt: skip
    done = hymt_here("models", "rm", ANY_ID, "--yes")
    assert done.status == 0
    assert "note: the default is Hy-MT2-7B:F32 now" in done.err
    settings = json.loads(hymt_here("config", "show", "--json").out)
    assert settings["model"]["value"] is None
    assert settings["pair_models"]["value"] == {"en-fr": "echo"}


@pytest.mark.usefixtures("linked")
def test_removing_the_last_real_model_leaves_a_working_program(hymt_here: RunHymt) -> None:
    hymt_here("models", "use", ANY_ID)
    done = hymt_here("models", "rm", ANY_ID, "--yes")
    assert (done.status, done.text) == (0, f"{REF}\n")
    assert done.err.startswith("note: no model is installed: `hymt models pull` fetches one")
    assert hymt_here("hello", "-m", "echo", "-f", "en", "-t", "fr").out == b"hello\n"


@pytest.mark.parametrize("ref", ["echo", "Hy-MT2-7B", "nonsense"])
def test_what_is_not_an_installed_model_cannot_be_removed(hymt_here: RunHymt, ref: str) -> None:
    the_error(hymt_here("models", "rm", ref, "--yes"), 3)


# use --for


def test_a_pair_gets_its_own_model(hymt_here: RunHymt) -> None:
    assert hymt_here("models", "use", "echo", "--for", "en-fr").out == b"en-fr\techo\n"
    hymt_here("models", "use", "pseudo", "--for", "*-zh")
    hymt_here("models", "use", "echo")
    assert hymt_here("hello", "-f", "en", "-t", "fr").out == b"hello\n"
    assert "hello" not in hymt_here("hello", "-f", "en", "-t", "zh").text
    assert hymt_here("hello", "-f", "en", "-t", "zh", "-m", "echo").out == b"hello\n"
    assert hymt_here("hello", "-f", "en", "-t", "zh", environ={"HYMT_MODEL": "echo"}).out == b"hello\n"


def test_auto_takes_the_pairs_own_model_away(hymt_here: RunHymt, paths: Paths) -> None:
    hymt_here("models", "use", "echo", "--for", "en-fr")
    assert hymt_here("models", "use", "auto", "--for", "en-fr").out == b"en-fr\tauto\n"
    assert "pair_models" not in paths.config_file.read_text()


def test_settings_written_after_a_pair_stay_settings(hymt_here: RunHymt) -> None:
    hymt_here("models", "use", "echo", "--for", "en-fr")
    hymt_here("config", "set", "threads", "2")
    hymt_here("models", "use", "pseudo", "--for", "en-de")
    settings = json.loads(hymt_here("config", "show", "--json").out)
    assert settings["threads"]["value"] == 2
    assert settings["pair_models"]["value"] == {"en-fr": "echo", "en-de": "pseudo"}


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["echo", "--for", "en"], 2), (["echo", "--for", "en-en"], 2), (["Hy-MT2-7B", "--for", "en-zh"], 3)],
)
def test_a_wrong_pair_or_model_is_an_error_and_changes_nothing(
    hymt_here: RunHymt, paths: Paths, arguments: list[str], status: int
) -> None:
    the_error(hymt_here("models", "use", *arguments), status)
    assert not paths.config_file.exists()


# import FOLDER


def named(path: Path, name: str, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_toy_model(path, ToyModel(name=name, seed=seed))


def test_of_a_folder_all_known_models_are_taken_whoever_keeps_them(hymt_here: RunHymt, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    named(shelf / "lm-studio" / "tencent" / "Hy-MT2-7B-Q4.gguf", "toy")
    blob = named(shelf / "ollama" / "blobs" / f"sha256-{'0' * 64}", "Hy-MT2-1.8B", seed=1)
    (shelf / "hub").mkdir()
    (shelf / "hub" / "again.gguf").symlink_to(blob)
    (shelf / "ollama" / "blobs" / f"sha256-{'1' * 64}").write_text('{"a manifest": 1}')
    (shelf / "notes.gguf").write_text("no model")
    named(shelf / "unknown.gguf", "somebody's own", seed=2)
    done = hymt_here("models", "import", str(shelf))
    assert done.status == 0
    assert sorted(line.split("\t")[0] for line in done.text.splitlines()) == ["Hy-MT2-1.8B:F32", "Hy-MT2-7B:F32"]
    assert [line for line in done.err.splitlines() if "left out" in line] == [
        f"note: left out {shelf / 'unknown.gguf'}: cannot tell which model unknown.gguf is "
        '(general.name = "somebody\'s own")'
    ]
    as_json = json.loads(hymt_here("models", "import", str(shelf), "--json").out)
    assert {model["id"] for model in as_json["models"]} == {"Hy-MT2-7B", "Hy-MT2-1.8B"}


def test_a_folder_with_nothing_to_use_is_an_error(hymt_here: RunHymt, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = hymt_here("models", "import", str(tmp_path / "empty"))
    assert the_error(done, 3).endswith("is a directory without a model that could be used")
