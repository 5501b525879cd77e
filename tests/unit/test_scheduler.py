import asyncio
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.engine import base, scheduler
from hymt_local.engine.base import (
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.scheduler import STACK_BYTES, ThreadedEngine
from hymt_local.engine.scripted import (
    Behaviour,
    Crash,
    Echo,
    Gated,
    Hang,
    Loop,
    ScriptedBackend,
    open_scripted,
    reply,
)
from hymt_local.errors import DecodeError, EngineError, EngineLoadError, HymtError, ModelFileError
from hymt_local.events import Priority

Outcome = tuple[str, FinishReason] | BaseException
PRIORITIES = st.sampled_from(list(Priority))


def request(text: str = "x", priority: Priority = Priority.REQUEST, max_tokens: int = 100) -> GenerationRequest:
    return GenerationRequest(tuple(text.encode()), max_tokens, priority=priority)


def make_engine(*script: Behaviour) -> tuple[ThreadedEngine, ScriptedBackend]:
    backend = ScriptedBackend(*script)
    return ThreadedEngine(open_scripted(backend), "scripted"), backend


async def text_of(engine: ThreadedEngine, request: GenerationRequest) -> tuple[str, FinishReason]:
    data = b""
    async for event in engine.generate(request):
        if isinstance(event, TokensGenerated):
            data += event.data
        if isinstance(event, GenerationDone):
            return data.decode(), event.reason
    raise AssertionError("the generation ended without a last event")


async def on_thread(wait: Callable[[], bool]) -> None:
    assert await asyncio.to_thread(wait)


async def queued(engine: ThreadedEngine, n_waiting: int) -> None:
    while len(engine._worker._waiting) < n_waiting:
        await asyncio.sleep(0)


async def test_the_first_use_loads_and_later_uses_do_not() -> None:
    engine, backend = make_engine(Echo())
    assert backend.calls.n_loaded == 0
    assert await text_of(engine, request("one")) == ("one", FinishReason.STOP)
    assert (await engine.load()).name == "scripted"
    assert await engine.tokenize(["a", "é"]) == [(97,), (0xC3, 0xA9)]
    await engine.close()
    assert (backend.calls.n_loaded, backend.calls.n_closed) == (1, 1)


async def test_one_thread_other_than_the_callers_enters_the_backend() -> None:
    engine, backend = make_engine(Echo())
    await asyncio.gather(text_of(engine, request()), engine.tokenize(["a"]), text_of(engine, request()))
    await engine.close()
    assert len(backend.calls.threads) == 1
    assert threading.get_ident() not in backend.calls.threads


async def test_the_engine_thread_has_a_deep_stack_and_other_threads_do_not() -> None:
    sizes: list[int] = []
    start = threading.Thread.start

    class Recording(threading.Thread):
        def start(self) -> None:
            sizes.append(threading.stack_size())
            start(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "Thread", Recording)
        engine, _ = make_engine(Echo())
        await engine.load()
    await engine.close()
    assert sizes == [STACK_BYTES]
    assert threading.stack_size() != STACK_BYTES


async def test_load_reports_progress_on_the_callers_loop_before_it_returns() -> None:
    fractions: list[tuple[float, int]] = []
    opener = open_scripted(ScriptedBackend(), progress=(0.25, 0.251, 0.5, 1.0))
    engine = ThreadedEngine(opener, "scripted")
    await engine.load(lambda fraction: fractions.append((fraction, threading.get_ident())))
    await engine.close()
    here = threading.get_ident()
    assert fractions == [(0.25, here), (0.5, here), (1.0, here)]


async def test_a_failed_load_is_raised_to_every_waiter_and_the_next_use_tries_again() -> None:
    gate = threading.Event()
    backend = ScriptedBackend(Echo())
    engine = ThreadedEngine(open_scripted(backend, load_errors=[ModelFileError("no such file")], gate=gate), "scripted")
    waiters = [
        asyncio.ensure_future(waiter)
        for waiter in (engine.load(), engine.tokenize(["a"]), text_of(engine, request()), text_of(engine, request()))
    ]
    await queued(engine, 2)
    gate.set()
    results = await asyncio.gather(*waiters, return_exceptions=True)
    assert [type(result) for result in results] == [ModelFileError] * 4
    assert len({id(result) for result in results}) == 4
    assert await text_of(engine, request("again")) == ("again", FinishReason.STOP)
    await engine.close()


async def test_an_unforeseen_load_failure_becomes_a_typed_error() -> None:
    engine = ThreadedEngine(open_scripted(ScriptedBackend(), load_errors=[OSError("disk on fire")]), "scripted")
    with pytest.raises(EngineLoadError, match="OSError: disk on fire"):
        await engine.load()
    await engine.close()


@pytest.mark.parametrize(
    ("error", "kind"), [(ValueError("boom"), DecodeError), (ModelFileError("gone"), ModelFileError)]
)
async def test_a_crash_in_generate_is_raised_typed_and_the_engine_stays_usable(
    error: Exception, kind: type[HymtError]
) -> None:
    engine, _ = make_engine(Crash(error, b"half"), reply("fine"))
    events = engine.generate(request())
    assert isinstance(await anext(events), PromptRead)
    assert await anext(events) == TokensGenerated(tuple(b"half"), b"half")
    with pytest.raises(kind, match=str(error)):
        await anext(events)
    assert await text_of(engine, request()) == ("fine", FinishReason.STOP)
    await engine.close()


async def test_a_crash_in_tokenize_is_raised_typed_and_the_engine_stays_usable() -> None:
    backend = ScriptedBackend(reply("fine"), tokenize_error=RuntimeError("boom"))
    engine = ThreadedEngine(open_scripted(backend), "scripted")
    with pytest.raises(EngineError, match="RuntimeError: boom"):
        await engine.tokenize(["a"])
    assert await text_of(engine, request()) == ("fine", FinishReason.STOP)
    await engine.close()


async def test_a_backend_that_stops_without_a_last_event_is_an_error() -> None:
    class Forgetful(ScriptedBackend):
        def play(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
            return iter([PromptRead(1, 1)])

    engine = ThreadedEngine(open_scripted(Forgetful()), "scripted")
    with pytest.raises(DecodeError, match="without a reason"):
        await text_of(engine, request())
    await engine.close()


async def test_closing_the_iterator_cancels_while_the_prompt_is_read() -> None:
    hang = Hang()
    engine, _ = make_engine(hang, reply("next"))
    async with aclosing(engine.generate(request())) as events:
        assert isinstance(await anext(events), PromptRead)
        await on_thread(lambda: hang.started.wait(5))
    assert await text_of(engine, request()) == ("next", FinishReason.STOP)
    await engine.close()


async def test_cancelling_the_task_cancels_the_generation() -> None:
    hang = Hang()
    engine, _ = make_engine(hang, reply("next"))
    task = asyncio.ensure_future(text_of(engine, request()))
    await on_thread(lambda: hang.started.wait(5))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await text_of(engine, request()) == ("next", FinishReason.STOP)
    await engine.close()


async def test_leaving_the_loop_between_tokens_cancels() -> None:
    engine, backend = make_engine(Loop("ha"), reply("next"))
    async with aclosing(engine.generate(request(max_tokens=4000))) as events:
        async for event in events:
            if isinstance(event, TokensGenerated):
                break
    assert await text_of(engine, request()) == ("next", FinishReason.STOP)
    await engine.close()
    assert len(backend.calls.requests) == 2


async def test_a_waiting_generation_that_is_cancelled_never_reaches_the_backend() -> None:
    gated = Gated(threading.Event())
    engine, backend = make_engine(gated, Echo())
    first = asyncio.ensure_future(text_of(engine, request("first")))
    await on_thread(lambda: gated.started.wait(5))
    waiting = asyncio.ensure_future(text_of(engine, request("never")))
    await queued(engine, 1)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert engine._worker._waiting == []
    gated.gate.set()
    assert await first == ("done", FinishReason.STOP)
    await engine.close()
    assert len(backend.calls.requests) == 1


async def test_tokenizing_is_served_between_the_slices_of_a_running_generation() -> None:
    gated = Gated(threading.Event(), steps=3)
    engine, _ = make_engine(gated)
    running = asyncio.ensure_future(text_of(engine, request()))
    await on_thread(lambda: gated.started.wait(5))
    tokenizing = asyncio.ensure_future(engine.tokenize(["a"]))
    while not engine._worker._calls:
        await asyncio.sleep(0)
    gated.gate.set()
    done, _ = await asyncio.wait([tokenizing, running], return_when=asyncio.FIRST_COMPLETED)
    assert tokenizing in done
    assert await running == ("done", FinishReason.STOP)
    await engine.close()


async def test_closing_ends_running_and_waiting_generations_and_refuses_new_ones() -> None:
    hang = Hang()
    engine, backend = make_engine(hang)
    running = asyncio.ensure_future(text_of(engine, request()))
    await on_thread(lambda: hang.started.wait(5))
    waiting = asyncio.ensure_future(text_of(engine, request()))
    tokenizing = asyncio.ensure_future(engine.tokenize(["a"]))
    await queued(engine, 1)
    await asyncio.gather(engine.close(), engine.close())
    assert await running == ("", FinishReason.CANCELLED)
    assert await waiting == ("", FinishReason.CANCELLED)
    with pytest.raises(EngineError, match="closed"):
        await tokenizing
    with pytest.raises(EngineError, match="closed"):
        await engine.load()
    await engine.close()
    assert backend.calls.n_closed == 1


async def test_closing_while_loading_gives_the_load_up() -> None:
    opener = open_scripted(ScriptedBackend(), progress=(0.1,), gate=threading.Event())
    engine = ThreadedEngine(opener, "scripted")
    loading = asyncio.ensure_future(engine.load())
    generating = asyncio.ensure_future(text_of(engine, request()))
    await queued(engine, 1)
    await engine.close()
    with pytest.raises(EngineError):
        await loading
    assert await generating == ("", FinishReason.CANCELLED)


async def test_closing_an_unused_engine_starts_no_thread() -> None:
    n_threads = threading.active_count()
    engine, backend = make_engine()
    await engine.close()
    assert threading.active_count() == n_threads
    assert backend.calls.n_loaded == 0


async def test_a_dropped_engine_frees_its_backend() -> None:
    engine, backend = make_engine(Echo())
    await engine.load()
    del engine
    gc.collect()
    assert backend.calls.n_closed == 1


def test_consumers_on_several_loops_share_one_engine() -> None:
    engine, _ = make_engine(Echo())
    results: list[tuple[str, FinishReason]] = []

    def consume(text: str) -> None:
        results.append(asyncio.run(text_of(engine, request(text))))

    threads = [threading.Thread(target=consume, args=(text,)) for text in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(engine.close())
    assert sorted(text for text, _ in results) == ["one", "three", "two"]


def test_a_consumer_whose_loop_has_gone_is_cancelled_and_harms_nobody() -> None:
    hang = Hang()
    engine, _ = make_engine(hang, reply("next"))
    loop = asyncio.new_event_loop()
    events = engine.generate(request())
    loop.run_until_complete(anext(events))
    loop.close()
    assert hang.started.wait(5)
    del events
    assert asyncio.run(close_after(engine)) == ("next", FinishReason.STOP)


async def close_after(engine: ThreadedEngine) -> tuple[str, FinishReason]:
    result = await text_of(engine, request())
    await engine.close()
    return result


async def served_in_order(priorities: list[Priority], cancelled: set[int]) -> tuple[list[int], list[Outcome]]:
    gated = Gated(threading.Event())
    engine, backend = make_engine(gated, Echo())
    first = asyncio.ensure_future(text_of(engine, request()))
    await on_thread(lambda: gated.started.wait(5))
    tasks = []
    for index, priority in enumerate(priorities):
        tasks.append(asyncio.ensure_future(text_of(engine, request(str(index), priority))))
        await queued(engine, index + 1)
    for index in cancelled:
        tasks[index].cancel()
    await asyncio.sleep(0)
    gated.gate.set()
    await first
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await engine.close()
    return [int(bytes(served.prompt)) for served in backend.calls.requests[1:]], results


@given(st.lists(PRIORITIES, max_size=8), st.sets(st.integers(0, 7)))
def test_waiting_generations_are_served_by_priority_then_age_and_end_exactly_once(
    priorities: list[Priority], cancelled: set[int]
) -> None:
    cancelled = {index for index in cancelled if index < len(priorities)}
    served, results = asyncio.run(served_in_order(priorities, cancelled))
    alive = [index for index in range(len(priorities)) if index not in cancelled]
    assert served == sorted(alive, key=lambda index: priorities[index])
    for index, result in enumerate(results):
        if index in cancelled:
            assert isinstance(result, asyncio.CancelledError)
        else:
            assert result == (str(index), FinishReason.STOP)


@given(st.lists(st.tuples(PRIORITIES, st.integers(1, 50), st.integers(0, 50)), max_size=200))
def test_of_a_document_the_longest_of_a_window_comes_first_and_nobody_is_overtaken_by_more_than_a_window(
    arrivals: list[tuple[Priority, int, int]],
) -> None:
    requests = [GenerationRequest((1,) * length, budget, priority=priority) for priority, length, budget in arrivals]
    served = sorted(range(len(requests)), key=lambda order: scheduler._turn(requests[order], order))
    assert [requests[order].priority for order in served] == sorted(request.priority for request in requests)
    places = {order: place for place, order in enumerate(served)}
    for order, one in enumerate(requests):
        overtaken_by = [
            other
            for other in range(order + 1, len(requests))
            if requests[other].priority is one.priority and places[other] < places[order]
        ]
        assert len(overtaken_by) < scheduler._WINDOW
        if one.priority is not Priority.DOCUMENT:
            assert overtaken_by == []
        for other in overtaken_by:
            assert len(requests[other].prompt) + requests[other].max_tokens > len(one.prompt) + one.max_tokens


async def test_longer_parts_of_a_document_reach_the_backend_before_shorter_ones() -> None:
    gated = Gated(threading.Event())
    engine, backend = make_engine(gated, reply("fine"))
    first = asyncio.ensure_future(text_of(engine, request()))
    await on_thread(lambda: gated.started.wait(30))
    texts = ["aa", "a", "aaaa", "aaa"]
    tasks = [asyncio.ensure_future(text_of(engine, request(text, Priority.DOCUMENT))) for text in texts]
    await queued(engine, len(texts))
    gated.gate.set()
    await asyncio.gather(first, *tasks)
    await engine.close()
    assert [bytes(served.prompt).decode() for served in backend.calls.requests[1:]] == ["aaaa", "aaa", "aa", "a"]


@st.composite
def plans(draw: st.DrawFn) -> list[tuple[Priority, Behaviour, int]]:
    behaviours = st.sampled_from([reply("fine"), Loop(), Crash(ValueError("boom"), b"ab"), Crash(EngineError("boom"))])
    return draw(st.lists(st.tuples(PRIORITIES, behaviours, st.integers(0, 4)), max_size=6))


async def run_plan(plan: list[tuple[Priority, Behaviour, int]], engine: ThreadedEngine) -> list[str]:
    async def consume(priority: Priority, n_events: int) -> str:
        async with aclosing(engine.generate(request(priority=priority))) as events:
            try:
                async for event in events:
                    n_events -= 1
                    if isinstance(event, GenerationDone):
                        assert [leftover async for leftover in events] == []
                        return "done"
                    if n_events == 0:
                        return "left"
            except EngineError:
                return "failed"
        return "nothing"

    endings = await asyncio.gather(*(consume(priority, n_events) for priority, _, n_events in plan))
    assert engine._worker._waiting == []
    await engine.close()
    return list(endings)


@given(plans())
def test_any_mix_of_replies_crashes_and_leavers_ends_each_consumer_once(
    plan: list[tuple[Priority, Behaviour, int]],
) -> None:
    engine, _ = make_engine(*(behaviour for _, behaviour, _ in plan))
    endings = asyncio.run(run_plan(plan, engine))
    assert len(endings) == len(plan)
    assert set(endings) <= {"done", "left", "failed"}


# Several at once


def make_wide_engine(*script: Behaviour, slots: int = 3) -> tuple[ThreadedEngine, ScriptedBackend]:
    backend = ScriptedBackend(*script, slots=slots)
    return ThreadedEngine(open_scripted(backend), "scripted"), backend


async def test_generations_run_beside_each_other_up_to_the_slots() -> None:
    hangs = [Hang(), Hang(), Hang()]
    engine, backend = make_wide_engine(*hangs, Echo())
    running = [asyncio.ensure_future(text_of(engine, request())) for _ in hangs]
    for hang in hangs:
        await on_thread(lambda hang=hang: hang.started.wait(5))  # type: ignore[misc]
    waiting = asyncio.ensure_future(text_of(engine, request("next")))
    await queued(engine, 1)
    running[1].cancel()
    assert await waiting == ("next", FinishReason.STOP)
    assert len(backend.calls.requests) == 4
    await engine.close()
    assert await running[0] == ("", FinishReason.CANCELLED)


async def test_interactive_work_joins_though_all_slots_are_taken() -> None:
    hangs = [Hang(), Hang()]
    engine, _ = make_wide_engine(*hangs, Echo(), slots=2)
    running = [asyncio.ensure_future(text_of(engine, request(priority=Priority.DOCUMENT))) for _ in hangs]
    for hang in hangs:
        await on_thread(lambda hang=hang: hang.started.wait(5))  # type: ignore[misc]
    assert await text_of(engine, request("live", Priority.INTERACTIVE)) == ("live", FinishReason.STOP)
    await engine.close()
    await asyncio.gather(*running)


async def test_a_crash_ends_one_generation_and_no_other() -> None:
    gated = Gated(threading.Event(), then=reply("fine"))
    engine, _ = make_wide_engine(gated, Crash(ValueError("boom"), b"ab"), reply("also fine"))
    first = asyncio.ensure_future(text_of(engine, request()))
    await on_thread(lambda: gated.started.wait(5))
    with pytest.raises(DecodeError, match="boom"):
        await text_of(engine, request())
    assert await text_of(engine, request()) == ("also fine", FinishReason.STOP)
    gated.gate.set()
    assert await first == ("fine", FinishReason.STOP)
    await engine.close()


async def test_a_step_that_fails_as_a_whole_is_raised_to_all_and_the_engine_stays_usable() -> None:
    class Failing(ScriptedBackend):
        is_broken = True

        def step(self) -> Sequence[base.Outcome]:
            if self.is_broken and len(self._open) == 2:
                self.is_broken = False
                raise EngineError("the card is gone")
            return super().step()

    backend = Failing(Hang(), Hang(), reply("fine"), slots=3)
    engine = ThreadedEngine(open_scripted(backend), "scripted")
    results = await asyncio.gather(*(text_of(engine, request()) for _ in range(2)), return_exceptions=True)
    assert [type(result) for result in results] == [EngineError] * 2
    assert await text_of(engine, request()) == ("fine", FinishReason.STOP)
    await engine.close()


class Recording(ScriptedBackend):
    """Notes interruptions; tokenizes on any thread."""

    tokenizes_anywhere = True
    n_interrupted = 0

    def interrupt(self) -> None:
        self.n_interrupted += 1


async def test_a_step_is_interrupted_for_the_first_interactive_request_and_when_nobody_wants_it() -> None:
    hangs = [Hang(), Hang(), Hang()]
    backend = Recording(*hangs, slots=4)
    engine = ThreadedEngine(open_scripted(backend), "scripted")
    tasks = []
    for hang, priority in zip(hangs, (Priority.DOCUMENT, Priority.INTERACTIVE, Priority.INTERACTIVE), strict=True):
        tasks.append(asyncio.ensure_future(text_of(engine, request(priority=priority))))
        await on_thread(lambda hang=hang: hang.started.wait(5))  # type: ignore[misc]
    assert backend.n_interrupted == 1
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert backend.n_interrupted == 2
    await engine.close()


async def test_texts_are_tokenized_beside_a_step_where_the_backend_can() -> None:
    hang = Hang()
    backend = Recording(hang, tokenize_error=None)
    engine = ThreadedEngine(open_scripted(backend), "scripted")
    running = asyncio.ensure_future(text_of(engine, request()))
    await on_thread(lambda: hang.started.wait(5))
    assert await engine.tokenize(["a"]) == [(97,)]
    assert len(backend.calls.threads) == 2
    backend._tokenize_error = RuntimeError("boom")
    with pytest.raises(EngineError, match="RuntimeError: boom"):
        await engine.tokenize(["a"])
    await engine.close()
    await running


@given(plans(), st.integers(1, 4))
def test_any_mix_ends_each_consumer_once_with_several_slots_too(
    plan: list[tuple[Priority, Behaviour, int]], slots: int
) -> None:
    engine, _ = make_wide_engine(*(behaviour for _, behaviour, _ in plan), slots=slots)
    endings = asyncio.run(run_plan(plan, engine))
    assert len(endings) == len(plan)
    assert set(endings) <= {"done", "left", "failed"}
