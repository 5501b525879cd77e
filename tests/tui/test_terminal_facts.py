"""What is asked of a terminal and concluded from its environment."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from rich.cells import cell_len

from hymt_local.language import LANGUAGES, Language
from hymt_local.tui.compat import cell_widths_as, masked
from hymt_local.tui.terminal import CellWidths, Terminal, examine_terminal, has_bidi, probe_cell_widths
from tests.tui.conftest import KITTY, XTERM

REPORT_REQUEST = b"\x1b[6n"
REFERENCE = {"xterm": (3, 4, 4, 1), "kitty": (1, 2, 2, 2), "tmux": (2, 4, 2, 1)}
"""Cells of the four samples: a letter with a spacing mark, a skin tone, a ZWJ emoji, a heart with VS16."""


@contextmanager
def terminal_that(answer: Callable[[int], bytes]) -> Iterator[int]:
    """Yield the program's end of a terminal that answers each question by its number."""
    master, slave = pty.openpty()

    def serve() -> None:
        seen, answered = b"", 0
        while answered < 4 and (data := os.read(master, 1024)):
            seen += data
            while answered < seen.count(REPORT_REQUEST):
                os.write(master, answer(answered))
                answered += 1

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield slave
    finally:
        thread.join()
        os.close(master)
        os.close(slave)


def cursor_report(column: int) -> bytes:
    return f"\x1b[7;{column}R".encode()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("xterm", XTERM),
        ("kitty", KITTY),
        ("tmux", CellWidths(1, joins_skin_tone=False, joins_emoji=True, widens_emoji_selector=False)),
    ],
)
def test_the_answers_of_a_terminal_become_its_widths(name: str, expected: CellWidths) -> None:
    with terminal_that(lambda number: cursor_report(REFERENCE[name][number] + 1)) as slave:
        before = termios.tcgetattr(slave)
        assert probe_cell_widths(slave, slave, timeout_s=5) == expected
        assert termios.tcgetattr(slave) == before


def test_answers_are_found_between_typed_keys() -> None:
    with terminal_that(lambda number: b"x" + cursor_report(3) + b"\x1b[A") as slave:
        assert probe_cell_widths(slave, slave, timeout_s=5) is not None


def test_a_silent_terminal_is_given_up_and_left_as_it_was() -> None:
    with terminal_that(lambda number: b"") as slave:
        before = termios.tcgetattr(slave)
        assert probe_cell_widths(slave, slave, timeout_s=0.01) is None
        assert termios.tcgetattr(slave) == before


def test_a_pipe_is_not_asked() -> None:
    reader, writer = os.pipe()
    try:
        assert probe_cell_widths(reader, writer, timeout_s=5) is None
        os.close(writer)
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"VTE_VERSION": "7000", "TERM": "xterm-256color"}, True),
        ({"KONSOLE_VERSION": "221203"}, True),
        ({"TERM_PROGRAM": "Apple_Terminal"}, True),
        ({"TERM": "mlterm"}, True),
        ({"TERM": "xterm-256color"}, False),
        ({"VTE_VERSION": "7000", "TMUX": "socket,1,0"}, False),
        ({"KONSOLE_VERSION": "221203", "TERM": "screen"}, False),
    ],
)
def test_which_terminals_reorder_rows(environ: dict[str, str], expected: bool) -> None:
    assert has_bidi(environ) is expected


def test_importing_the_package_does_not_import_textual() -> None:
    check = "import sys, hymt_local.tui; sys.exit('textual' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_a_terminal_behind_ssh_is_remote() -> None:
    with terminal_that(lambda number: cursor_report(3)) as slave:
        terminal = examine_terminal({"SSH_CONNECTION": "1 2 3 4"}, input_fd=slave, output_fd=slave)
    assert (terminal.is_remote, terminal.has_bidi, terminal.cell_widths is not None) == (True, False, True)


def test_measured_widths_hold_inside_the_block_only() -> None:
    samples = ("का", "❤\ufe0f")
    before = [cell_len(sample) for sample in samples]
    with cell_widths_as(XTERM):
        inside = [cell_len(sample) for sample in samples]
    with cell_widths_as(None):
        unknown = [cell_len(sample) for sample in samples]
    assert (before, inside, unknown) == ([1, 2], [2, 1], [1, 2])
    assert [cell_len(sample) for sample in samples] == before


def test_only_spacing_marks_change_their_width() -> None:
    letters = [chr(code) for code in range(0x20, 0x20000) if unicodedata.category(chr(code)) not in {"Cc", "Cs", "Cn"}]
    before = {letter: cell_len(letter) for letter in letters}
    with cell_widths_as(XTERM):
        changed = {letter: cell_len(letter) for letter in letters if cell_len(letter) != before[letter]}
    assert set(changed.values()) == {1}
    assert {unicodedata.category(letter) for letter in changed} == {"Mc"}


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.tag)
def test_masking_never_changes_the_length_and_leaves_every_language_alone(language: Language) -> None:
    native = language.native
    assert masked(native, Terminal(cell_widths=XTERM)) == native
    text = f"{native}\u2067👍🏽👩\u200d🚀\u202e"
    assert len(masked(text, Terminal(cell_widths=XTERM))) == len(text)
