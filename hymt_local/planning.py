"""Understanding a request: languages, segments, what they protect, the way there, and the keys of the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from hymt_local.catalog import ModelSpec
from hymt_local.coverage import Coverage
from hymt_local.detect import Detection, LanguageDetector
from hymt_local.engine.base import Engine
from hymt_local.errors import (
    EmptyInputError,
    InputEncodingError,
    LanguageError,
    UsageError,
)
from hymt_local.events import Pivot, SamplingParams, TranslationRequest
from hymt_local.guidance import checked_guidance, guidance_of_leg, guided, shape_of
from hymt_local.language import can_pivot, gains_from_pivot, get_language, match_language
from hymt_local.literals import without_literals
from hymt_local.prompts import Context, has_task, template_signature
from hymt_local.retries import DEFAULT_RETRIES, RetryPolicy
from hymt_local.scripts import script_of
from hymt_local.segment import Segment, UnitText
from hymt_local.segmenter import split_lines, split_sentences
from hymt_local.signature import Signature, shaped_digest
from hymt_local.source_text import SourceText, tokens_of

UNDETERMINED = "und"
"""The source language of a text without a word in it (BCP 47)."""
PIVOT_LANG = "zh"
_SAMPLE_CHARACTERS = 8000
"""More text than the detector looks at."""
_SHOWN_CHARACTERS = 60
_BYTES_TO_KNOW = 80
"""Statistics are wrong on 0.06 % of the texts of this length."""
_SURE = 0.98
_DIGITS = 12


class PassedTests(Protocol):
    """Where it is remembered that a model has passed its self-test."""

    def has(self, key: str) -> bool:
        """Tell whether it has passed this one."""

    def add(self, key: str) -> None:
        """Remember that it has."""


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model ready to be used: its weights are read by the engine when they are first needed."""

    spec: ModelSpec
    engine: Engine
    coverage: Coverage | None = None
    """The closed domain of a demo model; None for a model that translates anything."""
    fingerprint: str = ""
    """sha256 of the model file, known without loading it; for test engines their id."""
    quantization: str = ""
    retries: RetryPolicy = DEFAULT_RETRIES
    """How often a text is tried, and what is changed."""
    passed_tests: PassedTests | None = None
    """None: it is used without a self-test."""

    @property
    def name(self) -> str:
        """The reference a user types."""
        return f"{self.spec.id}:{self.quantization}" if self.spec.kind == "translation" else self.spec.id


@dataclass(frozen=True, slots=True)
class Plan:
    """A request that has been understood, or one leg of its way."""

    request: TranslationRequest
    source_lang: str
    target_lang: str
    detection: Detection | None
    segments: tuple[Segment, ...]
    sources: tuple[SourceText, ...]
    """What the segments' source texts protect, one each."""
    sampling: SamplingParams
    signature: Signature
    digest: str
    drafts: tuple[str, ...] = ()
    """What the targets probably are, by segment; may be shorter."""
    pivot_lang: str | None = None
    """The language in the middle of the way."""
    doubt: str = ""
    """Why the named source language is unlikely, in one line; it is used all the same."""

    def digest_of(self, source: SourceText) -> str:
        """Return the cache's key for one source text: protected spans and context shape its translation too."""
        if source.is_plain:
            return self.digest
        shape = (
            [(token.span.start, token.span.end, token.kind.value, token.pair) for token in source.tokens],
            sorted(source.groups),
            source.context,
            *shape_of(source.guidance),
        )
        return shaped_digest(self.digest, shape)

    def draft_of(self, index: int) -> str:
        """Return what the target of a segment probably is; empty when nobody knows."""
        return self.drafts[index] if index < len(self.drafts) else ""

    @property
    def provenance(self) -> str:
        """All that shaped the translation, in one readable line."""
        way = f" via {self.pivot_lang}" if self.pivot_lang else ""
        guidance = shape_of(self.request.guidance)
        guided = f" guidance={shaped_digest('', guidance)[:_DIGITS]}" if guidance else ""
        return f"{self.signature}{way}{guided}"

    @property
    def isolates(self) -> bool:
        """Whether placeholders get marks of direction in this target."""
        return _isolates(self.request, self.target_lang)

    @property
    def is_identity(self) -> bool:
        """True when there is nothing to do: no words, or they are in the target language already."""
        return self.source_lang in {UNDETERMINED, self.target_lang}


class Planner:
    """Makes plans for one model. Any thread.

    Args:
        model: Its engine is not touched.
        detector: Shared, since it loads its data once.
    """

    def __init__(self, model: OpenModel, detector: LanguageDetector) -> None:
        self._model = model
        self._detector = detector

    def plan(self, request: TranslationRequest) -> Plan:
        """Validate, detect and split.

        Raises:
            UsageError: empty or undecodable text, unknown or unsupported language.
        """
        _check_texts(request)
        spec = self._model.spec
        request = msgspec.structs.replace(request, guidance=checked_guidance(spec, request))
        target_lang = match_language(request.target_lang, supported=spec.languages)
        units = tuple(self._unit_source(unit, request.protect) for unit in request.units)
        texts = _segments_of(units) if units else split_lines(request.text)
        detection = self._detect(texts, units) if request.source_lang is None else None
        if request.source_lang is None:
            source_lang = detection.tag if detection else UNDETERMINED
        else:
            source_lang = match_language(request.source_lang, supported=spec.languages)
        doubt = self._doubt(texts, units, source_lang) if request.source_lang is not None else ""
        if not units and spec.unit == "sentence":
            texts = split_sentences(request.text, source_lang)
        sampling = request.sampling or spec.sampling.greedy_params()
        signature = self._sign(sampling, source_lang=source_lang, target_lang=target_lang)
        return Plan(
            request=request,
            source_lang=source_lang,
            target_lang=target_lang,
            detection=detection,
            segments=texts,
            sources=guided(
                units or [_line_source(segment, request.protect) for segment in texts],
                request.guidance,
                source_lang=source_lang,
            ),
            sampling=sampling,
            signature=signature,
            digest=self._digest(request, signature),
            drafts=self._drafts(request, target_lang),
            doubt=doubt,
            pivot_lang=self._pivot(request, source_lang=source_lang, target_lang=target_lang),
        )

    def leg(
        self,
        plan: Plan,
        *,
        source_lang: str,
        target_lang: str,
        segments: tuple[Segment, ...],
        sources: tuple[SourceText, ...],
    ) -> Plan:
        """Return one leg of a way through another language."""
        signature = self._sign(plan.sampling, source_lang=source_lang, target_lang=target_lang)
        return replace(
            plan,
            source_lang=source_lang,
            target_lang=target_lang,
            segments=segments,
            sources=guided(
                sources,
                guidance_of_leg(plan.request, is_last=target_lang == plan.target_lang),
                source_lang=source_lang,
            ),
            signature=signature,
            digest=self._digest(plan.request, signature),
            drafts=plan.drafts if target_lang == plan.target_lang else (),
            pivot_lang=None,
        )

    def is_translated(self, plan: Plan, source: SourceText) -> bool:
        """Tell whether a unit of a document is in the target language already, while the document is not.

        Languages of one script are told apart in long units only.
        """
        words = source.words
        script = get_language(plan.target_lang).script
        is_long = len(words) >= _BYTES_TO_KNOW or len(words.encode()) >= _BYTES_TO_KNOW
        if not is_long and script == get_language(plan.source_lang).script:
            return False
        if not is_long and not _is_written_in(words, script):
            return False
        found = self._detector.detect(words)
        return found is not None and found.tag == plan.target_lang and found.confidence >= _SURE

    def identify(self, text: str) -> tuple[str, float] | None:
        """Return the likeliest language of a text and its confidence."""
        return self._detector.identify(text)

    def _unit_source(self, unit: UnitText, words: Sequence[str]) -> SourceText:
        """Settle what a unit protects; context that the model cannot be shown shapes nothing."""
        context = unit.context if has_task(self._model.spec, Context.name) else ()
        return SourceText(unit.text, tokens_of(unit, words=words), unit.groups, context)

    def _drafts(self, request: TranslationRequest, target_lang: str) -> tuple[str, ...]:
        if not request.draft or request.units:
            return ()
        is_by_sentence = self._model.spec.unit == "sentence"
        segments = split_sentences(request.draft, target_lang) if is_by_sentence else split_lines(request.draft)
        return tuple(segment.source for segment in segments)

    def _pivot(self, request: TranslationRequest, *, source_lang: str, target_lang: str) -> str | None:
        wish = request.pivot
        wanted = can_pivot if wish is Pivot.ZH else gains_from_pivot
        is_possible = source_lang != UNDETERMINED and PIVOT_LANG in self._model.spec.languages
        if request.guidance.terms or wish is Pivot.OFF or not is_possible or not wanted(source_lang, target_lang):
            return None
        return PIVOT_LANG

    def _detect(self, segments: Sequence[Segment], units: Sequence[SourceText]) -> Detection | None:
        """Return None when there is nothing to translate; refuse a text whose language cannot be told."""
        texts = (unit.words for unit in units) if units else (segment.source for segment in segments)
        words = _sample(text for text, segment in zip(texts, segments, strict=True) if segment.translatable)
        detection = self._detector.detect(words, supported=self._model.spec.languages) if words else None
        if detection is None and sum(character.isalpha() for character in without_literals(words)) > 1:
            raise LanguageError(
                f"cannot tell the language of {shown(words)!r}",
                hint="name it (`-f LANG`); `hymt languages` lists what the models speak",
            )
        return self._within_domain(words, detection) if detection else None

    def _doubt(self, segments: Sequence[Segment], units: Sequence[SourceText], source_lang: str) -> str:
        if self._model.spec.kind == "test":  # it takes every text for what it is called
            return ""
        texts = (unit.words for unit in units) if units else (segment.source for segment in segments)
        words = _sample(text for text, segment in zip(texts, segments, strict=True) if segment.translatable)
        if not words or not self._detector.rules_out(words, source_lang):
            return ""
        return (
            f"the text is not in the script of {get_language(source_lang).english}, the source language that was named"
        )

    def _within_domain(self, words: str, detection: Detection) -> Detection:
        """Let a closed domain decide where it can: its short phrases are too short for statistics."""
        coverage = self._model.coverage
        if coverage is None or _covers(coverage, words, detection.tag):
            return detection
        preferred = [*self._model.spec.full_languages, *coverage.languages]
        known = [lang for lang in dict.fromkeys(preferred) if _covers(coverage, words, lang)]
        return Detection(known[0], 1.0 / len(known)) if known else detection

    def _digest(self, request: TranslationRequest, signature: Signature) -> str:
        """Return the cache's key for a plain text: whatever is not the default shapes a translation too."""
        shape = ["isolate"] if _isolates(request, signature.target_lang) else []
        retries = self._model.retries
        if retries != DEFAULT_RETRIES:
            shape.append(f"{retries.generations} {' '.join(retries.order)}")
        digest = signature.digest()
        return shaped_digest(digest, shape) if shape else digest

    def _sign(self, sampling: SamplingParams, *, source_lang: str, target_lang: str) -> Signature:
        spec = self._model.spec
        is_prompted = source_lang not in {UNDETERMINED, target_lang}
        template = template_signature(spec, source_lang=source_lang, target_lang=target_lang) if is_prompted else "none"
        return Signature(
            fingerprint=self._model.fingerprint,
            quantization=self._model.quantization,
            template=template,
            sampling=sampling,
            source_lang=source_lang,
            target_lang=target_lang,
        )


def _isolates(request: TranslationRequest, target_lang: str) -> bool:
    return request.isolate and get_language(target_lang).rtl


def shown(text: str) -> str:
    """Return the beginning of a text for a one-line message."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def _check_texts(request: TranslationRequest) -> None:
    if not request.text and not request.units:
        raise EmptyInputError("there is no text to translate", hint='name it: `hymt "Good morning" -t fr`')
    if request.text and request.units:
        raise UsageError("a request has either a text or units", hint="leave the text empty")
    for text in (request.text, *(unit.text for unit in request.units)):
        _check_encoding(text)


def _check_encoding(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputEncodingError(
            f"the text holds half a character at position {error.start}", hint="save it as UTF-8"
        ) from error


def _segments_of(units: Sequence[SourceText]) -> tuple[Segment, ...]:
    """Return one segment per unit; the whitespace around a unit, if any, stays in it."""
    return tuple(
        Segment(index, unit.text, translatable=any(map(str.isalpha, unit.words))) for index, unit in enumerate(units)
    )


def _line_source(segment: Segment, words: Sequence[str]) -> SourceText:
    if not segment.translatable:
        return SourceText(segment.source)
    return SourceText(segment.source, tokens_of(UnitText(segment.source), words=words))


def _is_written_in(words: str, script: str) -> bool:
    """Tell by its first letter whether a text may be in a script: enough to leave most of a document alone."""
    letter = next((character for character in words if character.isalpha()), "")
    wanted = {"Hans": {"Hani"}, "Hant": {"Hani"}, "Jpan": {"Hani", "Kana"}, "Kore": {"Hang", "Hani"}}.get(
        script, {script}
    )
    return letter != "" and script_of(letter) in wanted


def _covers(coverage: Coverage, words: str, lang: str) -> bool:
    sentences = split_sentences(words, lang)
    return all(coverage.gap(each.source, lang) is None for each in sentences if each.translatable)


def _sample(texts: Iterator[str]) -> str:
    """Join the first texts, as much of them as a language is told by."""
    sample: list[str] = []
    n_characters = 0
    for text in texts:
        sample.append(text)
        n_characters += len(text) + 1
        if n_characters > _SAMPLE_CHARACTERS:
            break
    return "\n".join(sample)
