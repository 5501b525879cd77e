"""How fast the disk is that models are read from: its kind by what Linux says of it, its speed by a short read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hymt_local.engine.fit import DiskFacts, DiskKind

_SYSTEM = Path("/sys/dev/block")
_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "ceph", "glusterfs", "davfs")
_VIRTUAL = ("vd", "xvd")
"""Of virtual machines, which call every disk rotating."""
_FASTEST_HARD_DISK = 350e6
_USUAL_BYTES_PER_S: dict[DiskKind, float] = {"NVMe": 1.5e9, "SSD": 400e6, "hard disk": 120e6, "network": 60e6}
"""Of what is sold; reading a whole file from its beginning to its end."""
_READ_BYTES = 64 << 20
_PIECE_BYTES = 4 << 20
_READ_S = 0.5


def disk_of(folder: Path, *, system: Path = _SYSTEM, mounts: Path = _MOUNTS) -> DiskFacts | None:
    """Return the kind of the disk below a folder, which need not exist, with the usual speed of that kind.

    None where the system does not say, as in virtual machines.
    """
    with suppress(OSError, StopIteration, ValueError):
        place = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        number = place.stat().st_dev
        mount = _mount_of(number, mounts)
        kind = _kind(number, mount, system=system)
        if kind is not None:
            return DiskFacts(kind, _USUAL_BYTES_PER_S[kind])
    return None


def measured(disk: DiskFacts | None, file: Path) -> DiskFacts | None:
    """Return the same disk with the speed of reading a part of a large file, dropped from the page cache before.

    Takes half a second at most. Where the cache cannot be told to forget, or the file is small, nothing is measured.
    """
    if not hasattr(os, "posix_fadvise"):
        return disk
    try:
        with file.open("rb", buffering=0) as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            if size_bytes < 2 * _READ_BYTES:
                return disk
            speed = _read_speed(stream.fileno(), size_bytes // 2 // _PIECE_BYTES * _PIECE_BYTES)
    except OSError:
        return disk
    if speed is None:
        return disk
    if disk is None or (disk.kind == "hard disk" and speed > _FASTEST_HARD_DISK):
        return DiskFacts("disk", speed, is_measured=True)
    return replace(disk, bytes_per_s=speed, is_measured=True)


def _read_speed(descriptor: int, start: int) -> float | None:
    """Return bytes per second; None where the part is still in memory, as when another program has it mapped."""
    os.posix_fadvise(descriptor, start, _READ_BYTES, os.POSIX_FADV_DONTNEED)
    if any(_is_cached(descriptor, start + offset) for offset in range(0, _READ_BYTES, _PIECE_BYTES)):
        return None
    n_bytes, started = 0, time.perf_counter()
    while n_bytes < _READ_BYTES and time.perf_counter() - started < _READ_S:
        n_bytes += len(os.pread(descriptor, _PIECE_BYTES, start + n_bytes))
    return n_bytes / max(time.perf_counter() - started, 1e-6)


def _is_cached(descriptor: int, position: int) -> bool:
    try:
        return os.preadv(descriptor, [bytearray(1)], position, os.RWF_NOWAIT) > 0
    except (OSError, AttributeError):  # not in memory; or a system that cannot tell
        return False


@dataclass(frozen=True, slots=True)
class _Mount:
    kind: str
    source: str


def _mount_of(number: int, mounts: Path) -> _Mount | None:
    wanted = f"{os.major(number)}:{os.minor(number)}"
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            kind, source = after.split()[:2]
            return _Mount(kind, source)
    return None


def _kind(number: int, mount: _Mount | None, *, system: Path) -> DiskKind | None:
    if mount is not None and mount.kind.startswith(_NETWORK):
        return "network"
    if os.major(number) == 0 and mount is not None:  # file systems over several disks have no number of their own
        number = Path(mount.source).stat().st_rdev
    device = (system / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True)
    disks = list(_disks(device))
    if any(disk.name.startswith(_VIRTUAL) for disk in disks):
        return None
    if any(_is_rotational(disk) for disk in disks):
        return "hard disk"
    if disks and all(disk.name.startswith("nvme") for disk in disks):
        return "NVMe"
    return "SSD" if disks else None


def _disks(device: Path) -> Iterator[Path]:
    """Yield the disks that a device lies on: a partition's own, all below one that is encrypted or put together."""
    below = sorted((device / "slaves").iterdir()) if (device / "slaves").is_dir() else []
    if below:
        for each in below:
            yield from _disks(each.resolve())
    elif (device / "queue" / "rotational").exists():
        yield device
    elif (device.parent / "queue" / "rotational").exists():
        yield device.parent


def _is_rotational(disk: Path) -> bool:
    return (disk / "queue" / "rotational").read_text(encoding="ascii").strip() == "1"
