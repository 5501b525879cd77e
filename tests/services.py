"""What the tests of the core are built from: catalog entries, scripted models and services around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hymt_local.catalog import ALL_TAGS, Licence, ModelSpec, Sampling
from hymt_local.coverage import Coverage
from hymt_local.engine.echo import EchoBackend
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.engine.scripted import Behaviour, ScriptedBackend, open_scripted
from hymt_local.events import Event, SegmentDone, TextDelta, TranslationRequest
from hymt_local.jobs import LocalService
from hymt_local.translator import OpenModel


def a_spec(**changes: Any) -> ModelSpec:
    """Return a catalog entry whose prompt is the source text itself, so that token counts are byte counts."""
    fields: dict[str, Any] = {
        "id": "scripted",
        "title": "Scripted",
        "kind": "translation",
        "licence": Licence("Apache-2.0", "Apache License 2.0"),
        "tokenizer": "none",
        "template_set": "plain",
        "chat": "plain",
        "sampling": Sampling(temperature=0.7, top_p=0.6, top_k=20, repetition_penalty=1.05),
        "max_segment_tokens": 1024,
        "context_length": 4096,
        "languages": ALL_TAGS,
    }
    return ModelSpec(**{**fields, **changes})


def scripted_model(
    backend: ScriptedBackend, *, coverage: Coverage | None = None, fingerprint: str = "f" * 64, **changes: Any
) -> OpenModel:
    engine = ThreadedEngine(open_scripted(backend), name="scripted")
    return OpenModel(a_spec(**changes), engine, coverage=coverage, fingerprint=fingerprint, quantization="none")


def scripted_service(
    *script: Behaviour, cache_path: Path | None = None, context_length: int = 4096, **changes: Any
) -> tuple[LocalService, ScriptedBackend]:
    backend = ScriptedBackend(*script, context_length=context_length)
    model = scripted_model(backend, **changes)
    return LocalService(lambda ref: model, cache_path=cache_path), backend


def echo_model(transform: Callable[[str], str] = str, **changes: Any) -> OpenModel:
    engine = ThreadedEngine(lambda on_progress: EchoBackend(transform), name="echo")
    spec = a_spec(**{"id": "echo", "kind": "test", "max_segment_tokens": 16384, "context_length": 65536, **changes})
    return OpenModel(spec, engine, fingerprint="echo", quantization="none")


def request(
    text: str, target_lang: str = "fr", *, source_lang: str | None = "en", **changes: Any
) -> TranslationRequest:
    return TranslationRequest(text, target_lang, source_lang, **changes)


def settled(events: Iterable[Event]) -> list[SegmentDone]:
    return [event for event in events if isinstance(event, SegmentDone)]


def streamed(events: Iterable[Event], *, segment: int = 0) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta) and event.segment == segment)
