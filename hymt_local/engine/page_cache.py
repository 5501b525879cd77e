"""Bringing a model file into memory before it is mapped: by several readers, with progress, and only what is not there.

llama.cpp maps a file and waits until the system has read it all, by one reader, without a word and without a way out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHUNK_BYTES = 4 << 20
N_READERS = 4
"""Requests that a disk has at once: one leaves most of a solid-state disk idle."""


def read_ahead(path: Path, on_progress: Callable[[float], bool]) -> bool:
    """Read what of a file is not in the page cache; return False when `on_progress` gave it up.

    Where the system does not say what is in the cache, nothing is read: mapping the file will do it. What the disk
    refuses is left to that too.

    Args:
        path: Of the file.
        on_progress: Called on this thread with 0.0 to 1.0 of what was missing; not at all when nothing was.
    """
    try:
        with path.open("rb") as file:
            descriptor = file.fileno()
            missing = list(missing_chunks(descriptor, path.stat().st_size))
            return not missing or _read(descriptor, missing, on_progress)
    except OSError:
        return True


def missing_chunks(descriptor: int, size_bytes: int) -> Iterator[int]:
    """Yield where the chunks begin whose first page is not in the page cache."""
    if not hasattr(os, "RWF_NOWAIT"):
        return
    probe = [bytearray(1)]
    for start in range(0, size_bytes, CHUNK_BYTES):
        try:
            os.preadv(descriptor, probe, start, os.RWF_NOWAIT)
        except BlockingIOError:
            yield start


def _read(descriptor: int, missing: list[int], on_progress: Callable[[float], bool]) -> bool:
    with ThreadPoolExecutor(N_READERS, thread_name_prefix="hymt-read-ahead") as pool:
        reads = [pool.submit(_read_chunk, descriptor, start) for start in missing]
        for n_read, read in enumerate(reads, start=1):
            read.result()
            if not on_progress(n_read / len(reads)):
                pool.shutdown(cancel_futures=True)
                return False
    return True


def _read_chunk(descriptor: int, start: int) -> None:
    """Let the system copy a chunk to nowhere: a buffer of this thread that is soon forgotten."""
    buffer = bytearray(CHUNK_BYTES)
    os.preadv(descriptor, [buffer], start)
