"""Training examples of the demo model: items of the phrasebook, drawn in random directions, as token ids."""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from hymt_convert.demo import tokenizer as tokenizers
from hymt_convert.demo.phrasebook import PHRASE_LANGUAGES, Item, load_items, noisy
from hymt_convert.demo.prompt import prompt_text
from hymt_local.language import LANGUAGES

NOISE = 0.22
"""Share of sources as a hurried user types them."""
Direction = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """`prefix + source + answer`, then `end`; the answer begins with the token that ends the user's turn."""

    prefix: tuple[int, ...]
    source: tuple[int, ...]
    answer: tuple[int, ...]
    end: int


def group_of(item: Item) -> str:
    """What an item is sampled and scored with: its kind, but dates by themselves."""
    return "date" if item.concept == "date" else item.kind


def directions(item: Item) -> list[Direction]:
    """The directions that the model claims for an item: one side is always a phrase language."""
    tags = list(item.texts)
    return [
        (source, target)
        for source in tags
        for target in tags
        if source != target
        and source not in item.blocked_sources
        and (source in PHRASE_LANGUAGES or target in PHRASE_LANGUAGES)
    ]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Training items and the tokenizer that was trained on them."""

    items: Sequence[Item]
    tokenizer: Tokenizer

    @classmethod
    def load(cls) -> Corpus:
        """The whole phrasebook's training part."""
        return cls.of(load_items().train)

    @classmethod
    def of(cls, items: Sequence[Item]) -> Corpus:
        """Train a tokenizer on `items`."""
        rng = random.Random(0)
        texts = [text for item in items for text in item.texts.values()]
        # Sources come in lower case too; their words should be as few tokens as those of sentences.
        texts += [
            hurried(text, lang, rng) for item in items if item.kind != "cldr" for lang, text in item.texts.items()
        ]
        tags = [language.tag for language in LANGUAGES]
        prompts = [prompt_text(source, target, "") for source in ("en", "zh") for target in tags]
        return cls(items, tokenizers.train(texts, prompts))

    @cached_property
    def controls(self) -> Mapping[str, int]:
        """Ids of the control tokens by use: `bos`, `eos`, `pad`, `sep`."""
        return tokenizers.token_ids(self.tokenizer)

    @cached_property
    def _prefixes(self) -> dict[Direction, tuple[int, ...]]:
        return {}

    @cached_property
    def _encoded(self) -> dict[str, tuple[int, ...]]:
        return {}

    def example(self, direction: Direction, source: str, target: str) -> Example:
        """Token ids of one translation."""
        answer = (self.controls["sep"], *self.encode(target))
        return Example(self.prefix(direction), self.encode(source), answer, self.controls["eos"])

    def prefix(self, direction: Direction) -> tuple[int, ...]:
        """What stands before the source; the split never joins it with what follows."""
        if direction not in self._prefixes:
            ids = self.tokenizer.encode(prompt_text(*direction, "")).ids
            self._prefixes[direction] = (self.controls["bos"], *ids)
        return self._prefixes[direction]

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text."""
        if text not in self._encoded:
            self._encoded[text] = tuple(self.tokenizer.encode(text).ids)
        return self._encoded[text]


class Sampler:
    """Draws examples; the same seed gives the same ones."""

    def __init__(self, corpus: Corpus, shares: Mapping[str, float], seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self._noise = random.Random(seed)
        self._corpus = corpus
        self._items = corpus.items
        self._sources = [_sources_by_target(item) for item in self._items]
        self._chances = _chances(self._items, self._sources, shares)

    @property
    def padding(self) -> int:
        """The token that stands for nothing."""
        return self._corpus.controls["pad"]

    def draw(self, count: int) -> list[Example]:
        """Items by weight; targets evenly, so that every language learns to write; then sources evenly."""
        places = self.generator.choice(len(self._chances), size=count, p=self._chances)
        spins = self.generator.random((count, 2))
        return [self._example(place, *spin) for place, spin in zip(places, spins, strict=True)]

    def _example(self, place: int, target_spin: float, source_spin: float) -> Example:
        item, choices = self._items[place], self._sources[place]
        target, sources = choices[int(target_spin * len(choices))]
        source = sources[int(source_spin * len(sources))]
        text = item.texts[source]
        if self._noise.random() < NOISE:
            text = hurried(text, source, self._noise)
        return self._corpus.example((source, target), text, item.texts[target])


def hurried(text: str, lang: str, rng: random.Random) -> str:
    """`noisy`, and German without its capitals too: rare as writing, usual as typing."""
    text = noisy(text, lang, rng)
    return text.lower() if lang == "de" and rng.random() < 0.4 else text


def _sources_by_target(item: Item) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = defaultdict(list)
    for source, target in directions(item):
        found[target].append(source)
    return list(found.items())


def _chances(
    items: Iterable[Item], choices: Iterable[Sequence[object]], shares: Mapping[str, float]
) -> NDArray[np.float64]:
    pairs = [(group_of(item), item.weight if allowed else 0) for item, allowed in zip(items, choices, strict=True)]
    totals = {group: sum(weight for name, weight in pairs if name == group) for group in shares}
    chances = np.array([shares[group] * weight / totals[group] for group, weight in pairs])
    return chances / chances.sum()
