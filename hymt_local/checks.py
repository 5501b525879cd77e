"""Checks of one output against its source: deterministic, cheap, and quiet on correct translations.

Only faults that no correct translation has are looked for; a finding means that the output must not be used.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from hymt_local.language import get_language
from hymt_local.literals import Literal, find_literals, without_literals
from hymt_local.scripts import han_kind, is_letter, letter_weight, script_of
from hymt_local.segment import Finding, Severity

_COUNTED_KINDS = frozenset(
    {"code", "url", "email", "mustache", "shell", "brace", "printf", "dunder", "path", "uuid", "hash"}
)
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_TEXT_CONTROLS = frozenset("\t\n\r")

# A unit of 2 to 80 characters, 4 times or more in a row and 24 characters in all: 7 of 75,886 professional translations
# have one. Languages of one script are not told apart here.
_LOOP = re.compile(r"(.{2,80}?)\1{3,}", re.DOTALL)
_LOOP_CHARACTERS = 24
_LOOP_UNIT_TOKENS = 32
_LOOP_REPEATS = 5
_LOOP_TOKENS = 48

_MIXED_SCRIPTS = {"Hans": {"Hani"}, "Hant": {"Hani"}, "Jpan": {"Hani", "Kana"}, "Kore": {"Hang", "Hani"}}
_OTHER_SCRIPTS = {"kk": {"Cyrl", "Arab"}, "mn": {"Cyrl", "Mong"}}
"""Languages that the models may write in China's script for them."""
_LETTERS_TO_JUDGE = 20.0
"""Below this much text (in Latin letters) a name or two may be all there is."""
_LEAST_SCRIPT_SHARE = 0.1
_CHARACTERS_TO_JUDGE = 4
"""Distinctive Han characters; of them at most a quarter may be the other kind."""


def check_output(source: str, target: str, *, target_lang: str | None) -> Finding | None:
    """Return the first fault found, gravest first, or None.

    Args:
        source: What was translated.
        target: The answer, without outer whitespace.
        target_lang: A tag of the catalog; None leaves out what depends on the language.
    """
    if not target.strip():
        return _error("empty", "the answer is empty")
    literals = find_literals(source), find_literals(target)
    return (
        _check_characters(source, target)
        or _check_control_tokens(*literals)
        or _check_lines(source, target)
        or _check_placeholders(*literals)
        or _check_tags(*literals)
        or _check_loop(source, target)
        or (_check_script(target, target_lang) if target_lang else None)
    )


def _error(code: str, message: str) -> Finding:
    return Finding(code, Severity.ERROR, message)


def repeats_at_end(ids: Sequence[int], *, allowed: Sequence[int] = ()) -> bool:
    """Tell whether token ids end in a loop: 1 to 32 tokens, at least 5 times and 48 tokens in all.

    Args:
        ids: The answer so far.
        allowed: What the answer was made from; a repetition in it may be repeated.
    """
    for n_unit in range(1, _LOOP_UNIT_TOKENS + 1):
        repeats = max(_LOOP_REPEATS, -(-_LOOP_TOKENS // n_unit))
        tail = list(ids[-n_unit * repeats :])
        if len(tail) == n_unit * repeats and tail == tail[:n_unit] * repeats:
            return not _contains(allowed, tail[: 2 * n_unit])
    return False


def _contains(ids: Sequence[int], part: Sequence[int]) -> bool:
    wanted = tuple(part)
    return any(tuple(ids[start : start + len(wanted)]) == wanted for start in range(len(ids) - len(wanted) + 1))


def _check_characters(source: str, target: str) -> Finding | None:
    added = Counter(filter(_is_broken, target)) - Counter(filter(_is_broken, source))
    if not added:
        return None
    names = ", ".join(f"U+{ord(character):04X}" for character in sorted(added))
    return _error("encoding", f"the answer has broken or control characters: {names}")


def _is_broken(character: str) -> bool:
    is_control = unicodedata.category(character) == "Cc" and character not in _TEXT_CONTROLS
    return is_control or character == _REPLACEMENT


def _check_control_tokens(source: Sequence[Literal], target: Sequence[Literal]) -> Finding | None:
    added = _counted(target, {"control"}) - _counted(source, {"control"})
    return _error("control_token", f"the answer has control tokens: {' '.join(added)}") if added else None


def _check_lines(source: str, target: str) -> Finding | None:
    n_source, n_target = len(source.splitlines()), len(target.splitlines())
    return _error("lines", f"the answer has {n_target} lines instead of {n_source}") if n_target > n_source else None


def _check_placeholders(source: Sequence[Literal], target: Sequence[Literal]) -> Finding | None:
    wanted, found = _counted(source, _COUNTED_KINDS), _counted(target, _COUNTED_KINDS)
    if wanted == found:
        return None
    words = [f"lost {literal}" for literal in wanted - found] + [f"added {literal}" for literal in found - wanted]
    return _error("placeholder", f"placeholders, addresses or code differ: {', '.join(words)}")


def _check_tags(source: Sequence[Literal], target: Sequence[Literal]) -> Finding | None:
    wanted, found = _counted(source, {"tag"}), _counted(target, {"tag"})
    if wanted != found:
        return _error("tags", f"the tags differ: {' '.join((wanted - found) | (found - wanted))}")
    if _is_nested(source) and not _is_nested(target):
        return _error("tags", "the tags are in the wrong order")
    return None


def _counted(literals: Iterable[Literal], kinds: Iterable[str]) -> Counter[str]:
    return Counter(literal.text for literal in literals if literal.kind in kinds)


def _is_nested(literals: Iterable[Literal]) -> bool:
    """Tell whether every closing tag closes the latest open one; tags that are never closed are fine."""
    names = [_tag_name(literal.text) for literal in literals if literal.kind == "tag"]
    paired = {name[1:] for name in names if name.startswith("/")}
    opened: list[str] = []
    for name in names:
        if name in paired:
            opened.append(name)
        elif name.startswith("/") and (not opened or opened.pop() != name[1:]):
            return False
    return True


def _tag_name(tag: str) -> str:
    """Return `b` for `<b class='x'>` and `/b` for `</b>`."""
    return re.split(r"[\s.>]", tag[1:], maxsplit=1)[0]


def _check_loop(source: str, target: str) -> Finding | None:
    if _has_loop(target) and not _has_loop(source):
        return _error("loop", "the answer repeats itself")
    return None


def _has_loop(text: str) -> bool:
    return any(len(match.group()) >= _LOOP_CHARACTERS for match in _LOOP.finditer(text))


def _check_script(target: str, target_lang: str) -> Finding | None:
    language = get_language(target_lang)
    expected = _OTHER_SCRIPTS.get(target_lang) or _MIXED_SCRIPTS.get(language.script, {language.script})
    letters = Counter(script_of(character) for character in without_literals(target) if is_letter(character))
    weights = {script: count * letter_weight(script) for script, count in letters.items() if script}
    total = sum(weights.values())
    share = sum(weights.get(script, 0.0) for script in expected) / total if total else 1.0
    if total >= _LETTERS_TO_JUDGE and share < _LEAST_SCRIPT_SHARE:
        return _error("wrong_script", f"the answer is not written in the script of {language.english}")
    return _check_han(target, target_lang) if target_lang in {"zh", "zh-Hant"} else None


def _check_han(target: str, target_lang: str) -> Finding | None:
    counts = Counter[str](han_kind(character) for character in target)
    wanted, other = ("simplified", "traditional") if target_lang == "zh" else ("traditional", "simplified")
    n_distinctive = counts[wanted] + counts[other]
    if n_distinctive < _CHARACTERS_TO_JUDGE or counts[other] * 4 <= n_distinctive * 3:
        return None
    return _error("wrong_script", f"the answer is in {other} characters, not in {wanted} ones")
