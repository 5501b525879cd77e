"""The text of a translation while it arrives: in the order of the text, and never taken back."""

from __future__ import annotations

from hymt_local.errors import HymtError, SegmentRejectedError, error_of
from hymt_local.events import Event, Finished, SegmentDone, Started, TextDelta
from hymt_local.segmenter import gap_after


class OrderedText:
    """Turns the events of one job into pieces of its text, for readers who cannot be told to forget what they have.

    One segment flows, later ones wait for their turn. All pieces joined are the finished text.
    """

    def __init__(self) -> None:
        self._started: Started | None = None
        self._current = 0
        self._said = ""
        self._said_of_current = ""
        self._waiting: dict[int, str] = {}
        self._done: dict[int, SegmentDone] = {}
        self._before = ""

    def take(self, event: Event) -> str:
        """Return what may be said after one event; often nothing.

        Raises:
            HymtError: a segment failed, or what has been said of it already was corrected.
        """
        said_before = len(self._said)
        match event:
            case Started():
                self._started = event
                self._before = event.segments[0].lead if event.segments else ""
            case TextDelta():
                self._waiting[event.segment] = self._waiting.get(event.segment, "") + event.text
                self._flow()
            case SegmentDone():
                self._done[event.segment] = event
                while self._current in self._done:
                    self._settle(self._done.pop(self._current))
                self._flow()
            case Finished():
                self._finish(event)
        return self._said[said_before:]

    def _flow(self) -> None:
        """Say what has come of the current segment, but not white space at its ends: that is not the answer's."""
        arrived = self._waiting.get(self._current, "").strip()
        if len(arrived) > len(self._said_of_current) and arrived.startswith(self._said_of_current):
            self._say(arrived[len(self._said_of_current) :])

    def _settle(self, done: SegmentDone) -> None:
        if done.error is not None:
            raise error_of(done.error)
        if not done.target.startswith(self._said_of_current):
            raise _corrected()
        self._say(done.target[len(self._said_of_current) :])
        self._before += self._gap(done.target)
        self._waiting.pop(self._current, None)
        self._current += 1
        self._said_of_current = ""

    def _gap(self, target: str) -> str:
        """Return what stands between the current segment and the next, as the finished text will have it."""
        if self._started is None:
            return ""
        segments = self._started.segments[self._current : self._current + 2]
        return gap_after(target, segments, source_lang=self._started.source_lang, target_lang=self._started.target_lang)

    def _say(self, text: str) -> None:
        if text:
            self._said += self._before + text
            self._said_of_current += text
            self._before = ""

    def _finish(self, last: Finished) -> None:
        if not last.text.startswith(self._said):
            raise _corrected()
        self._said = last.text


def _corrected() -> HymtError:
    return SegmentRejectedError(
        "a part of the answer had to be corrected after it was sent",
        hint="ask again: the corrected answer is remembered; or ask without `stream`",
    )
