"""Cutting text so that no run of one character class is long: llama.cpp's tokenizer recurses per character of a run.

The threshold is about 1,600 characters on a stack of 512 KiB, and 26,600 on 8 MiB; beyond it the process dies.
"""

from __future__ import annotations

import unicodedata

MAX_RUN = 512
"""Characters of one class in a row before the text is cut."""
_CLASSES = {"L": "letter", "M": "letter", "N": "number", "P": "punctuation", "S": "punctuation", "Z": "space"}


def split_runs(text: str, *, max_run: int = MAX_RUN) -> list[str]:
    """Return `text` in pieces, each without a run of one class longer than `max_run`; joined they are the text.

    A piece never ends before a combining mark, unless marks alone make a run of twice `max_run`.
    """
    if len(text) <= max_run:
        return [text]
    pieces: list[str] = []
    start, n_run, run_class = 0, 0, ""
    for index, character in enumerate(text):
        category = unicodedata.category(character)
        character_class = "space" if character in "\t\n\v\f\r" else _CLASSES.get(category[0], "other")
        n_run = n_run + 1 if character_class == run_class else 1
        run_class = character_class
        if (n_run > max_run and category[0] != "M") or n_run > 2 * max_run:
            pieces.append(text[start:index])
            start, n_run = index, 1
    pieces.append(text[start:])
    return pieces
