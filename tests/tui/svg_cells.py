"""Correct the SVG that Rich exports: it gives every text the length of its characters, not of its cells."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from itertools import groupby

from rich.cells import cell_len

CELL_WIDTH = 12.2
"""Of Rich's export, in its own units; its font size is fixed."""
DESCENT = 4.0
"""What the export cuts off below the letters of the last row; the frame around it leaves more room than that."""
_WINDOW = re.compile(r'(?P<before>-clip-terminal">\s*<rect [^>]*)height="(?P<height>[\d.]+)"')
_ELEMENT = re.compile(
    r'<text (?P<before>[^>]*?)x="(?P<x>[\d.]+)" (?P<y>y="[^"]*") textLength="[\d.]+"(?P<after>[^>]*)>'
    r"(?P<text>[^<]*)</text>"
)


def in_cells(svg: str) -> str:
    """Return the picture with every text as long as the cells it takes.

    A viewer spreads the length evenly over the characters, so wide and narrow ones become texts of their own.
    """
    return _WINDOW.sub(_taller, _ELEMENT.sub(lambda found: "".join(_texts(found)), svg))


def _taller(found: re.Match[str]) -> str:
    return f'{found["before"]}height="{float(found["height"]) + DESCENT:.7g}"'


def _texts(found: re.Match[str]) -> Iterator[str]:
    x = float(found["x"])
    for run in even_runs(html.unescape(found["text"])):
        length = CELL_WIDTH * cell_len(run)
        text = html.escape(run, quote=False).replace("\N{NO-BREAK SPACE}", "&#160;")
        yield (
            f'<text {found["before"]}x="{x:.7g}" {found["y"]} textLength="{length:.7g}"{found["after"]}>{text}</text>'
        )
        x += length


def even_runs(text: str) -> Iterator[str]:
    """Yield the text in pieces whose characters are all wide or all not; marks stay with their character."""
    for _, run in groupby(_clusters(text), key=lambda cluster: cell_len(cluster[0]) > 1):
        yield "".join(run)


def _clusters(text: str) -> Iterator[str]:
    cluster = ""
    for character in text:
        if cluster and cell_len(character) > 0:
            yield cluster
            cluster = ""
        cluster += character
    if cluster:
        yield cluster
