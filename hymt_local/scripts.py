"""Scripts: which one a character belongs to, and which of the languages that write Han characters it points to."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from functools import cache
from typing import Literal

HanKind = Literal["both", "simplified", "traditional", "japanese", "cantonese", "kana", "other"]
"""`both`: in Simplified and Traditional use alike; `kana` and `other` are no Han characters."""

# First code points of script blocks, from Unicode's Scripts.txt; a block ends where the next entry starts.
_BLOCKS: tuple[tuple[int, str], ...] = (
    *((0x0041, "Latn"), (0x0250, "Latn"), (0x02B0, ""), (0x0370, ""), (0x0400, "Cyrl"), (0x0530, "")),
    *((0x0590, "Hebr"), (0x0600, "Arab"), (0x0700, ""), (0x0750, "Arab"), (0x0780, ""), (0x0870, "Arab")),
    *((0x0900, "Deva"), (0x0980, "Beng"), (0x0A00, ""), (0x0A80, "Gujr"), (0x0B00, ""), (0x0B80, "Taml")),
    *((0x0C00, "Telu"), (0x0C80, ""), (0x0E00, "Thai"), (0x0E80, ""), (0x0F00, "Tibt"), (0x1000, "Mymr")),
    *((0x10A0, ""), (0x1100, "Hang"), (0x1200, ""), (0x1780, "Khmr"), (0x1800, "Mong"), (0x18B0, "")),
    *((0x1C80, "Cyrl"), (0x1C90, ""), (0x1E00, "Latn"), (0x1F00, ""), (0x2C60, "Latn"), (0x2C80, "")),
    *((0x2DE0, "Cyrl"), (0x2E00, ""), (0x2E80, "Hani"), (0x3040, "Kana"), (0x3100, ""), (0x3130, "Hang")),
    *((0x3190, ""), (0x31F0, "Kana"), (0x3200, ""), (0x3400, "Hani"), (0xA000, ""), (0xA640, "Cyrl")),
    *((0xA6A0, ""), (0xA720, "Latn"), (0xA800, ""), (0xA8E0, "Deva"), (0xA900, ""), (0xA960, "Hang")),
    *((0xA980, ""), (0xA9E0, "Mymr"), (0xAA00, ""), (0xAA60, "Mymr"), (0xAA80, ""), (0xAB30, "Latn")),
    *((0xAB70, ""), (0xAC00, "Hang"), (0xD800, ""), (0xF900, "Hani"), (0xFB00, "Latn"), (0xFB1D, "Hebr")),
    *((0xFB50, "Arab"), (0xFE00, ""), (0xFE70, "Arab"), (0xFF00, ""), (0xFF21, "Latn"), (0xFF66, "Kana")),
    *((0xFFA0, "Hang"), (0xFFE0, ""), (0x1B000, "Kana"), (0x1B170, ""), (0x20000, "Hani"), (0x40000, "")),
)
_BLOCK_STARTS = [start for start, _ in _BLOCKS]


_LETTER_WEIGHTS = {"Hani": 4.0, "Kana": 4.0, "Hang": 2.0, "Latn": 1.0}
"""A Han character says as much as four Latin letters: one product name does not turn a Chinese sentence English."""
_DEFAULT_WEIGHT = 1.5

# Frequent characters of written Cantonese that standard Chinese does not use, or hardly.
_CANTONESE = frozenset("嘅咗喺唔冇佢哋嚟啲嗰俾乜咩嘢咁喎啫噉睇攞瞓嬲諗搵咪囉")


UNSPACED_SCRIPTS = frozenset({"Hani", "Kana", "Thai", "Khmr", "Mymr", "Tibt"})
"""Scripts that put no space between words."""
_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"
_UNSPACED = "\u0e00-\u0e7f\u0f00-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff"


def whole_word(pattern: str, *, first: str, last: str) -> str:
    """Return a regular expression that matches `pattern` where it is no part of a longer word.

    Args:
        pattern: A regular expression.
        first: The first character of what it matches; a sign, or a letter of a script without spaces, needs no edge.
        last: The last one.
    """
    before = f"(?<!{_going_on(first)})" if is_spaced(first) else ""
    after = f"(?!{_going_on(last)})" if is_spaced(last) else ""
    return f"{before}{pattern}{after}"


def _going_on(character: str) -> str:
    """Return a class of what would make a longer word; to a Latin one, other scripts attach their endings."""
    is_latin = character.isdigit() or script_of(character) == "Latn"
    return f"[0-9_{_LATIN}]" if is_latin else rf"[^\W{_UNSPACED}]"


def is_spaced(character: str) -> bool:
    """Tell whether a character is a letter or digit of a script that puts spaces between words."""
    return character.isalnum() and script_of(character) not in UNSPACED_SCRIPTS


def is_letter(character: str) -> bool:
    """Tell whether a character is part of a word; Indic scripts and Khmer write half of one with vowel signs."""
    return character.isalpha() or unicodedata.category(character) in {"Mc", "Mn"}


def script_of(character: str) -> str:
    """Return the ISO 15924 code of a character's script; empty for one that none of our languages is written in.

    `Kana` stands for hiragana and katakana, `Hang` for Hangul; marks and punctuation of a block count to its script.
    """
    return _BLOCKS[bisect_right(_BLOCK_STARTS, ord(character)) - 1][1]


def letter_weight(script: str) -> float:
    """Return how many Latin letters one letter of a script is worth."""
    return _LETTER_WEIGHTS.get(script, _DEFAULT_WEIGHT)


@cache
def han_kind(character: str) -> HanKind:
    """Classify a character by the national standards that hold it: GB 2312, Big5, JIS X 0208."""
    script = script_of(character)
    if script != "Hani":
        return "kana" if script == "Kana" and character.isalpha() else "other"
    if character in _CANTONESE:
        return "cantonese"
    in_gb, in_big5 = _is_in(character, "gb2312"), _is_in(character, "big5")
    if in_gb != in_big5:
        return "simplified" if in_gb else "traditional"
    return "both" if in_gb or not _is_in(character, "euc_jp") else "japanese"


def _is_in(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
