"""The engine in a process of its own: whatever happens to the process, the program goes on and no text is lost."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing
from pathlib import Path

import psutil
import pytest

from hymt_local.engine import host
from hymt_local.engine import process as process_module
from hymt_local.engine.base import (
    Backend,
    FinishReason,
    GenerationDone,
    GenerationRequest,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.counters import EngineCounters
from hymt_local.engine.host import FixedOrder, HostedBackend, Orders, open_hosted
from hymt_local.engine.pipe import Close, Order
from hymt_local.engine.process import EngineProcess, Patience, end_error
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.errors import (
    ContextOverflowError,
    DecodeError,
    EngineError,
    EngineLoadError,
    EngineMemoryError,
    EngineStoppedError,
    EngineUnavailableError,
    HymtError,
)
from hymt_local.events import Priority

FACTORY = "tests.engine_children:open_fragile"
PATIENCE = Patience(restart_s=0.01)


def order_of(**wanted: object) -> Order:
    return Order(FACTORY, json.dumps(wanted).encode())


def go_on(fraction: float) -> bool:
    return True


def open_fragile(*, patience: Patience = PATIENCE, **wanted: object) -> HostedBackend:
    return HostedBackend(
        lambda ask_gpus: FixedOrder(order_of(**wanted)), name="fragile", on_progress=go_on, patience=patience
    )


def request(text: str, **more: object) -> GenerationRequest:
    return GenerationRequest(tuple(text.encode()), 300, **more)  # type: ignore[arg-type]


def play_all(backend: Backend, requests: list[GenerationRequest]) -> list[tuple[bytes, object]]:
    """Run all at once; return the text of each, and its last event or error."""
    tickets = [backend.open(wanted) for wanted in requests]
    texts = dict.fromkeys(tickets, b"")
    last: dict[int, object] = {}
    while len(last) < len(tickets):
        for ticket, event in backend.step():
            if isinstance(event, TokensGenerated):
                texts[ticket] += event.data
            elif isinstance(event, GenerationDone | Exception):
                assert ticket not in last
                last[ticket] = event
    return [(texts[ticket], last[ticket]) for ticket in tickets]


def play(backend: Backend, wanted: GenerationRequest) -> bytes:
    ((text, last),) = play_all(backend, [wanted])
    if isinstance(last, Exception):
        raise last
    return text


@pytest.fixture(scope="module")
def shared() -> Iterator[HostedBackend]:
    """One process for the tests that only crash it: it comes back by itself."""
    backend = open_fragile()
    yield backend
    backend.close()


# Crashes


@pytest.mark.parametrize("how", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGKILL", "exit"])
def test_a_crash_costs_no_token_and_nobody_hears_of_it(shared: HostedBackend, tmp_path: Path, how: str) -> None:
    text = f"The train <{how} {tmp_path / 'crashed'}> leaves at noon."
    pid = shared.pid
    assert play(shared, request(text)) == text.encode()
    assert shared.pid != pid


def test_whoever_kills_it_from_outside_however_often_nobody_is_to_blame(shared: HostedBackend) -> None:
    texts = ["one text", "another text", "and a third one"]
    tickets = [shared.open(request(text)) for text in texts]
    found = dict.fromkeys(tickets, b"")
    ended = set[int]()
    n_kills = 0
    while len(ended) < 3:
        for ticket, event in shared.step():
            assert not isinstance(event, Exception)
            found[ticket] += event.data if isinstance(event, TokensGenerated) else b""
            ended |= {ticket} if isinstance(event, GenerationDone) else set()
        if n_kills < 5 and shared.pid is not None and len(found[tickets[0]]) > n_kills:
            os.kill(shared.pid, signal.SIGKILL)
            n_kills += 1
    assert n_kills == 5
    assert [found[ticket].decode() for ticket in tickets] == texts


@pytest.mark.parametrize("comes_late", [False, True])
def test_a_full_house_is_full_again_after_a_restart(shared: HostedBackend, comes_late: bool) -> None:
    texts = [f"document {number}" for number in range(4)]
    tickets = [shared.open(request(text, priority=Priority.DOCUMENT)) for text in texts]
    shared.step()
    assert shared.pid is not None
    os.kill(shared.pid, signal.SIGKILL)
    if comes_late:
        shared.step()
    tickets.append(shared.open(request("interactive", priority=Priority.INTERACTIVE)))
    ended: dict[int, object] = {}
    while len(ended) < 5:
        ended |= {ticket: event for ticket, event in shared.step() if isinstance(event, GenerationDone | Exception)}
    assert [type(ended[ticket]) for ticket in tickets] == [GenerationDone] * 5


def test_who_crashes_it_twice_gets_the_error_and_the_others_their_whole_text(shared: HostedBackend) -> None:
    texts = ["one of four", "the <SIGSEGV> bad one", "three of them, and a longer one", "four"]
    answers = play_all(shared, [request(text, priority=Priority.DOCUMENT) for text in texts])
    for (data, last), text in zip(answers, texts, strict=True):
        if "SIGSEGV" in text:
            assert (data, type(last)) == (b"the ", EngineStoppedError)
            assert "segmentation fault" in str(last)
            assert last.hint  # type: ignore[attr-defined]
        else:
            assert data.decode() == text
            assert isinstance(last, GenerationDone)
            assert (last.reason, last.usage.output_tokens) == (FinishReason.STOP, len(data))


def test_a_deterministic_engine_starts_an_answer_again_and_gives_no_token_twice(tmp_path: Path) -> None:
    backend = open_fragile(deterministic=True)
    text = f"The train <SIGSEGV {tmp_path / 'crashed'}> leaves."
    assert play(backend, request(text)) == text.encode()
    backend.close()


def test_progress_of_reading_does_not_go_back(shared: HostedBackend, tmp_path: Path) -> None:
    events = list(shared.generate(request(f"a<exit {tmp_path / 'crashed'}>b"), lambda: False))
    assert sum(isinstance(event, PromptRead) for event in events) == 1


def test_a_process_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    backend = open_fragile(patience=Patience(answer_s=0.2, restart_s=0.01))
    assert play(backend, request(f"so <hang {tmp_path / 'hung'}> slow"))[-4:] == b"slow"
    with pytest.raises(EngineStoppedError, match="did not answer for 0 s") as caught:
        play(backend, request("<hang>"))
    assert caught.value.hint
    assert play(backend, request("fine")) == b"fine"
    backend.close()


def test_an_exception_in_the_process_fails_one_generation_and_ends_nothing(shared: HostedBackend) -> None:
    play(shared, request("warm"))
    pid = shared.pid
    (bad, error), (good, _) = play_all(shared, [request("a<raise>"), request("fine")])
    assert (bad, type(error), good) == (b"a", DecodeError, b"fine")
    assert "ValueError: raised as told" in str(error)
    assert shared.pid == pid


def test_refusals_of_the_process_keep_their_type(shared: HostedBackend) -> None:
    with pytest.raises(ContextOverflowError, match="exceed the context of 1000"):
        shared.open(GenerationRequest((1,) * 700, 400))
    assert play(shared, request("still here")) == b"still here"


def test_a_text_that_crashes_the_tokenizer_is_tried_twice(shared: HostedBackend, tmp_path: Path) -> None:
    with pytest.raises(EngineStoppedError):
        shared.tokenize("<tokenize SIGSEGV>")
    once = f"<tokenize SIGBUS {tmp_path / 'crashed'}>"
    assert bytes(shared.tokenize(once)).decode() == once


def test_what_the_process_counts_is_told_and_one_that_was_started_again_begins_anew(tmp_path: Path) -> None:
    backend = open_fragile()
    for number in (1, 2):
        play(backend, request("text"))
        assert backend.counters.drafts.slices == number
    play(backend, request(f"<SIGKILL {tmp_path / 'killed'}>"))
    assert backend.counters.drafts.slices == 1
    assert backend.pid is not None
    os.kill(backend.pid, signal.SIGKILL)
    assert backend.counters == EngineCounters()
    backend.close()
    assert backend.counters == EngineCounters()


def test_a_dropped_generation_leaves_the_process_clean(shared: HostedBackend) -> None:
    ticket = shared.open(request("to be dropped"))
    shared.step()
    done = shared.drop(ticket)
    assert (done.reason, done.usage.prompt_tokens) == (FinishReason.CANCELLED, 13)
    assert play(shared, request("after")) == b"after"
    assert shared.drop(ticket).reason is FinishReason.CANCELLED


def test_nobody_hears_of_a_generation_that_was_dropped_before_its_error_was_told(shared: HostedBackend) -> None:
    play(shared, request("warm"))
    first, second = shared.open(request("first")), shared.open(request("second"))
    shared.step()
    shared._guests[second].n_crashes = host.MOST_CRASHES - 1
    assert shared.pid is not None
    os.kill(shared.pid, signal.SIGSEGV)
    shared.drop(first)
    shared.drop(second)
    third = shared.open(request("third"))
    tickets = {ticket for _ in range(3) for ticket, _ in shared.step()}
    assert tickets == {third}
    shared.drop(third)


# Behind the asynchronous engine


async def text_of(engine: ThreadedEngine, wanted: GenerationRequest) -> str:
    data = b""
    async for event in engine.generate(wanted):
        data += event.data if isinstance(event, TokensGenerated) else b""
    return data.decode()


def hosted_engine(**wanted: object) -> tuple[ThreadedEngine, list[HostedBackend]]:
    opened: list[HostedBackend] = []

    def open_it(on_progress: Callable[[float], bool]) -> Backend:
        opener = open_hosted(lambda ask_gpus: FixedOrder(order_of(**wanted)), name="fragile", patience=PATIENCE)
        backend = opener(on_progress)
        assert isinstance(backend, HostedBackend)
        opened.append(backend)
        return backend

    return ThreadedEngine(open_it, "fragile"), opened


async def test_killed_from_outside_in_the_middle_of_many_answers_it_finishes_them_all() -> None:
    engine, opened = hosted_engine()
    texts = [f"segment {number} of a document that is long enough" for number in range(10)]
    started = asyncio.Event()

    async def watched(text: str) -> str:
        data = b""
        async for event in engine.generate(request(text, priority=Priority.DOCUMENT)):
            data += event.data if isinstance(event, TokensGenerated) else b""
            if len(data) == 20:
                started.set()
        return data.decode()

    answers = asyncio.gather(*map(watched, texts))
    await started.wait()
    pid = opened[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert await answers == texts
    assert await engine.tokenize(["ab"]) == [(97, 98)]
    await engine.close()
    assert not psutil.pid_exists(pid)


async def test_load_progress_cancel_and_priority_cross_the_pipe(tmp_path: Path) -> None:
    engine, _ = hosted_engine(progress=[0.25, 0.5, 1.0])
    fractions: list[float] = []
    info = await engine.load(fractions.append)
    assert fractions == [0.25, 0.5, 1.0]
    assert (info.control_tokens, info.stop_ids, info.slots) == ({"<stop>": 0}, frozenset({0}), 4)
    async with aclosing(engine.generate(request("x" * 300))) as events:
        async for event in events:
            if isinstance(event, TokensGenerated):
                break
    document = [
        asyncio.ensure_future(text_of(engine, request("y" * 300, priority=Priority.DOCUMENT))) for _ in range(9)
    ]
    assert await text_of(engine, request("now", priority=Priority.INTERACTIVE)) == "now"
    assert not document[-1].done()
    assert await asyncio.gather(*document) == ["y" * 300] * 9
    await engine.close()


async def test_closing_ends_the_process_even_in_the_middle_of_an_answer() -> None:
    engine, opened = hosted_engine()
    events = engine.generate(request("x" * 300))
    await anext(events)
    pid = opened[0].pid
    await engine.close()
    assert isinstance([event async for event in events][-1], GenerationDone)
    assert not psutil.pid_exists(pid or 0)


# Loading


def test_a_crash_while_loading_is_tried_again(tmp_path: Path) -> None:
    backend = open_fragile(while_loading=f"<SIGABRT {tmp_path / 'crashed'}>")
    assert play(backend, request("loaded")) == b"loaded"
    backend.close()
    with pytest.raises(EngineStoppedError, match="gave up"):
        open_fragile(while_loading="<SIGABRT>")


def test_loading_can_be_given_up_while_nothing_comes() -> None:
    with pytest.raises(EngineLoadError, match="given up"):
        HostedBackend(
            lambda ask_gpus: FixedOrder(order_of(while_loading="<hang>")),
            name="fragile",
            on_progress=lambda fraction: False,
        )


class Shrinking(Orders):
    """Halves the context."""

    def __init__(self, **wanted: object) -> None:
        self.wanted = {"context_length": 800, **wanted}
        self.errors: list[HymtError] = []

    @property
    def order(self) -> Order:
        return order_of(**self.wanted)

    def step_down(self, error: EngineLoadError) -> bool:
        self.errors.append(error)
        self.wanted["context_length"] = int(str(self.wanted["context_length"])) // 2
        return True


def test_without_room_something_smaller_is_loaded() -> None:
    orders = Shrinking(room=300)
    backend = HostedBackend(lambda ask_gpus: orders, name="fragile", on_progress=go_on)
    assert backend.info.context_length == 200
    assert [str(error) for error in orders.errors] == ["no room for 800 tokens", "no room for 400 tokens"]
    backend.close()


def test_memory_that_runs_out_while_decoding_means_something_smaller_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter(range(100))
    monkeypatch.setattr(process_module, "count_oom_kills", lambda: next(kills))
    orders = Shrinking()
    backend = HostedBackend(lambda ask_gpus: orders, name="fragile", on_progress=go_on, patience=PATIENCE)
    text = f"a<SIGKILL {tmp_path / 'killed'}>b"
    assert play(backend, request(text)) == text.encode()
    assert [type(error) for error in orders.errors] == [EngineMemoryError]
    assert backend.info.context_length == 400
    with pytest.raises(EngineStoppedError, match="memory ran out"):
        play(backend, GenerationRequest(tuple(b"<SIGKILL>"), 9))
    backend.close()


def test_an_allocation_that_fails_while_decoding_means_something_smaller_too(tmp_path: Path) -> None:
    orders = Shrinking()
    backend = HostedBackend(lambda ask_gpus: orders, name="fragile", on_progress=go_on, patience=PATIENCE)
    text = f"a<memory {tmp_path / 'short'}>b"
    assert play(backend, request(text)) == text.encode()
    assert [type(error) for error in orders.errors] == [EngineMemoryError]
    assert backend.info.context_length == 400
    backend.close()


def test_gpus_are_asked_for_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def plan(ask_gpus: Callable[[], object]) -> Orders:
        asked.append(ask_gpus())
        return FixedOrder(order_of())

    HostedBackend(plan, name="fragile", on_progress=go_on).close()
    assert asked == [()]
    assert "llama_cpp" not in subprocess.run(
        [sys.executable, "-c", "import sys, hymt_local.engine.host; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip


def test_what_the_process_logs_is_in_the_programs_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        open_fragile(log="fewer layers").close()
    assert ("hymt_local.engine.llama", logging.WARNING, "fewer layers") in caplog.record_tuples


def test_without_an_interpreter_to_start_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(EngineUnavailableError, match="cannot start a process") as caught:
        open_fragile()
    assert "engine_process inline" in caught.value.hint


# Its end


@pytest.mark.parametrize(
    ("status", "lines", "kind", "words"),
    [
        (-signal.SIGSEGV, (), EngineStoppedError, "segmentation fault"),
        (-signal.SIGBUS, (), EngineStoppedError, "lost its model file"),
        (-signal.SIGILL, (), EngineStoppedError, "instruction that this processor does not have"),
        (-signal.SIGABRT, ("a.c:7: GGML_ASSERT(n > 0) failed", "0x12"), EngineStoppedError, "GGML_ASSERT"),
        (-signal.SIGABRT, ("ggml_aligned_malloc: failed to allocate 8 MB",), EngineMemoryError, "no more memory"),
        (-signal.SIGABRT, ("CUDA error: out of memory", "x.cu:1: CUDA error"), EngineMemoryError, "no more memory"),
        (-signal.SIGTERM, (), EngineStoppedError, f"signal {signal.SIGTERM.value}"),
        (1, ("ImportError: libgomp",), EngineStoppedError, "ImportError: libgomp"),
    ],
)
def test_each_end_has_its_meaning_and_a_next_step(
    status: int, lines: tuple[str, ...], kind: type[EngineError], words: str
) -> None:
    error = end_error("m", status, last_lines=lines, is_oom=False)
    assert type(error) is kind
    assert words in error.message
    assert error.hint


def test_a_kill_is_put_down_to_memory_only_when_memory_ran_out() -> None:
    kill = -signal.SIGKILL
    assert isinstance(end_error("m", kill, last_lines=(), is_oom=True), EngineMemoryError)
    assert isinstance(end_error("m", kill, last_lines=(), is_oom=False), EngineStoppedError)


_PARENT = """
import os, sys, json
from hymt_local.engine.host import FixedOrder, HostedBackend
from hymt_local.engine.pipe import Close, Order
backend = HostedBackend(
    lambda gpus: FixedOrder(Order("tests.engine_children:open_fragile")), name="m", on_progress=lambda fraction: True
)
print(backend.pid, flush=True)
if sys.argv[1] == "busy":
    backend.open(__import__("hymt_local.engine.base", fromlist="x").GenerationRequest(tuple(b"<hang>"), 9))
    backend.step()
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_the_process_ends_with_a_program_that_is_killed(state: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", _PARENT, state], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert psutil.pid_exists(pid)
        program.kill()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nothing_is_left_of_a_closed_engine() -> None:
    own = psutil.Process()
    open_fragile().close()
    n_files, n_threads = own.num_fds(), own.num_threads()
    backend = open_fragile()
    pid = backend.pid
    backend.close()
    backend.close()
    assert own.num_fds() <= n_files
    assert own.num_threads() <= n_threads  # one of an earlier test may have ended meanwhile
    assert not psutil.pid_exists(pid or 0)


def test_ctrl_c_is_the_programs_to_handle() -> None:
    with closing(open_fragile()) as backend:
        assert backend.pid is not None
        os.kill(backend.pid, signal.SIGINT)
        assert play(backend, request("still here")) == b"still here"


def test_a_frame_that_is_none_ends_the_process_and_not_the_program() -> None:
    process = EngineProcess("m", patience=PATIENCE)
    assert process._process.stdin is not None
    process._process.stdin.write(b"\4\0\0\0none")
    process._process.stdin.flush()
    with pytest.raises(process_module.ProcessGoneError) as caught:
        process.call(Close())
    assert isinstance(caught.value.error, EngineStoppedError)
