"""What comes of one source text, and the refusals that it may end with."""

from __future__ import annotations

from dataclasses import dataclass

from hymt_local.errors import HymtError, NotCoveredError, SegmentRejectedError
from hymt_local.events import TokenUsage
from hymt_local.language import get_language
from hymt_local.planning import shown
from hymt_local.segment import Attempt, Finding

_RETRIED_HINT = "the source text was kept; translate this part again, alone or with another model"
_COVERAGE_HINT = "`hymt models pull` fetches a real model that suits this machine; `hymt models list` shows all"


@dataclass(frozen=True, slots=True)
class Answer:
    """The judged result for one source text."""

    target: str
    """Without outer whitespace; the source text when `error` is set."""
    usage: TokenUsage
    error: HymtError | None = None
    findings: tuple[Finding, ...] = ()
    is_retryable: bool = False
    """True when another attempt may succeed."""
    is_storable: bool = True
    """False for what a random retry gave: it was not sampled as the signature says."""
    fault: str = ""
    """Code of what was refused."""
    attempts: tuple[Attempt, ...] = ()
    """Every generation, in order."""

    @property
    def is_doubtful(self) -> bool:
        """Whether it may be in the wrong language, which its length does not let anyone say for sure."""
        return self.error is None and any(finding.code == "wrong_language" for finding in self.findings)


def rejected(message: str) -> SegmentRejectedError:
    """Return the refusal of an answer."""
    return SegmentRejectedError(message, hint=_RETRIED_HINT)


def not_covered(text: str, *, target_lang: str | None = None) -> NotCoveredError:
    """Return the refusal of a text (or the part of it) outside a demo model's closed domain.

    Args:
        text: What is not covered.
        target_lang: Given when only the translation into this language is outside.
    """
    into = f" in {get_language(target_lang).english}" if target_lang else ""
    return NotCoveredError(f"the demo phrasebook does not cover {shown(text)!r}{into}", hint=_COVERAGE_HINT)
