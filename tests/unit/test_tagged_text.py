"""Fragments of markup: what is a unit, what is protected, and that everything else comes back as it was."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.segment import TokenKind
from hymt_local.server.tagged_text import HTML_RULES, INLINE_RULES, MarkupRules, read_tagged

XML = MarkupRules(is_html=False, splitting=frozenset({"sep"}), ignored=frozenset({"x"}), finds_structure=True)
ALL_RULES = [HTML_RULES, INLINE_RULES, XML]
PARTS = (
    *("<p>", "</p>", "<b>", "</b>", "<b class='x>y'>", "<br>", "<br/>", "<x>", "</x>", "<sep/>", "</", "<", ">", "&"),
    *("&amp;", "&lt;", "&nbsp;", "&#65;", "&#x110000;", "&bogus;", "<!--", "-->", "<![CDATA[", "]]>", "<!DOCTYPE a>"),
    *("<script>", "</script>", "<span translate=no>", "</span>", "{0}", "{1}", "word", "two words", " ", "\n", '"'),
)
fragments = st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=14).map("".join)


@pytest.mark.parametrize("rules", ALL_RULES, ids=["html", "inline", "xml"])
@given(text=fragments)
def test_with_its_own_texts_a_fragment_comes_back_unchanged(rules: MarkupRules, text: str) -> None:
    tagged = read_tagged(text, rules)
    assert tagged.joined([unit.text for unit in tagged.units]) == text


@pytest.mark.parametrize("rules", ALL_RULES, ids=["html", "inline", "xml"])
@given(text=fragments)
def test_protected_spans_are_ordered_apart_and_paired(rules: MarkupRules, text: str) -> None:
    for unit in read_tagged(text, rules).units:
        assert unit.text.strip() == unit.text != ""
        ends = [edge for each in unit.protected for edge in (each.span.start, each.span.end)]
        assert ends == sorted(ends)
        assert not ends or (ends[0] >= 0 and ends[-1] <= len(unit.text))
        opened: list[int] = []
        for each in unit.protected:
            if each.kind is TokenKind.OPEN:
                opened.append(each.pair)
            elif each.kind is TokenKind.CLOSE:
                assert opened.pop() == each.pair
        assert opened == []


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("<p>One</p><p>Two <b>big</b> words</p>", ["One", "Two <b>big</b> words"]),
        ("<b>All of it</b>", ["All of it"]),
        ("<b>One</b> and <b>two</b>", ["<b>One</b> and <b>two</b>"]),
        ("one<br>two", ["one<br>two"]),
        ("<br> one <br>", ["one"]),
        ("Tom &amp; Jerry&#39;s &lt;3", ["Tom & Jerry's &lt;3"]),
        ("a <code>x = 1</code> b", ["a <code>x = 1</code> b"]),
        ("<script>if (a < b) c()</script>", []),
        ("see <span translate='no'>Hy <b>MT</b></span>", ["see <span translate='no'>Hy <b>MT</b></span>"]),
        ("<!-- secret --> text", ["text"]),
        ("text <!-- never closed", ["text"]),
        ("", []),
        (" \n ", []),
        ("<p></p>", []),
        ("<i>half", ["half"]),
        ("3 < 4 > 2", ["3 < 4 > 2"]),
    ],
)
def test_units_of_html(text: str, units: list[str]) -> None:
    assert [unit.text for unit in read_tagged(text).units] == units


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("<doc><title>A title</title><par>Text</par></doc>", ["A title", "Text"]),
        ("<b>Hello</b> <i>world</i>", ["<b>Hello</b> <i>world</i>"]),
        ("<b>Hello</b>\n<i>world</i>", ["Hello", "world"]),
        ("<p>Some <b><i>bold</i></b> text</p>", ["Some <b><i>bold</i></b> text"]),
        ("<P>One</P><p>two</p>", ["<P>One</P><p>two</p>"]),
        ("keep <x>this <b>too</b></x> please", ["keep <x>this <b>too</b></x> please"]),
        ("one<sep/>two", ["one", "two"]),
        ("&nbsp;&quot;", ['&nbsp;"']),
    ],
)
def test_units_of_xml(text: str, units: list[str]) -> None:
    assert [unit.text for unit in read_tagged(text, XML).units] == units


def test_what_a_target_has_of_special_characters_is_spelled_out_and_its_tags_are_not() -> None:
    tagged = read_tagged("<p>a <b>c</b> &lt; d</p>")
    assert tagged.joined(["R&D <b>x</b> &lt; y < z <i>"]) == "<p>R&amp;D <b>x</b> &lt; y &lt; z &lt;i&gt;</p>"


@pytest.mark.parametrize("part", ["<", "<a ", "<!--", "&", "</", "<a href='", "{", "<b>", "</b>", "<x>", "<![CDATA["])
@pytest.mark.parametrize("rules", ALL_RULES, ids=["html", "inline", "xml"])
def test_a_text_full_of_marks_is_read_in_linear_time(rules: MarkupRules, part: str) -> None:
    def seconds(count: int) -> float:
        text = part * count
        started = time.process_time()
        tagged = read_tagged(text, rules)
        assert tagged.joined([unit.text for unit in tagged.units]) == text
        return time.process_time() - started

    small, large = min(seconds(500) for _ in range(3)), seconds(10_000)
    assert large < 200 * max(small, 0.0002)  # twenty times as much; quadratic would be 400
