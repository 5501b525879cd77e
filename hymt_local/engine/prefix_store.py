"""States of fixed prompt beginnings, kept in memory and on disk: what was read once need not be read again.

A file holds one state in a container of its own, because llama.cpp's aborts on a short file and accepts flipped bits:

    magic, 8 bytes | length of the header, 4 bytes | header, JSON | token ids, 4 bytes each | state | SHA-256 of all

The header names the fingerprint of everything that the state depends on. A file that is not exactly what is expected is
removed and counts as missing; no fault of the disk ever reaches a translation.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import struct
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from hymt_local.engine.counters import PrefixStats
from hymt_local.engine.options import PREFIX_BYTES
from hymt_local.regular_file import read_regular

MAGIC = b"HYMTKV01"
SUFFIX = ".kv"
PART_SUFFIX = ".part"
LEAST_TOKENS = 16
"""Shorter beginnings are read in the time that looking them up takes."""
MEMORY_BYTES = 256 << 20
TRIALS = 3
"""Restores of about one length before their time is judged."""
_DIGEST_BYTES = 32
_STALE_PART_S = 3600.0
_LENGTH = struct.Struct("<I")

_logger = logging.getLogger(__name__)
State = bytes | memoryview
"""One sequence, as the engine gave it: never changed, and not copied on its way."""


@dataclass(slots=True)
class _Trials:
    n_restores: int = 0
    saved_s: float = 0.0
    """Time won so far, negative when it was lost."""


class PrefixStore:
    """Keeps states by the token ids they stand for. Belongs to one thread; files are written by another.

    Args:
        folder: Where files are kept; None keeps states in memory only.
        fingerprint: Names everything that a state depends on beside its tokens.
        memory_bytes: Most bytes kept in memory.
        disk_bytes: Most bytes of all files in the folder, those of other models included.
        clock: Wall time in seconds, for the age of leftovers.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        fingerprint: str,
        memory_bytes: int = MEMORY_BYTES,
        disk_bytes: int = PREFIX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._fingerprint = fingerprint
        self._memory_bytes = memory_bytes
        self._disk_bytes = disk_bytes
        self._clock = clock
        self._memory: OrderedDict[str, State] = OrderedDict()
        self._stats = PrefixStats()
        self._trials: dict[int, _Trials] = {}
        self._token_s: float | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._writes: list[Future[None]] = []
        if folder is not None:
            self._prepare(folder)

    @property
    def stats(self) -> PrefixStats:
        """What it did so far."""
        given_up = sorted(size for size in self._trials if self._is_given_up(size))
        in_memory = sum(map(len, self._memory.values()))
        on_disk = sum(size for _, size, _ in self._files())
        return replace(self._stats, memory_bytes=in_memory, disk_bytes=on_disk, given_up=tuple(given_up))

    def is_worth(self, n_tokens: int) -> bool:
        """Return whether a beginning of this length is worth keeping."""
        return n_tokens >= LEAST_TOKENS and not self._is_given_up(_size_class(n_tokens))

    def get(self, tokens: Sequence[int]) -> State | None:
        """Return the state of exactly these tokens, or None."""
        key = self._key(tokens)
        state = self._memory.get(key)
        if state is None:
            state = self._read(key, tokens)
            if state is not None:
                self._remember(key, state)
        else:
            self._memory.move_to_end(key)
        if state is None:
            self._count(misses=1)
        return state

    def put(self, tokens: Sequence[int], state: State) -> None:
        """Keep a state; the file is written in the background."""
        key = self._key(tokens)
        self._remember(key, state)
        self._count(saved=1)
        if self._folder is None:
            return
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, thread_name_prefix="hymt-prefix")
        self._writes = [write for write in self._writes if not write.done()]
        self._writes.append(self._writer.submit(self._write, key, array("i", tokens), state))

    def forget(self, tokens: Sequence[int]) -> None:
        """Remove a state that the engine did not take."""
        key = self._key(tokens)
        self._memory.pop(key, None)
        if self._folder is not None:
            self._remove(self._folder / (key + SUFFIX))

    def has(self, tokens: Sequence[int]) -> bool:
        """Return whether a state of these tokens is kept, without reading it."""
        key = self._key(tokens)
        return key in self._memory or (self._folder is not None and (self._folder / (key + SUFFIX)).exists())

    def note_computed(self, n_tokens: int, seconds: float) -> None:
        """Note how long tokens of a prompt took to compute."""
        if n_tokens:
            token_s = seconds / n_tokens
            self._token_s = token_s if self._token_s is None else 0.7 * self._token_s + 0.3 * token_s

    def note_restored(self, n_tokens: int, seconds: float) -> None:
        """Note how long it took to get a state and give it to the engine."""
        self._count(hits=1, restored_tokens=n_tokens)
        self._stats = replace(self._stats, restored_s=self._stats.restored_s + seconds)
        if self._token_s is not None:
            trials = self._trials.setdefault(_size_class(n_tokens), _Trials())
            trials.n_restores += 1
            trials.saved_s += n_tokens * self._token_s - seconds

    def flush(self) -> None:
        """Wait until all files are written."""
        for write in self._writes:
            write.result()
        self._writes.clear()

    def close(self) -> None:
        """Wait for the files; closing twice is fine."""
        self.flush()
        if self._writer is not None:
            self._writer.shutdown()
            self._writer = None

    # Deciding

    def _is_given_up(self, size: int) -> bool:
        trials = self._trials.get(size)
        return trials is not None and trials.n_restores >= TRIALS and trials.saved_s < 0

    def _count(self, *, hits: int = 0, misses: int = 0, saved: int = 0, restored_tokens: int = 0) -> None:
        stats = self._stats
        self._stats = replace(
            stats,
            hits=stats.hits + hits,
            misses=stats.misses + misses,
            saved=stats.saved + saved,
            restored_tokens=stats.restored_tokens + restored_tokens,
        )

    # Memory

    def _key(self, tokens: Sequence[int]) -> str:
        digest = hashlib.sha256(self._fingerprint.encode())
        digest.update(array("i", tokens).tobytes())
        return digest.hexdigest()[:40]

    def _remember(self, key: str, state: State) -> None:
        self._memory[key] = state
        self._memory.move_to_end(key)
        while len(self._memory) > 1 and sum(map(len, self._memory.values())) > self._memory_bytes:
            self._memory.popitem(last=False)
        if len(state) > self._memory_bytes:
            self._memory.clear()

    # Disk

    def _prepare(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in folder.glob("*" + PART_SUFFIX):
                if self._clock() - part.stat().st_mtime > _STALE_PART_S:
                    part.unlink()
        except OSError as error:
            self._give_up_disk(error)

    def _give_up_disk(self, error: OSError) -> None:
        _logger.warning("prefix states are not kept on disk: %s", error.strerror or error)
        self._stats = replace(self._stats, errors=self._stats.errors + 1)
        self._folder = None

    def _read(self, key: str, tokens: Sequence[int]) -> State | None:
        if self._folder is None:
            return None
        path = self._folder / (key + SUFFIX)
        try:
            data = read_regular(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up_disk(error)
            return None
        state = unpack(data, fingerprint=self._fingerprint, tokens=tokens)
        if state is None:
            _logger.warning("removed a prefix state that cannot be used: %s", path.name)
            self._remove(path)
            self._stats = replace(self._stats, removed=self._stats.removed + 1)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the least recently used goes first
        return state

    def _write(self, key: str, tokens: array[int], state: State) -> None:
        folder = self._folder
        if folder is None:
            return
        part = folder / f"{key}.{os.getpid()}{PART_SUFFIX}"
        try:
            self._make_room(len(state))
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                for piece in pack(state, fingerprint=self._fingerprint, tokens=tokens):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            part.replace(folder / (key + SUFFIX))
        except OSError as error:
            self._remove(part)
            self._give_up_disk(error)

    def _make_room(self, n_bytes: int) -> None:
        files = sorted(self._files())
        total = sum(size for _, size, _ in files) + n_bytes
        for _, size, path in files:
            if total <= self._disk_bytes:
                return
            self._remove(path)
            total -= size

    def _files(self) -> list[tuple[float, int, Path]]:
        """Return time of last use, size and path of all files."""
        files: list[tuple[float, int, Path]] = []
        if self._folder is not None:
            for path in self._folder.glob("*" + SUFFIX):
                with contextlib.suppress(OSError):  # another process may have removed it
                    status = path.stat()
                    files.append((status.st_mtime, status.st_size, path))
        return files

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()


def pack(state: State, *, fingerprint: str, tokens: Sequence[int]) -> list[State]:
    """Return the container of a state, in pieces."""
    header = json.dumps({"fingerprint": fingerprint, "tokens": len(tokens), "state_bytes": len(state)}).encode()
    pieces = [MAGIC, _LENGTH.pack(len(header)), header, array("i", tokens).tobytes(), state]
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return [*pieces, digest.digest()]


def unpack(data: bytes, *, fingerprint: str, tokens: Sequence[int]) -> memoryview | None:
    """Return the state in a container, not copied; None unless it is intact, of this fingerprint and these tokens."""
    view = memoryview(data)
    n_state = len(data) - _DIGEST_BYTES
    if n_state < 0 or hashlib.sha256(view[:n_state]).digest() != data[n_state:]:
        return None
    expected = pack(b"", fingerprint=fingerprint, tokens=tokens)
    start = len(MAGIC) + _LENGTH.size
    if data[: len(MAGIC)] != MAGIC or len(data) < start + _DIGEST_BYTES:
        return None
    (n_header,) = _LENGTH.unpack_from(data, len(MAGIC))
    ids = expected[3]
    body = start + n_header + len(ids)
    if body > n_state:
        return None
    try:
        header = json.loads(data[start : start + n_header])
    except ValueError:
        return None
    wanted = {"fingerprint": fingerprint, "tokens": len(tokens), "state_bytes": n_state - body}
    if header != wanted or data[start + n_header : body] != ids:
        return None
    return view[body:n_state]


def _size_class(n_tokens: int) -> int:
    return 1 << (n_tokens.bit_length() - 1)
