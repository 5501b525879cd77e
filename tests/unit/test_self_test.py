"""F-11: a model whose answers are garbage is refused before it translates anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest

from hymt_local.application import open_application
from hymt_local.engine.scripted import (
    Crash,
    Echo,
    Loop,
    ScriptedBackend,
    control_tokens,
    cut,
    empty,
    invalid_utf8,
    reply,
)
from hymt_local.errors import DecodeError
from hymt_local.events import Event, Failed, Finished
from hymt_local.planning import OpenModel
from hymt_local.self_test import MOST_MISSED, SENTENCES, PassedTestsFile
from hymt_local.translator import Translator
from tests.services import request, scripted_model

ANSWERS = (
    "图书馆早上九点开门，晚上六点关门。",
    "The library opens at nine in the morning, closes at six in the evening, and is not open on Sundays.",
    "Ma sœur a acheté du pain frais et du fromage au marché avant de rentrer déjeuner avec nous à la maison.",
    "The train to Hamburg leaves from another platform today and arrives half an hour later than planned.",
    "一晩中雨が降っていたので、子どもたちは家の中にいて、窓のそばで本を読みました。",
    "Yesterday we walked in the park for a long time and then drank hot tea in a small café by the river.",
)
OTHER = "Bonjour"
N_ENOUGH = len(SENTENCES) - MOST_MISSED


def translated(prompt: str, *, missing: Sequence[int] = ()) -> str:
    """Answer the sentences well, but for some."""
    for place, ((_, _, text), answer) in enumerate(zip(SENTENCES, ANSWERS, strict=True)):
        if text in prompt:
            return "onse }" if place in missing else answer
    return OTHER


def under_test(tmp_path: Path, backend: ScriptedBackend, *, identity: str = "file") -> OpenModel:
    return replace(scripted_model(backend), passed_tests=PassedTestsFile(tmp_path / "tests.json", identity=identity))


async def last_of(model: OpenModel) -> Event:
    try:
        *_, last = [event async for event in Translator(model).run(request("Good morning", "fr"))]
        return last
    finally:
        await model.engine.close()


async def test_f_11_a_sound_model_passes_once_and_translates(tmp_path: Path) -> None:
    for n_generations in (N_ENOUGH + 1, 1):
        backend = ScriptedBackend(Echo(translated))
        last = await last_of(under_test(tmp_path, backend))
        assert isinstance(last, Finished)
        assert last.text == OTHER
        assert len(backend.calls.requests) == n_generations


async def test_f_11_another_file_or_way_of_loading_is_tested_again(tmp_path: Path) -> None:
    for identity in ("file", "file on the GPU"):
        backend = ScriptedBackend(Echo(translated))
        await last_of(under_test(tmp_path, backend, identity=identity))
        assert len(backend.calls.requests) == N_ENOUGH + 1


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (reply("onse }"), "ratio"),
        (Echo(), "wrong_language"),
        (empty(), "empty"),
        (Loop(), "loop"),
        (cut("Une bibliothèque"), "cut_off"),
        (control_tokens(), "placeholder"),
        (invalid_utf8(), "encoding"),
        (reply("यह पुस्तकालय सुबह नौ बजे खुलता है और शाम को छह बजे बंद हो जाता है, रविवार को नहीं।"), "wrong_script"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
async def test_f_11_garbage_is_refused_and_the_failed_checks_are_told(
    tmp_path: Path, behaviour: Echo, code: str
) -> None:
    last = await last_of(under_test(tmp_path, ScriptedBackend(behaviour)))
    assert isinstance(last, Failed)
    assert last.error.code == "model_unsupported"
    assert f" {code}" in last.error.message
    assert "self_test" in last.error.hint
    assert not (tmp_path / "tests.json").exists()


@pytest.mark.parametrize("missing", [each for n in range(7) for each in combinations(range(6), n)])
async def test_f_11_a_weak_model_may_miss_half_of_them_whichever_they_are(
    tmp_path: Path, missing: tuple[int, ...]
) -> None:
    def answer(prompt: str) -> str:
        return translated(prompt, missing=missing)

    last = await last_of(under_test(tmp_path, ScriptedBackend(Echo(answer))))
    assert isinstance(last, Finished if len(missing) <= MOST_MISSED else Failed)


async def test_f_11_an_engine_that_fails_says_nothing_of_the_model(tmp_path: Path) -> None:
    fault = DecodeError("llama_decode returned -3", hint="try again")
    last = await last_of(under_test(tmp_path, ScriptedBackend(Crash(fault))))
    assert isinstance(last, Failed)
    assert (last.error.code, last.error.message) == ("decode", "llama_decode returned -3")


@pytest.mark.parametrize("languages", [("en", "zh"), ("en", "fr"), ("pl", "cs")])
async def test_f_11_a_model_of_few_languages_is_refused_for_all_of_its_sentences_only(
    tmp_path: Path, languages: tuple[str, ...]
) -> None:
    n_sentences = sum({source, target} <= set(languages) for source, target, _ in SENTENCES)
    for missing in range(n_sentences + 1):
        places = [place for place, (*pair, _) in enumerate(SENTENCES) if set(pair) <= set(languages)][:missing]
        backend = ScriptedBackend(Echo(partial(translated, missing=places)))
        passed = PassedTestsFile(tmp_path / f"{missing}.json", identity="file")
        model = replace(scripted_model(backend, languages=languages), passed_tests=passed)
        try:
            wanted = request("Good morning", languages[1], source_lang=languages[0])
            *_, last = [event async for event in Translator(model).run(wanted)]
        finally:
            await model.engine.close()
        assert isinstance(last, Failed if missing == n_sentences > 1 else Finished), (languages, missing)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, null]", b"\xff", b"[" * 10_000])
def test_f_11_a_damaged_record_means_another_test(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tests.json"
    path.write_bytes(content)
    passed = PassedTestsFile(path, identity="file")
    assert not passed.has("a")
    passed.add("a")
    assert passed.has("a")
    assert not PassedTestsFile(path, identity="other").has("a")


def test_f_11_the_demo_and_engines_without_a_model_need_no_test(isolated_environment: Path) -> None:
    environ = {"HYMT_HOME": str(isolated_environment)}
    assert open_application(environ).open_model("demo").passed_tests is None
    assert open_application(environ).open_model("echo").passed_tests is None
