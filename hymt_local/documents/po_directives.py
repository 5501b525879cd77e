"""Format directives in messages: what a `c-format` or `python-brace-format` flag promises to the program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from hymt_local.segment import Span, TokenGroup

_PRINTF = (
    r"%[-+ #0'I]*%|%(?:\d+\$|\([^()\n]*\))?[-+ #0'I]*(?:\*(?:\d+\$)?|\d+)?(?:\.(?:\*(?:\d+\$)?|\d*))?"
    r"(?:<PRI\w+>|(?:hh|h|ll|l|L|q|j|z|Z|t)?[diouxXeEfFgGaAcrspnmCS@])"
)
_RUBY = r"%[-+ #0]*\{\w+\}|%<\w+>[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]"
_BRACE = r"\{\{|\}\}|\{[^{}\n]*(?:\{[^{}\n]*\}[^{}\n]*)*\}"
_SHELL = r"\$\{\w+\}|\$\w+"
_JAVA = r"\{[^{}\n]*\}"
_QT = r"%L?\d{1,2}|%L?n"
_YCP = r"%%|%\d"
_BOOST = r"%\d{1,3}%|%\|[^|\n]*\|"
_LISP = r"~(?:[-+,:@'\d#]*[A-Za-z%&|~?{}\[\]();<>^])"
_FAMILIES = {
    "printf": (_PRINTF, "%"),
    "ruby": (f"{_RUBY}|{_PRINTF}", "%"),
    "brace": (_BRACE, "{}"),
    "shell": (_SHELL, ""),
    "java": (_JAVA, "{}"),
    "qt": (_QT, ""),
    "ycp": (_YCP, "%"),
    "boost": (f"{_BOOST}|{_PRINTF}", "%"),
    "lisp": (_LISP, "~"),
    "any": (f"{_RUBY}|{_BOOST}|{_PRINTF}|{_BRACE}|{_SHELL}|{_QT}|{_LISP}", ""),
}
_FAMILY_OF_FLAG = {
    **dict.fromkeys(("python-brace-format", "perl-brace-format", "csharp-format"), "brace"),
    **dict.fromkeys(("qt-format", "qt-plural-format", "kde-format", "kde-kuit-format"), "qt"),
    **dict.fromkeys(("lisp-format", "scheme-format"), "lisp"),
    **dict.fromkeys(
        (
            *("c-format", "objc-format", "python-format", "php-format", "perl-format", "lua-format", "awk-format"),
            *("java-printf-format", "javascript-format", "gcc-internal-format", "gfc-internal-format"),
            *("object-pascal-format", "tcl-format", "elisp-format", "librep-format"),
        ),
        "printf",
    ),
    "java-format": "java",
    "ycp-format": "ycp",
    "ruby-format": "ruby",
    "sh-format": "shell",
    "boost-format": "boost",
}
_GROUP_OF_FLAG = {
    "c-format": TokenGroup.C_FORMAT,
    "python-format": TokenGroup.PYTHON_FORMAT,
    "python-brace-format": TokenGroup.PYTHON_BRACE,
}
_ESCAPE = re.compile(r"%[-+ #0'I]*%|\{\{|\}\}|~~")
_HAS_PLACE = re.compile(r"%(?:\d+\$|\(|<(?!PRI)|\{)|\{[^{}:!]")
_ORDERED_FAMILIES = frozenset({"printf", "ruby", "brace", "boost", "lisp", "any"})
_UNNUMBERED = re.compile(r"%(?!\d+\$|[(<{])[^*]*$")
_NUMBERED = re.compile(r"%\d+\$")
_NUMBERING_FLAGS = frozenset({"c-format", "objc-format", "php-format", "java-printf-format"})
_NEVER = re.compile(r"(?!)")
_WHOLE_NUMBER = re.compile(r"[diu]$|<PRI[diu]\w+>$|%L?n$")
_COUNTS = re.compile(r"(?:^|_)(?:n|num|number|count|counter|total|amount|quantity)(?:$|_)|(?:count|num)", re.IGNORECASE)
_NAMES_NO_NUMBER = re.compile(r"name|user|title|file|path|url|link|text|label|model|object", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FormatRules:
    """What the flags of one message say."""

    pattern: re.Pattern[str]
    """Matches directives and escapes such as `%%`."""
    strays: str
    """Characters that mean nothing outside a directive and break the message there."""
    is_ordered: bool
    """Whether directives without a name or number print the arguments in turn."""
    can_number: bool
    """Whether directives can say which argument they print: `%2$s`."""
    groups: frozenset[TokenGroup]

    def directives(self, text: str) -> list[str]:
        """Return the directives of a text in order, without escapes."""
        return [found for match in self.pattern.finditer(text) if not _ESCAPE.fullmatch(found := match.group())]

    def spans(self, text: str) -> list[Span]:
        """Return where directives and escapes stand."""
        return [Span(*match.span()) for match in self.pattern.finditer(text)]

    def fault(self, source: str, target: str, *, optional: str = "") -> str | None:
        """Return why the program could not use this target; `optional` is a directive that may be left out."""
        wanted, found = self.directives(source), self.directives(target)
        if optional and optional in wanted and optional not in found:
            wanted.remove(optional)
        if not self._is_numbered_anew(wanted, found) and (difference := self._difference(wanted, found)):
            return difference
        if self._n_strays(target) != self._n_strays(source):
            return f"{' or '.join(self.strays)} outside a format directive"
        return None

    def _difference(self, wanted: list[str], found: list[str]) -> str | None:
        lost, added = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
        if lost or added:
            words = [f"lost {each}" for each in lost] + [f"added {each}" for each in added]
            return f"format directives differ: {', '.join(words)}"
        if self.is_ordered and _in_turn(wanted) != _in_turn(found):
            return "format directives without a number or name are in another order"
        return None

    def _is_numbered_anew(self, wanted: list[str], found: list[str]) -> bool:
        """Tell whether these are the source's directives with their places, as `in_order` writes them."""
        numbered = sorted(f"%{place}${directive[1:]}" for place, directive in enumerate(wanted, start=1))
        return self.can_number and bool(wanted) and sorted(found) == numbered

    def in_order(self, source: str, target: str) -> str:
        """Return a target whose directives stand in another order with the place of each argument in it.

        Only where the format can, and where it is clear which is which.
        """
        wanted, found = self.directives(source), self.directives(target)
        is_clear = len(set(wanted)) == len(wanted) and sorted(wanted) == sorted(found)
        if not (self.can_number and is_clear) or wanted == found or any(not _UNNUMBERED.match(each) for each in wanted):
            return target

        def numbered(match: re.Match[str]) -> str:
            directive = match.group()
            return directive if _ESCAPE.fullmatch(directive) else f"%{wanted.index(directive) + 1}${directive[1:]}"

        return self.pattern.sub(numbered, target)

    def may_leave_out(self, directive: str, source: str) -> bool:
        """Tell whether a message may do without a directive: one with a name, or the last."""
        if directive.startswith("%") and not directive.startswith(("%(", "%<", "%{")):
            directives = self.directives(source)
            return _UNNUMBERED.match(directive) is not None and directives[-1:] == [directive]
        return True

    def _n_strays(self, text: str) -> int:
        rest = self.pattern.sub(" ", text)
        return sum(rest.count(stray) for stray in self.strays)


def _in_turn(directives: list[str]) -> list[str]:
    """Return the directives of which the order counts: those without a place, or all where the two kinds are mixed."""
    unplaced = [each for each in directives if not _HAS_PLACE.match(each)]
    has_numbers = any(_NUMBERED.match(each) for each in directives)
    return directives if has_numbers and unplaced else unplaced


@lru_cache(maxsize=256)
def format_rules(flags: frozenset[str]) -> FormatRules:
    """Return the rules of a message with these flags; without a format there are no directives."""
    formats = {
        flag.removeprefix("possible-") for flag in flags if flag.endswith("-format") and not flag.startswith("no-")
    }
    groups = {_GROUP_OF_FLAG[flag] for flag in formats if flag in _GROUP_OF_FLAG}
    families = sorted({_FAMILY_OF_FLAG.get(flag, "any") for flag in formats})
    if not families:
        return FormatRules(_NEVER, "", is_ordered=False, can_number=False, groups=frozenset({TokenGroup.TEXT}))
    pattern = re.compile("|".join(_FAMILIES[family][0] for family in families))
    strays = "".join(_FAMILIES[family][1] for family in families)
    return FormatRules(
        pattern,
        strays,
        is_ordered=not _ORDERED_FAMILIES.isdisjoint(families),
        can_number=formats <= _NUMBERING_FLAGS,
        groups=frozenset({TokenGroup.TEXT, *groups}),
    )


def count_directive(directives: Collection[str]) -> str:
    """Return the directive that prints the number of a plural message; empty when that cannot be told."""
    unique = list(dict.fromkeys(directives))
    whole = [each for each in unique if _WHOLE_NUMBER.search(each)]
    counting = [each for each in unique if _COUNTS.search(re.sub(r"\W", "_", each))]
    for candidates in (whole, counting, unique):
        if len(candidates) == 1 and (candidates[0] in whole or not _NAMES_NO_NUMBER.search(candidates[0])):
            return candidates[0]
    return ""
