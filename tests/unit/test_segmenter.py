import json
from pathlib import Path

import pytest

from hymt_local.catalog import ALL_TAGS
from hymt_local.segment import Segment
from hymt_local.segmenter import Level, is_passthrough, join_segments, parts_at, split_lines, split_sentences
from tests.bench.bench_text import boundary_recall


def sources(segments: tuple[Segment, ...]) -> list[str]:
    return [segment.source for segment in segments if segment.source]


def test_lines_keep_their_ends_and_outer_whitespace() -> None:
    segments = split_lines("  One\t\r\n\n\u3000二 \u2028three\rfour")
    assert [(s.lead, s.source, s.trail) for s in segments] == [
        ("  ", "One", "\t\r\n"),
        ("\n", "", ""),
        ("\u3000", "二", " \u2028"),
        ("", "three", "\r"),
        ("", "four", ""),
    ]
    assert [s.index for s in segments] == [0, 1, 2, 3, 4]


def test_a_byte_order_mark_is_not_text() -> None:
    (segment,) = split_lines("\ufeffHello")
    assert (segment.lead, segment.source) == ("\ufeff", "Hello")


def test_f_6_the_passthrough_cases(shared_data: Path) -> None:
    lines = (shared_data / "behaviour" / "passthrough.jsonl").read_text(encoding="utf-8").splitlines()
    assert [case["id"] for case in map(json.loads, lines) if not is_passthrough(case["source"])] == []


@pytest.mark.parametrize(
    "text", ["6171-1231-1311-1231", "🌷🌷🌷🌷 🌷", "???", "3 × 4 = 12", "a@b.example https://c.example"]
)
def test_more_that_needs_no_model(text: str) -> None:
    assert is_passthrough(text)


@pytest.mark.parametrize("text", ["5 kg", "v2", "Hello %s", "好", "<b>Save</b>", "README.md", "`x` is", "and/or"])
def test_what_needs_one(text: str) -> None:
    assert not is_passthrough(text)


def test_s_4_the_segmentation_cases(shared_data: Path) -> None:
    lines = (shared_data / "behaviour" / "segmentation.jsonl").read_text(encoding="utf-8").splitlines()
    for case in map(json.loads, lines):
        segments = split_sentences(case["text"], case["lang"])
        assert "".join(segment.restored(segment.source) for segment in segments) == case["text"]
        assert case["sentences"] in {None, len(segments)}, case["id"]


@pytest.mark.parametrize(
    ("lang", "text", "expected"),
    [
        ("en", "Good morning! How are you?  Fine.", ["Good morning!", "How are you?", "Fine."]),
        ("km", "ខ្ញុំទៅផ្សារ។ គាត់នៅផ្ទះ។ល្អ៕ ចប់", ["ខ្ញុំទៅផ្សារ។", "គាត់នៅផ្ទះ។", "ល្អ៕", "ចប់"]),
        ("bo", "ཐུགས་རྗེ་ཆེ། །ང་ཚོ་འགྲོ། སང་ཉིན།", ["ཐུགས་རྗེ་ཆེ།", "།ང་ཚོ་འགྲོ།", "སང་ཉིན།"]),
        ("my", "ဈေးသွားတယ်။သူ ရှိတယ်။", ["ဈေးသွားတယ်။", "သူ ရှိတယ်။"]),
        ("zh-Hant", "你好。再見！", ["你好。", "再見！"]),
        ("und", "One. Two.", ["One.", "Two."]),
        ("en", "One. Two.\nThree.", ["One.", "Two.", "Three."]),
        ("en", "See {a. B} and `x. Y`. Done.", ["See {a. B} and `x. Y`.", "Done."]),
    ],
)
def test_sentences(lang: str, text: str, expected: list[str]) -> None:
    assert sources(split_sentences(text, lang)) == expected


def test_a_long_text_without_spaces_is_cut_only_at_sentence_ends() -> None:
    sentence = "这是一个很长的句子，用来测试。"
    assert sources(split_sentences(sentence * 2000, "zh")) == [sentence] * 2000


@pytest.mark.parametrize(
    ("lang", "level", "text", "expected"),
    [
        ("en", Level.CLAUSE, "one, two; three – four 1,000", ["one, ", "two; ", "three – ", "four 1,000"]),
        ("zh", Level.CLAUSE, "一，二、三；四", ["一，", "二、", "三；", "四"]),
        ("th", Level.CLAUSE, "วันนี้อากาศดี เราไป", ["วันนี้อากาศดี ", "เราไป"]),
        ("en", Level.WORD, "one two  {a b} three", ["one ", "two  ", "{a ", "b} ", "three"]),
        ("en", Level.WORD, "see {{a b}} here", ["see ", "{{a b}} ", "here"]),
        ("zh", Level.GRAPHEME, "一二三四", ["一二", "三四"]),
        ("en", Level.GRAPHEME, "x", ["x"]),
        ("en", Level.GRAPHEME, "aaaa {{name}}", ["aaaa ", "{{name}}"]),
        ("zh", Level.GRAPHEME, "一二三Python四五", ["一二三", "Python四五"]),
    ],
)
def test_s_4_smaller_parts(lang: str, level: Level, text: str, expected: list[str]) -> None:
    assert parts_at(text, level, lang=lang) == expected


@pytest.mark.parametrize(
    ("source", "source_lang", "target_lang", "expected"),
    [
        ("你好。再见。", "zh", "en", "T T"),
        ("你好。再见。", "zh", "ja", "TT"),
        ("ဟုတ်တယ်။မဟုတ်ဘူး။", "my", "km", "T T"),
        ("Hello. Bye.", "en", "fr", "T T"),
        ("Hello.  Bye.\n", "en", "zh", "T  T\n"),
        ("你好。\n再见。", "zh", "en", "T\nT"),
        ("你好。 再见。", "zh", "en", "T T"),
    ],
)
def test_the_target_language_decides_about_the_space_between_sentences(
    source: str, source_lang: str, target_lang: str, expected: str
) -> None:
    segments = split_sentences(source, source_lang)
    targets = ["T"] * len(segments)
    assert join_segments(segments, targets, source_lang=source_lang, target_lang=target_lang) == expected


def test_chinese_needs_no_space_after_its_own_full_stop() -> None:
    segments = split_sentences("Hello. Bye. OK.", "en")
    joined = join_segments(segments, ["你好。", "再见", "好。"], source_lang="en", target_lang="zh")
    assert joined == "你好。再见 好。"


def test_s_4_a_long_thai_text_is_cut_at_its_spaces_and_a_short_one_is_one_sentence() -> None:
    assert len(sources(split_sentences("วันนี้อากาศดี เราไปเดินเล่นกันเถอะ", "th"))) == 1
    text = "วันนี้อากาศดีมากจริงๆ เราไปเดินเล่นที่สวนสาธารณะกันเถอะ แล้วค่อยกลับบ้านไปกินข้าวเย็นด้วยกัน"
    assert len(sources(split_sentences(text, "th"))) >= 2


@pytest.mark.parametrize("source_lang", ALL_TAGS)
def test_s_6_every_pair_of_languages_is_joined_by_its_rule(source_lang: str) -> None:
    unspaced, joined = {"zh", "zh-Hant", "yue", "ja", "th", "km", "my", "bo"}, {"zh", "zh-Hant", "yue", "ja"}
    for target_lang in ALL_TAGS:
        if source_lang == target_lang:
            continue
        full_width = target_lang in joined
        targets = ["甲。", "乙。"] if full_width else ["A.", "B."]
        for gap in ("", " ", "\n", "  "):
            segments = (Segment(0, "x", "", gap), Segment(1, "y", "", "\n"))
            text = join_segments(segments, targets, source_lang=source_lang, target_lang=target_lang)
            expected = gap
            if gap == "" and source_lang in unspaced and not full_width:
                expected = " "
            elif gap == " " and full_width and source_lang not in joined:
                expected = ""
            assert text == f"{targets[0]}{expected}{targets[1]}\n", (source_lang, target_lang, gap)


@pytest.mark.parametrize(
    ("lang", "least"), [("en", 0.8), ("km", 0.8), ("bo", 0.8), ("my", 0.75), ("th", 0.4), ("hi", 0.85)]
)
def test_s_4_sentence_ends_of_news_are_found(shared_data: Path, lang: str, least: float) -> None:
    assert boundary_recall(shared_data, [lang])[lang] >= least
