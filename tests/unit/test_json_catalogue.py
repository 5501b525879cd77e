"""JSON catalogues: which strings are messages, and that nothing but them changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hymt_local.documents.base import Languages, MergeOptions
from hymt_local.documents.json_catalogue import JsonCatalogueFormat, JsonDocument
from hymt_local.documents.json_spans import MAX_DEPTH, JsonArray, JsonObject, JsonString, JsonValue, parse_json
from hymt_local.engine.echo import pseudo_localize
from hymt_local.errors import DocumentError
from hymt_local.segment import TokenGroup, TokenKind

GOLDEN = Path(__file__).parents[1] / "golden" / "documents" / "json"
GERMAN = Languages("en", "de")
OPTIONS = MergeOptions(GERMAN)


def read(text: str, languages: Languages = GERMAN) -> JsonDocument:
    return JsonCatalogueFormat().read(text.encode(), languages)


def sources(text: str) -> dict[str, str]:
    return {unit.id: unit.source.text for unit in read(text).units}


def filled(text: str, change: Callable[[str], str] = lambda source: f"{source}!") -> str:
    document = read(text)
    merged = document.merge({unit.id: change(unit.source.text) for unit in document.units}, OPTIONS)
    assert merged.rejected == {}
    return merged.data.decode()


# Which strings are messages


def test_nested_keys_and_arrays_are_messages_and_nothing_else_is() -> None:
    text = '{"a": {"b": "One"}, "c": ["Two", 3, null, true, ["Four"]], "d": "", "$schema": "./x.json", "e": 1e3}'
    assert sources(text) == {"/a/b": "One", "/c/0": "Two", "/c/4/0": "Four"}
    assert filled(text) == (
        '{"a": {"b": "One!"}, "c": ["Two!", 3, null, true, ["Four!"]], "d": "", "$schema": "./x.json", "e": 1e3}'
    )


def test_of_an_extension_only_messages_are_translated() -> None:
    document = JsonCatalogueFormat().read((GOLDEN / "messages.json").read_bytes(), GERMAN)
    assert [(unit.id, unit.source.text, unit.note) for unit in document.units] == [
        ("/appName/message", "Reader", "The name of the extension"),
        ("/greeting/message", "Hello $USER$, you are number $1", ""),
    ]
    protected = [each.span.of(document.units[1].source.text) for each in document.units[1].source.protected]
    assert protected == ["$USER$", "$1"]


def test_of_vs_code_strings_and_described_messages_are_translated() -> None:
    text = '{"a": "Plain {0}", "b": {"message": "Described", "comment": ["First", "second"]}}'
    assert [(unit.source.text, unit.note) for unit in read(text).units] == [
        ("Plain {0}", ""),
        ("Described", "First\nsecond"),
    ]


def test_an_object_that_only_has_a_key_named_message_is_no_description() -> None:
    assert sources('{"chat": {"message": "Message", "send": "Send"}}') == {
        "/chat/message": "Message",
        "/chat/send": "Send",
    }


def test_of_formatjs_default_messages_are_translated_and_compiled_ones_are_not() -> None:
    text = '[{"id": "a", "defaultMessage": "Hi {name}", "description": "Greets"}, [{"type": 0, "value": "x"}]]'
    assert [(unit.id, unit.source.text, unit.note) for unit in read(text).units] == [
        ("/0/defaultMessage", "Hi {name}", "Greets")
    ]


def test_d_7_of_arb_the_locale_follows_and_metadata_stays() -> None:
    data = (GOLDEN / "app.arb").read_bytes()
    languages = Languages("en", "zh-Hant")
    document = JsonCatalogueFormat().read(data, languages)
    assert [(unit.id, unit.source.text, unit.note) for unit in document.units] == [
        ("/hello", "Hello, {name}!", "Greets the user"),
        ("/dontQuote", "It's {name}'s turn", ""),
        ("/files#count:=0", "No files left", "Below the list\ncount:=0"),
        ("/files#count:=1", "One file left", "Below the list\ncount:=1"),
        ("/files#count:other", "2 files left", "Below the list\ncount:other"),
    ]
    written = document.merge({}, MergeOptions(languages)).data
    assert written == data.replace(b'"@@locale": "en"', b'"@@locale": "zh_Hant"')


def test_keys_that_repeat_are_units_of_their_own() -> None:
    text = '{"a": "One", "a": "Two", "a/b": "Three", "": "Four", "a": {"x": "Five"}}'
    assert sources(text) == {"/a": "One", "/a#2": "Two", "/a~1b": "Three", "/": "Four", "/a/x": "Five"}
    assert filled(text).count("!") == 5


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Hi {{name}}, {{- raw}} and {{{html}}}", ["{{name}}", "{{- raw}}", "{{{html}}}"]),
        ("See $t(common.title) and $t(key, {'count': 1})", ["$t(common.title)", "$t(key, {'count': 1})"]),
        ("See @:common.terms, @.lower:a.b and @:(c).", ["@:common.terms", "@.lower:a.b", "@:(c)"]),
        ("In ${HOME} at {0} with %s, %1$s and %{x}", ["${HOME}", "{0}", "%s", "%1$s", "%{x}"]),
        ("one car | {n} cars", ["|", "{n}"]),
        ("100% sure, $5 off, a@b.example", []),
    ],
)
def test_placeholders_are_protected(text: str, tokens: list[str]) -> None:
    (unit,) = read(json.dumps({"k": text})).units
    assert [each.span.of(unit.source.text) for each in unit.source.protected] == tokens
    assert unit.source.groups == {TokenGroup.TEXT, TokenGroup.JSON_CATALOGUE}


def test_tags_are_protected_in_pairs() -> None:
    (unit,) = read('{"k": "Read <1>the <b>terms</b></1><br/> now {{x}}"}').units
    kinds = [each.kind for each in unit.source.protected]
    assert kinds == [*[TokenKind.OPEN] * 2, *[TokenKind.CLOSE] * 2, *[TokenKind.ATOMIC] * 2]


@pytest.mark.parametrize("target", ["Hallo", "Hallo {{nombre}}", "Hallo {{name}} {{name}}", "{{name}} {x}", " "])
def test_v_1_a_lost_translated_or_added_placeholder_is_a_fault(target: str) -> None:
    document = read('{"k": "Hello {{name}}"}')
    assert document.fault(document.units[0], target)
    assert document.fault(document.units[0], "Hallo {{name}}") is None
    merged = document.merge({"/k": target}, OPTIONS)
    assert (list(merged.rejected), merged.data) == (["/k"], b'{"k": "Hello {{name}}"}')


# How they are written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (
            '{\t"a":"x",\r\n "n":12345678901234567890 , "f" : -1.50e+3}\n',
            '{\t"a":"x!",\r\n "n":12345678901234567890 , "f" : -1.50e+3}\n',
        ),
        ('{"a": "  x\\n"}', '{"a": "  x!\\n"}'),
        ('{"a": "\\u0041 \\"q\\" \\\\ \\/ "}', '{"a": "A \\"q\\" \\\\ \\/! "}'),
        ('{"a": "caf\\u00e9"}', '{"a": "caf\\u00e9!"}'),
        ('{"a": "caf\\u00E9 \\ud83d\\ude00"}', '{"a": "caf\\u00E9 \\uD83D\\uDE00!"}'),
        ('{"a": "caf\\u00e9", "b": "é"}', '{"a": "café!", "b": "é!"}'),
        ('{"a": "x \\u003cb\\u003e y"}', '{"a": "x \\u003cb\\u003e y!"}'),
    ],
)
def test_strings_are_written_as_the_file_writes_them(text: str, written: str) -> None:
    assert filled(text) == written
    assert json.loads(filled(text)) == json.loads(written)


def test_a_file_of_escapes_stays_ascii_whatever_the_language() -> None:
    assert filled('{"a": "caf\\u00e9"}', lambda source: "咖啡😀").isascii()
    assert filled('{"a": "cafe"}', lambda source: "咖啡") == '{"a": "咖啡"}'


def test_a_byte_order_mark_and_utf_16_stay() -> None:
    for encoding in ("utf-8-sig", "utf-16"):
        data = '{"a": "x"}'.encode(encoding)
        document = JsonCatalogueFormat().read(data, GERMAN)
        assert document.merge({"/a": "ß"}, OPTIONS).data == '{"a": "ß"}'.encode(encoding)


def test_d_4_a_lone_surrogate_in_the_source_stays_and_in_a_target_is_rejected() -> None:
    document = read('{"a": "x \\ud800"}')
    assert document.merge({"/a": "x \ud800"}, OPTIONS).data == b'{"a": "x \\ud800"}'
    assert list(document.merge({"/a": "y \ud800"}, OPTIONS).rejected) == ["/a"]


MANGLED: Mapping[str, Callable[[str], str]] = {
    "quotes": lambda source: f'"{source}" \\ \\" ',
    "lines": lambda source: f"\n{source}\r\n\t\x00\x1f\u2028",
    "braces": lambda source: f"{{{source}}} {{ }} '{{' '' '",
    "syntax": lambda source: f'{source}", "x": [1, 2',
    "upper": str.upper,
    "twice": lambda source: f"{source} {source}",
    "hash": lambda source: f"# {source} #",
}


@pytest.mark.parametrize("kind", MANGLED)
def test_v_1_a_mangler_never_makes_a_file_that_is_not_json(shared_data: Path, kind: str) -> None:
    paths = [*sorted(GOLDEN.glob("*")), shared_data / "formats-own" / "icu.json"]
    for path in paths:
        for target_lang in ("de", "ar", "ja"):
            languages = Languages("en", target_lang)
            document = JsonCatalogueFormat().read(path.read_bytes(), languages)
            targets = {unit.id: MANGLED[kind](unit.source.text) for unit in document.units}
            merged = document.merge(targets, MergeOptions(languages))
            before, after = (json.loads(data.decode("utf-8-sig")) for data in (path.read_bytes(), merged.data))
            assert _shape(after) == _shape(before)
            again = JsonCatalogueFormat().read(merged.data, languages)
            assert len(again.messages) == len(document.messages)


def _shape(value: object) -> object:
    """Return JSON without its texts and without the plural forms that only some languages have."""
    if isinstance(value, dict):
        added = ("_zero", "_two", "_few", "_many")
        return {key: _shape(member) for key, member in value.items() if not key.endswith(added)}
    if isinstance(value, list):
        return [_shape(item) for item in value]
    return "" if isinstance(value, str) else value


def test_d_2_pseudo_changes_messages_only(shared_data: Path) -> None:
    data = (shared_data / "formats-own" / "icu.json").read_bytes()
    document = JsonCatalogueFormat().read(data, GERMAN)
    merged = document.merge({unit.id: pseudo_localize(unit.source.text) for unit in document.units}, OPTIONS)
    before, after = json.loads(data), json.loads(merged.data)
    assert merged.rejected == {}
    assert {key for key in before if before[key] == after[key]} == {"broken"}


# The scanner


def _plain(value: JsonValue) -> object:
    if isinstance(value, JsonString):
        return value.value
    if isinstance(value, JsonArray):
        return [_plain(item) for item in value.items]
    if isinstance(value, JsonObject):
        return {key: _plain(member) for key, member in value.members}
    return json.loads(value.raw)


@pytest.mark.parametrize(
    "text",
    ['{"a": [1, -0.5e-3, {"b": null}], "c": "\\u00e9\\n\\/"}', "[]", "{}", ' "x" ', "true", '[[["a"], []], {}]'],
)
def test_valid_json_is_read_as_python_reads_it(text: str) -> None:
    assert _plain(parse_json(text)) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "[", '{"a"}', '{"a":}', '{"a":1,}', "[1,]", "[1 2]", "01", "1.", "nul", "'a'", '{a: "b"}'),
        *('"a', '"\\x"', '"\\u12"', "[1]]", '{"a":1}{', '{"a":"b\nc"}', "// c\n{}", "[,1]", "{,}", "]", '{1: "a"}'),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(DocumentError, match=r"line \d+, column \d+"):
        parse_json(text)


def test_d_6_deep_nesting_is_refused_at_a_stated_depth() -> None:
    parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(DocumentError, match=f"more than {MAX_DEPTH} levels"):
        parse_json('{"a":' * (MAX_DEPTH + 2) + "1")


def test_d_6_a_long_single_line_takes_linear_time() -> None:
    unclosed = '"' + 'x\\"' * 300_000
    with pytest.raises(DocumentError):
        parse_json(unclosed)
    assert len(read('{"a": "' + "word " * 300_000 + 'end"}').units) == 1


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("".join(f"{{a{n}, select, x {{1}} other {{2}}}} words" for n in range(7)), "more than 100 branches"),
        ("".join(f"{{a{n}, select, other {{2}}}} words" for n in range(17)), "more than 16 choices"),
        ("words " * 9000 + "{a, select, x {1} y {2} z {3} v {4} w {5} other {6}}", "more than 300,000 characters"),
        ("words " * 20_000 + "{a, plural, other {#}}", "more than 100,000 characters"),
        ("{a, plural, other {" * 9 + "words" + "}}" * 9, "nested more than 8 deep"),
        ("{a, plural, one {words}}", "no branch `other`"),
        ("{a, plural, other {words}", "not closed|unexpected"),
    ],
)
def test_a_message_that_cannot_be_translated_whole_is_left_alone_and_named(message: str, reason: str) -> None:
    text = json.dumps({"menu": {"bad": message}, "good": "{n, plural, other {# files}}"})
    document = read(text)
    (told,) = document.left_alone
    assert re.match(rf"key menu\.bad: .*({reason})", told)
    written = document.merge({unit.id: f"{unit.source.text}!" for unit in document.units}, OPTIONS).data
    assert json.loads(written)["menu"]["bad"] == message
    assert "!" in json.loads(written)["good"]


# Plural forms as keys


def test_an_added_plural_form_counts_although_it_is_the_same_as_its_source() -> None:
    text = '{"at_other": "{{count}} km", "x": "Way"}'
    document = read(text)
    same = {unit.id: unit.source.text for unit in document.units}
    assert document.merge(same, OPTIONS).data.decode() == text
    written = document.merge({**same, "/x": "Weg"}, OPTIONS).data.decode()
    assert written == '{"at_other": "{{count}} km", "at_one": "{{count}} km", "x": "Weg"}'


ITEMS = (
    '{\n  "title": "Cart",\n  "items_one": "{{count}} item",\n  "items_other": "{{count}} items",\n  "end": "End"\n}'
)


def test_the_plural_keys_that_the_target_needs_are_added() -> None:
    languages = Languages("en", "ru")
    document = read(ITEMS, languages)
    assert {unit.id: unit.source.text for unit in document.units} == {
        "/title": "Cart",
        "/items_one": "1 item",
        "/items_other": "1.5 items",
        "/items_few": "2 items",
        "/items_many": "5 items",
        "/end": "End",
    }
    targets = {
        "/items_one": "1 предмет",
        "/items_other": "1,5 предмета",
        "/items_few": "2 предмета",
        "/items_many": "5 предметов",
    }
    assert document.merge(targets, MergeOptions(languages)).data.decode() == (
        '{\n  "title": "Cart",\n  "items_one": "{{count}} предмет",\n  "items_other": "{{count}} предмета",\n'
        '  "items_few": "{{count}} предмета",\n  "items_many": "{{count}} предметов",\n  "end": "End"\n}'
    )


def test_a_plural_key_without_a_target_is_not_added() -> None:
    languages = Languages("en", "ru")
    document = read(ITEMS, languages)
    merged = document.merge({"/items_few": "2 предмета", "/items_many": "viele"}, MergeOptions(languages))
    assert list(merged.rejected) == ["/items_many"]
    assert list(json.loads(merged.data)) == ["title", "items_one", "items_other", "items_few", "end"]


@pytest.mark.parametrize(
    ("text", "target_lang", "keys"),
    [
        ('{"n": {"one": "{{count}} day", "other": "{{count}} days"}}', "pl", ["one", "other", "few", "many"]),
        ('{"n": {"other": "{{count}} 日"}}', "en", ["other", "one"]),
        (
            '{"n": {"at_ordinal_one": "{{count}}st", "at_ordinal_other": "{{count}}th"}}',
            "de",
            ["at_ordinal_one", "at_ordinal_other"],
        ),
        ('{"n": {"one": "Pick one", "other": "Pick another"}}', "ru", ["one", "other"]),
        ('{"n": {"one": "{{count}} a", "other": "{{count}} b", "name": "c"}}', "ru", ["one", "other", "name"]),
    ],
)
def test_groups_of_plural_keys_are_told_from_other_keys(text: str, target_lang: str, keys: list[str]) -> None:
    languages = Languages("en", target_lang)
    document = read(text, languages)
    targets = {unit.id: f"{unit.source.text}!" for unit in document.units}
    merged = document.merge(targets, MergeOptions(languages))
    assert merged.rejected == {}
    assert list(json.loads(merged.data)["n"]) == keys
    assert len({unit.id for unit in document.units}) == len(keys)


def test_a_singular_without_its_count_only_serves_the_number_one() -> None:
    text = '{"a_one": "an item", "a_other": "{{count}} items"}'
    assert read(text).units[0].source.text == "an item"
    assert read(text, Languages("en", "ru")).units[0].source.text == "21 items"
