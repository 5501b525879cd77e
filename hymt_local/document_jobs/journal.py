"""The journal of one output file: what is translated already, so that a killed run loses next to nothing.

A text file of JSON lines, one per unit, that only grows. Its first line says what it belongs to: targets are used only
for the same bytes, languages, model and options. A line that a crash has cut off is dropped with all that follows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from hymt_local.catalog import ALL_TAGS
from hymt_local.document_jobs.events import DocumentTask, UnitSettled
from hymt_local.document_jobs.work import Known
from hymt_local.regular_file import read_regular

VERSION = 1
SYNC_INTERVAL_S = 1.0
"""What a power cut may cost; a killed process loses nothing that was settled."""
KEPT_S = 90 * 86_400.0
"""Journals that nobody has resumed for so long go: they hold text."""
_logger = logging.getLogger(__name__)


def journal_path(state_dir: Path, target_path: Path) -> Path:
    """Return where the journal of an output lies; one journal per output."""
    digest = hashlib.sha256(os.fsencode(target_path)).hexdigest()
    return state_dir / "documents" / f"{digest[:32]}.jsonl"


def key_of(task: DocumentTask, data: bytes, *, format_name: str) -> str:
    """Return a digest of everything that shapes the output of a document."""
    options = task.options
    parts = [
        VERSION,
        hashlib.sha256(data).hexdigest(),
        format_name,
        options.languages.source_lang,
        options.languages.target_lang,
        options.model,
        task.model_identity,
        msgspec.structs.asdict(options.sampling) if options.sampling else None,
        options.is_bilingual,
        options.sets_metadata,
        options.marks_fuzzy,
        options.protect,
        options.pivot,
        options.keeps_translated,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Remains:
    """What a journal holds."""

    known: Known
    written: str | None = None
    """Digest of the output as the earlier run has left it."""
    is_complete: bool = False
    """Nothing failed in it."""
    size: int = 0
    """Bytes of it that are sound."""


def read_journal(path: Path, *, key: str) -> Remains | None:
    """Return what a journal holds for this key; None when there is none or it belongs to something else."""
    try:
        data = read_regular(path)
    except OSError:
        return None
    records = list(_records(data))
    header = records[0][1] if records else {}
    if header.get("journal") != VERSION or header.get("key") != key:
        return None
    targets: dict[str, str] = {}
    failures: dict[str, bool] = {}
    remains: dict[str, Any] = {}
    source_lang: str | None = None
    for _, record in records:
        match record:
            case {"id": str(unit_id), "target": str(target)}:
                targets[unit_id] = target
                failures.pop(unit_id, None)
            case {"id": str(unit_id), "vetoed": bool(is_vetoed)}:
                failures[unit_id] = is_vetoed
            case {"source_lang": str(lang)} if lang in ALL_TAGS:
                source_lang = lang
            case {"written": str(digest), "is_complete": bool(is_complete)}:
                remains = {"written": digest, "is_complete": is_complete}
    vetoed = frozenset(unit_id for unit_id, is_vetoed in failures.items() if is_vetoed)
    known = Known(targets, failed=frozenset(failures), vetoed=vetoed, source_lang=source_lang)
    return Remains(known, size=records[-1][0], **remains)


def _records(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the sound lines from the beginning, each with the size of the file up to its end."""
    size = 0
    for line in data.splitlines(keepends=True):
        try:
            record = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            return
        if not isinstance(record, dict):
            return
        size += len(line)
        yield size, record


class Journal:
    """An open journal. Belongs to one thread; the lock of the output keeps other processes away.

    One that cannot be written is given up: that costs the chance to resume, never the translation.

    Args:
        path: See `journal_path`.
        key: See `key_of`.
        names: Source and target, for a person who looks into it.
        remains: Sound content to continue after; None starts anew.
        now: A monotonic clock, seconds.
    """

    def __init__(
        self,
        path: Path,
        *,
        key: str,
        names: tuple[str, str] = ("", ""),
        remains: Remains | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._header = {"journal": VERSION, "key": key, "source": names[0], "target": names[1]}
        self._now = now
        self._synced_at = now()
        self._stream: BinaryIO | None = None
        self.n_kept = len(remains.known.targets) if remains else 0
        """Units that a resumed run finds settled."""
        self.fault = ""
        """Why it is not kept, in one line; empty while all is well."""
        self._has_language = remains is not None and remains.known.source_lang is not None
        try:
            self._begin(remains)
        except BaseException:
            self.close()
            raise

    def _begin(self, remains: Remains | None) -> None:
        with self._forgiving():
            self._stream = _open_private(self._path)
            self._stream.truncate(remains.size if remains else 0)
            if remains is None:
                self._write(self._header)

    def add(self, settled: UnitSettled) -> None:
        """Record one unit."""
        history = (
            {"attempts": [msgspec.structs.asdict(each) for each in settled.attempts]} if settled.has_history else {}
        )
        if settled.error is None:
            self._append({"id": settled.id, "target": settled.target, **history})
            self.n_kept += not self.fault
        else:
            self._append({"id": settled.id, "vetoed": settled.is_vetoed, "error": settled.error.message, **history})

    def add_language(self, source_lang: str) -> None:
        """Record the source language that was detected: the rest of the document must not be taken for another."""
        if not self._has_language:
            self._has_language = True
            self._append({"source_lang": source_lang})

    def announce(self, data: bytes) -> None:
        """Record the output that is about to be written: a run that dies right after it must know it for its own."""
        self._append({"written": hashlib.sha256(data).hexdigest(), "is_complete": False})

    def finish(self, data: bytes, *, is_complete: bool) -> None:
        """Note that the output was written; of a complete one, the texts are not needed any more."""
        if not is_complete or self._stream is None:
            return
        record = {"written": hashlib.sha256(data).hexdigest(), "is_complete": True}
        with self._forgiving():
            descriptor, temporary = tempfile.mkstemp(dir=self._path.parent)
            with os.fdopen(descriptor, "wb") as stream:
                stream.writelines(map(_line, (self._header, record)))
            Path(temporary).replace(self._path)

    def close(self) -> None:
        """Bring everything to the disk; closing twice is fine."""
        if self._stream is not None:
            with self._forgiving():
                self._sync()
            with contextlib.suppress(OSError):
                self._stream.close()
            self._stream = None

    def _append(self, record: dict[str, Any]) -> None:
        if self._stream is None or self.fault:
            return
        with self._forgiving():
            self._write(record)
            if self._now() - self._synced_at >= SYNC_INTERVAL_S:
                self._sync()

    def _write(self, record: dict[str, Any]) -> None:
        assert self._stream is not None
        self._stream.write(_line(record))

    def _sync(self) -> None:
        assert self._stream is not None
        os.fsync(self._stream.fileno())
        self._synced_at = self._now()

    @contextlib.contextmanager
    def _forgiving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.fault = f"this run cannot be resumed: {error.strerror or error} ({self._path})"
            self.n_kept = 0
            _logger.warning("%s", self.fault)


def _line(record: dict[str, Any]) -> bytes:
    # Half a character, as in a path that is not UTF-8, becomes its JSON escape.
    return json.dumps(record, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def _open_private(path: Path) -> BinaryIO:
    """Open for appending, unbuffered: what was written survives the process."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _forget_old(path.parent)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "ab", buffering=0)


def _forget_old(folder: Path) -> None:
    oldest = time.time() - KEPT_S
    for path in folder.glob("*.jsonl"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
