"""The closed domain of a demo model: is a text one of those that it was made for?

The domain is a finite set of texts per source language, kept in the model file's metadata as one acyclic automaton per
language over folded words. Membership is exact: known words in an unknown order lie outside. What the model was seen to
forgive is forgiven: lower case, a missing final mark, commas, the shape of apostrophes, spacing; not quotation marks or
invisible characters. Capitals where none belong are covered too, if the model is given the `usual_form`. Nothing here
runs the model.
"""

from __future__ import annotations

import base64
import binascii
import string
import sys
import unicodedata
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, pairwise
from typing import Literal, NamedTuple

from hymt_local.errors import ModelFileError, UnsupportedModelError

FORMAT_VERSION = 1
PREFIX = "hymt.coverage."
MAX_WORDS = 128
"""No text of a domain has more words (see `split_words`), the final mark included."""
MAX_CHARACTERS = 512
"""No text of a domain is longer."""

_QUESTION_MARKS = frozenset("?？؟⁇⁈⁉")
_STOP_MARKS = frozenset(".!。！．｡…।॥۔།༎။។‼")
_APOSTROPHES = frozenset("'’‘ʼ＇")
_NUMBER_SEPARATORS = frozenset(".,:/٫٬")
_COMMAS = frozenset(",;:、，；：､،؛·・¿¡၊་")
_OUTER = string.whitespace + "\u3000\u00a0\u200e\u200f\u061c\ufeff"
"""Spaces and direction marks, as they surround pasted text."""
_UNSPACED_BLOCKS = (
    (0x0E00, 0x109F),  # Thai, Lao, Tibetan, Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x309F),  # hiragana
    (0x3100, 0x9FFF),  # Chinese characters; katakana before them is mostly whole words
    (0xF900, 0xFAFF),  # compatibility ideographs
    (0x20000, 0x3FFFF),  # rare ideographs
)
# Turkish writes I for ı and İ for i; Python folds both as English does, and leaves a combining dot of İ.
_TURKISH_DOTS = str.maketrans({"ı": "i", "\u0307": None})

_Kind = Literal["letter", "single", "mark", "space"]


class Word(NamedTuple):
    """The smallest part of a text that is either known or not: a word, one character of an unspaced script, a mark."""

    key: str
    """The folded form, which is compared; `?` or `.` for a run of sentence marks."""
    start: int
    end: int
    """Half-open range of code points in the text."""


def split_words(text: str) -> Iterator[Word]:
    """Yield the folded words of an NFC text, in order."""
    start = 0
    while start < len(text):
        kind = _kind(text, start)
        end = start + 1
        while kind in ("letter", "mark") and end < len(text) and _kind(text, end) == kind:
            end += 1
        if kind != "space":
            yield Word(_mark(text[start:end]) if kind == "mark" else _fold(text[start:end]), start, end)
        start = end


def _mark(run: str) -> str:
    return "." if _QUESTION_MARKS.isdisjoint(run) else "?"


def _fold(word: str) -> str:
    folded = unicodedata.normalize("NFC", word.casefold().translate(_TURKISH_DOTS)) or word
    return "".join("'" if char in _APOSTROPHES else char for char in folded)


def _kind(text: str, position: int) -> _Kind:
    char = text[position]
    before, after = text[position - 1 : position], text[position + 1 : position + 2]
    if char in _NUMBER_SEPARATORS and before.isdigit() and after.isdigit():
        return "letter"
    if char in _APOSTROPHES:
        return "letter" if before.isalpha() and after.isalpha() else "single"
    if unicodedata.category(char) == "Pd":  # a hyphen as in bem-vindo; otherwise perhaps a minus sign
        return "space" if before.isalpha() and after.isalpha() else "single"
    return _kind_of(char)


@lru_cache(maxsize=4096)
def _kind_of(char: str) -> _Kind:
    category = unicodedata.category(char)
    if category[0] in "LMN":
        return "single" if any(first <= ord(char) <= last for first, last in _UNSPACED_BLOCKS) else "letter"
    if char in _QUESTION_MARKS or char in _STOP_MARKS:
        return "mark"
    if category == "Cf":  # joiners are spelling, and a word with any other is not the word it looks like
        return "letter"
    return "space" if char.isspace() or char in _COMMAS else "single"


@dataclass(frozen=True, slots=True)
class _Automaton:
    """The texts of one language; state 0 is the start."""

    words: list[str]
    """Every known word, sorted; a label is an index of this list."""
    capitals: frozenset[str]
    """Words as they are written with capitals, those aside that have one only at the start of a text."""
    first_edges: array[int]
    """Per state, and one more: where its edges start."""
    endings: array[int]
    """Per state: 0 when no text ends here, else 1 + the index of the target languages of those that do."""
    labels: array[int]
    """Per edge; ascending within a state."""
    next_states: array[int]
    """Per edge."""

    def knows(self, key: str) -> bool:
        index = bisect_left(self.words, key)
        return index < len(self.words) and self.words[index] == key

    def is_usual(self, written: str, *, starts: bool) -> bool:
        """Tell whether a known word is in lower case or has its capitals where they belong."""
        return written in self.capitals or not any(map(str.isupper, written[1:] if starts else written))

    def walk(self, words: tuple[Word, ...]) -> tuple[int, int]:
        """Return how many of these known words lead on, and the ending behind them: 0 unless all do and a text ends."""
        state = 0
        for index, word in enumerate(words):
            label = bisect_left(self.words, word.key)
            stop = self.first_edges[state + 1]
            edge = bisect_left(self.labels, label, self.first_edges[state], stop)
            if edge == stop or self.labels[edge] != label:
                return index, 0
            state = self.next_states[edge]
        return len(words), self.endings[state]


def _unpack(packed: str) -> _Automaton:
    """Raises ValueError or zlib.error on anything but a packed automaton."""
    data = zlib.decompress(base64.b64decode(packed, validate=True))
    words, capitals, numbers = data.split(b"\n", 2)
    flat = array("I")
    flat.frombytes(numbers)
    if sys.byteorder == "big":
        flat.byteswap()
    n_states, n_edges = flat[0], flat[1]
    cuts = [2, 3 + n_states, 3 + 2 * n_states, 3 + 2 * n_states + n_edges, 3 + 2 * n_states + 2 * n_edges]
    if len(flat) != cuts[-1]:
        raise ValueError(f"{len(flat)} numbers instead of {cuts[-1]}")
    parts = [flat[start:stop] for start, stop in pairwise(cuts)]
    return _Automaton(words.decode().split(" "), frozenset(capitals.decode().split(" ")), *parts)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a demo model covers. Safe to share between threads."""

    min_probability: float
    """An answer with a token less probable than this must be withheld; 0.0 to 1.0."""
    _automata: Mapping[str, _Automaton] = field(repr=False)
    _target_sets: tuple[frozenset[str], ...] = field(repr=False)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> Coverage | None:
        """Return the domain recorded in a GGUF's metadata, or None for a model without limits.

        Raises:
            UnsupportedModelError: the domain is recorded in a newer format.
            ModelFileError: the record is damaged.
        """
        version = metadata.get(f"{PREFIX}version")
        if version is None:
            return None
        if version != FORMAT_VERSION:
            raise UnsupportedModelError(
                f"the model records its coverage in format {version}; this program reads {FORMAT_VERSION}",
                hint="update hymt-local",
            )
        try:
            return cls._parse(metadata)
        except (KeyError, IndexError, ValueError, binascii.Error, zlib.error) as error:
            raise ModelFileError(
                f"the model's record of its coverage is damaged: {error!r}", hint="install the model file again"
            ) from error

    @classmethod
    def _parse(cls, metadata: Mapping[str, object]) -> Coverage:
        target_sets = str(metadata[f"{PREFIX}targets"]).split(";")
        languages = str(metadata[f"{PREFIX}languages"]).split()
        return cls(
            min_probability=float(str(metadata[f"{PREFIX}min_probability"])),
            _automata={lang: _unpack(str(metadata[f"{PREFIX}texts.{lang}"])) for lang in languages},
            _target_sets=tuple(frozenset(targets.split()) for targets in target_sets),
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """Every source language of which at least one text is covered."""
        return tuple(self._automata)

    def gap(self, text: str, source_lang: str, *, target_lang: str | None = None) -> str | None:
        """Return the first part of one sentence or phrase outside the domain, None when all of it is inside.

        That part is an unknown word if there is one, else two neighbours that do not follow each other there, else the
        whole text when its translation into `target_lang` is outside. It may be empty when the text is. Never raises.
        """
        shown = unicodedata.normalize("NFC", text[:MAX_CHARACTERS]).strip(_OUTER)
        words = tuple(islice(split_words(shown), MAX_WORDS + 1))
        automaton = self._automata.get(source_lang)
        if not words or automaton is None:
            return shown
        if unknown := _unknown_range(automaton, words):
            return shown[unknown[0] : unknown[1]]
        n_known, ending = automaton.walk(words)
        if ending == 0 or len(text) > MAX_CHARACTERS:
            around = words[max(n_known - 1, 0) :][:2] if n_known < len(words) else words[-2:]
            return shown[around[0].start : around[-1].end]
        if target_lang is not None and target_lang not in self._target_sets[ending - 1]:
            return shown
        return None

    def usual_form(self, text: str, source_lang: str) -> str:
        """Return a covered text as the model knows it: in lower case when a word has capitals where none belong."""
        automaton = self._automata.get(source_lang)
        normal = unicodedata.normalize("NFC", text)
        words = [normal[word.start : word.end] for word in split_words(normal)]
        if automaton is None or all(automaton.is_usual(word, starts=place == 0) for place, word in enumerate(words)):
            return text
        return normal.lower()


def _unknown_range(automaton: _Automaton, words: tuple[Word, ...]) -> tuple[int, int] | None:
    """The first unknown word, with the unknown ones that touch it: in unspaced scripts a word is many."""
    unknown = (word for word in words if not automaton.knows(word.key))
    first = next(unknown, None)
    if first is None:
        return None
    end = first.end
    for word in unknown:
        if word.start != end:
            break
        end = word.end
    return first.start, end
