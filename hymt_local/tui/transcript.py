"""The target text of one run as it grows: segments stream side by side, the reader sees them in source order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from hymt_local.events import Finished, SegmentDone, Started, TextDelta
from hymt_local.segment import Segment, Span


@dataclass(frozen=True, slots=True)
class Passage:
    """A settled segment and where it stands on both sides."""

    done: SegmentDone
    source_span: Span
    target_span: Span


class Transcript:
    """Puts streamed text in its place between each segment's own outer whitespace."""

    def __init__(self) -> None:
        self._segments: tuple[Segment, ...] = ()
        self._streamed: dict[int, str] = {}
        self._settled: dict[int, SegmentDone] = {}
        self._final: str | None = None
        self._failed: frozenset[int] = frozenset()

    def start(self, event: Started) -> None:
        """Learn how the source was split."""
        self._segments = event.segments or tuple(
            Segment(index, "", trail="\n" if index + 1 < event.n_segments else "") for index in range(event.n_segments)
        )

    def add(self, event: TextDelta) -> None:
        """Append streamed text to its segment."""
        self._streamed[event.segment] = self._streamed.get(event.segment, "") + event.text

    def settle(self, event: SegmentDone) -> None:
        """Take the authoritative text of one segment."""
        self._settled[event.segment] = event

    def finish(self, event: Finished) -> None:
        """Take the authoritative text of the whole."""
        self._final = event.text
        self._failed = frozenset(done.segment for done in event.failed)

    @property
    def text(self) -> str:
        """All settled segments up to the first that is still open, and what is known of that one."""
        if self._final is not None:
            return self._final
        parts: list[str] = []
        for segment in self._segments:
            if segment.index not in self._settled:
                if streamed := self._streamed.get(segment.index):
                    parts.append(segment.lead + streamed)
                break
            parts.append(segment.restored(self._settled[segment.index].target))
        return "".join(parts)

    def failed_rows(self) -> frozenset[int]:
        """Return the lines of `text`, counted from 0, that stayed source text because their segment failed.

        Empty when the segments do not add up to the text, so that no line is marked wrongly.
        """
        return self._rows_of(self._failed)

    def doubtful_rows(self) -> frozenset[int]:
        """Return the lines of which the output checks have something to say (empty as for `failed_rows`)."""
        return self._rows_of({index for index, done in self._settled.items() if done.findings and not done.error})

    def passages(self) -> Iterator[Passage]:
        """Yield the translated segments in order with their places, as far as they can be found in the text."""
        source_at, target_at, text = 0, 0, self.text
        for segment in self._segments:
            start = source_at + len(segment.lead)
            source_at = start + len(segment.source) + len(segment.trail)
            done = self._settled.get(segment.index)
            if done is None or not segment.source:
                continue
            found = text.find(done.target, target_at)
            if found < 0:
                return
            target_at = found + len(done.target)
            yield Passage(done, Span(start, start + len(segment.source)), Span(found, target_at))

    def _rows_of(self, indexes: Collection[int]) -> frozenset[int]:
        if not indexes:
            return frozenset()
        rows: set[int] = set()
        position, row, text = 0, 0, self.text
        for segment in self._segments:
            done = self._settled.get(segment.index)
            part = segment.restored(done.target if done else "")
            if not text.startswith(part, position):
                return frozenset()
            if segment.index in indexes:
                first = row + segment.lead.count("\n")
                rows.update(range(first, first + segment.source.count("\n") + 1))
            position += len(part)
            row += part.count("\n")
        return frozenset(rows)
