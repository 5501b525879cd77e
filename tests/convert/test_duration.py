"""What a plan says about its time: right by an order of magnitude for the 7B, and short for a toy."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from hymt_convert.architectures import TensorPlan
from hymt_convert.conversion import ConversionPlan, ConversionRequest, plan_conversion
from hymt_convert.duration import Machine, describe_seconds, expected_seconds
from tests.bench.synthetic_checkpoint import SEVEN_B
from tests.convert import toy_checkpoint as toy

LAPTOP = Machine(cores=2, memory_bytes=8 << 30)
HOUR = 3600.0


@pytest.fixture
def plan(tmp_path: Path) -> ConversionPlan:
    """A 7B of which there is no weight: its plan has the toy's tensors with other sizes."""
    toy.write_checkpoint(tmp_path / "toy", dtype="BF16")
    request = ConversionRequest(tmp_path / "toy", tmp_path / "output", ("Q4_K_M",), imatrix=True, verify=True)
    plan = plan_conversion(request)
    shapes = toy.weight_shapes(SEVEN_B).values()
    some = plan.model.tensors[0]
    tensors = tuple(TensorPlan(some.name, some.parts, shape, full_precision=False) for shape in shapes)
    return replace(plan, model=replace(plan.model, tensors=tensors))


def test_the_7b_takes_what_it_took(plan: ConversionPlan) -> None:
    seconds = expected_seconds(plan, LAPTOP)
    assert list(seconds) == ["writing", "importance matrix", "quantizing", "checking"]
    assert 30 < seconds["writing"] < 300
    assert 0.5 * HOUR < seconds["importance matrix"] < 4 * HOUR
    assert 100 < seconds["quantizing"] < 1000  # 290 s were measured on two cores
    assert 10 < seconds["checking"] < 900


def test_a_file_larger_than_the_memory_is_read_from_the_disk_again_and_again(plan: ConversionPlan) -> None:
    measured = replace(plan, request=replace(plan.request, quality=True))
    small, large = (
        expected_seconds(measured, Machine(cores=2, memory_bytes=size << 30))["measuring"] for size in (8, 64)
    )
    assert 0.5 * HOUR < large < small < 6 * HOUR


def test_few_bits_take_longer_and_more_cores_less(plan: ConversionPlan) -> None:
    few = replace(plan, outputs={"IQ2_M": Path("x")})
    assert expected_seconds(few, LAPTOP)["quantizing"] > 3 * expected_seconds(plan, LAPTOP)["quantizing"]
    assert sum(expected_seconds(plan, replace(LAPTOP, cores=8)).values()) < sum(expected_seconds(plan, LAPTOP).values())


def test_only_what_is_asked_for_takes_time(plan: ConversionPlan) -> None:
    request = replace(plan.request, imatrix=False, verify=False)
    assert list(expected_seconds(replace(plan, request=request, outputs={"F16": Path("x")}), LAPTOP)) == ["writing"]


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        ({"writing": 3.0}, "about 1 min on 2 cores"),
        ({"writing": 61.0, "quantizing": 600.0}, "about 11 min on 2 cores (writing 1 min, quantizing 10 min)"),
        ({"importance matrix": 2.5 * HOUR}, "about 2.5 h on 2 cores (importance matrix 2.5 h)"),
    ],
)  # fmt: skip
def test_the_time_is_told_in_one_line(seconds: dict[str, float], line: str) -> None:
    assert describe_seconds(seconds, LAPTOP) == line


def test_this_machine_is_known() -> None:
    assert Machine.this(3).cores == 3
    assert Machine.this(None).cores >= 1
    assert math.log2(Machine.this(None).memory_bytes) > 28
