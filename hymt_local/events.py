"""The verbs of a translation: the request, and the events that answer it.

Every job yields `Started`, then any number of the others, and exactly one of `Finished`, `Failed`, `Cancelled`, last.
All values are frozen and picklable: the same stream crosses threads, processes and HTTP.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

from hymt_local.errors import ErrorReport
from hymt_local.segment import NO_GUIDANCE, Attempt, Finding, Guidance, Segment, UnitText


class Priority(IntEnum):
    """Order of admission to the engine; lower goes first."""

    INTERACTIVE = 0
    REQUEST = 1
    DOCUMENT = 2


class Origin(StrEnum):
    """Where the text of a segment came from."""

    MODEL = "model"
    CACHE = "cache"
    SOURCE = "source"
    """Passed through without translation: numbers, whitespace, or source and target language are the same."""


class SamplingParams(msgspec.Struct, frozen=True):
    """How the next token is chosen; the default is greedy, so that the same text gives the same translation.

    `repetition_penalty` counts the generated tokens only (llama.cpp's meaning), 1.05 as the model cards ask.
    """

    temperature: float = 0.0
    top_k: int = 20
    """0 turns it off."""
    top_p: float = 0.6
    repetition_penalty: float = 1.05
    seed: int = 0


class Pivot(StrEnum):
    """Whether a translation goes through Chinese, which is the language that the models know best."""

    OFF = "off"
    AUTO = "auto"
    """Where it is likely to help: from or into a minority language of China, when the other one is not Chinese."""
    ZH = "zh"
    """Whenever neither language is Chinese."""


class TranslationRequest(msgspec.Struct, frozen=True):
    """One text to translate.

    `source_lang` is a tag of the catalog, or None to detect it; `model` is a reference such as `demo`,
    `Hy-MT2-1.8B:Q4_K_M`, `echo`, or None for the default.
    """

    text: str
    target_lang: str
    source_lang: str | None = None
    model: str | None = None
    priority: Priority = Priority.REQUEST
    sampling: SamplingParams | None = None
    """None means the model's deterministic default."""
    use_cache: bool = True
    """False neither reads nor writes the phrase cache."""
    units: tuple[UnitText, ...] = ()
    """Units of a document, instead of `text`, which is empty then: each is one segment, in this order, and
    `Finished.text` is empty. A few hundred at a time share one batch."""
    protect: tuple[str, ...] = ()
    """Names and terms that stay as they are: whole words, in exactly this spelling."""
    draft: str | None = None
    """What the translation of `text` probably is, line for line: it saves time where it is right, and no more."""
    pivot: Pivot = Pivot.OFF
    isolate: bool = False
    """Where the target runs from right to left, put each placeholder between U+2068 and U+2069: it keeps its own
    direction on a screen then."""
    keeps_translated: bool = True
    """A unit that is in the target language already stays as it is."""
    guidance: Guidance = NO_GUIDANCE
    """Terms, context and style; refused by a model that was not trained to take them."""


class ModelLoading(msgspec.Struct, frozen=True):
    """The model is being read; `fraction` is 0.0 to 1.0."""

    model: str
    fraction: float


class ModelLoaded(msgspec.Struct, frozen=True):
    """The model is in memory, just now or since an earlier job, and how.

    Comes before what it generates for this job; not at all when nothing has to be generated.
    """

    model: str
    context_length: int
    """Tokens of prompt and answer together."""
    n_gpu_layers: int = 0
    """0: the CPU computes everything."""
    n_layers: int = 0
    """All there are; the output counts as one. 0 for engines without layers."""
    gpu: str = ""
    """Name of the first GPU that computes; empty without one."""
    is_reduced: bool = False
    """Memory was shorter than expected: fewer layers are on the GPU, or the context is shorter, than was planned."""


class Started(msgspec.Struct, frozen=True):
    """Languages and model are settled and the text is split."""

    model: str
    model_kind: str
    """`translation`, `demo` or `test` (catalog)."""
    source_lang: str
    target_lang: str
    detected_confidence: float | None
    """0.0 to 1.0 when the source language was detected, None when the caller named it."""
    n_segments: int
    segments: tuple[Segment, ...] = ()
    """All segments in order: front ends put streamed text between each one's `lead` and `trail`."""
    pivot_lang: str | None = None
    """The language that the translation goes through."""
    doubt: str = ""
    """Why the source language that was named is unlikely; empty when it is not."""


class PromptProgress(msgspec.Struct, frozen=True):
    """Prompt tokens of one segment read so far."""

    segment: int
    done_tokens: int
    total_tokens: int


class TextDelta(msgspec.Struct, frozen=True):
    """New text of one segment, in order; a later `SegmentDone` is the authority."""

    segment: int
    text: str


class TokenUsage(msgspec.Struct, frozen=True):
    """Counts and times of generation, summed over segments; zero for what came from the cache."""

    prompt_tokens: int = 0
    """Tokens of all prompts, reused ones included."""
    reused_tokens: int = 0
    """Prompt tokens whose KV state was already there."""
    output_tokens: int = 0
    prompt_s: float = 0.0
    decode_s: float = 0.0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Return the sum of both, field by field."""
        return TokenUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.reused_tokens + other.reused_tokens,
            self.output_tokens + other.output_tokens,
            self.prompt_s + other.prompt_s,
            self.decode_s + other.decode_s,
        )


class SegmentDone(msgspec.Struct, frozen=True):
    """One segment is settled. With `error` set, `target` is the source text, unchanged."""

    segment: int
    source: str
    target: str
    """Without outer whitespace; what stands between the segment's `lead` and `trail`."""
    origin: Origin
    usage: TokenUsage = TokenUsage()
    error: ErrorReport | None = None
    findings: tuple[Finding, ...] = ()
    """Of the output checks, in the order of `target`; with `error` set, what the last attempt was refused for."""
    attempts: tuple[Attempt, ...] = ()
    """Every generation that was made for it, in order; none for what needed no model."""


class Finished(msgspec.Struct, frozen=True):
    """The whole text, outer whitespace and line structure restored."""

    text: str
    source_lang: str
    target_lang: str
    model: str
    signature: str
    """What shaped this output; see `hymt_local.signature`."""
    origin: Origin
    """CACHE or SOURCE only when every translatable segment came from there."""
    usage: TokenUsage
    elapsed_s: float
    failed: tuple[SegmentDone, ...] = ()
    """Segments that stayed source text; not empty means exit status 1."""
    pivot_lang: str | None = None
    """The language that the translation went through."""


class Failed(msgspec.Struct, frozen=True):
    """The job ended without a result."""

    error: ErrorReport


class Cancelled(msgspec.Struct, frozen=True):
    """The job was cancelled; nothing of it is remembered except segments already done."""


Event = ModelLoading | ModelLoaded | Started | PromptProgress | TextDelta | SegmentDone | Finished | Failed | Cancelled
LastEvent = Finished | Failed | Cancelled
