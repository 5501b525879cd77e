"""The history as the screens use it: opened when first needed, on one thread of its own: nothing waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from hymt_local.memory.history import History

T = TypeVar("T")


class HistoryKeeper:
    """Lets coroutines use a `History`, which belongs to one thread. Args: the database file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: ThreadPoolExecutor | None = None
        self._history: History | None = None

    async def use(self, work: Callable[[History], T]) -> T:
        """Run `work` with the history on its thread.

        Raises:
            StoreError: the database cannot be used.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hymt-history")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    def close(self) -> None:
        """Finish what was asked for and close the file; closing twice is fine."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.submit(self._close)
            thread.shutdown()

    def _run(self, work: Callable[[History], T]) -> T:
        if self._history is None:
            from hymt_local.memory.history import History  # sqlite3: not before the first translation

            self._history = History(self._path)
        return work(self._history)

    def _close(self) -> None:
        if self._history is not None:
            self._history.close()
            self._history = None
