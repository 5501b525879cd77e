"""Fixed multilingual texts to run models on: for importance matrices, for checking tokenizers, for judging quality.

The sentences of `calibration/sentences.tsv` say the same in all 38 languages. They are put into the prompts that the
model is used with, and followed by their translation: what a matrix sees in use, it sees here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from hymt_local.catalog import ModelSpec
from hymt_local.errors import UnsupportedModelError
from hymt_local.language import LANGUAGES
from hymt_local.prompts import build_prompt

Part = Literal["calibration", "evaluation"]
"""What quantizations are made with, and what they are judged by: never the same sentences."""
DATASET = "hymt-local calibration sentences"
"""What importance matrices say of their text."""

_SENTENCES = Path(__file__).parent / "calibration" / "sentences.tsv"
_DEMO_PHRASES = Path(__file__).parent / "demo" / "data" / "phrases.tsv"
_DEMO_STEP = 2
"""Every second phrase of the demo is used, and every second of those for each part."""
_PIVOTS = ("en", "zh")
_OTHER_STEP = 7
"""Distance in the table of languages to a partner that is neither of the pivots; prime to 38."""


class Tokenizer(Protocol):
    """What passages need of a model."""

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Text -> id."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids that end an answer."""

    @property
    def bos_id(self) -> int:
        """Put in front of text that has no prompt; negative when there is none."""

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of plain text."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation."""

    source_lang: str
    target_lang: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Passage:
    """One text to read, as token ids."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    """The part whose prediction counts: the translation and the id that ends it."""
    end_ids: frozenset[int]
    is_prompt: bool
    """Whether the model can be asked to go on after `prompt`."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """Everything."""
        return self.prompt + self.answer

    @property
    def n_tokens(self) -> int:
        """Length of `tokens`."""
        return len(self.prompt) + len(self.answer)


def sentences(part: Part) -> tuple[Mapping[str, str], ...]:
    """Return the sentences of a part: each one as tag -> text, in all languages."""
    return tuple(texts for sentence_part, texts in _all_sentences() if sentence_part == part)


def all_texts() -> tuple[str, ...]:
    """Return every sentence of every language."""
    return tuple(text for _, texts in _all_sentences() for text in texts.values())


def pairs(spec: ModelSpec | None, part: Part) -> list[Pair]:
    """Return sentence pairs in all of a model's languages, in directions that cover them evenly."""
    if spec is not None and spec.kind == "demo":
        rows = _demo_phrases()[part == "evaluation" :: 2]
        return [pair for number, row in enumerate(rows) for pair in _directions(row, tuple(row), number)]
    tags = spec.languages if spec is not None else tuple(language.tag for language in LANGUAGES)
    return [pair for number, row in enumerate(sentences(part)) for pair in _directions(row, tags, number)]


def passages(tokenizer: Tokenizer, spec: ModelSpec | None, part: Part) -> list[Passage]:
    """Return the pairs as a model reads them: prompts of its own, or plain text for a model that is not known.

    Raises:
        UnsupportedModelError: the vocabulary lacks a control token of the prompts.
    """
    return [_passage(tokenizer, spec, pair) for pair in pairs(spec, part)]


def _passage(tokenizer: Tokenizer, spec: ModelSpec | None, pair: Pair) -> Passage:
    answer = tuple(tokenizer.tokenize(pair.target))
    if spec is None:
        begin = (tokenizer.bos_id,) if tokenizer.bos_id >= 0 else ()
        whole = (*begin, *tokenizer.tokenize(f"{pair.source}\n{pair.target}"))
        return Passage(whole[:1], whole[1:], tokenizer.end_ids, is_prompt=False)
    prompt = build_prompt(spec, source_lang=pair.source_lang, target_lang=pair.target_lang, source=pair.source)
    tokenized = [tuple(tokenizer.tokenize(text)) for text in prompt.texts]
    ends = end_ids(tokenizer, spec)
    ids = prompt.assemble(tokenizer.control_tokens, tokenized)
    return Passage(ids, (*answer, min(ends)), ends, is_prompt=True)


def end_ids(tokenizer: Tokenizer, spec: ModelSpec) -> frozenset[int]:
    """Return the ids that end an answer of a known model.

    Raises:
        UnsupportedModelError: the vocabulary has none of them.
    """
    ends = frozenset(tokenizer.control_tokens[text] for text in spec.stop_tokens if text in tokenizer.control_tokens)
    if not ends:
        raise UnsupportedModelError(
            f"the vocabulary has no {' or '.join(spec.stop_tokens)}, which ends the answers of {spec.id}",
            hint="The file belongs to another model.",
        )
    return ends


def _directions(row: Mapping[str, str], tags: Sequence[str], number: int) -> Iterator[Pair]:
    """Yield one pair for each language, in a direction that changes from sentence to sentence."""
    for place, tag in enumerate(tags):
        others = [other for other in _PIVOTS if other in row and other != tag]
        kind = (number + place) % 5
        partner = (
            tags[(place + _OTHER_STEP) % len(tags)] if kind == 4 or not others else others[kind // 2 % len(others)]
        )
        if tag not in row or partner not in row or partner == tag:
            continue
        source_lang, target_lang = (tag, partner) if kind in (1, 3, 4) else (partner, tag)
        yield Pair(source_lang, target_lang, row[source_lang], row[target_lang])


@functools.cache
def _all_sentences() -> tuple[tuple[str, Mapping[str, str]], ...]:
    rows: dict[str, tuple[str, dict[str, str]]] = {}
    for line in _SENTENCES.read_text(encoding="utf-8").splitlines()[1:]:
        identity, part, tag, text = line.split("\t")
        rows.setdefault(identity, (part, {}))[1][tag] = text
    return tuple(rows.values())


def _demo_phrases() -> list[dict[str, str]]:
    header, *lines = _DEMO_PHRASES.read_text(encoding="utf-8").splitlines()
    tags = header.split("\t")[1:]
    return [dict(zip(tags, line.split("\t")[1:], strict=True)) for line in lines[::_DEMO_STEP]]
