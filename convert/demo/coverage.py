"""Builds the demo model's record of what it covers, for `hymt_local.coverage` to read from the model file.

Every text of the grammar goes in, folded, with the languages that it may be translated into: without its final mark and
with it (a full stop where it has none). A minimal acyclic automaton keeps that small: a template costs about as many
edges as it has fillers, not as it has combinations.
"""

from __future__ import annotations

import base64
import sys
import unicodedata
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hymt_convert.demo.phrasebook import PHRASE_LANGUAGES, Item, Phrasebook, coverage_texts, load_items
from hymt_local.coverage import FORMAT_VERSION, MAX_CHARACTERS, MAX_WORDS, PREFIX, split_words

MIN_PROBABILITY = 0.4
"""From `coverage_report`."""

Words = tuple[str, ...]
"""Folded."""
Targets = frozenset[str]
Domain = Mapping[str, Targets]
"""Text of one language -> the languages it may be translated into."""


def coverage_metadata() -> dict[str, int | float | str]:
    """Return the demo's record as GGUF metadata; the same on every machine."""
    return metadata_of(demo_domains(), min_probability=MIN_PROBABILITY)


def metadata_of(domains: Mapping[str, Domain], *, min_probability: float) -> dict[str, int | float | str]:
    """Return the record of what is covered, per source language.

    Raises:
        ValueError: a text has no words, or is longer than the reader looks.
    """
    target_sets = sorted({targets for domain in domains.values() for targets in domain.values()}, key=sorted)
    endings = {targets: number for number, targets in enumerate(target_sets, 1)}
    return {
        f"{PREFIX}version": FORMAT_VERSION,
        f"{PREFIX}min_probability": min_probability,
        f"{PREFIX}languages": " ".join(domains),
        f"{PREFIX}targets": ";".join(" ".join(sorted(targets)) for targets in target_sets),
        **{f"{PREFIX}texts.{lang}": pack(domain, endings) for lang, domain in domains.items()},
    }


def demo_domains() -> dict[str, Domain]:
    """Return what the demo covers, per source language: dates it has not seen are too often wrong to be answered."""
    book = load_items()
    domains: dict[str, dict[str, Targets]] = defaultdict(dict)
    ambiguous: dict[str, set[str]] = defaultdict(set)
    for item in (*book.train, *_held_out_sentences(book)):
        for lang, text in item.texts.items():
            if lang in item.blocked_sources:
                ambiguous[lang].add(text)
            else:
                domains[lang][text] = domains[lang].get(text, Targets()) | _targets(item, lang)
    for lang in PHRASE_LANGUAGES:
        for text in coverage_texts(lang):
            if text not in ambiguous[lang]:
                domains[lang].setdefault(text, Targets(PHRASE_LANGUAGES))
    return dict(sorted(domains.items()))


def _held_out_sentences(book: Phrasebook) -> list[Item]:
    return [item for item in book.held_out if item.kind == "template"]


def _targets(item: Item, source_lang: str) -> Targets:
    """Between two languages without phrases nothing is trained. The source's own tag does no harm and saves sets."""
    return Targets(item.texts) if source_lang in PHRASE_LANGUAGES else Targets(PHRASE_LANGUAGES) & Targets(item.texts)


def fold(text: str) -> Words:
    """Return the folded words of a text."""
    return tuple(word.key for word in split_words(_nfc(text)))


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _with_marks(domain: Domain) -> dict[Words, Targets]:
    """Return every folded form under which a text is accepted."""
    forms: dict[Words, Targets] = defaultdict(Targets)
    for text, targets in domain.items():
        words = fold(text)
        bare = words[:-1] if words[-1] in ("?", ".") else words
        mark = "?" if words[-1] == "?" else "."
        if len(text) > MAX_CHARACTERS or len(bare) >= MAX_WORDS or not bare:
            raise ValueError(f"{text!r} is too long or has no words")
        forms[bare] |= targets
        forms[(*bare, mark)] |= targets
    return forms


def _capitals(texts: Iterable[str]) -> set[str]:
    """Return the words with capitals, except where only the start of a text gives them one."""
    found = set()
    for text in map(_nfc, texts):
        for place, word in enumerate(split_words(text)):
            written = text[word.start : word.end]
            if any(map(str.isupper, written[1:] if place == 0 else written)):
                found.add(written)
    return found


def pack(domain: Domain, endings: Mapping[Targets, int]) -> str:
    """Return the automaton of one language; `endings` numbers the sets of targets from 1."""
    forms = _with_marks(domain)
    words = sorted({word for form in forms for word in form})
    label = {word: number for number, word in enumerate(words)}
    labelled = sorted((tuple(label[word] for word in form), endings[targets]) for form, targets in forms.items())
    states = _numbered(_minimal(labelled))
    edges = [sorted(state.edges.items()) for state in states]
    place = {id(state): number for number, state in enumerate(states)}
    firsts = [0]
    for outgoing in edges:
        firsts.append(firsts[-1] + len(outgoing))
    numbers = array("I", [len(states), firsts[-1], *firsts, *(state.ending for state in states)])
    numbers.extend(number for outgoing in edges for number, _ in outgoing)
    numbers.extend(place[id(state)] for outgoing in edges for _, state in outgoing)
    if sys.byteorder == "big":
        numbers.byteswap()
    text = f"{' '.join(words)}\n{' '.join(sorted(_capitals(domain)))}\n"
    return base64.b64encode(zlib.compress(text.encode() + numbers.tobytes(), 9)).decode()


_Key = tuple[int, tuple[tuple[int, int], ...]]


@dataclass(slots=True)
class _State:
    ending: int = 0
    edges: dict[int, _State] = field(default_factory=dict)

    def key(self) -> _Key:
        """Equal keys mean equal continuations, once the next states are merged."""
        return self.ending, tuple((label, id(state)) for label, state in self.edges.items())


def _minimal(labelled: Iterable[tuple[tuple[int, ...], int]]) -> _State:
    """Daciuk's construction: sorted input, states behind the last common prefix are merged at once."""
    path = [_State()]
    previous: tuple[int, ...] = ()
    merged: dict[_Key, _State] = {}
    for labels, ending in labelled:
        common = next((i for i, (a, b) in enumerate(zip(labels, previous, strict=False)) if a != b), len(previous))
        _merge(path, previous, merged, depth=common)
        path += [_State() for _ in labels[common:]]
        path[-1].ending = ending
        previous = labels
    _merge(path, previous, merged, depth=0)
    return path[0]


def _merge(path: list[_State], labels: tuple[int, ...], merged: dict[_Key, _State], *, depth: int) -> None:
    while len(path) > depth + 1:
        state = path.pop()
        path[-1].edges[labels[len(path) - 1]] = merged.setdefault(state.key(), state)


def _numbered(root: _State) -> list[_State]:
    """Return every state once, the root first, the others as they are met."""
    states, seen = [root], {id(root)}
    for state in states:
        for _, following in sorted(state.edges.items()):
            if id(following) not in seen:
                seen.add(id(following))
                states.append(following)
    return states
