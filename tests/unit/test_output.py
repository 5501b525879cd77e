"""stdout and stderr: exact bytes, aligned columns, segments in the order of the text; and a private log file."""

from __future__ import annotations

import io
import json
import logging
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.cli import diagnostics, output
from hymt_local.cli.diagnostics import LogFile, ProgressLine, logging_to_file, print_error, print_note
from hymt_local.cli.stream import TerminalStream
from hymt_local.errors import LanguageError
from hymt_local.events import Origin, SegmentDone, Started, TextDelta
from hymt_local.language import LANGUAGES
from hymt_local.segmenter import join_segments, split_lines, split_sentences


class Stream(io.TextIOWrapper):
    """A stream of bytes that may say it is a terminal."""

    def __init__(self, raw: io.RawIOBase | io.BytesIO, *, is_terminal: bool = False) -> None:
        super().__init__(raw, encoding="ascii", newline="\n")  # type: ignore[arg-type]
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


class Dribble(io.RawIOBase):
    """Takes seven bytes at a time, like a pipe that is nearly full."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(memoryview(data)[:7])  # type: ignore[arg-type]
        self.taken += piece
        return len(piece)


class Busy(Dribble):
    """A non-blocking pipe without room."""

    def write(self, data: object) -> None:  # type: ignore[override]
        return None


ReplaceStdout = Callable[..., io.BytesIO]


@pytest.fixture
def stdout(monkeypatch: pytest.MonkeyPatch) -> ReplaceStdout:
    """Replace stdout by a terminal or a pipe; returns what it receives."""

    def replace(*, is_terminal: bool) -> io.BytesIO:
        received = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", Stream(received, is_terminal=is_terminal))
        return received

    return replace


# Bytes


def test_a_pipe_gets_the_characters_as_they_are_whatever_the_locale_says(stdout: ReplaceStdout) -> None:
    received = stdout(is_terminal=False)
    output.write_text("é\r\n\x1b[2J\u2028語\udcff")
    assert received.getvalue() == "é\r\n\x1b[2J\u2028語".encode() + b"\xff"


def test_a_terminal_gets_no_control_characters_unless_asked(stdout: ReplaceStdout) -> None:
    received = stdout(is_terminal=True)
    output.write_text("a\x1b]0;title\x07b\udcff")
    output.write_text("\x1b[1m", raw=True)
    assert received.getvalue() == "a\ufffd]0;title\ufffdb\ufffd\x1b[1m".encode()


def test_a_pipe_that_takes_a_little_at_a_time_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Dribble()
    monkeypatch.setattr(sys, "stdout", Stream(pipe))  # without a buffer between: as under PYTHONUNBUFFERED
    output.write_text("some longer text, ünd more")
    assert pipe.taken == "some longer text, ünd more".encode()


def test_a_pipe_without_room_is_an_error_and_no_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Stream(Busy()))
    with pytest.raises(OSError, match="standard output"):
        output.write_text("text")


def test_json_is_one_readable_document(stdout: ReplaceStdout) -> None:
    received = stdout(is_terminal=True)
    output.write_json({"text": "語\x1b", "n": 1.5})
    assert received.getvalue() == '{\n  "text": "語\\u001b",\n  "n": 1.5\n}\n'.encode()


def test_undecodable_bytes_survive_json(stdout: ReplaceStdout) -> None:
    received = stdout(is_terminal=False)
    output.write_json({"path": "caf\udce9"})
    assert json.loads(received.getvalue()) == {"path": "caf\udce9"}


# Tables


@pytest.mark.parametrize(
    ("text", "cells"),
    [("abc", 3), ("中文", 4), ("한국어", 6), ("ｱ", 1), ("Ａ", 2), ("e\u0301", 1), ("བོད་", 3), ("\u200d", 0), ("", 0)],
)
def test_width_is_counted_in_terminal_cells(text: str, cells: int) -> None:
    assert output.cell_width(text) == cells


def test_columns_line_up_under_wide_characters(stdout: ReplaceStdout) -> None:
    received = stdout(is_terminal=False)
    output.write_table([("zh", "中文", "x"), ("fr", "français", "y")], header=("TAG", "NAME", "Z"))
    assert received.getvalue().decode() == "TAG  NAME      Z\nzh   中文      x\nfr   français  y\n"


def test_the_names_of_all_languages_line_up(stdout: ReplaceStdout) -> None:
    received = stdout(is_terminal=False)
    output.write_table([(item.native, "|") for item in LANGUAGES], header=("NATIVE", "|"))
    lines = received.getvalue().decode().splitlines()
    assert len({output.cell_width(line) for line in lines}) == 1


# Streaming

texts = st.lists(
    st.sampled_from(
        ["Hello there.", "Two words", "你好。", "再见！", " ", "\n", "\r\n", "  ", "\t", "12", "café", "\n\n"]
    ),
    max_size=8,
).map("".join)
answers = st.sampled_from(["Bonjour.", "mot", "", "answer: 42", "好。", "é", "a b"])


def done(segment: int, target: str) -> SegmentDone:
    return SegmentDone(segment, "", target, Origin.MODEL)


def failed(segment: int, source: str) -> SegmentDone:
    return SegmentDone(segment, source, source, Origin.SOURCE, error=LanguageError("no").report())


@dataclass(frozen=True)
class Playing:
    """A finished translation and the order in which its events came."""

    started: Started
    events: list[TextDelta | SegmentDone]
    final: str


@st.composite
def playings(draw: st.DrawFn) -> Playing:
    """Draw segments, their targets, how each is cut into deltas, and one order of all that keeps each segment's own."""
    source_lang, target_lang = draw(st.sampled_from([("en", "fr"), ("zh", "en"), ("en", "zh"), ("zh", "ja")]))
    split = draw(st.sampled_from([split_lines, lambda text: split_sentences(text, source_lang)]))
    segments = split(draw(texts))
    failures = {segment.index for segment in segments if draw(st.booleans())}
    targets = [
        draw(answers) if segment.translatable and segment.index not in failures else segment.source
        for segment in segments
    ]
    queues: list[list[TextDelta | SegmentDone]] = []
    for segment, target in zip(segments, targets, strict=True):
        if segment.index in failures:
            queues.append([failed(segment.index, segment.source)])
            continue
        shown = target[: draw(st.integers(0, len(target)))]
        cut = draw(st.integers(0, len(shown)))
        deltas = [TextDelta(segment.index, part) for part in (shown[:cut], shown[cut:]) if part]
        queues.append([*deltas, SegmentDone(segment.index, segment.source, target, Origin.MODEL)])
    events: list[TextDelta | SegmentDone] = []
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        events.append(queue.pop(0))
    started = Started("echo", "test", source_lang, target_lang, None, len(segments), segments)
    final = join_segments(segments, targets, source_lang=source_lang, target_lang=target_lang)
    return Playing(started, events, final)


def play(playing: Playing, *, raw: bool = True, is_complete: bool = True) -> str:
    received, before = io.BytesIO(), sys.stdout
    sys.stdout = terminal = Stream(received, is_terminal=True)
    try:
        stream = TerminalStream(raw=raw)
        stream.start(playing.started)
        for event in playing.events:
            stream.delta(event) if isinstance(event, TextDelta) else stream.settle(event)
        stream.finish(is_complete=is_complete)
    finally:
        sys.stdout = before
    terminal.detach()  # else `received` is closed with it
    return received.getvalue().decode()


@given(playing=playings())
def test_whatever_the_order_of_events_the_screen_shows_the_finished_text(playing: Playing) -> None:
    end = "" if playing.final.endswith("\n") or not playing.final else "\n"
    assert play(playing) == playing.final + end


def events_of(text: str, *events: TextDelta | SegmentDone, target_lang: str = "fr") -> Playing:
    segments = split_lines(text)
    return Playing(Started("echo", "test", "en", target_lang, None, len(segments), segments), list(events), "")


def test_a_correction_starts_on_a_fresh_line_and_the_rest_goes_on() -> None:
    playing = events_of("  one\ntwo", TextDelta(0, "wrong"), done(0, "right"), TextDelta(1, "zwei"), done(1, "zwei"))
    assert play(playing) == "  wrong\nright\nzwei\n"


def test_the_current_segment_flows_and_a_later_one_waits() -> None:
    playing = events_of("one\ntwo", TextDelta(1, "zw"), TextDelta(0, "ei"))
    assert play(playing) == "ei\n"


def test_a_job_that_ends_before_any_text_shows_nothing() -> None:
    assert play(events_of("   one\n"), is_complete=False) == ""


def test_a_job_that_fails_altogether_has_no_output() -> None:
    assert play(events_of("one\ntwo", failed(0, "one"), failed(1, "two")), is_complete=False) == ""
    assert play(events_of("one", TextDelta(0, "un"), failed(0, "one")), is_complete=False) == "un\n"


def test_segments_that_failed_between_others_keep_their_source() -> None:
    playing = events_of("one\ntwo\nthree", failed(0, "one"), done(1, "zwei"), TextDelta(2, "dr"), failed(2, "three"))
    assert play(playing) == "one\nzwei\ndr\nthree\n"


def test_a_progress_bar_may_be_drawn_before_the_first_text_and_between_lines_only(stdout: ReplaceStdout) -> None:
    stdout(is_terminal=True)
    stream = TerminalStream()
    stream.start(events_of("  one\ntwo").started)
    assert stream.is_at_line_start
    stream.delta(TextDelta(0, "eins"))
    assert not stream.is_at_line_start
    stream.settle(done(0, "eins"))
    stream.settle(done(1, "zwei"))
    assert not stream.is_at_line_start


def test_streamed_text_is_sanitized_too() -> None:
    assert play(events_of("one", TextDelta(0, "\x1b]52;c;eA==\x07"), done(0, "\x1b]52;c;eA==\x07")), raw=False) == (
        "\ufffd]52;c;eA==\ufffd\n"
    )


# stderr


def test_an_error_is_one_line_and_its_hint_another(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(LanguageError("bad\x1b[2J\nname", hint="try\nthis").report())
    print_note("done\tnow")
    assert capsys.readouterr() == ("", "error: bad\ufffd[2J name\nhint: try this\nnote: done\tnow\n")


def test_an_error_without_a_hint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(LanguageError("bad").report())
    assert capsys.readouterr().err == "error: bad\n"


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def isatty(self) -> bool:
        return True


def test_a_stderr_that_fails_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Broken())
    print_note("lost")
    progress = ProgressLine()
    progress.show("loading", 0.5)
    progress.clear()


def test_a_bar_is_drawn_on_a_terminal_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    progress = ProgressLine()
    progress.clear()
    assert terminal.getvalue() == ""
    progress.show("loading \x1b[2J", 0.5)
    progress.show("loading", 7.0)
    progress.clear()
    progress.clear()
    lines = terminal.getvalue().split("\r\x1b[2K")
    assert lines == ["", "loading \ufffd[2J " + "━" * 12 + "╌" * 12 + "  50%", "loading " + "━" * 24 + " 100%", ""]


def test_no_bar_is_drawn_where_it_cannot_be_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "dumb")
    ProgressLine().show("loading", 0.5)
    assert terminal.getvalue() == ""


def test_no_bar_is_drawn_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    progress = ProgressLine()
    progress.show("loading", 0.5)
    progress.clear()
    assert capsys.readouterr().err == ""


# The log file

log = logging.getLogger("hymt_local.some.module")


@pytest.fixture(autouse=True)
def log_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("hymt_local"), "level", logging.INFO)


def test_records_go_to_a_private_file_and_not_to_stderr(
    isolated_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_to_file(os.environ):
        log.info("seen %s", "this")
        log.debug("not this")
        logging.getLogger("asyncio").error("a task \x1b[2J died")
        logging.getLogger("elsewhere").info("nor this")
    file = isolated_environment / "state" / "hymt.log"
    lines = file.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        "INFO hymt_local.some.module seen this",
        "ERROR asyncio a task \ufffd[2J died",
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert capsys.readouterr() == ("", "")


def test_no_record_no_file(isolated_environment: Path) -> None:
    with logging_to_file(os.environ):
        pass
    assert list(isolated_environment.iterdir()) == []


def test_records_are_appended(isolated_environment: Path) -> None:
    for n in range(2):
        with logging_to_file(os.environ):
            log.warning("run %d", n)
    assert len((isolated_environment / "state" / "hymt.log").read_text().splitlines()) == 2


@pytest.mark.parametrize("message", ["text", "caf\udce9"])
def test_an_unwritable_state_folder_is_harmless(
    isolated_environment: Path, capsys: pytest.CaptureFixture[str], message: str
) -> None:
    (isolated_environment / "state").write_text("in the way")
    with logging_to_file(os.environ):
        log.error(message)
    assert capsys.readouterr() == ("", "")


def test_after_the_context_nothing_of_it_is_left() -> None:
    before = list(logging.getLogger().handlers)
    with logging_to_file(os.environ):
        assert logging.getLogger().handlers != before
    assert logging.getLogger().handlers == before


def test_a_large_log_is_put_aside_by_whoever_of_several_processes_comes_first(
    isolated_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnostics, "MAX_LOG_BYTES", 100)
    first, second = LogFile(os.environ), LogFile(os.environ)

    def write(log: LogFile, text: str) -> None:
        log.emit(logging.LogRecord("hymt_local", logging.WARNING, "", 0, text, None, None))

    write(second, "few")
    write(first, "many " * 30)
    write(second, "into the old one, which is not put aside again")
    write(second, "new")
    first.close()
    second.close()
    file = isolated_environment / "state" / "hymt.log"
    assert file.read_text().endswith("WARNING hymt_local new\n")
    assert len(file.read_text().splitlines()) == 1
    assert len(file.with_name("hymt.log.1").read_text().splitlines()) == 3
    assert [each.stat().st_mode & 0o777 for each in file.parent.iterdir()] == [0o600, 0o600]
