"""Backends for engine processes under test: words of the prompt, in angle brackets, say what they do to them."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hymt_local.engine.base import (
    Backend,
    BackendOpener,
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    ModelInfo,
    Outcome,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.context import check_fits
from hymt_local.engine.counters import DraftStats, EngineCounters
from hymt_local.engine.one_by_one import OneByOneBackend
from hymt_local.errors import EngineMemoryError
from hymt_local.events import TokenUsage

_COMMAND = re.compile(r"<(\w+)(?: ([^>]+)|!)?>")


class FragileBackend(OneByOneBackend):
    """Echoes the prompt byte by byte; what stands in angle brackets is done where it comes, and echoed if it can be.

    `<SIGSEGV>` and the like kill the process, each time or, with a path, only as long as there is no such file.
    `<SIGSEGV!>` is the same and looks like no tag. `<exit>` ends it, `<hang>` stops for ever, `<raise>` raises,
    `<memory>` raises what a failed allocation is.
    """

    def __init__(self, *, context_length: int = 1000, is_deterministic: bool = False) -> None:
        super().__init__(slots=4)
        self._n_opened = 0
        self._info = ModelInfo(
            name="fragile",
            architecture="fragile",
            vocab_size=256,
            context_length=context_length,
            quantization="none",
            file_sha256="0" * 64,
            control_tokens={"<stop>": 0},
            stop_ids=frozenset({0}),
            slots=4,
            is_deterministic=is_deterministic,
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def counters(self) -> EngineCounters:
        return EngineCounters(DraftStats(slices=self._n_opened))

    @property
    def tokenizes_anywhere(self) -> bool:
        return True

    def tokenize(self, text: str) -> tuple[int, ...]:
        if text.startswith("<tokenize"):
            obey(text.replace("<tokenize ", "<"))
        return tuple(text.encode())

    def open(self, request: GenerationRequest) -> int:
        check_fits(request, context_length=self._info.context_length)
        self._n_opened += 1
        return super().open(request)

    def step(self) -> Sequence[Outcome]:
        """Step all of them; memory that is short is short for all."""
        outcomes = super().step()
        for _, event in outcomes:
            if isinstance(event, EngineMemoryError):
                raise event
        return outcomes

    def play(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        data = bytes(request.prompt)
        yield PromptRead(len(data), len(data))
        for index in range(min(len(data), request.max_tokens)):
            if data[index : index + 1] == b"<":
                obey(data[index:].decode())
            chances = (1.0,) if request.probabilities else ()
            yield TokensGenerated((data[index],), data[index : index + 1], chances)
        usage = TokenUsage(prompt_tokens=len(data), output_tokens=min(len(data), request.max_tokens))
        reason = FinishReason.LENGTH if len(data) > request.max_tokens else FinishReason.STOP
        yield GenerationDone(reason, usage)


def obey(text: str) -> None:
    """Do what the first word in angle brackets says."""
    match = _COMMAND.match(text)
    if match is None:
        return
    what, path = match.groups()
    if path is not None:
        if Path(path).exists():
            return
        Path(path).touch()
    if what.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[what])
        time.sleep(60)
    elif what == "exit":
        os._exit(3)
    elif what == "hang":
        time.sleep(600)
    elif what == "raise":
        raise ValueError("raised as told")
    elif what == "memory":
        raise EngineMemoryError("no memory, as told")


def open_fragile(arguments: bytes) -> BackendOpener:
    """Open a FragileBackend.

    Args:
        arguments: JSON: `context_length`, `deterministic`, `room` (a longer context does not fit), `while_loading` (a
            command), `progress` (fractions to report), `log` (a warning to give).
    """
    wanted = json.loads(arguments or b"{}")

    def open_it(on_progress: Callable[[float], bool]) -> Backend:
        for fraction in wanted.get("progress", ()):
            on_progress(fraction)
        if "log" in wanted:
            logging.getLogger("hymt_local.engine.llama").warning("%s", wanted["log"])
        obey(wanted.get("while_loading", ""))
        context_length = wanted.get("context_length", 1000)
        if context_length > wanted.get("room", 1000):
            raise EngineMemoryError(f"no room for {context_length} tokens")
        return FragileBackend(context_length=context_length, is_deterministic=wanted.get("deterministic", False))

    return open_it
