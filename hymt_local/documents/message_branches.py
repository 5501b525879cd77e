"""A message of ICU as whole sentences, one for each way through its choices, and back.

"{n, plural, one {# file} other {# files}} in {folder}" is translated as "1 file in {folder}", "2 files in {folder}" and
so on, with the categories of the target language, and comes back with a whole sentence in each branch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from hymt_local.documents.base import Languages
from hymt_local.documents.example_number import number_spans
from hymt_local.documents.inline_markup import Markup, protected_spans
from hymt_local.documents.message_format import (
    Argument,
    Choice,
    Message,
    MessageSyntaxError,
    Pound,
    Words,
    parse_message,
    quoted_words,
)
from hymt_local.documents.plural_categories import categories, category_of
from hymt_local.segment import Span, TokenGroup, UnitText

TAG = re.compile(r"</?[A-Za-z0-9][\w.:-]*(?:\s[^<>]*)?/?>")
_TAG_NAME = re.compile(r"<(/?)([A-Za-z0-9][\w.:-]*)")
_MAX_BRANCHES = 100
_MAX_CHOICES = 16
_MAX_TEXT = 300_000
"""Of all sentences of a message together: what is written once before a choice stands in each of them."""
_UNKNOWN_SOURCE = "en"
_Key = tuple[str, str, int]


class UntranslatableMessageError(ValueError):
    """A message, or a translation of it, that cannot be written back whole; the text says why."""


@dataclass(frozen=True, slots=True)
class MessageStyle:
    """How a catalogue writes its messages."""

    has_quotes: bool = True
    doubles_apostrophes: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    """One choice that was made on the way to a sentence."""

    choice: Choice
    selector: str
    """In the target."""
    source_selector: str
    number: Decimal | None = None
    """What `#` stands for; None in a select."""
    may_be_left_out: bool = False
    """Whether the sentence is about this number alone and may do without it."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A place that prints the number of a plural."""

    shown: str
    raw: str
    may_be_left_out: bool


_Part = Words | Argument | Choice | _Number


@dataclass(frozen=True, slots=True)
class Branch:
    """One whole sentence of a message."""

    path: tuple[_Step, ...]
    source: UnitText
    """Its text may be empty: then there is nothing to translate."""
    lead: str
    trail: str
    numbers: tuple[_Number, ...]
    """Those that stand as an example in the source."""
    tokens: tuple[str, ...]
    """What must come back as it is written, once for each time."""

    @property
    def name(self) -> str:
        """Unique in its message; empty where nothing is chosen."""
        return "/".join(f"{step.choice.name}:{step.selector}" for step in self.path)

    @property
    def is_in_plural(self) -> bool:
        """Whether `#` is a number here."""
        return any(step.number is not None for step in self.path)


def branches_of(message: Message, languages: Languages) -> list[Branch]:
    """Return the sentences of a message, in the order in which they will be written.

    Raises:
        UntranslatableMessageError: too many choices, too many ways through them or too much text on all of these
            together, a number that its sentences could not print, or words that look like its arguments.
    """
    branches: list[Branch] = []
    n_characters = 0
    for path, parts in _expanded(message, (), languages):
        branches.append(_branch(path, parts))
        n_characters += len(branches[-1].source.text)
        if len(branches) > _MAX_BRANCHES:
            raise UntranslatableMessageError(f"it has more than {_MAX_BRANCHES} branches")
        if n_characters > _MAX_TEXT:
            raise UntranslatableMessageError(f"its sentences have more than {_MAX_TEXT:,} characters")
        written_branch(branches[-1], branches[-1].source.text, MessageStyle())
    return branches


def _expanded(
    message: Message, path: tuple[_Step, ...], languages: Languages
) -> Iterator[tuple[tuple[_Step, ...], list[Words | Argument | _Number]]]:
    made = {_key(step.choice): step for step in path}
    parts = list(_flattened(message, made, path, owner=None))
    choice = next((part for part in parts if isinstance(part, Choice)), None)
    if choice is None:
        yield path, [part for part in parts if not isinstance(part, Choice)]
        return
    if len(path) == _MAX_CHOICES:
        raise UntranslatableMessageError(f"it has more than {_MAX_CHOICES} choices")
    for step in _steps(choice, languages):
        yield from _expanded(message, (*path, step), languages)


def _key(choice: Choice) -> _Key:
    return choice.name, choice.kind, choice.offset


def _flattened(
    message: Message, made: Mapping[_Key, _Step], path: Sequence[_Step], *, owner: Choice | None
) -> Iterator[_Part]:
    """Yield a message with the choices that were made; a choice may stand in it more than once."""
    numbers = {step.choice.name: step for step in path if step.number is not None}
    for node in message:
        if isinstance(node, Choice):
            step = made.get(_key(node))
            if step is None:
                yield node
                continue
            inner_owner = owner if node.kind == "select" else node
            yield from _flattened(_chosen(node, step), made, path, owner=inner_owner)
        elif isinstance(node, Pound):
            if owner is not None:
                yield _pound(made[_key(owner)], path)
        elif isinstance(node, Argument) and node.is_plain_number and node.name in numbers:
            step = numbers[node.name]
            shown = (step.number or Decimal(0)) + step.choice.offset
            yield _Number(str(shown), node.raw, step.may_be_left_out)
        else:
            yield node


def _chosen(choice: Choice, step: _Step) -> Message:
    found = dict(choice.branches)
    if step.selector.startswith("=") and step.selector in found:
        return found[step.selector]
    return choice.branch(step.source_selector)


def _pound(step: _Step, path: Sequence[_Step]) -> _Number:
    """`#` belongs to the innermost plural of what is written; the number of an outer one is written by name."""
    innermost = [each for each in path if each.number is not None][-1]
    raw = "#"
    if innermost is not step:
        if step.choice.offset:
            raise UntranslatableMessageError(f"the number of {step.choice.name} less its offset inside another plural")
        raw = f"{{{step.choice.name}, number}}"
    return _Number(str(step.number), raw, step.may_be_left_out)


def _steps(choice: Choice, languages: Languages) -> Iterator[_Step]:
    """Yield the ways on: the source's own in a select; exact numbers and the target's categories in a plural."""
    if choice.kind == "select":
        for selector, _ in choice.branches:
            yield _Step(choice, selector, selector)
        return
    exact = [selector for selector, _ in choice.branches if selector.startswith("=")]
    numbers = [Decimal(selector[1:]) - choice.offset for selector in exact]
    for selector, number in zip(exact, numbers, strict=True):
        yield _Step(choice, selector, selector, number, may_be_left_out=True)
    source_lang = languages.source_lang or _UNKNOWN_SOURCE
    for category in categories(languages.target_lang, choice.kind, taken=numbers):
        selector, number = category_of(source_lang, choice.kind, category.example), category.example
        if category.next_example is not None and _only_other_prints(choice, selector):
            # "one file" would be wrong for the other numbers of this category
            selector, number = "other", category.next_example
        yield _Step(choice, category.name, selector, number, may_be_left_out=category.next_example is None)


def _only_other_prints(choice: Choice, selector: str) -> bool:
    return not _prints(choice.branch(selector), choice.name) and _prints(choice.branch("other"), choice.name)


def _prints(message: Message, name: str) -> bool:
    return any(isinstance(node, Pound) or (isinstance(node, Argument) and node.name == name) for node in message)


def _branch(path: tuple[_Step, ...], parts: Sequence[Words | Argument | _Number]) -> Branch:
    tokens = [part.raw for part in parts if isinstance(part, Argument)]
    shown_text = "".join(_shown(part, ()) for part in parts)
    kept = _any_of(tokens)
    shown_numbers = dict.fromkeys(part.shown for part in parts if isinstance(part, _Number))
    unclear = frozenset(shown for shown in shown_numbers if len(number_spans(shown_text, shown, kept=kept)) != 1)
    text = "".join(_shown(part, unclear) for part in parts)
    lead = text[: len(text) - len(text.lstrip())]
    stripped = text.strip()
    markup = list(_markup(parts, unclear, offset=-len(lead)))
    numbers = [part for part in parts if isinstance(part, _Number)]
    tokens += [number.raw for number in numbers if number.shown in unclear]
    return Branch(
        path=path,
        source=UnitText(
            stripped, protected_spans(stripped, markup), frozenset({TokenGroup.TEXT, TokenGroup.JSON_CATALOGUE})
        ),
        lead=lead,
        trail=text[len(lead) + len(stripped) :],
        numbers=tuple(number for number in numbers if number.shown not in unclear),
        tokens=tuple(tokens),
    )


def _shown(part: Words | Argument | _Number, unclear: Collection[str]) -> str:
    if isinstance(part, Words):
        return part.text
    if isinstance(part, _Number) and part.shown not in unclear:
        return part.shown
    return part.raw


def _markup(parts: Sequence[Words | Argument | _Number], unclear: Collection[str], *, offset: int) -> Iterator[Markup]:
    for part in parts:
        shown = _shown(part, unclear)
        if isinstance(part, Words):
            yield from tag_markup(shown, offset)
        elif shown == part.raw:
            yield Markup(Span(offset, offset + len(shown)))
        offset += len(shown)


def tag_markup(text: str, offset: int = 0) -> Iterator[Markup]:
    """Yield the tags of a text: `<b>`, `</link>`, `<0>`, `<br/>`."""
    for match in TAG.finditer(text):
        name = _TAG_NAME.match(match.group())
        span = Span(offset + match.start(), offset + match.end())
        if name is None or match.group().endswith("/>"):
            yield Markup(span)
        else:
            yield Markup(span, closes=name[2]) if name[1] else Markup(span, opens=name[2])


def _any_of(tokens: Sequence[str]) -> re.Pattern[str]:
    ordered = sorted(set(tokens), key=len, reverse=True)
    return re.compile("|".join(re.escape(token) for token in ordered) or r"(?!)")


def written_branch(branch: Branch, target: str, style: MessageStyle) -> str:
    """Return a target as it stands in its branch.

    Raises:
        UntranslatableMessageError: an argument or a number is lost or added, or the syntax has no way to write it.
    """
    pattern = _any_of(branch.tokens)
    raw = [(match.start(), match.end(), match.group()) for match in pattern.finditer(target)]
    if Counter(token for *_, token in raw) != Counter(branch.tokens):
        raise UntranslatableMessageError(f"the arguments differ: {' '.join(branch.tokens)} must come back")
    for number in branch.numbers:
        spans = number_spans(target, number.shown, kept=pattern)
        if len(spans) > 1 or not (spans or number.may_be_left_out):
            raise UntranslatableMessageError(f"the number {number.shown} must stand in the translation once")
        raw += [(span.start, span.end, number.raw) for span in spans]
    parts, position = [], 0
    for start, end, token in [*sorted(raw), (len(target), len(target), "")]:
        parts += [_quoted(target[position:start], branch, style), token]
        position = end
    text = f"{branch.lead}{''.join(parts)}{branch.trail}"
    _check(text, branch, target, style)
    return text


def _quoted(words: str, branch: Branch, style: MessageStyle) -> str:
    if style.has_quotes:
        return quoted_words(words, in_plural=branch.is_in_plural, doubles_apostrophes=style.doubles_apostrophes)
    for character in "{}#" if branch.is_in_plural else "{}":
        if character in words:
            raise UntranslatableMessageError(f"{character} has a meaning in messages")
    return words


def _check(text: str, branch: Branch, target: str, style: MessageStyle) -> None:
    """Read it again: nothing but words, arguments and numbers, and the words are the target's."""
    try:
        nodes = parse_message(text, has_quotes=style.has_quotes, in_plural=branch.is_in_plural)
    except MessageSyntaxError as error:
        raise UntranslatableMessageError(f"it is not a message: {error}") from error
    words = sum(len(node.text) for node in nodes if isinstance(node, Words))
    kept = sum(len(token) for token in branch.tokens)
    shown = [
        span for number in branch.numbers for span in number_spans(target, number.shown, kept=_any_of(branch.tokens))
    ]
    expected = len(target) + len(branch.lead) + len(branch.trail) - kept - sum(span.end - span.start for span in shown)
    if any(isinstance(node, Choice) for node in nodes) or words != expected:
        raise UntranslatableMessageError("it reads differently as a message")


def assembled(branches: Sequence[Branch], texts: Sequence[str], *, depth: int = 0) -> str:
    """Return the message of these branches, each with its text, in the order of `branches_of`."""
    if len(branches[0].path) == depth:
        return texts[0]
    choice = branches[0].path[depth].choice
    selectors = dict.fromkeys(branch.path[depth].selector for branch in branches)
    offset = f"offset:{choice.offset} " if choice.offset else ""
    options = []
    for selector in selectors:
        places = [place for place, branch in enumerate(branches) if branch.path[depth].selector == selector]
        inner = assembled([branches[place] for place in places], [texts[place] for place in places], depth=depth + 1)
        options.append(f"{selector} {{{inner}}}")
    return f"{{{choice.name}, {choice.kind}, {offset}{' '.join(options)}}}"
