"""Llama backends on toy models, and what the tests ask them."""

from pathlib import Path

import numpy as np

from hymt_local.engine.base import GenerationDone, GenerationEvent, GenerationRequest, TokensGenerated
from hymt_local.engine.llama import LlamaBackend, open_llama_backend
from hymt_local.engine.options import LlamaOptions
from hymt_local.engine.slots import Run
from hymt_local.events import Priority, SamplingParams
from tests.toy_models import control_id

BOS, SEP = control_id("<|startoftext|>"), control_id("<|extra_0|>")
PROMPT = (BOS, *b"The quick brown fox", SEP)
LONG_PROMPT = tuple(32 + i * 7 % 90 for i in range(700))
FIXED = LONG_PROMPT[:300]
"""A beginning that requests have in common."""
NO_PENALTY = SamplingParams(repetition_penalty=1.0)


def never() -> bool:
    return False


def open_toy(path: Path, options: LlamaOptions | None = None) -> LlamaBackend:
    return open_llama_backend(path, options)(lambda fraction: True)


def play(backend: LlamaBackend, request: GenerationRequest) -> list[GenerationEvent]:
    return list(backend.generate(request, never))


def answer(backend: LlamaBackend, request: GenerationRequest) -> list[int]:
    return [token for event in play(backend, request) if isinstance(event, TokensGenerated) for token in event.ids]


def done(events: list[GenerationEvent]) -> GenerationDone:
    assert isinstance(events[-1], GenerationDone)
    return events[-1]


def logits_after(backend: LlamaBackend, tokens: tuple[int, ...]) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    context = backend._context
    assert context is not None
    for slot in range(context.n_slots):
        context.truncate(slot, 0)
    for start in range(0, len(tokens), context.n_rows):
        part = tokens[start : start + context.n_rows]
        context.decode([Run(0, start, part, 1)])
    logits = context.logits(len(part) - 1).copy()
    context.truncate(0, 0)
    backend._batcher = backend._make_batcher(context)
    return logits


def mixed_requests(n_requests: int) -> list[GenerationRequest]:
    return [
        GenerationRequest(
            (BOS, *b"Translate this: ", *(33 + (i * 31 + j * 17) % 90 for j in range(5 + i * 7 % 40)), SEP),
            max_tokens=4 + i * 13 % 50,
            priority=Priority.DOCUMENT,
        )
        for i in range(n_requests)
    ]


def with_prefix(source: bytes, *, n_fixed: int = len(FIXED)) -> GenerationRequest:
    return GenerationRequest((*FIXED, *source, SEP), 12, n_fixed=n_fixed)
