"""HTML: pages and fragments, whatever state their markup is in.

The document keeps its own bytes: only text runs and attribute values that were translated are replaced.
"""

from __future__ import annotations

import re

from hymt_local.documents.base import Document, Languages
from hymt_local.documents.html_document import declared_charset, declaring_utf8, read_html

_HEAD = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL
)


class HtmlFormat:
    """The format."""

    name = "html"
    extensions = (".html", ".htm", ".xhtml")
    can_be_bilingual = True

    def sniffs(self, head: bytes) -> bool:
        """Tell whether the data begins like a page."""
        text = head.removeprefix(b"\xef\xbb\xbf")
        if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
            text = text[2:].replace(b"\0", b"")
        return _HEAD.match(text) is not None

    def declared_encoding(self, data: bytes) -> str | None:
        """Return the encoding that the head of a page names, as browsers understand the name."""
        return declared_charset(data)

    def declaring_utf8(self, text: str) -> str:
        """Return a page whose head says UTF-8, where it named an encoding."""
        return declaring_utf8(text)

    def read(self, data: bytes, languages: Languages) -> Document:
        """Parse.

        Raises:
            DocumentError: undecodable.
        """
        del languages
        return read_html(data)
