"""What a model is told beside a text: whether it can be told that, and which part of it each text needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from hymt_local.catalog import ModelSpec
from hymt_local.checks import find_terms
from hymt_local.errors import UnsupportedModelError, UsageError
from hymt_local.events import Pivot, TranslationRequest
from hymt_local.prompts import takes_guidance
from hymt_local.segment import NO_GUIDANCE, Guidance, GuidanceKind, Term
from hymt_local.source_text import SourceText

_CALLED = {
    GuidanceKind.TERMS: "which terms to use",
    GuidanceKind.CONTEXT: "the context of a text",
    GuidanceKind.STYLE: "a style",
}


def checked_guidance(spec: ModelSpec, request: TranslationRequest) -> Guidance:
    """Return what a request tells the model, without what is blank.

    Raises:
        UnsupportedModelError: the model was not trained to take it.
        UsageError: terms together with a way through another language, which would lose them.
    """
    said = request.guidance
    terms = tuple(Term(each.source.strip(), each.target.strip()) for each in said.terms)
    guidance = Guidance(
        tuple(each for each in terms if each.source and each.target), said.context.strip(), said.style.strip()
    )
    for kind in guidance.kinds:
        if not takes_guidance(spec, kind):
            raise UnsupportedModelError(
                f"{spec.id} cannot be told {_CALLED[kind]}", hint="use a Hy-MT2 model, or leave it out"
            )
    if guidance.terms and request.pivot is Pivot.ZH:
        raise UsageError("terms are lost on the way through Chinese", hint="leave out the terms, or `--via zh`")
    return guidance


def guided(sources: Sequence[SourceText], guidance: Guidance, *, source_lang: str) -> tuple[SourceText, ...]:
    """Tell each text's model what is to be known of this text."""
    if guidance == NO_GUIDANCE and all(each.guidance == NO_GUIDANCE for each in sources):
        return tuple(sources)
    return tuple(replace(each, guidance=guidance_for(each.text, guidance, source_lang=source_lang)) for each in sources)


def guidance_for(text: str, guidance: Guidance, *, source_lang: str) -> Guidance:
    """Return the guidance with those of its terms that stand in a text."""
    if not guidance.terms:
        return guidance
    names = [term.source for term in guidance.terms]
    found = {match.term for match in find_terms(text, names, lang=source_lang)}
    return msgspec.structs.replace(guidance, terms=tuple(term for term in guidance.terms if term.source in found))


def guidance_of_leg(request: TranslationRequest, *, is_last: bool) -> Guidance:
    """Return what one leg of a way through another language is told: only the last one has the style."""
    kinds = {GuidanceKind.CONTEXT, GuidanceKind.STYLE} if is_last else {GuidanceKind.CONTEXT}
    return request.guidance.only(kinds)


def shape_of(guidance: Guidance) -> list[object]:
    """Return guidance as JSON-like values; nothing for none, so that keys without it stay as they are."""
    if guidance == NO_GUIDANCE:
        return []
    return [[(term.source, term.target) for term in guidance.terms], guidance.context, guidance.style]
