"""Markdown: what is a unit, what is protected, and how targets are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from hymt_local.documents.base import Languages, MergeOptions
from hymt_local.documents.emphasis import Piece, mend_emphasis
from hymt_local.documents.front_matter import front_matter_end, front_values
from hymt_local.documents.markdown import MarkdownFormat
from hymt_local.documents.markdown_document import MarkdownDocument, read_markdown
from hymt_local.errors import DocumentError
from hymt_local.segment import TokenKind
from tests.markup import LANGUAGES, PLAIN, pseudo

BOTH = MergeOptions(LANGUAGES, is_bilingual=True)
GUIDE = Path(__file__).parents[1] / "golden" / "documents" / "markdown" / "guide.md"


def texts(source: str) -> list[str]:
    return [unit.source.text for unit in read_markdown(source.encode()).units]


def translated(source: str, *targets: str, options: MergeOptions = PLAIN) -> str:
    """Return a document with targets for its first units; the format must accept them."""
    document = read_markdown(source.encode())
    given = dict(zip([unit.id for unit in document.units], targets, strict=False))
    for unit in document.units:
        if unit.id in given:
            assert document.fault(unit, given[unit.id]) is None
    merged = document.merge(given, options)
    assert merged.rejected == {}
    return merged.data.decode()


def fault(source: str, target: str) -> str | None:
    document = read_markdown(source.encode())
    return document.fault(document.units[0], target)


def marks(source: str) -> list[tuple[str, str]]:
    unit = read_markdown(source.encode()).units[0]
    return [(mark.span.of(unit.source.text), mark.kind.value) for mark in unit.source.protected]


def test_d_3_the_guide_has_exactly_these_units() -> None:
    expected = 36
    assert len(read_markdown(GUIDE.read_bytes()).units) == expected


@pytest.mark.parametrize(
    "source",
    [
        "```\ncode here\n```\n",
        "~~~\nunclosed\n",
        "> ```\n> quoted code\n> ```\n",
        "- ```sh\n  listed code\n  ```\n",
        "    indented\n",
        "[id]: /url 'A title'\n",
        "<!-- a comment -->\n",
        "<pre>\nkept\n</pre>\n",
        "***\n",
        "12 34\n",
        "$$\nx = y\n- z\n$$\n",
        "$a + b$\n",
        "`only code`\n",
        "<https://example.org>\n",
        ":smile: :tada:\n",
        "![](a.png)\n",
        "import A from 'a'\n",
        "export const a = {b: 1}\n",
        "{{ page.title }}\n",
        "{% include nav.html %}\n",
        ":::note\n",
        "---\nlayout: page\ntags: [one, two]\n---\n",
        "[^1]\n",
        "<Tabs items={['a b']}>\n</Tabs>\n",
    ],
)
def test_what_is_no_text_is_no_unit(source: str) -> None:
    assert texts(source) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("one\ntwo\n", ["one two"]),
        ("这是\n中文\n", ["这是中文"]),
        ("# Title {#id}\n", ["Title"]),
        ("Title\nmore\n===\n", ["Title more"]),
        ("- [ ] task\n- [x] done\n", ["task", "done"]),
        ("> [!NOTE]\n> Be here\n", ["Be here"]),
        ("> quote\nlazy\n> > deep\n", ["quote lazy", "deep"]),
        ("1. a\n\n   b\n", ["a", "b"]),
        ("| a | b |\n|---|---|\n| c \\| d | **e** |\n| f |\n", ["a", "b", "c | d", "e", "f"]),
        ("- | a | b |\n  |---|---|\n  | c | d |\n", ["a", "b", "c", "d"]),
        ("> | a | b |\n> |---|---|\n> | c | d |\n", ["a", "b", "c", "d"]),
        ("[^n]: The note.\n\n    And more.\n", ["The note.", "And more."]),
        ('!!! tip "Hint"\n    Indented text.\n', ["Indented text."]),
        (":::tip\nInside.\n:::\n", ["Inside."]),
        ("term\n: its meaning\n", ["term\n: its meaning"]),
        ("**all bold**\n", ["all bold"]),
        ("[![badge](a.svg)](b) Text\n", ["[![badge](a.svg)](b) Text"]),
        ('<div align="center">\n  In <b>HTML</b>\n</div>\n', ["In <b>HTML</b>"]),
        ('<img alt="A cat" src=x>\n', ["A cat"]),
        ("caf&eacute; &copy; x\n", ["café &copy; x"]),
        ("1\\. no list, \\*stars\\*\n", ["1. no list, *stars*"]),
        ("+++\ntitle = 'It is'\n+++\ntext\n", ["It is", "text"]),
    ],
)
def test_s_2_the_unit_is_the_block(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


def test_markup_inside_a_unit_is_protected_in_pairs_and_atoms() -> None:
    assert marks("a **b** [c](d 'T') ![e](f) `g` <b>h</b> <br> [^1] $i$ :j: <k@l.m> &copy; <kbd>n</kbd> {{ o }} p") == [
        ("**", "open"),
        ("**", "close"),
        ("[", "open"),
        ("](d 'T')", "close"),
        ("![", "open"),
        ("](f)", "close"),
        ("`g`", "atomic"),
        ("<b>", "open"),
        ("</b>", "close"),
        ("<br>", "atomic"),
        ("[^1]", "atomic"),
        ("$i$", "atomic"),
        (":j:", "atomic"),
        ("<k@l.m>", "atomic"),
        ("&copy;", "atomic"),
        ("<kbd>n</kbd>", "atomic"),
        ("{{ o }}", "atomic"),
    ]


def test_pairs_have_numbers_of_their_own() -> None:
    unit = read_markdown(b"x **a *b* c** ~~d~~\n").units[0]
    pairs = [(mark.kind, mark.pair) for mark in unit.source.protected]
    opened, closed = TokenKind.OPEN, TokenKind.CLOSE
    assert pairs == [(opened, 1), (opened, 2), (closed, 2), (closed, 1), (opened, 3), (closed, 3)]


def test_context_is_the_heading_and_the_text_before() -> None:
    units = read_markdown(b"# Head\n\none\n\ntwo\n\n## Next\n\nthree\n").units
    assert [unit.source.context for unit in units] == [(), ("Head",), ("Head", "one"), (), ("Next",)]


def test_units_name_their_lines_behind_front_matter() -> None:
    units = read_markdown(b"---\ntitle: A b\n---\n\ntext\n\n| c |\n|---|\n| d |\n").units
    assert [unit.location for unit in units] == ["line 2", "line 5", "line 7", "line 9"]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("**真，**她", "**真**，她"),
        ("她说**「真」**了", "她说「**真**」了"),
        ("她**（真）的**了", "她（**真）的**了"),
        ("**真**她", "**真**她"),
        ("他** 真 **的", "他 **真** 的"),
        ("**「真」的**了", "**「真」的**了"),
        ("**真，**", "**真，**"),
    ],
)
def test_emphasis_that_ends_in_punctuation_still_holds(target: str, expected: str) -> None:
    assert translated("She is **true,** yes\n", target) == f"{expected}\n"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("an _emphasis_ here\n", "这是_强调_文字", "这是*强调*文字\n"),
        ("Use **`code`** now\n", "使用**`code`**吧", "使用 **`code`** 吧\n"),
        ("See **[x](y)** now\n", "见**[此](y)**吧", "见 **[此](y)** 吧\n"),
        ("a ~~b,~~ c\n", "甲~~乙，~~丙", "甲~~乙~~，丙\n"),
    ],
)
def test_emphasis_around_markup_and_with_underscores_holds(source: str, target: str, expected: str) -> None:
    assert translated(source, target) == expected


def test_emphasis_of_nothing_but_punctuation_is_left_alone() -> None:
    pieces = [Piece("a"), Piece("**", is_markup=True), Piece("，"), Piece("**", is_markup=True), Piece("b")]
    assert "".join(piece.text for piece in mend_emphasis(pieces)).replace(" ", "") == "a**，**b"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("# head", "\\# head"),
        ("- item", "\\- item"),
        ("+ item", "\\+ item"),
        ("1. item", "1\\. item"),
        ("2) item", "2\\) item"),
        ("> quote", "\\> quote"),
        ("---", "\\---"),
        ("***", "\\*\\*\\*"),
        ("*em*", "\\*em\\*"),
        ("<b>x</b>", "\\<b>x\\</b>"),
        ("<div>", "\\<div>"),
        ("<!-- x", "\\<!-- x"),
        ("[a](b)", "\\[a\\](b)"),
        ("[foo]: /bar", "\\[foo\\]: /bar"),
        ("[^1]: x", "\\[^1\\]: x"),
        ("```js", "\\`\\`\\`js"),
        ("&amp; x", "\\&amp; x"),
        ("`a`", "\\`a\\`"),
        ("[x] done", "\\[x\\] done"),
        ("[!NOTE] x", "\\[!NOTE\\] x"),
        ("{{ x }}", "\\{{ x }}"),
        ("$x$", "\\$x$"),
        ("a | b", "a | b"),
        ("5 * 3 * 2", "5 * 3 * 2"),
        ("snake_case_x", "snake_case_x"),
        ("a\nb", "a b"),
        ("    a", "a"),
        ("C:\\dir", "C:\\dir"),
        ("~~~", "\\~\\~\\~"),
        (":::x", "\\:::x"),
        ("Sure!\n\n# a\n- b", "Sure! # a - b"),
    ],
)
def test_v_1_text_that_looks_like_markup_is_escaped(target: str, expected: str) -> None:
    assert translated("plain text\n\nnext\n", target) == f"{expected}\n\nnext\n"


def test_v_1_what_cannot_be_escaped_is_refused() -> None:
    assert fault("plain text\n", "import x from 'y'")
    assert fault("plain text\n", " \n")
    assert fault("plain text\n", "a\0b")
    assert fault("plain text\n", "a\ud800b")


@pytest.mark.parametrize(
    "target",
    [
        "真",
        "**真",
        "**真** **她**",
        "真****",
        "` x` **真**",
        "**真 `x`",
        "`x` **a** `x`",
        "**a**",
        "`x` a",
        "`X` **a**",
    ],
)
def test_p_4_a_target_without_exactly_its_markup_is_refused(target: str) -> None:
    assert fault("**a** b `x`\n", target)


def test_markup_may_change_its_place() -> None:
    assert translated("a `x` **b** [c](d) e\n", "[C](d) **B** E `x` A") == "[C](d) **B** E `x` A\n"


def test_a_translated_label_keeps_its_definition() -> None:
    source = "[text][] and [short] x\n\n[text]: /u\n[short]: /v\n"
    document = read_markdown(source.encode())
    assert document.units[0].source.text == "[text][text] and [short][short] x"
    assert translated(source, "[短][short] 和 [文本][text] 甲") == (
        "[短][short] 和 [文本][text] 甲\n\n[text]: /u\n[short]: /v\n"
    )


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("| a | b |\n|---|---|\n", "x|y", "| x\\|y | b |\n|---|---|\n"),
        ("| a `c\\|d` | b |\n|---|---|\n", "`c|d` x", "| `c\\|d` x | b |\n|---|---|\n"),
        ("| a | b |\n|---|---|\n", "x\ny", "| x y | b |\n|---|---|\n"),
    ],
)
def test_a_cell_stays_a_cell(source: str, target: str, expected: str) -> None:
    assert translated(source, target) == expected


def test_a_paragraph_of_several_lines_is_wrapped_behind_the_marks_of_its_containers() -> None:
    source = "> - one two three four five six seven eight\n>   nine\n"
    target = "eins zwei drei vier fünf sechs sieben acht neun"
    assert translated(source, target) == "> - eins zwei drei vier fünf sechs sieben\n>   acht neun\n"


def test_a_wrapped_line_never_begins_like_a_block() -> None:
    source = "word word word word word word word word word\nword\n"
    target = "aaaa aaaa aaaa aaaa aaaa aaaa aaaa aaaa 2024. - # > + 1) bbb"
    assert len(read_markdown(translated(source, target).encode()).units) == 1


def test_hard_breaks_stay_where_the_target_has_them() -> None:
    assert translated("> a  \n> b\\\n> c\n", "A  \nB\\\nC") == "> A  \n> B\\\n> C\n"


def test_line_ends_are_the_documents() -> None:
    source = "one two three four five six seven eight\r\nnine\r\n"
    target = "eins zwei drei vier fünf sechs sieben acht neun zehn"
    assert translated(source, target) == "eins zwei drei vier fünf sechs sieben\r\nacht neun zehn\r\n"


def test_text_that_would_continue_a_link_definition_is_rejected_alone() -> None:
    document = read_markdown(b"first\n\n[id]: /url\nfollow\n\nlast\n")
    first, follow, last = document.units
    merged = document.merge({first.id: "A", follow.id: '"title"', last.id: "Z"}, PLAIN)
    assert merged.data == b"A\n\n[id]: /url\nfollow\n\nZ\n"
    assert set(merged.rejected) == {follow.id}


def test_html_in_markdown_is_translated_like_html() -> None:
    source = "<p>\n  One <b>two</b>\n</p>\n\nnext\n"
    assert translated(source, "<b>zwei</b> & 1", "dann") == "<p>\n  <b>zwei</b> &amp; 1\n</p>\n\ndann\n"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("one\n\ntwo\n", "eins", "one\n\neins\n\ntwo\n"),
        ("> one\n> more\n", "eins", "> one\n> more\n>\n> eins\n"),
        ("- one\n- two\n", "eins", "- one\\\n  eins\n- two\n"),
        ("## one ##\n", "eins", "## one / eins ##\n"),
        ("one\n===\n", "eins", "one / eins\n===\n"),
        ("| a | b |\n|---|---|\n", "x", "| a<br>x | b |\n|---|---|\n"),
        ("---\ntitle: a\n---\n", "x", "---\ntitle: a / x\n---\n"),
        ("<p>one</p>\n", "eins", '<p>one</p><p lang="zh">eins</p>\n'),
    ],
)
def test_d_8_the_target_stands_after_the_source(source: str, target: str, expected: str) -> None:
    assert translated(source, target, options=BOTH) == expected


@pytest.mark.parametrize("data", [b"\xef\xbb\xbfA text\r\n", "A text\n".encode("utf-16")])
def test_d_4_marks_and_encodings_stay(data: bytes) -> None:
    document = read_markdown(data)
    merged = document.merge({document.units[0].id: "Ein Text"}, PLAIN)
    encoding = "utf-16" if data.startswith(b"\xff\xfe") else "utf-8-sig"
    assert merged.data.decode(encoding).strip() == "Ein Text"
    assert merged.data[:2] == data[:2]


def test_d_4_undecodable_bytes_are_refused_with_their_position() -> None:
    with pytest.raises(DocumentError, match="byte 2"):
        read_markdown(b"a \xff")


def test_d_6_a_table_of_thousands_of_empty_cells_and_a_fence_without_end_are_read() -> None:
    cells = "|" * 2000
    assert texts(f"{'|a' * 100}|\n{'|-' * 100}|\n{cells}\n```\n\nunclosed\n")[:1] == ["a"]


@pytest.mark.parametrize(
    "piece", ["[", "![", "*", "_a*", "`", "<", "<a ", "&", "$", "$ a", "{{", "[^", "\\", "~~", "|", ":", "(", "]("]
)
def test_d_6_the_time_for_a_run_of_one_mark_grows_like_its_length(piece: str) -> None:
    for data in (piece * 1500, f"a {piece}" * 1500, f"{piece}\n" * 700):
        document = read_markdown(data.encode())
        assert document.merge({unit.id: unit.source.text for unit in document.units}, PLAIN).data == data.encode()


def test_the_format_is_found_by_name_only() -> None:
    markdown = MarkdownFormat()
    assert ".md" in markdown.extensions
    assert not markdown.sniffs(b"# Head\n")
    assert isinstance(markdown.read(b"# Head\n", Languages(None, "fr")), MarkdownDocument)


@pytest.mark.parametrize(
    ("value", "text", "target", "written"),
    [
        ("plain words", "plain words", "mots simples", "mots simples"),
        ("plain words", "plain words", "clé: valeur", '"clé: valeur"'),
        ("plain words", "plain words", "- no", '"- no"'),
        ("plain words", "plain words", "true", '"true"'),
        ("plain words", "plain words", "a #b", '"a #b"'),
        ('"quoted: \\"a\\""', 'quoted: "a"', 'dit "b"', '"dit \\"b\\""'),
        ("'it''s'", "it's", "c'est", "'c''est'"),
        (">-\n  two\n  lines", "two lines", "deux", '"deux"'),
        (">\n  two\n  lines", "two lines", "deux", '"deux\\n"'),
        ("two\n  lines", "two lines", "deux", "deux"),
        ("10 tips here", "10 tips here", "10 astuces", "10 astuces"),
    ],
)
def test_front_matter_values_keep_their_style_or_are_quoted(value: str, text: str, target: str, written: str) -> None:
    source = f"---\ntitle: {value}\nlayout: page\n---\n"
    assert texts(source) == [text]
    assert translated(source, target) == f"---\ntitle: {written}\nlayout: page\n---\n"


@pytest.mark.parametrize(
    "value",
    ["true", "2024-01-01", "[a, b]", "{a: b}", "*anchor", "|\n  two\n  lines", '"\\x41 word"', "&a b", "", "!tag x"],
)
def test_front_matter_values_that_are_no_plain_text_stay(value: str) -> None:
    assert texts(f"---\ntitle: {value}\n---\n") == []


def test_front_matter_ends_at_its_fence_and_only_some_keys_are_text() -> None:
    text = "---\ntitle: A\nslug: b\ndescription: C\nnested:\n  title: d\n---\ntitle: E\n"
    assert front_matter_end(text) == text.index("title: E")
    assert [value.text for value in front_values(text)] == ["A", "C"]
    assert front_matter_end("---\nno end\n") == 0


def test_every_unit_of_the_guide_can_be_translated_alone() -> None:
    document = read_markdown(GUIDE.read_bytes())
    for unit in document.units:
        merged = document.merge({unit.id: pseudo(unit)}, PLAIN)
        assert merged.rejected == {}
        again = read_markdown(merged.data)
        changed = [
            old.id for old, new in zip(document.units, again.units, strict=True) if old.source.text != new.source.text
        ]
        assert changed == [unit.id]
