"""Laws of the Markdown format, on the examples of CommonMark, on own samples and on made documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymt_local.documents.base import MergeOptions, Unit
from hymt_local.documents.front_matter import front_matter_end
from hymt_local.documents.markdown import MarkdownFormat
from hymt_local.documents.markdown_blocks import Lines, block_skeleton, markdown_parser, parse_blocks
from hymt_local.errors import DocumentError
from tests.markup import LANGUAGES, PLAIN, markdown_skeleton, pseudo, targets_of, wide

GOLDEN = Path(__file__).parents[1] / "golden" / "documents" / "markdown"
FORMAT = MarkdownFormat()
FRAGMENTS = [
    *("# ", "## ", "- ", "* ", "1. ", "> ", "    ", "\t", "```\n", "~~~", "***\n", "===\n", "---\n", "| a | b |\n"),
    *("|---|---|\n", "\n", "\n\n", "\r\n", "  \n", "\\\n", " ", "a", "word", "two words", "，", "真", "。", "é", "I'm"),
    *("*", "**", "_", "__", "~~", "`", "``", "[", "]", "(", ")", "](x)", "][id]", "![", "<b>", "</b>", "<br>", "<!--"),
    *("-->", "<div>", "</div>\n", "&amp;", "&copy;", "\\*", "\\[", "\\", "$x$", "$$\n", ":smile:", "{#id}", "{{ x }}"),
    *("[^1]", "[^1]: ", "[id]: /url 'T'\n", ":::note\n", "!!! tip\n", "http://a.b/c_d", "[ ] ", "[!NOTE]\n", "|", ": "),
]
DOCUMENTS = st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join)
BAD_TARGETS = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=8).map("".join)


@pytest.fixture(scope="module")
def examples(shared_data: Path) -> list[str]:
    data = json.loads((shared_data / "commonmark" / "spec-0.31.2.json").read_text(encoding="utf-8"))
    return [example["markdown"].replace("→", "\t") for example in data]


def samples(shared_data: Path) -> list[str]:
    paths = [*sorted(GOLDEN.iterdir()), shared_data / "formats-own" / "gfm-frontmatter.md"]
    return [path.read_bytes().decode("utf-8-sig") for path in paths]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_d_1_every_example_of_the_specification_comes_back(examples: list[str], line_end: str) -> None:
    assert len(examples) == 652
    for example in examples:
        data = example.replace("\n", line_end).encode()
        document = FORMAT.read(data, LANGUAGES)
        assert document.merge({}, PLAIN).data == data
        assert document.merge({unit.id: unit.source.text for unit in document.units}, PLAIN).data == data


def test_d_2_pseudo_keeps_the_blocks_and_the_markup_of_every_example(examples: list[str], shared_data: Path) -> None:
    for text in [*examples, *samples(shared_data)]:
        document = FORMAT.read(text.encode(), LANGUAGES)
        targets = {unit.id: pseudo(unit) for unit in document.units}
        assert [unit.source.text for unit in document.units if document.fault(unit, targets[unit.id])] == []
        merged = document.merge(targets, PLAIN)
        assert merged.rejected == {}
        assert _skeleton(merged.data.decode()) == _skeleton(text), text
        if text in examples:  # the samples have more than the library reads
            assert markdown_skeleton(merged.data.decode()) == markdown_skeleton(text), text


def test_d_2_pseudo_changes_every_unit_and_nothing_else(examples: list[str], shared_data: Path) -> None:
    for text in [*examples, *samples(shared_data)]:
        document = FORMAT.read(text.encode(), LANGUAGES)
        targets = {unit.id: pseudo(unit) for unit in document.units}
        again = FORMAT.read(document.merge(targets, PLAIN).data, LANGUAGES)
        assert [_bare(unit.source.text) for unit in again.units] == [_bare(targets[unit.id]) for unit in document.units]


def _bare(text: str) -> str:
    """Return a text without what the surplus marks of two examples move out of a unit."""
    return text.strip("*_")


def test_a_target_without_word_spaces_keeps_all_emphasis(examples: list[str]) -> None:
    """The trap of CommonMark: emphasis that ends in punctuation wants a space behind it."""
    n_units = n_refused = 0
    for text in examples:
        document = FORMAT.read(text.encode(), LANGUAGES)
        targets = targets_of(document, wide)
        n_units, n_refused = n_units + len(document.units), n_refused + len(document.units) - len(targets)
        merged = document.merge(targets, PLAIN)
        assert markdown_skeleton(merged.data.decode()) == markdown_skeleton(text), text
    assert n_refused <= n_units // 50


@given(text=DOCUMENTS)
@settings(max_examples=150)
def test_d_1_made_documents_come_back(text: str) -> None:
    data = text.encode()
    document = FORMAT.read(data, LANGUAGES)
    assert document.merge({unit.id: unit.source.text for unit in document.units}, PLAIN).data == data
    assert len({unit.id for unit in document.units}) == len(document.units)
    assert all(unit.source.text == unit.source.text.strip() != "" for unit in document.units)


@given(text=DOCUMENTS)
@settings(max_examples=150)
def test_d_2_pseudo_keeps_the_blocks_of_made_documents(text: str) -> None:
    document = FORMAT.read(text.encode(), LANGUAGES)
    merged = document.merge(targets_of(document, pseudo), PLAIN)
    assert _skeleton(merged.data.decode()) == _skeleton(text)


@given(text=DOCUMENTS, data=st.data())
@settings(max_examples=200)
def test_v_1_no_target_changes_the_blocks(text: str, data: st.DataObject) -> None:
    document = FORMAT.read(text.encode(), LANGUAGES)

    def mangled(unit: Unit) -> str:
        kind = data.draw(st.sampled_from(["bad", "preamble", "twice", "around"]))
        bad = data.draw(BAD_TARGETS)
        source = unit.source.text
        return {"bad": bad, "preamble": f"{bad}\n\n{source}", "twice": source * 2, "around": f"{bad}{source}{bad}"}[
            kind
        ]

    merged = document.merge(targets_of(document, mangled), PLAIN)
    assert _skeleton(merged.data.decode()) == _skeleton(text)


@given(text=DOCUMENTS, data=st.data())
def test_v_1_a_target_without_a_mark_is_refused(text: str, data: st.DataObject) -> None:
    document = FORMAT.read(text.encode(), LANGUAGES)
    for unit in document.units:
        if unit.source.protected:
            lost = data.draw(st.sampled_from(unit.source.protected)).span
            target = unit.source.text[: lost.start] + unit.source.text[lost.end :]
            assert document.fault(unit, target)
            assert unit.id in document.merge({unit.id: target}, PLAIN).rejected


@given(text=st.text(max_size=300))
def test_d_6_any_text_is_read_and_comes_back(text: str) -> None:
    data = text.replace("\0", "").encode("utf-8", "ignore")
    document = FORMAT.read(data, LANGUAGES)
    assert document.merge({}, PLAIN).data == data


@given(text=DOCUMENTS)
def test_d_8_both_languages_fit_wherever_the_source_stood(text: str) -> None:
    document = FORMAT.read(text.encode(), LANGUAGES)
    targets = targets_of(document, pseudo)
    merged = document.merge(targets, MergeOptions(LANGUAGES, is_bilingual=True))
    assert document.merge({}, MergeOptions(LANGUAGES, is_bilingual=True)).data == text.encode()
    FORMAT.read(merged.data, LANGUAGES)


@pytest.mark.parametrize("piece", ["> ", "- ", "1. ", "[^1]: "])
def test_d_6_deep_nesting_is_refused_with_its_line(piece: str) -> None:
    with pytest.raises(DocumentError, match="at line 2 is nested deeper"):
        FORMAT.read(("text\n" + piece * 3000 + "deep").encode(), LANGUAGES)


def _skeleton(text: str) -> list[int]:
    lines = Lines.of(text[front_matter_end(text) :])
    return list(block_skeleton(parse_blocks(markdown_parser(), lines.normalized(0), {})))
