"""`hymt convert verify` and `hymt models verify`: look at model files, and measure what quantizations cost."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hymt_local.sanitize import sanitize

if TYPE_CHECKING:
    from hymt_convert.quality import Quality
    from hymt_convert.verify import VerifyReport
    from hymt_local.catalog import Catalog, ModelSpec

_COLUMNS = ("FILE", "TYPE", "MB", "MEAN KL", "P99 KL", "MAX KL", "TOP-1", "PPL RATIO", "CHRF")


@click.command("verify")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--reference", "-r", type=click.Path(path_type=Path), metavar="FILE",
    help="The unquantized file they were made from: measure what each quantization costs.",
)  # fmt: skip
@click.option(
    "--checkpoint", type=click.Path(path_type=Path), metavar="FOLDER",
    help="The checkpoint they were made from: compare the tokenizers.",
)  # fmt: skip
@click.option("--as", "as_id", metavar="ID", help="Which model of the catalog it is, when the file does not tell.")
@click.option("--header-only", is_flag=True, help="Do not load the model: a second instead of a minute.")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads.  [default: one per core]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify_command(
    files: tuple[Path, ...],
    reference: Path | None,
    checkpoint: Path | None,
    as_id: str | None,
    header_only: bool,
    threads: int | None,
    as_json: bool,
) -> int:
    """Check model files: structure, header, tokenizer, numbers, and a translation.

    Any GGUF of these models will do, whoever made it. The exit status is 3 when something failed.
    """
    from hymt_convert.known_models import user_catalog
    from hymt_convert.progress_bar import ProgressBar
    from hymt_convert.verify import verify_file

    catalog = user_catalog()
    spec = catalog.get(as_id) if as_id else None
    with ProgressBar() as bar:
        reports = [
            verify_file(
                file,
                spec=spec,
                catalog=catalog,
                checkpoint=checkpoint,
                run=not header_only,
                threads=threads,
                on_progress=bar.show,
            )
            for file in files
        ]
    sound = [report.path for report in reports if report.is_sound]
    measured = (
        _measure(reference, sound, spec or _named(reference, catalog), threads)
        if reference is not None and sound
        else []
    )
    qualities = [quality.table() for quality in measured]
    if as_json:
        _print_json({"files": [report.table() for report in reports], "quality": qualities})
    else:
        for line in _report_lines(reports):
            click.echo(sanitize(line))
        for line in quality_lines(qualities):
            click.echo(sanitize(line))
    return 0 if len(sound) == len(reports) else 3


def quality_lines(qualities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of what quantizations cost; each row is a `Quality.table()`."""
    if not qualities:
        return []
    rows = [_COLUMNS, *(_quality_row(each) for each in qualities)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return [
        "  ".join(cell.ljust(width) if place < 2 else cell.rjust(width) for place, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in rows)
    ]


def report_lines(report: VerifyReport) -> list[str]:
    """Return what was found in one file, a line for each check."""
    lines = [f"{report.path}  {report.model_id or 'unknown model'}  {report.quantization}"]
    lines += [f"  {check.outcome:<8} {check.name:<12} {check.message}" for check in report.checks]
    if report.is_repairable:
        lines.append(f"  `hymt convert repair {shlex.quote(str(report.path))}` repairs the header")
    return lines


def _named(file: Path, catalog: Catalog) -> ModelSpec | None:
    from hymt_convert.header_faults import identify
    from hymt_local.engine.gguf_file import read_header

    return identify(read_header(file), catalog)


def _measure(reference: Path, files: list[Path], spec: ModelSpec | None, threads: int | None) -> list[Quality]:
    from hymt_convert.isolated import run_isolated
    from hymt_convert.passages import passages
    from hymt_convert.progress_bar import ProgressBar
    from hymt_convert.quality import measure_quality

    make_passages = functools.partial(passages, spec=spec, part="evaluation")
    with ProgressBar() as bar:
        return run_isolated(measure_quality, reference, files, make_passages, threads=threads, on_step=bar.show)


def _report_lines(reports: Sequence[VerifyReport]) -> list[str]:
    return [line for report in reports for line in report_lines(report)]


def _quality_row(quality: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        Path(quality["path"]).name,
        quality["quantization"],
        f"{quality['size_bytes'] / 1e6:.1f}",
        *(f"{quality[key]:.2e}" for key in ("mean_kl", "p99_kl", "max_kl")),
        f"{quality['top1_agreement']:.2%}",
        f"{quality['perplexity_ratio']:.4f}",
        "-" if quality["chrf"] is None else f"{quality['chrf']:.1f}",
    )


def _print_json(table: dict[str, object]) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(table), indent=2))
