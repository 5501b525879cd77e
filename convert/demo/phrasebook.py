"""The demo's parallel phrasebook: base phrases, templates with slot fillers, CLDR words, as items in many languages.

Everything is a pure function of the tables in `data/`: the split into training and held-out items uses a stable hash,
so that every run, process and machine sees the same one.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

DATA = Path(__file__).parent / "data"
PHRASE_LANGUAGES = ("en", "zh", "fr", "es", "de", "ja", "ru", "ar", "ko", "pt")

MAX_COMBINATIONS = 100
"""Kept combinations per template; more would drown the base phrases."""
HELD_OUT_PERCENT = 15
HELD_OUT_DATES_PERCENT = 20
INTEGERS = range(2, 100)
MARKER = re.compile(r"\{(\w+)(?:\.(\w+))?\}")
FINAL_PUNCTUATION = " .!?…。！？؟।։"
OPENING_PUNCTUATION = "¿¡ "

PHRASE_WEIGHT, NUMBER_WEIGHT, WORD_WEIGHT, TEMPLATE_WEIGHT = 8, 3, 2, 1

Kind = Literal["phrase", "template", "cldr"]
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Item:
    """One meaning in several languages."""

    id: str
    kind: Kind
    concept: str
    """The template, the CLDR kind (`weekday`, `date` ...) or `phrase`: items of one concept are trained together."""
    texts: Mapping[str, str]
    """Language tag -> text."""
    weight: int
    """Relative frequency in training."""
    blocked_sources: frozenset[str] = frozenset()
    """Languages in which this text also means something else, so that it has no single right translation."""


@dataclass(frozen=True, slots=True)
class Phrasebook:
    """The split: held-out items are new combinations of fillers and templates that are each trained."""

    train: tuple[Item, ...]
    held_out: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Combination:
    """One template with one choice of fillers."""

    item: Item
    values: frozenset[tuple[str, str, str]] = field(default_factory=frozenset)
    """(language, slot column, filler) of every slot: what must have been seen in training."""


def load_items() -> Phrasebook:
    """Read the tables, expand the templates and split."""
    phrases = _phrases()
    combinations = list(itertools.chain.from_iterable(_kept(group) for group in _template_groups()))
    held = _within_share(combinations, _held_out(combinations))
    words = list(_cldr_items())
    items = [*phrases, *(combination.item for combination in combinations), *words]
    items = _with_blocked_sources(items)
    held_ids = held | {item.id for item in words if _is_held_out_date(item)}
    return Phrasebook(
        train=tuple(item for item in items if item.id not in held_ids),
        held_out=tuple(item for item in items if item.id in held_ids),
    )


def ambiguities(items: Iterable[Item]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return (language, text, item ids) wherever two items read the same apart from case and outer punctuation."""
    found = []
    for lang, groups in sorted(_by_reading(items).items()):
        found += [(lang, text, tuple(ids)) for text, ids in sorted(groups.items()) if len(ids) > 1]
    return found


def coverage_texts(lang: str) -> Iterator[str]:
    """Yield every text of the grammar in one language, capped-away and held-out combinations too, but no unseen date."""
    sources: list[Iterable[Item]] = [_phrases(), (item for item in _cldr_items() if not _is_held_out_date(item))]
    sources += [(combination.item for combination in group) for group in _template_groups()]
    for item in itertools.chain.from_iterable(sources):
        if lang in item.texts:
            yield item.texts[lang]


def noisy(text: str, lang: str, rng: random.Random) -> str:
    """Return `text` as a hurried user would type it: the meaning never changes."""
    if rng.random() < 0.7:
        text = text.rstrip(FINAL_PUNCTUATION) or text
    if rng.random() < 0.5:
        text = text.lower()
    elif rng.random() < 0.5:
        text = text[:1].lower() + text[1:]
    if lang == "es" and rng.random() < 0.5:
        text = text.lstrip(OPENING_PUNCTUATION)
    if rng.random() < 0.3:
        text = text.replace("'", "’")
    if lang == "fr" and rng.random() < 0.5:
        text = re.sub(r" (?=[?!]$)", "", text)
    return text


def reading(text: str) -> str:
    """Return what is left of a text without case and outer punctuation: what a hurried user types."""
    return text.casefold().rstrip(FINAL_PUNCTUATION).lstrip(OPENING_PUNCTUATION)


def _phrases() -> list[Item]:
    rows = _read_table(DATA / "phrases.tsv")
    return [Item(row["id"], "phrase", "phrase", _languages(row), PHRASE_WEIGHT) for row in rows]


def _template_groups() -> Iterator[list[Combination]]:
    """Yield all combinations of each template."""
    slots = {path.stem: _read_table(path) for path in sorted((DATA / "slots").glob("*.tsv"))}
    slots["integer"] = [{"id": f"{n:02}", **dict.fromkeys(PHRASE_LANGUAGES, str(n))} for n in INTEGERS]
    for template in _read_table(DATA / "templates.tsv"):
        classes = sorted({name for name, _ in MARKER.findall(template["en"])})
        yield [_combine(template, dict(zip(classes, rows, strict=True))) for rows in _choices(classes, slots)]


def _choices(classes: Sequence[str], slots: Mapping[str, Sequence[Row]]) -> Iterator[tuple[Row, ...]]:
    return itertools.product(*(slots[name] for name in classes))


def _combine(template: Row, fillers: Mapping[str, Row]) -> Combination:
    texts: dict[str, str] = {}
    values: set[tuple[str, str, str]] = set()
    for lang in PHRASE_LANGUAGES:
        for name, form in MARKER.findall(template[lang]):
            values.add((lang, f"{name}.{form}" if form else name, fillers[name]["id"]))
        texts[lang] = _sentence_case(_filled(template[lang], lang, fillers))
    identity = f"{template['id']}:{'+'.join(fillers[name]['id'] for name in sorted(fillers))}"
    weight = NUMBER_WEIGHT if "numberword" in fillers else TEMPLATE_WEIGHT
    return Combination(Item(identity, "template", template["id"], texts, weight), frozenset(values))


def _filled(cell: str, lang: str, fillers: Mapping[str, Row]) -> str:
    def value(match: re.Match[str]) -> str:
        name, form = match.groups()
        return fillers[name][f"{lang}.{form}" if form else lang]

    return MARKER.sub(value, cell)


def _sentence_case(text: str) -> str:
    """Capitalise a sentence whose first word came from a slot."""
    start = len(text) - len(text.lstrip(OPENING_PUNCTUATION))
    return text[:start] + text[start : start + 1].upper() + text[start + 1 :]


def _kept(group: list[Combination]) -> list[Combination]:
    """Cap a template's combinations: first one for every filler, then by stable hash."""
    ordered = sorted(group, key=lambda combination: _rank(combination.item.id))
    seen: set[tuple[str, str, str]] = set()
    needed: list[Combination] = []
    rest: list[Combination] = []
    for combination in ordered:
        (rest if combination.values <= seen else needed).append(combination)
        seen |= combination.values
    return [*needed, *rest][: max(MAX_COMBINATIONS, len(needed))]


def _held_out(combinations: Sequence[Combination]) -> set[str]:
    """Choose about 15 %, but never the last but one training occurrence of any slot value."""
    counts = Counter(value for combination in combinations for value in combination.values)
    held: set[str] = set()
    for combination in sorted(combinations, key=lambda c: _rank(c.item.id)):
        wanted = _rank(combination.item.id, salt="held out") % 100 < HELD_OUT_PERCENT
        if wanted and all(counts[value] > 2 for value in combination.values):
            counts.subtract(combination.values)
            held.add(combination.item.id)
    return held


def _within_share(combinations: Sequence[Combination], candidates: set[str]) -> set[str]:
    """Keep at most 15 % of each template's combinations: chance gives a template of ten fillers four of them."""
    sizes = Counter(combination.item.concept for combination in combinations)
    kept: set[str] = set()
    taken: Counter[str] = Counter()
    for combination in sorted(combinations, key=lambda c: _rank(c.item.id)):
        template = combination.item.concept
        if combination.item.id in candidates and taken[template] < sizes[template] * HELD_OUT_PERCENT // 100:
            taken[template] += 1
            kept.add(combination.item.id)
    return kept


def _cldr_items() -> Iterator[Item]:
    path = DATA / "cldr.tsv"
    texts: dict[str, dict[str, str]] = defaultdict(dict)
    kinds: dict[str, str] = {}
    for row in _read_table(path):
        texts[row["id"]][row["lang"]] = row["text"]
        kinds[row["id"]] = row["kind"]
    for identity, by_lang in texts.items():
        yield Item(identity, "cldr", kinds[identity], by_lang, WORD_WEIGHT)


def _is_held_out_date(item: Item) -> bool:
    return item.concept == "date" and _rank(item.id, salt="held out") % 100 < HELD_OUT_DATES_PERCENT


def _with_blocked_sources(items: Sequence[Item]) -> list[Item]:
    """Mark, per language, every item whose reading another item shares; base phrases and templates keep theirs."""
    blocked: dict[str, set[str]] = defaultdict(set)
    kinds = {item.id: item.kind for item in items}
    for lang, groups in _by_reading(items).items():
        for ids in groups.values():
            sentences = [identity for identity in ids if kinds[identity] != "cldr"]
            keeper = sentences[:1] if sentences else ids[: len(ids) == 1]
            for identity in ids:
                if identity not in keeper:
                    blocked[identity].add(lang)
    return [replace(item, blocked_sources=frozenset(blocked[item.id])) for item in items]


def _by_reading(items: Iterable[Item]) -> dict[str, dict[str, list[str]]]:
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        for lang, text in item.texts.items():
            groups[lang][reading(text)].append(item.id)
    return groups


def _read_table(path: Path) -> list[dict[str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    header = lines[0].split("\t")
    return [dict(zip(header, line.split("\t"), strict=True)) for line in lines[1:] if line]


def _languages(row: Row) -> dict[str, str]:
    return {lang: row[lang] for lang in PHRASE_LANGUAGES}


def _rank(identity: str, *, salt: str = "") -> int:
    """Return a number that depends on nothing but the words (Python's own hash differs from run to run)."""
    return int.from_bytes(hashlib.blake2b(f"{salt}{identity}".encode(), digest_size=8).digest())
