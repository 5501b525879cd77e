"""How a translator cuts a text into requests, and joins the answers."""

from __future__ import annotations

from hymt_local.engine.scripted import Echo, ScriptedBackend, reply
from hymt_local.events import Finished, Origin
from tests.services import request, scripted_model, settled, streamed
from tests.translating import events_of, failed_code, finished


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


async def test_s_7_equal_segments_are_generated_once() -> None:
    backend = ScriptedBackend(reply("Bonjour"))
    events = await events_of(scripted_model(backend), request("Hello\nHello\n Hello"))
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.text == "Bonjour\nBonjour\n Bonjour"
    assert len(backend.calls.requests) == 1
    assert last.usage.output_tokens == len("Bonjour")
    assert {done.segment: done.origin for done in settled(events)} == dict.fromkeys(range(3), Origin.MODEL)


async def test_s_3_a_long_text_is_split_to_the_budget_and_nothing_is_lost() -> None:
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


async def test_s_3_a_small_context_bounds_prompt_and_answer_together() -> None:
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
