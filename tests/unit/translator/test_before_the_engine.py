"""What a translator settles or refuses without its engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hymt_local.engine.scripted import Crash, ScriptedBackend, reply
from hymt_local.errors import DecodeError
from hymt_local.events import Origin, Started, TranslationRequest
from tests.services import request, scripted_model
from tests.translating import events_of, failed_code, finished


async def test_f_6_the_passthrough_cases_come_back_without_an_engine_call(shared_data: Path) -> None:
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


@pytest.mark.parametrize(
    ("text", "source_lang", "doubt"),
    [
        ("今天天气很好。", "en", "the text is not in the script of English, the source language that was named"),
        ("Guten Morgen", "en", ""),
        ("Guten Morgen", "ru", "the text is not in the script of Russian, the source language that was named"),
        ("今天天气很好。", "zh", ""),
        ("今日は", "ja", ""),
        ("12 %", "ru", ""),
    ],
)
async def test_l_3_the_named_language_wins_and_another_script_only_warns(
    text: str, source_lang: str, doubt: str
) -> None:
    model = scripted_model(ScriptedBackend(reply("Bonjour, il fait beau.")))
    events = await events_of(model, request(text, source_lang=source_lang))
    started = next(event for event in events if isinstance(event, Started))
    assert (started.doubt, started.detected_confidence) == (doubt, None)
