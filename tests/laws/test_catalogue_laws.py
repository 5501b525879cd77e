"""Laws of subtitles and catalogues: whatever the bytes and the targets, nothing is lost and the file stays readable."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymt_local.documents.base import Document, Format, Languages, MergeOptions
from hymt_local.documents.cue_layout import CueLimits, lay_out
from hymt_local.documents.example_number import number_spans, replace_number
from hymt_local.documents.json_catalogue import JsonCatalogueFormat
from hymt_local.documents.json_spans import parse_json
from hymt_local.documents.message_branches import (
    MessageStyle,
    UntranslatableMessageError,
    branches_of,
    written_branch,
)
from hymt_local.documents.message_format import MessageSyntaxError, Words, parse_message, quoted_words
from hymt_local.documents.plural_forms import parse_plural_forms
from hymt_local.documents.po import PoFormat
from hymt_local.documents.po_directives import format_rules
from hymt_local.documents.po_syntax import PoStyle, escaped, parse_po
from hymt_local.documents.srt import SrtFormat
from hymt_local.documents.vtt import VttFormat
from hymt_local.errors import DocumentError

LANGUAGES = Languages("en", "ru")
PLAIN = MergeOptions(LANGUAGES, sets_metadata=False)
FORMATS: tuple[Format, ...] = (SrtFormat(), VttFormat(), PoFormat(), JsonCatalogueFormat())
NEVER = re.compile(r"(?!)")

LINES = st.lists(
    st.sampled_from(
        [
            *(
                "",
                "1",
                "2",
                "Text here.",
                "- Who?",
                "- Me.",
                "<i>Sung</i>",
                "♪ la ♪",
                "[noise]",
                "{\\an8}Up",
                "a & b < c",
            ),
            *("00:00:01,000 --> 00:00:02,000", "00:00:01.000 --> 00:00:02.000 line:0", "0:00:03,5-->0:00:04,5", "-->"),
            *(
                "WEBVTT",
                "NOTE x",
                "STYLE",
                "Language: en",
                "&amp; &lrm;",
                "<v Bob>Hi",
                "<00:00:01.500>",
                " \t",
                "\u3000",
            ),
            *(
                'msgid ""',
                'msgid "a %d"',
                'msgid_plural "b %d"',
                'msgstr ""',
                'msgstr[0] ""',
                'msgstr[1] "x"',
                '"c\\n"',
            ),
            *(
                "#, fuzzy",
                "#, c-format",
                "#~ msgid",
                "#| msgid",
                '"Plural-Forms: nplurals=2; plural=n!=1;\\n"',
                'msgctxt "c"',
            ),
            *(
                '{"a": "x"',
                ', "b": ["y"',
                "]",
                "}",
                '"{n, plural, one {#} other {# {x}}}"',
                "\"it''s \\u00e9\"",
                ":",
                ",",
            ),
        ]
    ),
    max_size=25,
)
TARGETS = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("\n\r\"'\\{}#%<>&-1 5")), max_size=30)


def documents(data: bytes) -> list[tuple[Format, Document]]:
    found = []
    for known in FORMATS:
        try:
            found.append((known, known.read(data, LANGUAGES)))
        except DocumentError:
            continue
    return found


@given(lines=LINES, line_end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_d_1_any_lines_come_back_the_same(lines: list[str], line_end: str) -> None:
    for start in ("", f"WEBVTT{line_end}{line_end}"):
        data = (start + line_end.join(lines)).encode()
        for _, document in documents(data):
            assert document.merge({}, PLAIN).data == data
            assert document.merge({unit.id: unit.source.text for unit in document.units}, PLAIN).data == data


@given(lines=LINES, target=TARGETS)
def test_v_1_any_target_is_refused_or_leaves_a_readable_file(lines: list[str], target: str) -> None:
    for start in ("", "WEBVTT\n\n"):
        for known, document in documents((start + "\n".join(lines)).encode()):
            targets = {unit.id: f"{target}{unit.source.text}" for unit in document.units}
            faults = {unit.id for unit in document.units if document.fault(unit, targets[unit.id])}
            merged = document.merge(targets, MergeOptions(LANGUAGES))
            assert faults <= set(merged.rejected) | {unit.id for unit in document.units if not target}
            again = known.read(merged.data, LANGUAGES)
            if known.name in {"srt", "vtt"}:
                assert _timings(merged.data) == _timings(document.merge({}, PLAIN).data)
                assert [unit.id for unit in again.units] == [unit.id for unit in document.units]


def _timings(data: bytes) -> list[bytes]:
    return re.findall(rb"[\d:.,]+ ?--> ?[\d:.,]+.*", data)


@given(
    text=st.text(st.sampled_from("ab <i>{}\\/-'\"1é中\u200b\n"), max_size=60),
    n=st.integers(1, 4),
    width=st.integers(4, 50),
)
def test_a_layout_loses_nothing_but_spaces(text: str, n: int, width: int) -> None:
    lines = lay_out(text, "source", n_source_lines=n, limits=CueLimits(max_cells=width)) if text.strip() else []
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(line.strip() == line and line for line in lines)
    assert len(lines) <= max(2, n)


@given(value=st.text(st.characters(exclude_characters="{}"), max_size=60))
def test_any_json_string_is_read_and_written(value: str) -> None:
    for is_ascii in (True, False):
        text = json.dumps({"k": [value]}, ensure_ascii=is_ascii)
        try:
            document = JsonCatalogueFormat().read(text.encode("utf-8", "surrogatepass"), LANGUAGES)
        except DocumentError:  # a lone surrogate has no bytes
            assert re.search("[\ud800-\udfff]", text)
            continue
        assert [unit.source.text for unit in document.units] == [value.strip()] * bool(value.strip())
        merged = document.merge({unit.id: f"{unit.source.text}é" for unit in document.units}, PLAIN)
        if not merged.rejected and value.strip():
            lead, trail = value[: len(value) - len(value.lstrip())], value[len(value.rstrip()) :]
            assert json.loads(merged.data) == {"k": [f"{lead}{value.strip()}é{trail}"]}


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=12,
)


@given(value=JSON, indent=st.sampled_from([None, 1, "\t"]), is_ascii=st.booleans())
def test_what_python_writes_is_read_and_only_texts_change(
    value: object, indent: int | str | None, is_ascii: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    parse_json(text)
    try:
        document = JsonCatalogueFormat().read(text.encode("utf-8", "surrogatepass"), LANGUAGES)
    except DocumentError:
        assert re.search("[\ud800-\udfff\0]", text)
        return
    merged = document.merge({unit.id: f"{unit.source.text} é" for unit in document.units}, PLAIN)
    assert _without_texts(json.loads(merged.data)) == _without_texts(value)


def _without_texts(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_texts(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_without_texts(item) for item in value]
    return "" if isinstance(value, str) else value


@given(words=st.text(st.sampled_from("ab'{}#<| "), max_size=20), in_plural=st.booleans(), doubles=st.booleans())
@settings(max_examples=200)
def test_words_of_a_message_are_quoted_without_loss(words: str, in_plural: bool, doubles: bool) -> None:
    quoted = quoted_words(words, in_plural=in_plural, doubles_apostrophes=doubles)
    assert parse_message(quoted, in_plural=in_plural) == ((Words(words),) if words else ())


MESSAGE_PARTS = st.lists(
    st.sampled_from(
        [
            *("{n, plural, ", "one {", "other {", "=1 {", "offset:1 ", "}", "{", "#", "'", "text", " ", "{x}", "<b>"),
            *("{d, date}", "{s, select, ", "a {", ","),
        ]
    ),
    max_size=14,
)


@given(parts=MESSAGE_PARTS)
@settings(max_examples=200)
def test_any_message_is_refused_or_written_back_readable(parts: list[str]) -> None:
    text = "".join(parts)
    try:
        branches = branches_of(parse_message(text), LANGUAGES)
    except (MessageSyntaxError, UntranslatableMessageError):
        return
    for branch in branches:
        written = written_branch(branch, branch.source.text, MessageStyle())
        parse_message(written, in_plural=branch.is_in_plural)


@given(
    value=st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from('\n\t\\" ')), max_size=200),
    width=st.sampled_from([0, 20, 79]),
)
def test_any_string_of_gettext_is_written_and_read(value: str, width: int) -> None:
    text = f'msgid "x"\nmsgstr {PoStyle(chr(10), width).written(value, keyword="msgstr")}\n'
    if "\r" in escaped(value).replace("\\r", ""):
        return
    assert parse_po(text)[0].targets[0].value == value


@given(
    text=st.text(st.sampled_from("%d s1$(){}n.*-#5"), max_size=20),
    flag=st.sampled_from(["c-format", "python-format", "python-brace-format", "x-format"]),
)
def test_a_message_never_has_a_fault_against_itself(text: str, flag: str) -> None:
    rules = format_rules(frozenset({flag}))
    assert rules.fault(text, text) is None
    assert rules.in_order(text, text) == text


@given(expression=st.text(st.sampled_from("n0123456789%+-*/<>=!&|?:() "), max_size=40))
@settings(max_examples=200)
def test_d_6_any_plural_expression_is_refused_or_has_examples(expression: str) -> None:
    try:
        forms = parse_plural_forms(f"nplurals=3; plural={expression};")
    except DocumentError:
        return
    assert len(forms.slots) == 3


@given(
    number=st.integers(0, 10_000_000),
    before=st.text(max_size=5),
    script=st.sampled_from("0٠०"),
    separator=st.sampled_from(["", ",", " ", "\u202f", "."]),
)
def test_a_number_is_found_in_any_digits_and_groups(number: int, before: str, script: str, separator: str) -> None:
    digits = f"{number:,}".replace(",", separator).translate({ord("0") + n: ord(script) + n for n in range(10)})
    text = f"{re.sub(r'[0-9.,]', '', ''.join(c for c in before if not c.isdigit()))}x{digits} y"
    assert [span.of(text) for span in number_spans(text, str(number), kept=NEVER)] == [digits]
    assert replace_number(text, str(number), "%d", kept=NEVER) == text.replace(digits, "%d")


# Size


def _srt(n: int) -> bytes:
    return "".join(
        f"{i}\n00:00:01,000 --> 00:00:02,000\nLine {i} <i>is</i> here,\nand goes on.\n\n" for i in range(n)
    ).encode()


def _vtt(n: int) -> bytes:
    return b"WEBVTT\n\n" + _srt(n).replace(b",000", b".000")


def _po(n: int) -> bytes:
    return "".join(f'#: a.c:{i}\n#, c-format\nmsgid "Line {i} has %d words"\nmsgstr ""\n\n' for i in range(n)).encode()


def _json(n: int) -> bytes:
    return json.dumps({f"key {i}": f"Line {i} of {{name}}" for i in range(n)}).encode()


@pytest.mark.parametrize(
    ("known", "make"),
    list(zip(FORMATS, (_srt, _vtt, _po, _json), strict=True)),
    ids=lambda each: getattr(each, "name", ""),
)
def test_v_5_four_times_the_size_takes_four_times_the_calls(known: Format, make: Callable[[int], bytes]) -> None:
    n_calls(known, make(1))  # what is found out once
    assert n_calls(known, make(400)) < 4.5 * n_calls(known, make(100))


@pytest.mark.parametrize(
    "piece",
    [
        "{n, plural, one {a file} other {# files}} ",
        "{n%d, plural, one {a file} other {# files}} ",
        "{n%d, plural, other {# files}} ",
        "{n, select, a {her} other {their}} ",
        "{n%d, select, other {their}} ",
        "{n%d, select, a {her} other {their}} ",
        "{n} has {a%d} and {b, number, integer} ",
        "<b>a</b> ",
        "<a ",
        "'{'a'}' ",
        "it''s ",
        "1 # 2 ",
    ],
)
@pytest.mark.parametrize("frame", ["%s", "{m, plural, one {a} other {%s}}"])
def test_v_5_twice_as_much_in_one_message_takes_twice_the_calls_or_is_left_alone(piece: str, frame: str) -> None:
    def message(n: int) -> bytes:
        inner = "".join(piece.replace("%d", str(i)) for i in range(n))
        return json.dumps({"a": frame.replace("%s", inner), "b": "{n, plural, other {a}}"}).encode()

    known = JsonCatalogueFormat()
    n_calls(known, message(1))  # what is found out once
    assert n_calls(known, message(800)) < 2.5 * n_calls(known, message(400))


def test_d_6_a_number_of_thousands_of_digits_is_no_example() -> None:
    digits = "7" * 6000
    message = f"{{n, plural, one {{a file}} other {{# files of {digits}}}}}"
    document = JsonCatalogueFormat().read(json.dumps({"a": message}).encode(), LANGUAGES)
    assert all(document.fault(unit, unit.source.text) is None for unit in document.units)
    assert all(document.fault(unit, digits) for unit in document.units if digits not in unit.source.text)
    assert any(digits in unit.source.text for unit in document.units)


def n_calls(known: Format, data: bytes) -> int:
    """Count what reading and filling a document calls: work that does not depend on the machine."""
    calls: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: calls.update([event]) if event in {"call", "c_call"} else None)
    try:
        document = known.read(data, LANGUAGES)
        merged = document.merge({unit.id: f"{unit.source.text}!" for unit in document.units}, PLAIN)
    finally:
        sys.setprofile(before)
    assert merged.rejected == {}
    return calls.total()
