"""Taking tensors out of a checkpoint: each by its name and with the shape that config.json asks for, none left over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hymt_convert.architectures import TensorPlan
from hymt_convert.safetensors_file import CheckpointTensor
from hymt_local.errors import ModelFileError

HEAD = "lm_head.weight"


class Weights:
    """The tensors of a checkpoint that nothing has asked for yet."""

    def __init__(self, tensors: Mapping[str, CheckpointTensor]) -> None:
        self._left = dict(tensors)

    def __contains__(self, name: str) -> bool:
        """Tell whether a tensor is there and not taken."""
        return name in self._left

    def take(self, name: str, shape: tuple[int, ...]) -> CheckpointTensor:
        """Return a tensor and strike it off.

        Raises:
            ModelFileError: it is missing or has another shape.
            UnsupportedModelError: its element type is none of plain weights.
        """
        tensor = self._left.pop(name, None)
        if tensor is None:
            raise ModelFileError(
                f"the checkpoint has no tensor {name}", hint="A shard is missing, or config.json is of another model."
            )
        if tensor.shape != shape:
            raise ModelFileError(
                f"tensor {name} has the shape {list(tensor.shape)}, config.json asks for {list(shape)}"
            )
        tensor.check_readable()
        return tensor

    def find(self, names: Sequence[str]) -> str:
        """Return which of several names for one tensor the checkpoint uses; the first when it uses none.

        Raises:
            ModelFileError: it uses two.
        """
        used = [name for name in names if name in self._left]
        if len(used) > 1:
            raise ModelFileError(f"the checkpoint has the same tensor twice: {used[0]} and {used[1]}")
        return used[0] if used else names[0]

    def drop(self, prefix: str) -> int:
        """Strike off what begins with `prefix`; returns how many tensors that were."""
        names = [name for name in self._left if name.startswith(prefix)]
        for name in names:
            del self._left[name]
        return len(names)

    def check_empty(self) -> None:
        """Make sure that nothing was overlooked.

        Raises:
            ModelFileError: with the name of a tensor that nobody asked for.
        """
        if self._left:
            raise ModelFileError(f"the checkpoint has the unexpected tensor {min(self._left)}")

    def head(self, embedding: CheckpointTensor, *, is_tied: bool) -> list[TensorPlan]:
        """Return the output matrix; none when it is the embedding.

        Raises:
            ModelFileError: it is missing, or a tied model has one that differs from the embedding.
        """
        if not is_tied:
            return [TensorPlan.copy_of("output.weight", self.take(HEAD, embedding.shape), full_precision=False)]
        # A tied model may repeat the embedding as its head; only a repetition may be dropped.
        if HEAD in self and not _equal(self.take(HEAD, embedding.shape), embedding):
            raise ModelFileError(
                f"config.json ties the head to the embedding, but {HEAD} holds other values",
                hint="One of them is wrong: the checkpoint is damaged or its tie_word_embeddings is.",
            )
        return []


def _equal(first: CheckpointTensor, second: CheckpointTensor) -> bool:
    if first.dtype != second.dtype:
        return False
    return all(one == other for one, other in zip(first.raw_blocks(), second.raw_blocks(), strict=True))
