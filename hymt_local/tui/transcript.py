"""The target text of one run as it grows: segments stream side by side, the reader sees them in source order."""

from __future__ import annotations

from hymt_local.events import Finished, SegmentDone, Started, TextDelta
from hymt_local.segment import Segment


class Transcript:
    """Puts streamed text in its place between each segment's own outer whitespace."""

    def __init__(self) -> None:
        self._segments: tuple[Segment, ...] = ()
        self._streamed: dict[int, str] = {}
        self._settled: dict[int, str] = {}
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
        self._settled[event.segment] = event.target

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
            parts.append(segment.restored(self._settled[segment.index]))
        return "".join(parts)

    def failed_rows(self) -> frozenset[int]:
        """Return the lines of `text`, counted from 0, that stayed source text because their segment failed.

        Empty when the segments do not add up to the text, so that no line is marked wrongly.
        """
        rows: set[int] = set()
        position, row, text = 0, 0, self.text
        for segment in self._segments:
            part = segment.restored(self._settled.get(segment.index, ""))
            if not text.startswith(part, position):
                return frozenset()
            if segment.index in self._failed:
                first = row + segment.lead.count("\n")
                rows.update(range(first, first + segment.source.count("\n") + 1))
            position += len(part)
            row += part.count("\n")
        return frozenset(rows)
