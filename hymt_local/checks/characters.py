"""Characters that show a broken encoding."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from hymt_local.checks.pair import Pair, error
from hymt_local.scripts import is_letter, script_of
from hymt_local.segment import Finding, Span

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_TEXT_CONTROLS = frozenset("\t\n\r")
_MOJIBAKE = re.compile(r"(?:[ÃÂ][\u0080-\u00bf]|â€[™œ\u009d“”˜¦]|ï»¿|[åæçèé][\u0080-\u00bf]{2}){1,}")
"""UTF-8 that was read as Latin-1 or Windows-1252."""
_THREE_DOTS = re.compile(r"(?<!\.)\.\.\.\Z")
_LONG_ELLIPSIS = frozenset({"zh", "zh-Hant", "yue", "ja"})
"""Languages that write two signs, or one, but not three dots."""
_DANDA_SCRIPTS = {"hi": "Deva", "bn": "Beng"}
_SIGNS_TO_JUDGE = 20
_WORDY = 2
"""Letters for one sign or digit, from which on a source is made of words."""
_INVISIBLE = "\ufeff\u200b"


def check_characters(pair: Pair) -> Iterator[Finding]:
    """Find replacement and control characters, and UTF-8 read as something else, that the source does not have."""
    added = Counter(filter(_is_broken, pair.target)) - Counter(filter(_is_broken, pair.source))
    if added:
        names = ", ".join(f"U+{ord(character):04X}" for character in sorted(added))
        place = min(pair.target.index(character) for character in added)
        message = f"the answer has broken or control characters: {names}"
        yield error("encoding", message, span=Span(place, place + 1))
    elif (match := _MOJIBAKE.search(pair.target)) and not _MOJIBAKE.search(pair.source):
        yield error(
            "encoding", f"the answer was read in the wrong encoding: {match.group()!r}", span=Span(*match.span())
        )


def check_garbage(pair: Pair) -> Iterator[Finding]:
    """Find a target of signs and digits where the source is made of words."""
    target = _letters_and_signs(pair.target_words)
    if sum(target) < _SIGNS_TO_JUDGE or target[0] >= target[1]:
        return
    source = _letters_and_signs(pair.source_words)
    if source[0] > _WORDY * source[1]:
        yield error("garbage", "the answer is hardly made of words")


def _letters_and_signs(text: str) -> tuple[int, int]:
    n_letters = sum(map(is_letter, text))
    return n_letters, sum(not character.isspace() for character in text) - n_letters


def tidied(source: str, target: str, *, target_lang: str | None = None) -> str:
    """Return an answer with put right what has only one right form, and what nobody can see.

    In NFC, unless its source is not; without invisible characters that are not in the source; with the dots of the
    source's ellipsis; and with the full stop that Hindi and Bengali have.
    """
    for character in _INVISIBLE:
        if character not in source and character in target:
            target = target.replace(character, "")
    target = _with_danda(source, _with_ellipsis(source, target, target_lang), target_lang)
    if target.isascii() or not unicodedata.is_normalized("NFC", source):
        return target
    return unicodedata.normalize("NFC", target)


def _with_ellipsis(source: str, target: str, target_lang: str | None) -> str:
    if source.endswith("…") and _THREE_DOTS.search(target):
        return f"{target[:-3]}…"
    is_one_sign = target.endswith("…") and not target.endswith("……")
    if _THREE_DOTS.search(source) and is_one_sign and target_lang not in _LONG_ELLIPSIS:
        return f"{target[:-1]}..."
    return target


def _with_danda(source: str, target: str, target_lang: str | None) -> str:
    script = _DANDA_SCRIPTS.get(target_lang or "")
    is_sentence = source.endswith((".", "。", "।", "．")) and target[-1:] in (".", "|")
    return f"{target[:-1]}।" if script and is_sentence and script_of(target[-2:-1] or " ") == script else target


def _is_broken(character: str) -> bool:
    is_control = unicodedata.category(character) == "Cc" and character not in _TEXT_CONTROLS
    return is_control or character == _REPLACEMENT
