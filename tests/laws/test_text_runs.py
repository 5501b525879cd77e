import itertools
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from hymt_local.engine.text_runs import MAX_RUN, split_runs

RUNS = st.lists(st.tuples(st.sampled_from("a火ก7 \n-=é\u0301\0😀"), st.integers(1, 60)), max_size=12)
LIMIT = 16


def coarse_class(character: str) -> str:
    category = unicodedata.category(character)
    if character in "\t\n\v\f\r" or category[0] == "Z":
        return "space"
    return {"L": "letter", "M": "letter", "N": "number", "P": "mark", "S": "mark"}.get(category[0], "other")


@given(RUNS)
def test_the_pieces_are_the_text(runs: list[tuple[str, int]]) -> None:
    text = "".join(character * length for character, length in runs)
    assert "".join(split_runs(text, max_run=LIMIT)) == text


@given(RUNS)
def test_no_piece_has_a_long_run(runs: list[tuple[str, int]]) -> None:
    text = "".join(character * length for character, length in runs)
    for piece in split_runs(text, max_run=LIMIT):
        longest = max((sum(1 for _ in group) for _, group in itertools.groupby(piece, coarse_class)), default=0)
        marks = sum(unicodedata.category(character)[0] == "M" for character in piece)
        assert longest <= (2 * LIMIT if marks else LIMIT)


@given(st.lists(st.sampled_from(["a", "e\u0301", "ก็", "क्षि", "👩\ufe0f"]), max_size=200).map("".join))
def test_no_piece_starts_with_a_mark(text: str) -> None:
    assert not [piece for piece in split_runs(text, max_run=LIMIT) if unicodedata.category((piece or "a")[0])[0] == "M"]


def test_ordinary_text_is_one_piece() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 200
    assert split_runs(text) == [text]
    assert split_runs("a" * MAX_RUN) == ["a" * MAX_RUN]
    assert [len(piece) for piece in split_runs("a" * (MAX_RUN + 1))] == [MAX_RUN, 1]
