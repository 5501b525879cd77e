"""Every document format of this program: by name, by extension, by content. A new format is one line here."""

from __future__ import annotations

from pathlib import PurePath

from hymt_local.documents.base import Format
from hymt_local.documents.html import HtmlFormat
from hymt_local.documents.json_catalogue import JsonCatalogueFormat
from hymt_local.documents.markdown import MarkdownFormat
from hymt_local.documents.po import PoFormat
from hymt_local.documents.srt import SrtFormat
from hymt_local.documents.text import TextFormat
from hymt_local.documents.vtt import VttFormat
from hymt_local.errors import DocumentError

FORMATS: tuple[Format, ...] = (
    TextFormat(),
    MarkdownFormat(),
    HtmlFormat(),
    SrtFormat(),
    VttFormat(),
    PoFormat(),
    JsonCatalogueFormat(),
)
"""In the order in which they are shown and asked. Their modules load their parsers when they read."""

_HEAD_BYTES = 4096


def format_named(name: str) -> Format:
    """Return a format by its name or one of its extensions, in any case.

    Raises:
        DocumentError: there is none.
    """
    wanted = name.casefold()
    for known in FORMATS:
        if wanted == known.name or f".{wanted.removeprefix('.')}" in known.extensions:
            return known
    raise DocumentError(f"unknown format {name!r}", hint=f"known are {', '.join(each.name for each in FORMATS)}")


def format_of(path_name: str, data: bytes) -> Format:
    """Return the format of a document: its extension decides, else its content.

    Raises:
        DocumentError: neither tells.
    """
    extension = PurePath(path_name).suffix.casefold()
    for known in FORMATS:
        if extension in known.extensions:
            return known
    head = data[:_HEAD_BYTES]
    for known in FORMATS:
        if known.sniffs(head):
            return known
    kind = f"files of type {extension}" if extension else "files without an extension"
    raise DocumentError(
        f"cannot translate {PurePath(path_name).name}: {kind} are not known",
        hint=f"name its format: `--format` with one of {', '.join(each.name for each in FORMATS)}",
    )
