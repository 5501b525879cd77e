"""`hymt models fit`: what fits this machine, how it would be loaded, and what to take."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hymt_local.application import Application, open_application
from hymt_local.catalog import ModelFile, ModelSpec, parse_model_ref
from hymt_local.cli import output
from hymt_local.cli.models.views import size_text
from hymt_local.errors import ModelNotFoundError, UnsupportedModelError

if TYPE_CHECKING:
    from hymt_local.engine.fit import FitPlan, MachineFacts
    from hymt_local.recommend import Candidate

VERDICTS = {"good": "fits", "tight": "tight", "no": "does not fit"}


@click.command(name="fit")
@click.argument("ref", metavar="[MODEL]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def fit_models(ref: str | None, as_json: bool) -> int:
    """Say which models fit this machine, and how they would be loaded.

    MODEL is an installed model, one of the catalog (ID or ID:QUANTIZATION), or a GGUF file; without it the whole
    catalog is shown, and `*` marks what `hymt models pull` fetches. The exit status is 3 when MODEL does not fit.
    Speeds are guesses from how fast memory usually is.
    """
    from hymt_local.engine.machine import with_idle_gpus
    from hymt_local.recommend import candidates, recommend

    app = open_application(os.environ)
    machine = app.probe_machine()
    if app.settings.gpu_layers != 0:
        machine = with_idle_gpus(machine)
    found = candidates(app.catalog, machine, wish=app.fit_wish())
    if ref is not None:
        return _show_one(app, machine, ref=ref, as_json=as_json)
    best = recommend(found, machine)
    if as_json:
        output.write_json(
            {
                "machine": dataclasses.asdict(machine),
                "recommended": best.ref if best else None,
                "models": [_candidate_json(candidate) for candidate in found],
            }
        )
        return 0
    output.write_text(f"{machine_line(machine)}\n\n")
    output.write_table(
        [_row(candidate, best) for candidate in found],
        header=(" ", "MODEL", "DOWNLOAD", "MEMORY", "GPU", "CONTEXT", "TOKENS/S", "VERDICT"),
    )
    output.write_text(f"\n{_advice(best)}\n")
    return 0


def machine_line(machine: MachineFacts) -> str:
    """Return a machine's memory, cores and GPUs in one line."""
    from hymt_local.engine.fit import gibibytes

    memory = f"{gibibytes(machine.available_bytes)} of {gibibytes(machine.total_bytes)} memory available"
    limited = " (a container's limit)" if machine.is_limited else ""
    cores = f"{machine.n_cores} physical {'core' if machine.n_cores == 1 else 'cores'}"
    gpus = ", ".join(f"{gpu.name} with {gibibytes(gpu.free_bytes)} free" for gpu in machine.gpus) or "no GPU"
    if machine.idle_gpus:
        gpus = f"{', '.join(gpu.name for gpu in machine.idle_gpus)}, which this build of llama.cpp cannot use"
    return f"{memory}{limited}, {cores}, {gpus}"


def _show_one(app: Application, machine: MachineFacts, *, ref: str, as_json: bool) -> int:
    fit, spec = _plan_for(app, machine, ref=ref)
    refusal = app.too_large_error(fit, spec, machine=machine) if fit.verdict == "no" else None
    if as_json:
        output.write_json(
            {
                "machine": dataclasses.asdict(machine),
                "plan": dataclasses.asdict(fit),
                "hint": refusal.hint if refusal else "",
            }
        )
    else:
        output.write_text(f"{machine_line(machine)}\n\n")
        output.write_table(_facts(fit), header=(fit.model, VERDICTS[fit.verdict]))
        notes = [*fit.reasons, *(f"warning: {warning}" for warning in fit.warnings)]
        output.write_text("\n" + "".join(f"- {note}\n" for note in notes))
        if refusal:
            output.write_text(f"-> {refusal.hint}\n")
    return refusal.exit_status if refusal else 0


def _plan_for(app: Application, machine: MachineFacts, *, ref: str) -> tuple[FitPlan, ModelSpec]:
    if ref.lower().endswith(".gguf"):
        return _plan_file(app, machine, Path(ref))
    wanted = parse_model_ref(ref)
    spec = app.catalog.get(wanted.id)
    for model in app.store.list():
        if model.spec.id == spec.id and model.path and wanted.quantization in {None, model.quantization.upper()}:
            return app.plan_installed(model, _with_measured_disk(machine, model.path)), spec
    return _plan_published(app, machine, spec=spec, quantization=wanted.quantization), spec


def _plan_file(app: Application, machine: MachineFacts, path: Path) -> tuple[FitPlan, ModelSpec]:
    from hymt_local.engine.fit import facts_of_header, plan
    from hymt_local.engine.gguf_file import read_header
    from hymt_local.engine.gguf_support import check_supported
    from hymt_local.recommend import default_spec

    header = read_header(path)
    check_supported(header)
    spec = default_spec(app.catalog, header)
    facts = facts_of_header(header, name=path.name, context_length=spec.context_length)
    return plan(facts, _with_measured_disk(machine, path), wish=app.fit_wish()), spec


def _with_measured_disk(machine: MachineFacts, path: Path) -> MachineFacts:
    from hymt_local.engine.disk import measured

    return dataclasses.replace(machine, disk=measured(machine.disk, path))


def _plan_published(app: Application, machine: MachineFacts, *, spec: ModelSpec, quantization: str | None) -> FitPlan:
    from hymt_local.engine.fit import plan
    from hymt_local.recommend import facts_of_file

    file = published_file(spec, quantization)
    facts = facts_of_file(spec, file)
    if facts is None:
        raise ModelNotFoundError(
            f"the catalog does not say how large {spec.id} is", hint="import a file of it and ask again"
        )
    return plan(facts, machine, wish=app.fit_wish())


def published_file(spec: ModelSpec, quantization: str | None) -> ModelFile:
    """Return a published file of a model; without a quantization the first that this program can run.

    Raises:
        ModelNotFoundError: no such file is published.
        UnsupportedModelError: this program cannot run it.
    """
    usable = [file for file in spec.files if file.supported]
    if not usable:
        hint = f"make one: `hymt convert {spec.repo}`" if spec.repo else "`hymt models list` shows others"
        raise ModelNotFoundError(f"{spec.id} has no published GGUF", hint=hint)
    if quantization is None:
        return usable[0]
    for file in spec.files:
        if file.quantization.upper() == quantization:
            if not file.supported:
                raise UnsupportedModelError(
                    f"{spec.id}:{file.quantization} cannot be run by this program: {file.note}",
                    hint=f"choose {' or '.join(each.quantization for each in usable)}",
                )
            return file
    raise ModelNotFoundError(
        f"{spec.id} is not published as {quantization}",
        hint=f"choose {' or '.join(file.quantization for file in usable)}",
    )


def _facts(fit: FitPlan) -> list[tuple[str, str]]:
    from hymt_local.engine.fit import gibibytes

    return [
        ("weights", gibibytes(fit.weights_bytes)),
        ("KV cache", f"{gibibytes(fit.kv_bytes)} for {fit.context_length} tokens in {fit.kv_type}"),
        ("intermediate results", f"{gibibytes(fit.compute_bytes)} for batches of {fit.micro_batch} tokens"),
        ("program and vocabulary", gibibytes(fit.program_bytes)),
        ("main memory", f"{gibibytes(fit.ram_bytes)}, {_rest(fit.headroom_bytes)}"),
        ("GPU memory", f"{gibibytes(fit.vram_bytes)} for {fit.gpu_layers} of {fit.n_layers} layers"),
        ("at once", f"{output.counted(fit.n_slots, 'text')}, {output.counted(fit.threads, 'thread')}"),
        ("speed", f"about {fit.tokens_per_s:.0f} tokens/s"),
    ]


def _rest(headroom_bytes: int) -> str:
    from hymt_local.engine.fit import gibibytes

    if headroom_bytes < 0:
        return f"{gibibytes(-headroom_bytes)} more than is available"
    return f"leaves {gibibytes(headroom_bytes)}"


def _row(candidate: Candidate, best: Candidate | None) -> tuple[str, ...]:
    from hymt_local.engine.fit import gibibytes

    fit = candidate.plan
    return (
        "*" if best and candidate.ref == best.ref else " ",
        candidate.ref,
        size_text(candidate.file.size_bytes or 0),
        gibibytes(fit.ram_bytes),
        f"{fit.gpu_layers}/{fit.n_layers}",
        str(fit.context_length),
        f"{fit.tokens_per_s:.0f}",
        VERDICTS[fit.verdict],
    )


def _advice(best: Candidate | None) -> str:
    if best is None:
        return "No published model fits: close other programs, or free some disk space."
    return f"`hymt models pull` fetches {best.ref} ({size_text(best.file.size_bytes or 0)}, {best.spec.licence.title})."


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "ref": candidate.ref,
        "size_bytes": candidate.file.size_bytes,
        "licence": candidate.spec.licence.id,
        "plan": dataclasses.asdict(candidate.plan),
    }
