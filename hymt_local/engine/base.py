"""The engine seam: what every engine takes and gives.

Two layers. A `Backend` is synchronous and owned by one thread: it holds the weights. An `Engine` is the asynchronous
face that everyone else uses; `engine.scheduler` makes one out of a backend by giving it a thread and a priority queue.
All values that cross the seam are frozen, picklable plain data, so that the same protocol can be met behind a pipe or a
socket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hymt_local.engine.counters import EngineCounters
from hymt_local.errors import DecodeError
from hymt_local.events import Priority, SamplingParams, TokenUsage


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    """A stop token of the model."""
    LENGTH = "length"
    """`max_tokens` was reached: the text is incomplete and must be shown as a failure."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model says of itself, read from its file."""

    name: str
    architecture: str
    vocab_size: int
    context_length: int
    """Tokens the loaded context holds: prompt and answer together."""
    quantization: str
    file_sha256: str
    """Hex digest of the weights file; for engines without a file, a digest of their name and version."""
    control_tokens: Mapping[str, int] = field(default_factory=dict)
    """Text of every control token of the vocabulary -> its id."""
    stop_ids: frozenset[int] = frozenset()
    """Ids that end a generation: EOS and EOT of the file, after correction of the known header faults."""
    n_gpu_layers: int = 0
    n_layers: int = 0
    """The output counts as one, as llama.cpp does; 0 when there are none."""
    gpu: str = ""
    """Name of the first GPU that computes; empty without one."""
    is_reduced: bool = False
    """Loaded with less than was planned, because memory was short."""
    size_bytes: int = 0
    slots: int = 1
    """Generations of one priority that are decoded together."""
    is_deterministic: bool = False
    """Every answer depends on prompt and sampling alone, to the last bit."""
    threads: int = 0
    kv_type: str = ""
    build: str = ""
    """The library that computes, and the instructions it uses."""
    process_id: int = 0
    """Of the process that holds the weights; 0 when there are none."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to continue."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop_ids: frozenset[int] = frozenset()
    """Added to the model's own."""
    priority: Priority = Priority.REQUEST
    draft: tuple[int, ...] = ()
    """A guess at the output, verified before it is used; engines may ignore it."""
    n_fixed: int = 0
    """Tokens at the beginning of the prompt that other prompts will have too: their state is worth keeping."""
    answered: tuple[int, ...] = ()
    """The answer's first tokens, already given by an engine that ended meanwhile: they count for `max_tokens` and for
    the penalty, and are not given again."""
    probabilities: bool = False
    """Ask for the probability of each chosen token (costs one softmax over the vocabulary per token)."""


@dataclass(frozen=True, slots=True)
class PromptRead:
    """Progress of reading the prompt, in tokens; reused tokens count as done."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class TokensGenerated:
    """New tokens, in order, and the bytes they stand for (a character may be split over two events)."""

    ids: tuple[int, ...]
    data: bytes
    probabilities: tuple[float, ...] = ()
    """One per id when asked for."""


@dataclass(frozen=True, slots=True)
class GenerationDone:
    """The last event of every generation that did not raise."""

    reason: FinishReason
    usage: TokenUsage


GenerationEvent = PromptRead | TokensGenerated | GenerationDone


Outcome = tuple[int, GenerationEvent | Exception]
"""An event of the generation with this ticket, or the error that ended it."""


class Backend(Protocol):
    """Weights and a decode loop over many sequences.

    All methods run on the one engine thread, but for `interrupt`, and `tokenize` where `tokenizes_anywhere`.
    """

    @property
    def info(self) -> ModelInfo:
        """Facts about the loaded model."""

    @property
    def counters(self) -> EngineCounters:
        """What it did since the model was loaded."""
        return EngineCounters()

    @property
    def tokenizes_anywhere(self) -> bool:
        """Whether `tokenize` may be called from any thread, also beside a step and after closing."""
        return False

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the ids of plain text: control-token text in it stays text, no BOS is added."""

    def can_open(self, request: GenerationRequest) -> bool:
        """Return whether there is room for one more generation now; always true when none is open."""

    def open(self, request: GenerationRequest) -> int:
        """Let a generation join at the next step, and return its ticket, which is never used again.

        Raises:
            ContextOverflowError: prompt and `max_tokens` exceed the context.
            EngineError: the request is invalid, or `can_open` was not asked.
        """

    def step(self) -> Sequence[Outcome]:
        """Take the open generations one step further, and return what came of it; often nothing for some of them.

        A generation whose `GenerationDone` or error was returned is not open any more.

        Raises:
            HymtError: the engine failed as a whole; what is open had better be dropped.
        """

    def drop(self, ticket: int) -> GenerationDone:
        """End an open generation; its state is gone, the others are not disturbed. The reason is CANCELLED."""

    def interrupt(self) -> None:
        """Make a step that is under way return early, if it can, without harm to any generation. From any thread."""

    def close(self) -> None:
        """Free the weights; closing twice is fine."""

    def generate(self, request: GenerationRequest, is_cancelled: Callable[[], bool]) -> Iterator[GenerationEvent]:
        """Yield the events of one generation alone; `is_cancelled` is polled between the steps.

        Raises:
            ContextOverflowError: prompt and `max_tokens` exceed the context, before anything is decoded.
            DecodeError: the engine failed; the backend stays usable. Or another generation is open.
        """
        ticket = self.open(request)
        is_open = True
        try:
            while is_open:
                if is_cancelled():
                    is_open = False
                    yield self.drop(ticket)
                    return
                for owner, event in self.step():
                    if owner != ticket:
                        raise DecodeError("two generations alone at once: step them together")
                    is_open = not isinstance(event, GenerationDone | Exception)
                    if isinstance(event, Exception):
                        raise event
                    yield event
        finally:
            if is_open:
                self.drop(ticket)


BackendOpener = Callable[[Callable[[float], bool]], Backend]
"""Loads a backend on the engine thread. It is given a progress callback (0.0 to 1.0) that returns False to give up."""


class Engine(Protocol):
    """The asynchronous face of one model. Safe to use from one asyncio loop; many generations may be in flight."""

    @property
    def info(self) -> ModelInfo | None:
        """Facts about the model while it is loaded; None before. Any thread."""

    async def load(self, on_progress: Callable[[float], None] | None = None) -> ModelInfo:
        """Load the model if it is not loaded yet, and return its facts.

        Raises:
            ModelError: the file cannot be used.
            EngineError: llama.cpp is missing or failed.
        """

    async def tokenize(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Tokenize plain texts (see `Backend.tokenize`), loading the model first if need be."""

    def generate(self, request: GenerationRequest) -> AsyncIterator[GenerationEvent]:
        """Yield the events of one generation; closing the iterator cancels it, in prefill too."""

    async def counters(self) -> EngineCounters:
        """Return what was done since the model was loaded; zeros when it is not, for it is not loaded for this."""

    async def close(self) -> None:
        """Cancel what runs, free the model and end the thread."""
