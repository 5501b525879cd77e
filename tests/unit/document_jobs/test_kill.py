"""A job that dies at any point is resumed to the same bytes as one that was never disturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hymt_local.document_jobs import files, journal
from hymt_local.document_jobs.events import DocumentFinished, DocumentSkipped
from hymt_local.document_jobs.run import run_document
from hymt_local.errors import SegmentRejectedError
from hymt_local.segment import UnitText
from tests.document_services import UnitsService, options, task

N_POINTS = 50
TEXT = "".join(f"Sentence {n % 130} of this story.\n\n" for n in range(300))


class KilledError(BaseException):
    """The process is gone; nothing catches this."""


class Assassin:
    """Counts the steps that reach the disk, and dies at one of them: before it, or with half of it done.

    Args:
        dies_at: Number of the step; None lets the job live and counts.
    """

    def __init__(self, dies_at: int | None = None) -> None:
        self.n_steps = 0
        self._dies_at = dies_at

    def step(self, half: Callable[[], object] = lambda: None) -> None:
        self.n_steps += 1
        if self.n_steps == self._dies_at:
            half()
            raise KilledError

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Stand before every write, flush, rename and removal of a job."""
        with pytest.MonkeyPatch.context() as patch:
            self._guard_journal(patch)
            for owner, name in (
                (files, "_put_in_place"),
                (files, "_sync_folder"),
                (journal.Journal, "finish"),
                (Path, "replace"),
            ):
                self._guard(patch, owner, name)
            yield

    def _guard_journal(self, patch: pytest.MonkeyPatch) -> None:
        write = journal.Journal._write

        def guarded(kept: Any, record: dict[str, Any]) -> None:
            line = str(record).encode()
            self.step(lambda: kept._stream.write(line[: len(line) // 2]))
            write(kept, record)

        patch.setattr(journal.Journal, "_write", guarded)

    def _guard(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.step()
            return original(*args, **kwargs)

        patch.setattr(owner, name, guarded)


def translate(unit: UnitText) -> str:
    if "7" in unit.text:
        raise SegmentRejectedError("no sevens")
    return f"⟦{unit.text}⟧"


def run_job(source: Path, state_dir: Path, *, resumes: bool = False) -> Any:
    job = task(source, options=options(None), resumes=resumes)
    return list(run_document(job, UnitsService(translate), state_dir=state_dir))[-1]


def undisturbed(folder: Path) -> tuple[bytes, int]:
    """Return the right output, and how many steps it takes."""
    source = folder / "story.txt"
    source.write_text(TEXT, encoding="utf-8")
    assassin = Assassin()
    with assassin.watching():
        assert isinstance(run_job(source, folder / "state"), DocumentFinished)
    return source.with_name("story.fr.txt").read_bytes(), assassin.n_steps


def test_v_3_a_job_killed_at_any_of_fifty_points_is_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    expected, n_steps = undisturbed(tmp_path / "whole")
    assert n_steps > N_POINTS
    points = sorted({1 + (n_steps - 1) * point // (N_POINTS - 1) for point in range(N_POINTS)} | {n_steps - 1})
    for point in points:
        folder = tmp_path / str(point)
        folder.mkdir()
        source = folder / "story.txt"
        source.write_text(TEXT, encoding="utf-8")
        with Assassin(point).watching(), pytest.raises(KilledError):
            run_job(source, folder / "state")
        target = source.with_name("story.fr.txt")
        assert not target.exists() or target.read_bytes() == expected, point
        last = run_job(source, folder / "state", resumes=True)
        assert isinstance(last, DocumentFinished | DocumentSkipped), (point, last)
        assert target.read_bytes() == expected, point
        assert source.read_text(encoding="utf-8") == TEXT


PROGRAM = """
import sys, time
from pathlib import Path
from hymt_local.document_jobs.events import UnitSettled
from hymt_local.document_jobs.run import run_document
from tests.document_services import UnitsService, options, task
from tests.unit.document_jobs.test_kill import translate
source, n_units = Path(sys.argv[1]), int(sys.argv[2])
job = task(source, options=options(None))
for event in run_document(job, UnitsService(translate), state_dir=source.parent / "state"):
    n_units -= isinstance(event, UnitSettled)
    if n_units == 0:
        print("here", flush=True)
        time.sleep(60)
"""


@pytest.mark.slow
def test_v_3_a_process_killed_for_real_is_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    expected, _ = undisturbed(tmp_path / "whole")
    processes = []
    for n_units in (1, 130, 290):
        folder = tmp_path / str(n_units)
        folder.mkdir()
        (folder / "story.txt").write_text(TEXT, encoding="utf-8")
        command = [sys.executable, "-c", PROGRAM, str(folder / "story.txt"), str(n_units)]
        processes.append((folder, subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ})))
    for folder, process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not (folder / "story.fr.txt").exists()
        last = run_job(folder / "story.txt", folder / "state", resumes=True)
        assert isinstance(last, DocumentFinished)
        assert last.report.from_journal > 0
        assert (folder / "story.fr.txt").read_bytes() == expected
        assert sorted(path.name for path in folder.iterdir()) == ["state", "story.fr.txt", "story.txt"]
