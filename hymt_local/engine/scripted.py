"""A backend that does what a script says: the double for testing everything above the engine, like a mock transport.

Token ids are the bytes of the text's UTF-8 form. Each generation plays the next behaviour of the script; the last one
repeats for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hymt_local.engine.base import (
    Backend,
    BackendOpener,
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    ModelInfo,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.context import check_fits
from hymt_local.engine.one_by_one import OneByOneBackend
from hymt_local.engine.utf8 import encode_text
from hymt_local.errors import EngineLoadError
from hymt_local.events import TokenUsage

_POLL_S = 0.002


@dataclass(frozen=True)
class Reply:
    """Answer with `data`, `chunk` bytes per event, then end for `reason`."""

    data: bytes
    reason: FinishReason = FinishReason.STOP
    chunk: int = 4
    probability: float = 1.0
    """Of every token, when the request asks for probabilities."""


@dataclass(frozen=True)
class Echo:
    """Answer with the prompt itself, or with `transform(prompt)`."""

    transform: Callable[[str], str] = str


@dataclass(frozen=True)
class Loop:
    """Repeat `text` until the token budget is spent."""

    text: str = "again and "


@dataclass(frozen=True)
class Crash:
    """Answer with `data`, then raise `error`."""

    error: Exception
    data: bytes = b""


@dataclass(frozen=True)
class Hang:
    """Read the prompt, set `started`, and answer nothing until the generation is cancelled."""

    started: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Gated:
    """Read the prompt in `steps` slices, set `started` after the first, wait for `gate`, then play `then`."""

    gate: threading.Event
    then: Behaviour = Reply(b"done")
    started: threading.Event = field(default_factory=threading.Event)
    steps: int = 2


Behaviour = Reply | Echo | Loop | Crash | Hang | Gated


def reply(text: str) -> Reply:
    """Answer with `text` and stop."""
    return Reply(text.encode())


def empty() -> Reply:
    """Stop at once."""
    return Reply(b"")


def cut(text: str) -> Reply:
    """Answer with `text` as if the token budget had ended there."""
    return Reply(text.encode(), FinishReason.LENGTH)


def invalid_utf8() -> Reply:
    """Answer with bytes that are not UTF-8, then with a character that never ends."""
    return Reply(b"caf\xff\xe7\x95", chunk=1)


def control_tokens() -> Reply:
    """Answer with the text of the family's control tokens around a word."""
    return reply("<｜hy_Assistant｜>word<|extra_0|>")


@dataclass
class Calls:
    """What a scripted backend was asked, in order."""

    tokenized: list[str] = field(default_factory=list)
    requests: list[GenerationRequest] = field(default_factory=list)
    n_loaded: int = 0
    n_closed: int = 0
    threads: set[int] = field(default_factory=set)
    """Identifiers of the threads that entered the backend."""


class ScriptedBackend(OneByOneBackend):
    """Plays `script`, one behaviour per generation.

    Args:
        script: Behaviours in order; the last one repeats.
        control_tokens: What `info.control_tokens` says.
        context_length: Tokens that prompt and answer may have together.
        tokenize_error: Raised by every `tokenize` when given.
        slots: Generations at once.
    """

    def __init__(
        self,
        *script: Behaviour,
        control_tokens: Mapping[str, int] | None = None,
        context_length: int = 4096,
        tokenize_error: Exception | None = None,
        slots: int = 1,
    ) -> None:
        super().__init__(slots)
        self.calls = Calls()
        self._script = script or (Echo(),)
        self._tokenize_error = tokenize_error
        self._info = ModelInfo(
            name="scripted",
            architecture="scripted",
            vocab_size=256,
            context_length=context_length,
            quantization="none",
            file_sha256="0" * 64,
            control_tokens=dict(control_tokens or {}),
            slots=slots,
        )

    @property
    def info(self) -> ModelInfo:
        """Facts about this double."""
        return self._info

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the bytes of `text`, or raise what the script says."""
        self.calls.threads.add(threading.get_ident())
        self.calls.tokenized.append(text)
        if self._tokenize_error is not None:
            raise self._tokenize_error
        return tuple(encode_text(text))

    def open(self, request: GenerationRequest) -> int:
        """Start the next behaviour."""
        self.calls.threads.add(threading.get_ident())
        self.calls.requests.append(request)
        check_fits(request, context_length=self._info.context_length)
        return super().open(request)

    def play(self, request: GenerationRequest) -> Iterator[GenerationEvent | None]:
        """Play the behaviour of the request that was opened last."""
        behaviour = self._script[min(len(self.calls.requests), len(self._script)) - 1]
        return _Performance(request).play(behaviour)

    def close(self) -> None:
        """Count the call."""
        self.calls.threads.add(threading.get_ident())
        self.calls.n_closed += 1
        super().close()


class _Performance:
    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        self._n_output = 0

    def play(self, behaviour: Behaviour) -> Iterator[GenerationEvent | None]:
        if isinstance(behaviour, Gated):
            yield from self._read_in_steps(behaviour.steps, behaviour)
            behaviour = behaviour.then
        yield PromptRead(self._n_prompt, self._n_prompt)
        if isinstance(behaviour, Hang):
            behaviour.started.set()
            yield from _wait_for(threading.Event())
        elif isinstance(behaviour, Crash):
            yield from self._tokens(Reply(behaviour.data))
            raise behaviour.error
        elif not isinstance(behaviour, Gated):
            yield from self._answer(behaviour)

    @property
    def _n_prompt(self) -> int:
        return len(self._request.prompt)

    def _answer(self, behaviour: Reply | Echo | Loop) -> Iterator[GenerationEvent]:
        answer = self._as_reply(behaviour)
        yield from self._tokens(answer)
        usage = TokenUsage(prompt_tokens=self._n_prompt, output_tokens=self._n_output)
        yield GenerationDone(answer.reason, usage)

    def _as_reply(self, behaviour: Reply | Echo | Loop) -> Reply:
        budget = self._request.max_tokens
        if isinstance(behaviour, Loop):
            data = behaviour.text.encode()
            return Reply((data * (budget // len(data) + 1))[:budget], FinishReason.LENGTH)
        if isinstance(behaviour, Echo):
            prompt = bytes(self._request.prompt).decode(errors="replace")
            behaviour = Reply(behaviour.transform(prompt).encode())
        if len(behaviour.data) > budget:
            return replace(behaviour, data=behaviour.data[:budget], reason=FinishReason.LENGTH)
        return behaviour

    def _read_in_steps(self, steps: int, gated: Gated) -> Iterator[GenerationEvent | None]:
        for step in range(1, steps):
            yield PromptRead(self._n_prompt * step // steps, self._n_prompt)
            gated.started.set()
            yield from _wait_for(gated.gate)

    def _tokens(self, answer: Reply) -> Iterator[GenerationEvent]:
        for start in range(0, len(answer.data), answer.chunk):
            data = answer.data[start : start + answer.chunk]
            self._n_output += len(data)
            yield TokensGenerated(
                tuple(data), data, (answer.probability,) * len(data) if self._request.probabilities else ()
            )


def _wait_for(gate: threading.Event) -> Iterator[None]:
    while not gate.wait(_POLL_S):
        yield None


def open_scripted(
    backend: ScriptedBackend,
    *,
    load_errors: Sequence[Exception] = (),
    progress: Sequence[float] = (),
    gate: threading.Event | None = None,
) -> BackendOpener:
    """Return an opener of `backend`.

    Args:
        backend: What it opens, the same object every time.
        load_errors: Raised by the first loads, one each.
        progress: Fractions reported while loading.
        gate: Loading waits for it after the last report, or until it is told to give up.
    """
    failures = iter(load_errors)

    def open_it(on_progress: Callable[[float], bool]) -> Backend:
        backend.calls.n_loaded += 1
        for fraction in progress:
            on_progress(fraction)
        while gate is not None and not gate.wait(_POLL_S):
            if not on_progress(progress[-1] if progress else 0.0):
                raise EngineLoadError("loading was given up")
        for error in failures:
            raise error
        return backend

    return open_it
