"""Text files as the translate view opens and saves them."""

from __future__ import annotations

from pathlib import Path

from hymt_local.config import write_atomically
from hymt_local.errors import DocumentError

MOST_BYTES = 400_000
"""More than anybody edits in a pane: a longer file is a document."""
_TEXT_SUFFIXES = frozenset({"", ".txt", ".text", ".log"})
_HEAD_BYTES = 4096


def is_for_documents(path: Path) -> bool:
    """Tell whether a file has a structure to keep, or is too long for a pane."""
    try:
        return path.suffix.lower() not in _TEXT_SUFFIXES or path.stat().st_size > MOST_BYTES
    except OSError:
        return False  # reading it says what is wrong


def read_text_file(path: Path) -> str:
    """Return the text of a file in UTF-8 or, with a byte order mark, UTF-16.

    Raises:
        DocumentError: it cannot be read or is no text.
    """
    data = _read(path)
    encoding, name = ("utf-16", "UTF-16") if data.startswith((b"\xff\xfe", b"\xfe\xff")) else ("utf-8-sig", "UTF-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path} is not {name} (byte {error.start})", hint="save it as UTF-8") from error
    if "\0" in text[:_HEAD_BYTES]:
        raise DocumentError(f"{path} is no text", hint="choose a text file")
    return text


def _read(path: Path) -> bytes:
    """Return what is in a regular file; a pipe or a device would be waited for without end."""
    try:
        if path.exists() and not path.is_file():
            raise DocumentError(f"{path} is no file", hint="choose a text file")
        return path.read_bytes()
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror or error}", hint="check the path") from error


def save_text_file(path: Path, text: str) -> None:
    """Write a text as a whole, ending with a line end.

    Raises:
        StoreError: the folder or file cannot be written; what was there stays.
    """
    write_atomically(path, text if text.endswith("\n") else text + "\n")
