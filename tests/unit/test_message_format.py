"""Messages of ICU: their syntax, their sentences, and their way back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import pytest

from hymt_local.documents.base import Languages, MergeOptions
from hymt_local.documents.json_catalogue import JsonCatalogueFormat
from hymt_local.documents.message_branches import (
    MessageStyle,
    UntranslatableMessageError,
    assembled,
    branches_of,
    written_branch,
)
from hymt_local.documents.message_format import (
    Argument,
    Choice,
    Message,
    MessageSyntaxError,
    Pound,
    Words,
    parse_message,
    quoted_words,
)
from hymt_local.documents.plural_categories import categories, category_of
from hymt_local.language import LANGUAGES as ALL_LANGUAGES

STYLE = MessageStyle(doubles_apostrophes=True)


def sentences(text: str, target_lang: str = "de") -> dict[str, str]:
    branches = branches_of(parse_message(text), Languages("en", target_lang))
    return {branch.name: branch.source.text for branch in branches}


def rewritten(text: str, translations: Mapping[str, str], target_lang: str = "de", style: MessageStyle = STYLE) -> str:
    branches = branches_of(parse_message(text), Languages("en", target_lang))
    return assembled(branches, [written_branch(branch, translations[branch.name], style) for branch in branches])


# Syntax


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("it''s", "it's"),
        ("it's", "it's"),
        ("'{'is'}'", "{is}"),
        ("'{it''s}'", "{it's}"),
        ("'{open", "{open"),
        ("# is no number here", "# is no number here"),
        ("'", "'"),
    ],
)
def test_apostrophes_quote_as_in_icu(text: str, words: str) -> None:
    assert parse_message(text) == (Words(words),)


def test_arguments_keep_their_types_and_styles() -> None:
    message = parse_message("{n, number, ::currency/USD} due {d,date , long}{x}{ y }")
    assert [node.raw for node in message if isinstance(node, Argument)] == [
        "{n, number, ::currency/USD}",
        "{d,date , long}",
        "{x}",
        "{ y }",
    ]
    assert [node.name for node in message if isinstance(node, Argument)] == ["n", "d", "x", "y"]


def test_choices_are_taken_apart() -> None:
    (choice,) = parse_message("{g, plural, offset:1 =0{none} one {#} other {{g, select, a {#} other {'#'}}}}")
    assert isinstance(choice, Choice)
    assert (choice.name, choice.kind, choice.offset) == ("g", "plural", 1)
    assert choice.branch("=0") == (Words("none"),)
    assert choice.branch("few") == choice.branch("other")
    (inner,) = choice.branch("other")
    assert isinstance(inner, Choice)
    assert inner.branches == (("a", (Pound(),)), ("other", (Words("#"),)))


@pytest.mark.parametrize(
    "text",
    [
        *("{", "}", "{}", "{a", "a}", "{a b}", "{a,}", "{n, plural}", "{n, plural, one {x}}", "{n, plural, one {x}"),
        *("{n, plural, weitere {x} other {y}}", "{n, plural, other {x} other {y}}", "{n, plural, other x}"),
        *("{n, select, other {", "{d, date, {}", "{n, plural, other {x}", "{a, select, b {x}}"),
        "{a, select, other {" * 20 + "x" + "}}" * 20,
    ],
)
def test_what_is_not_a_message_is_refused(text: str) -> None:
    with pytest.raises(MessageSyntaxError):
        parse_message(text)


@pytest.mark.parametrize("in_plural", [True, False])
@pytest.mark.parametrize("doubles", [True, False])
@pytest.mark.parametrize(
    "words",
    [
        *(
            "plain",
            "it's",
            "{",
            "}",
            "{}",
            "'{'",
            "'",
            "''",
            "a'",
            "'a",
            "#",
            "'#'",
            "#'",
            "{'}",
            "a {b} 'c' #d '' e'{",
        ),
        *("l'<b>x</b>", "it's {a}'s", "'''", "{{ }}", "}{"),
    ],
)
def test_words_are_quoted_so_that_they_read_the_same(words: str, in_plural: bool, doubles: bool) -> None:
    quoted = quoted_words(words, in_plural=in_plural, doubles_apostrophes=doubles)
    assert parse_message(quoted, in_plural=in_plural) == (Words(words),)
    (before, argument, after) = parse_message(f"{quoted}{{x}}{quoted}", in_plural=in_plural)
    assert (before, after) == (Words(words), Words(words))
    assert isinstance(argument, Argument)


def test_apostrophes_are_doubled_only_where_the_catalogue_or_the_syntax_wants_it() -> None:
    assert quoted_words("it's", in_plural=False, doubles_apostrophes=False) == "it's"
    assert quoted_words("it's", in_plural=False, doubles_apostrophes=True) == "it''s"


# Categories


CLDR: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("other",): ("zh", "zh-Hant", "yue", "ja", "ko", "th", "ms", "id", "km", "my", "bo"),
    ("one", "other"): (
        *("en", "de", "nl", "tr", "tl", "hi", "fa", "gu", "ur", "te", "mr", "bn", "ta", "kk", "mn", "ug", "vi"),
    ),
    ("one", "many", "other"): ("fr", "pt", "es", "it"),
    ("one", "few", "many", "other"): ("ru", "uk", "pl", "cs"),
    ("one", "two", "other"): ("he",),
    ("zero", "one", "two", "few", "many", "other"): ("ar",),
}


def test_every_language_has_the_categories_of_cldr() -> None:
    expected = {language: names for names, languages in CLDR.items() for language in languages}
    assert {language.tag for language in ALL_LANGUAGES} == set(expected)
    found = {language: tuple(each.name for each in categories(language, "plural")) for language in expected}
    assert found == expected


def test_the_example_of_a_category_is_in_it_and_not_taken() -> None:
    for language in ALL_LANGUAGES:
        for category in categories(language.tag, "plural", taken={Decimal(1), Decimal(2)}):
            assert category_of(language.tag, "plural", category.example) == category.name
    examples = {each.name: str(each.example) for each in categories("ru", "plural", taken={Decimal(1)})}
    assert examples == {"one": "21", "few": "2", "many": "5", "other": "1.5"}


def test_an_unknown_language_has_one_and_other() -> None:
    assert [each.name for each in categories("xx-unknown", "plural")] == ["one", "other"]


# Sentences


def test_each_branch_is_a_whole_sentence_with_a_number() -> None:
    text = "{count, plural, =0 {no files} one {# file} other {# files}} in {folder}"
    assert sentences(text, "ru") == {
        "count:=0": "no files in {folder}",
        "count:one": "1 file in {folder}",
        "count:few": "2 files in {folder}",
        "count:many": "5 files in {folder}",
        "count:other": "1.5 files in {folder}",
    }
    assert sentences(text, "ja") == {"count:=0": "no files in {folder}", "count:other": "2 files in {folder}"}


def test_the_message_comes_back_with_the_categories_of_the_target() -> None:
    text = "{count, plural, one {# file} other {# files}} in {folder}"
    translations = {
        "count:one": "1 plik w {folder}",
        "count:few": "2 pliki w {folder}",
        "count:many": "5 plików w {folder}",
        "count:other": "1,5 pliku w {folder}",
    }
    assert rewritten(text, translations, "pl") == (
        "{count, plural, one {# plik w {folder}} few {# pliki w {folder}} many {# plików w {folder}}"
        " other {# pliku w {folder}}}"
    )


def test_an_argument_of_the_same_name_is_the_number_too() -> None:
    text = "{n, plural, one {{n} file} other {{n} files}}"
    assert sentences(text) == {"n:one": "1 file", "n:other": "2 files"}
    translations = {"n:one": "1 Datei", "n:other": "2 Dateien"}
    assert rewritten(text, translations) == "{n, plural, one {{n} Datei} other {{n} Dateien}}"


def test_a_number_that_is_printed_twice_is_protected_instead() -> None:
    text = "{n, plural, one {# of #} other {# of #}} files"
    assert sentences(text) == {"n:one": "# of # files", "n:other": "# of # files"}


def test_an_offset_is_taken_off_the_number_but_not_off_the_argument() -> None:
    text = "{g, plural, offset:1 =0 {nobody} =1 {{host}} other {{host} and # of {g}}}"
    assert sentences(text, "ja") == {"g:=0": "nobody", "g:=1": "{host}", "g:other": "{host} and 2 of 3"}
    translations = {"g:=0": "なし", "g:=1": "{host}", "g:other": "{host}と2（3）"}
    assert rewritten(text, translations, "ja") == (
        "{g, plural, offset:1 =0 {なし} =1 {{host}} other {{host}と#（{g}）}}"
    )


def test_selects_keep_their_selectors_and_nest() -> None:
    text = "{w, select, female {She has {n, plural, one {# cat} other {# cats}}} other {They sing}} today"
    assert sentences(text) == {
        "w:female/n:one": "She has 1 cat today",
        "w:female/n:other": "She has 2 cats today",
        "w:other": "They sing today",
    }
    translations = {"w:female/n:one": "A 1", "w:female/n:other": "B 2", "w:other": "C"}
    assert rewritten(text, translations) == ("{w, select, female {{n, plural, one {A #} other {B #}}} other {C}}")


def test_the_number_of_an_outer_plural_is_written_by_name() -> None:
    text = "{a, plural, other {# cats and {b, plural, other {# dogs}}}}"
    assert sentences(text, "ja") == {"a:other/b:other": "{a, number} cats and # dogs"}
    written = rewritten(text, {"a:other/b:other": "犬#匹と猫{a, number}匹"}, "ja")
    assert written == "{a, plural, other {{b, plural, other {犬#匹と猫{a, number}匹}}}}"


def test_one_choice_in_two_places_is_made_once() -> None:
    text = "{s, select, m {He} other {They}} said {s, select, m {his} other {their}} name"
    assert sentences(text) == {"s:m": "He said his name", "s:other": "They said their name"}


def test_ordinals_take_the_target_s_categories() -> None:
    text = "{p, selectordinal, one {#st} two {#nd} few {#rd} other {#th}} place"
    assert sentences(text, "de") == {"p:other": "2nd place"}
    assert rewritten(text, {"p:other": "2. Platz"}, "de") == "{p, selectordinal, other {#. Platz}}"


def test_a_singular_without_its_number_only_serves_the_number_one() -> None:
    text = "{n, plural, one {a file} other {# files}}"
    assert sentences(text, "de") == {"n:one": "a file", "n:other": "2 files"}
    assert sentences(text, "ru")["n:one"] == "21 files"
    assert sentences(text, "fr")["n:one"] == "0 files"


def test_words_that_look_like_an_argument_of_the_message_are_left_alone() -> None:
    with pytest.raises(UntranslatableMessageError):
        branches_of(parse_message("{x} '{x}'"), Languages("en", "de"))


def test_too_many_branches_are_left_alone() -> None:
    text = " ".join(f"{{a{n}, select, x {{1}} y {{2}} other {{3}}}}" for n in range(5))
    with pytest.raises(UntranslatableMessageError, match="more than"):
        branches_of(parse_message(text), Languages("en", "de"))


@pytest.mark.parametrize(
    "target", ["Dateien in {folder}", "2 Dateien", "2 2 {folder}", "22 {folder}", "2 {folder} {x}"]
)
def test_v_1_a_lost_number_or_argument_is_a_fault(target: str) -> None:
    branch = branches_of(parse_message("{n, plural, one {#} other {# files}} in {folder}"), Languages("en", "de"))[1]
    if target == "2 {folder} {x}":
        assert "'{'x'}'" in written_branch(branch, target, STYLE)
    else:
        with pytest.raises(UntranslatableMessageError):
            written_branch(branch, target, STYLE)


def test_v_1_without_quotes_braces_cannot_be_written() -> None:
    (branch,) = branches_of(parse_message("Hi {name}"), Languages("en", "de"))
    plain = MessageStyle(has_quotes=False)
    assert written_branch(branch, "l'{name}'", plain) == "l'{name}'"
    with pytest.raises(UntranslatableMessageError):
        written_branch(branch, "{name} {", plain)


def test_d_1_the_corpus_is_expanded_for_every_language_and_comes_back_readable(shared_data: Path) -> None:
    data = (shared_data / "formats-own" / "icu.json").read_bytes()
    for language in ALL_LANGUAGES:
        languages = Languages("en", language.tag)
        document = JsonCatalogueFormat().read(data, languages)
        merged = document.merge({unit.id: f"«{unit.source.text}»" for unit in document.units}, MergeOptions(languages))
        assert merged.rejected == {}
        after = json.loads(merged.data)
        for key, value in after.items():
            if key != "broken":
                assert _arguments(parse_message(value)) == _arguments(parse_message(json.loads(data)[key]))


def _arguments(message: Message) -> set[str]:
    found: set[str] = set()
    for node in message:
        if isinstance(node, Argument):
            found.add(node.raw)
        elif isinstance(node, Choice):
            found.add(f"{node.name}, {node.kind}, {node.offset}")
            for _, branch in node.branches:
                found |= _arguments(branch)
    return found


def test_formats_are_known_without_the_plural_rules() -> None:
    program = "import sys; import hymt_local.documents.registry; sys.exit('babel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
