"""Which model suits which machine: a table of sixteen machines, checked by hand for sense, and the rules behind it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hymt_local.catalog import Catalog, ModelFile, load_catalog
from hymt_local.engine.fit import GIB, FitWish, gibibytes
from hymt_local.recommend import Candidate, candidates, facts_of_file, nearest, recommend
from tests.machines import GPU_SIZES, MEMORY_SIZES, machine

GOLDEN = Path(__file__).parents[1] / "golden" / "fit.txt"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def row(memory: int, gpu: int, best: Candidate) -> str:
    fit = best.plan
    return (
        f"{memory:2} GiB, GPU {gpu:2} GiB: {best.ref:18} {fit.verdict} "
        f"memory {gibibytes(fit.ram_bytes):>7} GPU {gibibytes(fit.vram_bytes):>7} "
        f"layers {fit.gpu_layers:2}/{fit.n_layers} "
        f"context {fit.context_length} slots {fit.n_slots:2} threads {fit.threads} {fit.tokens_per_s:3.0f} tokens/s\n"
    )


def test_the_table_of_simulated_machines_is_the_one_that_was_checked_by_hand(catalog: Catalog) -> None:
    rows = []
    for memory in MEMORY_SIZES:
        for gpu in GPU_SIZES:
            simulated = machine(memory, gpu)
            best = recommend(candidates(catalog, simulated), simulated)
            assert best is not None
            rows.append(row(memory, gpu, best))
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text("".join(rows), encoding="utf-8")
    assert "".join(rows) == GOLDEN.read_text(encoding="utf-8")


def test_the_two_newcomers_reach_a_good_model(catalog: Catalog) -> None:
    for simulated, ref in ((machine(8), "Hy-MT2-1.8B:Q8_0"), (machine(8, 6), "Hy-MT2-7B:Q4_K_M")):
        best = recommend(candidates(catalog, simulated), simulated)
        assert best is not None
        assert best.ref == ref
        assert best.is_comfortable(simulated)


@pytest.mark.parametrize("memory", MEMORY_SIZES)
@pytest.mark.parametrize("gpu", GPU_SIZES)
def test_only_free_licences_are_recommended_and_nothing_huge(catalog: Catalog, memory: int, gpu: int) -> None:
    simulated = machine(memory, gpu)
    best = recommend(candidates(catalog, simulated), simulated)
    assert best is not None
    assert best.spec.licence.territory_excluded == ()
    assert best.file.size_bytes is not None
    assert best.file.size_bytes < 10_000_000_000


def test_a_crowded_machine_gets_the_fastest_that_fits(catalog: Catalog) -> None:
    crowded = machine(4, available=1.7)
    best = recommend(candidates(catalog, crowded), crowded)
    assert best is not None
    assert (best.ref, best.plan.verdict) == ("Hy-MT2-1.8B:Q4_K_M", "good")


def test_a_hopeless_machine_gets_nothing(catalog: Catalog) -> None:
    hopeless = replace(machine(4), total_bytes=GIB, available_bytes=GIB // 8)
    assert recommend(candidates(catalog, hopeless), hopeless) is None


def test_what_the_disk_cannot_hold_is_not_recommended(catalog: Catalog) -> None:
    small_disk = replace(machine(16), disk_free_bytes=2_000_000_000)
    best = recommend(candidates(catalog, small_disk), small_disk)
    assert best is not None
    assert best.ref.startswith("Hy-MT2-1.8B")
    assert recommend(candidates(catalog, small_disk), replace(small_disk, disk_free_bytes=1)) is None


def test_the_users_wish_for_the_cpu_is_respected(catalog: Catalog) -> None:
    simulated = machine(8, 12)
    best = recommend(candidates(catalog, simulated, wish=FitWish(gpu_layers=0)), simulated)
    assert best is not None
    assert (best.ref, best.plan.gpu_layers) == ("Hy-MT2-1.8B:Q8_0", 0)


def test_candidates_are_all_files_that_this_program_can_run(catalog: Catalog) -> None:
    refs = {candidate.ref for candidate in candidates(catalog, machine(16))}
    assert {"Hy-MT2-30B-A3B:Q8_0", "HY-MT1.5-7B:Q4_K_M"} <= refs
    assert not any("bit" in ref for ref in refs)


@pytest.mark.parametrize(("wanted", "other"), [("Hy-MT2-30B-A3B", "Hy-MT2-7B:Q4_K_M"), ("Hy-MT2-7B", "Hy-MT2-7B:Q8_0")])
def test_the_nearest_to_what_does_not_fit_is_a_smaller_file_or_the_recommendation(
    catalog: Catalog, wanted: str, other: str
) -> None:
    found = candidates(catalog, machine(16))
    near = nearest(found, machine(16), spec=catalog.get(wanted))
    assert near is not None
    assert near.ref == other


def test_a_file_of_unknown_size_is_not_judged(catalog: Catalog) -> None:
    spec = catalog.get("Hy-MT2-7B")
    assert facts_of_file(spec, ModelFile("Q5_K_M", "x.gguf")) is None
    assert facts_of_file(catalog.get("demo"), ModelFile("Q8_0", "x.gguf", size_bytes=1)) is None


def test_the_catalog_and_the_header_tell_nearly_the_same(catalog: Catalog) -> None:
    spec = catalog.get("Hy-MT2-7B")
    facts = facts_of_file(spec, spec.files[0])
    assert facts is not None
    assert facts.layer_bytes == pytest.approx(131e6, rel=0.02)  # 218 million weights at 4.8 bits
    assert facts.row_floats == 61440
