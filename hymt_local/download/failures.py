"""Why an attempt stops: two signals between the layers of this package; callers see errors only."""

from __future__ import annotations

from hymt_local.errors import HymtError


class TransientFailure(Exception):
    """One attempt failed in a way that may pass.

    Args:
        reason: One clause for the user: who failed and how.
        retry_after_s: What the server asked for, in seconds; None when it said nothing.
        answered: False when no server was reached.
    """

    def __init__(self, reason: str, *, retry_after_s: float | None = None, answered: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.answered = answered


class SourceFailure(Exception):
    """One source cannot give the file; the next one may.

    Args:
        error: What to raise when no source is left.
    """

    def __init__(self, error: HymtError) -> None:
        super().__init__(error.message)
        self.error = error
