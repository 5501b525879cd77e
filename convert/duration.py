"""How long the steps of a conversion will take, roughly: so that nobody starts by surprise what takes the night."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hymt_convert.gguf_writer import FILE_TYPES, stored_bytes
from hymt_convert.passages import Part, pairs
from hymt_convert.quality import ANSWER_TOKENS, CHUNK_TOKENS, MAX_TRANSLATIONS

if TYPE_CHECKING:
    from hymt_convert.conversion import ConversionPlan

DISK_BYTES_PER_S = 500e6
"""Reading and writing at once, on the disk of a laptop."""
MEMORY_BYTES_PER_S = 10e9
CORE_FLOPS = 60e9
"""What llama.cpp gets out of a core with AVX2; with AVX-512 it was measured to be 150e9."""
WEIGHTS_PER_CORE_S = 16e6
"""Measured: 7.5e9 weights to Q4_K_M in 450 s of processor time."""
SLOW_PREFIXES, SLOWNESS = ("IQ1", "IQ2", "IQ3"), 6
"""Types that the quantizer searches for, and about how much longer that takes."""
USABLE_MEMORY = 0.6
"""Share of the memory that the pages of a file may take before they are read from the disk again and again."""
TEXT_BYTES_PER_TOKEN, PROMPT_TOKENS = 3.5, 25
CHECK_PASSES = 36
TRANSLATION_PASSES = ANSWER_TOKENS + 8


@dataclass(frozen=True, slots=True)
class Machine:
    """What the steps depend on."""

    cores: int
    memory_bytes: int

    @classmethod
    def this(cls, threads: int | None) -> Machine:
        """Return this one, of which `threads` cores are used; None for all."""
        import psutil

        from hymt_convert.reference_model import n_cores

        return cls(threads or n_cores(), psutil.virtual_memory().total)

    def pass_seconds(self, size_bytes: float) -> float:
        """Return the time to read all weights of a file once."""
        fits = size_bytes < USABLE_MEMORY * self.memory_bytes
        return size_bytes / (MEMORY_BYTES_PER_S if fits else DISK_BYTES_PER_S)

    def reading_seconds(self, n_weights: int, size_bytes: float, n_tokens: float) -> float:
        """Return the time to run a model over a text: to compute, or to fetch the weights for it."""
        computing = 2 * n_weights * n_tokens / (self.cores * CORE_FLOPS)
        return max(computing, n_tokens / CHUNK_TOKENS * self.pass_seconds(size_bytes))


def expected_seconds(plan: ConversionPlan, machine: Machine) -> Mapping[str, float]:
    """Return the seconds of every step of a plan that is not done at once; a guess within a factor of about three."""
    request, n_weights = plan.request, sum(tensor.element_count for tensor in plan.model.tensors)
    base_bytes = stored_bytes(plan.model.tensors, plan.base_type)
    floats = [kind for kind in plan.outputs if kind in FILE_TYPES]
    quantized = [kind for kind in plan.outputs if kind not in FILE_TYPES]
    n_written = len({*floats, *([plan.base_type] if quantized else [])})
    seconds = {"writing": n_written * 2 * base_bytes / DISK_BYTES_PER_S}
    if request.imatrix and quantized:
        n_tokens = _n_tokens(plan, "calibration")
        seconds["importance matrix"] = machine.reading_seconds(n_weights, base_bytes, n_tokens)
    if quantized:
        work = sum(n_weights * (SLOWNESS if kind.startswith(SLOW_PREFIXES) else 1) for kind in quantized)
        seconds["quantizing"] = work / (WEIGHTS_PER_CORE_S * machine.cores)
    sizes = [plan.output_bytes(kind) for kind in quantized]
    if plan.measures_quality:
        seconds["measuring"] = sum(
            machine.reading_seconds(n_weights, size, _n_tokens(plan, "evaluation"))
            + TRANSLATION_PASSES * (machine.pass_seconds(size) + 2 * n_weights * MAX_TRANSLATIONS / _flops(machine))
            for size in (base_bytes, *sizes)
        )
    if request.verify:
        seconds["checking"] = sum(
            size / DISK_BYTES_PER_S + CHECK_PASSES * machine.pass_seconds(size)
            for size in map(plan.output_bytes, plan.outputs)
        )
    return seconds


def _flops(machine: Machine) -> float:
    return machine.cores * CORE_FLOPS


def _n_tokens(plan: ConversionPlan, part: Part) -> float:
    texts = pairs(plan.identity.spec, part)
    size_bytes = sum(len(text.encode()) for pair in texts for text in (pair.source, pair.target))
    return size_bytes / TEXT_BYTES_PER_TOKEN + PROMPT_TOKENS * len(texts)


def describe_seconds(seconds: Mapping[str, float], machine: Machine) -> str:
    """Return one line, such as `about 25 min on 2 cores (writing 1 min, quantizing 10 min, checking 14 min)`."""
    parts = ", ".join(f"{step} {_words(value)}" for step, value in seconds.items() if value >= 60)
    cores = f"{machine.cores} core{'s' if machine.cores > 1 else ''}"
    return f"about {_words(sum(seconds.values()))} on {cores}" + (f" ({parts})" if parts else "")


def _words(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
