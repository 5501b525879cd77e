"""WebVTT: everything but the words of the cues stays, and words are escaped."""

from __future__ import annotations

from pathlib import Path

import pytest

from hymt_local.documents.base import Languages, MergeOptions
from hymt_local.documents.cues import CueDocument
from hymt_local.documents.vtt import VttFormat
from hymt_local.errors import DocumentError

GOLDEN = Path(__file__).parents[1] / "golden" / "documents"
LANGUAGES = Languages("en", "zh-Hant")
OPTIONS = MergeOptions(LANGUAGES, sets_metadata=False)


def read(text: str) -> CueDocument:
    return VttFormat().read(text.encode(), LANGUAGES)


def cue(text: str) -> CueDocument:
    return read(f"WEBVTT\n\n00:01.000 --> 00:03.000 align:start\n{text}\n\n00:04.000 --> 00:05.000\nEnd.\n")


def filled(document: CueDocument, target: str) -> str:
    merged = document.merge({document.units[0].id: target}, OPTIONS)
    assert merged.rejected == {}
    return merged.data.decode()


def test_d_1_everything_but_the_words_stays() -> None:
    data = (GOLDEN / "vtt/everything.vtt").read_bytes()
    document = VttFormat().read(data, LANGUAGES)
    assert [unit.source.text for unit in document.units] == [
        "Where have you <c.loud>been</c>?",
        "<v.loud Bob>Out & about,\u00a0if x < y.</v>\n<v Ann Lee>All <00:00:05.000>night <00:00:05.500>long?",
        "- <i>Yes.</i>\n- \u200eNo!",
        "Right after it, without an empty line.",
        "<ruby>Tokyo<rt>toh-kyoh</rt></ruby> by night",
    ]
    merged = document.merge({unit.id: f"{unit.source.text}!" for unit in document.units}, OPTIONS).data.decode()
    for kept in (
        "\nREGION\nid:left\nwidth:40%\n",
        "\nSTYLE\n::cue(b) {",
        "\nNOTE The first take --\n",
        "\nintro\n00:01.000",
    ):
        assert kept in merged
    assert "\n<v Ann Lee>Where have you <c.loud>been</c>?!\n" in merged


def test_entities_are_read_and_written() -> None:
    document = cue("Salt &amp; pepper &lt;3&nbsp;&lrm;g")
    assert document.units[0].source.text == "Salt & pepper <3\u00a0\u200eg"
    assert "\nA &amp; B &lt;3&nbsp;&lrm;&gt;\n" in filled(document, "A & B <3\u00a0\u200e>")


def test_an_invisible_character_is_written_as_the_cue_writes_it() -> None:
    assert "\nX\u00a0Y\n" in filled(cue("A\u00a0B"), "X\u00a0Y")


def test_only_tags_of_the_source_are_tags_in_the_target() -> None:
    written = filled(cue("A <b>bold</b> word"), "Ein <b>fettes</b> <i>Wort</i>")
    assert "\nEin <b>fettes</b> &lt;i&gt;Wort&lt;/i&gt;\n" in written


def test_an_unknown_or_dangerous_entity_stays_as_it_is() -> None:
    assert cue("A &copy; B &#10; C").units[0].source.text == "A &copy; B &#10; C"


def test_v_1_an_arrow_is_a_fault() -> None:
    document = cue("One.")
    assert document.fault(document.units[0], "Eins --> zwei")
    assert document.merge({"cue-1": "Eins --> zwei"}, OPTIONS).rejected


def test_d_7_the_language_of_the_header_follows_the_target() -> None:
    document = read("WEBVTT\nKind: captions\nLanguage: en-GB\n\n00:01.000 --> 00:02.000\nHi.\n")
    assert document.merge({}, MergeOptions(LANGUAGES)).data.startswith(
        b"WEBVTT\nKind: captions\nLanguage: zh-Hant\n\n00:01"
    )


def test_d_7_a_language_in_a_cue_is_text() -> None:
    document = read("WEBVTT\n\n00:01.000 --> 00:02.000\nLanguage: en\n")
    assert b"Language: en" in document.merge({}, MergeOptions(LANGUAGES)).data


def test_a_cue_with_an_invalid_timing_is_left_alone() -> None:
    document = read("WEBVTT\n\n00:01.000 --> later\nLost.\n\n00:03.000 --> 00:04.000\nHere.\n")
    assert [unit.source.text for unit in document.units] == ["Here."]


def test_a_cue_ends_where_the_next_timing_begins() -> None:
    document = read("WEBVTT\n\n00:01.000 --> 00:02.000\nOne.\n00:03.000 --> 00:04.000\nTwo.\n")
    assert [unit.source.text for unit in document.units] == ["One.", "Two."]


@pytest.mark.parametrize("text", ["", "WEBVTTX\n", "1\n00:00:01,000 --> 00:00:02,000\nSubRip\n", " WEBVTT\n"])
def test_a_file_without_the_signature_is_refused(text: str) -> None:
    with pytest.raises(DocumentError, match="begins with"):
        read(text)


def test_the_corpora_keep_every_line_that_is_not_text(shared_data: Path) -> None:
    for path in shared_data.glob("subtitles/*.vtt"):
        data = path.read_bytes()
        document = VttFormat().read(data, LANGUAGES)
        merged = document.merge({unit.id: f"⟦{unit.source.text}⟧" for unit in document.units}, OPTIONS)
        again = VttFormat().read(merged.data, LANGUAGES)
        assert [unit.source.text for unit in again.units] == [f"⟦{unit.source.text}⟧" for unit in document.units]
        kept = [line for line in data.splitlines() if b"-->" in line or line.startswith((b"NOTE", b"STYLE", b"::"))]
        assert [line for line in merged.data.splitlines() if line in kept] == kept


def test_a_file_of_metadata_has_nothing_to_translate() -> None:
    text = 'WEBVTT\nKind: {}\n\n00:01.000 --> 00:02.000\n{{"id": 1}}\n'
    assert read(text.format("metadata")).units == ()
    assert len(read(text.format("captions")).units) == 1
