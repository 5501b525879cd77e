"""`hymt detect`: which language a text is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hymt_local.cli import output
from hymt_local.cli.translate import check_encoding, decode_input
from hymt_local.errors import EmptyInputError
from hymt_local.language import get_language

if TYPE_CHECKING:
    from hymt_local.detect import Detection


@click.command(name="detect")
@click.argument("text", nargs=-1)
@click.option("--each", is_flag=True, help="Say it of each sentence, and of the whole at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object with every candidate, likeliest first.")
def detect_command(text: tuple[str, ...], each: bool, as_json: bool) -> int:
    """Say which language a text is in.

    TEXT, or standard input when no TEXT is given, is taken to be in one of the 38 languages of the models. Prints tag,
    name and confidence of the likeliest one, or `und` when there are no letters to judge by.
    """
    from hymt_local.detect import candidates  # loads the statistics: 0.4 s

    source = " ".join(text) if text else decode_input(output.read_stdin())
    check_encoding(source)
    if not source.strip():
        raise EmptyInputError("nothing to detect: the input is empty", hint='try: hymt detect "Guten Tag"')
    found = candidates(source)
    sentences = _sentences(source) if each else []
    if as_json:
        answer: dict[str, Any] = {"candidates": [_object(candidate) for candidate in found]}
        if each:
            answer["sentences"] = [
                {"text": part, "candidates": [_object(c) for c in candidates(part)]} for part in sentences
            ]
        output.write_json(answer)
        return 0
    for part in sentences:
        output.write_text(f"{_line(candidates(part))}\t{' '.join(part.split())}\n")
    output.write_text(f"{_line(found)}\n")
    return 0


def _sentences(text: str) -> list[str]:
    from hymt_local.segmenter import split_sentences

    return [sentence.source for sentence in split_sentences(text, "und") if sentence.source]


def _line(found: Sequence[Detection]) -> str:
    if not found:
        return "und\tno letters to judge by"
    best = found[0]
    return f"{best.tag}\t{get_language(best.tag).english}\t{best.confidence:.0%}"


def _object(found: Detection) -> dict[str, Any]:
    return {"tag": found.tag, "script": found.script, "confidence": round(found.confidence, 4)}
