"""Loading with a second chance: with fewer layers on the GPU, then with a shorter context, where memory is short."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from hymt_local.engine.base import Backend, BackendOpener
from hymt_local.engine.fit import SHORTEST_CONTEXT
from hymt_local.engine.host import Orders
from hymt_local.engine.options import LlamaOptions
from hymt_local.engine.pipe import Order
from hymt_local.errors import EngineLoadError, EngineMemoryError

SMALLER_SHARES = (0.85, 0.7, 0.0)
"""Of the planned layers, tried in this order; nothing but the CPU at last."""

_logger = logging.getLogger(__name__)


class StepDown:
    """What to load, and what to load instead when that fails.

    Fewer layers after any failure, for llama.cpp seldom says why; a shorter context only when memory was the reason.

    Args:
        options: As planned.
    """

    def __init__(self, options: LlamaOptions) -> None:
        self.options = options
        self._layers = _fewer(options.gpu_layers)

    def step_down(self, error: EngineLoadError) -> bool:
        """Choose something smaller after this error; False when there is nothing, or nothing smaller would help."""
        before = self.options
        fewer = next(self._layers, None)
        if fewer is not None:
            self.options = replace(before, gpu_layers=fewer, is_reduced=True)
            _logger.warning("%s with %d layers on the GPU, trying %d", error.message, before.gpu_layers, fewer)
            return True
        shorter = max(before.context_length // 2, min(SHORTEST_CONTEXT, before.context_length))
        if not isinstance(error, EngineMemoryError) or (shorter == before.context_length and before.n_slots == 1):
            return False
        self.options = replace(before, context_length=shorter, slots=1, is_reduced=True)
        _logger.warning(
            "%s with a context of %d tokens, trying %d and one text at a time",
            error.message, before.context_length, shorter,
        )  # fmt: skip
        return True


def open_stepping_down(path: Path, options: LlamaOptions, *, on_progress: Callable[[float], bool]) -> Backend:
    """Load a model in this process, smaller each time that llama.cpp cannot.

    Raises:
        EngineLoadError: it cannot be loaded at its smallest either, or `on_progress` gave up.
        HymtError: as `open_llama_backend` says.
    """
    is_given_up = False

    def report(fraction: float) -> bool:
        nonlocal is_given_up
        is_given_up = is_given_up or not on_progress(fraction)
        return not is_given_up

    from hymt_local.engine.llama import open_llama_backend

    steps = StepDown(options)
    while True:
        try:
            return open_llama_backend(path, steps.options)(report)
        except EngineLoadError as error:
            if is_given_up or not steps.step_down(error):
                raise


class LlamaOrders(Orders):
    """The orders of a GGUF file for an engine process.

    Args:
        path: The file.
        options: As planned.
    """

    def __init__(self, path: Path, options: LlamaOptions) -> None:
        self._path = path
        self._steps = StepDown(options)

    @property
    def order(self) -> Order:
        """What to load now."""
        arguments = msgspec.msgpack.encode((self._path, self._steps.options), enc_hook=_encoded_path)
        return Order(f"{__name__}:open_ordered", arguments)

    def step_down(self, error: EngineLoadError) -> bool:
        """Choose something smaller."""
        return self._steps.step_down(error)


def open_ordered(arguments: bytes) -> BackendOpener:
    """Return the opener of what `LlamaOrders` ordered; runs in the engine process."""
    from hymt_local.engine.llama import open_llama_backend

    path, options = msgspec.msgpack.decode(arguments, type=tuple[Path, LlamaOptions], dec_hook=_decoded_path)
    return open_llama_backend(path, options)


# msgspec knows no paths; its documentation asks hooks to raise NotImplementedError for what they do not know either.
def _encoded_path(value: object) -> bytes:
    if not isinstance(value, Path):
        raise NotImplementedError(type(value))
    return bytes(value)


def _decoded_path(kind: type, value: bytes) -> Path:
    if kind is not Path:
        raise NotImplementedError(kind)
    return Path(os.fsdecode(value))


def _fewer(gpu_layers: int) -> Iterator[int]:
    """Yield ever smaller numbers of layers; nothing when none are on the GPU."""
    last = gpu_layers
    for share in SMALLER_SHARES:
        fewer = int(gpu_layers * share)
        if fewer < last:
            yield fewer
            last = fewer
