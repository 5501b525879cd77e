"""The real app in a real terminal: what reaches it, what it shows, what is left of it afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hymt_local.language import LANGUAGES
from hymt_local.paths import Paths
from hymt_local.tui.bidi import has_rtl
from tests.tui.pty_program import PATIENCE_S, READY, REPOSITORY, Program

pytestmark = pytest.mark.pty


class Tmux:
    """A tmux server of our own with one window of 100x30, running a shell command."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "tmux"

    def run(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._socket), "-u", "-f", os.devnull, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout

    def start(self, command: str) -> None:
        self.run("new-session", "-d", "-x", "100", "-y", "30", "-c", str(REPOSITORY), command)

    def type(self, text: str) -> None:
        self.run("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def screen(self) -> str:
        return self.run("capture-pane", "-p")

    def until(self, condition: Callable[[str], bool]) -> str:
        """Read the screen until the condition holds for it."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition(screen := self.screen()):
            assert time.monotonic() < deadline, f"never happened; the screen:\n{screen}"
        return screen


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    terminal = Tmux(tmp_path)
    yield terminal
    terminal.run("kill-server")


def test_chinese_and_persian_typed_translated_and_the_terminal_left_clean(tmux: Tmux, tmp_path: Path) -> None:
    app = f"{sys.executable} -m tests.tui.echo_app"
    tmux.start(f"stty -g > {tmp_path}/before; {app}; s=$?; stty -g > {tmp_path}/after; echo status=$s; exec cat")
    tmux.until(lambda screen: "Type or paste text" in screen)
    tmux.type("你好，世界")
    tmux.press("Enter")
    tmux.type("می‌شود\u3000x")
    tmux.press("F5")
    screen = tmux.until(lambda screen: "x\u3000\ufea9\ufeee\ufeb7" in screen)
    assert screen.count("می‌شود\u3000x") == 1
    assert screen.count("你好，世界") == 2
    rows = screen.splitlines()
    assert [row.count("│") for row in rows[3:26]] == [4] * 23
    assert "echo · test" in rows[27]
    assert "F5 Translate" in rows[29]
    tmux.press("F4")
    tmux.until(lambda screen: "last-translation.txt" in screen)
    tmux.press("M-5")
    tmux.until(lambda screen: "target_lang" in screen)
    tmux.press("M-1")
    tmux.until(lambda screen: "你好" in screen)
    tmux.press("C-q")
    screen = tmux.until(lambda screen: "status=" in screen)
    assert "status=0" in screen
    assert "你好" not in screen
    assert tmux.run("display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}").split() == [
        "0",
        "1",
        "0",
    ]
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start(*arguments: str) -> Program:
        programs.append(Program(*arguments))
        return programs[-1]

    yield start
    for each in programs:
        each.close()


def pasted(text: str) -> bytes:
    return b"\x1b[200~" + text.encode() + b"\x1b[201~"


def test_no_command_in_the_text_reaches_the_terminal(program: Callable[..., Program]) -> None:
    app = program("hostile")
    app.read_until(READY)
    start = len(app.written)
    app.send(pasted("one \u009b2J two \x07 three \x1b]0;pwned\x07\x1b[2J\x1b\x11 four"))
    app.read_until(b"Translated in")
    app.send(b"\x11")
    assert app.wait() == 0
    output = app.written[start:]
    assert "one \ufffd2J two \ufffd three \ufffd]0;pwned\ufffd\ufffd[2J\ufffd\ufffd four".encode() in output
    assert "un \ufffd]0;pwned\ufffd \ufffd[2J deux".encode() in output
    for command in (b"\x1b]0;", b"\x1b[2J", "\u009b".encode(), b"\x1b]52;", b"\x07"):
        assert command not in output


def test_quitting_during_a_generation_returns_at_once_with_a_clean_terminal(program: Callable[..., Program]) -> None:
    app = program("hang")
    app.read_until(READY)
    app.send(pasted("Hello"))
    app.read_until(b"Reading")
    app.send(b"\x11")
    asked_at = time.monotonic()
    assert app.wait() == 0
    assert time.monotonic() - asked_at < 5
    for restored in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[<u"):
        assert restored in app.written
    assert b"Traceback" not in app.written


RESTORED = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[<u", b"\x1b[8h")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_with_a_clean_terminal_and_the_text_kept(
    program: Callable[..., Program], paths: Paths, number: int, status: int
) -> None:
    app = program("hang")
    app.read_until(READY)
    app.send(pasted("Hello"))
    app.read_until(b"Reading")
    app.send_signal(number)
    assert app.wait() == status
    assert [control for control in RESTORED if control not in app.written] == []
    assert b"Traceback" not in app.written
    assert paths.unsaved_text.read_text() == "Hello"


LINES = "\n".join(f"Line {number} of a text that takes its time" for number in range(40))


def test_an_engine_killed_while_it_writes_costs_nothing_but_time(program: Callable[..., Program]) -> None:
    app = program("fragile")
    app.read_until(READY)
    app.send(pasted(LINES))
    app.read_until(b"Translating")
    (engine,) = psutil.Process(app.pid).children()
    engine.kill()
    app.read_until(b"Translated in")
    assert not engine.is_running()
    app.send(b"\x13")  # ctrl+s names the file to save in: the translation is whole
    app.read_until(b"Save the translation as")
    app.send(b"\x1b")
    app.send(b"\x11")
    assert app.wait() == 0
    assert b"Traceback" not in app.written


def test_a_text_that_kills_every_engine_is_kept_told_and_followed_by_one_that_works(
    program: Callable[..., Program],
) -> None:
    app = program("fragile")
    app.read_until(READY)
    app.send(pasted("This one is <SIGSEGV!> deadly"))
    app.read_until(b"The engine has stopped and is started again")
    app.read_until(b"the engine of fragile")
    app.written = b""
    app.send(b"\x0c")  # ctrl+l
    app.read_until(READY)
    app.send(pasted("Harmless"))
    app.read_until(b"Translated in")
    assert app.written.count(b"Harmless") >= 2
    app.send(b"\x1a\x1a")  # undo brings the text back
    app.read_until(b"deadly")
    app.send(b"\x11")
    assert app.wait() == 0


def test_what_was_typed_before_a_kill_is_there_at_the_next_start(program: Callable[..., Program], paths: Paths) -> None:
    app = program("hang")
    app.read_until(READY)
    app.send(pasted("Still here"))
    app.read_while(lambda: not paths.unsaved_text.exists())
    app.send_signal(signal.SIGKILL)
    assert app.wait() == -signal.SIGKILL
    again = program("echo")
    again.read_until(b"Still here")
    again.read_until(b"the text you had when the program ended")
    again.written = b""
    again.send(b"\x0c")
    again.read_until(READY)
    again.send(b"\x11")
    assert again.wait() == 0
    assert not paths.unsaved_text.exists()


def test_without_a_terminal_it_ends_and_the_text_is_kept(program: Callable[..., Program], paths: Paths) -> None:
    app = program("hang")
    app.read_until(READY)
    app.send(pasted("Hello"))
    app.read_until(b"Reading")
    assert app.hang_up() == 129
    assert paths.unsaved_text.read_text() == "Hello"


def test_it_follows_the_terminal_down_to_a_stamp_and_back(program: Callable[..., Program]) -> None:
    app = program("echo")
    app.read_until(READY)
    for columns, rows in ((20, 5), (1, 1), (200, 60), (80, 24)):
        app.resize(columns, rows)
    app.send(pasted("Hello"))
    app.read_until(b"Translated in")
    app.send(b"\x11")
    assert app.wait() == 0
    assert b"Traceback" not in app.written


def test_a_hundred_thousand_characters_are_pasted_and_leave_the_program_usable(
    program: Callable[..., Program],
) -> None:
    app = program("echo")
    app.read_until(READY)
    app.send_slowly(pasted("All human beings are born free. " * 3200))
    app.read_until(b"Long text")
    app.send(b"\x11")
    assert app.wait() == 0


@pytest.mark.parametrize("part", range(4))
def test_the_name_of_every_language_is_shown_on_both_sides_and_moves_no_border(tmux: Tmux, part: int) -> None:
    names = [language.native for language in LANGUAGES][part::4]
    tmux.start(f"{sys.executable} -m tests.tui.echo_app; exec cat")
    tmux.until(lambda screen: "Type or paste text" in screen)
    tmux.run("set-buffer", "\n".join(names))
    tmux.run("paste-buffer", "-p", "-r")
    screen = tmux.until(lambda screen: "Translated in" in screen)
    rows = [[part.strip() for part in row.split("│")] for row in screen.splitlines()[3 : 3 + len(names)]]
    assert [row[1] for row in rows] == names
    assert [row[3] for row in rows if not has_rtl(row[1])] == [name for name in names if not has_rtl(name)]
    assert all(row[3] for row in rows)
    assert {len(row) for row in rows} == {5}
