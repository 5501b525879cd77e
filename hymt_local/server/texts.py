"""Texts of one HTTP request, plain or with markup, to their translations: what all dialects have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.requests import Request

from hymt_local.errors import InputEncodingError
from hymt_local.events import Finished, SegmentDone, Started, TokenUsage, TranslationRequest
from hymt_local.server.context import ServerContext, complete_text
from hymt_local.server.flights import Flight
from hymt_local.server.tagged_text import MarkupRules, TaggedText, read_tagged
from hymt_local.translator import UNDETERMINED

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wish:
    """How the texts of one request are to be translated."""

    target_lang: str
    source_lang: str | None = None
    """None detects it, for each text on its own."""
    markup: MarkupRules | None = None
    """None for plain text."""
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Translated:
    """One text's translation."""

    text: str
    source_lang: str
    """`und` when there was no word in it."""
    confidence: float = 0.0
    """0.0 to 1.0, of the detection; 1.0 when the source language was named."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    model: str = ""


async def translate_texts(context: ServerContext, http: Request, texts: Sequence[str], wish: Wish) -> list[Translated]:
    """Translate texts, in their order; an empty one stays empty, a blank one blank.

    Raises:
        HymtError: any part of any text could not be translated: source text never passes for a translation.
        ClientDisconnect: the client has gone.
    """
    plans = await _apart(lambda: [_plan(text, wish, index) for index, text in enumerate(texts)], wish)
    requests = [plan.request for plan in plans if plan.request is not None]
    flights = iter(await context.fly_all(http, requests))
    pairs = [(plan, None if plan.request is None else next(flights)) for plan in plans]
    return await _apart(
        lambda: [_landed(plan, flight) if flight else _untouched(plan.text, wish) for plan, flight in pairs], wish
    )


async def _apart(work: Callable[[], list[T]], wish: Wish) -> list[T]:
    """Read or write markup on another thread: a large page takes seconds, and the loop is everybody's."""
    return work() if wish.markup is None else await asyncio.to_thread(work)


async def translate_one(context: ServerContext, http: Request, text: str, wish: Wish) -> Translated:
    """Translate one text; see `translate_texts`."""
    (translated,) = await translate_texts(context, http, [text], wish)
    return translated


@dataclass(frozen=True, slots=True)
class _Plan:
    text: str
    request: TranslationRequest | None
    tagged: TaggedText | None = None


def _plan(text: str, wish: Wish, index: int) -> _Plan:
    _check_encodable(text, index)
    tagged = read_tagged(text, wish.markup) if wish.markup is not None and _may_have_markup(text) else None
    is_blank = not text.strip() or (tagged is not None and not tagged.units)
    if is_blank:
        return _Plan(text, None)
    request = TranslationRequest(
        text="" if tagged else text,
        target_lang=wish.target_lang,
        source_lang=wish.source_lang,
        model=wish.model,
        units=tagged.units if tagged else (),
    )
    return _Plan(text, request, tagged)


def _may_have_markup(text: str) -> bool:
    return any(character in text for character in "<&{")


def _check_encodable(text: str, index: int) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputEncodingError(
            f"text {index} holds half a character at position {error.start}", hint="send valid Unicode"
        ) from error


def _untouched(text: str, wish: Wish) -> Translated:
    return Translated(text, wish.source_lang or UNDETERMINED, 1.0 if wish.source_lang else 0.0)


def _landed(plan: _Plan, flight: Flight) -> Translated:
    finished = flight.last
    assert isinstance(finished, Finished)
    whole = complete_text(finished)
    text = whole if plan.tagged is None else plan.tagged.joined(_targets(flight))
    started = next(event for event in flight.events if isinstance(event, Started))
    return Translated(
        text=text,
        source_lang=finished.source_lang,
        confidence=_confidence(plan, finished, started),
        usage=finished.usage,
        model=finished.model,
    )


def _targets(flight: Flight) -> list[str]:
    done = [event for event in flight.events if isinstance(event, SegmentDone)]
    return [event.target for event in sorted(done, key=lambda event: event.segment)]


def _confidence(plan: _Plan, finished: Finished, started: Started) -> float:
    if plan.request is not None and plan.request.source_lang is not None:
        return 1.0
    if started.detected_confidence is not None:
        return started.detected_confidence
    return 0.0 if finished.source_lang == UNDETERMINED else 1.0
