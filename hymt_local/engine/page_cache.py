"""Bringing a model file into memory before it is mapped: by several readers, with progress, and only what is not there.

llama.cpp maps a file and waits until the system has read it all, by one reader, without a word and without a way out.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHUNK_BYTES = 4 << 20
N_READERS = 4
"""Each reads a part of its own from its beginning to its end, as the system's own read-ahead likes it: nearly twice as
fast as one on a virtual disk, and faster than chunks in turn."""


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
            missing = list(missing_chunks(file.fileno(), path.stat().st_size))
        return not missing or _read(path, missing, on_progress)
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


def _read(path: Path, missing: list[int], on_progress: Callable[[float], bool]) -> bool:
    done: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
    stop = threading.Event()
    bounds = [len(missing) * part // N_READERS for part in range(N_READERS + 1)]
    with ThreadPoolExecutor(N_READERS, thread_name_prefix="hymt-read-ahead") as pool:
        try:
            for first, last in itertools.pairwise(bounds):
                pool.submit(_read_part, path, missing[first:last], done=done, stop=stop)
            for n_read in range(1, len(missing) + 1):
                error = done.get()
                if error is not None:
                    raise error
                if not on_progress(n_read / len(missing)):
                    return False
        finally:
            stop.set()
    return True


def _read_part(
    path: Path, chunks: list[int], *, done: queue.SimpleQueue[OSError | None], stop: threading.Event
) -> None:
    """Let the system copy chunks to nowhere; report each, or why it is the last."""
    try:
        with path.open("rb", buffering=0) as file:
            buffer = bytearray(CHUNK_BYTES)
            for start in chunks:
                if stop.is_set():
                    return
                os.preadv(file.fileno(), [buffer], start)
                done.put(None)
    except OSError as error:
        done.put(error)
