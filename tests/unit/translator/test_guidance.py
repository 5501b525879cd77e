"""Terms, context and style: said in the prompts that a generation was trained on, part of the key, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from hymt_local.catalog import load_catalog
from hymt_local.engine.scripted import Behaviour, ScriptedBackend, reply
from hymt_local.events import Failed, Finished, Origin, Pivot
from hymt_local.prompts import takes_guidance
from hymt_local.segment import Guidance, GuidanceKind, Term
from hymt_local.translator import OpenModel
from tests.services import request, scripted_model, settled
from tests.translating import MemoryStore, events_of

CONTROL_TOKENS = {"<|startoftext|>": 900, "<|extra_0|>": 901, "<|eos|>": 902}
CAT = Term("cat", "chat")
FORMAL = Guidance(style="formal")


def generation_of(template_set: str, *script: Behaviour, **changes: Any) -> tuple[OpenModel, ScriptedBackend]:
    backend = ScriptedBackend(*(script or (reply("Bonjour le chat"),)), control_tokens=CONTROL_TOKENS)
    return scripted_model(backend, **{"template_set": template_set, "chat": "hunyuan", **changes}), backend


def prompts_of(backend: ScriptedBackend) -> list[str]:
    return [bytes(token for token in sent.prompt if token < 256).decode() for sent in backend.calls.requests]


@pytest.mark.parametrize(
    ("template_set", "guidance", "said"),
    [
        ("mt2", FORMAL, "Note that the translation style must strictly conform to [formal]:"),
        ("mt2", Guidance(context="A film."), "[Background Information]\nA film.\n"),
        ("mt2", Guidance((CAT,)), "Reference the following translations:\ncat translates to chat\n"),
        ("mt15", Guidance((CAT,)), "参考下面的翻译：\ncat 翻译成 chat\n"),
        ("mt15", Guidance(context="A film."), "A film.\n参考上面的信息"),
        ("mt15", Guidance((CAT,), "A film."), "参考下面的翻译：\ncat 翻译成 chat\n"),
    ],
    ids=["style", "background", "terms", "terms of 1.5", "context of 1.5", "terms before context"],
)
async def test_each_kind_is_said_in_the_prompt_of_the_model_card(
    template_set: str, guidance: Guidance, said: str
) -> None:
    model, backend = generation_of(template_set)
    await events_of(model, request("Hello cat", guidance=guidance))
    assert said in prompts_of(backend)[0]


async def test_several_kinds_are_preferences_and_the_last_task_is_the_translation() -> None:
    model, backend = generation_of("mt2")
    await events_of(model, request("Hello cat", guidance=Guidance((CAT,), "A film.", "formal")))
    (prompt,) = prompts_of(backend)
    tasks = prompt.partition("[Translation Tasks]\n")[2].split("\n")
    assert [task[:2] for task in tasks] == ["1.", "2.", "3.", "4."]
    assert ["cat" in tasks[0], "A film." in tasks[1], "[formal]" in tasks[2]] == [True, True, True]
    assert tasks[3] == "4. Translate the [Source Text] into French."


async def test_between_chinese_and_another_language_preferences_are_written_in_chinese() -> None:
    model, backend = generation_of("mt2", reply("你好，猫"))
    await events_of(model, request("Hello cat", "zh", guidance=Guidance((Term("cat", "猫"),), style="正式")))
    assert "1、cat 翻译成 猫\n2、翻译的风格要严格符合【正式】\n" in prompts_of(backend)[0]


async def test_only_the_terms_of_a_text_are_shown_with_it() -> None:
    model, backend = generation_of("mt2", reply("Le chat"), reply("Le chien"), reply("Rien"))
    terms = (CAT, Term("dog", "chien"), Term("at", "à"))
    await events_of(model, request("The cats\nThe dog\nNothing", guidance=Guidance(terms)))
    shown = [
        [term.source for term in terms if f"\n{term.source} translates to" in prompt] for prompt in prompts_of(backend)
    ]
    assert sorted(shown) == [[], ["cat"], ["dog"]]


async def test_a_term_that_the_translation_lacks_is_worth_a_look() -> None:
    model, _ = generation_of("mt2", reply("Bonjour minou"))
    (done,) = settled(await events_of(model, request("Hello cat", guidance=Guidance((CAT,)))))
    assert "term" in [finding.code for finding in done.findings]


async def test_a_translation_that_tells_the_context_is_asked_for_again() -> None:
    story = "The old house stood on a hill."
    model, backend = generation_of("mt2", reply(f"{story} Elle était vide."), reply("Elle était vide."))
    (done,) = settled(await events_of(model, request("It was empty.", guidance=Guidance(context=story))))
    assert (done.target, len(backend.calls.requests)) == ("Elle était vide.", 2)


@pytest.mark.parametrize(
    ("template_set", "guidance", "word"),
    [("mt1", Guidance((CAT,)), "terms"), ("mt1", Guidance(context="x"), "context"), ("mt15", FORMAL, "style")],
    ids=["terms", "context", "style"],
)
async def test_what_a_model_was_not_trained_to_take_is_refused_by_name(
    template_set: str, guidance: Guidance, word: str
) -> None:
    model, backend = generation_of(template_set)
    last = (await events_of(model, request("Hello cat", guidance=guidance)))[-1]
    assert isinstance(last, Failed)
    assert (last.error.code, word in last.error.message, backend.calls.requests) == ("model_unsupported", True, [])


async def test_blank_guidance_is_none() -> None:
    model, backend = generation_of("mt1")
    await events_of(model, request("Hello cat", guidance=Guidance((Term(" ", "x"),), " ", "\n")))
    assert len(backend.calls.requests) == 1


@pytest.mark.parametrize(
    ("before", "after", "origin"),
    [
        (Guidance(), FORMAL, Origin.MODEL),
        (FORMAL, Guidance(style="casual"), Origin.MODEL),
        (FORMAL, Guidance(context="formal"), Origin.MODEL),
        (FORMAL, Guidance(), Origin.MODEL),
        (Guidance((CAT,)), Guidance((Term("cat", "minou"),)), Origin.MODEL),
        (FORMAL, FORMAL, Origin.CACHE),
        (Guidance((CAT,)), Guidance((CAT, Term("dog", "chien"))), Origin.CACHE),
        (Guidance(), Guidance((Term("dog", "chien"),)), Origin.CACHE),
    ],
    ids=["new", "other", "kind", "none", "other term", "same", "term of another text", "no term of this text"],
)
async def test_the_cache_gives_what_was_made_under_the_same_guidance(
    before: Guidance, after: Guidance, origin: Origin
) -> None:
    cache = MemoryStore()
    for guidance in (before, after):
        model, _ = generation_of("mt2", reply("Bonjour chat"))
        events = await events_of(model, request("Hello cat", guidance=guidance), cache=cache)
    assert [done.origin for done in settled(events)] == [origin]


async def test_the_provenance_tells_guidance_apart() -> None:
    signatures = set()
    for guidance in (Guidance(), FORMAL, Guidance((CAT,))):
        last = (await events_of(generation_of("mt2")[0], request("Hello cat", guidance=guidance)))[-1]
        assert isinstance(last, Finished)
        signatures.add(last.signature)
    assert len(signatures) == 3


async def test_terms_go_the_direct_way() -> None:
    model, backend = generation_of("mt2", reply("Bonjour le chat"))
    wanted = request("Hello cat", "bo", pivot=Pivot.AUTO, guidance=Guidance((CAT,)))
    await events_of(model, wanted)
    assert "Tibetan" in prompts_of(backend)[0]
    last = (await events_of(generation_of("mt2")[0], request("Hello", pivot=Pivot.ZH, guidance=Guidance((CAT,)))))[-1]
    assert isinstance(last, Failed)
    assert "Chinese" in last.error.message


async def test_in_two_legs_the_style_is_that_of_the_last() -> None:
    model, backend = generation_of("mt2", reply("你好"), reply("Bonjour"))
    await events_of(model, request("Hello", pivot=Pivot.ZH, guidance=FORMAL))
    assert ["formal" in prompt for prompt in prompts_of(backend)] == [False, True]


async def test_markup_and_style_are_asked_for_together() -> None:
    model, backend = generation_of("mt2", reply("Bonjour <b>chat</b>"))
    await events_of(model, request("Hello <b>cat</b>", guidance=FORMAL))
    assert "[formal]" in prompts_of(backend)[0]
    assert "delimiters" in prompts_of(backend)[0]


def test_every_generation_of_the_catalog_takes_what_its_card_publishes() -> None:
    catalog = load_catalog()
    taken = {
        spec.template_set: "".join(kind[0] for kind in GuidanceKind if takes_guidance(spec, kind))
        for spec in catalog.models
    }
    assert taken == {"mt1": "", "chimera": "", "plain": "", "mt15": "tc", "mt2": "tcs"}
