"""Right-to-left text in the order in which it is seen, for terminals that put every character where it arrives.

A subset of the Unicode bidirectional algorithm (UAX 9) for single rows without embeddings, which never reach a row, and
Arabic letters in their joined forms. Every function keeps the number of characters, so that styles can follow them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

ZERO_WIDTH = "\u2060"
"""Stands where a ligature has swallowed a letter."""

_ZWJ = "\u200d"
_NUMBERS = frozenset({"EN", "AN"})
_MIRRORED = str.maketrans("()[]{}<>«»‹›", ")(][}{><»«›‹")
_PRESENTATION_FORMS = ((0xFB50, 0xFDFF), (0xFE70, 0xFEFC))


def is_rtl(text: str) -> bool:
    """Tell whether the first letter of a text runs from right to left."""
    for character in text:
        kind = unicodedata.bidirectional(character)
        if kind in {"R", "AL"}:
            return True
        if kind == "L":
            return False
    return False


def has_rtl(text: str) -> bool:
    """Tell whether any letter runs from right to left."""
    return any(unicodedata.bidirectional(character) in {"R", "AL"} for character in text)


def visual_order(text: str, *, is_base_rtl: bool) -> list[int]:
    """Return the positions of a row's characters from left to right; marks stay behind their letter."""
    clusters = _clusters(text)
    levels = _levels([text[cluster[0]] for cluster in clusters], base=1 if is_base_rtl else 0)
    order = list(range(len(clusters)))
    for level in range(max(levels, default=0), 0, -1):
        order = _reversed_runs(order, [levels[index] >= level for index in order])
    return [position for index in order for position in clusters[index]]


def mirrored(text: str, *, is_base_rtl: bool) -> str:
    """Return a row with the brackets of its right-to-left parts turned around."""
    clusters = _clusters(text)
    levels = _levels([text[cluster[0]] for cluster in clusters], base=1 if is_base_rtl else 0)
    turned = list(text)
    for cluster, level in zip(clusters, levels, strict=True):
        if level % 2:
            turned[cluster[0]] = text[cluster[0]].translate(_MIRRORED)
    return "".join(turned)


def shaped(text: str) -> str:
    """Return text with Arabic letters in the forms that joining gives them, and lam-alef in one."""
    forms = _forms()
    letters = [index for index, character in enumerate(text) if not _is_transparent(character)]
    result = list(text)
    swallowed = -1
    for place, index in enumerate(letters):
        if index == swallowed:
            continue
        before = text[letters[place - 1]] if place else ""
        after = text[letters[place + 1]] if place + 1 < len(letters) else ""
        joins_before = _joins_after(before) and _joins_before(text[index])
        if (ligature := forms.get(text[index] + after)) and after:
            name = "final" if joins_before and "final" in ligature else "isolated"
            result[index], swallowed = ligature.get(name, text[index]), letters[place + 1]
            result[swallowed] = ZERO_WIDTH
            continue
        joins_after = _joins_after(text[index]) and _joins_before(after)
        own = forms.get(text[index])
        if own:
            result[index] = own.get(_form_name(joins_before=joins_before, joins_after=joins_after), text[index])
    return "".join(result)


def _form_name(*, joins_before: bool, joins_after: bool) -> str:
    if joins_before:
        return "medial" if joins_after else "final"
    return "initial" if joins_after else "isolated"


@lru_cache(maxsize=1)
def _forms() -> dict[str, dict[str, str]]:
    """Return the presentation forms of each letter, and of lam with each alef, by the name that Unicode gives them."""
    forms: dict[str, dict[str, str]] = {}
    for first, last in _PRESENTATION_FORMS:
        for code in range(first, last + 1):
            name, letters = _decomposed(chr(code))
            is_lam_alef = len(letters) == 2 and letters[0] == "\u0644" and letters[1] in "\u0622\u0623\u0625\u0627"
            if name in {"initial", "medial", "final", "isolated"} and (len(letters) == 1 or is_lam_alef):
                forms.setdefault(letters, {}).setdefault(name, chr(code))
    return forms


def _decomposed(character: str) -> tuple[str, str]:
    """Return the name of a form and the letters it stands for."""
    kind, *codes = unicodedata.decomposition(character).split() or [""]
    return kind.strip("<>"), "".join(chr(int(code, 16)) for code in codes) if kind.startswith("<") else ""


def _joins_before(character: str) -> bool:
    """Tell whether a letter can be joined to the one before it."""
    return character == _ZWJ or "final" in _forms().get(character, {})


def _joins_after(character: str) -> bool:
    """Tell whether a letter can be joined to the one behind it."""
    return character == _ZWJ or "initial" in _forms().get(character, {})


def _is_transparent(character: str) -> bool:
    return unicodedata.category(character) == "Mn"


def _clusters(text: str) -> list[list[int]]:
    """Return the positions of each letter with the marks on it."""
    clusters: list[list[int]] = []
    for index, character in enumerate(text):
        if clusters and (unicodedata.category(character) in {"Mn", "Mc", "Me", "Cf"} or character == ZERO_WIDTH):
            clusters[-1].append(index)
        else:
            clusters.append([index])
    return clusters


def _levels(characters: Sequence[str], *, base: int) -> list[int]:
    kinds = _resolved(characters, base=base)
    levels = [_level(kind, base) for kind in kinds]
    for index in range(len(characters) - 1, -1, -1):  # L1: space at the end belongs to the row
        if not characters[index].isspace():
            break
        levels[index] = base
    return levels


def _level(kind: str, base: int) -> int:
    if base % 2:
        return base if kind == "R" else base + 1
    return {"R": base + 1, "EN": base + 2, "AN": base + 2}.get(kind, base)


def _resolved(characters: Sequence[str], *, base: int) -> list[str]:
    """Return L, R, EN or AN for every character (rules W and N)."""
    kinds = [unicodedata.bidirectional(character) or "L" for character in characters]
    _resolve_numbers(kinds)
    strong = "R" if base % 2 else "L"
    last = strong
    for index, kind in enumerate(kinds):
        if kind in {"L", "R"}:
            last = kind
        elif kind == "EN" and last == "L":
            kinds[index] = "L"  # W7
    _resolve_neutrals(kinds, embedding=strong)
    return kinds


def _resolve_numbers(kinds: list[str]) -> None:
    last = ""
    for index, kind in enumerate(kinds):
        if kind in {"L", "R", "AL"}:
            last = kind
        elif kind == "EN" and last == "AL":
            kinds[index] = "AN"  # W2
    kinds[:] = ["R" if kind == "AL" else kind for kind in kinds]  # W3
    for index in range(1, len(kinds) - 1):  # W4
        around = kinds[index - 1]
        if around == kinds[index + 1] and (kinds[index], around) in {("ES", "EN"), ("CS", "EN"), ("CS", "AN")}:
            kinds[index] = around
    for order in (range(len(kinds)), range(len(kinds) - 1, -1, -1)):  # W5
        before = ""
        for index in order:
            if kinds[index] == "ET" and before == "EN":
                kinds[index] = "EN"
            before = kinds[index]
    kinds[:] = ["ON" if kind in {"ES", "ET", "CS"} else kind for kind in kinds]  # W6


def _resolve_neutrals(kinds: list[str], *, embedding: str) -> None:
    """Give neutral characters the direction of both neighbours, or that of the row (N1, N2)."""
    index = 0
    while index < len(kinds):
        if kinds[index] in {"L", "R", *_NUMBERS}:
            index += 1
            continue
        end = index
        while end < len(kinds) and kinds[end] not in {"L", "R", *_NUMBERS}:
            end += 1
        before = _direction(kinds[index - 1]) if index else embedding
        after = _direction(kinds[end]) if end < len(kinds) else embedding
        kinds[index:end] = [before if before == after else embedding] * (end - index)
        index = end


def _direction(kind: str) -> str:
    return "R" if kind in _NUMBERS else kind


def _reversed_runs(order: list[int], flags: list[bool]) -> list[int]:
    result: list[int] = []
    run: list[int] = []
    for index, flag in zip(order, flags, strict=True):
        if flag:
            run.append(index)
        else:
            result += [*reversed(run), index]
            run = []
    return [*result, *reversed(run)]
