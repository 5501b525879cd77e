import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.literals import _KINDS, _MAY_BEGIN, _grammar, find_literals, without_literals
from hymt_local.segment import TokenGroup

OPT_IN = {"vue", "mask-lookalike", "rtl"}  # Laravel's and vue-i18n's forms, foreign masks, marks of direction


def test_p_1_the_placeholder_cases(shared_data: Path) -> None:
    lines = (shared_data / "behaviour" / "placeholders.jsonl").read_text(encoding="utf-8").splitlines()
    cases = {case["id"]: case for case in map(json.loads, lines)}
    for name in cases.keys() - OPT_IN:
        assert [literal.text for literal in find_literals(cases[name]["source"])] == cases[name]["tokens"], name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See https://example.com/a?b=1. Then go.", ["https://example.com/a?b=1"]),
        ("（见https://example.com/路径。好）", ["https://example.com/路径"]),
        ("https://a.example/b\u00a0then", ["https://a.example/b"]),
        ("Write to a.b+c@mail.example.org, please", ["a.b+c@mail.example.org"]),
        ("Hello <b class='x'>you</b><br/>", ["<b class='x'>", "</b>", "<br/>"]),
        ("{{count}} of {{{all}}}", ["{{count}}", "{{{all}}}"]),
        ("{name!r:>10} {0} {} {a.b[0]}", ["{name!r:>10}", "{0}", "{}", "{a.b[0]}"]),
        ("Run `pip install x` in /usr/local/bin or ~/bin", ["`pip install x`", "/usr/local/bin", "~/bin"]),
        ("<|eos|> and <｜hy_User｜>", ["<|eos|>", "<｜hy_User｜>"]),
        ("50% sure, 100%.", []),
        ("20 %discount", []),
        ("and/or, 5 km/h, 1/2", []),
        ("a < b and c > d", []),
        ("Fish & chips; R&D", []),
    ],
)
def test_what_is_a_literal(text: str, expected: list[str]) -> None:
    assert [literal.text for literal in find_literals(text)] == expected


@given(st.text(alphabet=st.sampled_from("ab1 %${}<>/&;.:@`_|-s~\\é好"), max_size=60))
def test_spans_are_ordered_and_hold_their_text(text: str) -> None:
    end = 0
    for literal in find_literals(text):
        assert literal.text
        assert literal.span.start >= end
        assert literal.span.of(text) == literal.text
        end = literal.span.end


def test_removing_literals_keeps_words_apart() -> None:
    assert without_literals("one%stwo{name}three").split() == ["one%stwo", "three"]
    assert without_literals("one{a}two").split() == ["one", "two"]


FRAGMENTS = st.sampled_from(
    [
        *"aBZ19_é你 \n.:/\\-+@%{}[]()<>$`'\"|&;#=!?~*⟦⟧\u2066", "__a__", "foo__bar__", "https://a.b", "x.y@z.org",
        "{a}", "{{a}}", "%s", "%(a)s", "ZXQ1QXZ", "⟦1⟧", "[[1]]", "v1.2.3", "C:\\x", "www.a.b", "a1b2c3d4e5f60718",
        "<b>", "<|eos|>", "&amp;", "@:link", "$t(a)", ":name", "\\n", "/usr/lib", "~/x/y", "{n, plural}",
        "12345678-1234-1234-1234-123456789012",
    ]
)  # fmt: skip


@given(parts=st.lists(FRAGMENTS, max_size=25), group=st.sampled_from([group for group in TokenGroup if _KINDS[group]]))
def test_p_1_no_literal_begins_where_the_grammar_does_not_look(parts: list[str], group: TokenGroup) -> None:
    text, grammar = "".join(parts), _grammar(frozenset({group}))
    assert grammar is not None
    everywhere = re.compile(grammar.pattern.removeprefix(_MAY_BEGIN), re.ASCII)
    assert [match.span() for match in grammar.finditer(text)] == [match.span() for match in everywhere.finditer(text)]
