"""The app on a pseudo terminal of our own: every byte it writes can be looked at."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
"""Only a broken program waits that long, on the slowest machine."""

READY = b"ype or paste text"
"""The hint of the empty pane, after the letter under the cursor."""


class Program:
    """A program on a pseudo terminal that answers no question; keeps every byte it wrote.

    Args:
        arguments: Of the app with an engine that needs no model.
        command: Another program in its place.
        environ: In place of this process's own.
    """

    def __init__(self, *arguments: str, command: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> None:
        self.written = b""
        """Everything so far."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self._process = subprocess.Popen(
            [*(command or (sys.executable, "-m", "tests.tui.echo_app")), *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=REPOSITORY,
            env={**(os.environ if environ is None else environ), "TERM": "xterm-256color"},
        )
        os.close(slave)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def send(self, data: bytes) -> None:
        os.write(self._master, data)

    def send_slowly(self, data: bytes) -> None:
        """Send more than a terminal holds at once, reading what comes back meanwhile."""
        while data:
            readable, writable, _ = select.select([self._master], [self._master], [], PATIENCE_S)
            if readable:
                self.written += os.read(self._master, 65536)
            if writable:
                data = data[os.write(self._master, data[:1024]) :]

    def read_until(self, wanted: bytes) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while wanted not in self.written:
            remaining_s = deadline - time.monotonic()
            assert remaining_s > 0, f"{wanted!r} never came; the end: {self.written[-2000:]!r}"
            if select.select([self._master], [], [], remaining_s)[0]:
                self.written += os.read(self._master, 65536)

    def read_while(self, goes_on: Callable[[], bool]) -> None:
        """Let the program go on writing until something has happened elsewhere."""
        deadline = time.monotonic() + PATIENCE_S
        while goes_on():
            assert time.monotonic() < deadline, f"it never happened; the end: {self.written[-2000:]!r}"
            self.read_some(0.1)

    def read_some(self, timeout_s: float) -> None:
        """Read what is there, or comes soon."""
        if select.select([self._master], [], [], timeout_s)[0]:
            self.written += os.read(self._master, 65536)

    def wait(self) -> int:
        """Read to the end and return the exit status."""
        with contextlib.suppress(OSError):  # the other end is closed
            self.read_while(lambda: self._process.poll() is None)
            while select.select([self._master], [], [], 0)[0] and (data := os.read(self._master, 65536)):
                self.written += data
        return self._process.wait(timeout=PATIENCE_S)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size, and say so as a terminal would."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process.send_signal(signal.SIGWINCH)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def hang_up(self) -> int:
        """Take the terminal away and return the exit status."""
        os.close(self._master)
        self._master = -1
        return self._process.wait(timeout=PATIENCE_S)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._master >= 0:
            os.close(self._master)
