"""A person at a terminal: text streams in order, controls are defused, bars vanish, the prompt gets a fresh line."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

import pytest

REPOSITORY = Path(__file__).parents[2]
ECHO = ("hymt_local", "-m", "echo", "-f", "en", "-t", "fr")


class Terminal:
    """A process whose controlling terminal is ours."""

    def __init__(self, environ: Mapping[str, str], *arguments: str, redirect: str = "") -> None:
        self._master, slave = pty.openpty()
        place = shlex.quote(os.ttyname(slave))
        command = shlex.join([sys.executable, "-m", *arguments])
        # A session leader without a terminal gets the first one that it opens: Ctrl-C works as at a real one.
        self.process = subprocess.Popen(
            ["sh", "-c", f"exec <{place}; exec {command} {redirect}"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environ, "TERM": "xterm"},
            cwd=REPOSITORY,
            start_new_session=True,
        )
        os.close(slave)
        self._watchdog = threading.Timer(60, self.process.kill)
        self._watchdog.start()
        self.shown = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        while text.encode() not in self.shown:
            assert self._read(), self.shown

    def finish(self) -> tuple[int, str]:
        """Wait for the end; returns the status and everything that was shown."""
        while self._read():
            pass
        return self.process.wait(timeout=30), self.shown.decode().replace("\r\n", "\n")

    def _read(self) -> bool:
        """Take what is shown next; False when the process has let go of the terminal."""
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO on Linux; other systems return nothing
            return False
        self.shown += data
        return bool(data)


StartTerminal = Callable[..., Terminal]


@pytest.fixture
def terminal(process_environ: Mapping[str, str]) -> Iterator[StartTerminal]:
    """Start `python -m ARGUMENTS` at a terminal of its own."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, redirect: str = "") -> Terminal:
            return stack.enter_context(Terminal(process_environ, *arguments, redirect=redirect))

        yield start


def on_screen(shown: str) -> list[str]:
    """Return the lines as they stand in the end: what was erased is gone."""
    return [line.rpartition("\r\x1b[2K")[2] for line in shown.split("\n")]


def test_lines_appear_in_order_and_the_prompt_gets_a_fresh_line(terminal: StartTerminal) -> None:
    text = "  First line.\n\n12\nsecond, with more words\n\tthird"
    assert terminal(*ECHO, text).finish() == (0, text + "\n")


def test_what_the_cache_remembers_looks_the_same(terminal: StartTerminal) -> None:
    for _ in range(2):
        assert terminal(*ECHO, "One line.\nAnother line.\n").finish() == (0, "One line.\nAnother line.\n")


def test_no_stream_prints_the_same_text_at_once(terminal: StartTerminal) -> None:
    assert terminal(*ECHO, "--no-stream", "One line.\nAnother").finish() == (0, "One line.\nAnother\n")


def test_a_terminal_never_receives_what_commands_it(terminal: StartTerminal) -> None:
    attack = "a\x1b]52;c;eA==\x07b \x9b31m c\x1b[2J"
    status, shown = terminal(*ECHO, attack).finish()
    assert (status, shown) == (0, "a\ufffd]52;c;eA==\ufffdb \ufffd31m c\ufffd[2J\n")
    assert terminal(*ECHO, "--no-stream", attack).finish() == (0, shown)


def test_raw_lets_everything_through(terminal: StartTerminal) -> None:
    assert terminal(*ECHO, "--raw", "a\x1b[1mb").finish() == (0, "a\x1b[1mb\n")


def test_an_error_message_never_commands_the_terminal(terminal: StartTerminal) -> None:
    status, shown = terminal("hymt_local", "hello", "-t", "\x1b[2J").finish()
    assert status == 2
    assert "\x1b" not in shown


def test_the_loading_bar_is_gone_before_the_text(terminal: StartTerminal) -> None:
    status, shown = terminal("tests.cli.odd_engines", "loading", "  Hello").finish()
    assert status == 0
    assert on_screen(shown) == ["  Bonjour", ""]
    assert re.findall(r"loading echo [━╌]{24} +(\d+%)", shown) == ["25%", "50%", "100%"]


def test_a_correction_stands_on_a_line_of_its_own(terminal: StartTerminal) -> None:
    status, shown = terminal("tests.cli.odd_engines", "corrected", "Hello").finish()
    assert (status, on_screen(shown)) == (0, ["Bonj\ufffd", "Bonjour", ""])


def test_control_c_stops_it_on_a_fresh_line(terminal: StartTerminal) -> None:
    process = terminal("tests.cli.odd_engines", "hang", "Hello")
    process.wait_for("generating")
    process.type("\x03")
    status, shown = process.finish()
    assert status == 130
    assert shown.split("\n")[1:] == ["^C", "error: interrupted", "closed 1", ""]


def test_typed_text_goes_through_a_pipe_without_opening_the_terminal_ui(
    terminal: StartTerminal, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = terminal(*ECHO, redirect=f">{shlex.quote(str(out))}")
    process.type("typed by hand\n\x04")
    assert process.finish()[0] == 0
    assert out.read_text() == "typed by hand\n"


def test_json_of_typed_text_does_not_open_the_terminal_ui(terminal: StartTerminal) -> None:
    process = terminal(*ECHO, "--json")
    process.type("typed by hand\n\x04")
    status, shown = process.finish()
    assert status == 0
    assert '"target": "typed by hand\\n"' in shown


def test_a_table_on_a_terminal_is_the_same_as_in_a_pipe(terminal: StartTerminal) -> None:
    status, shown = terminal("hymt_local", "languages", "-m", "echo").finish()
    assert status == 0
    assert "zh-Hant  Traditional Chinese" in shown
