"""What a model architecture contributes to a conversion: header keys and the source of every tensor.

One module per architecture; `get_architecture` imports only the one that a checkpoint names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from hymt_convert.checkpoint import Checkpoint
from hymt_convert.safetensors_file import CheckpointTensor
from hymt_local.errors import UnsupportedModelError

MetadataValue = str | bool | int | float | Sequence[str] | Sequence[int] | Sequence[float]
"""Written as string, bool, u32, f32 and arrays of string, i32 and f32."""

MODULES: Mapping[str, str] = {
    "HunYuanDenseV1ForCausalLM": "hunyuan_dense",
    "HYV3ForCausalLM": "hy_v3",
}
"""Class name in config.json -> module of this package."""


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """One tensor of the result."""

    name: str
    parts: tuple[CheckpointTensor, ...]
    """What it is made of, one after the other in storage order; most have one part."""
    shape: tuple[int, ...]
    """Slowest dimension first, as in the checkpoint."""
    full_precision: bool
    """Kept in f32 whatever the file's type: norms and routers, which are small and sensitive."""

    @property
    def element_count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def dtypes(self) -> frozenset[str]:
        """Element types of the parts, as safetensors spells them."""
        return frozenset(part.dtype for part in self.parts)

    @classmethod
    def copy_of(cls, name: str, source: CheckpointTensor, *, full_precision: bool) -> TensorPlan:
        """Return the plan of a tensor that is one of the checkpoint under another name."""
        return cls(name, (source,), source.shape, full_precision)


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A checkpoint, understood: everything that the writer needs except the vocabulary."""

    architecture: str
    """`general.architecture`."""
    metadata: Mapping[str, MetadataValue]
    tensors: tuple[TensorPlan, ...]
    vocab_size: int
    """Rows of the embedding, padding included."""
    warnings: tuple[str, ...] = ()
    """What the user should know; one line each."""


PlanBuilder = Callable[[Checkpoint], ModelPlan]
_BUILDER_ATTRIBUTE = "hymt_architectures"


def register(*class_names: str) -> Callable[[PlanBuilder], PlanBuilder]:
    """Mark a function as the plan builder of these config.json class names; they also go into `MODULES`."""

    def mark(builder: PlanBuilder) -> PlanBuilder:
        setattr(builder, _BUILDER_ATTRIBUTE, class_names)
        return builder

    return mark


def get_architecture(config: Mapping[str, object]) -> PlanBuilder:
    """Return the plan builder for a config.json.

    Raises:
        UnsupportedModelError: the class is missing or not one of `MODULES`.
    """
    named = config.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    known = next((name for name in names if name in MODULES), None)
    if known is None:
        raise UnsupportedModelError(
            f"config.json names the architecture {', '.join(names) or None}, which cannot be converted",
            hint=f"Supported: {', '.join(MODULES)}.",
        )
    module = import_module(f"{__name__}.{MODULES[known]}")
    for value in vars(module).values():
        if known in getattr(value, _BUILDER_ATTRIBUTE, ()):
            return value  # type: ignore[no-any-return]
    raise LookupError(f"{module.__name__} registers no builder for {known}")
