"""What large documents cost with the echo engine: `python -m tests.bench.bench_documents [--json] [--scale NUMBER]`.

10 MB of Markdown, 50,000 cues of SubRip, 100,000 messages of gettext (times `--scale`), each also at half the size:
time and memory should double, no more. Each run is a process of its own, from the file to the translated file, journal
and all; every text differs, so that nothing is translated once for many.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from hymt_local.document_jobs.events import DocumentFinished, DocumentOptions, DocumentTask
from hymt_local.document_jobs.run import run_document
from hymt_local.documents.base import Languages
from hymt_local.documents.registry import format_of
from hymt_local.jobs import LocalService
from tests.services import echo_model

MIB = 1024**2
MOST_GROWTH = 2.6
"""Processor time of twice the size: 2, and some air for a busy machine. A quadratic step would make it 4."""
_WORDS = """time year people way day man thing woman life child world school state family student group country problem
hand part place case week company system program question work government number night point home water room mother area
money story fact month lot right study book eye job word business issue side kind head house service friend"""


@dataclass(frozen=True)
class Cost:
    """One run."""

    document: str
    size_bytes: int
    units: int
    parse_s: float
    total_s: float
    cpu_s: float
    """Processor time of the same, all threads: what it takes on an idle machine, and more."""
    peak_bytes: int
    is_identical: bool


def sentence(dice: random.Random, number: int) -> str:
    words = " ".join(dice.choices(_WORDS.split(), k=dice.randint(5, 14)))
    return f"{words.capitalize()}, number {number}."


def markdown(scale: float) -> bytes:
    """Ten megabytes of headings, paragraphs, lists, tables and code."""
    dice, parts, size, number = random.Random(1), list[str](), 0, 0
    while size < 10_000_000 * scale:
        lines = [sentence(dice, number + n) for n in range(6)]
        number += 6
        part = (
            f"## {lines[0]}\n\n{lines[1]} *{lines[2]}* See [{lines[3][:20]}](https://example.org/{number}).\n\n"
            f"- {lines[3]}\n- `code` {lines[4]}\n\n| a | b |\n| --- | --- |\n| {lines[5]} | {number} |\n\n"
            f"```python\nprint({number})\n```\n\n"
        )
        parts.append(part)
        size += len(part)
    return "".join(parts).encode()


def subtitles(scale: float) -> bytes:
    """Fifty thousand cues."""
    dice = random.Random(2)
    cues = []
    for n in range(round(50_000 * scale)):
        start = f"{n // 1800:02}:{n // 30 % 60:02}:{n % 30 * 2:02}"
        cues.append(f"{n + 1}\n{start},000 --> {start},900\n{sentence(dice, n)}\n\n")
    return "".join(cues).encode()


def catalogue(scale: float) -> bytes:
    """A hundred thousand messages, with references and some placeholders."""
    dice = random.Random(3)
    parts = ['msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n']
    for n in range(round(100_000 * scale)):
        flag = "#, python-format\n" if n % 10 == 0 else ""
        text = f"{sentence(dice, n)} %(name)s" if n % 10 == 0 else sentence(dice, n)
        parts.append(f'\n#: app/views.py:{n}\n{flag}msgid "{text}"\nmsgstr ""\n')
    return "".join(parts).encode()


DOCUMENTS: dict[str, Callable[[float], bytes]] = {
    "large.md": markdown,
    "large.srt": subtitles,
    "large.po": catalogue,
}


def measure_here(name: str, scale: float) -> Cost:
    """Translate one document from file to file in this process."""
    data = DOCUMENTS[name](scale)
    languages = Languages("en", "fr")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / name, Path(folder) / f"out-{name}"
        source.write_bytes(data)
        started = time.perf_counter()
        document = format_of(name, data).read(data, languages)
        parse_s, n_units = time.perf_counter() - started, len(document.units)
        del document
        model = echo_model()
        started, cpu = time.perf_counter(), time.process_time()
        with LocalService(lambda ref: model, cache_path=None) as service:
            task = DocumentTask(source, target, DocumentOptions(languages))
            *_, last = run_document(task, service, state_dir=Path(folder) / "state")
        total_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
        assert isinstance(last, DocumentFinished), last
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return Cost(name, len(data), n_units, parse_s, total_s, cpu_s, peak, target.read_bytes() == data)


def measure(name: str, scale: float) -> Cost:
    """Do so in a process of its own: its peak of memory is then its own too."""
    command = [sys.executable, "-m", "tests.bench.bench_documents", "--one", name, "--scale", str(scale)]
    done = subprocess.run(command, capture_output=True, check=True)
    return Cost(**json.loads(done.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--one", choices=DOCUMENTS, help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=DOCUMENTS, help="this document only")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(asdict(measure_here(arguments.one, arguments.scale))))
        return 0
    names = [arguments.only] if arguments.only else list(DOCUMENTS)
    costs = [(measure(name, arguments.scale / 2), measure(name, arguments.scale)) for name in names]
    if arguments.json:
        print(json.dumps([asdict(cost) for pair in costs for cost in pair]))
    else:
        for half, whole in costs:
            print_pair(half, whole)
    return int(any(whole.cpu_s > half.cpu_s * MOST_GROWTH for half, whole in costs))


def print_pair(half: Cost, whole: Cost) -> None:
    print(
        f"{whole.document}: {whole.size_bytes / 1e6:.1f} MB, {whole.units:,} units: parse {whole.parse_s:.1f} s,"
        f" all {whole.total_s:.1f} s, {whole.cpu_s:.1f} s of a processor ({whole.cpu_s / whole.units * 1e6:.0f} µs per"
        f" unit), peak {whole.peak_bytes / MIB:.0f} MiB; half the size: {half.cpu_s:.1f} s, {half.peak_bytes / MIB:.0f}"
        f" MiB (x{whole.cpu_s / half.cpu_s:.2f}, x{whole.peak_bytes / half.peak_bytes:.2f})"
        f"{'' if whole.is_identical else '; NOT IDENTICAL'}"
    )


if __name__ == "__main__":
    sys.exit(main())
