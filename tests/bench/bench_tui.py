"""How fast and how light the terminal UI is: `python -m tests.bench.bench_tui [--json] [--rounds N]`.

First paint is from the start of the process to the first frame with the panes on it, on a pseudo terminal that answers
no questions, so that the whole wait for the width probe is in it; a real terminal answers within a millisecond.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, astuple, dataclass

import psutil

from hymt_local.tui.terminal import PROBE_TIMEOUT_S
from tests.tui.pty_program import READY, Program

BUDGET_S = 0.6
MIB = 1024**2
BUDGET_BYTES = 60 * MIB


@dataclass(frozen=True)
class Start:
    """One start of the program."""

    first_paint_s: float
    """Without the wait for a terminal that does not answer."""
    cpu_s: float
    """Processor time until then: what first paint takes on an idle machine."""
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


def main() -> int:
    """Print the best of some rounds: other work on the machine only ever adds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    starts = [measure_start() for _ in range(arguments.rounds)]
    best = Start(*(min(values) for values in zip(*map(astuple, starts), strict=True)))
    if arguments.json:
        print(json.dumps({"best": asdict(best), "starts": [asdict(start) for start in starts]}))
    else:
        print(f"first paint {best.first_paint_s:.2f} s, {best.cpu_s:.2f} s of a processor (budget {BUDGET_S} s)")
        print(f"resident memory {best.rss_bytes / MIB:.0f} MiB (budget {BUDGET_BYTES / MIB:.0f} MiB without an engine)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
