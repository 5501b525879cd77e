"""The entry point of `hymt` and `python -m hymt_local`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    from hymt_local.cli.app import run
    from hymt_local.terminal import open_terminal_ui

    sys.exit(run(sys.argv[1:], open_terminal_ui=open_terminal_ui))


if __name__ == "__main__":
    main()
