import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.engine.utf8 import Utf8Stream, encode_text

NOISY_BYTES = st.lists(st.one_of(st.binary(max_size=3), st.text(max_size=4).map(str.encode)), max_size=12).map(b"".join)


def decode_in_pieces(data: bytes, cuts: list[int]) -> tuple[str, Utf8Stream]:
    stream = Utf8Stream()
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    text = "".join(stream.feed(data[start:end]) for start, end in itertools.pairwise(bounds))
    return text + stream.finish(), stream


@given(st.text(), st.lists(st.integers(min_value=0)))
def test_any_split_of_valid_text_decodes_to_the_text(text: str, cuts: list[int]) -> None:
    decoded, stream = decode_in_pieces(text.encode(), cuts)
    assert decoded == text
    assert stream.n_invalid == 0


@given(NOISY_BYTES, st.lists(st.integers(min_value=0)))
def test_any_split_of_any_bytes_equals_whole_decoding_with_replacement(data: bytes, cuts: list[int]) -> None:
    decoded, stream = decode_in_pieces(data, cuts)
    assert decoded == data.decode(errors="replace")
    assert (stream.n_invalid == 0) == (data.decode(errors="ignore").encode() == data)


def test_a_split_character_is_held_back_until_it_is_whole() -> None:
    stream = Utf8Stream()
    assert [stream.feed(bytes([byte])) for byte in "é界".encode()] == ["", "é", "", "", "界"]


def test_a_stream_that_ends_inside_a_character_says_so() -> None:
    stream = Utf8Stream()
    assert stream.feed("界".encode()[:2]) == ""
    assert stream.finish() == "\N{REPLACEMENT CHARACTER}"
    assert stream.n_invalid == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain", "plain"), ("\ud83d\ude00", "😀"), ("a\ud800b", "a\ufffdb"), ("\udcff", "\ufffd"), ("\0", "\0")],
)
def test_text_with_surrogates_always_encodes(text: str, expected: str) -> None:
    assert encode_text(text).decode() == expected
