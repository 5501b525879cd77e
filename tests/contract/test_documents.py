"""What every document format promises, held against its samples, the corpora and random bytes.

A new format passes these tests when it stands in the registry and has samples in `tests/golden/documents/<name>/`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hymt_local.documents.base import Document, Format, Languages, MergeOptions, Unit
from hymt_local.documents.registry import FORMATS, format_named, format_of
from hymt_local.errors import DocumentError
from hymt_local.segment import TokenKind, UnitText

GOLDEN = Path(__file__).parents[1] / "golden" / "documents"
LANGUAGES = Languages("en", "fr")
PLAIN = MergeOptions(LANGUAGES, sets_metadata=False)
CORPORA: Mapping[str, tuple[str, ...]] = {
    "text": ("formats-own/hard-wrapped.txt", "lid/README.md", "LICENSES.md"),
    "markdown": ("formats-own/gfm-frontmatter.md", "LICENSES.md", "lid/README.md", "ntrex/LICENSE.md"),
    "html": ("udhr/*.html",),
    "srt": ("formats-own/bom-crlf-coords.srt", "subtitles/*.srt"),
    "vtt": ("subtitles/*.vtt",),
    "po": ("po/*.po",),
    "json": ("formats-own/icu.json",),
}
"""Format -> files of the shared corpora, as globs."""

END = "QzEndzQ"

Translate = Callable[[Unit, int], str | None]
"""From a unit and its place to its target; None for none."""

SAMPLES = [
    pytest.param(known, path, id=f"{known.name}-{path.name}")
    for known in FORMATS
    for path in sorted((GOLDEN / known.name).glob("*"))
]


@pytest.fixture(params=FORMATS, ids=lambda known: known.name)
def known(request: pytest.FixtureRequest) -> Format:
    return request.param


@pytest.fixture
def corpus(known: Format, shared_data: Path) -> Mapping[str, bytes]:
    """The files of one format, the golden samples among them."""
    paths = sorted((GOLDEN / known.name).glob("*"))
    paths += [path for pattern in CORPORA.get(known.name, ()) for path in sorted(shared_data.glob(pattern))]
    files = {path.name: path.read_bytes() for path in paths}
    if known.name == "markdown":
        examples = json.loads((shared_data / "commonmark" / "spec-0.31.2.json").read_text(encoding="utf-8"))
        files |= {f"example {each['number']}": each["markdown"].replace("→", "\t").encode() for each in examples}
    return files


def read(known: Format, data: bytes) -> Document:
    """Read once, for all tests: documents are immutable."""
    return _read(known.name, data)


@cache
def _read(name: str, data: bytes) -> Document:
    return format_named(name).read(data, LANGUAGES)


def targets_of(document: Document, translate: Translate) -> dict[str, str]:
    answers = {unit.id: translate(unit, place) for place, unit in enumerate(document.units)}
    return {unit_id: answer for unit_id, answer in answers.items() if answer is not None}


def echo(unit: Unit, place: int) -> str:
    return unit.source.text


def bracketed(unit: Unit, place: int) -> str:
    """A target that is unlike all others, keeps what is protected, and can be written in any encoding and markup."""
    return f"{_mark(place)}{unit.source.text} {END}"


BILINGUAL_CATALOGUES = {"po"}
"""Their documents hold both languages: what is translated may be no unit any more."""


# Identity


@pytest.mark.parametrize(("known", "path"), SAMPLES)
def test_d_1_a_document_without_targets_is_what_was_read(known: Format, path: Path) -> None:
    data = path.read_bytes()
    assert known.read(data, LANGUAGES).merge({}, PLAIN).data == data


def test_d_1_echo_gives_back_every_byte(known: Format, corpus: Mapping[str, bytes]) -> None:
    assert corpus
    for name, data in corpus.items():
        document = read(known, data)
        merged = document.merge(targets_of(document, echo), PLAIN)
        assert (name, merged.data) == (name, data)
        assert merged.rejected == {}


@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_d_1_echo_gives_back_other_line_ends_too(known: Format, corpus: Mapping[str, bytes], line_end: str) -> None:
    for name, original in corpus.items():
        if b"\r" in original or original.startswith((b"\xff\xfe", b"\xfe\xff")):
            continue
        data = original.replace(b"\n", line_end.encode())
        document = read(known, data)
        assert (name, document.merge(targets_of(document, echo), PLAIN).data) == (name, data)


# Units


def test_units_are_unique_stable_and_well_formed(known: Format, corpus: Mapping[str, bytes]) -> None:
    for name, data in _some(corpus):
        units = known.read(data, LANGUAGES).units
        repeated = [unit_id for unit_id, n in Counter(unit.id for unit in units).items() if n > 1]
        assert (name, repeated) == (name, [])
        assert [(unit.id, unit.source) for unit in known.read(data, LANGUAGES).units] == [
            (unit.id, unit.source) for unit in units
        ]
        for unit in units:
            assert fault_of(unit.source) is None, (name, unit)
            assert unit.location, (name, unit)


def fault_of(source: UnitText) -> str | None:
    """Say what is wrong with a unit's text and its protected spans."""
    if not source.text or source.text != source.text.strip():
        return "outer whitespace"
    position, opened = 0, list[int]()
    for protected in source.protected:
        if not position <= protected.span.start < protected.span.end <= len(source.text):
            return "protected spans overlap, are empty, or reach beyond the text"
        position = protected.span.end
        if protected.kind is TokenKind.OPEN:
            opened.append(protected.pair)
        elif protected.kind is TokenKind.CLOSE and (not opened or opened.pop() != protected.pair):
            return "pairs are not properly nested"
    return "a pair is not closed" if opened else None


# Pseudo-localization


def test_d_2_pseudo_changes_every_unit_and_keeps_the_skeleton(known: Format, corpus: Mapping[str, bytes]) -> None:
    for name, data in _some(corpus):
        document = read(known, data)
        merged = document.merge(targets_of(document, bracketed), PLAIN)
        encodable = {unit.id: unit for unit in document.units if unit.id not in merged.rejected}
        again = known.read(merged.data, LANGUAGES).units
        if known.name in BILINGUAL_CATALOGUES:
            assert {_message(unit) for unit in again} <= {_message(unit) for unit in document.units}, name
        else:
            assert (name, [_shape(unit) for unit in again]) == (name, [_shape(unit) for unit in document.units])
        text = merged.data.decode(_encoding(merged.data), "replace")
        assert (name, text.count(END)) == (name, len(encodable))


def test_v_2_every_target_stands_where_its_source_stood(known: Format, corpus: Mapping[str, bytes]) -> None:
    for name, data in _some(corpus):
        document = read(known, data)
        merged = document.merge(targets_of(document, bracketed), PLAIN)
        if merged.rejected:
            continue
        text = merged.data.decode(_encoding(merged.data), "replace")
        positions = [text.find(_mark(place).strip()) for place in range(len(document.units))]
        assert (name, positions) == (name, sorted(positions))
        assert -1 not in positions, name


def test_d_2_only_what_is_given_changes(known: Format, corpus: Mapping[str, bytes]) -> None:
    """Each unit alone: taking its target away again gives the document back."""
    for name, data in _some(corpus):
        document = read(known, data)
        for unit in document.units[:: 1 + len(document.units) // 5]:
            merged = document.merge({unit.id: bracketed(unit, 7)}, PLAIN)
            text = merged.data.decode(_encoding(data), "replace")
            n_marks = text.count(_mark(7).strip())
            assert (name, n_marks) == (name, 0 if merged.rejected else 1)


def _message(unit: Unit) -> str:
    """Return the message of a catalogue that a unit is a plural form of."""
    return unit.id.partition("[")[0]


def _shape(unit: Unit) -> tuple[object, ...]:
    """What of a unit does not depend on its language."""
    return sorted(unit.source.groups), [token.kind for token in unit.source.protected]


def _mark(place: int) -> str:
    return f"Qz{place}zQ "


def _encoding(data: bytes) -> str:
    marks = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
    return marks.get(data[:2], "utf-8")


# Bad targets


MANGLED: Mapping[str, Callable[[str], str]] = {
    "markup": lambda source: f"<b>{source} & </p> --> ]]> **x** `y` | z",
    "quotes": lambda source: f'"{source}\' \\ \\" {{ }} %s',
    "lines": lambda source: f"{source}\n\n# more\n- lines\n===\n00:00:01,000 --> 00:00:02,000\n{source}",
    "preamble": lambda source: f"Sure! Here is the translation:\n\n{source}\n",
    "backslash": lambda source: f"{source}\\",
    "control": lambda source: f"\x00{source}\x1b[2J\x7f\u2028\ud800",
    "bidi": lambda source: f"\u202e{source}\u2066",
    "structure": lambda source: f"1. {source}\n> # | - + * === --- ``` ~~~",
    "empty": lambda source: "",
    "blank": lambda source: " \t\n ",
    "long": lambda source: f"{source} " * 50,
}


@pytest.mark.parametrize("kind", MANGLED)
def test_v_1_a_mangled_target_never_makes_an_unreadable_document(
    known: Format, corpus: Mapping[str, bytes], kind: str
) -> None:
    for name, data in _some(corpus):
        document = read(known, data)
        mangled = {unit.id: MANGLED[kind](unit.source.text) for unit in document.units}
        targets = {unit.id: mangled[unit.id] for unit in document.units if _is_let_through(document, unit, mangled)}
        merged = document.merge(targets, PLAIN)
        again = known.read(merged.data, LANGUAGES)
        assert (name, len(again.units) >= len(document.units) - len(targets)) == (name, True)


def _is_let_through(document: Document, unit: Unit, mangled: Mapping[str, str]) -> bool:
    """Tell whether a target passes: it is not empty, and the format has nothing against it."""
    target = mangled[unit.id]
    return bool(target.strip()) and document.fault(unit, target) is None


def _some(corpus: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the own samples and a part of the large corpora."""
    names = list(corpus)
    yield from ((name, corpus[name]) for name in names[:: 1 + len(names) // 14])


def test_v_1_nothing_is_lost_when_every_unit_fails(known: Format, corpus: Mapping[str, bytes]) -> None:
    for name, data in _some(corpus):
        document = read(known, data)
        assert (name, document.merge({}, PLAIN).data) == (name, data)


def test_a_few_failed_units_keep_their_source(known: Format, corpus: Mapping[str, bytes]) -> None:
    """Half of the targets, then all: those of the first half do not depend on the others."""
    for name, data in _some(corpus):
        document = read(known, data)
        half = document.merge(
            targets_of(document, lambda unit, place: None if place % 2 else bracketed(unit, place)), PLAIN
        )
        text = half.data.decode(_encoding(half.data), "replace")
        missing = [place for place in range(1, len(document.units), 2) if _mark(place).strip() in text]
        assert (name, missing) == (name, [])


def test_d_4_what_the_encoding_lacks_is_rejected_and_nothing_else(known: Format, corpus: Mapping[str, bytes]) -> None:
    for name, data in _some(corpus):
        document = read(known, data)
        merged = document.merge(targets_of(document, lambda unit, place: f"{unit.source.text} \ud800"), PLAIN)
        assert (name, set(merged.rejected)) == (name, {unit.id for unit in document.units})
        assert (name, merged.data) == (name, data)


# Both languages


def test_d_8_a_bilingual_document_holds_source_and_target(known: Format) -> None:
    if not known.can_be_bilingual:
        return
    options = MergeOptions(LANGUAGES, is_bilingual=True, sets_metadata=False)
    for path in sorted((GOLDEN / known.name).glob("*")):
        data = path.read_bytes()
        document = read(known, data)
        merged = document.merge(targets_of(document, bracketed), options)
        known.read(merged.data, LANGUAGES)
        text = merged.data.decode(_encoding(data), "replace")
        assert text.count(END) == len(document.units) - len(merged.rejected), path.name
        assert document.merge({}, options).data == data


# Hostile input


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"a\0b",
        b"\xff\xfe\xff",
        b"\xed\xa0\x80",
        b"\xff\xfe\x00\xd8",
        b"PK\x03\x04" + bytes(range(256)),
        b"[" * 20_000,
        b'{"a":' * 20_000,
        b"> " * 5_000 + b"deep",
        b"- " * 5_000 + b"deep",
        b"<div>" * 5_000,
        b"<b " * 5_000,
        b"*a **b " * 5_000,
        b"[a](" * 5_000,
        b"{a, plural, other {" * 2_000,
        b"```\nunclosed fence, then text",
        b"word " * 200_000,
        b"x" * 1_000_000,
        b"&" * 100_000,
        b"\\" * 100_000,
        b"\n" * 100_000,
        b'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=CHARSET\\n"\n\n# \xc3\xa9\nmsgid "a"\nmsgstr ""\n',
    ],
    ids=lambda data: repr(data[:12]),
)
def test_d_6_hostile_bytes_are_refused_or_come_back_the_same(known: Format, data: bytes) -> None:
    assert_identity_or_refusal(known, data)


def assert_identity_or_refusal(known: Format, data: bytes) -> None:
    try:
        document = read(known, data)
    except DocumentError:
        return
    assert document.merge(targets_of(document, echo), PLAIN).data == data
    assert len({unit.id for unit in document.units}) == len(document.units)
    assert all(fault_of(unit.source) is None for unit in document.units)


def test_d_6_an_empty_document_has_no_unit_or_is_refused(known: Format) -> None:
    assert_identity_or_refusal(known, b"")


@given(data=st.binary(max_size=200))
def test_d_6_any_bytes_are_refused_or_come_back_the_same(data: bytes) -> None:
    for known in FORMATS:
        assert_identity_or_refusal(known, data)


FRAGMENTS = st.sampled_from(
    [
        *"aBé你\n\r\t#>-*_`~|[]()<>&;\"'\\{}:,%$=1", "\r\n", "00:00:01,000 --> 00:00:02,000", "<b>", "</b>", "<!--",
        "-->", "&amp;", "msgid", "msgstr", '""', "{{", "}}", "${x}", "%s", "WEBVTT", "NOTE", "```", "---", "1.",
        "{n, plural, one {#} other {#}}",
    ]
)  # fmt: skip


@given(parts=st.lists(FRAGMENTS, max_size=40))
def test_d_6_any_arrangement_of_syntax_is_refused_or_comes_back_the_same(parts: list[str]) -> None:
    for separator in ("", " ", "\n"):
        data = separator.join(parts).encode()
        for known in FORMATS:
            assert_identity_or_refusal(known, data)


@given(data=st.data())
def test_d_6_damaged_samples_are_refused_or_come_back_the_same(data: st.DataObject) -> None:
    for known in FORMATS:
        samples = sorted((GOLDEN / known.name).glob("*"))
        sample = data.draw(st.sampled_from(samples)).read_bytes()
        start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(sample))] * 2)))
        assert_identity_or_refusal(known, sample[:start] + data.draw(st.binary(max_size=8)) + sample[end:])


OPENED = (
    *(
        "---",
        "+++",
        "```",
        "~~~",
        "<!--",
        "<script>",
        "<pre>",
        "<p title='",
        "<![CDATA[",
        "<?xml",
        "{{",
        "{%",
        "$$",
        "[a]: (",
    ),
    *(
        "WEBVTT",
        "WEBVTT\n\nNOTE",
        "WEBVTT\n\nSTYLE",
        "1\n00:00:01,000 --> 00:00:02,000",
        'msgid "',
        'msgid ""',
        '{"a": [',
    ),
    *('{"a": "{n, plural, one {', "| a | b |\n| - | - |", "- a", "> a", "**", "[", "%(", "<a"),
)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"], ids=repr)
@pytest.mark.parametrize("opened", OPENED)
def test_d_6_what_is_opened_and_never_closed_is_read_whatever_the_line_ends(opened: str, line_end: str) -> None:
    for rest in ("title: some words", "", '"some words"', "# a", "  some: {words"):
        data = "\n".join((opened, *[rest] * 60, "")).replace("\n", line_end).encode()
        for known in FORMATS:
            assert_identity_or_refusal(known, data)


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw what may become of a file: bytes turned, cut out, doubled, moved, and syntax put in between."""
    for _ in range(draw(st.integers(1, 5))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        end = min(end, start + 200)
        place = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["turn", "cut", "double", "move", "syntax", "bytes", "line ends"])):
            case "line ends":
                data = data.replace(b"\r\n", b"\n").replace(b"\n", draw(st.sampled_from([b"\r\n", b"\r"])))
            case "turn":
                mask = draw(st.integers(1, 255))
                data = data[:start] + bytes(byte ^ mask for byte in data[start : start + 3]) + data[start + 3 :]
            case "cut":
                data = data[:start] + data[end:]
            case "double":
                data = data[:end] + data[start:end] * draw(st.integers(1, 4)) + data[end:]
            case "move":
                data = (data[:start] + data[end:])[:place] + data[start:end] + (data[:start] + data[end:])[place:]
            case "syntax":
                data = data[:place] + draw(FRAGMENTS).encode() + data[place:]
            case "bytes":
                data = data[:place] + draw(st.binary(max_size=4)) + data[place:]
    return data


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_d_6_mutated_files_of_the_corpora_lose_no_byte(
    known: Format, corpus: Mapping[str, bytes], data: st.DataObject
) -> None:
    small = [each for each in corpus.values() if len(each) <= 20_000]
    mutant = data.draw(mutated(data.draw(st.sampled_from(small))))
    assert_identity_or_refusal(known, mutant)
    try:
        document = known.read(mutant, LANGUAGES)
    except DocumentError:
        return
    assert document.merge({}, PLAIN).data == mutant
    for mangle in (MANGLED["markup"], MANGLED["structure"]):
        bad = {unit.id: mangle(unit.source.text) for unit in document.units}
        kept = {unit.id: bad[unit.id] for unit in document.units if _is_let_through(document, unit, bad)}
        known.read(document.merge(kept, PLAIN).data, LANGUAGES)


# The registry


def test_names_and_extensions_are_unique_and_lead_to_their_format() -> None:
    for texts in ([known.name for known in FORMATS], [ending for known in FORMATS for ending in known.extensions]):
        assert len(set(texts)) == len(texts)
        assert all(text == text.casefold() for text in texts)
    for known in FORMATS:
        assert format_named(known.name.upper()) is known
        for ending in known.extensions:
            assert ending.startswith(".")
            assert format_named(ending) is format_of(f"some/Report{ending.upper()}", b"") is known


def test_every_format_has_samples() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {known.name for known in FORMATS}
    assert all(any((GOLDEN / known.name).iterdir()) for known in FORMATS)


def test_content_tells_the_format_where_the_extension_does_not(corpus: Mapping[str, bytes], known: Format) -> None:
    if known.name == "markdown":
        return  # any text is Markdown, HTML too
    for name, data in _some(corpus):
        for other in FORMATS:
            if other.sniffs(data[:4096]) and other is not known:
                pytest.fail(f"{other.name} takes {name} for its own")


@pytest.mark.parametrize("name", ["photo.jpeg", "README", "archive.tar.gz", ".hidden"])
def test_an_unknown_type_is_refused_and_the_known_ones_are_named(name: str) -> None:
    with pytest.raises(DocumentError, match="cannot translate") as refused:
        format_of(name, b"nothing that anybody knows")
    assert "text" in refused.value.hint


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(DocumentError, match="unknown format 'word'"):
        format_named("word")
