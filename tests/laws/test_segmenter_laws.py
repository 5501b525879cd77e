from hypothesis import given
from hypothesis import strategies as st

from hymt_local.catalog import ALL_TAGS
from hymt_local.segment import Segment
from hymt_local.segmenter import (
    GraphemeStream,
    Level,
    is_grapheme_boundary,
    is_passthrough,
    join_segments,
    parts_at,
    split_lines,
    split_sentences,
)

TAGS = st.sampled_from([*ALL_TAGS, "und"])
PIECES = st.sampled_from(
    [
        *(
            "Hello",
            " ",
            ". ",
            "! ",
            "\n",
            "\r\n",
            "\u2028",
            "。",
            "！",
            "，",
            "។",
            "໕",
            "།",
            " །",
            "။",
            "۔",
            "؟ ",
            "ไทย",
            "是",
        ),
        *("です。", "…", "Mr. ", "{name}", "`a. b`", "https://a.example/b.c ", "👩\u200d👩\u200d👧", "🇫🇷🇩🇪", "e\u0301"),
        *("क्षि", "각", "\ufeff", "\u200b", "1,5 "),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=12).map("".join))
WHOLE = [
    "👩\u200d👩\u200d👧",
    "🇫🇷",
    "e\u0301",
    "क्षि",
    "\u1100\u1161\u11a8",
    "👍🏽",
    "น้ำ",
    "\r\n",
    "🏴\U000e0067\U000e0062\U000e007f",
    "x\ufe0f",
]


def joined(segments: tuple[Segment, ...]) -> str:
    return "".join(segment.restored(segment.source) for segment in segments)


def check(segments: tuple[Segment, ...]) -> None:
    assert [segment.index for segment in segments] == list(range(len(segments)))
    for segment in segments:
        assert segment.translatable == (not is_passthrough(segment.source))
        assert segment.source or not segment.translatable
        assert segment.source == segment.source.strip()
        assert segment.restored(segment.source)


@given(TEXTS)
def test_s_1_lines_joined_are_the_text(text: str) -> None:
    segments = split_lines(text)
    assert joined(segments) == text
    assert all(len(segment.source.splitlines()) <= 1 for segment in segments)
    check(segments)


@given(TEXTS, TAGS)
def test_s_1_sentences_joined_are_the_text_in_every_language(text: str, lang: str) -> None:
    segments = split_sentences(text, lang)
    assert joined(segments) == text
    assert all(len(segment.source.splitlines()) <= 1 for segment in segments)
    check(segments)


@given(TEXTS, TAGS, st.sampled_from(Level))
def test_s_1_parts_joined_are_the_text_at_every_level(text: str, lang: str, level: Level) -> None:
    parts = parts_at(text, level, lang=lang)
    assert "".join(parts) == text
    assert all(parts) or text == ""


@given(TEXTS, TAGS, st.sampled_from(Level))
def test_s_4_no_part_begins_inside_a_grapheme(text: str, lang: str, level: Level) -> None:
    position = 0
    for part in parts_at(text, level, lang=lang):
        assert is_grapheme_boundary(text, position)
        position += len(part)


@given(st.lists(st.sampled_from(WHOLE), min_size=1))
def test_graphemes_are_never_torn(graphemes: list[str]) -> None:
    text = "".join(graphemes)
    starts = {len("".join(graphemes[:n])) for n in range(len(graphemes) + 1)}
    assert {place for place in range(len(text) + 1) if is_grapheme_boundary(text, place)} <= starts


@given(st.text(alphabet="abcdé是ไ", min_size=2))
def test_plain_letters_may_be_cut_anywhere(text: str) -> None:
    assert all(is_grapheme_boundary(text, place) for place in range(len(text)))


@given(TEXTS, TAGS)
def test_identity_targets_give_the_text_back_within_one_language(text: str, lang: str) -> None:
    segments = split_sentences(text, lang)
    targets = [segment.source for segment in segments]
    assert join_segments(segments, targets, source_lang=lang, target_lang=lang) == text


@given(TEXTS, st.data())
def test_what_passes_in_pieces_is_never_cut_inside_a_grapheme(text: str, data: st.DataObject) -> None:
    stream = GraphemeStream()
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    passed = [*map(stream.feed, pieces), stream.finish()]
    assert "".join(passed) == text
    place = 0
    for piece in passed:
        place += len(piece)
        assert is_grapheme_boundary(text, place)


@given(st.lists(st.sampled_from(WHOLE), min_size=2))
def test_only_the_last_grapheme_waits(graphemes: list[str]) -> None:
    stream = GraphemeStream()
    passed = "".join(map(stream.feed, "".join(graphemes)))
    assert passed == "".join(graphemes)[: len(passed)]
    waiting = "".join(graphemes)[len(passed) :]
    assert not any(is_grapheme_boundary(waiting, place) for place in range(1, len(waiting)))
