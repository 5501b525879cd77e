"""What `hymt TEXT` costs beside a running server, beyond the model: `python -m tests.bench.bench_resident [--json]`.

Overhead is the wall time of the whole command less the time that the server needed for the translation; the best of
some rounds counts, since other work on the machine only ever adds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median

BUDGET_S = 0.1
HOT_PATH_PACKAGES = ("textual", "numpy", "llama_cpp", "starlette", "asyncio", "sqlite3")
_LOADED = """
import sys
sys.argv[0] = "hymt"
from hymt_local.__main__ import main
try:
    main()
finally:
    print(*[name for name in {names!r} if name in sys.modules], file=sys.stderr)
"""


@dataclass(frozen=True)
class Round:
    """One command."""

    wall_s: float
    cpu_s: float
    """Processor time of the command's own process."""
    model_s: float
    """What the server says the translation took."""

    @property
    def overhead_s(self) -> float:
        return self.wall_s - self.model_s


@contextmanager
def running_server(model: str, *, home: str) -> Iterator[tuple[dict[str, str], int]]:
    """Run `hymt serve` in a home of its own; yields the environment of its clients and its process."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ |= {"HYMT_HOME": home, "PYTHONPYCACHEPREFIX": f"{home}/bytecode"}
    process = subprocess.Popen(
        [sys.executable, "-m", "hymt_local", "serve", "-m", model, "--port", "0", "--json"],
        env=environ,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        json.loads(process.stdout.readline())
        yield environ, process.pid
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def measure(arguments: Sequence[str], environ: dict[str, str]) -> Round:
    """Run one command line with `--json`."""
    started_at = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - started_at
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    model_s = json.loads(out)["seconds"]["elapsed"] if out else 0.0
    return Round(wall_s, usage.ru_utime + usage.ru_stime, model_s)


def loaded_packages(arguments: Sequence[str], environ: dict[str, str]) -> list[str]:
    """Return which of the packages that the hot path must not load it loads."""
    program = _LOADED.format(names=HOT_PATH_PACKAGES)
    done = subprocess.run([sys.executable, "-c", program, *arguments], env=environ, capture_output=True, check=True)
    return done.stderr.decode().splitlines()[-1].split()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the best and the middle of the rounds, beside a Python that does nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--model", default="demo")
    options = parser.parse_args(arguments)
    text = ["-f", "en", "-t", "fr", "-m", options.model, "--json", "Where is the station?"]
    with tempfile.TemporaryDirectory() as home, running_server(options.model, home=home) as (environ, _):
        measure(["-m", "hymt_local", *text], environ)  # compiles modules, fills the page cache and the phrase cache
        nothing = [measure(["-c", "pass"], environ) for _ in range(options.rounds)]
        rounds = [measure(["-m", "hymt_local", *text], environ) for _ in range(options.rounds)]
        heavy = loaded_packages(text, environ)
    best = min(rounds, key=lambda each: each.overhead_s)
    middle_s = median(each.overhead_s for each in rounds)
    cpu_s = min(each.cpu_s for each in rounds)
    python_s = min(each.wall_s for each in nothing)
    if options.json:
        figures = {"overhead_s": best.overhead_s, "overhead_median_s": middle_s, "cpu_s": cpu_s, "python_s": python_s}
        print(json.dumps({**figures, "heavy": heavy, "rounds": [asdict(each) for each in rounds]}))
    else:
        print(f"overhead {best.overhead_s * 1000:.0f} ms, median {middle_s * 1000:.0f} ms", end="")
        print(f" (budget {BUDGET_S * 1000:.0f} ms); {cpu_s * 1000:.0f} ms of a processor")
        print(f"of that, a Python that does nothing: {python_s * 1000:.0f} ms")
        print(f"packages that the hot path should not load: {', '.join(heavy) or 'none'}")
    return 0 if best.overhead_s <= BUDGET_S and not heavy else 1


if __name__ == "__main__":
    sys.exit(main())
