"""The `hymt` command: dispatch to lazily loaded commands, and the one place where errors become exit statuses."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click

from hymt_local import __version__
from hymt_local.cli.diagnostics import abandon, end_echoed_line, logging_to_file, print_error
from hymt_local.cli.output import write_json
from hymt_local.errors import CancelledError, ErrorReport, HymtError, StoreError, UsageError

if TYPE_CHECKING:
    from hymt_local.application import Application

COMMANDS = {
    "translate": ("hymt_local.cli.translate", "Translate text (what `hymt TEXT` does)."),
    "file": ("hymt_local.cli.file", "Translate documents."),
    "check": ("hymt_local.cli.check_bilingual", "Check existing translations."),
    "detect": ("hymt_local.cli.detect", "Say which language a text is in."),
    "languages": ("hymt_local.cli.languages", "List the languages of a model."),
    "models": ("hymt_local.cli.models", "List, fit, fetch, verify and remove models; choose the default."),
    "serve": ("hymt_local.server.command", "Keep a model loaded, for every program of this user."),
    "web": ("hymt_local.cli.web", "Open the web page in the browser."),
    "ps": ("hymt_local.cli.resident", "Show the server that runs."),
    "stop": ("hymt_local.cli.resident", "Stop the server."),
    "unload": ("hymt_local.cli.resident", "Free the memory of the server's models."),
    "clients": ("hymt_local.cli.clients", "Give keys to other programs; let extensions in."),
    "config": ("hymt_local.cli.config", "Show and change settings."),
    "convert": ("hymt_convert.command", "Make a GGUF from a Hugging Face checkpoint."),
    "mcp": ("hymt_local.cli.mcp", "Serve tools for agents on standard input and output."),
    "doctor": ("hymt_local.cli.doctor", "Check this machine and this installation."),
    "bench": ("hymt_local.cli.bench", "Measure speed on this machine."),
    "demo": ("hymt_local.cli.demo", "Show the embedded demo model at work."),
}
"""Command -> module that defines it as `<name>_command`, and its line in `hymt --help` (so that help imports none)."""

_HELP = frozenset({"-h", "--help", "-V", "--version"})

READER_GONE = 141
"""128 + SIGPIPE, as other filters end when the reader of their pipe went away."""

EPILOG = """\b
Exit status: 0 done; 1 some segments kept their source text; 2 usage,
configuration or language; 3 model; 4 engine; 5 document; 6 store; 7 server;
130 interrupted."""


class LazyGroup(click.Group):
    """Loads a command's module when it is run; anything that is not a command is text to translate."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
    subcommand_metavar="[TEXT... | COMMAND]",
)
@click.version_option(__version__, "-V", "--version", prog_name="hymt")
def hymt_command() -> None:
    """A private translator: Tencent's Hunyuan models on this machine, offline.

    \b
    hymt                        open the terminal UI
    hymt "Good morning" -t fr   translate a text
    echo hello | hymt -t fr     translate standard input
    hymt translate --help       the options of both
    """  # noqa: D301 (\b is click's mark for a paragraph that is not to be wrapped)


def run(arguments: Sequence[str], *, open_terminal_ui: Callable[[Application], int] | None = None) -> int:
    """Run one command line and return its exit status; no exception leaves this function.

    `open_terminal_ui` is called when there is neither text nor a pipe; front ends do not import each other.
    """
    as_json = "--json" in arguments
    with logging_to_file(os.environ), _network_of(arguments):
        try:
            return _invoke(_with_default_command(arguments), open_terminal_ui)
        except BrokenPipeError:
            abandon(sys.stdout)
            return READER_GONE
        except HymtError as error:
            return _report(error.report(), as_json=as_json)
        except click.UsageError as error:
            return _report(_usage_report(error), as_json=as_json)
        except (KeyboardInterrupt, click.Abort):
            end_echoed_line()
            return _report(CancelledError("interrupted").report(), as_json=as_json)
        except OSError as error:
            status = _report(_system_report(error), as_json=as_json)
            abandon(sys.stdout)  # most likely it is what failed
            return status
        except Exception as error:  # the last resort of a front end: a defect of ours, never a traceback on the screen
            logging.getLogger(__name__).exception("unexpected error")
            return _report(_defect_report(error), as_json=as_json)


def _network_of(arguments: Sequence[str]) -> AbstractContextManager[None]:
    """Hold the offline guarantee for a whole run, whatever the command; the help of `hymt` itself needs none."""
    if _HELP.intersection(arguments[:1]):
        return nullcontext()
    from hymt_local.offline import guarded

    return guarded(os.environ)


def _invoke(command_line: list[str], open_terminal_ui: Callable[[Application], int] | None) -> int:
    """Parse and run; not by `click.Command.main`, which exits the process when a pipe breaks."""
    try:
        with hymt_command.make_context("hymt", command_line, obj=open_terminal_ui) as ctx:
            result = hymt_command.invoke(ctx)
    except click.exceptions.Exit as request:  # --help, --version
        result = request.exit_code
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _with_default_command(arguments: Sequence[str]) -> list[str]:
    """Put `translate` in front unless a command or a global option comes first."""
    first = arguments[0] if arguments else ""
    if first in COMMANDS or first in _HELP:
        return list(arguments)
    return ["translate", *arguments]


def _report(report: ErrorReport, *, as_json: bool) -> int:
    """Show an error where the user looks for it; when stdout is what failed, JSON gives way to stderr."""
    try:
        if as_json:
            write_json({"error": {"code": report.code, "message": report.message, "hint": report.hint}})
            return report.exit_status
    except OSError:
        abandon(sys.stdout)
    print_error(report)
    return report.exit_status


def _usage_report(error: click.UsageError) -> ErrorReport:
    command = error.ctx.command_path if error.ctx else "hymt"
    message = error.format_message().rstrip(".")
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and isinstance(error.ctx.command, click.Group):
        message = f"`{command}` needs one of: {', '.join(error.ctx.command.list_commands(error.ctx))}"
    return UsageError(message[:1].lower() + message[1:], hint=f"`{command} --help` shows the options").report()


def _system_report(error: OSError) -> ErrorReport:
    if isinstance(error, FileNotFoundError) and not error.filename and not _has_working_folder():
        return UsageError("the working folder is gone", hint="change to another one with `cd`").report()
    where = f" ({error.filename})" if error.filename else ""
    return StoreError(f"{error.strerror or error}{where}", hint="check permissions and free space").report()


def _has_working_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 (the path is not needed)
    except OSError:
        return False
    return True


def _defect_report(error: Exception) -> ErrorReport:
    return HymtError(
        f"internal error: {type(error).__name__}: {error}", hint="this is a defect of hymt-local; please report it"
    ).report()
