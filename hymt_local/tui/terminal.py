"""What this terminal does with text: cell widths are asked from it, the rest is known from the environment."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

PROBE_TIMEOUT_S = 0.2
"""A local terminal answers within a millisecond; one that is silent that long has no cursor reports."""

# KA and a spacing vowel sign, a thumb with a skin tone, an astronaut joined by ZWJ, a heart with an emoji selector.
_SAMPLES = ("\u0915\u093e", "\U0001f44d\U0001f3fd", "\U0001f469\u200d\U0001f680", "\u2764\ufe0f")
_CURSOR_REPORT = re.compile(rb"\x1b\[\d+;(\d+)R")
_ASK_CURSOR = "\x1b[6n"
_CLEAR_LINE = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class CellWidths:
    """How a terminal measures the text for which there is no common rule."""

    spacing_mark_cells: int
    """Cells of a spacing combining mark (Hindi, Burmese, Khmer ...): 0 or 1."""
    joins_skin_tone: bool
    joins_emoji: bool
    """Draws a ZWJ emoji sequence as one picture."""
    widens_emoji_selector: bool
    """A narrow character takes two cells when VS16 makes it an emoji."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """What the screens need to know of the terminal they are drawn on."""

    cell_widths: CellWidths | None = None
    """None when the terminal did not say."""
    rtl: Literal["terminal", "visual", "off"] = "off"
    """Who puts right-to-left rows in order: it (they are fenced then), this program, or nobody."""
    has_bidi: bool = False
    """It reorders right-to-left text by itself, over the whole row."""
    is_remote: bool = False
    """Each repaint travels over a network."""


def examine_terminal(environ: Mapping[str, str], *, input_fd: int, output_fd: int) -> Terminal:
    """Return what can be known of the terminal behind two file descriptors; asking takes at most `PROBE_TIMEOUT_S`."""
    return Terminal(
        cell_widths=probe_cell_widths(input_fd, output_fd, timeout_s=PROBE_TIMEOUT_S),
        has_bidi=has_bidi(environ),
        is_remote="SSH_CONNECTION" in environ,
    )


def with_rtl(terminal: Terminal, setting: Literal["auto", "terminal", "visual", "off"]) -> Terminal:
    """Return a terminal with the setting `rtl` decided: who knows how to put rows in order, does."""
    if setting != "auto":
        return replace(terminal, rtl=setting)
    return replace(terminal, rtl="terminal" if terminal.has_bidi else "visual")


def has_bidi(environ: Mapping[str, str]) -> bool:
    """Tell whether the terminal is one that reorders rows; a multiplexer in between undoes that."""
    term = environ.get("TERM", "")
    if "TMUX" in environ or "STY" in environ or term.startswith(("screen", "tmux")):
        return False
    return (
        "VTE_VERSION" in environ
        or "KONSOLE_VERSION" in environ
        or environ.get("TERM_PROGRAM") == "Apple_Terminal"
        or term.startswith("mlterm")
    )


def probe_cell_widths(input_fd: int, output_fd: int, *, timeout_s: float) -> CellWidths | None:
    """Print samples, ask where the cursor went, wipe them out again; None when the terminal does not answer in time."""
    try:
        import termios  # not on Windows
        import tty
    except ImportError:
        return None
    try:
        saved = termios.tcgetattr(input_fd)
        tty.setcbreak(input_fd, termios.TCSANOW)
    except termios.error:
        return None
    try:
        question = "".join(f"\r{sample}{_ASK_CURSOR}" for sample in _SAMPLES) + _CLEAR_LINE
        os.write(output_fd, question.encode())
        columns = _read_columns(input_fd, deadline=time.monotonic() + timeout_s)
    finally:
        termios.tcsetattr(input_fd, termios.TCSANOW, saved)
    return None if columns is None else _interpret([column - 1 for column in columns])


def _read_columns(input_fd: int, *, deadline: float) -> list[int] | None:
    """Read one cursor report per sample; columns count from 1."""
    data = b""
    while len(reports := _CURSOR_REPORT.findall(data)) < len(_SAMPLES):
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0 or not select.select([input_fd], [], [], remaining_s)[0]:
            return None
        chunk = os.read(input_fd, 1024)
        if not chunk:
            return None
        data += chunk
    return [int(column) for column in reports[: len(_SAMPLES)]]


def _interpret(cells: list[int]) -> CellWidths:
    mark, skin_tone, joined, selector = cells
    return CellWidths(
        spacing_mark_cells=1 if mark > 1 else 0,
        joins_skin_tone=skin_tone <= 2,
        joins_emoji=joined <= 2,
        widens_emoji_selector=selector > 1,
    )
