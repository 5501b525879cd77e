"""Why an attempt stops: two signals between the layers of this package; callers see errors only."""

from __future__ import annotations

from collections.abc import Sequence

from hymt_local.errors import DownloadError, HymtError


class TransientFailure(Exception):
    """One attempt failed in a way that may pass.

    Args:
        reason: One clause for the user: who failed and how.
        retry_after_s: What the server asked for, in seconds; None when it said nothing.
        answered: False when no server was reached.
        cut_off: This machine does not even find the way to one: no network, or no such name.
    """

    def __init__(
        self, reason: str, *, retry_after_s: float | None = None, answered: bool = True, cut_off: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.answered = answered
        self.cut_off = cut_off


class SourceFailure(Exception):
    """One source cannot give the file; the next one may.

    Args:
        error: What to raise when no source is left.
        cut_off: See TransientFailure.
    """

    def __init__(self, error: HymtError, *, cut_off: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.cut_off = cut_off


def final_error(failures: Sequence[SourceFailure]) -> HymtError:
    """Return what to raise when no source is left: the first one's error, unless nothing at all is within reach."""
    if len(failures) > 1 and all(failure.cut_off for failure in failures):
        return DownloadError(
            f"no way to the internet: {failures[0].error.message}",
            hint="connect and run it again; or fetch the file elsewhere, and `hymt models import FILE`",
        )
    return failures[0].error
