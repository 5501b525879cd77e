"""`hymt detect`: which language a text is in."""

from __future__ import annotations

import click

from hymt_local.cli import output
from hymt_local.cli.translate import check_encoding, decode_input
from hymt_local.errors import EmptyInputError
from hymt_local.language import get_language


@click.command(name="detect")
@click.argument("text", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object with every candidate, likeliest first.")
def detect_command(text: tuple[str, ...], as_json: bool) -> int:
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
    if as_json:
        output.write_json({"candidates": [{"tag": d.tag, "confidence": round(d.confidence, 4)} for d in found]})
    elif not found:
        output.write_text("und\tno letters to judge by\n")
    else:
        best = found[0]
        output.write_text(f"{best.tag}\t{get_language(best.tag).english}\t{best.confidence:.0%}\n")
    return 0
