"""Markdown: CommonMark, GFM tables, footnotes, front matter, and the raw HTML inside.

The document keeps its own bytes: only the content of blocks that were translated is replaced.
"""

from __future__ import annotations

from hymt_local.documents.base import Document, Languages


class MarkdownFormat:
    """The format; its parser is loaded with the first document."""

    name = "markdown"
    extensions = (".md", ".markdown", ".mdown", ".mkd", ".mkdn", ".mdx", ".qmd", ".rmd")
    can_be_bilingual = True

    def sniffs(self, head: bytes) -> bool:
        """Any text is Markdown, so the name of a file decides."""
        del head
        return False

    def read(self, data: bytes, languages: Languages) -> Document:
        """Parse.

        Raises:
            DocumentError: undecodable, or nested beyond the limit.
        """
        from hymt_local.documents.markdown_document import read_markdown

        del languages
        return read_markdown(data)
