"""What must be in a target because it is in the source: placeholders, tags, lines, outer whitespace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from hymt_local.checks.pair import Pair, error, warning
from hymt_local.literals import Literal
from hymt_local.segment import Finding

_UNCOUNTED_KINDS = frozenset({"entity", "tag", "control", "isolate"})


def check_control_tokens(pair: Pair) -> Iterator[Finding]:
    """Find control tokens of a model that the source does not speak of."""
    kinds = {"control"}
    added = _counted(pair.target_literals, kinds) - _counted(pair.source_literals, kinds)
    if added:
        first = next(each for each in pair.target_literals if each.text in added)
        yield error("control_token", f"the answer has control tokens: {' '.join(added)}", span=first.span)


def check_lines(pair: Pair) -> Iterator[Finding]:
    """Compare the numbers of lines."""
    n_source, n_target = len(pair.source.strip().splitlines()), len(pair.target.strip().splitlines())
    message = f"the answer has {n_target} lines instead of {n_source}"
    if n_target > n_source:
        yield error("lines", message)
    elif n_target < n_source:
        yield warning("lines", message, remedy="put the line breaks back where they belong")


def check_whitespace(pair: Pair) -> Iterator[Finding]:
    """Compare the whitespace at both ends."""
    if pair.target.strip() and _outer(pair.source) != _outer(pair.target):
        yield warning("whitespace", "the space before or after the text differs from the source's")


def check_placeholders(pair: Pair) -> Iterator[Finding]:
    """Compare placeholders, addresses, paths and code, each as often as in the source."""
    kinds = {literal.kind for literal in (*pair.source_literals, *pair.target_literals)} - _UNCOUNTED_KINDS
    wanted, found = _counted(pair.source_literals, kinds), _counted(pair.target_literals, kinds)
    if wanted == found:
        return
    words = [f"lost {literal}" for literal in wanted - found] + [f"added {literal}" for literal in found - wanted]
    added = next((each.span for each in pair.target_literals if each.text in found - wanted), None)
    message = f"placeholders, addresses or code differ: {', '.join(words)}"
    yield error("placeholder", message, span=added, remedy="copy them from the source")


def check_tags(pair: Pair) -> Iterator[Finding]:
    """Compare tags, each as often as in the source and properly nested if they are there."""
    wanted, found = _counted(pair.source_literals, {"tag"}), _counted(pair.target_literals, {"tag"})
    if wanted != found:
        yield error("tags", f"the tags differ: {' '.join((wanted - found) | (found - wanted))}")
    elif _is_nested(pair.source_literals) and not _is_nested(pair.target_literals):
        yield error("tags", "the tags are in the wrong order")


def _counted(literals: Iterable[Literal], kinds: Iterable[str]) -> Counter[str]:
    return Counter(literal.text for literal in literals if literal.kind in kinds)


def _is_nested(literals: Sequence[Literal]) -> bool:
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


def _outer(text: str) -> tuple[str, str]:
    inner = text.strip()
    start = text.index(inner)
    return text[:start], text[start + len(inner) :]
