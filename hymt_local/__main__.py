"""The entry point of `hymt` and `python -m hymt_local`."""

from __future__ import annotations

import gc
import os
import sys

INTERRUPTED = 130
GC_THRESHOLD = 50_000
"""New objects between two collections of garbage, instead of 700: starting makes a hundred thousand that stay."""


def main() -> None:
    """Run the command line and exit with its status."""
    gc.set_threshold(GC_THRESHOLD)
    _replace_closed_streams()
    try:
        from hymt_local.cli.app import run
        from hymt_local.terminal import open_terminal_ui

        status = run(sys.argv[1:], open_terminal_ui=open_terminal_ui)
    except KeyboardInterrupt:  # while the imports above still ran
        sys.stderr.write("error: interrupted\n")
        status = INTERRUPTED
    gc.freeze()  # the interpreter would look through everything once more before it ends
    sys.exit(status)


def _replace_closed_streams() -> None:
    """Stand in for streams that the parent closed: None has no methods, and their numbers must not go to other files.

    Standard input is empty then, standard error goes nowhere, and writing to standard output fails as it should.
    """
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


if __name__ == "__main__":
    main()
