"""`python -m hymt_convert SOURCE --quant Q8_0 -o DIR`: converts a checkpoint folder to GGUF files."""

from __future__ import annotations

import json
import sys

import click

from hymt_convert.command import convert_command
from hymt_local.errors import CancelledError, ErrorReport, HymtError
from hymt_local.sanitize import sanitize


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit status; errors are rendered as one line what and one line hint."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        status = convert_command.main(given, prog_name="python -m hymt_convert", standalone_mode=False)
    except click.exceptions.Exit as request:
        return request.exit_code
    except click.ClickException as error:
        return _render(ErrorReport("usage", error.format_message(), "", error.exit_code, 400), given)
    except HymtError as error:
        return _render(error.report(), given)
    except (KeyboardInterrupt, click.Abort):
        return _render(CancelledError("interrupted").report(), given)
    except Exception as error:
        # The root of this front end: a defect is shown like any other error, not as a traceback.
        return _render(HymtError(f"internal error: {type(error).__name__}: {error}").report(), given)
    return status if isinstance(status, int) else 0


def _render(report: ErrorReport, arguments: list[str]) -> int:
    if "--json" in arguments:
        table = {"code": report.code, "message": report.message, "hint": report.hint}
        print(json.dumps({"error": table}, ensure_ascii=False))
    else:
        print(f"error: {sanitize(report.message)}", file=sys.stderr)
        if report.hint:
            print(f"hint: {sanitize(report.hint)}", file=sys.stderr)
    return report.exit_status


if __name__ == "__main__":
    sys.exit(main())
