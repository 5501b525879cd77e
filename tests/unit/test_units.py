"""Units of documents on their way through the translator."""

from __future__ import annotations

import msgspec

from hymt_local.engine.echo import EchoBackend, pseudo_localize
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.engine.scripted import Crash, Echo, ScriptedBackend, reply
from hymt_local.errors import DecodeError
from hymt_local.events import Event, Failed, Finished, Origin, SegmentDone, Started, TextDelta, TranslationRequest
from hymt_local.memory.phrase_cache import CachedPhrase
from hymt_local.segment import ProtectedSpan, Span, TokenGroup, TokenKind, UnitText
from hymt_local.translator import OpenModel, Translator
from tests.services import a_spec, echo_model, scripted_model, settled

NOTHING = frozenset({TokenGroup.NONE})


class MemoryStore:
    """A phrase store in memory."""

    def __init__(self) -> None:
        self.phrases: dict[tuple[str, str], str] = {}
        self.edits: dict[str, str] = {}

    def get(self, signature: str, source: str) -> CachedPhrase | None:
        target = self.phrases.get((signature, source))
        return None if target is None else CachedPhrase(target, created_at=0)

    def edited(self, source: str, *, source_lang: str, target_lang: str) -> str | None:
        return self.edits.get(source)

    def put(self, signature: str, source: str, *, target: str) -> None:
        self.phrases[signature, source] = target


def unit(text: str, *protected: str, **fields: object) -> UnitText:
    """Return a unit that protects the first occurrence of each given part."""
    spans = []
    position = 0
    for part in protected:
        start = text.index(part, position)
        position = start + len(part)
        spans.append(ProtectedSpan(Span(start, position)))
    return UnitText(text, tuple(spans), **fields)  # type: ignore[arg-type]


def asked(*units: UnitText, target_lang: str = "fr", source_lang: str | None = "en") -> TranslationRequest:
    return TranslationRequest("", target_lang, source_lang, units=units)


async def events_of(model: OpenModel, wanted: TranslationRequest, *, cache: MemoryStore | None = None) -> list[Event]:
    try:
        return [event async for event in Translator(model, cache=cache).run(wanted)]
    finally:
        await model.engine.close()


async def targets_of(model: OpenModel, *units: UnitText) -> list[str]:
    events = await events_of(model, asked(*units))
    assert isinstance(events[-1], Finished), events[-1]
    assert events[-1].text == ""
    return [done.target for done in sorted(settled(events), key=lambda done: done.segment)]


def pseudo_model() -> OpenModel:
    engine = ThreadedEngine(lambda on_progress: EchoBackend(pseudo_localize), name="pseudo")
    return OpenModel(a_spec(id="pseudo", kind="test"), engine, fingerprint="pseudo", quantization="none")


async def test_each_unit_is_one_segment_whatever_lines_it_has() -> None:
    events = await events_of(echo_model(str.upper), asked(unit("One.\nTwo. Three"), unit("Four")))
    started, last = events[0], events[-1]
    assert isinstance(started, Started)
    assert [segment.source for segment in started.segments] == ["One.\nTwo. Three", "Four"]
    assert isinstance(last, Finished)
    assert last.text == ""
    assert {done.segment: done.target for done in settled(events)} == {0: "ONE.\nTWO. THREE", 1: "FOUR"}


async def test_nobody_reads_along_in_a_document() -> None:
    events = await events_of(echo_model(), asked(unit("One"), unit("Two")))
    assert not any(isinstance(event, TextDelta) for event in events)


async def test_s_7_equal_units_are_generated_once() -> None:
    backend = ScriptedBackend(reply("Bonjour"))
    units = [unit("Hello"), unit("Hello"), unit("Hello", "Hello", groups=NOTHING), unit("Hello")]
    events = await events_of(scripted_model(backend), asked(*units))
    assert [done.target for done in sorted(settled(events), key=lambda done: done.segment)] == [
        "Bonjour",
        "Bonjour",
        "Hello",
        "Bonjour",
    ]
    assert len(backend.calls.requests) == 1


async def test_units_that_protect_other_parts_are_not_equal() -> None:
    backend = ScriptedBackend(Echo(str.upper))
    targets = await targets_of(scripted_model(backend), unit("Hello big world", "big"), unit("Hello big world"))
    assert targets == ["HELLO big WORLD", "HELLO BIG WORLD"]


async def test_f_6_a_unit_with_nothing_but_protected_parts_needs_no_engine() -> None:
    backend = ScriptedBackend(Crash(DecodeError("called")))
    targets = await targets_of(
        scripted_model(backend), unit("abc: 5", "abc"), unit("%s %d", groups=NOTHING | {TokenGroup.C_FORMAT})
    )
    assert targets == ["abc: 5", "%s %d"]
    assert backend.calls.n_loaded == 0


async def test_d_2_pseudo_changes_all_but_the_protected_parts() -> None:
    (target,) = await targets_of(pseudo_model(), unit("Save **all** files of Bob", "**", "**", "Bob"))
    assert target == "⟦Šååṽéé **ååļļ** ƒîîļééš ööƒ Bob⟧"


async def test_echo_gives_every_unit_back() -> None:
    texts = ["Hello\n  world", "a <b>b</b>\t c", "x  %s", "Fish & chips &amp; more", "**a** b"]
    assert await targets_of(echo_model(), *map(unit, texts)) == texts


async def test_the_language_is_found_once_for_all_units() -> None:
    units = [unit("Guten Morgen"), unit("OK"), unit("Das ist eine schöne Stadt.")]
    started = (await events_of(echo_model(), asked(*units, source_lang=None)))[0]
    assert isinstance(started, Started)
    assert started.source_lang == "de"


async def test_the_cache_knows_a_unit_by_what_it_protects() -> None:
    cache = MemoryStore()
    first, second = unit("Hello big world", "big"), unit("Hello big world", "world")
    await events_of(scripted_model(ScriptedBackend(Echo(str.upper))), asked(first), cache=cache)
    model = scripted_model(ScriptedBackend(Echo(str.upper)))
    events = await events_of(model, asked(first, second), cache=cache)
    assert {done.segment: (done.target, done.origin) for done in settled(events)} == {
        0: ("HELLO big WORLD", Origin.CACHE),
        1: ("HELLO BIG world", Origin.MODEL),
    }


async def test_a_plain_unit_shares_the_cache_with_a_plain_text() -> None:
    cache = MemoryStore()
    await events_of(
        scripted_model(ScriptedBackend(reply("Bonjour"))), TranslationRequest("Hello", "fr", "en"), cache=cache
    )
    backend = ScriptedBackend(Crash(DecodeError("called")))
    events = await events_of(scripted_model(backend), asked(unit("Hello")), cache=cache)
    assert [done.origin for done in settled(events)] == [Origin.CACHE]


async def test_a_long_unit_is_never_cut_inside_a_protected_part() -> None:
    backend = ScriptedBackend(Echo(str.upper))
    secret = "keep this. As it. Is"
    text = f"Some words here. More of them. {secret} and the end of it. " * 3
    spans = [
        ProtectedSpan(Span(start, start + len(secret))) for start in range(len(text)) if text.startswith(secret, start)
    ]
    model = scripted_model(backend, max_segment_tokens=70)
    (target,) = await targets_of(model, UnitText(text.strip(), tuple(spans)))
    assert target == text.strip().upper().replace(secret.upper(), secret)


async def test_text_and_units_together_are_refused() -> None:
    wanted = TranslationRequest("Hello", "fr", "en", units=(unit("Hello"),))
    last = (await events_of(echo_model(), wanted))[-1]
    assert isinstance(last, Failed)
    assert last.error.code == "usage"


async def test_p_2_a_pair_keeps_its_order() -> None:
    text = "Press [here] now"
    spans = (
        ProtectedSpan(Span(6, 7), TokenKind.OPEN, 1),
        ProtectedSpan(Span(11, 12), TokenKind.CLOSE, 1),
    )
    swapped = ScriptedBackend(reply('Jetzt <x id="2"/>hier<x id="1"/> drücken'), reply("Jetzt [hier] drücken"))
    events = await events_of(scripted_model(swapped), asked(UnitText(text, spans, NOTHING), target_lang="de"))
    (done,) = settled(events)
    assert (done.target, done.error) == ("Jetzt [hier] drücken", None)
    assert [finding.code for finding in done.findings] == ["retried"]
    assert len(swapped.calls.requests) == 2


async def test_p_5_when_no_mask_survives_the_text_between_the_parts_is_translated() -> None:
    backend = ScriptedBackend(reply("Rien"), reply("Rien"), Echo(str.upper))
    events = await events_of(scripted_model(backend), asked(unit("Open FILE to see all of it", "FILE")))
    (done,) = settled(events)
    assert done.target == "OPEN FILE TO SEE ALL OF IT"


async def test_p_5_when_nothing_helps_the_source_stays_and_is_flagged() -> None:
    backend = ScriptedBackend(reply("Rien"), reply("Rien"), reply(""))
    events = await events_of(scripted_model(backend), asked(unit("Open FILE to see all of it", "FILE"), unit("7")))
    done = next(done for done in settled(events) if done.segment == 0)
    assert done.target == "Open FILE to see all of it"
    assert done.error is not None
    assert done.error.code == "segment_rejected"
    assert [type(event) for event in events if isinstance(event, Failed | SegmentDone)][-1] is Failed


async def test_an_edit_that_lost_a_protected_part_does_not_count() -> None:
    cache = MemoryStore()
    cache.edits = {"Open FILE now": "Ouvrez FILE maintenant", "Close FILE now": "Fermez maintenant"}
    model = scripted_model(ScriptedBackend(Echo(str.upper)))
    events = await events_of(model, asked(unit("Open FILE now", "FILE"), unit("Close FILE now", "FILE")), cache=cache)
    assert {done.segment: done.target for done in settled(events)} == {
        0: "Ouvrez FILE maintenant",
        1: "CLOSE FILE NOW",
    }


async def test_f_13_units_in_the_target_language_stay_as_they_are() -> None:
    backend = ScriptedBackend(Echo(str.upper))
    french = (
        "Le conseil municipal se réunit mardi prochain pour discuter du nouveau budget de la ville et de ses écoles."
    )
    english = (
        "The city council meets next Tuesday to discuss the new budget of the town and of all of its schools here."
    )
    targets = await targets_of(scripted_model(backend, kind="test"), unit(french), unit(english), unit("Merci"))
    assert targets == [french, english.upper(), "MERCI"]


async def test_f_13_on_request_units_in_the_target_language_are_translated_too() -> None:
    french = "Le conseil municipal se réunit mardi prochain pour discuter du nouveau budget de la ville et de l'école."
    model = scripted_model(ScriptedBackend(Echo(str.upper)), kind="test")
    wanted = msgspec.structs.replace(asked(unit(french), target_lang="fr"), keeps_translated=False)
    (done,) = settled(await events_of(model, wanted))
    assert done.target == french.upper()


async def test_f_13_a_short_unit_in_the_targets_script_stays_too() -> None:
    backend = ScriptedBackend(Echo(str.upper))
    events = await events_of(
        scripted_model(backend, kind="test"), asked(unit("谢谢你"), unit("Hello"), target_lang="zh")
    )
    assert {done.segment: done.target for done in settled(events)} == {0: "谢谢你", 1: "HELLO"}
