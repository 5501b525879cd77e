"""The files of a document job: read once, claimed by one process, replaced in one step. Originals are never written."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hymt_local.errors import DocumentError, StoreError
from hymt_local.file_lock import release, try_lock

MAX_DOCUMENT_BYTES = 128 * 1024 * 1024
"""More than any book; a parsed document takes a multiple of its size in memory."""
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES})


def read_source(path: Path) -> bytes:
    """Return a document's bytes.

    Raises:
        DocumentError: it does not exist, is not a regular file, cannot be read, or is too large.
    """
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise DocumentError(f"{path} is a folder", hint="`hymt file FOLDER` translates the documents in it")
        if not stat.S_ISREG(found.st_mode):
            raise DocumentError(f"{path} is not a regular file", hint="save it to a file first")
        check_size(found.st_size, name=str(path))
        return path.read_bytes()
    except FileNotFoundError as error:
        if path.is_symlink():
            raise DocumentError(f"{path} is a link to a file that does not exist", hint="mend the link") from error
        raise DocumentError(f"there is no file {path}", hint="check the name") from error
    except OSError as error:
        hint = "mend the link" if error.errno == errno.ELOOP else "check its permissions"
        raise DocumentError(f"cannot read {path}: {error.strerror or error}", hint=hint) from error
    except ValueError as error:
        raise DocumentError(f"{str(path)!r} is not a file name: {error}", hint="check the name") from error


def check_size(n_bytes: int, *, name: str) -> None:
    """Refuse what would not fit into memory.

    Raises:
        DocumentError: the message has both sizes.
    """
    if n_bytes > MAX_DOCUMENT_BYTES:
        raise DocumentError(
            f"{name} has {n_bytes / 2**20:,.0f} MiB; the limit is {MAX_DOCUMENT_BYTES / 2**20:,.0f} MiB",
            hint="split it into parts",
        )


@contextlib.contextmanager
def claimed(target: Path, *, source: Path) -> Iterator[Path]:
    """Hold a target for this process alone, its folder created; yields the file itself where the target is a link.

    Raises:
        DocumentError: it is the source, a folder, a device, or another process is writing it.
        StoreError: its folder cannot be made or written.
    """
    _check_is_other(target, source=source)
    real = Path(os.path.realpath(target))
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(real.parent, error) from error
    lock = real.with_name(f".hymt-{_short_digest(real)}.lock")
    descriptor = try_lock(lock)
    if descriptor is None:
        raise DocumentError(f"another process is writing {target}", hint="wait for it, or name another output: `-o`")
    try:
        _remove_leftovers(real)
        yield real
    finally:
        release(descriptor, lock)


def _check_is_other(target: Path, *, source: Path) -> None:
    try:
        found = target.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(target, error) from error
    if stat.S_ISDIR(found.st_mode):
        raise DocumentError(f"the output {target} is a folder", hint="name a file, or end it with a slash")
    if not stat.S_ISREG(found.st_mode):  # a rename would put a file in the place of the device
        raise DocumentError(f"the output {target} is not a regular file", hint="name a file: `-o`")
    with contextlib.suppress(OSError):
        if target.samefile(source):
            raise DocumentError(f"the output would overwrite the original {source}", hint="name another output: `-o`")


def check_may_write(target: Path, *, shown: Path, replaces: bool, written: str | None) -> bool:
    """Tell whether an existing target is to be replaced.

    Args:
        target: The output, claimed.
        shown: Its name as the user wrote it.
        replaces: The user said so.
        written: Digest of the output that an earlier run of the same job wrote; replacing that loses nothing.

    Raises:
        DocumentError: there is one that must stay.
    """
    digest = digest_of(target)
    if digest is None:
        return False
    if replaces or digest == written:
        return True
    if written is not None:
        raise DocumentError(
            f"{shown} was changed since it was translated", hint="`--force` overwrites it, `-o` names another output"
        )
    raise DocumentError(f"{shown} exists already", hint="`--force` overwrites it, `-o` names another output")


def digest_of(path: Path) -> str | None:
    """Return the SHA-256 of a file, None when there is none.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}", hint="check its permissions") from error


def write_output(data: bytes, target: Path, *, source: Path, replaces: bool) -> None:
    """Write a target by a temporary neighbour, fsync and rename, with the permissions of its source if they can be had.

    Raises:
        DocumentError: it came into being in the meantime, and must not be replaced.
        StoreError: it cannot be written; what was there stays.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=_prefix(target), dir=target.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            with contextlib.suppress(OSError):  # the source is gone by now, or no file has permissions there
                temporary.chmod(stat.S_IMODE(source.stat().st_mode) & 0o777)
            _put_in_place(temporary, target, replaces=replaces)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(target.parent)
    except OSError as error:
        raise _unwritable(target, error) from error


def _put_in_place(temporary: Path, target: Path, *, replaces: bool) -> None:
    """Rename; without leave to replace, by a link, which fails when the name is taken."""
    if replaces:
        temporary.replace(target)
        return
    try:
        target.hardlink_to(temporary)
    except FileExistsError as error:
        raise DocumentError(f"{target} exists already", hint="`--force` overwrites it") from error
    except OSError as error:
        if error.errno not in _NO_LINKS or target.exists():
            raise
        temporary.replace(target)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every system can; the file itself is safe
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _prefix(target: Path) -> str:
    return f".hymt-{_short_digest(target)}-"


def _short_digest(target: Path) -> str:
    """Return what stands for a file's name in those of its neighbours: the name itself may be as long as is allowed."""
    return hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary files of runs that were killed: the lock is ours, so nobody is writing them."""
    prefix = _prefix(target)
    with contextlib.suppress(OSError):
        for path in target.parent.iterdir():
            if path.name.startswith(prefix):
                path.unlink()


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {path}: {error.strerror or error}", hint="check permissions and free space; `-o` names another"
    )
