"""The `convert` command, used by `hymt convert` and by `python -m hymt_convert`.

It raises project errors and leaves their rendering to the program that runs it. Heavy imports happen when it runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from hymt_convert.subcommands import CommandWithSubcommands
from hymt_convert.verify_command import quality_lines
from hymt_local.sanitize import sanitize

if TYPE_CHECKING:
    from hymt_convert.conversion import ConversionPlan, ConversionReport
    from hymt_convert.progress_bar import ProgressBar
    from hymt_convert.source import HubSource, LocalSource
    from hymt_local.catalog import Catalog, ModelSpec
    from hymt_local.installed import ModelStore
    from hymt_local.paths import Paths

_LONG_S = 300.0
"""A conversion that takes longer says so before it begins."""


@click.command("convert", cls=CommandWithSubcommands)
@click.argument("source")
@click.option(
    "--quant", "-q", "quantizations", multiple=True, metavar="TYPE", default=("Q4_K_M",), show_default=True,
    help="Type of the result: Q8_0, Q6_K, Q5_K_M, Q4_K_M ... or F16, BF16, F32; may be repeated.",
)  # fmt: skip
@click.option(
    "--output", "-o", "output_folder", type=click.Path(path_type=Path),
    help="Folder for the files, created if need be; a file of the same name is replaced.  [default: the models folder, "
    "where the result is ready to be used; this folder for a model that is not in the catalog]",
)  # fmt: skip
@click.option("--as", "as_id", metavar="ID", help="Which model of the catalog it is; `none` when it is none.")
@click.option("--name", help="Name of the model and stem of the file names.  [default: its id, or the folder's name]")
@click.option("--source-id", help="Where a folder comes from, recorded in the file: tencent/Hunyuan-MT-7B@REVISION.")
@click.option("--licence", help="Licence of the weights, recorded in the file.  [default: the catalog's]")
@click.option("--imatrix", is_flag=True, help="Compute an importance matrix, which the types below 3 bits need.")
@click.option("--imatrix-file", type=click.Path(path_type=Path), metavar="FILE", help="Use this importance matrix.")
@click.option(
    "--tensor-type", "tensor_types", multiple=True, metavar="NAME=TYPE",
    help="Type of the tensors in whose names the regular expression NAME is found, as attn_v=Q6_K; may be repeated.",
)  # fmt: skip
@click.option("--quality", is_flag=True, help="Measure what the types cost, even if no unquantized file is kept.")
@click.option("--no-verify", is_flag=True, help="Do not load the finished files and translate with them.")
@click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="Threads of llama.cpp.  [default: one per core]"
)
@click.option("--dry-run", is_flag=True, help="Check the checkpoint and show the plan; fetch and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan or the result as JSON.")
def convert_command(source: str, as_json: bool, dry_run: bool, **options: Any) -> int:
    """Convert a checkpoint (config.json, safetensors, tokenizer) to GGUF files.

    SOURCE is a folder as published on the hub, or what to fetch: an id of the catalog such as Hunyuan-MT-7B, or
    OWNER/NAME[@REVISION]. Neither torch nor transformers is needed, and no code of the checkpoint is run.

    A conversion that was interrupted goes on where it stopped when the same command is given again. The exit status is
    3 when a finished file does not work; it is kept for a look at it, and not registered.
    """
    from hymt_convert.progress_bar import ProgressBar
    from hymt_local.errors import CancelledError

    try:
        with ProgressBar() as bar:
            table = _run(source, bar, dry_run=dry_run, **options)
    except KeyboardInterrupt:
        raise CancelledError("interrupted", hint="The same command goes on from here.") from None
    _print(table, as_json=as_json)
    return 0 if table.get("sound", True) else 3


def _run(
    source: str,
    bar: ProgressBar,
    *,
    dry_run: bool,
    output_folder: Path | None,
    source_id: str | None,
    quantizations: tuple[str, ...],
    tensor_types: tuple[str, ...],
    no_verify: bool,
    **options: Any,
) -> dict[str, object]:
    """Plan, and unless it is only to be shown, run the plan and register what came out."""
    from hymt_convert.checkpoint import find_origin
    from hymt_convert.conversion import ConversionRequest, plan_conversion, run_conversion, type_names
    from hymt_convert.duration import Machine, describe_seconds, expected_seconds
    from hymt_convert.quantize import tensor_type_rule
    from hymt_convert.source import HubSource, parse_source
    from hymt_local.catalog import load_catalog
    from hymt_local.installed import ModelStore
    from hymt_local.paths import Paths

    paths = Paths.from_environment(os.environ)
    catalog = load_catalog(paths.catalog_file)
    # What is wrong with the command itself should show before a download, not behind it.
    with_imatrix = bool(options["imatrix"] or options["imatrix_file"])
    options |= {"quantizations": type_names(quantizations, with_imatrix=with_imatrix), "verify": not no_verify}
    options["rules"] = tuple(map(tensor_type_rule, tensor_types))
    named = parse_source(source, catalog)
    if isinstance(named, HubSource) and named.spec is not None:
        _show_licence(named.spec)
    folder = _obtain(named, paths, bar, catalog=catalog, offline=dry_run)
    if isinstance(named, HubSource) and not find_origin(folder).repository:
        source_id = source_id or str(named.origin)
    target = paths.models_dir if output_folder is None else output_folder
    plan = plan_conversion(ConversionRequest(folder, target, source_id=source_id, catalog=catalog, **options))
    if output_folder is None and plan.identity.spec is None:
        plan = plan.moved_to(Path())
    machine = Machine.this(plan.request.threads)
    seconds = expected_seconds(plan, machine)
    _show_notes(plan, has_shown_licence=isinstance(named, HubSource) and named.spec is not None)
    if dry_run:
        steps = {step: round(value) for step, value in seconds.items()}
        return {**_plan_table(plan), "expected_s": steps, "time": describe_seconds(seconds, machine)}
    if sum(seconds.values()) > _LONG_S:
        _note(f"this takes {describe_seconds(seconds, machine)}; after an interrupt the same command goes on")
    report = run_conversion(plan, on_progress=bar.show)
    _warn_of_fallbacks(report)
    _warn_of_checks(report)
    refs = _register(plan, report, ModelStore(paths, catalog), bar) if output_folder is None else {}
    return _report_table(report, refs)


def _obtain(named: LocalSource | HubSource, paths: Paths, bar: ProgressBar, *, catalog: Catalog, offline: bool) -> Path:
    from hymt_convert.source import LocalSource, check_spelling, fetch
    from hymt_local.errors import DownloadError

    if isinstance(named, LocalSource):
        check_spelling(named, catalog)
        return named.folder
    target = paths.cache_dir / "checkpoints"
    try:
        folder = fetch(named, target, environ=os.environ, offline=offline, on_progress=bar.show_download)
    except DownloadError as error:
        if not offline:
            raise
        raise DownloadError(
            f"{named.origin} is not on this machine, and --dry-run fetches nothing ({error.message})",
            hint="Give a folder, or leave --dry-run out.",
        ) from error
    _note(f"the checkpoint is in {folder}; delete it when you no longer need it")
    return folder


def _register(plan: ConversionPlan, report: ConversionReport, store: ModelStore, bar: ProgressBar) -> dict[Path, str]:
    """Make the files of a known model usable by name; returns what to type for each."""
    spec = plan.identity.spec
    if spec is None:
        _note("the model is not in the catalog, so nothing is registered: see `hymt models import --help`")
        return {}
    refs: dict[Path, str] = {}
    unsound = {each.path for each in report.verifications if not each.is_sound}
    for file in report.files:
        if file.path in unsound:
            continue
        record = _record(plan, report, file.path)
        installed = store.import_file(file.path, as_id=spec.id, conversion=record, on_progress=bar.show_hashing)
        refs[file.path] = installed.ref
    return refs


def _record(plan: ConversionPlan, report: ConversionReport, path: Path) -> dict[str, Any]:
    """Return what the manifest of a file keeps of its conversion."""
    from hymt_local import __version__

    verified = next((each.table() for each in report.verifications if each.path == path), None)
    measured = next((each.table() for each in report.qualities if each.path == path), None)
    matrix = report.imatrix or plan.request.imatrix_file
    return {
        "converted_by": f"hymt-local {__version__}",
        "source": str(plan.origin) or None,
        "imatrix": matrix.name if matrix is not None else None,
        "verification": verified,
        "quality": measured,
    }


def _show_notes(plan: ConversionPlan, *, has_shown_licence: bool) -> None:
    from hymt_convert.workspace import sweep

    if plan.identity.spec is not None and not has_shown_licence:
        _show_licence(plan.identity.spec)
    for warning in plan.warnings:
        click.echo(f"warning: {sanitize(warning)}", err=True)
    for left in sweep(plan.request.output_folder, except_name=plan.name):
        state = "was removed" if left.is_removed else "can go on if the same command is given again"
        _note(f"an interrupted conversion of {left.name} ({left.size_bytes / 1e9:.1f} GB) {state}")


def _show_licence(spec: ModelSpec) -> None:
    """Say what the weights may be used for before anything is done with them."""
    licence = spec.licence
    where = f" ({licence.url})" if licence.url else ""
    _note(f"{spec.id} is under the {licence.title}{where}")
    if licence.note:
        _note(licence.note)


def _note(text: str) -> None:
    click.echo(f"note: {sanitize(text)}", err=True)


def _plan_table(plan: ConversionPlan) -> dict[str, object]:
    count = sum(tensor.element_count for tensor in plan.model.tensors)
    tensor_types = sorted(frozenset().union(*(tensor.dtypes for tensor in plan.model.tensors)))
    settings = {key.split(".", maxsplit=1)[1]: value for key, value in plan.model.metadata.items()}
    spec = plan.identity.spec
    return {
        "name": plan.name,
        "model": spec.id if spec is not None else None,
        "source": str(plan.origin) or None,
        "licence": plan.request.licence or (spec.licence.id if spec is not None else None),
        "architecture": plan.model.architecture,
        "parameters": count,
        "tensors": len(plan.model.tensors),
        "stored_as": ", ".join(tensor_types),
        **settings,
        "pre_tokenizer": plan.vocabulary.pre,
        "special_ids": dict(plan.vocabulary.special_ids),
        "chat_template": plan.vocabulary.chat_template is not None,
        "files": [str(path) for path in plan.outputs.values()],
        "disk_space_needed_bytes": plan.estimated_bytes,
    }


def _report_table(report: ConversionReport, refs: dict[Path, str]) -> dict[str, object]:
    files = [
        {
            "path": str(file.path),
            "quantization": file.quantization,
            "size_bytes": file.size_bytes,
            "fallbacks": dict(file.fallbacks),
            "model": refs.get(file.path),
        }
        for file in report.files
    ]
    table: dict[str, object] = {"files": files}
    if report.imatrix is not None:
        table["imatrix"] = str(report.imatrix)
    if report.verifications:
        table["sound"] = all(each.is_sound for each in report.verifications)
        table["verification"] = [each.table() for each in report.verifications]
    if report.qualities:
        table["quality"] = [each.table() for each in report.qualities]
    return {**table, "elapsed_s": round(report.elapsed_s, 3)}


def _print(table: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(table), indent=2))
        return
    for line in _lines(table):
        click.echo(sanitize(line))


def _lines(table: dict[str, object]) -> Iterable[str]:
    hidden = ("files", "quality", "verification", "expected_s")
    values = {_label(key): _shown(key, table[key]) for key in table if key not in hidden and table[key] is not None}
    width = max(map(len, values), default=0)
    files = cast("list[Any]", table.get("files", []))
    yield from (_file_line(file) for file in files if not isinstance(file, str))
    yield from quality_lines(cast("list[Any]", table.get("quality", [])))
    yield from (f"{label + ':':<{width + 1}} {text}" for label, text in values.items())
    yield from (f"{'file:':<{width + 1}} {file}" for file in files if isinstance(file, str))


def _label(key: str) -> str:
    return key.removesuffix("_bytes").removesuffix("_s")


def _shown(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, int) and key.endswith("_bytes"):
        return f"{value / 1e9:.2f} GB"
    if isinstance(value, float):
        return f"{value:.1f} s" if key.endswith("_s") else f"{value:.10g}"
    return str(value)


def _file_line(file: Any) -> str:
    usage = f"  hymt -m {file['model']}" if file["model"] else ""
    return f"{file['path']}  {file['quantization']}  {file['size_bytes'] / 1e6:.1f} MB{usage}"


def _warn_of_checks(report: ConversionReport) -> None:
    for each in report.verifications:
        for check in each.checks:
            if check.outcome in ("warning", "failed"):
                what = f"{each.path.name}: {check.name}: {check.message}"
                click.echo(f"{'error' if check.outcome == 'failed' else 'warning'}: {sanitize(what)}", err=True)


def _warn_of_fallbacks(report: ConversionReport) -> None:
    for file in report.files:
        if file.fallbacks:
            kinds = ", ".join(sorted(set(file.fallbacks.values())))
            what = f"{len(file.fallbacks)} tensors of {sanitize(file.path.name)} are stored as {kinds}"
            click.echo(f"warning: {what}: the type asked for cannot divide their rows", err=True)
