"""gettext: what is a unit, how it is written, and that msgfmt and the programs take the result."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hymt_local.documents.base import Languages, Merged, MergeOptions, Unit
from hymt_local.documents.plural_forms import parse_plural_forms, usual_plural_forms
from hymt_local.documents.po import PoDocument, PoFormat
from hymt_local.documents.po_directives import count_directive, format_rules
from hymt_local.engine.echo import pseudo_localize
from hymt_local.errors import DocumentError
from hymt_local.language import LANGUAGES as ALL_LANGUAGES
from hymt_local.segment import TokenGroup

GOLDEN = Path(__file__).parents[1] / "golden" / "documents" / "po"
FRENCH = Languages("en", "fr")
REVIEWED = MergeOptions(FRENCH, marks_fuzzy=False)
HEADER = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: fr\\n"\n'
    '"Plural-Forms: nplurals=2; plural=(n > 1);\\n"\n\n'
)


def read(text: str, languages: Languages = FRENCH) -> PoDocument:
    return PoFormat().read(text.encode(), languages)


def body(text: str) -> PoDocument:
    return read(HEADER + text)


def filled(document: PoDocument, *targets: str, options: MergeOptions = REVIEWED) -> str:
    """Return the file after its header, with targets for its units in order."""
    merged = document.merge(dict(zip((unit.id for unit in document.units), targets, strict=True)), options)
    assert merged.rejected == {}
    return merged.data.decode().removeprefix(HEADER)


def test_an_empty_message_is_a_unit_and_a_translated_one_is_not() -> None:
    document = body('msgid "Open"\nmsgstr ""\n\nmsgid "Done"\nmsgstr "Fini"\n\n#~ msgid "Old"\n#~ msgstr ""\n')
    assert [(unit.id, unit.source.text, unit.location) for unit in document.units] == [("message-2", "Open", "line 7")]
    assert filled(document, "Ouvrir").startswith('msgid "Open"\nmsgstr "Ouvrir"\n')


def test_a_fuzzy_message_is_translated_again() -> None:
    document = body('#| msgid "Quit"\n#, fuzzy, c-format\n#| msgctxt "x"\nmsgid "Leave"\nmsgstr "Quitte"\n')
    assert [unit.source.text for unit in document.units] == ["Leave"]
    assert filled(document, "Partir") == '#, c-format\nmsgid "Leave"\nmsgstr "Partir"\n'


def test_translations_are_marked_fuzzy_unless_told_otherwise() -> None:
    text = 'msgid "A"\nmsgstr ""\n\n#: a.c:1\n#, c-format\nmsgid "B"\nmsgstr ""\n\n#, fuzzy\nmsgid "C"\nmsgstr "x"\n'
    written = filled(body(text), "1", "2", "3", options=MergeOptions(FRENCH))
    assert written == (
        '#, fuzzy\nmsgid "A"\nmsgstr "1"\n\n#: a.c:1\n#, fuzzy, c-format\nmsgid "B"\nmsgstr "2"\n\n'
        '#, fuzzy\nmsgid "C"\nmsgstr "3"\n'
    )


def test_context_and_comments_for_translators_are_the_note() -> None:
    (unit,) = body('# me\n#. A button\n#. in the menu\n#: a.c\nmsgctxt "menu"\nmsgid "Open"\nmsgstr ""\n').units
    assert unit.note == "A button\nin the menu\ncontext: menu"


def test_escapes_are_read_and_written() -> None:
    document = body('msgid "a \\"b\\" \\\\ c\\td \\101\\x42"\nmsgstr ""\n')
    assert document.units[0].source.text == 'a "b" \\ c\td AB'
    assert filled(document, '"x" \\ y\tz').endswith('msgstr "\\"x\\" \\\\ y\\tz"\n')


def test_outer_line_ends_and_spaces_are_those_of_the_source() -> None:
    document = body('msgid "\\n  Save?\\n"\nmsgstr ""\n')
    assert document.units[0].source.text == "Save?"
    assert filled(document, "Enregistrer ?").endswith('msgstr ""\n"\\n"\n"  Enregistrer ?\\n"\n')


def test_long_targets_wrap_after_spaces_like_those_of_gettext() -> None:
    written = filled(body('msgid "Long"\nmsgstr ""\n'), "mot " * 30 + "fin")
    lines = written.splitlines()[1:]
    assert lines[0] == 'msgstr ""'
    assert all(len(line) <= 79 for line in lines)
    assert "".join(line.strip('"') for line in lines[1:]) == "mot " * 30 + "fin"


def test_a_file_that_does_not_wrap_stays_so() -> None:
    document = body(f'msgid "{"word " * 40}end"\nmsgstr ""\n')
    assert filled(document, "mot " * 40 + "fin").endswith(f'msgstr "{"mot " * 40}fin"\n')


def test_line_ends_of_the_file_are_used() -> None:
    document = PoFormat().read((HEADER + 'msgid "A"\nmsgstr ""\n').replace("\n", "\r\n").encode(), FRENCH)
    data = document.merge({"message-2": "mot " * 30 + "fin"}, MergeOptions(FRENCH)).data
    assert b"\n" not in data.replace(b"\r\n", b"")


def test_a_translation_that_is_the_same_as_its_source_counts() -> None:
    document = body('msgid "OK"\nmsgstr ""\n\nmsgid "Open"\nmsgstr ""\n')
    assert filled(document, "OK", "Ouvrir") == 'msgid "OK"\nmsgstr "OK"\n\nmsgid "Open"\nmsgstr "Ouvrir"\n'


def test_d_1_a_document_of_nothing_but_its_sources_is_an_echo() -> None:
    document = body('msgid "OK"\nmsgstr ""\n\nmsgid "Open"\nmsgstr ""\n')
    assert filled(document, "OK", "Open") == 'msgid "OK"\nmsgstr ""\n\nmsgid "Open"\nmsgstr ""\n'


# Plural forms


RUSSIAN = Languages("en", "ru")
RUSSIAN_HEADER = HEADER.replace("Language: fr", "Language: ru").replace(
    "nplurals=2; plural=(n > 1);",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);",
)


def plural(singular: str, several: str, flag: str = "c-format", n: int = 2) -> str:
    slots = "".join(f'msgstr[{slot}] ""\n' for slot in range(n))
    return f'#, {flag}\nmsgid "{singular}"\nmsgid_plural "{several}"\n{slots}'


def test_each_plural_form_is_a_unit_with_an_example_number() -> None:
    document = read(RUSSIAN_HEADER + plural("%d file in %s", "%d files in %s", n=3), RUSSIAN)
    assert [(unit.id, unit.source.text) for unit in document.units] == [
        ("message-2[0]", "1 file in %s"),
        ("message-2[1]", "2 files in %s"),
        ("message-2[2]", "5 files in %s"),
    ]
    written = filled(document, "1 файл в %s", "2 файла в %s", "5 файлов в %s", options=MergeOptions(RUSSIAN))
    assert written.endswith('msgstr[0] "%d файл в %s"\nmsgstr[1] "%d файла в %s"\nmsgstr[2] "%d файлов в %s"\n')


def test_a_singular_without_its_number_only_serves_the_number_one() -> None:
    russian = read(RUSSIAN_HEADER + plural("one file", "%d files", n=3), RUSSIAN)
    assert [unit.source.text for unit in russian.units] == ["21 files", "2 files", "5 files"]
    german = read(HEADER.replace("n > 1", "n != 1") + plural("one file", "%d files"))
    assert [unit.source.text for unit in german.units] == ["one file", "2 files"]


def test_a_number_may_be_left_out_where_the_form_is_for_one_number_alone() -> None:
    document = read(HEADER.replace("n > 1", "n != 1") + plural("%d file", "%d files"))
    one, many = document.units
    assert document.fault(one, "une page") is None
    assert document.fault(many, "quelques pages")
    assert filled(document, "une page", "2 pages").endswith('msgstr[0] "une page"\nmsgstr[1] "%d pages"\n')
    not_last = read(HEADER.replace("n > 1", "n != 1") + plural("%d file in %s", "%d files in %s"))
    assert not_last.fault(not_last.units[0], "une page dans %s")


@pytest.mark.parametrize("target", ["٥ ملفات", "5 files", "५ फ़ाइलें"])
def test_the_number_comes_back_in_any_digits(target: str) -> None:
    document = read(RUSSIAN_HEADER + plural("%d file", "%d files", n=3), RUSSIAN)
    merged = document.merge(
        {"message-2[0]": "1 a", "message-2[1]": "2 b", "message-2[2]": target}, MergeOptions(RUSSIAN)
    )
    assert merged.rejected == {}
    assert f'msgstr[2] "%d{target[1:]}"' in merged.data.decode()


@pytest.mark.parametrize("target", ["files", "5 files of 5", "50 files", "five files"])
def test_v_1_a_lost_or_doubled_number_is_a_fault(target: str) -> None:
    document = read(RUSSIAN_HEADER + plural("%d file", "%d files", n=3), RUSSIAN)
    assert document.fault(document.units[2], target)


def test_a_message_is_filled_only_when_all_its_forms_are() -> None:
    document = body(plural("%d file", "%d files"))
    merged = document.merge({"message-2[0]": "1 fichier"}, REVIEWED)
    assert list(merged.rejected) == ["message-2[0]"]
    assert merged.data == document.decoded.encode(document.decoded.text)


def test_a_form_that_is_missing_is_filled_beside_the_others() -> None:
    document = body('msgid "%d a"\nmsgid_plural "%d b"\nmsgstr[0] "%d x"\nmsgstr[1] ""\n')
    assert [unit.id for unit in document.units] == ["message-2[1]"]
    assert filled(document, "y").endswith('msgstr[0] "%d x"\nmsgstr[1] "y"\n')


def test_a_template_gets_the_forms_of_the_target_language() -> None:
    data = (GOLDEN / "template.pot").read_bytes()
    document = PoFormat().read(data, RUSSIAN)
    targets = {unit.id: pseudo_localize(unit.source.text) for unit in document.units}
    text = document.merge(targets, MergeOptions(RUSSIAN)).data.decode()
    assert [unit.source.text for unit in document.units][:3] == ["21 minutes left", "2 minutes left", "5 minutes left"]
    for line in ('"Language: ru\\n"', 'charset=UTF-8\\n"', "nplurals=3", 'msgstr[2] "⟦%d'):
        assert line in text
    assert '#, fuzzy\nmsgid ""' not in text


def test_forms_that_the_target_does_not_have_are_removed() -> None:
    japanese = Languages("en", "ja")
    document = PoFormat().read((GOLDEN / "template.pot").read_bytes(), japanese)
    targets = {unit.id: unit.source.text.replace("left", "残り") + "。" for unit in document.units}
    merged = document.merge(targets, MergeOptions(japanese))
    assert b"msgstr[1]" not in merged.data
    assert 'msgstr[0] "%d minutes 残り。"\n\n#, fuzzy, possible-c-format' in merged.data.decode()


def test_the_plural_forms_of_a_file_that_has_begun_are_obeyed() -> None:
    text = HEADER.replace("nplurals=2; plural=(n > 1);", "nplurals=1; plural=0;") + 'msgid "A"\nmsgstr "B"\n\n'
    document = read(text + plural("%d file", "%d files", n=1))
    assert [unit.id for unit in document.units] == ["message-3[0]"]


@pytest.mark.parametrize("language", [language.tag for language in ALL_LANGUAGES])
def test_every_language_has_plural_forms_and_each_form_a_number(language: str) -> None:
    forms = usual_plural_forms(language)
    assert len({slot.example for slot in forms.slots}) == len(forms.slots)


@pytest.mark.parametrize(
    ("field", "examples"),
    [
        ("nplurals=1; plural=0;", [1]),
        ("nplurals=2; plural=n != 1", [1, 2]),
        ("nplurals=2; plural=n>1;", [1, 2]),
        ("nplurals=2; plural=!(n-1) ? 0 : 1;", [1, 2]),
        ("nplurals=3; plural=n==0 ? 0 : n==1 ? 1 : 2;", [0, 1, 2]),
        ("nplurals=2; plural=(n%10==1&&n%100!=11)?0:1;", [1, 2]),
    ],
)
def test_plural_expressions_are_evaluated_as_in_c(field: str, examples: list[int]) -> None:
    assert [slot.example for slot in parse_plural_forms(field).slots] == examples


@pytest.mark.parametrize(
    "field",
    [
        "",
        "nplurals=INTEGER; plural=EXPRESSION;",
        "nplurals=2; plural=__import__('os');",
        "nplurals=2; plural=n;",
        "nplurals=2; plural=n/0;",
        "nplurals=0; plural=0;",
        "nplurals=2; plural=n ? 1;",
        "nplurals=2; plural=" + "(" * 200 + "n" + ")" * 200 + ";",
        "nplurals=2; plural=" + "n+" * 900 + "n;",
        "nplurals=2; plural=" + "!" * 500 + "n ? 1 : 9;",
    ],
    ids=lambda field: field[:40],
)
def test_d_6_a_hostile_plural_expression_is_refused(field: str) -> None:
    with pytest.raises(DocumentError):
        parse_plural_forms(field)


# Directives


@pytest.mark.parametrize(
    ("flag", "source", "good", "bad"),
    [
        ("c-format", "%s has %d files", "%s: %d", ["%s", "%d: %s!%", "%s %d %d", "%s %i"]),
        ("c-format", "%1$s and %2$s", "%2$s, %1$s", ["%1$s", "%1$s %1$s"]),
        ("c-format", "100%% of %s", "%s : 100%%", ["100% von %s", "%s 100%"]),
        ("python-format", "%(name)s: %(n)d", "%(n)d %(name)s", ["%(name)s: %(nombre)d", "%(name)s %(n)d 5%"]),
        ("python-format", "%s before %s", "%s avant %s", ["%s"]),
        ("python-format", "%s of %d", "%s / %d", ["%d / %s"]),
        ("python-brace-format", "{n} of {total:>5} {{x}}", "{total:>5} {n} {{x}}", ["{n} {total}", "{n} {total:>5} {"]),
        ("qt-format", "%1 of %L2", "%L2 %1", ["%1"]),
        ("sh-format", "In ${HOME}", "${HOME}", ["HOME"]),
        ("java-printf-format", "%s", "%s", ["%d"]),
        ("objc-format", "%@ has %lld", "%@: %lld", ["%@"]),
        ("ruby-format", "%<a>d %{b}", "%{b} %<a>d", ["%{b}"]),
    ],
)
def test_v_1_directives_come_back_as_the_format_needs_them(flag: str, source: str, good: str, bad: list[str]) -> None:
    document = body(f'#, {flag}\nmsgid "{source}"\nmsgstr ""\n')
    assert document.fault(document.units[0], good) is None
    for target in bad:
        assert document.fault(document.units[0], target), target


def test_arguments_of_c_in_another_order_are_numbered() -> None:
    document = body('#, c-format\nmsgid "Copied %d files to %s, 100%%"\nmsgstr ""\n')
    assert filled(document, "%s に %d 個 100%%").endswith('msgstr "%2$s に %1$d 個 100%%"\n')


def test_flags_choose_the_groups_of_placeholders() -> None:
    assert format_rules(frozenset({"c-format"})).groups == {TokenGroup.TEXT, TokenGroup.C_FORMAT}
    assert format_rules(frozenset({"python-brace-format", "fuzzy"})).groups == {
        TokenGroup.TEXT,
        TokenGroup.PYTHON_BRACE,
    }
    assert format_rules(frozenset({"no-c-format"})).groups == {TokenGroup.TEXT}
    assert format_rules(frozenset({"no-c-format"})).directives("100% sure") == []


@pytest.mark.parametrize(
    ("directives", "found"),
    [
        (["%d"], "%d"),
        (["%s", "%d"], "%d"),
        (["%(name)s", "%(count)s"], "%(count)s"),
        (["%(user)s"], ""),
        (["%(limit)d", "%(shown)d"], ""),
        (["{n}"], "{n}"),
        ([], ""),
    ],
)
def test_the_directive_of_the_number_is_found_or_left_alone(directives: list[str], found: str) -> None:
    assert count_directive(directives) == found


# The header


@pytest.mark.parametrize(
    ("language", "target", "written"),
    [("", "zh-Hant", "zh_Hant"), ("pt_BR", "pt", "pt_BR"), ("de", "fr", "fr"), ("xx_YY", "fr", "fr")],
)
def test_d_7_the_language_follows_the_target_and_a_region_stays(language: str, target: str, written: str) -> None:
    document = read(HEADER.replace("Language: fr", f"Language: {language}"), Languages("en", target))
    text = document.merge({}, MergeOptions(Languages("en", target))).data.decode()
    assert f'"Language: {written}\\n"' in text


def test_d_7_a_missing_field_is_added() -> None:
    text = (
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "A"\nmsgid_plural "B"\nmsgstr[0] ""\n'
    )
    merged = read(text).merge({}, MergeOptions(FRENCH)).data.decode()
    assert '"Language: fr\\n"\n"Plural-Forms: nplurals=2; plural=(n > 1);\\n"\n\nmsgid "A"' in merged


def test_d_4_a_legacy_charset_is_kept_and_what_it_lacks_is_rejected() -> None:
    data = (HEADER.replace("UTF-8", "ISO-8859-1") + '# Été\nmsgid "A"\nmsgstr ""\n\nmsgid "B"\nmsgstr ""\n').encode(
        "latin-1"
    )
    document = PoFormat().read(data, FRENCH)
    merged = document.merge({"message-2": "été", "message-3": "字"}, REVIEWED)
    assert 'msgstr "été"'.encode("latin-1") in merged.data
    assert list(merged.rejected) == ["message-3"]


def test_d_4_bytes_outside_the_charset_are_refused_with_their_position() -> None:
    with pytest.raises(DocumentError, match="byte 130"):
        PoFormat().read((HEADER + "# ").encode().ljust(130) + b"\xe9\n", FRENCH)


@pytest.mark.parametrize(
    "text", ['msgid "A"\n', 'msgstr "A"\n', 'msgid "A\nmsgstr ""\n', "hello\n", 'msgid "A"\nmsgid "B"\nmsgstr ""\n']
)
def test_what_is_not_gettext_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(DocumentError, match=r"line \d+ is not gettext"):
        read(text)


# msgfmt


@pytest.fixture(scope="module")
def msgfmt() -> Callable[[Merged, Path], str]:
    program = shutil.which("msgfmt")
    assert program, "gettext is not installed"

    def check(merged: Merged, folder: Path) -> str:
        path = folder / "checked.po"
        path.write_bytes(merged.data)
        command = [program, "--check", "--output-file=/dev/null", str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if result.returncode == 0 else result.stderr

    return check


def emptied(text: str) -> str:
    """Take all translations out of a catalogue."""
    header, rest = text.split("\n\n", 1)
    rest = re.sub(r'^(msgstr(?:\[\d\])?) ".*"\n(?:".*"\n)*', r'\1 ""\n', rest, flags=re.MULTILINE)
    return f"{header}\n\n{rest}"


def catalogues(shared_data: Path) -> Mapping[str, tuple[bytes, Languages]]:
    tags = {"pt_BR": "pt", "zh_Hans": "zh"}
    found = {}
    for path in sorted(shared_data.glob("po/django-*.po")):
        tag = path.name.split(".")[-2]
        found[path.name] = emptied(path.read_text(encoding="utf-8")).encode(), Languages("en", tags.get(tag, tag))
    english = (shared_data / "po" / "django-core.en.po").read_bytes()
    return found | {f"en to {tag}": (english, Languages("en", tag)) for tag in ("ru", "ja", "ar")}


MANGLED: Mapping[str, Callable[[Unit], str]] = {
    "upper": lambda unit: unit.source.text.upper(),
    "dropped": lambda unit: re.sub(r"%\S+", "", unit.source.text) + "x",
    "percent": lambda unit: f"100% {unit.source.text}",
    "doubled": lambda unit: f"{unit.source.text} {unit.source.text}",
    "quotes": lambda unit: f'\\"{unit.source.text}" \\',
    "lines": lambda unit: f'\n\n{unit.source.text}\nmsgid "x"\n',
    "swapped": lambda unit: " ".join(reversed(unit.source.text.split(" "))),
    "number": lambda unit: re.sub(r"\d", "7", unit.source.text) + "!",
}


@pytest.mark.msgfmt
def test_msgfmt_takes_every_filled_catalogue(
    shared_data: Path, tmp_path: Path, msgfmt: Callable[[Merged, Path], str]
) -> None:
    for name, (data, languages) in catalogues(shared_data).items():
        document = PoFormat().read(data, languages)
        targets = {unit.id: pseudo_localize(unit.source.text) for unit in document.units}
        merged = document.merge(targets, MergeOptions(languages, marks_fuzzy=False))
        assert (name, merged.rejected) == (name, {})
        assert (name, msgfmt(merged, tmp_path)) == (name, "")
        assert len(PoFormat().read(merged.data, languages).units) == 0
        assert merged.data.count(b"\nmsgid ") == data.count(b"\nmsgid ")


@pytest.mark.parametrize("kind", MANGLED)
@pytest.mark.msgfmt
def test_v_1_msgfmt_takes_what_is_left_of_a_mangler(
    shared_data: Path, tmp_path: Path, msgfmt: Callable[[Merged, Path], str], kind: str
) -> None:
    chosen = {"django-core.pl.po", "django-admin.ar.po", "en to ar"}
    for name, (data, languages) in catalogues(shared_data).items():
        if name not in chosen:
            continue
        document = PoFormat().read(data, languages)
        targets = {unit.id: MANGLED[kind](unit) for unit in document.units}
        merged = document.merge(targets, MergeOptions(languages, marks_fuzzy=False))
        assert (name, msgfmt(merged, tmp_path)) == (name, "")


@pytest.mark.parametrize("language", [language.tag for language in ALL_LANGUAGES])
@pytest.mark.msgfmt
def test_msgfmt_takes_a_filled_template_in_every_language(
    tmp_path: Path, msgfmt: Callable[[Merged, Path], str], language: str
) -> None:
    languages = Languages("en", language)
    document = PoFormat().read((GOLDEN / "template.pot").read_bytes(), languages)
    targets = {unit.id: pseudo_localize(unit.source.text) for unit in document.units}
    merged = document.merge(targets, MergeOptions(languages, marks_fuzzy=False))
    assert (merged.rejected, msgfmt(merged, tmp_path)) == ({}, "")


@pytest.mark.msgfmt
def test_v_1_msgfmt_takes_any_arrangement_of_directives_that_is_let_through(
    tmp_path: Path, msgfmt: Callable[[Merged, Path], str]
) -> None:
    parts = [
        *("%s", "%d", "%5.2f", "%1$s", "%2$d", "%%", "% d", "%(a)s", "%(b)d", "%ld", "%*d", "%i", "%<PRIu64>", "%"),
        *("{a}", "{0}", "{}", "{{", "}}", "{a:>5}", "{a!r}", " ", "word"),
    ]
    flags = ["c-format", "python-format", "python-brace-format", "objc-format", "php-format", "java-printf-format"]
    chance = random.Random(11)
    text = "".join(
        f'#, {chance.choice(flags)}\nmsgid "{"".join(chance.choices(parts, k=4))} {number}x"\nmsgstr ""\n\n'
        for number in range(3000)
    )
    document = body(text)
    targets = {unit.id: _rearranged(unit.source.text, parts, chance) for unit in document.units}
    merged = document.merge(targets, REVIEWED)
    assert 500 < len(merged.rejected) < 2500
    assert msgfmt(merged, tmp_path) == ""


def _rearranged(source: str, parts: list[str], chance: random.Random) -> str:
    """Shuffle the pieces of a text, put another one in, or leave them."""
    pieces = re.split(r"(%\S+|\{\S*|\s)", source)
    if chance.random() < 0.4:
        chance.shuffle(pieces)
    elif chance.random() < 0.6:
        pieces.insert(chance.randrange(len(pieces)), chance.choice(parts))
    return "".join(pieces).strip() + "!"
