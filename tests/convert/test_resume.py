"""A conversion that was killed goes on where it stopped, and its files are those of one that was not."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest

from hymt_convert import workspace
from hymt_convert.conversion import ConversionRequest, convert, fingerprint, plan_conversion, run_conversion
from hymt_convert.progress import Progress
from hymt_convert.workspace import STALE_S, Leftover, open_workspace, sweep
from hymt_local.errors import ModelFileError, StoreError
from tests.convert import toy_checkpoint as toy

KINDS = ("F16", "Q8_0", "Q4_0")
WORKSPACE = ".toy.converting"
DiskUsage = namedtuple("DiskUsage", "total used free")


class Killed(BaseException):
    """Stands in for a kill: no `except Exception` sees it."""


@pytest.fixture(autouse=True)
def every_tensor_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "SYNC_BYTES", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.write_checkpoint(tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("expected")
    toy.write_checkpoint(folder / "toy")
    convert(ConversionRequest(folder / "toy", folder / "whole", KINDS))
    return hashes(folder / "whole")


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


def kill_when(condition: Callable[[Progress], bool]) -> Callable[[Progress], None]:
    def on_progress(progress: Progress) -> None:
        if condition(progress):
            raise Killed

    return on_progress


POINTS: dict[str, Callable[[Progress], bool]] = {
    "at the first byte": lambda progress: True,
    "in the middle of the first file": lambda progress: progress.done * 2 > progress.total,
    "at the end of the first file": lambda progress: progress.done == progress.total,
    "in the middle of the base file": lambda p: p.step == "writing F32" and p.done * 2 > p.total,
    "in the first quantization": lambda p: p.step == "quantizing to Q8_0",
    "in the second quantization": lambda p: p.step == "quantizing to Q4_0" and p.done > 1,
}


@pytest.mark.parametrize("point", POINTS)
def test_a_resumed_conversion_yields_the_same_bytes(
    folder: Path, tmp_path: Path, expected: dict[str, str], point: str
) -> None:
    kinds = KINDS[:1] if "first file" in point or "byte" in point else KINDS if "second" in point else KINDS[:2]
    request = ConversionRequest(folder, tmp_path / "output", kinds)
    with pytest.raises(Killed):
        convert(request, on_progress=kill_when(POINTS[point]))
    assert (tmp_path / "output" / WORKSPACE).is_dir()
    report = convert(request)
    names = [f"toy-{kind}.gguf" for kind in kinds]
    assert hashes(tmp_path / "output") == {name: expected[name] for name in names}
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == sorted(names)
    assert [file.quantization for file in report.files] == list(kinds)


def test_what_was_finished_is_not_done_again(folder: Path, tmp_path: Path) -> None:
    request = ConversionRequest(folder, tmp_path / "output", KINDS)
    with pytest.raises(Killed):
        convert(request, on_progress=kill_when(POINTS["in the second quantization"]))
    seen: list[Progress] = []
    convert(request, on_progress=seen.append)
    assert [(progress.step, progress.done, progress.resumed) for progress in seen[:1]] == [
        ("writing F32", seen[0].total, seen[0].total)
    ]
    assert {progress.step for progress in seen[1:]} == {"quantizing to Q4_0"}


def test_writing_goes_on_behind_the_last_whole_tensor(folder: Path, tmp_path: Path) -> None:
    request = ConversionRequest(folder, tmp_path / "output", ("F16",))
    with pytest.raises(Killed):
        convert(request, on_progress=kill_when(POINTS["in the middle of the first file"]))
    seen: list[Progress] = []
    convert(request, on_progress=seen.append)
    assert 0 < seen[0].done == seen[0].resumed < seen[0].total


def test_a_process_killed_by_the_system_can_be_resumed(folder: Path, tmp_path: Path, expected: dict[str, str]) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from hymt_convert import workspace; from hymt_convert.conversion import ConversionRequest, convert\n"
        "workspace.SYNC_BYTES = 1\n"
        "def die(p):\n    if p.step == 'writing F32' and p.done * 2 > p.total: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"convert(ConversionRequest(Path(sys.argv[1]), Path(sys.argv[2]), {KINDS!r}), on_progress=die)"
    )
    output = tmp_path / "output"
    result = subprocess.run([sys.executable, "-c", code, str(folder), str(output)], check=False)
    assert result.returncode == -signal.SIGKILL
    left = {path.name for path in (output / WORKSPACE).iterdir()}
    assert {"F32.gguf", "journal", "lock"} <= left
    assert list(hashes(output)) == ["toy-F16.gguf"]
    seen: list[Progress] = []
    convert(ConversionRequest(folder, output, KINDS), on_progress=seen.append)
    assert seen[0].step == "writing F32"
    assert seen[0].resumed > 0
    assert hashes(output) == expected


def _half_done(folder: Path, output: Path) -> Path:
    with pytest.raises(Killed):
        convert(
            ConversionRequest(folder, output, ("F16",)),
            on_progress=kill_when(POINTS["in the middle of the first file"]),
        )
    return output / WORKSPACE


def _first_progress(folder: Path, output: Path, **changes: str) -> Progress:
    seen: list[Progress] = []
    convert(ConversionRequest(folder, output, ("F16",), **changes), on_progress=seen.append)  # type: ignore[arg-type]
    return seen[0]


def test_other_weights_are_not_mixed_with_those_before(folder: Path, tmp_path: Path) -> None:
    _half_done(folder, tmp_path / "output")
    toy.write_checkpoint(folder, seed=1)
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert _first_progress(folder, tmp_path / "output").resumed == 0
    convert(ConversionRequest(folder, tmp_path / "whole", ("F16",)))
    assert hashes(tmp_path / "output") == hashes(tmp_path / "whole")


def test_other_settings_begin_anew(folder: Path, tmp_path: Path) -> None:
    _half_done(folder, tmp_path / "output")
    assert _first_progress(folder, tmp_path / "output", licence="apache-2.0").resumed == 0


@pytest.mark.parametrize("tail", [b'{"kind": "F16", "tens', b"\xff\xfe\n", b'[1]\n{"kind": 3}\n'])
def test_a_torn_journal_counts_as_far_as_it_can_be_read(folder: Path, tmp_path: Path, tail: bytes) -> None:
    left = _half_done(folder, tmp_path / "output")
    with (left / "journal").open("ab") as file:
        file.write(tail)
    _first_progress(folder, tmp_path / "output")
    convert(ConversionRequest(folder, tmp_path / "whole", ("F16",)))
    assert hashes(tmp_path / "output") == hashes(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["cut", "header", "gone"])
def test_an_unfinished_file_that_is_not_what_the_journal_says_is_begun_anew(
    folder: Path, tmp_path: Path, damage: str
) -> None:
    unfinished = _half_done(folder, tmp_path / "output") / "F16.gguf"
    content = unfinished.read_bytes()
    if damage == "gone":
        unfinished.unlink()
    else:
        unfinished.write_bytes(content[:-30_000] if damage == "cut" else content[:50] + b"!" + content[51:])
    _first_progress(folder, tmp_path / "output")
    convert(ConversionRequest(folder, tmp_path / "whole", ("F16",)))
    assert hashes(tmp_path / "output") == hashes(tmp_path / "whole")


def test_an_output_that_was_changed_meanwhile_is_made_again(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    with pytest.raises(Killed):
        convert(
            ConversionRequest(folder, output, KINDS), on_progress=kill_when(POINTS["in the middle of the base file"])
        )
    (output / "toy-F16.gguf").write_bytes(b"other")
    convert(ConversionRequest(folder, output, KINDS))
    assert (output / "toy-F16.gguf").stat().st_size > 10_000


def test_an_error_leaves_no_workspace(folder: Path, tmp_path: Path) -> None:
    _half_done(folder, tmp_path / "output")
    weights = toy.random_weights(toy.Shape())
    weights["model.norm.weight"][0] = float("nan")
    toy.write_safetensors(folder / "model.safetensors", weights)
    with pytest.raises(ModelFileError):
        convert(ConversionRequest(folder, tmp_path / "output", ("F16",)))
    assert list((tmp_path / "output").iterdir()) == []


def test_what_is_already_written_needs_no_room_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = _half_done(folder, tmp_path / "output")
    plan = plan_conversion(ConversionRequest(folder, tmp_path / "output", ("F16",)))
    room = plan.estimated_bytes - sum(path.stat().st_size for path in left.iterdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(10**9, 10**9, room - 1))
    with pytest.raises(StoreError, match="MiB are needed"):
        run_conversion(plan)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(10**9, 10**9, room))
    seen: list[Progress] = []
    run_conversion(plan, on_progress=seen.append)
    assert seen[0].resumed > 0


def test_two_conversions_of_one_model_do_not_meet(folder: Path, tmp_path: Path) -> None:
    plan = plan_conversion(ConversionRequest(folder, tmp_path, ("F16",)))
    with (
        open_workspace(tmp_path, "toy", identity=fingerprint(plan)),
        pytest.raises(StoreError, match=r"\.toy\.converting is in use"),
    ):
        run_conversion(plan)


def test_a_link_in_place_of_the_workspace_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "letter").write_text("dear")
    (tmp_path / WORKSPACE).symlink_to(tmp_path / "precious")
    with pytest.raises(StoreError, match="Not a directory"):
        convert(ConversionRequest(folder, tmp_path, ("F16",)))
    assert (tmp_path / "precious" / "letter").read_text() == "dear"


def test_a_workspace_of_another_model_is_reported_and_removed_after_a_week(folder: Path, tmp_path: Path) -> None:
    left = _half_done(folder, tmp_path)
    size_bytes = sum(path.stat().st_size for path in left.iterdir())
    (tmp_path / ".other.converting").mkdir()  # nobody's: it has no journal
    written_at = (left / "journal").stat().st_mtime
    assert sweep(tmp_path, except_name="toy", now=written_at + 2 * STALE_S) == ()
    assert sweep(tmp_path, except_name="x", now=written_at + 60) == (Leftover("toy", size_bytes, False),)
    assert left.exists()
    assert sweep(tmp_path, except_name="x", now=written_at + STALE_S + 1) == (Leftover("toy", size_bytes, True),)
    assert not left.exists()
    assert (tmp_path / ".other.converting").exists()


def test_a_workspace_in_use_is_not_swept(tmp_path: Path) -> None:
    with open_workspace(tmp_path, "toy", identity="x"):
        assert sweep(tmp_path, except_name="", now=1e12) == ()
        assert (tmp_path / WORKSPACE / "journal").read_text() == json.dumps({"identity": "x"}) + "\n"
