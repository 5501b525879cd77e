"""What all steps of one download share: network, patience, progress, and the wish to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

from hymt_local.download.failures import SourceFailure, TransientFailure
from hymt_local.download.network import Network, Source
from hymt_local.download.progress import ProgressCallback, ProgressMeter, ignore_progress
from hymt_local.errors import CancelledError, DownloadError

CANCEL_POLL_S = 0.1
_COUNTDOWN_STEP_S = 1.0
_WORTHWHILE_BYTES = 64 * 1024
"""After an attempt that brought this much the next one follows at once."""
_T = TypeVar("_T")


def wait_for(event: threading.Event, seconds: float) -> None:
    """Sleep, but no longer than until the event."""
    event.wait(seconds)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what, and the clock; tests bring their own."""

    attempts: int = 8
    """Attempts in a row without a new byte before a source is given up."""
    lookup_attempts: int = 4
    unreachable_attempts: int = 3
    """The same while another source is left and this one has never answered."""
    cut_off_attempts: int = 2
    """The same where this machine finds no way to any server, and none has ever answered."""
    first_pause_s: float = 1.0
    longest_pause_s: float = 30.0
    longest_retry_after_s: float = 300.0
    timeout_s: float = 20.0
    """For a connection, and between two pieces of an answer."""
    now: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    wait: Callable[[threading.Event, float], None] = wait_for


class SourceOrder:
    """Which source to ask first: the one that gave the last file."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._preferred: Source | None = None
        self.has_answered = False
        """Some server was reached."""

    def sources(self) -> tuple[Source, ...]:
        """Return all that may be asked (raises like `Network.sources`)."""
        return tuple(sorted(self._network.sources(), key=lambda source: source != self._preferred))

    def prefer(self, source: Source) -> None:
        """Ask this one first from now on."""
        self._preferred = source
        self.has_answered = True


@dataclass(frozen=True, slots=True)
class Session:
    """Passed through every step of one call."""

    network: Network
    patience: Patience
    meter: ProgressMeter
    cancel: threading.Event
    order: SourceOrder

    def check_cancelled(self) -> None:
        """Stop here if the user wishes it.

        Raises:
            CancelledError: what is here of the file stays, and the next call continues it.
        """
        if self.cancel.is_set():
            raise CancelledError("the download was stopped", hint="run it again to continue where it stopped")

    def pause(self, seconds: float, *, name: str, reason: str) -> None:
        """Wait with a countdown.

        Raises:
            CancelledError: the user stopped it meanwhile.
        """
        remaining_s = seconds
        while remaining_s > 0:
            self.check_cancelled()
            self.meter.waiting(name, reason=reason, remaining_s=remaining_s)
            self.patience.wait(self.cancel, min(remaining_s, _COUNTDOWN_STEP_S))
            remaining_s -= _COUNTDOWN_STEP_S
        self.check_cancelled()


def open_session(
    environ: Mapping[str, str],
    *,
    offline: bool = False,
    on_progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
    patience: Patience | None = None,
) -> Session:
    """Put together what one call needs (raises like `Network.from_environment`)."""
    network = Network.from_environment(environ, offline=offline)
    patience = patience or Patience()
    return Session(
        network=network,
        patience=patience,
        meter=ProgressMeter(on_progress or ignore_progress, now=patience.now),
        cancel=cancel or threading.Event(),
        order=SourceOrder(network),
    )


class Attempts:
    """Counts the attempts at one source that brought nothing, and waits between them.

    Args:
        session: For the pauses.
        name: Of the file, for the countdown.
        limit: The attempt with this number is the last.
        unreachable_limit: The same as long as the source has never answered.
    """

    def __init__(self, session: Session, name: str, *, limit: int, unreachable_limit: int) -> None:
        self._session = session
        self._name = name
        self._limit = limit
        self._unreachable_limit = unreachable_limit
        self._fruitless = 0
        self._answered = False

    def failed(self, failure: TransientFailure, *, gained_bytes: int = 0) -> None:
        """Take note of a failed attempt and wait until the next one.

        Args:
            failure: What happened.
            gained_bytes: How far the attempt got beyond all earlier ones.

        Raises:
            SourceFailure: this was the last one.
            CancelledError: the user stopped it.
        """
        self._answered = self._answered or failure.answered
        self._session.order.has_answered |= failure.answered
        self._fruitless = 0 if gained_bytes else self._fruitless + 1
        if self._fruitless >= self._most(failure):
            raise SourceFailure(
                DownloadError(
                    f"{failure.reason}, {self._fruitless} attempts",
                    hint="check the network and run it again: it continues where it stopped",
                ),
                cut_off=failure.cut_off,
            )
        self._session.check_cancelled()
        seconds = self._pause_s(failure, gained_bytes)
        if seconds > 0:
            self._session.pause(seconds, name=self._name, reason=failure.reason)

    def _most(self, failure: TransientFailure) -> int:
        if failure.cut_off and not self._session.order.has_answered:
            return self._session.patience.cut_off_attempts
        return self._limit if self._answered else self._unreachable_limit

    def _pause_s(self, failure: TransientFailure, gained_bytes: int) -> float:
        patience = self._session.patience
        if failure.retry_after_s is not None:
            return min(failure.retry_after_s, patience.longest_retry_after_s)
        if gained_bytes >= _WORTHWHILE_BYTES:
            return 0.0
        doubled: float = patience.first_pause_s * 2 ** max(0, self._fruitless - 1)
        return min(doubled, patience.longest_pause_s)


def with_retries(session: Session, action: Callable[[], _T], *, name: str, is_last: bool) -> _T:
    """Run a short question to a server until it is answered.

    Args:
        session: Patience, and the wish to stop.
        action: Raises TransientFailure when it may be asked again.
        name: What is looked for, for the countdown.
        is_last: No other source is left.

    Raises:
        SourceFailure: no answer after several attempts.
    """
    patience = session.patience
    limit = patience.lookup_attempts
    attempts = Attempts(
        session, name, limit=limit, unreachable_limit=limit if is_last else patience.unreachable_attempts
    )
    while True:
        try:
            return interruptible(action, session)
        except TransientFailure as failure:
            attempts.failed(failure)


def interruptible(action: Callable[[], _T], session: Session) -> _T:
    """Run a blocking call on a thread of its own and leave it behind when the user stops the download.

    Raises:
        CancelledError: the user did; the thread ends by its own timeout.
    """
    done = threading.Event()
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:  # raised again in the calling thread
            errors.append(error)
        finally:
            done.set()

    session.check_cancelled()
    threading.Thread(target=run, name="hymt-lookup", daemon=True).start()
    while not done.wait(CANCEL_POLL_S):
        session.check_cancelled()
    if errors:
        raise errors[0]
    return results[0]


def retry_after_s(value: str | None, *, wall_clock: Callable[[], float]) -> float | None:
    """Read a Retry-After header: seconds or a date; None when there is none that can be read."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - wall_clock())
    except (ValueError, OverflowError):
        return None
