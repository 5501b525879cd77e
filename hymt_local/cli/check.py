"""One line of `hymt doctor`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hymt_local.errors import HymtError

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and how to mend it."""

    name: str
    status: Status
    found: str
    fix: str = ""
    exit_status: int = 0


def guarded_check(name: str, check: Callable[[], Check]) -> Check:
    """Run a check; one that breaks is a finding."""
    try:
        return check()
    except HymtError as error:
        return failed_check(name, error)
    except (ImportError, OSError) as error:  # a broken package, a vanished disk: what doctor is asked about
        return failed_check(name, HymtError(f"{type(error).__name__}: {error}", hint="install hymt-local again"))


def failed_check(name: str, error: HymtError) -> Check:
    """Return an error as a finding."""
    return Check(name, "fail", error.message, error.hint, error.exit_status)
