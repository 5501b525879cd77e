"""Bytes of a document as text and back, without losing one: strict in both directions."""

from __future__ import annotations

import codecs
import contextlib
from dataclasses import dataclass

from hymt_local.documents.base import DeclaringFormat, Format
from hymt_local.errors import DocumentError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NOT_FOR_DOCUMENTS = frozenset({"utf-7", "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A decoded document. Law: `encode(text)` gives the bytes it was decoded from."""

    text: str
    """Without the byte order mark, line ends as they are."""
    encoding: str
    """A codec of Python: `utf-8`, `utf-16-le`, `gbk` ..."""
    bom: bytes = b""

    def encode(self, text: str) -> bytes:
        """Return a text in the encoding of this one, with its byte order mark.

        Raises:
            DocumentError: the encoding lacks a character of the text; `lacks` finds out before.
        """
        if fault := self.lacks(text):
            raise DocumentError(fault, hint="`hymt file --utf8` writes UTF-8")
        return self.bom + text.encode(self.encoding)

    def lacks(self, text: str) -> str | None:
        """Say in one line which character of `text` cannot be written in this encoding; None when all can."""
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError as error:
            character = text[error.start]
            return f"the encoding {self.encoding} has no {character!a} (U+{ord(character):04X})"
        return None


def decode(data: bytes, *, declared: str | None = None, named: str | None = None) -> DecodedText:
    """Decode by byte order mark, else as named, else as declared, else as UTF-8. Nothing is ever replaced.

    Args:
        data: A whole document.
        declared: The name the document itself gives its encoding. UTF-16 and UTF-32 count only with their mark: a
            declaration that could be read before decoding was not written in them.
        named: The name a person gives it: UTF-16 without its mark is possible, and little-endian unless it says so.

    Raises:
        DocumentError: an unknown encoding, bytes that are not valid in it (with the position), bytes that would not
            come back the same, or a NUL, which no text has.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _checked(DecodedText(_decoded(data, encoding, skip=len(mark)), encoding, mark), data)
    encoding = _codec_named(named) if named else _codec_declared(declared) if declared else "utf-8"
    return _checked(DecodedText(_decoded(data, encoding, skip=0), encoding), data)


def in_utf8(data: bytes, known: Format, *, encoding: str | None = None) -> bytes:
    """Return a document in UTF-8, which it then declares where it declares anything.

    Args:
        data: A whole document; what is in UTF-8 stays byte for byte.
        known: Its format.
        encoding: The encoding it is in; None believes its byte order mark or its declaration.

    Raises:
        DocumentError: as `decode`.
    """
    if not isinstance(known, DeclaringFormat):
        decoded = decode(data, named=encoding)
        return data if decoded.encoding == "utf-8" else decoded.text.encode()
    decoded = decode(data, declared=known.declared_encoding(data), named=encoding)
    if decoded.encoding == "utf-8" and encoding is None:
        return data
    bom = decoded.bom if decoded.encoding == "utf-8" else b""
    return bom + known.declaring_utf8(decoded.text).encode()


def is_encoding(name: str) -> bool:
    """Tell whether documents can be in an encoding of this name."""
    try:
        _codec_named(name)
    except DocumentError:
        return False
    return True


def _codec_declared(declared: str) -> str:
    codec = _codec_of(declared)
    return "utf-8" if codec.startswith(("utf-8", "utf-16", "utf-32")) else codec


def _codec_named(name: str) -> str:
    codec = _codec_of(name)
    return {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(codec, codec)


def _codec_of(name: str) -> str:
    codec = ""
    with contextlib.suppress(LookupError, ValueError):  # ValueError: a NUL in the name
        info = codecs.lookup(name.strip())
        codec = info.name.replace("_", "-") if getattr(info, "_is_text_encoding", True) else ""
    if not codec or codec in _NOT_FOR_DOCUMENTS:
        raise DocumentError(
            f"the document declares an unknown encoding: {name.strip()[:40]!r}", hint="convert it to UTF-8 first"
        )
    return codec


def _decoded(data: bytes, encoding: str, *, skip: int) -> str:
    try:
        return data[skip:].decode(encoding)
    except UnicodeDecodeError as error:
        position = skip + error.start
        raise DocumentError(
            f"byte {position} (0x{data[position]:02x}) is not valid {encoding.upper()}",
            hint="say what it is in: `hymt file --encoding gb18030` (or cp1251, latin-1 ...); the result is UTF-8",
        ) from error


def _checked(decoded: DecodedText, data: bytes) -> DecodedText:
    """Refuse NULs and, since some legacy encodings have two codes for one character, what would come back changed."""
    position = decoded.text.find("\0")
    if position >= 0:
        raise DocumentError(
            f"character {position} is a NUL: this is a binary file, or UTF-16 without its byte order mark",
            hint="only text documents can be translated; for UTF-16 say `hymt file --encoding utf-16`",
        )
    is_unicode = decoded.encoding.startswith("utf-")
    if not is_unicode and decoded.text.encode(decoded.encoding) != data:
        raise DocumentError(
            f"the bytes of this document do not survive {decoded.encoding}", hint="convert it to UTF-8 first"
        )
    return decoded
