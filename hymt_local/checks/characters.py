"""Characters that show a broken encoding."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from hymt_local.checks.pair import Pair, error
from hymt_local.segment import Finding, Span

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_TEXT_CONTROLS = frozenset("\t\n\r")
_MOJIBAKE = re.compile(r"(?:[ÃÂ][\u0080-\u00bf]|â€[™œ\u009d“”˜¦]|ï»¿|[åæçèé][\u0080-\u00bf]{2}){1,}")
"""UTF-8 that was read as Latin-1 or Windows-1252."""
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


def tidied(source: str, target: str) -> str:
    """Return an answer in NFC, unless its source is not, and without invisible characters that are not in the source.

    None of these can be seen, and none was asked for.
    """
    for character in _INVISIBLE:
        if character not in source and character in target:
            target = target.replace(character, "")
    if target.isascii() or not unicodedata.is_normalized("NFC", source):
        return target
    return unicodedata.normalize("NFC", target)


def _is_broken(character: str) -> bool:
    is_control = unicodedata.category(character) == "Cc" and character not in _TEXT_CONTROLS
    return is_control or character == _REPLACEMENT
