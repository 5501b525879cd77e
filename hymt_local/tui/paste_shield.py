"""A shim for Textual 8.2: an escape sequence inside a pasted text is text, never keys; alt with a letter is a key.

Textual's parser leaves the paste when it meets an unknown sequence and replays the characters as key presses: a log
with colours arrives scrambled, and a clipboard could press keys. Most terminals filter a paste; tmux does not.
"""

from __future__ import annotations

import string
import time
from collections.abc import Callable, Iterable

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.events import Key
from textual.message import Message

from hymt_local.sanitize import REPLACEMENT

_ESCAPE = "\x1b"
_ALT_CHARACTERS = frozenset(string.digits + string.ascii_lowercase) - {"b", "f"}
"""A Mac sends escape with b and f for ctrl+left and ctrl+right."""

_SILENCE_S = 1.0
"""The parts of a paste follow each other faster, and never consist of a single control character."""
_CONTROL_KEYS = frozenset(chr(code) for code in range(1, 32)) - set("\t\n\r")


class PasteFilter:
    """Replaces every escape between the two marks of a bracketed paste; input may be cut anywhere.

    A paste whose end was lost would swallow every key: a lone control key after a silence ends it.

    Args:
        now: The clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._is_pasting = False
        self._before = ""
        """The end of what came so far outside of a paste: a mark may be split over two reads."""
        self._last_at = 0.0
        self._held = ""
        """The end of what came so far inside a paste, while it may be the beginning of the closing mark."""

    def filter(self, data: str) -> str:
        """Return what the parser may see of `data`; may be empty."""
        now = self._now()
        is_after_silence, self._last_at = now - self._last_at >= _SILENCE_S, now
        if self._is_pasting and is_after_silence and data in _CONTROL_KEYS:
            held, self._held, self._is_pasting = self._held, "", False
            return held.replace(_ESCAPE, REPLACEMENT) + BRACKETED_PASTE_END + data
        parts: list[str] = []
        while data:
            part, data = self._inside(data) if self._is_pasting else self._outside(data)
            parts.append(part)
        return "".join(parts)

    def _outside(self, data: str) -> tuple[str, str]:
        """Return everything up to the end of an opening mark, and the rest."""
        joined = self._before + data
        at = joined.find(BRACKETED_PASTE_START)
        if at < 0:
            self._before = joined[1 - len(BRACKETED_PASTE_START) :]
            return data, ""
        end = at + len(BRACKETED_PASTE_START) - len(self._before)
        self._before, self._is_pasting = "", True
        return data[:end], data[end:]

    def _inside(self, data: str) -> tuple[str, str]:
        """Return pasted text up to the end of the closing mark, and the rest."""
        data, self._held = self._held + data, ""
        text, mark, rest = data.partition(BRACKETED_PASTE_END)
        if not mark:
            self._held = _possible_mark(text)
            text = text[: len(text) - len(self._held)]
        self._is_pasting = not mark
        return text.replace(_ESCAPE, REPLACEMENT) + mark, rest


def _possible_mark(text: str) -> str:
    """Return the end of `text` that may be the beginning of a closing mark."""
    lengths = range(len(BRACKETED_PASTE_END) - 1, 0, -1)
    return next((text[-length:] for length in lengths if text.endswith(BRACKETED_PASTE_END[:length])), "")


class ShieldedParser(XTermParser):
    """Textual's parser of terminal input behind a paste filter."""

    def __init__(self, debug: bool = False) -> None:
        self._paste_filter = PasteFilter()
        super().__init__(debug)

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[Key]:
        """Take alt with a letter or digit for a key that types nothing.

        Textual takes a digit for what a Mac types with Option, and lets a text area type the letter. No longer sequence
        begins with an escape and one of these. Escape and a control key hit in quick succession stay two keys: no
        action has alt with control, and ctrl+q has to work whatever came before it.
        """
        if alt and sequence < " ":
            return [Key("escape", _ESCAPE), *super()._sequence_to_key_events(sequence)]
        if len(sequence) == 2 and sequence[0] == _ESCAPE and sequence[1] in _ALT_CHARACTERS:
            return [Key(f"alt+{sequence[1]}", None)]
        return super()._sequence_to_key_events(sequence, alt)

    def feed(self, data: str) -> Iterable[Message]:
        """Parse terminal input; empty data means its end."""
        shielded = self._paste_filter.filter(data)
        return super().feed(shielded) if shielded or not data else ()
