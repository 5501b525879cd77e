"""Pictures of the app keep the columns of the terminal, whatever the script."""

from __future__ import annotations

import html
import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tests.tui.svg_cells import CELL_WIDTH, even_runs, in_cells

ROWS = [
    "plain words",
    "人人生而自由，在尊严。",
    "a 中文 b",
    "한국어 / 日本語 <tag> & more",
    "e\u0301 中\u0301 x",
    "می‌شود",
    "中",
]
TEXTS = re.compile(r'<text [^>]*?x="([\d.]+)"[^>]*?textLength="([\d.]+)"[^>]*>([^<]*)</text>')


def exported(row: str) -> str:
    console = Console(record=True, width=60, file=io.StringIO(), force_terminal=True)
    console.print(Text(row, style="red"))
    return in_cells(console.export_svg(title="t"))


@pytest.mark.parametrize("row", ROWS)
def test_every_text_is_as_long_as_its_cells_and_starts_where_the_one_before_ends(row: str) -> None:
    texts = [
        (float(x), float(length), html.unescape(text))
        for x, length, text in TEXTS.findall(exported(row))
        if text.strip()
    ]
    assert "".join(text for _, _, text in texts).replace("\xa0", " ").rstrip() == row
    end = 0.0
    for x, length, text in texts:
        assert x == pytest.approx(end, abs=0.01)
        assert length == pytest.approx(CELL_WIDTH * cell_len(text), abs=0.01)
        end = x + length


@pytest.mark.parametrize("row", ROWS)
def test_wide_and_narrow_characters_never_share_a_text(row: str) -> None:
    for run in even_runs(row):
        assert len({cell_len(character) for character in run} - {0}) == 1


def test_letters_of_the_last_row_are_not_cut_off() -> None:
    picture = exported("g")
    window = re.search(r'-clip-terminal">\s*<rect [^>]*height="([\d.]+)"', picture)
    baselines = [float(y) for y in re.findall(r'<text [^>]*? y="([\d.]+)" textLength', picture)]
    assert window is not None
    assert float(window[1]) > max(baselines) + 5  # a quarter of the font's size
