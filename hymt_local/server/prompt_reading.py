"""What a chat prompt asks for, when all that may be asked is a translation: language and text, out of the wrapping.

Clients of language models ask for translations in words of their own. The models of this family want their own prompt
around the bare text, so the client's words are taken off; a prompt that names no target language is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from hymt_local.errors import UsageError
from hymt_local.language import find_language, match_language

HINT = 'this server only translates: name the language, as in "Translate into French: ..."'
_MAX_NAME_WORDS = 4
_SHOWN_CHARACTERS = 60


class NotATranslationError(UsageError):
    """A prompt that does not say into which language to translate."""

    code = "not_a_translation"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class PromptTask:
    """What is to be translated."""

    text: str
    target_lang: str
    source_lang: str | None = None


# What stands for the target is only looked at, not consumed: the next mention may begin inside it.
_FROM_TO = re.compile(r"\bfrom\s(?P<source>[^\n:.,;]{2,40}?)\s(?:in)?to\s(?=(?P<target>[^\n]{2,80}))", re.IGNORECASE)
_INTO = re.compile(
    r"\b(?:translat|render|convert|rewrite)\w{0,6}\b[^\n]{0,120}?\b(?:in)?to\s(?=(?P<target>[^\n]{2,80}))",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?:target[ _-]?lang(?:uage)?|目标语言|目標語言)[\"'`*]{0,3}\s?(?:is|=|:|：)\s?(?=(?P<target>[^\n]{2,80}))",
    re.IGNORECASE,
)
_CHINESE = re.compile(r"(?:翻译|翻譯|译|譯)(?:成|为|為|到)\s?(?=(?P<target>[^\n,，。:：;；、（(]{1,20}))")
_IN = re.compile(
    r"\b(?:translat\w{0,6}|output|answer|reply|respond)\b[^\n]{0,40}?\bin\s(?=(?P<target>[^\n]{2,80}))", re.IGNORECASE
)
_PATTERNS = (_LABEL, _INTO, _CHINESE, _IN)
"""In the order of how plainly they name a target; of one kind, the first mention counts."""

_IMPERATIVE = re.compile(
    r"[^\w\n]{0,8}(?:(?:please|kindly|can you|could you|now)\s)?(?:translat|render|convert)\w{0,6}\b"
    r"|[^\w\n]{0,8}(?:请|請|把|将|將|参考|翻译|翻譯)",
    re.IGNORECASE,
)
_MORE_INSTRUCTION = re.compile(
    r"[^\w\n]{0,4}(?:note|only|do not|don't|you must|you should|output|keep|preserve|requirements?|rules?|\d{1,2}[.、)]"
    r"|注意|要求|你必须|请|不要|只)",
    re.IGNORECASE,
)
_MAX_INSTRUCTION_LINES = 20
_TEXT_LABEL = re.compile(
    r"(?:source text|source|text|input|original text|original|原文|待翻译文本|文本)\s?[:：]", re.IGNORECASE
)
_ANSWER_LABEL = re.compile(
    r"\s(?:translated text|translation|target text|target|output|answer|译文|翻译)\s?[:：]\Z", re.IGNORECASE
)
_ANSWER_LABEL_CHARACTERS = 24
_QUOTED = re.compile(
    r"\s{0,8}(?:please\s)?translate\s[\"“'`«「](?P<text>.+)[\"”'`»」]\s(?:in)?to\s(?P<target>[^\n]{2,60})\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
_FENCES = (('"""', '"""'), ("```", "```"), ("'''", "'''"), ("<text>", "</text>"), ("<source>", "</source>"))
_DECORATION = " \t\"'`*_[]()<>{}“”「」『』【】"
_INSTRUCTION_CHARACTERS = 4000
"""Of an instruction that are looked at."""
_MAX_MENTIONS = 40


def read_chat(messages: Sequence[Message], *, target_lang: str | None = None) -> PromptTask:
    """Return what the last message of the user is to become.

    Args:
        messages: The whole chat; earlier turns are examples or history, and not translated again.
        target_lang: A language named outside the messages; it decides, and the text is then taken as it is.

    Raises:
        UsageError: there is nothing to translate, or no language to translate into.
    """
    users = [message.text for message in messages if message.role == "user"]
    if not users:
        raise UsageError("there is no message of a user", hint=HINT)
    if target_lang is not None:
        return PromptTask(users[-1], match_language(target_lang))
    instructions = [message.text for message in messages if message.role in {"system", "developer"}]
    return read_prompt(users[-1], instructions=instructions, earlier=users[:-1])


def read_prompt(prompt: str, *, instructions: Iterable[str] = (), earlier: Sequence[str] = ()) -> PromptTask:
    """Return what a prompt asks for: by its own first lines, else by the instructions, else by an earlier turn.

    Raises:
        NotATranslationError: no target language is named.
    """
    quoted = _QUOTED.match(prompt)
    if quoted and (target := _language_at(quoted["target"])):
        return PromptTask(quoted["text"], target)
    head, body = _split_head(prompt)
    if named := _languages_in(head):
        return PromptTask(_unwrapped(body), named.target, named.source)
    for text in (*instructions, *reversed(earlier)):
        if named := _languages_in(text):
            return PromptTask(_unwrapped(body), named.target, named.source)
    raise NotATranslationError(
        f"the prompt names no language to translate into: {prompt[:_SHOWN_CHARACTERS]!r}", hint=HINT
    )


@dataclass(frozen=True, slots=True)
class _Named:
    target: str
    source: str | None = None


def _split_head(prompt: str) -> tuple[str, str]:
    """Return the instruction at the start of a prompt and the text after it; the whole is the text if there is none."""
    stripped = prompt.lstrip()
    if not _IMPERATIVE.match(stripped):
        return "", prompt
    for head, rest in _cuts(stripped):
        if rest.strip() and (_languages_in(head) or head.rstrip().endswith((":", "："))):
            return head, rest
    return "", prompt


def _cuts(prompt: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to cut an instruction off, surest first. What may be text is never taken for an instruction."""
    for opening, _ in _FENCES:
        head, found, _rest = prompt.partition(opening)
        if found and "\n\n" not in head:
            yield head, prompt[len(head) :]
    line, _, after_line = prompt.partition("\n")
    if line.rstrip().endswith((":", "：")):
        yield line, after_line.removeprefix("\n")
    colon = re.match(r"[^\n.。:：]{1,200}[:：]", line)
    if colon:
        yield colon[0], prompt[colon.end() :].lstrip(" ")
    paragraph, found, after_paragraph = prompt.partition("\n\n")
    if found and all(map(_MORE_INSTRUCTION.match, paragraph.split("\n")[1:_MAX_INSTRUCTION_LINES])):
        yield paragraph, after_paragraph
    yield line, after_line
    if colon := re.search(r"[:：]", line[:_INSTRUCTION_CHARACTERS]):
        yield line[: colon.end()], prompt[colon.end() :].lstrip(" ")


def _languages_in(text: str) -> _Named | None:
    """Return the languages that an instruction names."""
    text = text[:_INSTRUCTION_CHARACTERS]
    for found in islice(_FROM_TO.finditer(text), _MAX_MENTIONS):
        if target := _language_at(found["target"]):
            return _Named(target, _language_at(found["source"]))
    for pattern in _PATTERNS:
        for found in islice(pattern.finditer(text), _MAX_MENTIONS):
            if target := _language_at(found["target"]):
                return _Named(target)
    return None


def _language_at(text: str) -> str | None:
    """Return the tag of the language name that `text` begins with: the longest of its first words that is one."""
    text = text.strip().removeprefix("the ").removeprefix("language ").lstrip(_DECORATION)
    words = re.split(r"\s+", text)[:_MAX_NAME_WORDS]
    for count in range(len(words), 0, -1):
        joined = " ".join(words[:count])
        before_mark = re.split(r"[,，.。:：;；()（]", joined, maxsplit=1)[0]
        for name in (joined.rstrip(_MARKS), joined.strip(_DECORATION + _MARKS), before_mark.strip(_DECORATION)):
            if tag := _known(name):
                return tag
    return None


def _known(name: str) -> str | None:
    if not name or name.lower() in _NO_LANGUAGES:
        return None
    return find_language(name)


_MARKS = ".,:;!。，：；！*\"'`"
_NO_LANGUAGES = frozenset(
    {"it", "in", "is", "my", "no", "to", "be", "as", "an", "am", "he", "id", "or", "so", "ur", "the", "fa"}
)
"""English words that are language tags too."""


def _unwrapped(text: str) -> str:
    """Take off fences and labels around a text; inner whitespace stays."""
    trimmed = text.strip()
    for opening, closing in _FENCES:
        if trimmed.startswith(opening) and trimmed.endswith(closing) and len(trimmed) >= len(opening) + len(closing):
            inner = trimmed[len(opening) : len(trimmed) - len(closing)]
            return inner.removeprefix("\n").removesuffix("\n")
    label = _TEXT_LABEL.match(trimmed)
    ending = _ANSWER_LABEL.search(trimmed[-_ANSWER_LABEL_CHARACTERS:])
    if label is None:
        return text
    return trimmed[label.end() : len(trimmed) - len(ending[0]) if ending else None].strip()
