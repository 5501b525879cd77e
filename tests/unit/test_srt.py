"""SubRip: what a cue is, what of it is translated, and what never moves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hymt_local.document_jobs.events import UnitSettled
from hymt_local.document_jobs.run import translate_bytes
from hymt_local.documents.base import Languages, MergeOptions
from hymt_local.documents.cue_layout import CueLimits, cells, cue_findings, lay_out
from hymt_local.documents.cues import CueDocument
from hymt_local.documents.srt import SrtFormat
from hymt_local.errors import DocumentError
from hymt_local.segment import Severity, TokenKind
from tests.document_services import UnitsService, options

GOLDEN = Path(__file__).parents[1] / "golden" / "documents"
LANGUAGES = Languages("en", "de")
OPTIONS = MergeOptions(LANGUAGES)
BILINGUAL = MergeOptions(LANGUAGES, is_bilingual=True)
LIMITS = CueLimits()


def read(text: str) -> CueDocument:
    return SrtFormat().read(text.encode(), LANGUAGES)


def cue(text: str) -> CueDocument:
    return read(f"1\n00:00:01,000 --> 00:00:03,000\n{text}\n\n2\n00:00:04,000 --> 00:00:05,000\nEnd.\n")


def filled(document: CueDocument, **targets: str) -> str:
    merged = document.merge({name.replace("_", "-"): target for name, target in targets.items()}, OPTIONS)
    assert merged.rejected == {}
    return merged.data.decode()


def timings(data: bytes) -> list[bytes]:
    return re.findall(rb"^.*-->.*$", data, re.MULTILINE)


def test_a_cue_is_one_unit_by_its_place_and_not_by_its_number() -> None:
    document = read("7\n00:00:01,000 --> 00:00:02,000\nOne.\n\n7\n00:00:03,000 --> 00:00:04,000\nTwo.\n")
    assert [(unit.id, unit.source.text, unit.location) for unit in document.units] == [
        ("cue-1", "One.", "cue 1"),
        ("cue-2", "Two.", "cue 2"),
    ]
    assert filled(document, cue_2="Zwei.") == (
        "7\n00:00:01,000 --> 00:00:02,000\nOne.\n\n7\n00:00:03,000 --> 00:00:04,000\nZwei.\n"
    )


def test_the_lines_of_a_sentence_are_one_text_and_those_of_two_speakers_are_not() -> None:
    assert cue("I have seen\nthe blue suitcase.").units[0].source.text == "I have seen the blue suitcase."
    assert cue("- Who?\n- Me.").units[0].source.text == "- Who?\n- Me."
    assert cue("- Have you seen\nmy case?\n- No.").units[0].source.text == "- Have you seen my case?\n- No."
    assert cue("我看见了\n那个箱子。").units[0].source.text == "我看见了那个箱子。"
    assert cue("가방을\n봤어요.").units[0].source.text == "가방을 봤어요."


@pytest.mark.parametrize(
    ("text", "source", "written"),
    [
        ("<i>Last night.</i>", "Last night.", "<i>X</i>"),
        ("♪ Long road ♪", "Long road", "♪ X ♪"),
        ("{\\an8}Up here.", "Up here.", "{\\an8}X"),
        ("{\\an8}<i>♪ Both ♪</i>", "Both", "{\\an8}<i>♪ X ♪</i>"),
        ("[door slams]", "door slams", "[X]"),
        ("(sighs)", "sighs", "(X)"),
        ("- Alone.", "Alone.", "- X"),
        ('<font color="#f00">Red.</font>', "Red.", '<font color="#f00">X</font>'),
    ],
)
def test_decorations_at_the_edges_stay_outside_the_unit(text: str, source: str, written: str) -> None:
    document = cue(text)
    assert document.units[0].source.text == source
    assert f"\n{written}\n" in filled(document, cue_1="X")


def test_tags_and_brackets_inside_are_protected_in_pairs() -> None:
    unit = cue("[sighs] This is <b>not</b> it, {\\an8}is ♪ it?").units[0]
    protected = [(each.span.of(unit.source.text), each.kind) for each in unit.source.protected]
    assert protected == [
        ("[", TokenKind.OPEN),
        ("]", TokenKind.CLOSE),
        ("<b>", TokenKind.OPEN),
        ("</b>", TokenKind.CLOSE),
        ("{\\an8}", TokenKind.ATOMIC),
        ("♪", TokenKind.ATOMIC),
    ]


def test_tags_that_cross_or_are_not_closed_stand_alone() -> None:
    unit = cue("A <b>bold <i>and</b> crossed</i> and <u>open").units[0]
    kinds = [each.kind for each in unit.source.protected]
    assert kinds == [TokenKind.OPEN, TokenKind.ATOMIC, TokenKind.CLOSE, TokenKind.ATOMIC, TokenKind.ATOMIC]


def test_what_only_looks_like_a_tag_is_text() -> None:
    assert cue("Me & you <3").units[0].source.protected == ()
    assert "Ich & du <3 & <mehr>" in filled(cue("Me & you <3"), cue_1="Ich & du <3 & <mehr>")


@pytest.mark.parametrize("text", ["", "♪ ♪", "<i></i>", "{\\an8}", "-", "[]"])
def test_a_cue_without_words_has_no_unit(text: str) -> None:
    assert [unit.id for unit in cue(text).units] == ["cue-2"]


def test_d_6_thousands_of_tags_are_not_taken_off_one_by_one() -> None:
    (unit, _) = cue("<b>" * 50_000 + "End").units
    assert unit.source.text.endswith("<b>End")


def test_d_1_a_damaged_file_keeps_every_byte_and_loses_no_text() -> None:
    data = (GOLDEN / "srt/damaged.srt").read_bytes()
    document = SrtFormat().read(data, LANGUAGES)
    assert [unit.source.text for unit in document.units] == [
        "The first part, and a part after an empty line.",
        "No number above this one.",
        "This one has lost its timing.",
        "The same number twice.",
        "Nothing between the cues.",
    ]
    merged = document.merge({unit.id: unit.source.text.upper() for unit in document.units}, OPTIONS)
    assert timings(merged.data) == timings(data)
    assert b"\n12\r\nTHIS ONE" in merged.data
    assert merged.data.startswith(b"\xef\xbb\xbf\r\n7\r\n0:00:05.000 --> 0:00:07.000 X1:100 X2:200 Y1:50 Y2:80\r\n")
    assert b"\n" not in merged.data.replace(b"\r\n", b"")


def test_the_corpora_keep_their_timings_and_numbers_of_cues(shared_data: Path) -> None:
    paths = [*shared_data.glob("subtitles/*.srt"), shared_data / "formats-own" / "bom-crlf-coords.srt"]
    for path in paths:
        data = path.read_bytes()
        document = SrtFormat().read(data, LANGUAGES)
        merged = document.merge({unit.id: f"{unit.source.text} und mehr" * 4 for unit in document.units}, OPTIONS)
        assert timings(merged.data) == timings(data)
        assert len(SrtFormat().read(merged.data, LANGUAGES).units) == len(document.units)


def test_no_timing_line_at_all_is_refused() -> None:
    with pytest.raises(DocumentError, match="no timing line"):
        read("just\ntext\n")


def test_d_8_the_target_stands_under_the_source() -> None:
    document = cue("{\\an8}<i>Good morning.</i>")
    data = document.merge({"cue-1": "Guten Morgen."}, BILINGUAL).data.decode()
    assert "\n{\\an8}<i>Good morning.</i>\n<i>Guten Morgen.</i>\n\n2\n" in data
    assert data.endswith("\nEnd.\n")


def test_an_empty_line_in_a_target_would_end_the_cue_and_is_never_written() -> None:
    assert "\nA\nB\n\n2\n" in filled(cue("One.\nTwo."), cue_1="A\n\n\nB")


def test_v_1_a_timing_in_a_target_is_a_fault_and_keeps_the_source() -> None:
    document = cue("One.")
    target = "Eins.\n00:00:01,000 --> 00:00:02,000\nZwei."
    assert document.fault(document.units[0], target)
    merged = document.merge({"cue-1": target}, OPTIONS)
    assert list(merged.rejected) == ["cue-1"]
    assert b"\nOne.\n" in merged.data


def test_v_1_a_number_that_would_become_that_of_the_next_cue_is_a_fault() -> None:
    text = "00:00:01,000 --> 00:00:02,000\nForty-two\n00:00:03,000 --> 00:00:04,000\nTwo.\n"
    document = read(text)
    assert document.fault(document.units[0], "42")
    assert document.fault(document.units[1], "42") is None
    long = "A long line of text that does not fit " + "1234567890"
    data = document.merge({"cue-1": long}, OPTIONS).data
    assert SrtFormat().read(data, LANGUAGES).units[0].source.text == long


# Lines


@pytest.mark.parametrize(
    ("target", "n_source_lines", "lines"),
    [
        ("Short.", 2, ["Short."]),
        (
            "A sentence that is much too long for one line of a subtitle.",
            1,
            ["A sentence that is much too long", "for one line of a subtitle."],
        ),
        (
            "这是一个非常长的句子，它不能放在字幕的一行里，所以要分成两行。",
            1,
            ["这是一个非常长的句子，它不能放在", "字幕的一行里，所以要分成两行。"],
        ),
        ("one two three " * 9, 3, ["one two three " * 2 + "one two three"] * 3),
    ],
)
def test_a_target_takes_as_few_balanced_lines_as_its_width_allows(
    target: str, n_source_lines: int, lines: list[str]
) -> None:
    assert lay_out(target, "source", n_source_lines=n_source_lines, limits=LIMITS) == lines


def test_a_line_never_breaks_inside_a_tag_or_before_punctuation() -> None:
    target = '这里有<font color="#ff0000 00">红色的字</font>，后面还有很多很多很多的字，一直写到放不下为止。'
    lines = lay_out(target, "source", n_source_lines=1, limits=LIMITS)
    assert "".join(lines) == target
    assert len(lines) == 2
    assert not lines[1].startswith(("，", "。", ">"))
    assert all(line.count("<") == line.count(">") for line in lines)


def test_speakers_get_their_lines_and_dashes_back() -> None:
    source = "- Who?\n- Me."
    for target in ("- Wer?\n- Ich.", "- Wer? - Ich.", "Wer?\nIch."):
        assert lay_out(target, source, n_source_lines=2, limits=LIMITS) == ["- Wer?", "- Ich."]
    assert lay_out("Wer ist da? Ich.", source, n_source_lines=2, limits=LIMITS) == ["Wer ist da? Ich."]


def test_text_without_a_place_to_break_stays_on_one_line() -> None:
    target = "ภาษาไทย" * 20
    assert lay_out(target, "source", n_source_lines=1, limits=LIMITS) == [target]


def test_cells_count_what_is_seen() -> None:
    assert cells("<i>ab</i>{\\an8}") == 2
    assert cells("中文") == 4
    assert cells("e\u0301") == 1


def test_length_and_reading_speed_are_warnings() -> None:
    findings = cue_findings(["x" * 50, "y" * 10, "z"], duration_s=1.0, limits=LIMITS)
    assert [finding.code for finding in findings] == ["cue_lines", "line_length", "reading_speed"]
    assert {finding.severity for finding in findings} == {Severity.WARNING}
    assert cue_findings(["Two words."], duration_s=1.0, limits=LIMITS) == ()
    assert cue_findings(["Two words."], duration_s=0.0, limits=LIMITS)
    assert cue_findings(["Two words."], duration_s=None, limits=LIMITS) == ()


def test_a_document_finds_what_a_reader_cannot_follow() -> None:
    document = cue("One.")
    assert document.findings(document.units[0], "Eins.") == ()
    codes = [finding.code for finding in document.findings(document.units[0], "Eins und zwei. " * 10)]
    assert codes == ["line_length", "reading_speed"]


def test_earlier_cues_are_context() -> None:
    text = "".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\nLine {n}.\n\n" for n in range(1, 5))
    assert read(text).units[3].source.context == ("Line 2.", "Line 3.")


def test_what_the_source_has_already_is_no_finding() -> None:
    document = read("1\n00:00:01,000 --> 00:00:01,100\nFar too fast.\n")
    assert document.findings(document.units[0], "Viel zu schnell, wirklich.") == ()


async def test_what_a_reader_cannot_follow_is_in_the_events_of_a_job() -> None:
    data = b"1\n00:00:01,000 --> 00:00:01,500\nTen cells.\n\n2\n00:00:02,000 --> 00:00:09,000\nYes.\n"
    events = [event async for event in translate_bytes(data, "a.srt", options=options(), service=UnitsService())]
    settled = {event.id: event for event in events if isinstance(event, UnitSettled)}
    assert [finding.code for finding in settled["cue-1"].findings] == ["reading_speed"]
    assert settled["cue-2"].findings == ()
