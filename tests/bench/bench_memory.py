"""What the plan says of memory, against what the engine process really takes, mapped weights included.

Run `python -m tests.bench.bench_memory FILE... [--context 1024,4096] [--kv f16,q8_0] [--slots 16,1] [--json]`.
Each row starts the engine process as the program does, lets it read a prompt of `--fill` tokens (0 fills the context)
and write two more, and reads its resident memory, now and at its highest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import get_args

from hymt_local.engine.base import GenerationRequest
from hymt_local.engine.fit import GIB, FitWish, MachineFacts, facts_of_header, plan
from hymt_local.engine.gguf_file import read_header
from hymt_local.engine.gguf_support import check_supported
from hymt_local.engine.host import HostedBackend
from hymt_local.engine.options import KvType, LlamaOptions
from hymt_local.loading import LlamaOrders

ANSWER_TOKENS = 2
FIRST_TOKEN, N_TOKENS = 300, 5000
"""Of the vocabulary, what prompts are made of: plain text in every model."""


@dataclass(frozen=True)
class Memory:
    """One way to load one file."""

    file: str
    context_length: int
    kv_type: str
    slots: int
    filled: int
    """Tokens of the context that were used."""
    predicted_bytes: int
    rss_bytes: int
    peak_bytes: int
    error: float
    """Of the prediction, as a part of the highest resident memory; positive when it is too much."""


def measure(path: Path, options: LlamaOptions, *, fill: int) -> Memory:
    """Load a file in an engine process and use it."""
    header = read_header(path)
    check_supported(header)
    facts = facts_of_header(header, name=path.stem, context_length=options.context_length)
    wish = FitWish(
        context_length=options.context_length, threads=options.threads, kv_types=(options.kv_type,), slots=options.slots
    )
    predicted = plan(facts, MachineFacts(256 * GIB, 250 * GIB, n_cores=4), wish=wish).total_bytes
    n_prompt = min(fill or options.context_length, options.context_length) - ANSWER_TOKENS
    prompt = tuple(FIRST_TOKEN + index * 7 % N_TOKENS for index in range(n_prompt))
    backend = HostedBackend(
        lambda ask_gpus: LlamaOrders(path, options), name=path.stem, on_progress=lambda fraction: True
    )
    try:
        list(backend.generate(GenerationRequest(prompt, ANSWER_TOKENS), lambda: False))
        rss_bytes, peak_bytes = _resident(backend.info.process_id)
    finally:
        backend.close()
    return Memory(
        file=path.stem,
        context_length=options.context_length,
        kv_type=options.kv_type,
        slots=options.slots,
        filled=n_prompt + ANSWER_TOKENS,
        predicted_bytes=predicted,
        rss_bytes=rss_bytes,
        peak_bytes=peak_bytes,
        error=predicted / peak_bytes - 1,
    )


def _resident(process_id: int) -> tuple[int, int]:
    """Return resident memory now and at its highest; where the system does not keep the latter, now twice."""
    import psutil

    now: int = psutil.Process(process_id).memory_info().rss
    status = Path(f"/proc/{process_id}/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    peaks = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
    return now, max(now, *peaks) if peaks else now


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _kv_types(text: str) -> list[KvType]:
    return [kv_type for part in text.split(",") for kv_type in get_args(KvType) if kv_type == part]


def _rows(arguments: argparse.Namespace) -> Iterator[Memory]:
    for path, context, kv_type, slots in product(arguments.files, arguments.context, arguments.kv, arguments.slots):
        options = LlamaOptions(
            context_length=context, threads=arguments.threads, kv_type=kv_type, slots=slots, prefix_bytes=0
        )
        yield measure(path, options, fill=arguments.fill)


def main(arguments: list[str] | None = None) -> None:
    """Print a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--context", type=_numbers, default=[1024, 4096])
    parser.add_argument("--kv", type=_kv_types, default=["f16", "q8_0"])
    parser.add_argument("--slots", type=_numbers, default=[16, 1])
    parser.add_argument("--fill", type=int, default=0, help="tokens to use; 0: all of the context")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of a table")
    for row in _rows(parser.parse_args(arguments)):
        if "--json" in (arguments or sys.argv):
            sys.stdout.write(json.dumps(asdict(row)) + "\n")
        else:
            sys.stdout.write(
                f"{row.file:>12} context {row.context_length:>5} {row.kv_type:>5} slots {row.slots:>2} filled"
                f" {row.filled:>5}  predicted {row.predicted_bytes / GIB:5.2f} GiB  resident"
                f" {row.rss_bytes / GIB:5.2f}, at most {row.peak_bytes / GIB:5.2f}  {row.error:+6.1%}\n"
            )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
