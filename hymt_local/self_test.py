"""The self-test of a model: fixed sentences that every model of the family can translate, checked like any answer.

A file with a broken chat template, the wrong vocabulary or a kernel that computes nonsense answers all of them with
garbage; a weak quantization may miss one. It runs once per file and way of loading, before the first translation.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from hymt_local.catalog import ModelSpec
from hymt_local.checks import Identify
from hymt_local.engine.base import Engine, ModelInfo
from hymt_local.errors import UnsupportedModelError
from hymt_local.events import Priority
from hymt_local.generation.asking import Direction
from hymt_local.generation.segments import SegmentGenerator
from hymt_local.planning import PassedTests
from hymt_local.prompts import template_signature
from hymt_local.retries import RetryPolicy
from hymt_local.source_text import SourceText

SENTENCES: tuple[tuple[str, str, str], ...] = (
    ("en", "zh", "The library opens at nine in the morning and closes at six in the evening."),
    ("zh", "en", "图书馆上午九点开门，晚上六点关门，星期天不开放。"),
    ("en", "fr", "My sister bought fresh bread and cheese at the market before she came home for lunch with us."),
    ("de", "en", "Der Zug nach Hamburg fährt heute von einem anderen Gleis und kommt eine halbe Stunde später an."),
    ("en", "ja", "It rained all night, so the children stayed inside and read books by the window."),
    ("ru", "en", "Вчера мы долго гуляли по парку, а потом пили горячий чай в маленьком кафе у реки."),
)
"""From, into, text. Long enough that the language of an answer is known for sure."""
MOST_MISSED = 3
"""More than these mean that the model is broken and not only weak: a broken one misses nearly all."""
_FEWEST = 2
"""One sentence is too little to judge by."""
_VERSION = 1
_MOST_REMEMBERED = 200


async def check_answers(
    spec: ModelSpec, engine: Engine, info: ModelInfo, *, identify: Identify, passed: PassedTests
) -> None:
    """Let a loaded model translate the sentences, unless it has passed before.

    The first three are enough when all of them are good: so many may be missed.

    Raises:
        UnsupportedModelError: its answers are garbage; the message names what the checks found.
    """
    wanted, key = _sentences_of(spec), _key(spec)
    if len(wanted) < _FEWEST or passed.has(key):
        return
    most_missed = min(MOST_MISSED, len(wanted) - 1)
    n_enough = len(wanted) - most_missed
    missed: list[str] = []
    for some in (wanted[:n_enough], wanted[n_enough:]):
        faults = await _together([_fault(spec, engine, info, each, identify=identify) for each in some])
        missed += [
            f"{source}>{target} {fault}" for (source, target, _), fault in zip(some, faults, strict=True) if fault
        ]
        if not missed:
            break
    if len(missed) > most_missed:
        raise UnsupportedModelError(
            f"{info.name} fails its self-test in {len(missed)} of {len(wanted)} sentences: {', '.join(missed)}",
            hint="the file, its chat template or the GPU's arithmetic is broken: `hymt models verify`, or try "
            "`hymt config set gpu_layers 0`; `hymt config set self_test false` uses it all the same",
        )
    passed.add(key)


async def _together(coroutines: Sequence[Coroutine[Any, Any, str]]) -> list[str]:
    """Run all at once; the first error cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in coroutines]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return [task.result() for task in tasks]


def _key(spec: ModelSpec) -> str:
    """Return what a passed test is remembered by: the sentences and how they are asked."""
    templates = [
        template_signature(spec, source_lang=source, target_lang=target) for source, target, _ in _sentences_of(spec)
    ]
    return f"{_VERSION} {' '.join(templates)}"


def _sentences_of(spec: ModelSpec) -> Sequence[tuple[str, str, str]]:
    return [each for each in SENTENCES if {each[0], each[1]} <= set(spec.languages)]


async def _fault(
    spec: ModelSpec, engine: Engine, info: ModelInfo, sentence: tuple[str, str, str], *, identify: Identify
) -> str:
    """Return the code of what is wrong with the answer to one sentence; empty when nothing is."""
    source_lang, target_lang, text = sentence
    direction = Direction(source_lang, target_lang, spec.sampling.greedy_params(), Priority.REQUEST)
    generator = SegmentGenerator(
        spec,
        engine,
        coverage=None,
        info=info,
        direction=direction,
        emit=None,
        identify=identify,
        retries=RetryPolicy(generations=1),
    )
    await generator.open()
    (prepared,) = await generator.prepare([SourceText(text)])
    answer = await generator.answer(prepared, 0)
    if answer.error and not answer.is_retryable:
        raise answer.error  # nothing was answered: it says nothing of the model
    return answer.fault


class PassedTestsFile:
    """The passed tests of one model, in a small file of all; without the file, tests are run again and no more.

    Args:
        path: The file.
        identity: What decides how the model answers: its file, and how it is loaded.
    """

    def __init__(self, path: Path, *, identity: str) -> None:
        self._path = path
        self._identity = identity

    def has(self, key: str) -> bool:
        """Tell whether the model has passed this test."""
        return self._digest(key) in self._read()

    def add(self, key: str) -> None:
        """Remember that it has; the oldest are forgotten."""
        passed = self._digest(key)
        keys = [*(known for known in self._read() if known != passed), passed][-_MOST_REMEMBERED:]
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self._path.parent)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(keys, stream)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(self._path)

    def _digest(self, key: str) -> str:
        return hashlib.sha256(f"{self._identity} {key}".encode()).hexdigest()

    def _read(self) -> list[str]:
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return []
        return [key for key in found if isinstance(key, str)] if isinstance(found, list) else []
