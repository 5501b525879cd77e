"""How often an answer depends on the company it is computed in, and by how little.

Run `python -m tests.bench.bench_ties [--json] [--slots 1 2 4 8 16 32]`. Kernels add up in another order when a call has
more rows; where two tokens are almost equally likely, either may win. Every answer of the embedded demo model is
compared with that of the deterministic engine; where they part, `gap` is how much more likely (in logits) the one
token was than the other. Drafts are compared likewise.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hymt_local.engine.base import GenerationDone, GenerationRequest, TokensGenerated
from hymt_local.engine.llama import LlamaBackend, open_llama_backend
from hymt_local.engine.options import TINY_KV_TYPE, KvType, LlamaOptions
from hymt_local.engine.slots import Run
from hymt_local.installed import demo_file
from tests.bench.demo_requests import demo_requests

Answers = list[list[int]]


@dataclass(frozen=True)
class Ties:
    """One way to compute, against one at a time."""

    way: str
    answers: int
    tokens: int
    different: int
    """Answers that are not the same token by token."""
    share: float
    largest_gap: float
    """In logits, where two answers part."""


def alone(backend: LlamaBackend, requests: Sequence[GenerationRequest]) -> Answers:
    """Answer one after the other."""
    return [
        [token for event in backend.generate(request, lambda: False) if isinstance(event, TokensGenerated)
         for token in event.ids]
        for request in requests
    ]  # fmt: skip


def together(backend: LlamaBackend, requests: Sequence[GenerationRequest]) -> Answers:
    """Answer as many at once as there is room for."""
    answers: Answers = [[] for _ in requests]
    waiting, running = list(enumerate(requests)), dict[int, int]()
    while waiting or running:
        while waiting and backend.can_open(waiting[0][1]):
            index, request = waiting.pop(0)
            running[backend.open(request)] = index
        for ticket, event in backend.step():
            if isinstance(event, Exception):
                raise event
            if isinstance(event, TokensGenerated):
                answers[running[ticket]] += event.ids
            elif isinstance(event, GenerationDone):
                del running[ticket]
    return answers


def gap(judge: LlamaBackend, prompt: Sequence[int], *, right: Sequence[int], other: Sequence[int]) -> float:
    """Return the difference of the logits of the two tokens at which two answers part; infinite when one just stops.

    Args:
        judge: Deterministic, idle.
        prompt: Of both.
        right: What the judge answered.
        other: What somebody else answered.
    """
    n_same = next((n for n, pair in enumerate(zip(right, other, strict=False)) if pair[0] != pair[1]), None)
    if n_same is None:
        n_same = min(len(right), len(other))
    context = judge._context
    assert context is not None
    tokens = (*prompt, *right[:n_same])
    context.truncate(0, 0)
    context.decode([Run(0, 0, tokens, 1)])
    logits = context.logits(len(tokens) - 1)
    first = float(logits.max())
    token = other[n_same] if n_same < len(other) else None
    second = float(logits[token]) if token is not None else max(float(logits[stop]) for stop in judge.info.stop_ids)
    context.truncate(0, 0)
    return first - second


def compare(
    way: str, judge: LlamaBackend, requests: Sequence[GenerationRequest], *, right: Answers, found: Answers
) -> Ties:
    """Count what differs."""
    different = [index for index, answer in enumerate(found) if answer != right[index]]
    gaps = [gap(judge, requests[index].prompt, right=right[index], other=found[index]) for index in different]
    judge._batcher = judge._make_batcher(judge._context)  # type: ignore[arg-type]
    return Ties(
        way=way,
        answers=len(requests),
        tokens=sum(map(len, right)),
        different=len(different),
        share=len(different) / len(requests),
        largest_gap=max(gaps, default=0.0),
    )


def measure(path: Path, *, slots: Sequence[int], kv_type: KvType, languages: Sequence[str] | None = None) -> list[Ties]:
    """Compare each number of slots, and right drafts, with one at a time."""
    judge = open_llama_backend(path, LlamaOptions(deterministic=True, kv_type=kv_type))(lambda fraction: True)
    requests = list(demo_requests(judge, languages=languages))
    right = alone(judge, requests)
    results = []
    for n_slots in slots:
        backend = open_llama_backend(path, LlamaOptions(slots=n_slots, kv_type=kv_type))(lambda fraction: True)
        found = together(backend, requests)
        results.append(compare(f"{n_slots} at once, {kv_type}", judge, requests, right=right, found=found))
        backend.close()
    backend = open_llama_backend(path, LlamaOptions(prefix_bytes=0, kv_type=kv_type))(lambda fraction: True)
    drafted = [replace(request, draft=tuple(answer)) for request, answer in zip(requests, right, strict=True)]
    results.append(compare(f"right drafts, {kv_type}", judge, requests, right=right, found=alone(backend, drafted)))
    backend.close()
    judge.close()
    return results


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--slots", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--languages", nargs="*", default=None)
    parser.add_argument("--kv-types", nargs="*", default=["f16", TINY_KV_TYPE])
    parser.add_argument("--model", type=Path, default=None, help="another model with the demo's prompts")
    options = parser.parse_args(arguments)
    rows = [
        asdict(ties)
        for kv_type in options.kv_types
        for ties in measure(
            options.model or demo_file(), slots=options.slots, kv_type=kv_type, languages=options.languages
        )
    ]
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    for row in rows:
        sys.stdout.write(
            "  ".join(
                f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
