"""`hymt models verify`: are the installed files still what they should be?"""

from __future__ import annotations

import importlib
import os
from dataclasses import asdict, dataclass
from typing import Literal

import click

from hymt_local.application import Application, open_application
from hymt_local.cli import output
from hymt_local.cli.diagnostics import ProgressLine
from hymt_local.errors import HymtError, ModelFileError, UsageError
from hymt_local.installed import InstalledModel, file_sha256

FAILED_STATUS = 3


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found of one model."""

    ref: str
    outcome: Literal["ok", "failed"]
    found: str
    hint: str = ""


@click.command(
    name="verify",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True},
)
@click.argument("arguments", metavar="[MODEL... | FILE...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.pass_context
def verify_models(ctx: click.Context, arguments: tuple[str, ...], as_json: bool) -> int:
    """Check installed models: header, structure and hash.

    MODEL names some of them; without it all are checked. A FILE of anybody is checked as `hymt convert verify FILE`
    does, with its options: it is loaded and made to translate. The exit status is 3 when something failed.
    """
    if any(argument.lower().endswith(".gguf") for argument in arguments):
        return _verify_files(ctx, [*arguments, *(["--json"] if as_json else [])])
    for argument in arguments:
        if argument.startswith("-"):
            raise UsageError(f"no such option: {argument}", hint="`hymt models verify --help` shows the options")
    app = open_application(os.environ)
    models = [app.store.find(ref) for ref in arguments] if arguments else _with_files(app)
    results = [verify_installed(app, model) for model in models]
    if not arguments:
        results += [Verification("?", "failed", problem.message, problem.hint) for problem in app.store.problems()]
    if as_json:
        output.write_json({"models": [asdict(result) for result in results]})
    else:
        _print(results)
    return FAILED_STATUS if any(result.outcome == "failed" for result in results) else 0


def verify_installed(app: Application, model: InstalledModel) -> Verification:
    """Check one installed model. A file that was only touched is taken up again."""
    if model.path is None:
        return Verification(model.ref, "ok", "has no file")
    from hymt_local.engine.gguf_file import read_header
    from hymt_local.engine.gguf_support import check_supported

    progress = ProgressLine()
    try:
        check_supported(read_header(model.path))
        sha256 = file_sha256(
            model.path, on_progress=lambda done, total: progress.show(f"hashing {model.ref}", done / max(total, 1))
        )
        if not model.fingerprint:
            return Verification(model.ref, "ok", "header and structure; its hash was never published")
        if sha256 != model.fingerprint:
            raise ModelFileError(
                f"its sha256 is {sha256[:12]}…, not {model.fingerprint[:12]}…: the file has changed",
                hint=f"`hymt models rm {model.ref}`, then pull or import it again",
            )
        if model.modified_ns not in {None, model.path.stat().st_mtime_ns}:
            app.store.confirm_unchanged(model)
    except HymtError as error:
        return Verification(model.ref, "failed", error.message, error.hint)
    finally:
        progress.clear()
    known = "the published file" if model.published else "the file that was imported"
    return Verification(model.ref, "ok", f"{known}, sha256 {sha256[:12]}…")


def _with_files(app: Application) -> list[InstalledModel]:
    return [model for model in app.store.list() if model.path is not None]


def _verify_files(ctx: click.Context, arguments: list[str]) -> int:
    """Do what `hymt convert verify` does; the converter is loaded only now."""
    command = importlib.import_module("hymt_convert.verify_command").verify_command
    assert isinstance(command, click.Command)
    with command.make_context("verify", arguments, parent=ctx.parent) as inner:
        return int(command.invoke(inner))


def _print(results: list[Verification]) -> None:
    output.write_table(
        [(result.outcome if result.outcome == "ok" else "FAIL", result.ref, result.found) for result in results],
        header=("", "MODEL", "FOUND"),
    )
    for result in results:
        if result.hint:
            output.write_text(f"-> {result.ref}: {result.hint}\n")
