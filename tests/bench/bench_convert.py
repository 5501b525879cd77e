"""Converting the 7B: time against a plain copy, memory, and what a kill costs, on a synthetic checkpoint.

Run `python -m tests.bench.bench_convert FOLDER [--layers 32] [--steps copy,float,full,kill] [--json]`. It needs 60 GB
of disk in FOLDER for 32 layers and leaves the checkpoint there; give the same FOLDER again to use it again. Times are
those of a warm page cache as far as it reaches. Each unquantized conversion stands between two copies of what it reads;
that to F16 between copies that cast each number on the way, which is the least that it could do.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from hymt_convert.checkpoint import open_checkpoint
from tests.bench.synthetic_checkpoint import SEVEN_B, write_synthetic_checkpoint

STEPS = ("copy", "float", "full", "kill")
NAME = "synthetic"
SAMPLE_S = 0.05
COPY, CAST_COPY = "copy", "copy with cast"
CAST_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Measurement:
    """One run of the converter, or of a copy."""

    what: str
    wall_s: float
    cpu_s: float
    """User and system time of the program and its children: what is left to compare on a busy machine."""
    read_bytes: int
    written_bytes: int
    peak_own_mib: float
    """Memory of the program itself and its child, without pages of files."""
    peak_resident_mib: float
    """With the pages of mapped files, which the system takes back when it needs them."""


@dataclass(frozen=True)
class Resumption:
    """A run that was killed, and the run that went on."""

    point: str
    killed_after_s: float
    resumed_s: float
    is_identical: bool


class MemoryWatch:
    """Samples a process and its descendants from a thread until the process ends."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.peak_own = self.peak_resident = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the last sample."""
        self._thread.join()

    def _watch(self) -> None:
        while tree := family(self._pid):
            samples = [_memory(pid) for pid in tree]
            self.peak_own = max(self.peak_own, sum(own for own, _ in samples))
            self.peak_resident = max(self.peak_resident, sum(resident for _, resident in samples))
            time.sleep(SAMPLE_S)


def family(pid: int) -> list[int]:
    """Return a living process and its descendants; the empty list when it is gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            return []
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(grandchild for child in children for grandchild in family(int(child)))]


def _memory(pid: int) -> tuple[int, int]:
    own = resident = 0
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == "RssAnon":
                own = int(value.split()[0])
            elif key == "VmRSS":
                resident = int(value.split()[0])
    return own, resident


def start(source: Path, output: Path, kinds: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the converter as a user would."""
    command = [
        sys.executable,
        "-m",
        "hymt_convert",
        str(source),
        "-o",
        str(output),
        "--as",
        "none",
        "--name",
        NAME,
        "--no-verify",
    ]
    for kind in kinds:
        command += ["-q", kind]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def measure_conversion(source: Path, output: Path, kinds: Sequence[str], *, read_bytes: int) -> Measurement:
    """Run the converter to its end."""
    started = time.monotonic()
    process = start(source, output, kinds)
    watch = MemoryWatch(process.pid)
    cpu_s = finish(process)
    elapsed = time.monotonic() - started
    watch.join()
    written = sum(path.stat().st_size for path in output.iterdir())
    name = " + ".join(kinds)
    return Measurement(name, elapsed, cpu_s, read_bytes, written, watch.peak_own / 1024, watch.peak_resident / 1024)


def finish(process: subprocess.Popen[bytes]) -> float:
    """Wait for a process that must succeed; return the processor time of it and its children."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the converter failed with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def measure_copy(source: Path, target: Path, *, what: str = COPY) -> Measurement:
    """Copy the weights and wait until they are on the disk."""
    target.mkdir()
    started, cpu_started = time.monotonic(), time.process_time()
    total = 0
    for path in sorted(source.glob("*.safetensors")):
        if what == COPY:
            shutil.copyfile(path, target / path.name)
        else:
            _copy_with_cast(path, target / path.name)
        with (target / path.name).open("rb+") as file:
            os.fsync(file.fileno())
        total += path.stat().st_size
    elapsed, cpu_s = time.monotonic() - started, time.process_time() - cpu_started
    shutil.rmtree(target)
    return Measurement(what, elapsed, cpu_s, total, total, 0.0, 0.0)


def _copy_with_cast(source: Path, target: Path) -> None:
    """Take the whole file for bfloat16 numbers and write float16: by a table, ten times faster than numpy."""
    numbers = np.memmap(source, np.uint16, mode="r", shape=(source.stat().st_size // 2,))
    with np.errstate(over="ignore", invalid="ignore"):
        table = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32).astype(np.float16)
    with target.open("wb") as file:
        for start in range(0, len(numbers), CAST_AT_ONCE):
            file.write(table[numbers[start : start + CAST_AT_ONCE]].data)


def kill_points(output: Path, *, base_bytes: int, result_bytes: int) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Yield a name and a condition on what lies in the workspace."""
    workspace = output / f".{NAME}.converting"

    def has(pattern: str, size_bytes: float) -> bool:
        with suppress(OSError):
            return any(path.stat().st_size >= size_bytes for path in workspace.glob(pattern))
        return False

    yield "a third of the base file", lambda: has("BF16.gguf", base_bytes / 3)
    yield "nine tenths of the base file", lambda: has("BF16.gguf", base_bytes * 0.9)
    yield "half of the quantization", lambda: has(".Q4_K_M.gguf.*.partial", result_bytes / 2)


def kill_and_resume(
    source: Path, output: Path, point: str, is_reached: Callable[[], bool], *, expected: str
) -> Resumption:
    """Kill the converter when a point is reached, run it again, and compare the result."""
    started = time.monotonic()
    process = start(source, output, ["Q4_K_M"])
    while not is_reached():
        if process.poll() is not None:
            raise SystemExit(f"the converter ended before it reached {point}")
        time.sleep(SAMPLE_S)
    descendants = family(process.pid)[1:]
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed_after = time.monotonic() - started
    for pid in descendants:
        while family(pid):
            time.sleep(SAMPLE_S)
    resumed = measure_conversion(source, output, ["Q4_K_M"], read_bytes=0)
    digest = file_sha256(output / f"{NAME}-Q4_K_M.gguf")
    shutil.rmtree(output)
    return Resumption(point, killed_after, resumed.wall_s, digest == expected)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run(folder: Path, steps: Sequence[str], *, layers: int) -> dict[str, object]:
    source, output = folder / "checkpoint", folder / "output"
    if not (source / "model.safetensors.index.json").exists():
        write_synthetic_checkpoint(source, replace(SEVEN_B, num_hidden_layers=layers))
    weights = sum(path.stat().st_size for path in source.glob("*.safetensors"))
    base_bytes = sum(
        tensor.size_bytes for tensor in open_checkpoint(source).tensors.values() if tensor.name != "lm_head.weight"
    )
    measurements: list[Measurement] = []
    resumptions: list[Resumption] = []
    for kind, copy in (("BF16", COPY), ("F16", CAST_COPY)) if "float" in steps else ():
        copies = [copy] if "copy" in steps else []
        measurements += [measure_copy(source, folder / "copy", what=what) for what in copies]
        measurements.append(measure_conversion(source, output, [kind], read_bytes=weights))
        shutil.rmtree(output)
        measurements += [measure_copy(source, folder / "copy", what=what) for what in copies]
    if "full" in steps or "kill" in steps:
        full = measure_conversion(source, output, ["Q4_K_M"], read_bytes=weights)
        measurements.append(full)
        expected = file_sha256(output / f"{NAME}-Q4_K_M.gguf")
        shutil.rmtree(output)
    if "kill" in steps:
        for point, is_reached in kill_points(output, base_bytes=base_bytes, result_bytes=full.written_bytes):
            resumptions.append(kill_and_resume(source, output, point, is_reached, expected=expected))
    return {"measurements": [asdict(one) for one in measurements], "resumptions": [asdict(one) for one in resumptions]}


def report(result: dict[str, object]) -> Iterator[str]:
    measurements = [Measurement(**one) for one in result["measurements"]]  # type: ignore[attr-defined]
    for place, one in enumerate(measurements):
        beside = measurements[max(place - 1, 0)], measurements[min(place + 1, len(measurements) - 1)]
        copies = [other.wall_s for other in beside if other.what in (COPY, CAST_COPY)]
        is_between = one.what not in (COPY, CAST_COPY) and len(copies) == len(beside) == 2
        ratio = f", {2 * one.wall_s / sum(copies):.2f} x the copies beside it" if is_between else ""
        memory = f", own memory {one.peak_own_mib:.0f} MiB, resident {one.peak_resident_mib:.0f} MiB"
        times = f"{one.wall_s:.1f} s (processor {one.cpu_s:.1f} s)"
        yield (
            f"{one.what}: {times}, {one.read_bytes / 1e9:.2f} GB -> {one.written_bytes / 1e9:.2f} GB"
            f"{ratio}{memory if one.peak_own_mib else ''}"
        )
    for item in (Resumption(**one) for one in result["resumptions"]):  # type: ignore[attr-defined]
        verdict = "identical" if item.is_identical else "DIFFERENT"
        yield f"killed at {item.point} after {item.killed_after_s:.1f} s, resumed in {item.resumed_s:.1f} s: {verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=SEVEN_B.num_hidden_layers)
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = run(arguments.folder, arguments.steps.split(","), layers=arguments.layers)
    print(json.dumps(result, indent=1) if arguments.json else "\n".join(report(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
