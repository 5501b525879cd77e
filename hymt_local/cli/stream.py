"""Streaming to a terminal: segments arrive in any order and appear in the order of the text."""

from __future__ import annotations

from hymt_local.cli.output import write_text
from hymt_local.events import SegmentDone, Started, TextDelta
from hymt_local.segmenter import gap_after


class TerminalStream:
    """Writes streamed segments to a terminal in text order: one segment flows, later ones wait for their turn.

    While no streamed text had to be corrected, what it has written in the end is the finished text. The source text of
    a segment that failed appears only when something follows it: a job that fails altogether has no output.
    """

    def __init__(self, *, raw: bool = False) -> None:
        self._raw = raw
        self._started: Started | None = None
        self._current = 0
        self._shown = ""  # what of the current segment is on the screen
        self._waiting: dict[int, str] = {}
        self._done: dict[int, SegmentDone] = {}
        self._before = ""  # what stands before the text to come, written together with its first character
        self._last = "\n"

    @property
    def is_at_line_start(self) -> bool:
        """True when a self-erasing line may be drawn without erasing text."""
        return self._last == "\n"

    def start(self, event: Started) -> None:
        """Learn the segments; nothing is written before there is text."""
        self._started = event
        self._before = event.segments[0].lead if event.segments else ""

    def delta(self, event: TextDelta) -> None:
        """Write new text at once when its segment's turn has come, else keep it."""
        if event.segment == self._current:
            self._show(event.text)
        else:
            self._waiting[event.segment] = self._waiting.get(event.segment, "") + event.text

    def settle(self, event: SegmentDone) -> None:
        """Take the authoritative text of a segment; a correction of streamed text starts on a fresh line."""
        self._done[event.segment] = event
        while self._current in self._done:
            self._complete(self._done.pop(self._current))

    def finish(self, *, is_complete: bool) -> None:
        """End the line, so that the shell's prompt does not stick to the text.

        Args:
            is_complete: The job has finished, so what was held back belongs to its text.
        """
        if is_complete:
            self._write(self._before)
        if self._last != "\n":
            self._write("\n")

    def _complete(self, event: SegmentDone) -> None:
        if event.error:
            self._before += f"\n{event.target}" if self._shown else event.target
        elif event.target.startswith(self._shown):
            self._show(event.target[len(self._shown) :])
        else:
            self._write(f"\n{event.target}")
        self._before += self._gap(event.target)
        self._current += 1
        self._shown = ""
        self._show(self._waiting.pop(self._current, ""))

    def _gap(self, target: str) -> str:
        """Return what stands between the current segment and the next, as the finished text will have it."""
        if self._started is None:
            return ""
        segments = self._started.segments[self._current : self._current + 2]
        return gap_after(target, segments, source_lang=self._started.source_lang, target_lang=self._started.target_lang)

    def _show(self, text: str) -> None:
        if text:
            self._write(self._before + text)
            self._before = ""
            self._shown += text

    def _write(self, text: str) -> None:
        if text:
            write_text(text, raw=self._raw)
            self._last = text[-1]
