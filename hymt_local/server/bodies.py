"""What the native interface takes and gives, as values; `openapi` makes its description of them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from hymt_local.events import Finished, Pivot, Priority, SamplingParams, TranslationRequest
from hymt_local.segment import Guidance, Term, UnitText

AUTO = "auto"
MAX_KEEP_ALIVE_S = 604_800
MAX_TERMS = 10_000
"""Each is looked for in each text."""
MAX_GUIDING_TERMS = 1000
MAX_TERM_CHARACTERS = 200
MAX_CONTEXT_CHARACTERS = 8000
MAX_STYLE_CHARACTERS = 500
PriorityName = Literal["interactive", "request", "document"]
Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class SamplingBody(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen; leave it out for the repeatable default."""

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] = 0.0
    top_k: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 20
    top_p: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.6
    repetition_penalty: Annotated[float, msgspec.Meta(ge=1.0, le=2.0)] = 1.05
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0


class TermBody(msgspec.Struct, frozen=True, kw_only=True):
    """A term and the translation to use for it."""

    source: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TERM_CHARACTERS)]
    target: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TERM_CHARACTERS)]


class GuidanceBody(msgspec.Struct, frozen=True, kw_only=True):
    """What the model is told beside the text; refused where the model was not trained to take it."""

    terms: Annotated[list[TermBody], msgspec.Meta(max_length=MAX_GUIDING_TERMS)] = []
    context: Annotated[
        str,
        msgspec.Meta(max_length=MAX_CONTEXT_CHARACTERS, description="what the text is about, or what stands before it"),
    ] = ""
    style: Annotated[
        str, msgspec.Meta(max_length=MAX_STYLE_CHARACTERS, description="how the translation is to sound")
    ] = ""

    def guidance(self) -> Guidance:
        """Return it as the translator takes it."""
        return Guidance(tuple(Term(each.source, each.target) for each in self.terms), self.context, self.style)


class TranslateBody(msgspec.Struct, frozen=True, kw_only=True):
    """One text, or a list of texts, to translate."""

    target_lang: Tag
    text: Annotated[str | list[str], msgspec.Meta(description="a list is answered in its order, and not streamed")] = ""
    units: Annotated[list[UnitText], msgspec.Meta(description="units of a document, instead of text")] = []
    source_lang: Annotated[
        Annotated[str, msgspec.Meta(max_length=100)] | None, msgspec.Meta(description="`auto`, or nothing, detects it")
    ] = None
    model: Annotated[Tag | None, msgspec.Meta(description="a reference of `/v1/models`; the default otherwise")] = None
    priority: PriorityName = "request"
    sampling: SamplingBody | None = None
    protect: Annotated[
        list[str], msgspec.Meta(max_length=MAX_TERMS, description="names and terms that stay as they are")
    ] = []
    draft: Annotated[str | None, msgspec.Meta(description="what the translation probably is; saves time only")] = None
    guidance: GuidanceBody = GuidanceBody()
    isolate: Annotated[
        bool, msgspec.Meta(description="keep the direction of placeholders in text that runs from right to left")
    ] = False
    keeps_translated: Annotated[
        bool, msgspec.Meta(description="leave units alone that are in the target language already")
    ] = True
    pivot: Annotated[
        Literal["off", "auto", "zh"], msgspec.Meta(description="translate through Chinese; auto: where that may help")
    ] = "off"
    use_cache: Annotated[bool, msgspec.Meta(description="read and fill the memory of past translations")] = True
    stream: Annotated[bool, msgspec.Meta(description="answer with events, as `Accept: text/event-stream` does")] = False
    detached: Annotated[
        bool, msgspec.Meta(description="go on when the connection ends; follow it at /v1/jobs/{id}/events")
    ] = False
    keep_alive_s: Annotated[
        Annotated[float, msgspec.Meta(ge=-1, le=MAX_KEEP_ALIVE_S)] | None,
        msgspec.Meta(description="how long the model stays loaded afterwards; 0: not at all, -1: for ever"),
    ] = None

    def requests(self) -> list[TranslationRequest]:
        """Return what is to be translated."""
        texts = self.text if isinstance(self.text, list) else [self.text]
        return [self._request(text) for text in texts]

    def _request(self, text: str) -> TranslationRequest:
        sampling = None if self.sampling is None else SamplingParams(**msgspec.structs.asdict(self.sampling))
        return TranslationRequest(
            text=text,
            target_lang=self.target_lang,
            source_lang=None if self.source_lang in {None, AUTO, ""} else self.source_lang,
            model=self.model,
            priority=Priority[self.priority.upper()],
            sampling=sampling,
            use_cache=self.use_cache,
            units=tuple(self.units),
            protect=tuple(self.protect),
            draft=self.draft,
            pivot=Pivot(self.pivot),
            isolate=self.isolate,
            keeps_translated=self.keeps_translated,
            guidance=self.guidance.guidance(),
        )


def translation(finished: Finished) -> dict[str, object]:
    """Return the answer to one text, with what clients of DeepLX look for in it: they use the same path and names.

    Only a whole translation has `data`: source text never passes for one.
    """
    errors = [each.error for each in finished.failed if each.error is not None]
    if errors:
        theirs: dict[str, object] = {"code": errors[0].http_status, "message": errors[0].message}
    else:
        theirs = {"code": 200, "data": finished.text, "alternatives": []}
    return {**msgspec.to_builtins(finished), **theirs}


class Translations(msgspec.Struct, frozen=True):
    """The answer to a list."""

    translations: list[Finished]


class JobState(msgspec.Struct, frozen=True):
    """Where a job stands."""

    id: str
    state: Literal["running", "done", "error", "cancelled"]
    n_events: int
    model: str | None
    segments_done: int
    segments: int | None


class DetectBody(msgspec.Struct, frozen=True):
    """Text whose language is wanted; each item of a list on its own."""

    text: str | list[str]


class Detected(msgspec.Struct, frozen=True):
    """One language that it may be."""

    language: str
    confidence: float


class Detections(msgspec.Struct, frozen=True):
    """For each text what it may be, likeliest first; empty when there is nothing to judge by."""

    detections: list[list[Detected]]


class LanguageItem(msgspec.Struct, frozen=True):
    """One language of a model."""

    tag: str
    english: str
    chinese: str
    native: str
    rtl: bool


class Languages(msgspec.Struct, frozen=True):
    """What a model speaks."""

    model: str
    languages: list[LanguageItem]


class ModelItem(msgspec.Struct, frozen=True):
    """One installed model; the first four fields are what clients of OpenAI expect."""

    id: str
    object: str
    created: int
    owned_by: str
    title: str
    kind: str
    is_default: bool
    languages: list[str]
    licence: str


class Models(msgspec.Struct, frozen=True):
    """What is installed."""

    object: str
    data: list[ModelItem]


class Health(msgspec.Struct, frozen=True):
    """The server lives, and which one it is."""

    status: str
    server: str
    version: str


class LoadedModel(msgspec.Struct, frozen=True):
    """A model in memory."""

    name: str
    is_used: bool
    unloads_in_s: float | None
    """None: in use, or for ever."""


class ServerState(msgspec.Struct, frozen=True):
    """What the server does."""

    pid: int
    version: str
    started_at: float
    translations: int
    models: list[LoadedModel]


class UnloadBody(msgspec.Struct, frozen=True):
    """Which model to free; all when none is named."""

    model: str | None = None


class Unloaded(msgspec.Struct, frozen=True):
    """What was freed; models in use are not."""

    unloaded: list[str]


class CodeBody(msgspec.Struct, frozen=True):
    """A one-time code."""

    code: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class TokenAnswer(msgspec.Struct, frozen=True):
    """A token for the holder of a code."""

    token: str


class PairingBody(msgspec.Struct, frozen=True):
    """An extension that may use the server once it shows the code."""

    origin: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9+.-]*://[A-Za-z0-9._:\[\]-]+$", max_length=200)]
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=60)]


class ErrorBody(msgspec.Struct, frozen=True):
    """What went wrong and the next step."""

    code: str
    message: str
    hint: str


class FailedPart(msgspec.Struct, frozen=True):
    """A part of a document that kept its source text."""

    location: str
    source: str
    error: ErrorBody


class DocumentState(msgspec.Struct, frozen=True):
    """Where a document stands; units are its paragraphs, cues or messages."""

    id: str
    name: str
    state: Literal["running", "done", "failed"]
    n_units: int | None
    """None until it is read."""
    n_done: int
    n_failed: int
    characters: int
    eta_s: float | None
    source_lang: str | None
    failed: list[FailedPart]
    error: ErrorBody | None


class FormatItem(msgspec.Struct, frozen=True):
    """One document format."""

    name: str
    extensions: list[str]
    can_be_bilingual: bool


class Formats(msgspec.Struct, frozen=True):
    """What documents may be."""

    formats: list[FormatItem]


class ErrorAnswer(msgspec.Struct, frozen=True):
    """Every error of the native interface."""

    error: ErrorBody
