"""The `convert` command, used by `hymt convert` and by `python -m hymt_convert`.

It raises project errors and leaves their rendering to the program that runs it. Heavy imports happen when it runs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hymt_local.sanitize import sanitize

if TYPE_CHECKING:
    from hymt_convert.conversion import ConversionPlan, ConversionReport, Progress


@click.command("convert")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--quant", "-q", "quantizations", multiple=True, metavar="TYPE", default=("Q4_K_M",), show_default=True,
    help="Type of the result: Q8_0, Q6_K, Q5_K_M, Q4_K_M ... or F16, BF16, F32; may be repeated.",
)  # fmt: skip
@click.option(
    "--output", "-o", "output_folder", type=click.Path(path_type=Path), default=Path(), show_default="this folder",
    help="Folder for the files, created if need be; a file of the same name is replaced.",
)  # fmt: skip
@click.option("--name", help="Name of the model and stem of the file names.  [default: the folder's name]")
@click.option("--source-id", help="Where the checkpoint comes from, recorded in the file: tencent/Hunyuan-MT-7B.")
@click.option("--licence", help="Licence of the weights, recorded in the file.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the quantizer.  [default: one per core]")
@click.option("--dry-run", is_flag=True, help="Check the checkpoint and show the plan; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan or the result as JSON.")
def convert_command(
    source: Path, quantizations: tuple[str, ...], output_folder: Path, dry_run: bool, as_json: bool, **options: Any
) -> None:
    """Convert a checkpoint folder (config.json, safetensors, tokenizer) to GGUF files.

    SOURCE is the folder as published on the hub. Neither torch nor transformers is needed.
    """
    from hymt_convert.conversion import ConversionRequest, plan_conversion, run_conversion

    plan = plan_conversion(ConversionRequest(source, output_folder, quantizations, **options))
    for warning in plan.warnings:
        click.echo(f"warning: {sanitize(warning)}", err=True)
    if dry_run:
        _print(_plan_table(plan), as_json=as_json)
        return
    with _progress_bar() as on_progress:
        report = run_conversion(plan, on_progress=on_progress)
    _warn_of_fallbacks(report)
    _print(_report_table(report), as_json=as_json)


def _plan_table(plan: ConversionPlan) -> dict[str, object]:
    count = sum(tensor.element_count for tensor in plan.model.tensors)
    tensor_types = sorted(frozenset().union(*(tensor.dtypes for tensor in plan.model.tensors)))
    settings = {key.split(".", maxsplit=1)[1]: value for key, value in plan.model.metadata.items()}
    return {
        "name": plan.name,
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


def _report_table(report: ConversionReport) -> dict[str, object]:
    files = [
        {
            "path": str(file.path),
            "quantization": file.quantization,
            "size_bytes": file.size_bytes,
            "fallbacks": dict(file.fallbacks),
        }
        for file in report.files
    ]
    return {"files": files, "elapsed_s": round(report.elapsed_s, 3)}


def _print(table: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(table), indent=2))
        return
    for key, value in table.items():
        if key == "files" and isinstance(value, list):
            for file in value:
                click.echo(sanitize(_file_line(file)))
        else:
            click.echo(sanitize(f"{key}: {value}"))


def _file_line(file: Any) -> str:
    if isinstance(file, str):
        return f"file: {file}"
    return f"{file['path']}  {file['quantization']}  {file['size_bytes'] / 1e6:.1f} MB"


def _warn_of_fallbacks(report: ConversionReport) -> None:
    for file in report.files:
        if file.fallbacks:
            kinds = ", ".join(sorted(set(file.fallbacks.values())))
            what = f"{len(file.fallbacks)} tensors of {sanitize(file.path.name)} are stored as {kinds}"
            click.echo(f"warning: {what}: {file.quantization} cannot divide their rows", err=True)


@contextlib.contextmanager
def _progress_bar() -> Iterator[Callable[[Progress], None] | None]:
    """Draw on a terminal only; elsewhere nothing is printed until the end."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def show(progress: Any) -> None:
            if progress.step not in tasks:
                tasks[progress.step] = bar.add_task(progress.step, total=progress.total)
            bar.update(tasks[progress.step], completed=progress.done)

        yield show
