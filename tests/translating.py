"""Translators on scripted models: run to the end, with a store that counts."""

from __future__ import annotations

from typing import Any

from hymt_local.engine.scripted import ScriptedBackend
from hymt_local.events import Event, Failed, Finished, TranslationRequest
from hymt_local.memory.phrase_cache import CachedPhrase
from hymt_local.translator import OpenModel, Translator
from tests.services import scripted_model


class MemoryStore:
    """A phrase store that counts."""

    def __init__(self) -> None:
        self.phrases: dict[tuple[str, str], str] = {}
        self.edits: dict[tuple[str, str, str], str] = {}

    def edited(self, source: str, *, source_lang: str, target_lang: str) -> str | None:
        return self.edits.get((source_lang, target_lang, source))

    def get(self, signature: str, source: str) -> CachedPhrase | None:
        target = self.phrases.get((signature, source))
        return None if target is None else CachedPhrase(target, created_at=0)

    def put(self, signature: str, source: str, *, target: str) -> None:
        self.phrases[signature, source] = target


async def events_of(model: OpenModel, wanted: TranslationRequest, **options: MemoryStore) -> list[Event]:
    translator = Translator(model, cache=options.get("cache"))
    try:
        return [event async for event in translator.run(wanted)]
    finally:
        await model.engine.close()


async def finished(model: OpenModel, wanted: TranslationRequest) -> Finished:
    last = (await events_of(model, wanted))[-1]
    assert isinstance(last, Finished)
    return last


async def failed_code(backend: ScriptedBackend, wanted: TranslationRequest, **changes: Any) -> str:
    last = (await events_of(scripted_model(backend, **changes), wanted))[-1]
    assert isinstance(last, Failed)
    return last.error.code
