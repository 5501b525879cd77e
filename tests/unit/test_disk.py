"""The disk below a folder: its kind by a simulated system, its speed by a real read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hymt_local.engine import disk
from hymt_local.engine.disk import disk_of, measured
from hymt_local.engine.fit import DiskFacts


class System:
    """`/sys/dev/block` and the mounts of a machine whose only folder lies on the device that a test names."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "home"
        self.folder.mkdir()
        number = self.folder.stat().st_dev
        self.number = f"{os.major(number)}:{os.minor(number)}"
        self.blocks = root / "block"
        self.blocks.mkdir()
        self.mounts = root / "mountinfo"
        self.mounted("ext4")

    def mounted(self, kind: str) -> None:
        self.mounts.write_text(f"1 0 0:1 / / rw - tmpfs none rw\n24 1 {self.number} / /home rw - {kind} /dev/x rw\n")

    def add(self, name: str, *, rotational: bool) -> Path:
        device = self.blocks / "devices" / name
        (device / "queue").mkdir(parents=True)
        (device / "queue" / "rotational").write_text(f"{rotational:d}\n")
        return device

    def lies_on(self, device: Path) -> None:
        (self.blocks / self.number).symlink_to(device)

    def found(self) -> DiskFacts | None:
        return disk_of(self.folder / "not" / "there", system=self.blocks, mounts=self.mounts)


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


@pytest.mark.parametrize(
    ("name", "rotational", "kind"),
    [("sda", True, "hard disk"), ("sda", False, "SSD"), ("nvme0n1", False, "NVMe"), ("mmcblk0", False, "SSD")],
)
def test_the_kind_is_that_of_the_disk_a_partition_is_on(system: System, name: str, rotational: bool, kind: str) -> None:
    partition = system.add(name, rotational=rotational) / f"{name}1"
    partition.mkdir()
    system.lies_on(partition)
    found = system.found()
    assert found is not None
    assert (found.kind, found.is_measured) == (kind, False)


def test_an_encrypted_disk_is_what_lies_below(system: System) -> None:
    device = system.blocks / "devices" / "dm-0"
    (device / "slaves").mkdir(parents=True)
    (device / "queue").mkdir()
    (device / "queue" / "rotational").write_text("0\n")
    (device / "slaves" / "sda").symlink_to(system.add("sda", rotational=True))
    (device / "slaves" / "nvme0n1").symlink_to(system.add("nvme0n1", rotational=False))
    system.lies_on(device)
    found = system.found()
    assert found is not None
    assert found.kind == "hard disk"


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p"])
def test_a_network_drive_is_told_by_its_mount(system: System, kind: str) -> None:
    system.mounted(kind)
    found = system.found()
    assert found is not None
    assert found.kind == "network"


def test_a_virtual_disk_and_a_system_that_tells_nothing_are_unknown(system: System) -> None:
    assert system.found() is None
    system.lies_on(system.add("vda", rotational=True))
    assert system.found() is None
    assert disk_of(system.folder, system=system.blocks, mounts=system.blocks / "none") is None


def test_a_read_measures_the_speed_unless_the_file_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_READ_BYTES", 1 << 16)
    monkeypatch.setattr(disk, "_PIECE_BYTES", 1 << 14)
    monkeypatch.setattr(disk, "_is_cached", lambda descriptor, position: False)
    slow = DiskFacts("SSD", 1.0)
    file = tmp_path / "model"
    file.write_bytes(bytes(1 << 18))
    found = measured(slow, file)
    assert found is not None
    assert found.is_measured
    assert found.bytes_per_s > 1000
    monkeypatch.setattr(disk, "_is_cached", lambda descriptor, position: True)
    assert measured(slow, file) == slow
    file.write_bytes(b"small")
    assert measured(slow, file) == slow
    assert measured(None, tmp_path / "none") is None


def test_what_is_too_fast_for_a_hard_disk_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model"
    file.write_bytes(bytes(2 * disk._READ_BYTES))
    monkeypatch.setattr(disk, "_read_speed", lambda descriptor, start: 2e9)
    assert measured(DiskFacts("hard disk", 120e6), file) == DiskFacts("disk", 2e9, is_measured=True)
    assert measured(None, file) == DiskFacts("disk", 2e9, is_measured=True)
