"""Decoding and patching lose nothing: what cannot come back the same is refused."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.documents.patching import Patch, apply_patches
from hymt_local.documents.registry import FORMATS, format_named
from hymt_local.documents.text_encoding import decode, in_utf8, is_encoding
from hymt_local.errors import DocumentError
from hymt_local.segment import Span

TEXT = "Guten Tag 你好\r\n\u3000☃ 𝄞\n"
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
)
def test_d_4_unicode_comes_back_the_same_with_and_without_mark(mark: bytes, encoding: str) -> None:
    data = mark + TEXT.encode(encoding)
    decoded = decode(data)
    assert (decoded.text, decoded.encoding, decoded.bom) == (TEXT, encoding, mark)
    assert decoded.encode(decoded.text) == data


@pytest.mark.parametrize("declared", ["GBK", "gb18030", "Shift_JIS", "euc-kr", "windows-1251", " latin-1 ", "big5"])
def test_d_4_declared_legacy_encodings_are_obeyed(declared: str) -> None:
    data = "plain 1".encode(declared.strip())
    assert decode(data, declared=declared).encode("plain 2") == b"plain 2"


def test_d_4_what_a_legacy_encoding_lacks_is_named() -> None:
    decoded = decode("é".encode("latin-1"), declared="iso-8859-1")
    assert decoded.lacks("è") is None
    assert decoded.lacks("5 €") == "the encoding iso8859-1 has no '\\u20ac' (U+20AC)"
    with pytest.raises(DocumentError, match="U\\+20AC"):
        decoded.encode("5 €")


@pytest.mark.parametrize("declared", ["utf-16", "UTF-16LE", "utf-32", "utf8", "utf-8-sig"])
def test_d_4_a_declaration_that_could_be_read_before_decoding_is_not_in_utf_16(declared: str) -> None:
    assert decode(TEXT.encode(), declared=declared).text == TEXT


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"good \xff bad", "byte 5 \\(0xff\\) is not valid UTF-8"),
        (codecs.BOM_UTF8 + b"a\x80", "byte 4 \\(0x80\\)"),
        (codecs.BOM_UTF16_LE + b"a\0b", "byte 4 \\(0x62\\) is not valid UTF-16-LE"),
        (codecs.BOM_UTF16_LE + b"\x00\xd8a\0", "byte 2 \\(0x00\\)"),
        (b"\xed\xa0\x80", "byte 0"),
        (b"abc\0def", "character 3 is a NUL"),
    ],
)
def test_d_4_undecodable_bytes_are_refused_with_their_position(data: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        decode(data)


@pytest.mark.parametrize("declared", ["rot13", "base64", "utf-7", "idna", "klingon", "\0", "unicode_escape"])
def test_d_4_an_encoding_that_is_none_is_refused(declared: str) -> None:
    with pytest.raises(DocumentError, match="unknown encoding"):
        decode(b"text", declared=declared)


def test_d_4_bytes_that_would_come_back_changed_are_refused() -> None:
    data = b'\x1b$B$"\x1b(B\x1b$B$$\x1b(B'  # two switches of the character set where one would do
    with pytest.raises(DocumentError, match="do not survive iso2022-jp"):
        decode(data, declared="iso-2022-jp")


@given(st.binary(), st.sampled_from([None, "gbk", "shift_jis", "euc_jp", "big5", "koi8-r", "utf-16"]))
def test_any_bytes_come_back_the_same_or_are_refused(data: bytes, declared: str | None) -> None:
    try:
        decoded = decode(data, declared=declared)
    except DocumentError:
        return
    assert decoded.encode(decoded.text) == data


@given(PLAIN, st.lists(st.tuples(st.integers(0, 60), PLAIN), max_size=6))
def test_patches_change_their_spans_and_nothing_else(text: str, cuts: list[tuple[int, str]]) -> None:
    ends = sorted({min(position, len(text)) for position, _ in cuts})
    spans = [Span(start, end) for start, end in zip(ends[::2], ends[1::2], strict=False)]
    patches = [Patch(span, new) for span, (_, new) in zip(spans, cuts, strict=False)]
    expected = text
    for patch in reversed(patches):
        expected = expected[: patch.span.start] + patch.text + expected[patch.span.end :]
    assert apply_patches(text, patches) == expected


@pytest.mark.parametrize("spans", [[(1, 3), (2, 4)], [(3, 4), (0, 1)], [(2, 1)], [(4, 9)], [(-1, 2)]])
def test_patches_out_of_order_or_out_of_the_text_are_a_defect(spans: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="after position"):
        apply_patches("abcdef", [Patch(Span(*span), "x") for span in spans])


PO_HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset={}\\n"\n\nmsgid "Köln"\nmsgstr ""\n'


@pytest.mark.parametrize(
    ("format_name", "encoding", "text", "expected"),
    [
        ("html", "iso-8859-1", '<meta charset="iso-8859-1"><p>Café</p>', '<meta charset="utf-8"><p>Café</p>'),
        (
            "html",
            "gbk",
            "<meta http-equiv=Content-Type content='text/html; charset=gbk'><p>你好</p>",
            "<meta http-equiv=Content-Type content='text/html; charset=utf-8'><p>你好</p>",
        ),
        (
            "html",
            "iso-8859-2",
            "<?xml version='1.0' encoding='iso-8859-2'?><p>žluť</p>",
            "<?xml version='1.0' encoding='utf-8'?><p>žluť</p>",
        ),
        ("po", "iso-8859-1", PO_HEADER.format("ISO-8859-1"), PO_HEADER.format("UTF-8")),
        ("srt", "utf-16", "1\n00:00:01,000 --> 00:00:02,000\nПривет\n", "1\n00:00:01,000 --> 00:00:02,000\nПривет\n"),
    ],
)
def test_d_4_on_request_a_document_becomes_utf_8_and_says_so(
    format_name: str, encoding: str, text: str, expected: str
) -> None:
    assert in_utf8(text.encode(encoding), format_named(format_name)) == expected.encode()


@pytest.mark.parametrize("n_before", range(980, 1030))
def test_d_4_a_declaration_is_read_whole_wherever_it_begins(n_before: int) -> None:
    html = format_named("html")
    page = f'<p>{"x" * (n_before - 3)}<meta charset="iso-8859-2"><p>žluť'
    if n_before < 1024:
        expected = page.replace("iso-8859-2", "utf-8")
        assert in_utf8(page.encode("iso-8859-2"), html).decode() == expected
    else:
        with pytest.raises(DocumentError, match="is not valid UTF-8"):
            in_utf8(page.encode("iso-8859-2"), html)


def test_d_4_the_user_may_name_the_encoding() -> None:
    text, srt, html = "1\n00:00:01,000 --> 00:00:02,000\nПривет\n", format_named("srt"), format_named("html")
    assert in_utf8(text.encode("cp1251"), srt, encoding="windows-1251") == text.encode()
    with pytest.raises(DocumentError, match="is not valid UTF-8"):
        in_utf8(text.encode("cp1251"), srt)
    page = "<meta charset=latin1><p>Привет</p>"
    assert in_utf8(page.encode("koi8-r"), html, encoding="koi8-r").decode() == "<meta charset=utf-8><p>Привет</p>"
    assert in_utf8(page.encode(), html, encoding="utf-8").decode() == "<meta charset=utf-8><p>Привет</p>"
    assert is_encoding("gb18030")
    assert not is_encoding("klingon")


@pytest.mark.parametrize(
    ("named", "codec"),
    [
        ("UTF-16", "utf-16-le"),
        ("utf_16_le", "utf-16-le"),
        ("utf-16be", "utf-16-be"),
        ("utf-32", "utf-32-le"),
        ("utf-32-be", "utf-32-be"),
    ],
)
def test_d_4_unicode_without_its_mark_can_be_named(named: str, codec: str) -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\nПривет\n"
    srt = format_named("srt")
    assert in_utf8(text.encode(codec), srt, encoding=named) == text.encode()
    with pytest.raises(DocumentError, match="NUL"):
        in_utf8(text.encode(codec), srt)
    with pytest.raises(DocumentError):
        in_utf8(text.encode(codec)[:-1], srt, encoding=named)
    page = "<meta charset=utf-16><p>Привет</p>"
    expected = "<meta charset=utf-8><p>Привет</p>"
    assert in_utf8(page.encode(codec), format_named("html"), encoding=named).decode() == expected


@given(st.binary(), st.sampled_from(["utf-16", "utf-32-be", "utf-8-sig", "gb18030", "big5hkscs"]))
def test_d_4_any_bytes_in_a_named_encoding_come_back_the_same_or_are_refused(data: bytes, named: str) -> None:
    try:
        decoded = decode(data, named=named)
    except DocumentError:
        return
    assert decoded.encode(decoded.text) == data


@pytest.mark.parametrize("data", [b"", "é".encode(), b"\xef\xbb\xbfa"])
def test_d_4_what_is_utf_8_stays_as_it_is(data: bytes) -> None:
    for known in FORMATS:
        assert in_utf8(data, known) == data
