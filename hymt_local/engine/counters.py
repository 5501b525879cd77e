"""What an engine did since it loaded its model, counted: plain data that crosses every seam."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DraftStats:
    """What verifying drafts did."""

    slices: int = 0
    """Decode calls that verified guessed tokens."""
    guessed: int = 0
    """Tokens that drafts guessed."""
    accepted: int = 0
    """Of them, those that the model agreed with."""
    is_given_up: bool = False
    """They cost more than they bring, so that nearly all are left alone."""


@dataclass(frozen=True, slots=True)
class PrefixStats:
    """What keeping states of prompt beginnings did."""

    hits: int = 0
    misses: int = 0
    saved: int = 0
    removed: int = 0
    """Files that were corrupt, foreign or stale."""
    errors: int = 0
    """Reads and writes that the disk refused."""
    restored_tokens: int = 0
    restored_s: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0
    given_up: tuple[int, ...] = ()
    """Lengths, rounded down to powers of two, whose states took longer to restore than to compute."""


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Everything counted; zeros where there is nothing to count."""

    drafts: DraftStats = field(default_factory=DraftStats)
    prefixes: PrefixStats = field(default_factory=PrefixStats)
