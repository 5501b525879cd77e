"""The hidden folder in which a conversion works, with its journal: what a killed one had finished is not done again.

Only what is on the disk is in the journal. The folder disappears with success and with every error; it stays when the
process is killed or interrupted. One process at a time may hold it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import BinaryIO

from hymt_local.errors import StoreError

SUFFIX = ".converting"
IMATRIX_STATE = "imatrix.npz"
"""An importance matrix that is being computed; see `imatrix_state`."""
SYNC_BYTES = 512 << 20
"""At most so much has to be written again after a kill."""
STALE_S = 7 * 24 * 3600.0
_JOURNAL = "journal"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class _Output:
    """A finished file: enough to know it again, and what cannot be read from it."""

    size_bytes: int
    modified_ns: int
    fallbacks: dict[str, str]


@dataclass(slots=True)
class Workspace:
    """An open one. Its methods are for the thread that opened it."""

    folder: Path
    identity: str
    _tensors: dict[str, int] = field(default_factory=dict)
    _outputs: dict[str, _Output] = field(default_factory=dict)
    _synced_at: dict[str, int] = field(default_factory=dict)

    def path(self, kind: str) -> Path:
        """Return where the unfinished file of a type is written."""
        return self.folder / f"{kind}.gguf"

    def n_finished(self, kind: str) -> int:
        """Return how many tensors of the unfinished file of a type are complete."""
        return self._tensors.get(kind, 0)

    def tensor_finished(self, kind: str, count: int, file: BinaryIO, *, is_last: bool) -> None:
        """Note that the first `count` tensors are written, now and then: waiting for the disk costs time."""
        position = file.tell()
        if not is_last and position - self._synced_at.get(kind, 0) < SYNC_BYTES:
            return
        file.flush()
        os.fsync(file.fileno())
        self._synced_at[kind] = position
        self._tensors[kind] = count
        self._append({"kind": kind, "tensors": count})

    def output_finished(self, kind: str, path: Path, *, fallbacks: Mapping[str, str]) -> None:
        """Note that the finished file of a type lies at `path`, and what the quantizer replaced in it."""
        self._outputs[kind] = _Output(*_size_and_time(path), dict(fallbacks))
        self._append({"kind": kind, "output": astuple(self._outputs[kind])})

    def finished_output(self, kind: str, path: Path) -> Mapping[str, str] | None:
        """Return the fallbacks of the file at `path` if it is the one that was noted as finished."""
        output = self._outputs.get(kind)
        try:
            is_same = output is not None and (output.size_bytes, output.modified_ns) == _size_and_time(path)
        except OSError:
            return None
        return output.fallbacks if output is not None and is_same else None

    def begin(self) -> None:
        """Go on with what the journal knows, or begin one; whatever else lies in the folder is removed."""
        is_known = self._read_journal()
        mine = [_JOURNAL, IMATRIX_STATE] if is_known else []
        known = {_LOCK, *mine, *(self.path(kind).name for kind in self._tensors)}
        for path in self.folder.iterdir():
            if path.name not in known:
                path.unlink()
        if not is_known:
            self._append({"identity": self.identity})

    def _read_journal(self) -> bool:
        """Take over what a killed process noted; False when there is nothing or it is about something else."""
        try:
            lines = (self.folder / _JOURNAL).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return False
        entries = [entry for entry in map(_entry, lines) if entry]
        if not entries or entries[0].get("identity") != self.identity:
            return False
        for entry in entries[1:]:
            kind, tensors, output = str(entry.get("kind")), entry.get("tensors"), entry.get("output")
            if isinstance(tensors, int):
                self._tensors[kind] = tensors
            elif isinstance(output, list) and len(output) == len(fields(_Output)):
                self._outputs[kind] = _Output(*output)
        return True

    def _append(self, entry: dict[str, object]) -> None:
        with (self.folder / _JOURNAL).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _size_and_time(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _entry(line: str) -> dict[str, object]:
    try:
        entry = json.loads(line)
    except ValueError:  # the last line of a process that was killed while it wrote
        return {}
    return entry if isinstance(entry, dict) else {}


@contextlib.contextmanager
def open_workspace(output_folder: Path, name: str, *, identity: str) -> Iterator[Workspace]:
    """Give the workspace of one model, with what a killed conversion of the same identity left in it.

    Args:
        output_folder: Where the finished files go; it must exist.
        name: Stem of the finished files.
        identity: Digest of everything that decides the bytes of the unquantized file.

    Raises:
        StoreError: the folder cannot be written to, or another process converts this model there.
    """
    folder = _folder(output_folder, name)
    with _locked(folder):
        try:
            workspace = Workspace(folder, identity)
            workspace.begin()
        except OSError as error:
            raise _unwritable(output_folder, error) from error
        try:
            yield workspace
        except Exception:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def written_bytes(output_folder: Path, name: str, *, identity: str, outputs: Mapping[str, Path]) -> int:
    """Return how much of the room that a conversion needs is taken by what an earlier run has left."""
    folder = _folder(output_folder, name)
    workspace = Workspace(folder, identity)
    try:
        taken = _folder_bytes(folder)
        workspace._read_journal()
    except OSError:
        return 0
    done = (path for kind, path in outputs.items() if workspace.finished_output(kind, path) is not None)
    return taken + sum(path.stat().st_size for path in done)


def _folder(output_folder: Path, name: str) -> Path:
    return output_folder / f".{name}{SUFFIX}"


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@dataclass(frozen=True, slots=True)
class Leftover:
    """The workspace of an interrupted conversion."""

    name: str
    size_bytes: int
    is_removed: bool


def sweep(output_folder: Path, *, except_name: str, now: float | None = None) -> tuple[Leftover, ...]:
    """Remove the workspaces of other models that nobody has touched for a week; report them and the younger ones."""
    found: list[Leftover] = []
    for folder in sorted(output_folder.glob(f".*{SUFFIX}")):
        name = folder.name[1 : -len(SUFFIX)]
        if name == except_name or not (folder / _JOURNAL).is_file():
            continue
        with contextlib.suppress(OSError, StoreError), _locked(folder):
            size_bytes = _folder_bytes(folder)
            age_s = (time.time() if now is None else now) - (folder / _JOURNAL).stat().st_mtime
            if age_s > STALE_S:
                shutil.rmtree(folder)
            found.append(Leftover(name, size_bytes, age_s > STALE_S))
    return tuple(found)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a workspace against other processes; the lock dies with this one. Without `fcntl` nothing is held."""
    try:
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():  # what lies in it may be anybody's
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        file = (folder / _LOCK).open("ab")
    except OSError as error:
        raise _unwritable(folder.parent, error) from error
    with file:
        try:
            import fcntl
        except ImportError:  # Windows
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(
                f"{folder} is in use: another conversion of this model is running",
                hint="Wait for it, or choose another folder with -o.",
            ) from error
        yield


def _unwritable(folder: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot write to {folder}: {error.strerror or error}", hint="Choose another folder with -o.")
