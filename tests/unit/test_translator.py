from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hymt_local.coverage import Coverage
from hymt_local.engine.base import (
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    ModelInfo,
    TokensGenerated,
)
from hymt_local.engine.scripted import (
    Crash,
    Echo,
    Hang,
    Loop,
    Reply,
    ScriptedBackend,
    control_tokens,
    cut,
    empty,
    invalid_utf8,
    reply,
)
from hymt_local.errors import DecodeError, EngineLoadError, ModelFileError
from hymt_local.events import (
    Event,
    Failed,
    Finished,
    Origin,
    Priority,
    PromptProgress,
    SamplingParams,
    Started,
    TextDelta,
    TokenUsage,
    TranslationRequest,
)
from hymt_local.memory.phrase_cache import CachedPhrase
from hymt_local.translator import SEGMENTS_IN_FLIGHT, OpenModel, Translator
from tests.services import a_spec, request, scripted_model, settled, streamed


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


@dataclass(frozen=True)
class WordList(Coverage):
    """A domain of texts made of these words."""

    words: tuple[str, ...] = ()

    def gap(self, text: str, source_lang: str, *, target_lang: str | None = None) -> str | None:
        return next((word for word in text.split() if word not in self.words), None)


HELLO_ONLY = WordList(0.5, {}, (), words=("Hello",))


@dataclass(frozen=True)
class Phrases(Coverage):
    """A domain of whole texts, each in one language."""

    texts: tuple[tuple[str, str], ...] = ()
    targets: frozenset[str] | None = None

    def gap(self, text: str, source_lang: str, *, target_lang: str | None = None) -> str | None:
        is_target = self.targets is None or target_lang is None or target_lang in self.targets
        return None if is_target and (source_lang, text) in self.texts else text

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(lang for lang, _ in self.texts))


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


# What needs no engine


async def test_the_passthrough_cases_come_back_without_an_engine_call(shared_data: Path) -> None:
    lines = (shared_data / "behaviour" / "passthrough.jsonl").read_text(encoding="utf-8").splitlines()
    for case in map(json.loads, lines):
        if case["id"] == "empty":
            continue  # an error of its own
        backend = ScriptedBackend(Crash(DecodeError("called")))
        last = await finished(scripted_model(backend), request(case["source"], source_lang=None))
        assert (last.text, last.origin, last.source_lang) == (case["source"], Origin.SOURCE, "und")
        assert backend.calls.n_loaded == 0


@pytest.mark.parametrize("source_lang", ["fr", None])
async def test_a_text_in_the_target_language_stays_as_it_is(source_lang: str | None) -> None:
    backend = ScriptedBackend()
    text = "Bonjour, comment ça va ?\n"
    last = await finished(scripted_model(backend), request(text, "fr", source_lang=source_lang))
    assert (last.text, last.origin, last.source_lang) == (text, Origin.SOURCE, "fr")
    assert backend.calls.n_loaded == 0


async def test_simplified_and_traditional_chinese_are_two_languages() -> None:
    last = await finished(
        scripted_model(ScriptedBackend(reply("謝謝你"))), request("谢谢你", "zh-TW", source_lang="zh")
    )
    assert (last.text, last.target_lang) == ("謝謝你", "zh-Hant")


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (request(""), "empty_input"),
        (request("half a \ud83d pair"), "input_encoding"),
        (request("Hello", "Klingon"), "language"),
        (request("Hello", source_lang="xx"), "language"),
        (request("გამარჯობა", source_lang=None), "language"),
        (request("Hello", "ja"), "language"),
    ],
)
async def test_bad_requests_are_refused_before_the_engine(wanted: TranslationRequest, code: str) -> None:
    backend = ScriptedBackend()
    assert await failed_code(backend, wanted, languages=("en", "fr")) == code
    assert backend.calls.n_loaded == 0


async def test_started_tells_languages_confidence_and_segments() -> None:
    wanted = request("Good morning!\n 42 \nThank you.", source_lang=None)
    started = (await events_of(scripted_model(ScriptedBackend(reply("Merci"))), wanted))[0]
    assert isinstance(started, Started)
    assert (started.source_lang, started.target_lang, started.n_segments) == ("en", "fr", 3)
    assert started.detected_confidence is not None
    assert started.detected_confidence > 0.5
    assert [segment.source for segment in started.segments] == ["Good morning!", "42", "Thank you."]


# Segments


async def test_one_request_to_the_engine_per_line_and_one_tokenize_call() -> None:
    backend = ScriptedBackend(Echo(str.upper))
    last = await finished(scripted_model(backend), request("one\n\n\ttwo  \r\n3"))
    assert last.text == "ONE\n\n\tTWO  \r\n3"
    assert sorted(bytes(each.prompt) for each in backend.calls.requests) == [b"one", b"two"]
    assert backend.calls.tokenized == ["", "one", "two"]


async def test_a_sentence_model_gets_sentences() -> None:
    backend = ScriptedBackend(Echo(str.upper))
    last = await finished(scripted_model(backend, unit="sentence"), request("One. Two!  Three?\nFour"))
    assert last.text == "ONE. TWO!  THREE?\nFOUR"
    assert len(backend.calls.requests) == 4


async def test_equal_segments_are_generated_once() -> None:
    backend = ScriptedBackend(reply("Bonjour"))
    events = await events_of(scripted_model(backend), request("Hello\nHello\n Hello"))
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.text == "Bonjour\nBonjour\n Bonjour"
    assert len(backend.calls.requests) == 1
    assert last.usage.output_tokens == len("Bonjour")
    assert {done.segment: done.origin for done in settled(events)} == dict.fromkeys(range(3), Origin.MODEL)


async def test_a_long_text_is_split_to_the_budget_and_nothing_is_lost() -> None:
    backend = ScriptedBackend(Echo(str.upper))
    words = [f"word{number}" for number in range(60)]
    text = " ".join(words[:20]) + ". " + ", ".join(words[20:40]) + ". " + "x" * 150 + " " + " ".join(words[40:])
    events = await events_of(scripted_model(backend, max_segment_tokens=64), request(text))
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.text == text.upper()
    assert max(len(each.prompt) for each in backend.calls.requests) <= 64
    assert len(backend.calls.requests) < 20, "pieces are packed"
    assert streamed(events) == text.upper()
    assert len(settled(events)) == 1


async def test_a_small_context_bounds_prompt_and_answer_together() -> None:
    backend = ScriptedBackend(Echo(str.upper), context_length=200)
    text = "Some words. " * 40
    last = await finished(scripted_model(backend), request(text))
    assert last.text == text.upper()
    assert all(len(each.prompt) * 3 <= 200 for each in backend.calls.requests)
    assert all(len(each.prompt) + each.max_tokens <= 200 for each in backend.calls.requests)


async def test_a_context_too_small_for_anything_is_one_clear_error() -> None:
    assert await failed_code(ScriptedBackend(context_length=40), request("Hello")) == "context_overflow"


async def test_pieces_of_chinese_are_joined_as_the_target_language_asks() -> None:
    answers = [f"The {place} sentence is here." for place in ("first", "second", "third")]
    backend = ScriptedBackend(*map(reply, answers))
    text = "第一个句子在这里。第二个句子在这里。第三个句子在这里。"
    last = await finished(scripted_model(backend, max_segment_tokens=30), request(text, "en", source_lang="zh"))
    assert last.text == " ".join(answers)


# Generation


async def test_the_stream_joined_is_the_answer_even_when_characters_are_split() -> None:
    backend = ScriptedBackend(Reply("Ça va très bien 👩‍👩‍👧 你好".encode(), chunk=1))
    events = await events_of(scripted_model(backend), request("I am fine"))
    assert streamed(events) == "Ça va très bien 👩‍👩‍👧 你好"
    assert all("\ufffd" not in event.text for event in events if isinstance(event, TextDelta))
    assert any(isinstance(event, PromptProgress) for event in events)


async def test_outer_whitespace_of_an_answer_is_dropped() -> None:
    last = await finished(scripted_model(ScriptedBackend(reply("\n Bonjour \n"))), request("  Hello\t"))
    assert last.text == "  Bonjour\t"


@pytest.mark.parametrize("priority", Priority)
async def test_the_engine_learns_the_priority_and_gets_the_greedy_default(priority: Priority) -> None:
    backend = ScriptedBackend(reply("Bonjour"))
    await finished(scripted_model(backend), request("Hello", priority=priority))
    (sent,) = backend.calls.requests
    assert sent.priority is priority
    assert (sent.sampling.temperature, sent.sampling.repetition_penalty) == (0.0, 1.05)
    assert not sent.probabilities


async def test_the_stop_tokens_of_the_catalog_are_used_as_far_as_the_file_has_them() -> None:
    backend = ScriptedBackend(reply("Bonjour"), control_tokens={"<|eos|>": 250, "<|other|>": 251})
    await finished(scripted_model(backend, stop_tokens=("<|eos|>", "<|absent|>")), request("Hello"))
    assert backend.calls.requests[0].stop_ids == {250}


class CrowdEngine:
    """An engine that answers nobody before so many wait, and counts them."""

    def __init__(self) -> None:
        self.n_waiting = self.most_waiting = 0
        self._full = asyncio.Event()

    async def load(self, on_progress: Callable[[float], None] | None = None) -> ModelInfo:
        return ModelInfo("crowd", "none", 256, 4096, "none", "0" * 64)

    async def tokenize(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        return [tuple(text.encode()) for text in texts]

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationEvent, None]:
        self.n_waiting += 1
        self.most_waiting = max(self.most_waiting, self.n_waiting)
        if self.n_waiting == SEGMENTS_IN_FLIGHT:
            self._full.set()
        await self._full.wait()
        self.n_waiting -= 1
        yield TokensGenerated((1,), b"ok")
        yield GenerationDone(FinishReason.STOP, TokenUsage())

    async def close(self) -> None:
        pass


async def test_many_segments_are_in_flight_together_but_not_all() -> None:
    engine = CrowdEngine()
    wanted = request("\n".join(f"line {number}" for number in range(100)))
    last = await finished(OpenModel(a_spec(), engine), wanted)
    assert last.text == "\n".join(["ok"] * 100)
    assert engine.most_waiting == SEGMENTS_IN_FLIGHT


# What can go wrong with an answer


async def test_an_answer_that_was_cut_off_is_a_visible_failure_and_the_source_is_kept() -> None:
    backend = ScriptedBackend(cut("Bonj"), reply("Au revoir"))
    events = await events_of(scripted_model(backend), request("Hello\nGoodbye"))
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.text == "Hello\nAu revoir"
    (done,) = last.failed
    assert (done.source, done.target, done.origin) == ("Hello", "Hello", Origin.SOURCE)
    assert done.error is not None
    assert done.error.code == "segment_rejected"
    assert "cut off" in done.error.message
    assert len(backend.calls.requests) == 2, "the same request would be cut off again"


@pytest.mark.parametrize(
    "bad",
    [empty(), invalid_utf8(), control_tokens(), Loop("again and "), reply("Bon\n\njour"), reply("Bonjour %s")],
    ids=["empty", "invalid UTF-8", "control tokens", "loop", "lines", "placeholder"],
)
async def test_a_faulty_answer_is_tried_once_more_in_another_way(bad: Reply | Loop) -> None:
    backend = ScriptedBackend(bad, reply("Bonjour"))
    events = await events_of(scripted_model(backend), request("Hello"))
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.text, last.failed) == ("Bonjour", ())
    first, second = backend.calls.requests
    assert first.sampling.temperature == 0.0
    penalty = 1.15 if isinstance(bad, Loop) else 1.05
    assert second.sampling == SamplingParams(0.7, top_k=20, top_p=0.6, repetition_penalty=penalty, seed=1)
    assert "Bonjour" not in streamed(events).removesuffix("Bonjour %s"), "the second attempt is not streamed"


async def test_two_faulty_answers_keep_the_source() -> None:
    backend = ScriptedBackend(empty())
    assert await failed_code(backend, request("Hello")) == "segment_rejected"
    assert len(backend.calls.requests) == 2


async def test_a_loop_is_stopped_long_before_the_budget() -> None:
    backend = ScriptedBackend(Loop("again and "))
    events = await events_of(scripted_model(backend), request("Hello " * 20))
    assert isinstance(events[-1], Failed)
    assert len(streamed(events)) < backend.calls.requests[0].max_tokens / 4


async def test_an_engine_error_in_one_segment_fails_only_that_one() -> None:
    backend = ScriptedBackend(Crash(DecodeError("llama_decode failed"), b"Bon"), reply("Au revoir"))
    last = await finished(scripted_model(backend), request("Hello\nGoodbye"))
    assert last.text == "Hello\nAu revoir"
    assert [done.error.code for done in last.failed if done.error] == ["decode"]


async def test_any_exception_of_the_engine_is_a_typed_failure() -> None:
    assert await failed_code(ScriptedBackend(Crash(KeyError("surprise"))), request("Hello")) == "decode"
    assert await failed_code(ScriptedBackend(tokenize_error=KeyError("surprise")), request("Hello")) == "engine"


@pytest.mark.parametrize("error", [ModelFileError("truncated"), EngineLoadError("no memory")])
async def test_a_model_that_cannot_be_loaded_fails_the_job(error: ModelFileError | EngineLoadError) -> None:
    backend = ScriptedBackend(Crash(error))
    last = (await events_of(scripted_model(backend), request("Hello\nGoodbye")))[-1]
    assert last == Failed(error.report())


# The cache


async def test_the_second_time_comes_from_the_cache_without_loading_the_model() -> None:
    cache = MemoryStore()
    await events_of(scripted_model(ScriptedBackend(reply("Bonjour"))), request("Hello\n7"), cache=cache)
    backend = ScriptedBackend(Crash(DecodeError("called")))
    events = await events_of(scripted_model(backend), request(" Hello\n8\nHello"), cache=cache)
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.text, last.origin, last.usage) == (" Bonjour\n8\nBonjour", Origin.CACHE, TokenUsage())
    assert backend.calls.n_loaded == 0


@pytest.mark.parametrize(
    ("wanted", "changes"),
    [
        (request("Hello", "de"), {}),
        (request("Hello", sampling=SamplingParams(temperature=0.7)), {}),
        (request("Hello"), {"fingerprint": "e" * 64}),
        (request("Hello", use_cache=False), {}),
    ],
    ids=["language", "sampling", "model file", "not wanted"],
)
async def test_other_circumstances_miss_the_cache(wanted: TranslationRequest, changes: Mapping[str, Any]) -> None:
    cache = MemoryStore()
    await events_of(scripted_model(ScriptedBackend(reply("Bonjour"))), request("Hello"), cache=cache)
    backend = ScriptedBackend(reply("Neu"))
    events = await events_of(scripted_model(backend, **changes), wanted, cache=cache)
    assert [done.origin for done in settled(events)] == [Origin.MODEL]


@pytest.mark.parametrize(
    "script",
    [
        [cut("Bonj")],
        [empty()],
        [invalid_utf8()],
        [control_tokens()],
        [Crash(DecodeError("x"), b"Bon")],
        [empty(), reply("Ok")],
    ],
    ids=["cut off", "empty", "invalid", "control tokens", "crash", "second attempt"],
)
async def test_only_verified_first_answers_are_remembered(script: list[Reply | Crash]) -> None:
    cache = MemoryStore()
    await events_of(scripted_model(ScriptedBackend(*script)), request("Hello"), cache=cache)
    assert cache.phrases == {}


async def test_nothing_is_remembered_when_the_cache_is_not_wanted() -> None:
    cache = MemoryStore()
    backend = ScriptedBackend(reply("Bonjour"))
    await events_of(scripted_model(backend), request("Hello", use_cache=False), cache=cache)
    assert cache.phrases == {}


async def test_a_long_segment_is_remembered_whole() -> None:
    cache = MemoryStore()
    text = "Some words. " * 20
    model = scripted_model(ScriptedBackend(Echo(str.upper)), max_segment_tokens=64)
    await events_of(model, request(text), cache=cache)
    backend = ScriptedBackend()
    events = await events_of(scripted_model(backend, max_segment_tokens=64), request(text), cache=cache)
    assert settled(events)[0].origin is Origin.CACHE
    assert backend.calls.n_loaded == 0


@pytest.mark.parametrize(("found", "expected"), [(3, "model_unsupported"), (127960, None)])
async def test_a_file_with_the_vocabulary_of_another_model_is_refused(found: int, expected: str | None) -> None:
    backend = ScriptedBackend(reply("Bonjour"), control_tokens={"<|eos|>": found})
    model = scripted_model(backend, control_ids={"<|eos|>": 127960, "<|not in this file|>": 5})
    last = (await events_of(model, request("Hello")))[-1]
    assert (last.error.code if isinstance(last, Failed) else None) == expected


# A model with a closed domain


async def test_what_the_demo_does_not_cover_is_refused_without_loading_it() -> None:
    backend = ScriptedBackend(reply("Bonjour"))
    model = scripted_model(backend, coverage=HELLO_ONLY, kind="demo")
    last = (await events_of(model, request("Hello unknown")))[-1]
    assert isinstance(last, Failed)
    assert last.error.code == "not_covered"
    assert "'unknown'" in last.error.message
    assert "hymt models pull" in last.error.hint
    assert last.error.exit_status == 3
    assert backend.calls.n_loaded == 0


async def test_a_phrase_that_the_demo_knows_in_other_languages_only_is_refused_with_the_language() -> None:
    coverage = Phrases(0.5, {}, (), texts=(("en", "Hello"),), targets=frozenset({"fr"}))
    model = scripted_model(ScriptedBackend(reply("Ciao")), coverage=coverage, kind="demo")
    last = (await events_of(model, request("Hello", target_lang="it")))[-1]
    assert isinstance(last, Failed)
    assert last.error.message == "the demo phrasebook does not cover 'Hello' in Italian"


async def test_a_partly_covered_text_is_translated_as_far_as_it_goes() -> None:
    model = scripted_model(ScriptedBackend(reply("Bonjour")), coverage=HELLO_ONLY, kind="demo")
    last = await finished(model, request("Hello\nunknown\n5"))
    assert last.text == "Bonjour\nunknown\n5"
    assert [done.error.code for done in last.failed if done.error] == ["not_covered"]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ((("es", "No."),), ("es", 1.0)),
        ((("pt", "No."), ("es", "No.")), ("es", 0.5)),  # the phrase languages come in the catalog's order
        ((), ("en", None)),
    ],
)
async def test_a_closed_domain_knows_the_language_of_its_short_phrases(
    known: tuple[tuple[str, str], ...], expected: tuple[str, float | None]
) -> None:
    coverage = Phrases(0.5, {}, (), texts=known)
    model = scripted_model(
        ScriptedBackend(reply("Non.")), coverage=coverage, kind="demo", full_languages=("en", "fr", "es", "pt")
    )
    started = (await events_of(model, request("No.", source_lang=None)))[0]
    assert isinstance(started, Started)
    assert started.source_lang == expected[0]
    if expected[1] is not None:
        assert started.detected_confidence == expected[1]


async def test_an_improbable_answer_of_the_demo_is_refused() -> None:
    unsure = replace(reply("Bonjour"), probability=0.3)
    backend = ScriptedBackend(unsure)
    model = scripted_model(backend, coverage=HELLO_ONLY, kind="demo")
    last = (await events_of(model, request("Hello")))[-1]
    assert isinstance(last, Failed)
    assert last.error.code == "not_covered"
    assert [sent.probabilities for sent in backend.calls.requests] == [True]


# Cancellation


async def test_closing_the_events_cancels_what_the_engine_does() -> None:
    hang = Hang()
    backend = ScriptedBackend(hang, reply("Bonjour"))
    model = scripted_model(backend)
    translator = Translator(model)
    async with aclosing(translator.run(request("Hello\nGoodbye\nThanks"))) as events:
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.to_thread(hang.started.wait, 10)
        await waiting
    assert [event async for event in translator.run(request("Hello"))][-1]
    assert len(backend.calls.requests) == 2, "the segments that waited were withdrawn"
    await model.engine.close()


async def test_an_engine_that_closes_meanwhile_fails_the_segment() -> None:
    backend = ScriptedBackend(Reply(b"Bon", FinishReason.CANCELLED))
    assert await failed_code(backend, request("Hello")) == "decode"


async def test_an_edit_of_a_person_wins_over_the_cache_and_the_model() -> None:
    store = MemoryStore()
    store.edits["en", "fr", "Hello"] = "Salut"
    events = await events_of(scripted_model(ScriptedBackend()), request("Hello\n8"), cache=store)
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.text, last.origin) == ("Salut\n8", Origin.CACHE)
    fresh = request("Hello", use_cache=False)
    events = await events_of(scripted_model(ScriptedBackend(reply("Bonjour"))), fresh, cache=store)
    assert settled(events)[0].target == "Bonjour"
