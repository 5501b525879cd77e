import re
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from hymt_local.occurrences import LONGEST_BENT, MOST_BENT, Edges, find_bent, find_strings
from hymt_local.scripts import whole_word
from hymt_local.segment import Span

STRINGS = st.text(alphabet=st.sampled_from("ab1 %é好."), min_size=1, max_size=4)


def as_one_pattern(text: str, strings: Mapping[str, Edges]) -> list[tuple[str, Span]]:
    """Return what a regular expression of all strings finds, in time that grows with their number."""
    forms = (
        whole_word(re.escape(string), first=strings[string].first, last=strings[string].last)
        for string in sorted(strings, key=len, reverse=True)
    )
    return [(match.group(), Span(*match.span())) for match in re.finditer("|".join(forms), text)]


@given(
    text=st.text(alphabet=st.sampled_from("ab1 %é好."), max_size=40),
    strings=st.dictionaries(STRINGS, st.builds(Edges, *[st.sampled_from(" a1é好")] * 2), min_size=1, max_size=6),
)
def test_strings_are_found_as_by_one_pattern_of_them_all(text: str, strings: dict[str, Edges]) -> None:
    assert list(find_strings(text, strings)) == as_one_pattern(text, strings)


def test_nothing_is_found_of_nothing() -> None:
    assert list(find_strings("text", {})) == []


def test_bent_strings_are_found_beside_what_is_taken() -> None:
    text = "% S and {NAME} and ｛name｝ and {name}"
    taken = [Span(31, 37)]
    assert [(string, span.of(text)) for string, span in find_bent(text, ["%s", "{name}"], taken)] == [
        ("%s", "% S"),
        ("{name}", "{NAME}"),
        ("{name}", "｛name｝"),
    ]


def test_what_is_beyond_mending_is_not_looked_for() -> None:
    many = [f"{{name{n}}}" for n in range(MOST_BENT + 1)]
    assert list(find_bent("{NAME1}", many, [])) == []
    assert list(find_bent("{NAME1}", many[:2], [])) != []
    long = "a" * LONGEST_BENT
    assert list(find_bent(long.upper(), [long], [])) != []
    assert list(find_bent(f"{long}a".upper(), [f"{long}a"], [])) == []
