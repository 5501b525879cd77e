"""What a model adds to a translation: prefaces, notes, quotation marks, parts of its prompt, refusals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from hymt_local.checks.pair import Pair, error, warning
from hymt_local.checks.phrases import NOTE_WORDS, PREFACES, PROMPT_PARTS, REFUSALS, TRANSLATION_WORDS
from hymt_local.segment import Finding, Span

_QUOTES = (
    *(('"', '"'), ("“", "”"), ("„", "“"), ("„", "”"), ("«", "»"), ("»", "«"), ("「", "」"), ("『", "』"), ("'", "'")),
    *(("‘", "’"), ("‚", "‘"), ("‹", "›"), ("《", "》"), ("```", "```"), ("`", "`"), ("**", "**")),
)
_ANY_QUOTE = "\"“”„«»「」『』'‘’‚‹›《》`*"
_GLOSS = re.compile(r"[(（]([^()（）]{4,80})[)）]")
_GLOSS_LETTERS = 4
_CONTEXT_RUN = 5
_WORD = re.compile(r"\w+")
_TERM_LINE = re.compile(r"^.{1,60} (?:翻译成|translates to) .{1,60}$", re.MULTILINE)


def check_preamble(pair: Pair) -> Iterator[Finding]:
    """Find an introduction before the translation."""
    if (match := _preface(pair.target)) and not _preface(pair.source):
        remedy = "leave the introduction out"
        yield error(
            "preamble",
            f"the answer begins with an introduction: {match.group().strip()!r}",
            span=Span(*match.span()),
            remedy=remedy,
        )


def check_note(pair: Pair) -> Iterator[Finding]:
    """Find a note after the translation."""
    if (match := _note(pair.target)) and not _any_note().search(pair.source):
        message = f"the answer ends with a note: {match.group().strip()[:60]!r}"
        yield error("explanation", message, span=Span(*match.span()), remedy="leave the note out")


def check_wrapping(pair: Pair) -> Iterator[Finding]:
    """Find quotation marks or code marks around the whole that the source does not have."""
    target, source = pair.target.strip(), pair.source.strip()
    marks = _wrapped_in(target)
    if marks and not (source[:1] in _ANY_QUOTE or source[-1:] in _ANY_QUOTE):
        yield warning("wrapping", f"the answer stands in {marks[0]}…{marks[1]}", remedy="leave the marks out")


def check_prompt(pair: Pair) -> Iterator[Finding]:
    """Find parts of the prompt, or of the context, in the answer."""
    source, target = pair.source.casefold(), pair.target.casefold()
    for part in PROMPT_PARTS:
        if part in target and part not in source:
            start = target.index(part)
            yield error("prompt_leak", f"the answer repeats the prompt: {part!r}", span=Span(start, start + len(part)))
            return
    if (match := _TERM_LINE.search(pair.target)) and not _TERM_LINE.search(pair.source):
        yield error("prompt_leak", "the answer repeats the terms of the prompt", span=Span(*match.span()))
    elif pair.context and (span := _context_run(pair)):
        yield error("context_leak", "the answer repeats the text before", span=span)


def check_refusal(pair: Pair) -> Iterator[Finding]:
    """Find a model that talks instead of translating."""
    target = pair.target.casefold()
    for pattern, languages in REFUSALS:
        if re.search(pattern, target) and not any(re.search(each, pair.source.casefold()) for each, _ in REFUSALS):
            if pair.target_lang not in languages:
                yield error("refusal", "the answer is a reply, not a translation")
                yield error("wrong_language", "the answer is a reply in another language")
            elif "ai" in pattern and re.search(r"\bas an ai\b|please provide the|请提供|作为", target):
                yield error("refusal", "the answer is a reply, not a translation")
            return


def check_gloss(pair: Pair) -> Iterator[Finding]:
    """Find words of the source that were added in brackets."""
    if pair.source_lang == pair.target_lang:
        return
    source = pair.source.casefold()
    for match in _GLOSS.finditer(pair.target):
        inside = match[1].strip().casefold()
        is_copied = inside in source and f"({inside}" not in source and f"（{inside}" not in source
        if is_copied and match[1][0].islower() and sum(map(str.islower, match[1])) >= _GLOSS_LETTERS:
            yield warning("gloss", f"words of the source stand in brackets: {inside!r}", span=Span(*match.span()))
            return


def without_chatter(source: str, target: str) -> str:
    """Return an answer without the introduction, the note and the quotation marks that its source does not have.

    What remains is still to be checked.
    """
    pair = Pair(source, target)
    if (match := _preface(target)) and not _preface(source):
        target = target[match.end() :].strip()
    if (match := _note(target)) and not _any_note().search(source):
        target = target[: match.start()].strip()
    if next(iter(check_wrapping(Pair(source, target))), None) and (marks := _wrapped_in(target.strip())):
        target = target.strip()[len(marks[0]) : -len(marks[1])].strip()
    return target if target.strip() else pair.target


def _preface(text: str) -> re.Match[str] | None:
    return _prefaces().match(text)


@cache
def _prefaces() -> re.Pattern[str]:
    words = "|".join(map(re.escape, sorted(TRANSLATION_WORDS, key=len, reverse=True)))
    forms = "|".join(PREFACES)
    return re.compile(
        rf"\s*+[*#_]{{0,3}}(?:(?:{words})(?:\s?[(（][^()（）\n]{{1,30}}[)）])?[*_]{{0,3}}\s?[:：]|{forms})[*_]{{0,3}}\s*",
        re.IGNORECASE,
    )


@cache
def _notes() -> re.Pattern[str]:
    """Match a note from its beginning to the end of the text: on lines of its own, or in brackets at the end."""
    words = "|".join(map(re.escape, sorted(NOTE_WORDS, key=len, reverse=True)))
    opening = rf"[*_>]{{0,3}}(?:{words})(?:\s?\d{{1,2}})?[*_]{{0,3}}\s?[:：]"
    return re.compile(
        rf"(?:\n\s{{0,20}}[(（\[【]?{opening}.*|\s{{0,20}}[(（\[【]{opening}[^()（）\[\]【】]*[)）\]】]\s*)\Z",
        re.IGNORECASE | re.DOTALL,
    )


@cache
def _any_note() -> re.Pattern[str]:
    words = "|".join(map(re.escape, sorted(NOTE_WORDS, key=len, reverse=True)))
    return re.compile(rf"(?:{words})\W{{0,4}}[:：]", re.IGNORECASE)


def _note(text: str) -> re.Match[str] | None:
    return _notes().search(text)


def _wrapped_in(text: str) -> tuple[str, str] | None:
    """Return the marks that enclose a whole text and do not occur in it again."""
    for opening, closing in _QUOTES:
        inner = text[len(opening) : -len(closing)]
        if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
            return (opening, closing) if opening not in inner and closing not in inner else None
    return None


def _context_run(pair: Pair) -> Span | None:
    """Return where the target has five words in a row of the context that the source does not have."""
    known = _runs(pair.source)
    wanted = {run for text in pair.context for run in _runs(text)} - known
    if not wanted:
        return None
    found = list(_WORD.finditer(pair.target))
    for i in range(len(found) - _CONTEXT_RUN + 1):
        if tuple(match.group().casefold() for match in found[i : i + _CONTEXT_RUN]) in wanted:
            return Span(found[i].start(), found[i + _CONTEXT_RUN - 1].end())
    return None


def _runs(text: str) -> set[tuple[str, ...]]:
    words = [word.casefold() for word in _WORD.findall(text)]
    return {tuple(words[i : i + _CONTEXT_RUN]) for i in range(len(words) - _CONTEXT_RUN + 1)}
