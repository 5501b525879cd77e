"""`hymt convert repair`: put right what the header of a model file says, without touching its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hymt_local.sanitize import sanitize

if TYPE_CHECKING:
    from hymt_convert.header_faults import Fault, HeaderValue
    from hymt_convert.repair import RepairReport
    from hymt_local.engine.gguf_file import GgufHeader

_SHOWN_CHARACTERS = 60


@click.command("repair")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), metavar="FILE",
    help="Write a repaired copy.  [default: repair the file itself]",
)  # fmt: skip
@click.option("--as", "as_id", metavar="ID", help="Which model of the catalog it is, when the file does not tell.")
@click.option("--eos", metavar="TOKEN", help="The token that ends a text: its id or its text.  [default: the model's]")
@click.option("--bos", metavar="TOKEN", help="The token that begins a text.  [default: the model's]")
@click.option(
    "--chat-template", type=click.Path(path_type=Path), metavar="FILE", help="A file with the Jinja template to put in."
)
@click.option("--dry-run", is_flag=True, help="Show what would be changed; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def repair_command(
    file: Path,
    output: Path | None,
    as_id: str | None,
    eos: str | None,
    bos: str | None,
    chat_template: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Repair the header of FILE: the tokens that begin and end a text, a separator, the chat template.

    Tensors stay as they are to the byte. The file is changed in its place when the new header is not longer than the
    old one, else a copy takes its place. The exit status is 3 when something is wrong that no header can repair.

    A file that is registered is another one afterwards: register it again with `hymt models import`.
    """
    from hymt_convert.header_faults import BOS, EOS, TEMPLATE, find_faults, identify
    from hymt_convert.known_models import user_catalog
    from hymt_convert.repair import RepairReport, recover, repair_file
    from hymt_local.engine.gguf_file import read_header
    from hymt_local.engine.gguf_support import check_supported

    recover(file.resolve())
    header = read_header(file)
    check_supported(header)
    catalog = user_catalog()
    faults = find_faults(header, catalog.get(as_id) if as_id else identify(header, catalog))
    changes: dict[str, HeaderValue | None] = {key: value for fault in faults for key, value in fault.changes.items()}
    changes |= {key: _token(header, text) for key, text in ((EOS, eos), (BOS, bos)) if text is not None}
    if chat_template is not None:
        changes[TEMPLATE] = _template(chat_template)
    changes = {key: value for key, value in changes.items() if header.metadata.get(key) != value}
    if dry_run or (not changes and output is None):
        made = {key: (header.metadata.get(key), value) for key, value in changes.items()}
        report = RepairReport(file, True, made, 0)
    else:
        report = repair_file(file, changes, target=output)
    left = [fault for fault in faults if fault.is_grave and not fault.changes.keys() & changes.keys()]
    _print(report, faults, left, dry_run=dry_run, as_json=as_json)
    return 3 if left else 0


def _token(header: GgufHeader, text: str) -> int:
    from hymt_local.engine.gguf_file import read_array
    from hymt_local.errors import UsageError

    tokens = read_array(header, "tokenizer.ggml.tokens")
    types = read_array(header, "tokenizer.ggml.token_type")
    token = int(text) if text.isdecimal() else tokens.index(text) if text in tokens else -1
    if not 0 <= token < len(tokens):
        raise UsageError(f"the vocabulary has no token {text!r}", hint="Give its id, or its exact text.")
    if types[token] != 3:
        raise UsageError(
            f"token {token} ({tokens[token]}) is no control token", hint="Texts would begin or end in their middle."
        )
    return token


def _template(path: Path) -> str:
    from hymt_convert.chat_templates import template_fault
    from hymt_local.errors import UsageError

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the chat template {path}: {error}") from error
    fault = template_fault(text, None)
    if fault is not None:
        raise UsageError(f"{path.name}: {fault}")
    return text


def _print(report: RepairReport, faults: tuple[Fault, ...], left: list[Fault], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        import msgspec

        table = {
            "path": str(report.path),
            "changes": {key: {"old": old, "new": new} for key, (old, new) in report.changes.items()},
            "in_place": report.in_place,
            "written_bytes": report.written_bytes,
            "dry_run": dry_run,
            "faults": [{"code": fault.code, "message": fault.message, "grave": fault.is_grave} for fault in faults],
            "left": [fault.code for fault in left],
        }
        click.echo(msgspec.json.format(msgspec.json.encode(table, enc_hook=str), indent=2))
        return
    for line in _lines(report, faults, left, dry_run=dry_run):
        click.echo(sanitize(line))


def _lines(report: RepairReport, faults: tuple[Fault, ...], left: list[Fault], *, dry_run: bool) -> list[str]:
    lines = [f"{'cannot be repaired' if fault in left else 'wrong'}: {fault.message}" for fault in faults]
    lines += [f"{key}: {_shown(old)} -> {_shown(new)}" for key, (old, new) in report.changes.items()]
    if dry_run:
        return [*lines, "nothing was written"]
    if not report.written_bytes:
        return [*lines, f"{report.path}: nothing to repair"]
    how = "in its place" if report.in_place else "as a copy"
    return [*lines, f"{report.path}: repaired {how}, {report.written_bytes} bytes written"]


def _shown(value: object) -> str:
    if value is None:
        return "none"
    text = str(value).replace("\n", "\\n")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
