"""Fit: what models need on which machine, how they are loaded there, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.engine.fit import (
    GIB,
    GPU_MARGIN_BYTES,
    DiskFacts,
    FitPlan,
    FitWish,
    GpuFacts,
    MachineFacts,
    ModelFacts,
    facts_of_header,
    gibibytes,
    plan,
)
from hymt_local.engine.gguf_file import read_header
from hymt_local.engine.gguf_support import check_supported
from hymt_local.engine.options import MIB, LlamaOptions, default_threads, weights_place
from tests.machines import machine
from tests.toy_models import ToyGeometry, ToyModel, write_hollow_model, write_toy_model

SEVEN_B = ModelFacts(
    name="7B", weights_bytes=4_624_648_896, layer_bytes=131_000_000, output_bytes=430_000_000, n_layers=32,
    kv_width=1024, row_floats=61440, vocab=128167, context_length=4096, longest_context=32768,
)  # fmt: skip
GEOMETRY_7B = ToyGeometry(
    hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128, feed_forward=14336, n_filler_tokens=20000,
    context_length=32768, tensor_type=GGMLQuantizationType.Q4_K,
)  # fmt: skip
GEOMETRY_300_MB = ToyGeometry(
    hidden=2048, layers=7, heads=16, kv_heads=4, head_dim=128, feed_forward=6144, n_filler_tokens=60000,
    context_length=8192, tensor_type=GGMLQuantizationType.Q4_K,
)  # fmt: skip
MEASURE = """
import json, sys
from pathlib import Path
import psutil
from hymt_local.engine.base import GenerationRequest
from hymt_local.engine.llama import open_llama_backend
from hymt_local.engine.options import LlamaOptions
options = LlamaOptions(context_length=4096, threads=1)
backend = open_llama_backend(Path(sys.argv[1]), options)(lambda fraction: True)
for event in backend.generate(GenerationRequest(tuple(range(300, 600)), max_tokens=2), lambda: False):
    pass
print(json.dumps(psutil.Process().memory_info().rss))
"""


def hollow(path: Path, geometry: ToyGeometry) -> ModelFacts:
    file = write_hollow_model(path, ToyModel(geometry), vocabulary_type=GGMLQuantizationType.Q6_K)
    header = read_header(file)
    check_supported(header)
    return facts_of_header(header, name=file.name, context_length=4096)


# Sizes


def test_the_kv_cache_is_that_of_the_published_models() -> None:
    assert SEVEN_B.kv_bytes(1, "f16") == 128 * 1024
    assert SEVEN_B.kv_bytes(1, "q8_0") == 68 * 1024
    assert SEVEN_B.kv_bytes(4096, "f16") == 512 * MIB


@pytest.mark.parametrize(
    ("row_floats", "measured_mib"),
    [(2 * 14336 + 8 * 4096, 60.0), (2 * 6144 + 8 * 2048, 28.0), (2 * 8 * 768 + 17 * 2048, 46.0)],
    ids=["7B", "1.8B", "30B-A3B"],
)
def test_intermediate_results_are_as_llama_cpp_reports_them(row_floats: int, measured_mib: float) -> None:
    facts = replace(SEVEN_B, row_floats=row_floats)
    assert facts.compute_bytes(4096) == pytest.approx(measured_mib * MIB, rel=0.1)


def test_the_facts_of_a_header_are_those_of_its_tensors(tmp_path: Path) -> None:
    facts = hollow(tmp_path / "7B.gguf", GEOMETRY_7B)
    assert (facts.n_layers, facts.kv_width, facts.row_floats) == (32, 1024, 61440)
    assert facts.vocab == 256 + 6 + 20000 + 10
    assert facts.output_bytes == facts.vocab * 4096 * 210 // 256
    assert facts.weights_bytes - facts.n_layers * facts.layer_bytes - facts.output_bytes == 4096 * 4  # output_norm
    assert facts.active_share == 1.0


def test_of_a_mixture_of_experts_only_a_part_is_read_for_a_token(tmp_path: Path) -> None:
    header = read_header(write_toy_model(tmp_path / "moe.gguf", ToyModel(architecture="hy_v3")))
    facts = facts_of_header(header, name="moe", context_length=256)
    assert 0.5 < facts.active_share < 1.0
    assert facts.row_floats == 2 * 2 * 32 + (2 + 9) * 64


@pytest.mark.llama
@pytest.mark.slow
def test_what_a_plan_says_is_what_a_process_takes(tmp_path: Path) -> None:
    file = tmp_path / "hollow.gguf"
    facts = hollow(file, GEOMETRY_300_MB)
    assert facts.weights_bytes > 250 * MIB
    predicted = plan(facts, machine(16), wish=FitWish(threads=1)).total_bytes
    done = subprocess.run([sys.executable, "-c", MEASURE, str(file)], capture_output=True, check=True)
    assert predicted == pytest.approx(json.loads(done.stdout), rel=0.1)


# Verdicts


def test_a_model_fits_when_something_stays_free() -> None:
    fit = plan(SEVEN_B, machine(16))
    assert (fit.verdict, fit.gpu_layers, fit.context_length, fit.kv_type) == ("good", 0, 4096, "f16")
    assert fit.ram_bytes == fit.total_bytes == pytest.approx(5.0 * GIB, rel=0.05)
    assert fit.headroom_bytes == machine(16).available_bytes - fit.ram_bytes
    assert fit.warnings == ()


def test_where_others_would_have_to_give_way_it_is_tight_and_says_so() -> None:
    fit = plan(SEVEN_B, machine(8, available=3.0), wish=FitWish(context_length=4096))
    assert fit.verdict == "tight"
    assert fit.warnings == ("5.0 GiB needed, 3.0 GiB available: other programs may be swapped out; close some",)


def test_what_the_machine_could_not_hold_with_everything_closed_is_refused() -> None:
    fit = plan(SEVEN_B, machine(4))
    assert fit.verdict == "no"
    assert "this machine has 4.0 GiB" in fit.warnings[-1]


def test_what_would_not_even_hold_its_cache_is_refused() -> None:
    fit = plan(SEVEN_B, machine(16, available=0.5), wish=FitWish(context_length=4096))
    assert fit.verdict == "no"
    assert fit.warnings == ("5.0 GiB needed, 0.5 GiB available: the system would run out of memory",)


def test_weights_that_cannot_give_way_are_counted_as_memory() -> None:
    scarce = machine(8, available=3.0)
    mapped, held, both = (plan(SEVEN_B, scarce, wish=FitWish(4096, weights=at)) for at in ("mapped", "held", "both"))
    assert [fit.verdict for fit in (mapped, held, both)] == ["tight", "no", "no"]
    assert held.ram_bytes == mapped.ram_bytes
    assert both.ram_bytes == mapped.ram_bytes + SEVEN_B.weights_bytes


@pytest.mark.parametrize(
    ("options", "processor", "expected"),
    [
        (LlamaOptions(), "x86_64", "mapped"),
        (LlamaOptions(), "aarch64", "both"),
        (LlamaOptions(repack=False), "arm64", "mapped"),
        (LlamaOptions(repack=True), "AMD64", "held"),
        (LlamaOptions(use_mlock=True), "x86_64", "held"),
        (LlamaOptions(use_mmap=False), "x86_64", "held"),
    ],
)
def test_where_weights_lie_follows_from_options_and_processor(
    options: LlamaOptions, processor: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: processor)
    assert weights_place(options) == expected


def test_the_limit_of_a_container_is_named_as_such() -> None:
    fit = plan(SEVEN_B, replace(machine(4), is_limited=True))
    assert "this container may use 4.0 GiB" in fit.warnings[-1]


# What is given up, in which order


def test_the_context_is_halved_before_a_model_is_tight() -> None:
    fit = plan(SEVEN_B, machine(8, available=5.1))
    assert (fit.verdict, fit.context_length, fit.n_slots) == ("good", 1024, 4)
    assert "a context of 1024 tokens instead of 4096: the KV cache of more does not fit" in fit.reasons


def test_the_cache_is_kept_in_fewer_bits_before_the_context_is_halved() -> None:
    fit = plan(SEVEN_B, machine(8, available=5.25), wish=FitWish(kv_types=("f16", "q8_0")))
    assert (fit.verdict, fit.context_length, fit.kv_type) == ("good", 4096, "q8_0")
    assert "the KV cache in q8_0: in f16 it does not fit" in fit.reasons


def test_a_context_that_the_user_fixed_is_not_shortened() -> None:
    fit = plan(SEVEN_B, machine(8), wish=FitWish(context_length=8192))
    assert (fit.verdict, fit.context_length) == ("tight", 8192)


def test_no_context_is_longer_than_the_model_knows() -> None:
    fit = plan(SEVEN_B, machine(32), wish=FitWish(context_length=100_000))
    assert fit.context_length == 32768
    assert "a context of 32768 tokens: the model knows no longer one" in fit.reasons


# GPUs


def test_zero_layers_really_means_the_cpu() -> None:
    fit = plan(SEVEN_B, machine(16, 12), wish=FitWish(gpu_layers=0))
    assert (fit.gpu_layers, fit.vram_bytes) == (0, 0)
    assert fit.reasons[0] == "on the CPU: the setting `gpu_layers` is 0"


def test_a_large_gpu_takes_all_layers_and_the_output() -> None:
    fit = plan(SEVEN_B, machine(16, 12))
    assert (fit.gpu_layers, fit.n_layers) == (33, 33)
    assert fit.ram_bytes < GIB
    assert fit.reasons[0] == "all layers on GPU, where 11.5 GiB are free"


def test_slots_are_given_up_for_the_last_layers() -> None:
    wish = FitWish(context_length=1024)  # the usual context has room for all slots anyway
    whole = plan(SEVEN_B, machine(16, 12), wish=wish)
    assert (whole.n_slots, whole.gpu_layers) == (32, 33)
    free_bytes = whole.vram_bytes + GPU_MARGIN_BYTES - 100 * MIB
    nearly_enough = replace(machine(16), gpus=(GpuFacts("GPU", 6 * GIB, free_bytes),))
    fit = plan(SEVEN_B, nearly_enough, wish=wish)
    assert (fit.n_slots, fit.gpu_layers) == (16, 33)
    assert "16 at once instead of 32: the KV cache of more does not fit" in fit.reasons
    assert plan(SEVEN_B, machine(16), wish=wish).n_slots == 32


def test_a_cache_that_is_kept_in_main_memory_makes_room_for_layers() -> None:
    beside, apart = (plan(SEVEN_B, machine(16, 4), wish=FitWish(kv_offload=is_on)) for is_on in (True, False))
    assert apart.gpu_layers > beside.gpu_layers > 0
    assert apart.ram_bytes - apart.kv_bytes < beside.ram_bytes
    assert apart.vram_bytes <= 4 * GIB


def test_a_small_gpu_takes_what_fits_and_the_rest_stays_in_memory() -> None:
    fit = plan(SEVEN_B, machine(16, 4))
    assert 15 <= fit.gpu_layers <= 25
    assert fit.vram_bytes + GPU_MARGIN_BYTES <= machine(16, 4).gpus[0].free_bytes
    assert fit.ram_bytes > 2 * GIB


def test_a_gpu_that_takes_next_to_nothing_is_left_alone() -> None:
    fit = plan(SEVEN_B, replace(machine(16), gpus=(GpuFacts("old", 2 * GIB, GIB),)))
    assert fit.gpu_layers == 0
    assert fit.reasons[0].startswith("on the CPU: too few layers fit into the 1.0 GiB")


def test_more_layers_than_fit_are_not_tried_and_that_is_said() -> None:
    fit = plan(SEVEN_B, machine(16, 4), wish=FitWish(gpu_layers=99))
    assert fit.gpu_layers < 33
    assert fit.warnings == (f"`gpu_layers` = 99, but only {fit.gpu_layers} fit",)


def test_fewer_layers_than_fit_are_respected() -> None:
    assert plan(SEVEN_B, machine(16, 12), wish=FitWish(gpu_layers=3)).gpu_layers == 3


def test_a_gpu_without_memory_of_its_own_takes_main_memory() -> None:
    unified = replace(machine(16), gpus=(GpuFacts("Apple", 11 * GIB, 11 * GIB, is_unified=True),))
    fit = plan(SEVEN_B, unified)
    assert fit.gpu_layers == 33
    assert fit.ram_bytes > fit.vram_bytes > 4 * GIB


def test_a_tiny_model_stays_on_one_thread_of_the_cpu() -> None:
    tiny = replace(SEVEN_B, weights_bytes=5 * MIB, layer_bytes=MIB, output_bytes=MIB, n_layers=4, kv_width=64)
    fit = plan(tiny, machine(16, 12))
    assert (fit.gpu_layers, fit.threads) == (0, 1)
    assert fit.reasons == (
        "on the CPU: a tiny model is fastest there",
        "1 thread: a tiny model gains nothing by more",
    )


# Threads


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (4, 3), (16, 15)])
def test_one_physical_core_is_left_to_others(cores: int, threads: int) -> None:
    assert default_threads(SEVEN_B.weights_bytes, cores) == threads
    assert plan(SEVEN_B, machine(16, cores=cores)).threads == threads


def test_the_users_threads_are_taken_as_they_are() -> None:
    fit = plan(SEVEN_B, machine(16), wish=FitWish(threads=12))
    assert fit.threads == 12
    assert not any("thread" in reason for reason in fit.reasons)


# Laws

machines = st.builds(
    MachineFacts,
    total_bytes=st.integers(GIB, 256 * GIB),
    available_bytes=st.integers(0, 256 * GIB),
    n_cores=st.integers(1, 64),
    gpus=st.lists(
        st.builds(
            GpuFacts, name=st.just("GPU"), total_bytes=st.just(48 * GIB), free_bytes=st.integers(0, 48 * GIB),
            is_unified=st.booleans(),
        ), max_size=2,
    ).map(tuple),
)  # fmt: skip
wishes = st.builds(
    FitWish,
    context_length=st.none() | st.integers(256, 262144),
    gpu_layers=st.none() | st.integers(0, 1000),
    threads=st.none() | st.integers(1, 512),
    kv_types=st.sampled_from([("f16",), ("f16", "q8_0")]),
)


@given(machine=machines, wish=wishes)
def test_a_plan_never_asks_for_more_than_there_is(machine: MachineFacts, wish: FitWish) -> None:
    fit = plan(SEVEN_B, machine, wish=wish)
    assert fit.vram_bytes <= sum(gpu.free_bytes for gpu in machine.gpus)
    assert 0 <= fit.gpu_layers <= fit.n_layers
    assert 256 <= fit.context_length <= SEVEN_B.longest_context
    assert fit.threads >= 1
    if fit.verdict == "good":
        assert fit.headroom_bytes >= machine.margin_bytes
    else:
        assert fit.warnings


@given(machine=machines, wish=wishes, more=st.integers(0, 64 * GIB))
def test_more_memory_never_makes_a_fit_worse(machine: MachineFacts, wish: FitWish, more: int) -> None:
    larger = replace(machine, total_bytes=machine.total_bytes + more, available_bytes=machine.available_bytes + more)
    ranks = ["no", "tight", "good"]
    assert ranks.index(_verdict(larger, wish)) >= ranks.index(_verdict(machine, wish))


def _verdict(machine: MachineFacts, wish: FitWish) -> str:
    fit: FitPlan = plan(SEVEN_B, machine, wish=wish)
    return fit.verdict


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0 MiB"), (100 * MIB, "100 MiB"), (GIB, "1.0 GiB"), (-2 * GIB, "-2.0 GiB")]
)
def test_memory_is_shown_in_binary_units(size_bytes: int, text: str) -> None:
    assert gibibytes(size_bytes) == text


# The disk, and GPUs that lie idle


@pytest.mark.parametrize(
    ("disk", "said"),
    [
        (DiskFacts("hard disk", 120e6), "the first load takes about 39 s from a hard disk (120 MB/s, as usual)"),
        (DiskFacts("NVMe", 2e9, is_measured=True), "about 2 s from an NVMe drive (2000 MB/s, measured)"),
        (DiskFacts("network", 60e6), "about 77 s from a network drive"),
        (DiskFacts("SSD", 400e6), "about 12 s from an SSD ("),
    ],
    ids=lambda value: value.kind if isinstance(value, DiskFacts) else "",
)
def test_the_first_load_is_estimated_by_the_disk(disk: DiskFacts, said: str) -> None:
    found = plan(SEVEN_B, replace(machine(16), disk=disk))
    assert said in "; ".join(found.reasons)
    assert found.load_s == SEVEN_B.weights_bytes / disk.bytes_per_s
    assert plan(SEVEN_B, machine(16)).load_s is None


def test_a_gpu_that_this_build_cannot_use_is_the_reason_for_the_cpu() -> None:
    idle = replace(machine(16), idle_gpus=machine(16, 6).gpus)
    found = plan(SEVEN_B, idle)
    assert found.gpu_layers == 0
    assert found.reasons[0].startswith("on the CPU: this build of llama.cpp cannot use the GPU; `hymt doctor`")
