"""Streamed text that cannot be taken back: in order, complete, and never wrong without an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.errors import HymtError, SegmentRejectedError
from hymt_local.events import Event, Finished, Origin, SegmentDone, Started, TextDelta, TokenUsage
from hymt_local.segment import Segment
from hymt_local.segmenter import join_segments, split_lines
from hymt_local.server.ordered_text import OrderedText

texts = st.lists(st.sampled_from(["one", "two words", "", "  three", "4", "five  "]), max_size=6).map("\n".join)


def events_of(text: str, data: st.DataObject) -> tuple[list[Event], str]:
    """Return the events of a job that answers in capitals, its segments interleaved in any order."""
    segments = split_lines(text)
    started = Started("m", "translation", "en", "fr", None, len(segments), tuple(segments))
    streams = [stream_of(segment, data) for segment in segments]
    shuffled: list[Event] = []
    while any(streams):
        stream = data.draw(st.sampled_from([each for each in streams if each]))
        shuffled.append(stream.pop(0))
    whole = join_segments(segments, [s.source.upper() for s in segments], source_lang="en", target_lang="fr")
    last = Finished(whole, "en", "fr", "m", "", Origin.MODEL, TokenUsage(), 0.0)
    return [started, *shuffled, last], whole


def stream_of(segment: Segment, data: st.DataObject) -> list[Event]:
    target = segment.source.upper()
    done = SegmentDone(segment.index, segment.source, target, Origin.MODEL)
    if not segment.translatable or data.draw(st.booleans()):
        return [done]
    cut = data.draw(st.integers(0, len(target)))
    pieces = [target[:cut], target[cut:] + data.draw(st.sampled_from(["", " ", "\n"]))]
    return [*(TextDelta(segment.index, piece) for piece in pieces if piece), done]


@given(text=texts, data=st.data())
def test_the_pieces_joined_are_the_finished_text(text: str, data: st.DataObject) -> None:
    events, whole = events_of(text, data)
    ordered = OrderedText()
    said = ""
    for event in events:
        said += ordered.take(event)
        assert whole.startswith(said)
    assert said == whole


def started(*sources: str) -> Started:
    return Started("m", "translation", "en", "fr", None, len(sources), tuple(split_lines("\n".join(sources))))


def test_a_segment_flows_as_it_comes_and_the_next_one_waits_for_its_turn() -> None:
    ordered = OrderedText()
    assert ordered.take(started("a", "b")) == ""
    assert ordered.take(TextDelta(1, "B")) == ""
    assert ordered.take(TextDelta(0, "A ")) == "A"
    assert ordered.take(TextDelta(0, "a")) == " a"
    assert ordered.take(SegmentDone(0, "a", "A a", Origin.MODEL)) == "\nB"


def test_a_segment_that_failed_or_was_corrected_is_an_error() -> None:
    ordered = OrderedText()
    ordered.take(started("a"))
    ordered.take(TextDelta(0, "Wrong"))
    with pytest.raises(SegmentRejectedError, match="corrected"):
        ordered.take(SegmentDone(0, "a", "Right", Origin.MODEL))
    failed = OrderedText()
    failed.take(started("a"))
    with pytest.raises(HymtError, match="cut off"):
        failed.take(SegmentDone(0, "a", "a", Origin.SOURCE, error=SegmentRejectedError("cut off").report()))
