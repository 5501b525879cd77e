"""How fast and how light the terminal UI is: `python -m tests.bench.bench_tui [--json] [--rounds N] [--seconds S]`.

First paint is from the start of the process to the first frame with the panes on it, on a pseudo terminal that answers
no questions: the whole wait for the width probe is taken off, since a real terminal answers within a millisecond. It
runs from byte-code, as an installed program does. Streaming is measured with a model that writes 50 tokens a second
into a window of 120x40: processor time of the whole process, the scripted model included. Memory is that of the process
before and after the first translation, and of `hymt` itself after one by the demo model in a resident server.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from hymt_local.tui.terminal import PROBE_TIMEOUT_S
from tests.tui.pty_program import READY, Program

BUDGET_S = 0.6
MIB = 1024**2
BUDGET_BYTES = 60 * MIB
BUDGET_SHARE = 0.25
TOKENS_PER_S = 50


@dataclass(frozen=True)
class Start:
    """One start of the program."""

    first_paint_s: float
    """Without the wait for a terminal that does not answer."""
    cpu_s: float
    """Processor time until then: what first paint takes on an idle machine."""
    rss_bytes: int


@dataclass(frozen=True)
class Streaming:
    """One translation at 50 tokens a second."""

    cpu_share: float
    """Of one core."""
    bytes_per_s: float
    """Sent to the terminal."""
    rss_bytes: int


def measure_start() -> Start:
    """Start the app, wait for its first frame, quit it."""
    started_at = time.perf_counter()
    program = Program("echo")
    try:
        program.read_until(READY)
        first_paint_s = time.perf_counter() - started_at - PROBE_TIMEOUT_S
        process = psutil.Process(program.pid)
        rss_bytes, cpu = process.memory_info().rss, process.cpu_times()
        program.send(b"\x11")
        program.wait()
    finally:
        program.close()
    return Start(first_paint_s, cpu.user + cpu.system, rss_bytes)


def measure_streaming(seconds: float) -> Streaming:
    """Let a long text be written for some seconds."""
    program = Program("slow")
    try:
        program.resize(120, 40)
        program.read_until(READY)
        program.send(b"\x1b[200~Tell me everything\x1b[201~")
        program.read_until(b"word ")
        process = psutil.Process(program.pid)
        before, written, started_at = process.cpu_times(), len(program.written), time.monotonic()
        while (elapsed_s := time.monotonic() - started_at) < seconds:
            program.read_some(0.05)
        after = process.cpu_times()
        used_s = after.user + after.system - before.user - before.system
        rss_bytes = process.memory_info().rss
        program.send(b"\x11")
        program.wait()
    finally:
        program.close()
    return Streaming(used_s / elapsed_s, (len(program.written) - written) / elapsed_s, rss_bytes)


def measure_beside_resident() -> int:
    """Return the bytes of `hymt` after a translation that a resident process did."""
    os.environ["HYMT_HOME"] = str(Path(os.environ["HYMT_HOME"], "beside"))  # without the text kept by another run
    hymt = [sys.executable, "-m", "hymt_local"]
    program = Program(command=hymt)
    try:
        program.read_until(READY)
        program.send(b"\x1b[200~Good morning\x1b[201~")
        program.read_until(b"ranslated in")
        rss_bytes = psutil.Process(program.pid).memory_info().rss
        program.send(b"\x11")
        program.wait()
    finally:
        program.close()
        subprocess.run([*hymt, "stop"], check=True, capture_output=True)
    return int(rss_bytes)


def main() -> int:
    """Print the best of some rounds: other work on the machine only ever adds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the first round writes the byte-code, the best has read it
    with tempfile.TemporaryDirectory() as home:  # a text kept in the user's own would be what is painted first
        os.environ["HYMT_HOME"] = home
        return measure_and_print(arguments)


def measure_and_print(arguments: argparse.Namespace) -> int:
    """Measure in the folders that the environment names."""
    starts = [measure_start() for _ in range(arguments.rounds)]
    best = Start(
        min(start.first_paint_s for start in starts),
        min(start.cpu_s for start in starts),
        min(start.rss_bytes for start in starts),
    )
    streaming = measure_streaming(arguments.seconds)
    beside_bytes = measure_beside_resident()
    if arguments.json:
        figures = {"start": asdict(best), "streaming": asdict(streaming), "beside_resident_bytes": beside_bytes}
        print(json.dumps(figures))
        return 0
    print(f"first paint {best.first_paint_s:.2f} s, {best.cpu_s:.2f} s of a processor (budget {BUDGET_S} s)")
    print(f"memory {best.rss_bytes / MIB:.0f} MiB at the first paint")
    print(f"beside a resident process {beside_bytes / MIB:.0f} MiB (budget {BUDGET_BYTES / MIB:.0f} MiB)")
    print(
        f"streaming {TOKENS_PER_S} tokens/s: {streaming.cpu_share:.0%} of a core (budget {BUDGET_SHARE:.0%}),"
        f" {streaming.bytes_per_s / 1000:.0f} kB/s to the terminal, {streaming.rss_bytes / MIB:.0f} MiB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
