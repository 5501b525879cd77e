"""How long models stay in memory after their last use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_logger = logging.getLogger(__name__)

Unload = Callable[[str | None], tuple[str, ...]]
"""Frees a model, or all, unless jobs use it, and returns the names of those freed. Blocks; any thread."""


@dataclass(slots=True)
class _Stay:
    n_users: int = 0
    keep_alive_s: float = 0.0
    timer: asyncio.TimerHandle | None = None


class Residency:
    """Unloads models that nobody has used for a while. Belongs to the server's loop.

    Args:
        unload: See Unload.
        keep_alive_s: How long a model stays; 0 unloads it after each use, negative keeps it.
    """

    def __init__(self, unload: Unload, *, keep_alive_s: float) -> None:
        self._unload = unload
        self._keep_alive_s = keep_alive_s
        self._stays: dict[str, _Stay] = {}
        self._wishes: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def wish(self, model: str, keep_alive_s: float) -> None:
        """Let a model stay this long after its current or next use, instead of the usual time."""
        self._wishes[model] = keep_alive_s

    def begin(self, model: str) -> None:
        """A translation uses the model."""
        stay = self._stays.setdefault(model, _Stay())
        stay.n_users += 1
        self._stop_timer(stay)

    def end(self, model: str) -> None:
        """It does not any more."""
        stay = self._stays.setdefault(model, _Stay(n_users=1))
        stay.n_users -= 1
        if stay.n_users == 0:
            self._start_timer(model, stay, self._wishes.pop(model, self._keep_alive_s))

    def touch(self, model: str) -> None:
        """The model was loaded ahead: it stays as if it had been used."""
        self.begin(model)
        self.end(model)

    async def unload_now(self, model: str | None = None) -> tuple[str, ...]:
        """Free a model, or all; returns the names of those that were in memory and unused."""
        freed = await asyncio.to_thread(self._unload, model)
        self.forget(freed)
        return freed

    def forget(self, models: Iterable[str]) -> None:
        """Models were freed, for whatever reason."""
        for name in models:
            stay = self._stays.get(name)
            if stay and not stay.n_users:
                self._stop_timer(self._stays.pop(name))

    def names(self) -> tuple[str, ...]:
        """Return the models that have been used and not unloaded since."""
        return tuple(self._stays)

    def is_used(self, model: str) -> bool:
        """Tell whether a translation uses the model now."""
        return model in self._stays and self._stays[model].n_users > 0

    def remaining_s(self, model: str) -> float | None:
        """Return how long the model will stay if nobody uses it; None while in use or for ever."""
        stay = self._stays.get(model)
        if stay is None or stay.timer is None:
            return None
        return max(0.0, stay.timer.when() - asyncio.get_running_loop().time())

    def close(self) -> None:
        """Unload nothing any more."""
        for stay in self._stays.values():
            self._stop_timer(stay)

    def _start_timer(self, model: str, stay: _Stay, keep_alive_s: float) -> None:
        self._stop_timer(stay)
        if keep_alive_s >= 0:
            stay.timer = asyncio.get_running_loop().call_later(keep_alive_s, self._expire, model)

    @staticmethod
    def _stop_timer(stay: _Stay) -> None:
        if stay.timer is not None:
            stay.timer.cancel()
            stay.timer = None

    def _expire(self, model: str) -> None:
        task = asyncio.get_running_loop().create_task(self._unload_idle(model))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _unload_idle(self, model: str) -> None:
        if await self.unload_now(model):
            _logger.info("unloaded %s: nobody has used it for a while", model)
