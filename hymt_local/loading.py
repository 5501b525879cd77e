"""Loading with a second chance: where a GPU has less room than it said, with fewer layers on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from hymt_local.engine.base import Backend
from hymt_local.engine.llama import open_llama_backend
from hymt_local.engine.options import LlamaOptions
from hymt_local.errors import EngineLoadError

SMALLER_SHARES = (0.85, 0.7, 0.0)
"""Of the planned layers, tried in this order; nothing but the CPU at last."""

_logger = logging.getLogger(__name__)


def open_with_fewer_layers(path: Path, options: LlamaOptions, *, on_progress: Callable[[float], bool]) -> Backend:
    """Load a model, with fewer layers on the GPU each time that llama.cpp cannot.

    Raises:
        EngineLoadError: it cannot be loaded on the CPU either, or `on_progress` gave up.
        HymtError: as `open_llama_backend` says.
    """
    is_given_up = False

    def report(fraction: float) -> bool:
        nonlocal is_given_up
        is_given_up = is_given_up or not on_progress(fraction)
        return not is_given_up

    layers = _fewer(options.gpu_layers)
    while True:
        try:
            return open_llama_backend(path, options)(report)
        except EngineLoadError as error:
            fewer = next(layers, None)
            if is_given_up or fewer is None:
                raise
            _logger.warning("%s with %d layers on the GPU, trying %d", error.message, options.gpu_layers, fewer)
            options = replace(options, gpu_layers=fewer)


def _fewer(gpu_layers: int) -> Iterator[int]:
    """Yield ever smaller numbers of layers; nothing when none are on the GPU."""
    last = gpu_layers
    for share in SMALLER_SHARES:
        fewer = int(gpu_layers * share)
        if fewer < last:
            yield fewer
            last = fewer
