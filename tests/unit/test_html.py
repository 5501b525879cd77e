"""HTML: what is a unit, what is protected, and how targets are written."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hymt_local.documents.base import Languages, MergeOptions
from hymt_local.documents.html import HtmlFormat
from hymt_local.documents.html_document import declared_charset, is_rtl, read_html
from hymt_local.errors import DocumentError
from hymt_local.segment import TokenKind
from tests.markup import LANGUAGES, PLAIN

BOTH = MergeOptions(LANGUAGES, is_bilingual=True, sets_metadata=False)
PAGE = Path(__file__).parents[1] / "golden" / "documents" / "html" / "page.html"


def texts(source: str) -> list[str]:
    return [unit.source.text for unit in read_html(source.encode()).units]


def translated(source: str, *targets: str, options: MergeOptions = PLAIN) -> str:
    """Return a page with targets for its first units; the format must accept them."""
    document = read_html(source.encode())
    given = dict(zip([unit.id for unit in document.units], targets, strict=False))
    for unit in document.units:
        if unit.id in given:
            assert document.fault(unit, given[unit.id]) is None
    merged = document.merge(given, options)
    assert merged.rejected == {}
    return merged.data.decode()


def fault(source: str, target: str) -> str | None:
    document = read_html(source.encode())
    return document.fault(document.units[0], target)


def in_language(source: str, target_lang: str) -> str:
    options = MergeOptions(Languages("en", target_lang))
    return read_html(source.encode()).merge({}, options).data.decode()


def test_d_3_the_page_has_exactly_these_units() -> None:
    assert [unit.source.text for unit in read_html(PAGE.read_bytes()).units] == [
        "The lighthouse & the sea",
        'All about "the tower"',
        "Tower",
        "The <em>white</em> tower",
        'Walk with <a href="walk.html?a=1&b=2" title="The walk">a friend</a> past the '
        '<img src=a.png alt="A small boat"> and the <code>harbour &lt;b&gt;</code>\xa0!<br>'
        "Then climb<!-- slowly --> up.",
        "The walk",
        "A small boat",
        "Write &lt;b&gt; for <b>bold</b> letters &amp; more, café included.",
        "Tags <b>cross <i>each</b> other</i> here",
        "Home page",
        "About us",
        "One <span>item</span>",
        "First verse",
        "Second verse",
        "Call <span translate=no>ACME</span>, dear {{ user.name }}:",
        "too late",
        "in time",
        'Now <?php echo "a > b"; ?> is done; 1 < 2 & 3 > 2.',
        "Your name",
        'Say "hello"',
        "Send it",
        "Close it",
        "Go <b>now</b>",
        "North",
        "South side",
        "South",
        "Rooms",
        "All rooms",
        "Rm",
        "Room",
        "Hall <u>wide</u>",
        "Padded \xa0text",
        "A card <wbr>of ours",
        "Office text",
        "Never closed",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "<script>var a = 'text';</script>",
        "<style>p { color: red }</style>",
        "<pre>some text</pre>",
        "<!-- text -->",
        "<!--[if IE]><p>text</p><![endif]-->",
        "<svg><text>a</text></svg>",
        "<p translate=no>text</p>",
        "<?php text ?>",
        "<p translate='no'>text <b>more</b></p>",
        "<div class='a notranslate b'><p>text</p></div>",
        "<p>12 &amp; 34</p>",
        "<textarea>typed</textarea>",
        "<p><code>text</code></p>",
        "<template><p>text</p></template>",
        "<p>&nbsp;</p>",
        "<math><mi>x</mi></math>",
        "{% if text %}",
        "<p>{{ text }}</p>",
        "<input type=text value='typed'>",
        "<b",
        "",
        "<meta name=viewport content='width=device-width'>",
        "<a href=text id=text class=text></a>",
        "<!doctype html>",
        "<pre>never closed <p>text</p>",
        "<script>never closed <p>text</p>",
        "<p title>",
        "<img alt=''>",
        "<?xml text?>",
    ],
)
def test_what_is_no_text_is_no_unit(source: str) -> None:
    assert texts(source) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("just text", ["just text"]),
        ("<p>a<p>b", ["a", "b"]),
        ("<ul><li>a<li>b</ul>", ["a", "b"]),
        ("<td>a<td>b", ["a", "b"]),
        ("<div>a<p>b</p>c</div>", ["a", "b", "c"]),
        ("<p>a\n   b</p>", ["a b"]),
        ("<p>a <b>b</b> c</p>", ["a <b>b</b> c"]),
        ("<p><b>all bold</b></p>", ["all bold"]),
        ("<p><a id=x></a>a<br></p>", ["a"]),
        ("<p>a<br>b</p>", ["a<br>b"]),
        ("<p>a<br><br>b</p>", ["a", "b"]),
        ("<a href=1>a</a> <a href=2>b</a>", ["a", "b"]),
        ("<p>see <a href=1>a</a></p>", ["see <a href=1>a</a>"]),
        ("<p>use <code>x</code></p>", ["use <code>x</code>"]),
        ("<p>a <code>x</p><p>b</p>", ["a", "b"]),
        ("a <span translate=no><!--", ["a"]),
        ("a <?php echo b", ["a"]),
        ("<title>A &amp; B</title>", ["A & B"]),
        ("<title>{{ page.title }} | Our site</title>", ["{{ page.title }} | Our site"]),
        ("<title>{% block a %}Site{% endblock %}</title>", ["{% block a %}Site{% endblock %}"]),
        ("<p>&eacute;&#233;&#xe9; &lt;x&gt; &amp;</p>", ["ééé <x> &"]),
        ("<p>a&nbsp;b</p>", ["a\xa0b"]),
        ("<p>&nbsp; a &#8195;</p>", ["a"]),
        ("<option>a<option>b", ["a", "b"]),
        ("<button>a</button> <button>b</button>", ["a", "b"]),
        ("<p>a {% if x %}b{% endif %}</p>", ["a", "b"]),
        ("<p>a {{ b }} c</p>", ["a {{ b }} c"]),
        ("<p>a <?= $b ?> c</p>", ["a <?= $b ?> c"]),
        ("<p>a < b</p>", ["a < b"]),
        ("<x-card>a</x-card><x-card>b</x-card>", ["a", "b"]),
        ("<p>a<o:p></o:p> b</p>", ["a<o:p></o:p> b"]),
        ("<p translate=no>a<p>b</p>", ["b"]),
        ("<?xml version='1.0'?><title/><p>a</p>", ["a"]),
    ],
)
def test_s_2_the_unit_is_the_run_of_text_in_a_block(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<img alt='A cat'>", "A cat"),
        ('<a title="A title"></a>', "A title"),
        ("<input placeholder=Name>", "Name"),
        ("<div aria-label='Close it'></div>", "Close it"),
        ("<meta name=Description content='All'>", "All"),
        ("<meta name=keywords content='a, b'>", "a, b"),
        ("<meta property='og:title' content='A'>", "A"),
        ("<input type=SUBMIT value=Send>", "Send"),
        ("<input type=button value=Send>", "Send"),
        ("<option label='L'></option>", "L"),
        ("<th abbr='Rm'></th>", "Rm"),
        ("<table summary='S'></table>", "S"),
        ("<img alt='a {{ b }} c'>", "a {{ b }} c"),
        ("<img alt='&quot;a&quot;'>", '"a"'),
        ("<img alt=' a\n b '>", "a b"),
    ],
)
def test_d_3_attributes_that_people_read_are_units(source: str, expected: str) -> None:
    assert texts(source) == [expected]


def test_markup_inside_a_unit_is_protected_in_pairs_and_atoms() -> None:
    unit = read_html(b"<p>a <b>b <i>c</i></b> <code>d</code> <br>e <!-- f --> {{ g }} <b>h</b> z</p>").units[0]
    assert [(mark.span.of(unit.source.text), mark.kind.value, mark.pair) for mark in unit.source.protected] == [
        ("<b>", "open", 1),
        ("<i>", "open", 2),
        ("</i>", "close", 2),
        ("</b>", "close", 1),
        ("<code>d</code>", "atomic", 0),
        ("<br>", "atomic", 0),
        ("<!-- f -->", "atomic", 0),
        ("{{ g }}", "atomic", 0),
        ("<b>", "open", 3),
        ("</b>", "close", 3),
    ]


def test_tags_that_cross_are_atoms_and_keep_their_order() -> None:
    source = "<p>a <b>b <i>c</b> d</i> e</p>"
    kinds = [mark.kind for mark in read_html(source.encode()).units[0].source.protected]
    assert kinds == [TokenKind.OPEN, TokenKind.ATOMIC, TokenKind.CLOSE, TokenKind.ATOMIC]
    assert fault(source, "A <b>B <i>C</b> D</i> E") is None
    assert fault(source, "A <i>B <b>C</b> D</i> E")


def test_context_is_the_heading_and_the_text_before() -> None:
    units = read_html(b"<h1>Head</h1><p>one<p>two<h2>Next</h2><img alt=x><p>three").units
    assert [unit.source.context for unit in units] == [(), ("Head",), ("Head", "one"), (), (), ("Next",)]


def test_units_name_their_lines() -> None:
    units = read_html(b"<p>a</p>\n<p>\n b</p>\n<img\n alt=c>").units
    assert [unit.location for unit in units] == ["line 1", "line 3", "line 5"]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("<p>a</p>", "b & <c> \"d\" 'e' > f", "<p>b &amp; &lt;c> \"d\" 'e' > f</p>"),
        ("<p> a </p>", "b", "<p> b </p>"),
        ("<![CDATA[<p>a</p>", "]]> --> ?> %> >", "<![CDATA[<p>]]&gt; --&gt; ?&gt; %&gt; ></p>"),
        ("<img alt='a'>", "b %>", "<img alt='b %&gt;'>"),
        ("<p>\n  a\n  b\n</p>", "c", "<p>\n  c\n</p>"),
        ("<p>a&nbsp;b</p>", "c\xa0d", "<p>c&nbsp;d</p>"),
        ("<p>a\xa0b</p>", "c\xa0d", "<p>c\xa0d</p>"),
        ("<p>a&shy;b&zwnj;c</p>", "d\xade\u200cf", "<p>d&shy;e&zwnj;f</p>"),
        ("<p>x &lt;b&gt; <b>y</b></p>", "X &lt;b&gt; <b>Y</b>", "<p>X &lt;b&gt; <b>Y</b></p>"),
        ("<p>a\nb</p>", "c\n\nd", "<p>c d</p>"),
        ('<img alt="a">', "b \"c\" & 'd'", "<img alt=\"b &quot;c&quot; &amp; 'd'\">"),
        ("<img alt='a'>", "b \"c\" 'd'", "<img alt='b \"c\" &#39;d&#39;'>"),
        ("<img alt=a>", "b c", '<img alt="b c">'),
        ("<img alt=' a '>", "b", "<img alt=' b '>"),
        ("<title>a</title>", "</title><b>", "<title>&lt;/title>&lt;b></title>"),
        ("<p>1 <b>2</b> a</p>", "<b>2</b> A 1", "<p><b>2</b> A 1</p>"),
    ],
)
def test_targets_are_encoded_no_more_than_they_must_be(source: str, target: str, expected: str) -> None:
    assert translated(source, target) == expected


def test_spaces_beside_inline_tags_are_the_targets() -> None:
    source = "<p>one <b>two</b>, three<i> four </i>five</p>"
    assert translated(source, "eins <b>zwei</b>, drei<i> vier </i>fünf") == (
        "<p>eins <b>zwei</b>, drei<i> vier </i>fünf</p>"
    )


def test_attributes_inside_a_run_go_with_their_tag() -> None:
    source = '<p>a <img alt="x"> b <a title="y">c</a> <img alt="x"> d</p>'
    text, first, title, second = read_html(source.encode()).units
    targets = {
        text.id: 'D <a title="y">C</a> <img alt="x"> B <img alt="x"> A',
        first.id: "X1",
        title.id: "Y",
        second.id: "X2",
    }
    document = read_html(source.encode())
    assert document.merge(targets, PLAIN).data.decode() == (
        '<p>D <a title="Y">C</a> <img alt="X1"> B <img alt="X2"> A</p>'
    )
    assert document.merge({title.id: "Y"}, PLAIN).data.decode() == source.replace('"y"', '"Y"')


@pytest.mark.parametrize(
    "target",
    [
        "a b",
        "a <b>b",
        "a </b>b<b>",
        "<b>a</b> <b>b</b>",
        "a <B>b</B> <br>",
        "a <b>b</b>",
        "a <b>b</b><br><br>",
        " <b></b><br>",
    ],
)
def test_p_4_a_target_without_exactly_its_markup_is_refused(target: str) -> None:
    assert fault("<p>a <b>b</b><br>c", target)


@pytest.mark.parametrize("target", ["a {{ b }}", "{% x %}", "a \0", "a \ud800", "a \x1b[2J", " \n", ""])
def test_v_1_targets_that_no_page_can_hold_are_refused(target: str) -> None:
    assert fault("<p>a</p>", target)
    document = read_html(b"<p>a</p>")
    assert document.merge({document.units[0].id: target}, PLAIN).data == b"<p>a</p>"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("<p>}}a{{</p>", "}}a{{}}a{{"),
        ("<p>}}a{{</p>", "{{a}}"),
        ("<p>a {{ b }} c</p>", "a {{{ b }} c"),
        ("<p>a {{ b }} {c}</p>", "a {{ b }} {{c}}"),
    ],
)
def test_v_1_targets_that_would_make_template_code_are_refused(source: str, target: str) -> None:
    assert fault(source, target)
    assert fault(source, read_html(source.encode()).units[0].source.text) is None


def test_braces_may_stand_in_a_target_as_in_its_source() -> None:
    assert translated("<p>a {b} {{ c }}</p>", "{{ c }} A {B}") == "<p>{{ c }} A {B}</p>"


def test_pairs_that_cross_are_refused() -> None:
    assert fault("<p>a <b>b</b> <i>c</i> d", "a <b>b <i>c</b></i> d")
    assert fault("<p>a <b>b</b> <i>c</i> d", "a <b>b <i>c</i></b> d") is None


@pytest.mark.parametrize(
    ("source", "target_lang", "expected"),
    [
        ('<html lang="en">', "fr", '<html lang="fr">'),
        ("<html lang=en class=x>", "zh-Hant", '<html lang="zh-Hant" class=x>'),
        ("<HTML Lang='en'>", "fr", '<HTML Lang="fr">'),
        ("<html>", "fr", '<html lang="fr">'),
        ("<html>", "ar", '<html lang="ar" dir="rtl">'),
        ('<html dir="ltr" lang=en>', "he", '<html dir="rtl" lang="he">'),
        ('<html dir="rtl" lang=ar>', "en", '<html dir="ltr" lang="en">'),
        ('<html lang="en" xml:lang="en">', "fr", '<html lang="fr" xml:lang="fr">'),
        (
            '<meta http-equiv="Content-Language" content="en">',
            "fr",
            '<meta http-equiv="Content-Language" content="fr">',
        ),
        ("<p>fragment</p>", "ar", "<p>fragment</p>"),
        ('<html lang="fr">', "fr", '<html lang="fr">'),
    ],
)
def test_d_7_language_and_direction_follow_the_target(source: str, target_lang: str, expected: str) -> None:
    assert in_language(source, target_lang) == expected


@pytest.mark.parametrize("tag", ["ar", "fa", "he", "ur", "ug", "kk-Arab", "ar-EG"])
def test_d_7_these_are_written_from_right_to_left(tag: str) -> None:
    assert is_rtl(tag)


@pytest.mark.parametrize("tag", ["en", "zh", "kk", "kk-Cyrl", "mn-Mong", "zh-Hant", "ug-Latn"])
def test_d_7_these_are_not(tag: str) -> None:
    assert not is_rtl(tag)


def test_d_4_a_declared_encoding_is_kept_and_what_it_lacks_becomes_a_reference() -> None:
    data = '<meta charset="iso-8859-1"><p>Straße</p><img alt="Fuß">'.encode("windows-1252")
    document = read_html(data)
    merged = document.merge({unit.id: "улица “é”" for unit in document.units}, PLAIN)
    assert merged.rejected == {}
    assert merged.data.decode("windows-1252") == (
        '<meta charset="iso-8859-1"><p>&#1091;&#1083;&#1080;&#1094;&#1072; “é”</p>'
        '<img alt="&#1091;&#1083;&#1080;&#1094;&#1072; “é”">'
    )


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"<meta charset=utf-8>", "utf-8"),
        (b"<META CHARSET='GBK'>", "gbk"),
        (b"<meta charset=ISO-8859-1>", "windows-1252"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">', "shift_jis"),
        (b'<?xml version="1.0" encoding="Big5"?>', "big5"),
        (b"<p>charset=gbk</p>", None),
        (b" " * 2000 + b"<meta charset=gbk>", None),
        (b"<meta charset=latin1>\x81", "iso-8859-1"),
    ],
)
def test_d_4_the_declaration_is_read_as_browsers_read_it(head: bytes, expected: str | None) -> None:
    assert declared_charset(head) == expected


def test_d_4_undecodable_bytes_and_unknown_encodings_are_refused() -> None:
    with pytest.raises(DocumentError, match="byte 3"):
        read_html(b"<p>\xff</p>")
    with pytest.raises(DocumentError, match="klingon"):
        read_html(b"<meta charset=klingon>")


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("<p>a</p>", "b", '<p>a</p><p lang="zh">b</p>'),
        ('<p id="x" class="y" lang="en">a</p>', "b", '<p id="x" class="y" lang="en">a</p><p lang="zh" class="y">b</p>'),
        ("<td>a</td>", "b", '<td>a<br><span lang="zh">b</span></td>'),
        ("<li>a<li>c", "b", '<li>a<br><span lang="zh">b</span><li>c'),
        ("<p>a<p>c", "b", '<p>a<br><span lang="zh">b</span><p>c'),
        ("<p>a <b id=x>b</b> c</p>", "d <b id=x>e</b> f", '<p>a <b id=x>b</b> c</p><p lang="zh">d <b>e</b> f</p>'),
        ("<title>a</title>", "b", "<title>a / b</title>"),
        ("<img alt=a>", "b", '<img alt="a / b">'),
        ("<option>a</option>", "b", "<option>a / b</option>"),
    ],
)
def test_d_8_the_target_stands_after_the_source(source: str, target: str, expected: str) -> None:
    assert translated(source, target, options=BOTH) == expected


def test_d_8_a_page_in_both_languages_keeps_the_language_of_the_page() -> None:
    document = read_html(b"<html lang=en><p>a</p>")
    options = MergeOptions(Languages("en", "fr"), is_bilingual=True)
    merged = document.merge({document.units[0].id: "b"}, options)
    assert merged.data == b'<html lang=en><p>a</p><p lang="fr">b</p>'


def test_d_8_a_copied_block_of_a_right_to_left_target_says_so() -> None:
    document = read_html(b"<p>a</p>")
    options = MergeOptions(Languages("en", "ar"), is_bilingual=True)
    assert document.merge({document.units[0].id: "b"}, options).data == b'<p>a</p><p lang="ar" dir="rtl">b</p>'


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "</",
        "<b",
        "<b>",
        "</b>",
        "<!--",
        "<!",
        "<?",
        "<?php",
        "<%",
        "{{",
        "{%",
        "{{{",
        "&",
        "&amp",
        '<a b="',
        "<a b='",
        "<a ",
        "<a =",
        "<script>",
        "<title>",
        "<code>",
        "<pre>",
        "<p translate=no>",
        "<svg>",
        "<br>",
        "<i><b></i>",
        " ",
        "\n",
        "<![CDATA[",
        "<a href=x>y</a>",
        "<td>x",
        "{#",
    ],
)
def test_d_6_the_time_for_a_run_of_one_construct_grows_like_its_length(piece: str) -> None:
    data = (f"a{piece}" * 2000 + piece * 2000).encode()
    started = time.process_time()
    document = read_html(data)
    assert document.merge({unit.id: unit.source.text for unit in document.units}, PLAIN).data == data
    assert time.process_time() - started < 3


def test_d_6_a_thousand_different_links_in_one_run_are_no_hazard() -> None:
    source = "<p>x " + " ".join(f"<a href={number}>y</a>" for number in range(800)) + "</p>"
    target = read_html(source.encode()).units[0].source.text.replace("y", "z")
    assert translated(source, target) == source.replace("y", "z")


def test_d_6_twenty_thousand_nested_elements_are_read() -> None:
    assert texts("<div>" * 20_000 + "a" + "</div>" * 20_000) == ["a"]


@pytest.mark.parametrize(
    "head",
    [
        b"<!doctype html>",
        b"\xef\xbb\xbf<!DOCTYPE HTML>",
        b"  <html>",
        b"<!-- c --><html lang=en>",
        b"<?xml version='1.0'?>\n<html>",
        "\ufeff<html>".encode("utf-16-le"),
        b"<!DOCTYPE html PUBLIC '-//W3C'>",
    ],
)
def test_a_page_is_known_by_its_head(head: bytes) -> None:
    assert HtmlFormat().sniffs(head)


@pytest.mark.parametrize(
    "head", [b"", b"text", b"<p>fragment</p>", b"<htmlx>", b"# <html>", b"<?xml version='1.0'?><xliff>"]
)
def test_other_text_is_not(head: bytes) -> None:
    assert not HtmlFormat().sniffs(head)
