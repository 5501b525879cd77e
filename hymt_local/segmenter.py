"""Splitting: a text into lines and sentences to translate, and an oversize one into pieces that fit.

Law of everything here: the parts joined in order are the text. No cut falls inside a grapheme, a URL or a placeholder.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise

import msgspec

from hymt_local.literals import find_literals, without_literals
from hymt_local.segment import Segment

# What str.strip() removes, and two invisible marks that a model would drop: the byte order mark, the zero width space.
_OUTER = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    chr(code) for code in range(0x2000, 0x200C)
)

_UNSPACED = frozenset({"zh", "zh-Hant", "yue", "ja", "th", "km", "my", "bo"})
"""Languages that may write the next sentence, or word, without a space."""
_JOINED = frozenset({"zh", "zh-Hant", "yue", "ja"})
"""Languages that put no space between sentences."""
_FULL_WIDTH_ENDINGS = tuple("。！？…」』”’）")

# Boundaries that sentencex 1.0.32 does not know: Khmer ones, and the Tibetan shad before a space.
_OWN_SENTENCE_ENDS = {
    "km": re.compile(r"[។៕?!]+[\"'”’»)]*\s*"),
    "bo": re.compile(r"[།༎༏༐༑༔](?:[ \xa0]?[།༎༏༐༑༔])*\s+"),
}
_THAI_SPACE = re.compile(r"(?<=[\u0e00-\u0e2e\u0e30-\u0e45\u0e47-\u0e4e])\s+(?=[\u0e01-\u0e2e\u0e40-\u0e44])")
"""Thai ends sentences, and much else, with a space."""
_SHORTEST_THAI = 20
"""Characters of a part between two such spaces; a shorter one is no sentence."""
_CLAUSE_ENDS = re.compile(r"[,;:]\s+|\s[–—-]\s+|[，、；：،؛၊]\s*")
_CLAUSE_ENDS_UNSPACED = re.compile(_CLAUSE_ENDS.pattern + r"|\s+")
_WORD_ENDS = re.compile(r"\s+")

_BLOCK_CHARACTERS = 10_000

_ZERO_WIDTH_JOINER = "\u200d"
_EXTENDERS = frozenset("\u200c\u200d\u0e33\u0eb3\uff9e\uff9f")
_PREPENDED = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2")
_VIRAMA_CLASS = 9


class Level(IntEnum):
    """Where an oversize text may be cut, best place first."""

    SENTENCE = 0
    CLAUSE = 1
    WORD = 2
    GRAPHEME = 3


def is_passthrough(text: str) -> bool:
    """Tell whether there is nothing to translate: no letter outside of URLs, paths, placeholders, code and the like."""
    return not any(character.isalpha() for character in without_literals(text))


def outer_split(index: int, text: str) -> Segment:
    """Return `text` as one segment: its outer whitespace apart, translatable when it holds words."""
    inner = text.lstrip(_OUTER)
    source = inner.rstrip(_OUTER)
    lead = text[: len(text) - len(inner)]
    return Segment(index, source, lead, inner[len(source) :], translatable=not is_passthrough(source))


def split_lines(text: str) -> tuple[Segment, ...]:
    """Return one segment per line; line ends (those of `str.splitlines`) are in `trail`. Empty text has none."""
    return tuple(outer_split(index, line) for index, line in enumerate(text.splitlines(keepends=True)))


def split_sentences(text: str, lang: str) -> tuple[Segment, ...]:
    """Return one segment per sentence; no sentence goes over a line end.

    Args:
        text: Any text.
        lang: A tag of the catalog, or `und`.
    """
    sentences = (sentence for line in split_lines(text) for sentence in _sentences_of(line, lang))
    return tuple(outer_split(index, sentence) for index, sentence in enumerate(sentences))


def parts_at(text: str, level: Level, *, lang: str) -> list[str]:
    """Cut `text` at every place of one level. GRAPHEME gives two halves, or one part that cannot be cut."""
    if level is Level.GRAPHEME:
        return _halves(text)
    if level is Level.SENTENCE:
        return _cut(text, _sentence_ends(text, lang))
    ends = _WORD_ENDS if level is Level.WORD else _CLAUSE_ENDS_UNSPACED if lang in _UNSPACED else _CLAUSE_ENDS
    return _cut(text, _matches(text, ends))


def join_segments(segments: Sequence[Segment], targets: Sequence[str], *, source_lang: str, target_lang: str) -> str:
    """Put the targets in place of the sources.

    Between two parts of one line the target language's spacing holds: where a language without spaces left none, others
    get one; after a full-width mark Chinese and Japanese lose it. Everything else is restored as it was.
    """
    if not segments:
        return ""
    parts = [segments[0].lead]
    for (before, after), target in zip(pairwise(segments), targets, strict=False):
        gap = before.trail + after.lead
        if gap == "" and source_lang in _UNSPACED and target_lang not in _JOINED:
            gap = " " if source_lang != target_lang and target and after.source else gap
        elif gap == " " and target_lang in _JOINED and source_lang not in _JOINED:
            gap = "" if target.endswith(_FULL_WIDTH_ENDINGS) else gap
        parts += (target, gap)
    return "".join([*parts, targets[-1], segments[-1].trail])


def gap_after(target: str, segments: Sequence[Segment], *, source_lang: str, target_lang: str) -> str:
    """Return what stands after a target in the finished text.

    Args:
        target: The translation of the first of `segments`.
        segments: Its segment and the next one, if there is one.
        source_lang: Language of the text.
        target_lang: Language of the target.
    """
    segment, *following = segments
    joined = join_segments(
        [msgspec.structs.replace(segment, lead=""), *(msgspec.structs.replace(after, trail="") for after in following)],
        [target, *("" for _ in following)],
        source_lang=source_lang,
        target_lang=target_lang,
    )
    return joined[len(target) :]


def is_grapheme_boundary(text: str, position: int) -> bool:
    """Tell whether `text` may be cut there without tearing what a reader sees as one character.

    Unicode's extended grapheme clusters, made coarser where the exact tables would be long: conjuncts stay whole.
    """
    if not 0 < position < len(text):
        return True
    before, after = text[position - 1], text[position]
    if _is_extending(after) or before == _ZERO_WIDTH_JOINER or before in _PREPENDED or before + after == "\r\n":
        return False
    if unicodedata.combining(before) == _VIRAMA_CLASS and after.isalpha():
        return False
    if _is_regional(before) and _is_regional(after):
        return _regional_run(text, position) % 2 == 0
    return not _is_torn_syllable(before, after)


class GraphemeStream:
    """Passes text on that arrives in pieces, each time up to the beginning of its last grapheme: that one may go on.

    Law: for any pieces, no cut between two results falls inside a grapheme of the joined text.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what is whole."""
        known, whole = len(self._held), self._held + text
        cuts = (place for place in range(len(whole) - 1, max(known, 1) - 1, -1) if is_grapheme_boundary(whole, place))
        cut = next(cuts, 0)  # what was held before has no boundary inside
        self._held = whole[cut:]
        return whole[:cut]

    def finish(self) -> str:
        """Return the rest: nothing follows."""
        rest, self._held = self._held, ""
        return rest


def _sentences_of(line: Segment, lang: str) -> Iterator[str]:
    parts = parts_at(line.source, Level.SENTENCE, lang=lang) if line.source else [""]
    parts[0] = line.lead + parts[0]
    parts[-1] += line.trail
    return iter(parts)


def _sentence_ends(text: str, lang: str) -> Iterable[int]:
    own = _OWN_SENTENCE_ENDS.get(lang)
    if lang == "th":
        return _thai_ends(text)
    if own is not None:
        return _matches(text, own)
    return _ends_in_blocks(text, lang)


def _thai_ends(text: str) -> Iterator[int]:
    last = 0
    for match in _THAI_SPACE.finditer(text):
        if match.start() - last >= _SHORTEST_THAI and len(text) - match.end() >= _SHORTEST_THAI:
            last = match.end()
            yield last


def _ends_in_blocks(text: str, lang: str) -> Iterator[int]:
    """Look at a bounded part at a time: sentencex takes quadratic time on runs of quotation marks."""
    start = 0
    while start < len(text):
        sentences = _sentences(text[start : start + _BLOCK_CHARACTERS], lang)
        is_last = start + _BLOCK_CHARACTERS >= len(text)
        whole = sentences if is_last else sentences[:-1]  # the last one may go on in the next block
        yield from (start + length for length in accumulate(map(len, whole)))
        start += sum(map(len, whole or sentences))


def _sentences(text: str, lang: str) -> list[str]:
    import sentencex  # a compiled module: loaded when a text is really split

    sentences: list[str] = sentencex.segment(lang, text)
    return sentences if "".join(sentences) == text else [text]


def _matches(text: str, ends: re.Pattern[str]) -> Iterator[int]:
    return (match.end() for match in ends.finditer(text))


def _cut(text: str, ends: Iterable[int]) -> list[str]:
    """Cut after each of the ascending positions that is not inside something whole; never returns an empty part."""
    whole = deque(literal.span for literal in find_literals(text))
    cuts = [0]
    for end in ends:
        while whole and whole[0].end <= end:
            whole.popleft()
        is_inside = bool(whole) and whole[0].start < end
        if cuts[-1] < end < len(text) and not is_inside and is_grapheme_boundary(text, end):
            cuts.append(end)
    return [text[start:end] for start, end in pairwise([*cuts, len(text)])]


_TRIED_CUTS = 2_000
"""Places looked at around the middle: a run without a good one may be megabytes long."""


def _halves(text: str) -> list[str]:
    """Cut near the middle: beside a literal or a word of Latin letters or digits if there is one, else anywhere."""
    whole = [literal.span for literal in find_literals(text)]
    second_best = None
    for tried, place in enumerate(_outward(len(text))):
        if second_best and tried > _TRIED_CUTS:
            break
        if not is_grapheme_boundary(text, place):
            continue
        is_inside = any(span.start < place < span.end for span in whole)
        if not is_inside and not (text[place - 1].isascii() and text[place - 1 : place + 1].isalnum()):
            return [text[:place], text[place:]]
        second_best = second_best or place
    return [text[:second_best], text[second_best:]] if second_best else [text]


def _outward(length: int) -> Iterator[int]:
    """Yield every place inside a text, those nearest to its middle first."""
    middle = length // 2
    for distance in range(middle + 1):
        yield from (place for place in {middle - distance, middle + distance} if 0 < place < length)


def _is_extending(character: str) -> bool:
    """Tell whether a character belongs to the one before it."""
    code = ord(character)
    return (
        unicodedata.category(character).startswith("M")
        or character in _EXTENDERS
        or 0x1F3FB <= code <= 0x1F3FF  # skin tones
        or 0xE0020 <= code <= 0xE007F  # tags of flags
    )


def _is_regional(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF


def _regional_run(text: str, position: int) -> int:
    """Return how many regional indicators end at `position`: two make a flag."""
    start = position
    while start > 0 and _is_regional(text[start - 1]):
        start -= 1
    return position - start


def _is_torn_syllable(before: str, after: str) -> bool:
    """Tell whether a cut would part the letters of one Hangul syllable."""
    first, second = ord(before), ord(after)
    is_tail = 0x1160 <= second <= 0x11FF or 0xD7B0 <= second <= 0xD7FF
    is_head = 0x1100 <= first <= 0x115F or 0xA960 <= first <= 0xA97C
    is_hangul = 0x1100 <= second <= 0x11FF or 0xA960 <= second <= 0xA97C or 0xAC00 <= second <= 0xD7A3
    return is_tail or (is_head and is_hangul)
