"""A model with a closed domain refuses what lies outside."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from hymt_local.coverage import Coverage
from hymt_local.engine.scripted import ScriptedBackend, reply
from hymt_local.events import Failed, Started
from tests.services import request, scripted_model
from tests.translating import events_of, finished


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
