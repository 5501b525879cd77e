"""The cancel flag: one byte that any thread sets, that Python polls, and that C code polls without taking the GIL."""

from __future__ import annotations

import ctypes


class CancelFlag:
    """A flag that anybody sets and its owner resets. Calling it tells whether it is set.

    Thread: `cancel` may be called from any thread, any number of times.
    """

    __slots__ = ("_cell",)

    def __init__(self) -> None:
        self._cell = (ctypes.c_char * 2)()

    def __call__(self) -> bool:
        """Return True once the flag is set."""
        return self._cell[0] != b"\0"

    def cancel(self) -> None:
        """Set the flag."""
        self._cell[0] = b"\1"

    def reset(self) -> None:
        """Clear the flag."""
        self._cell[0] = b"\0"

    @property
    def address(self) -> int:
        """Address of a C string that is empty until the flag is set; valid as long as this object lives."""
        return ctypes.addressof(self._cell)
