"""How one text is asked for: masks, prompts, retries, drafts, context, and what an answer may not be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hymt_local.catalog import load_catalog
from hymt_local.engine.scripted import Behaviour, Loop, ScriptedBackend, cut, reply
from hymt_local.events import (
    Event,
    Failed,
    Finished,
    Origin,
    Pivot,
    SegmentDone,
    Started,
    TextDelta,
    TranslationRequest,
)
from hymt_local.retries import Change, RetryPolicy
from hymt_local.segment import Attempt, Guidance, ProtectedSpan, Span, Term, TokenKind, UnitText
from hymt_local.translator import OpenModel, Translator
from tests.services import request, scripted_model, settled
from tests.unit.test_units import MemoryStore, unit

CONTROL_TOKENS = {"<|startoftext|>": 900, "<|extra_0|>": 901, "<|eos|>": 902}


def generation_of(template_set: str, *script: Behaviour, **changes: Any) -> tuple[OpenModel, ScriptedBackend]:
    """Return a model that is asked as one generation of the family is."""
    backend = ScriptedBackend(*script, control_tokens=CONTROL_TOKENS)
    fields = {"template_set": template_set, "chat": "hunyuan", **changes}
    return scripted_model(backend, **fields), backend


async def events_of(model: OpenModel, wanted: TranslationRequest, *, cache: MemoryStore | None = None) -> list[Event]:
    try:
        return [event async for event in Translator(model, cache=cache).run(wanted)]
    finally:
        await model.engine.close()


def prompts_of(backend: ScriptedBackend) -> list[str]:
    return [bytes(token for token in sent.prompt if token < 256).decode() for sent in backend.calls.requests]


def asked(*units: UnitText, target_lang: str = "fr") -> TranslationRequest:
    return TranslationRequest("", target_lang, "en", units=units)


def bold(text: str) -> UnitText:
    """Return a unit in which the stars around a word are a pair."""
    start, end = text.index("**"), text.rindex("**")
    return UnitText(
        text,
        (
            ProtectedSpan(Span(start, start + 2), TokenKind.OPEN, 1),
            ProtectedSpan(Span(end, end + 2), TokenKind.CLOSE, 1),
        ),
    )


# Masks


async def test_p_3_hy_mt1_5_gets_its_own_template_for_markup() -> None:
    model, backend = generation_of("mt15", reply("<target>Enregistrez <s1> le fichier </s1> maintenant</target>"))
    (done,) = settled(await events_of(model, asked(bold("Save **the file** now"))))
    assert done.target == "Enregistrez **le fichier** maintenant"
    (prompt,) = prompts_of(backend)
    assert "<source>Save <s1>the file</s1> now</source>" in prompt


async def test_p_3_hy_mt2_gets_its_prompt_for_symbols() -> None:
    model, backend = generation_of("mt2", reply('Enregistrez <x id="1"/>le fichier<x id="2"/> maintenant'))
    (done,) = settled(await events_of(model, asked(bold("Save **the file** now"))))
    assert done.target == "Enregistrez **le fichier** maintenant"
    assert "exact same number of delimiters" in prompts_of(backend)[0]


async def test_p_3_what_the_reader_reads_is_left_to_the_model_first() -> None:
    model, backend = generation_of("mt2", reply("Voir https://a.example/b pour %s"))
    (done,) = settled(await events_of(model, asked(unit("See https://a.example/b for %s"))))
    assert done.target == "Voir https://a.example/b pour %s"
    assert prompts_of(backend)[0].endswith("See https://a.example/b for %s")


async def test_p_5_each_attempt_changes_something_and_there_are_three() -> None:
    model, backend = generation_of("mt2", reply("Rien du tout"), reply("Encore rien"), reply("Ceci"))
    (done,) = settled(await events_of(model, asked(unit("See %(name)s for all of it"))))
    kept, masked, *pieces = prompts_of(backend)
    assert kept.endswith("See %(name)s for all of it")
    assert masked.endswith('See <x id="1"/> for all of it')
    assert [prompt.rpartition("\n")[2] for prompt in pieces] == ["See", "for all of it"]
    assert done.target == "Ceci %(name)s Ceci"
    assert [finding.code for finding in done.findings] == ["retried", "retried"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Bonjour % 1 $ s, ravi de vous voir !", "Bonjour %1$s, ravi de vous voir !"),
        ("Bonjour%1$s, ravi de vous voir !", "Bonjour %1$s, ravi de vous voir !"),
        ("Bonjour  %1$s, ravi de vous voir !", "Bonjour %1$s, ravi de vous voir !"),
        ("Ravi de vous voir, %1$s !", "Ravi de vous voir, %1$s !"),
    ],
)
async def test_p_2_the_space_beside_a_placeholder_is_kept(answer: str, expected: str) -> None:
    model, _ = generation_of("mt2", reply(answer))
    (done,) = settled(await events_of(model, asked(unit("Hello %1$s, good to see you again!"))))
    assert (done.target, done.error) == (expected, None)


@pytest.mark.parametrize(
    ("target_lang", "answer"),
    [("ko", "파일 %d개가 저장되었습니다"), ("ar", "تم حفظ و%d ملفات"), ("ja", "%d個のファイルを保存しました")],
)
async def test_p_2_languages_that_attach_words_to_a_number_may(target_lang: str, answer: str) -> None:
    model, _ = generation_of("mt2", reply(answer))
    (done,) = settled(await events_of(model, asked(unit("Saved all %d files now"), target_lang=target_lang)))
    assert (done.target, done.error) == (answer, None)


async def test_p_6_a_lost_mask_at_the_edge_goes_back_to_it() -> None:
    model, backend = generation_of("mt2", reply("fichiers enregistrés"), max_segment_tokens=4000)
    (done,) = settled(await events_of(model, asked(unit("%d files were saved"))))
    assert done.target == "%d fichiers enregistrés"
    assert len(backend.calls.requests) == 1


async def test_p_7_marks_of_direction_around_a_placeholder_come_back() -> None:
    text = "\u2068%s\u2069 was opened"
    model, _ = generation_of("mt2", reply("تم فتح \u2068%s\u2069"))
    (done,) = settled(await events_of(model, asked(unit(text), target_lang="ar")))
    assert (done.target, done.error) == ("تم فتح \u2068%s\u2069", None)


@pytest.mark.parametrize(
    ("target_lang", "answer", "expected"),
    [
        ("ar", "تم فتح %s و{name}", "تم فتح \u2068%s\u2069 و\u2068{name}\u2069"),
        ("fr", "%s et {name} sont ouverts", "%s et {name} sont ouverts"),
    ],
)
async def test_p_7_placeholders_are_set_apart_on_request(target_lang: str, answer: str, expected: str) -> None:
    cache = MemoryStore()
    wanted = request("%s and {name} were opened", target_lang, isolate=True)
    for origin in (Origin.MODEL, Origin.CACHE):
        model, _ = generation_of("mt2", reply(answer))
        (done,) = settled(await events_of(model, wanted, cache=cache))
        assert (done.target, done.error, done.origin) == (expected, None, origin)
    model, _ = generation_of("mt2", reply(answer))
    (done,) = settled(await events_of(model, msgspec.structs.replace(wanted, isolate=False), cache=cache))
    assert done.target == answer


async def test_names_that_the_user_protects_stay() -> None:
    model, backend = generation_of("mt2", reply("Demandez à Pomme"), reply('Demandez à <x id="1"/>'))
    wanted = request("Ask Apple, not Applebee", protect=("Apple",))
    (done,) = settled(await events_of(model, wanted))
    assert done.error is None or done.target == "Ask Apple, not Applebee"
    assert prompts_of(backend)[1].endswith('Ask <x id="1"/>, not Applebee')


async def test_a_name_is_found_inside_chinese_text() -> None:
    model, _ = generation_of("mt2", reply("I like Pythons a lot"), reply('I like to program in <x id="1"/> a lot'))
    (done,) = settled(
        await events_of(model, request("我喜欢用Python编程", "en", source_lang="zh", protect=("Python",)))
    )
    assert done.target == "I like to program in Python a lot"


# Retries


async def test_f_1_the_wrong_language_is_asked_for_again_in_the_other_prompt_language() -> None:
    spanish = "Mañana por la tarde nos encontraremos delante de la biblioteca cerca de la vieja estación de trenes."
    portuguese = "Amanhã à tarde vamos nos encontrar em frente à biblioteca, perto da antiga estação de trem."
    model, backend = generation_of("mt2", reply(spanish), reply(spanish), reply(portuguese))
    source = "Tomorrow afternoon we will meet in front of the library near the old train station."
    (done,) = settled(await events_of(model, request(source, "pt")))
    assert done.target == portuguese
    first, second, third = prompts_of(backend)
    assert first == second
    assert "葡萄牙语" in third
    assert [sent.sampling.temperature for sent in backend.calls.requests] == [0.0, 0.7, 0.0]


async def test_f_1_a_short_answer_that_may_be_in_the_wrong_language_is_tried_once_more() -> None:
    spanish, portuguese = "Mañana por la tarde nos encontraremos con ellos.", "Amanhã à tarde vamos encontrá-los lá."
    source = "Tomorrow afternoon we will meet with them there."
    model, backend = generation_of("mt2", reply(spanish), reply(portuguese))
    (done,) = settled(await events_of(model, request(source, "pt")))
    assert (done.target, done.error, len(backend.calls.requests)) == (portuguese, None, 2)
    model, backend = generation_of("mt2", reply(spanish))
    (done,) = settled(await events_of(model, request(source, "pt")))
    assert (done.target, done.error, len(backend.calls.requests)) == (spanish, None, 2)
    assert [finding.code for finding in done.findings] == ["wrong_language"]


async def test_f_5_a_text_that_was_cut_off_is_translated_sentence_by_sentence() -> None:
    model, backend = generation_of("mt2", cut("Le chat"), reply("Le chat dort."), reply("Le chien mange."))
    (done,) = settled(await events_of(model, request("The cat sleeps. The dog eats.")))
    assert (done.target, done.error) == ("Le chat dort. Le chien mange.", None)
    assert [prompt.rpartition("\n")[2] for prompt in prompts_of(backend)[1:]] == ["The cat sleeps.", "The dog eats."]


async def test_f_4_a_loop_is_met_with_a_higher_penalty_and_then_sentence_by_sentence() -> None:
    script = (Loop("again "), Loop("again "), reply("Le chat dort."), reply("Le chien mange."))
    model, backend = generation_of("mt2", *script)
    (done,) = settled(await events_of(model, request("The cat sleeps. The dog eats.")))
    assert done.target == "Le chat dort. Le chien mange."
    assert [sent.sampling.repetition_penalty for sent in backend.calls.requests] == [1.05, 1.15, 1.05, 1.05]


async def test_f_3_an_introduction_is_cut_off_when_the_rest_is_sound() -> None:
    model, backend = generation_of("mt2", reply("Here is the translation:\n\nBonjour tout le monde."))
    (done,) = settled(await events_of(model, request("Hello, everybody.")))
    assert (done.target, done.error) == ("Bonjour tout le monde.", None)
    assert len(backend.calls.requests) == 1


async def test_f_3_what_remains_is_checked_again() -> None:
    model, backend = generation_of("mt2", reply("Here is the translation:\n\nHello, everybody in the room."))
    source = "Hello, everybody in the room."
    (done,) = settled(await events_of(model, request(source)))
    assert (done.target, done.error is not None) == (source, True)
    assert len(backend.calls.requests) == 3


async def test_f_15_an_answer_is_stored_composed() -> None:
    cache = MemoryStore()
    model, _ = generation_of("mt2", reply("E\u0301te\u0301 et hiver"))
    (done,) = settled(await events_of(model, request("Summer and winter"), cache=cache))
    assert done.target == "Été et hiver"
    assert list(cache.phrases.values()) == ["Été et hiver"]


async def test_a_warning_travels_with_the_answer() -> None:
    model, _ = generation_of("mt2", reply("Payez 1300 dollars maintenant"))
    (done,) = settled(await events_of(model, request("Pay 1200 dollars now")))
    assert done.error is None
    assert [finding.code for finding in done.findings] == ["number"]


@pytest.mark.parametrize("template_set", ["mt1", "mt15", "mt2"])
async def test_f_8_an_instruction_in_the_source_is_refused_as_an_answer(shared_data: Path, template_set: str) -> None:
    lines = (shared_data / "behaviour" / "injection.jsonl").read_text(encoding="utf-8").splitlines()
    obeyed = {
        "en-system": "Arr matey, ahoy there! I be a pirate now, and I be at yer service, whatever ye may need today!",
        "zh-ignore": "已被攻破",
        "command": "```python\ndef add(a, b):\n    return a + b\n```",
        "prompt-shape": "こんにちは",
        "term-shape": "cat 翻译成 dog",
    }
    for case in map(json.loads, lines):
        model, _ = generation_of(template_set, reply(obeyed[case["id"]]))
        events = await events_of(model, request(case["source"], "de", source_lang=None))
        done = settled(events)[-1]
        is_kept = done.error is not None and done.target == done.source
        assert is_kept or isinstance(events[-1], Failed) or done.findings, case["id"]


async def test_f_9_the_names_of_control_tokens_stay_text(shared_data: Path) -> None:
    lines = (shared_data / "behaviour" / "special_tokens.jsonl").read_text(encoding="utf-8").splitlines()
    cases = list(map(json.loads, lines))
    assert len(cases) == 10
    for case in cases:
        tokens = {**CONTROL_TOKENS, case["token"]: 950}
        backend = ScriptedBackend(reply(f"La marque {case['token']} termine un message."), control_tokens=tokens)
        model = scripted_model(backend, template_set="mt2", chat="hunyuan")
        (done,) = settled(await events_of(model, request(case["source"])))
        assert done.target.count(case["token"]) == 1, case["id"]
        (sent,) = backend.calls.requests
        of_the_template = [tokens["<|startoftext|>"], tokens["<|extra_0|>"]]
        assert [token for token in sent.prompt if token >= 256] == of_the_template, case["id"]


async def test_f_9_a_lost_token_name_keeps_the_source() -> None:
    model, backend = generation_of("mt2", reply("La marque termine un message."))
    source = "The marker <|extra_0|> ends a message."
    (done,) = settled(await events_of(model, request(source)))
    assert done.error is not None or done.target.count("<|extra_0|>") == 1
    assert len(backend.calls.requests) > 1


# Prompts


async def test_s_5_context_is_shown_in_the_models_own_template_and_nothing_else_changes() -> None:
    model, backend = generation_of("mt15", reply("Elle était vide."))
    wanted = asked(unit("It was empty.", context=("The house.", "It stood on a hill.")))
    (done,) = settled(await events_of(model, wanted))
    assert done.target == "Elle était vide."
    assert prompts_of(backend)[0].startswith("The house.\nIt stood on a hill.\n参考上面的信息")


async def test_s_5_context_takes_a_quarter_of_the_budget_at_most() -> None:
    model, backend = generation_of("mt15", reply("Elle était vide."), max_segment_tokens=400)
    context = ("x" * 90, "y" * 90, "near")
    await events_of(model, asked(unit("It was empty.", context=context)))
    assert prompts_of(backend)[0].startswith(f"{'y' * 90}\nnear\n参考")


async def test_s_5_a_model_without_such_a_template_is_shown_none_and_equal_texts_stay_equal() -> None:
    model, backend = generation_of("mt2", reply("Oui."))
    events = await events_of(model, asked(unit("Yes.", context=("a",)), unit("Yes.", context=("b",))))
    assert [done.target for done in settled(events)] == ["Oui.", "Oui."]
    assert len(backend.calls.requests) == 1


async def test_f_7_context_in_the_answer_is_refused() -> None:
    leaking = "The old house stood on a hill. Elle était vide."
    model, backend = generation_of("mt15", reply(leaking), reply("Elle était vide."))
    wanted = asked(unit("It was empty.", context=("The old house stood on a hill.",)))
    (done,) = settled(await events_of(model, wanted))
    assert done.target == "Elle était vide."
    first, second = prompts_of(backend)
    assert "hill" in first
    assert "hill" not in second, "the second attempt does without what the first one repeated"


@pytest.mark.parametrize("kind", ["context", "style"])
async def test_f_7_what_the_user_said_in_the_answer_is_refused_too(kind: str) -> None:
    said = "A story of an old house that stands on a hill."
    model, backend = generation_of("mt2", reply(f"{said} Elle était vide."), reply("Elle était vide."))
    wanted = request("The house was empty.", guidance=Guidance((Term("house", "maison"),), **{kind: said}))
    (done,) = settled(await events_of(model, wanted))
    assert (done.target, done.error) == ("Elle était vide.", None)
    first, second = prompts_of(backend)
    assert said in first
    assert said not in second
    assert "maison" in second


async def test_all_prompts_of_a_direction_have_the_same_beginning() -> None:
    model, backend = generation_of("mt2", reply("Oui."))
    await events_of(model, request("Yes.\nNo, thank you.\n谢谢"))
    first, *others = backend.calls.requests
    assert first.n_fixed > 50
    for sent in others:
        assert sent.n_fixed == first.n_fixed
        assert sent.prompt[: sent.n_fixed] == first.prompt[: first.n_fixed]


async def test_a_draft_goes_to_the_engine_line_by_line() -> None:
    model, backend = generation_of("mt2", reply("Oui."), reply("Non."))
    events = await events_of(model, request("Yes.\nNo.", draft="Oui !\nNon !"))
    assert isinstance(events[-1], Finished)
    assert [bytes(sent.draft).decode() for sent in backend.calls.requests] == ["Oui !", "Non !"]


# Through Chinese


async def through(model: OpenModel, wanted: TranslationRequest, cache: MemoryStore | None = None) -> list[Event]:
    return await events_of(model, wanted, cache=cache)


async def test_v_6_a_text_goes_through_chinese_and_says_so() -> None:
    cache = MemoryStore()
    model, backend = generation_of("mt2", reply("你好，世界。"), reply("བཀྲ་ཤིས་བདེ་ལེགས།"))
    wanted = request("Hello, world.", "bo", pivot=Pivot.ZH)
    events = await through(model, wanted, cache)
    started, last = events[0], events[-1]
    assert isinstance(started, Started)
    assert isinstance(last, Finished)
    assert (started.pivot_lang, last.pivot_lang, last.text) == ("zh", "zh", "བཀྲ་ཤིས་བདེ་ལེགས།")
    assert last.signature.endswith("via zh")
    assert len(cache.phrases) == 2, "both legs are remembered"
    assert next(event.text for event in events if isinstance(event, TextDelta)).startswith("བ")
    assert "你好，世界。" in prompts_of(backend)[1]
    (done,) = settled(events)
    assert (done.source, done.origin) == ("Hello, world.", Origin.MODEL)
    assert done.usage.prompt_tokens == sum(len(sent.prompt) for sent in backend.calls.requests)


@pytest.mark.parametrize(
    ("pivot", "source_lang", "target_lang", "n_generations"),
    [
        (Pivot.AUTO, "en", "bo", 2),
        (Pivot.AUTO, "en", "fr", 1),
        (Pivot.AUTO, "zh", "bo", 1),
        (Pivot.ZH, "en", "fr", 2),
        (Pivot.ZH, "en", "zh-Hant", 1),
        (Pivot.OFF, "en", "bo", 1),
    ],
)
async def test_v_6_the_rule_decides(pivot: Pivot, source_lang: str, target_lang: str, n_generations: int) -> None:
    model, backend = generation_of("mt2", reply("Hello"), kind="test")
    await through(model, request("Hello", target_lang, source_lang=source_lang, pivot=pivot))
    assert len(backend.calls.requests) == n_generations


async def test_v_6_placeholders_survive_both_legs() -> None:
    model, _ = generation_of("mt2", reply("%d 个文件，共 %s"), reply("%d fichiers, %s au total"))
    (done,) = settled(await through(model, request("%d files, %s in all", pivot=Pivot.ZH)))
    assert done.target == "%d fichiers, %s au total"


@pytest.mark.parametrize("script", [[reply("")], [reply("你好，世界。"), reply("")]], ids=["first leg", "second leg"])
async def test_v_6_a_leg_that_fails_keeps_the_source(script: list[Behaviour]) -> None:
    model, _ = generation_of("mt2", *script)
    events = await through(model, request("Hello, world.\n12", pivot=Pivot.ZH))
    done = next(event for event in events if isinstance(event, SegmentDone) and event.segment == 0)
    assert (done.source, done.target) == ("Hello, world.", "Hello, world.")
    assert done.error is not None
    assert isinstance(events[-1], Failed)


def test_every_generation_of_the_catalog_has_a_way_to_protect() -> None:
    assert {spec.template_set for spec in load_catalog().models} == {"plain", "mt1", "chimera", "mt15", "mt2"}


# How often, in which order, and what became of it


async def test_f_16_every_attempt_is_recorded_with_prompt_masks_and_what_refused_it() -> None:
    model, _ = generation_of("mt2", reply("Rien du tout"), reply("Encore rien"), reply("Ceci"))
    (done,) = settled(await events_of(model, asked(unit("See %(name)s for all of it"))))
    first, second, *pieces = done.attempts
    assert first == Attempt("default.en", "keep", 0.0, "stop", ("placeholder",))
    assert second == Attempt("delimiters.en", "xml", 0.0, "stop", ("placeholder",))
    assert pieces == [Attempt("default.en", "keep", 0.0, "stop")] * 2


async def test_f_16_a_segment_that_failed_tells_all_that_was_tried() -> None:
    model, _ = generation_of("mt2", cut("Un"), max_segment_tokens=4000)
    (done,) = settled(await events_of(model, asked(unit("One sentence of several words here."))))
    assert done.error is not None
    tried = [(attempt.temperature, attempt.finish, attempt.failed) for attempt in done.attempts]
    assert tried == [(0.0, "length", ("cut_off",)), (0.7, "length", ("cut_off",))]


async def test_f_16_an_answer_that_was_good_at_once_has_one_attempt_and_the_cache_none() -> None:
    cache = MemoryStore()
    for expected in (1, 0):
        model, _ = generation_of("mt2", reply("Enregistrez le fichier"))
        (done,) = settled(await events_of(model, asked(unit("Save the file")), cache=cache))
        assert len(done.attempts) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RetryPolicy(), ["default.zh 0.0", "default.zh 0.7", "default.en 0.0"]),
        (RetryPolicy(generations=1), ["default.zh 0.0"]),
        (RetryPolicy(generations=2), ["default.zh 0.0", "default.zh 0.7"]),
        (RetryPolicy(order=(Change.PROMPT,)), ["default.zh 0.0", "default.en 0.0"]),
        (
            RetryPolicy(order=(Change.PROMPT, Change.SAMPLING)),
            ["default.zh 0.0", "default.en 0.0", "default.en 0.7"],
        ),
        (RetryPolicy(order=()), ["default.zh 0.0"]),
    ],
)
async def test_f_16_budget_and_order_are_settings(policy: RetryPolicy, expected: list[str]) -> None:
    english = "The red house stands on the other side of the river."
    model, _ = generation_of("mt2", reply(english))
    wanted = asked(unit("The blue house stands on this side of the river."), target_lang="zh")
    (done,) = settled(await events_of(replace(model, retries=policy), wanted))
    assert done.error is not None
    assert [f"{attempt.prompt} {attempt.temperature}" for attempt in done.attempts] == expected


async def test_f_16_another_policy_has_its_own_phrases_in_the_cache() -> None:
    cache = MemoryStore()
    for policy in (RetryPolicy(), RetryPolicy(generations=2), RetryPolicy(generations=2)):
        model, backend = generation_of("mt2", reply("Enregistrez le fichier"))
        await events_of(replace(model, retries=policy), asked(unit("Save the file")), cache=cache)
    assert (len(cache.phrases), len(backend.calls.requests)) == (2, 0)


async def test_f_4_f_12_an_answer_far_too_long_is_ended_before_its_budget() -> None:
    source = "Save the file under another name, in the folder of the project in which it was opened this morning."
    target = "Enregistrez le fichier sous un autre nom, dans le dossier du projet où il a été ouvert ce matin."
    ramble = " ".join(f"mot{n} suit{n * n}" for n in range(400))
    model, backend = generation_of("mt2", reply(ramble), reply(target), max_segment_tokens=4000)
    (done,) = settled(await events_of(model, asked(unit(source))))
    assert (done.target, done.error) == (target, None)
    assert (done.attempts[0].finish, done.attempts[0].failed) == ("overlong", ("ratio",))
    assert len(backend.calls.requests) == 2


async def test_g_4_words_that_stay_are_masked_and_not_asked_for_in_the_prompt() -> None:
    model, backend = generation_of("mt15", reply("<target>Demandez à <s1/> maintenant</target>"))
    wanted = request("Ask Apple now", protect=("Apple",))
    (done,) = settled(await events_of(model, wanted))
    assert done.target == "Demandez à Apple maintenant"
    assert all("Apple" in prompt or "<s1/>" in prompt for prompt in prompts_of(backend))
