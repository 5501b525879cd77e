"""Laws of the whole path, from a request to its last event."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.catalog import ALL_TAGS
from hymt_local.events import Failed, Finished, LastEvent, Origin, SegmentDone, Started, TextDelta
from hymt_local.jobs import LocalService
from tests.services import echo_model, request

TAGS = st.sampled_from(ALL_TAGS)
PIECES = st.sampled_from(
    [
        *(
            "Hello",
            "world",
            " ",
            "  ",
            "\t",
            "\n",
            "\r\n",
            "\r",
            "\u2028",
            "\x85",
            "\x0b",
            "\ufeff",
            "\u200b",
            "\u3000",
        ),
        *(
            "。",
            "你好",
            "42",
            "%s",
            "{name}",
            "<b>",
            "</b>",
            "👩\u200d👧",
            "e\u0301",
            "https://a.example",
            "!!!",
            "\x00",
            "<|eos|>",
        ),
        *("again and again and again and again and again and ", "��"),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=12).map("".join))


@pytest.fixture(scope="module")
def echo() -> Iterator[LocalService]:
    with LocalService(lambda ref: echo_model(), cache_path=None) as service:
        yield service


@pytest.fixture(scope="module")
def small_echo() -> Iterator[LocalService]:
    with LocalService(lambda ref: echo_model(max_segment_tokens=24), cache_path=None) as service:
        yield service


@given(text=TEXTS, target_lang=TAGS)
def test_an_echo_gives_any_text_back(echo: LocalService, text: str, target_lang: str) -> None:
    events = list(echo.submit(request(text, target_lang)))
    last = events[-1]
    if not text:
        assert isinstance(last, Failed)
        assert last.error.code == "empty_input"
    else:
        assert isinstance(last, Finished)
        assert (last.text, last.failed) == (text, ())


@given(text=TEXTS.filter(bool), target_lang=TAGS.filter(lambda tag: tag not in {"zh", "zh-Hant", "yue", "ja"}))
def test_an_echo_in_small_pieces_gives_any_text_back(small_echo: LocalService, text: str, target_lang: str) -> None:
    last = small_echo.submit(request(text, target_lang)).result(30)
    assert (last.text, last.failed) == (text, ())


@given(text=TEXTS.filter(bool), target_lang=TAGS)
def test_the_events_follow_their_grammar(echo: LocalService, text: str, target_lang: str) -> None:
    started, *events, last = list(echo.submit(request(text, target_lang)))
    assert isinstance(started, Started)
    assert isinstance(last, Finished)
    assert not any(isinstance(event, Started | LastEvent) for event in events)
    done = [event for event in events if isinstance(event, SegmentDone)]
    assert sorted(event.segment for event in done) == list(range(started.n_segments))
    by_index = {event.segment: event for event in done}
    assert last.text == "".join(segment.restored(by_index[segment.index].target) for segment in started.segments)
    for segment in started.segments:
        deltas = "".join(e.text for e in events if isinstance(e, TextDelta) and e.segment == segment.index)
        assert deltas in {"", segment.source}
    assert (last.origin is Origin.SOURCE) == all(event.origin is Origin.SOURCE for event in done)


@given(text=TEXTS.filter(bool))
def test_a_detected_language_never_breaks_a_text(echo: LocalService, text: str) -> None:
    last = list(echo.submit(request(text, "fr", source_lang=None)))[-1]
    assert isinstance(last, Finished | Failed)
    if isinstance(last, Finished):
        assert last.text == text
    else:
        assert last.error.code == "language"
