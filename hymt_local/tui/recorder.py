"""Writes finished translations into the history: one entry per text, however often it was translated while typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hymt_local.events import Finished, TranslationRequest
from hymt_local.tui.keeper import HistoryKeeper

if TYPE_CHECKING:  # sqlite3: not before the first translation
    from hymt_local.memory.history import Translation

_SAME_TEXT_SHARE = 0.6
"""Of the shorter text: two states of one text begin or end alike to that extent."""


@dataclass(frozen=True, slots=True)
class _Last:
    entry_id: int
    translation: Translation


class Recorder:
    """Remembers what this session wrote last. Args: where to write."""

    def __init__(self, keeper: HistoryKeeper) -> None:
        self._keeper = keeper
        self._last: _Last | None = None

    async def record(self, request: TranslationRequest, finished: Finished) -> int:
        """Remember a translation and return its id; a later state of the same text takes the place of the former.

        Raises:
            StoreError: the database cannot be used.
        """
        from hymt_local.memory.history import Translation

        translation = Translation(
            request.text, finished.text, finished.source_lang, finished.target_lang, finished.model
        )
        last = self._last
        if last is not None and is_later_state(last.translation, translation):
            entry_id = last.entry_id
            await self._keeper.use(lambda history: history.replace(entry_id, translation))
        else:
            entry_id = await self._keeper.use(lambda history: history.add(translation))
        self._last = _Last(entry_id, translation)
        return entry_id

    async def correct(self, target: str) -> None:
        """Let a person's choice win over the last recorded target (raises like `record`)."""
        last = self._last
        if last is not None:
            await self._keeper.use(lambda history: history.edit(last.entry_id, target))

    def end_text(self) -> None:
        """Take the next text for another one, whatever it looks like."""
        self._last = None


def is_later_state(old: Translation, new: Translation) -> bool:
    """Tell whether a text is the same one some keystrokes later."""
    if (old.source_lang, old.target_lang) != (new.source_lang, new.target_lang):
        return old.source == new.source and old.target_lang == new.target_lang
    shorter = min(len(old.source), len(new.source))
    alike = _common_length(old.source, new.source) + _common_length(old.source[::-1], new.source[::-1])
    return alike >= _SAME_TEXT_SHARE * shorter


def _common_length(one: str, other: str) -> int:
    limit = min(len(one), len(other))
    return next((index for index in range(limit) if one[index] != other[index]), limit)
