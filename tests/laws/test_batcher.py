"""Laws of continuous batching, on a model of the batch API: whatever comes and goes, everybody gets his own answer."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from hymt_local.engine.base import (
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.batcher import Batcher
from hymt_local.engine.sampling import Greedy
from hymt_local.errors import DecodeError
from hymt_local.events import Priority, SamplingParams
from tests.batch_model import NAN, POISON, STOP, ModelDecoder, ModelPrefixes, answer_to

GREEDY = SamplingParams(repetition_penalty=1.0)
PRIORITIES = st.sampled_from(list(Priority))
PREFIXES = [(), (5, 6, 7) * 4, (5, 6, 7) * 4 + (9, 8) * 6, (7, 7, 7)]
MOST_TOKENS = 96


def make_batcher(decoder: ModelDecoder, *, is_exact: bool = False) -> Batcher:
    slots = decoder.n_slots - 1 if decoder.n_slots > 1 else 1
    return Batcher(
        decoder,
        slots=slots,
        make_chooser=lambda sampling: Greedy(sampling.repetition_penalty),
        piece=lambda token: bytes([token]),
        stop_ids=frozenset({STOP}),
        prefixes=ModelPrefixes(decoder),
        is_exact=is_exact,
        clock=lambda: decoder.clock_s,
    )


@dataclass
class Job:
    """One request with its arrival and, perhaps, its cancellation, in steps."""

    request: GenerationRequest
    arrives: int
    cancelled_after: int | None
    ticket: int = -1
    opened: int = -1
    events: list[GenerationEvent | Exception] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return [token for event in self.events if isinstance(event, TokensGenerated) for token in event.ids]

    @property
    def has_ended(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], GenerationDone | Exception)


@st.composite
def drafts(draw: st.DrawFn, prompt: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
    """Draw the right answer with parts of it replaced, left out, doubled."""
    right = answer_to(prompt, max_tokens)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(right)))
        right[start : start + draw(st.integers(0, 4))] = draw(st.lists(st.integers(1, NAN - 1), max_size=4))
    return tuple(right)


@st.composite
def jobs(draw: st.DrawFn, *, faults: bool = True, resumed: bool = True) -> Job:
    prefix = draw(st.sampled_from(PREFIXES))
    own = draw(st.lists(st.integers(1, NAN - 1), min_size=1, max_size=40))
    if faults and draw(st.integers(0, 9)) == 0:
        own[draw(st.integers(0, len(own) - 1))] = draw(st.sampled_from([POISON, NAN]))
    prompt = (*prefix, *own)
    max_tokens = draw(st.integers(0, MOST_TOKENS - len(prompt)))
    cancelled_after = draw(st.one_of(st.none(), st.none(), st.integers(0, 12)))
    draft = draw(st.one_of(st.just(()), drafts(prompt, max_tokens)))
    right = [] if {POISON, NAN} & {*prompt} or not resumed else answer_to(prompt, max_tokens)
    request = GenerationRequest(
        prompt,
        max_tokens,
        GREEDY,
        priority=draw(PRIORITIES),
        draft=draft,
        n_fixed=len(prefix),
        answered=tuple(right[: draw(st.sampled_from([0, 0, 0, 1, 9]))]),
    )
    return Job(request, draw(st.integers(0, 20)), cancelled_after)


def play(batcher: Batcher, work: list[Job], *, check: Callable[[], None] = lambda: None) -> int:
    """Run all jobs to their ends; return the number of steps."""
    waiting = sorted(work, key=lambda job: job.arrives)
    running: dict[int, Job] = {}
    step = 0
    while waiting or running:
        for ticket, job in list(running.items()):
            if job.cancelled_after is not None and step - job.opened >= job.cancelled_after:
                job.events.append(batcher.drop(ticket))
                del running[ticket]
        arrived = sorted((job for job in waiting if job.arrives <= step), key=lambda job: job.request.priority)
        for job in arrived:
            if not batcher.can_open(job.request):
                break
            job.ticket, job.opened = batcher.open(job.request), step
            running[job.ticket] = job
            waiting.remove(job)
        for ticket, event in batcher.step():
            running[ticket].events.append(event)
            if running[ticket].has_ended:
                del running[ticket]
        check()
        step += 1
        assert step < 3_000, "it does not end"
    return step


def assert_right(job: Job) -> None:
    """Check that a job ended exactly once, with its own answer as far as it got."""
    request = job.request
    expected = answer_to(request.prompt, request.max_tokens)
    endings = [event for event in job.events if isinstance(event, GenerationDone | Exception)]
    assert len(endings) == 1
    last = job.events[-1]
    assert last is endings[0]
    if isinstance(last, Exception):
        assert isinstance(last, DecodeError)
        assert POISON in request.prompt or NAN in request.prompt
        assert job.ids == []
        return
    assert last.usage.output_tokens == len(request.answered) + len(job.ids)
    expected = expected[len(request.answered) :]
    if last.reason is FinishReason.CANCELLED:
        assert job.cancelled_after is not None
        assert job.ids == expected[: len(job.ids)]
        return
    assert POISON not in request.prompt
    assert NAN not in request.prompt or request.max_tokens == 0
    assert job.ids == expected
    is_full = last.usage.output_tokens == request.max_tokens
    assert last.reason is (FinishReason.LENGTH if is_full else FinishReason.STOP)
    read = [event.done for event in job.events if isinstance(event, PromptRead)]
    assert read == sorted(set(read))
    assert read[-1] == len(request.prompt)


@given(
    st.lists(jobs(), max_size=14),
    st.integers(1, 6),
    st.integers(MOST_TOKENS, 3 * MOST_TOKENS),
    st.sampled_from([5, 16, 64]),
    st.sampled_from([0, 3, 31]),
    st.one_of(st.none(), st.randoms(use_true_random=False)),
)
def test_every_generation_ends_once_with_its_own_answer_whatever_comes_and_goes(
    work: list[Job], slots: int, cells: int, rows: int, n_more_outputs: int, interruptions: random.Random | None
) -> None:
    n_slots = slots + 1 if slots > 1 else 1
    decoder = ModelDecoder(
        n_slots, cells=cells, rows=rows, outputs=n_slots + n_more_outputs, interruptions=interruptions
    )
    play(make_batcher(decoder), work)
    for job in work:
        assert_right(job)


@given(st.lists(jobs(resumed=False), max_size=4), st.one_of(st.none(), st.randoms(use_true_random=False)))
def test_an_exact_batcher_computes_everything_from_the_first_token_in_the_same_slices(
    work: list[Job], interruptions: random.Random | None
) -> None:
    decoder = ModelDecoder(1, cells=MOST_TOKENS, rows=16, interruptions=interruptions)
    play(make_batcher(decoder, is_exact=True), work)
    for job in work:
        assert_right(job)
    prompts = {len(job.request.prompt) for job in work}
    for (run,) in decoder.journal.calls:
        assert len(run.tokens) == 1 or run.start % 16 == 0
        assert len(run.tokens) in {1, 16} or run.start + len(run.tokens) in prompts


@given(st.lists(jobs(faults=False), min_size=2, max_size=8), st.integers(3, 6))
def test_a_common_beginning_is_computed_once(work: list[Job], slots: int) -> None:
    prefix = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)
    for job in work:
        job.cancelled_after, job.arrives = None, 0
        job.request = GenerationRequest((*prefix, *job.request.prompt), 1, GREEDY, priority=Priority.DOCUMENT)
    decoder = ModelDecoder(slots + 1, cells=2000)
    play(make_batcher(decoder), work)
    n_firsts = sum(run.start == 0 for call in decoder.journal.calls for run in call)
    assert n_firsts == 1
    for job in work:
        assert_right(job)


@given(st.lists(jobs(faults=False), min_size=1, max_size=10), st.integers(2, 6), st.integers(0, 10))
def test_interactive_work_takes_at_most_about_twice_its_time_alone(work: list[Job], slots: int, arrives: int) -> None:
    def cost_s(n_rows: int) -> float:
        return 0.01 + 0.001 * n_rows

    for job in work:
        job.cancelled_after = None
        job.request = GenerationRequest(job.request.prompt, 40, GREEDY, priority=Priority.DOCUMENT)
    live = Job(GenerationRequest((4, 4, 4, 2), 60, GREEDY, priority=Priority.INTERACTIVE), arrives, None)

    def time_of(everything: list[Job]) -> float:
        decoder = ModelDecoder(slots + 1, cells=1000, cost_s=cost_s)
        spans: list[float] = []

        def note() -> None:
            if live.opened >= 0 and not live.has_ended:
                spans.append(decoder.clock_s)

        live.opened, live.events = -1, []
        for job in work:
            job.events = []
        play(make_batcher(decoder), everything, check=note)
        return spans[-1] - spans[0] if spans else 0.0

    alone = time_of([live])
    beside = time_of([*work, live])
    assert beside <= 2 * alone + 2 * cost_s(64)
    for job in (*work, live):
        assert_right(job)


@settings(max_examples=10)
@given(st.integers(1, 40))
def test_other_work_goes_on_beside_endless_interactive_work(n_prompt: int) -> None:
    document = Job(GenerationRequest((2,) * n_prompt, 10, GREEDY, priority=Priority.DOCUMENT), 0, None)
    live = [
        Job(GenerationRequest((3, step % 30 + 1), 20, GREEDY, priority=Priority.INTERACTIVE), step, None)
        for step in range(0, 240, 3)
    ]
    decoder = ModelDecoder(5, cells=1000, cost_s=lambda n_rows: 0.1)
    ended: list[float] = []
    play(
        make_batcher(decoder),
        [document, *live],
        check=lambda: ended.append(decoder.clock_s) if document.has_ended else None,
    )
    assert ended[0] <= 2.5 * (11 + n_prompt)


def test_interactive_work_joins_at_the_next_step_though_all_slots_are_taken() -> None:
    decoder = ModelDecoder(5, cells=1000)
    batcher = make_batcher(decoder)
    documents = GenerationRequest((9, 9, 9), 90, GREEDY, priority=Priority.DOCUMENT)
    while batcher.can_open(documents):
        batcher.open(documents)
    batcher.step()
    request = GenerationRequest((4, 4, 4, 2), 60, GREEDY, priority=Priority.INTERACTIVE)
    assert batcher.can_open(request)
    ticket = batcher.open(request)
    assert any(owner == ticket and isinstance(event, TokensGenerated) for owner, event in batcher.step())


@given(st.data())
def test_dropping_one_harms_nobody(data: st.DataObject) -> None:
    work = data.draw(st.lists(jobs(faults=False), min_size=2, max_size=6))
    for job in work:
        job.cancelled_after, job.arrives = None, 0
    work[0].cancelled_after = data.draw(st.integers(0, 5))
    decoder = ModelDecoder(8, cells=1000, rows=16)
    play(make_batcher(decoder), work)
    for job in work:
        assert_right(job)


def n_calls(request: GenerationRequest) -> int:
    decoder = ModelDecoder(1, cells=2000, rows=256, outputs=32)
    job = Job(request, 0, None)
    play(make_batcher(decoder), [job])
    assert_right(job)
    return len(decoder.journal.calls)


def long_prompt(n_answer: int) -> tuple[int, ...]:
    """Return a prompt whose answer has at least so many tokens."""
    candidates = ((5, a, b) for a in range(1, NAN) for b in range(1, NAN))
    return next(prompt for prompt in candidates if len(answer_to(prompt, n_answer)) == n_answer)


def test_a_right_draft_takes_a_fraction_of_the_calls() -> None:
    prompt = long_prompt(100)
    assert n_calls(GenerationRequest(prompt, 100, GREEDY, draft=tuple(answer_to(prompt, 100)))) <= 5


def test_after_a_changed_a_missing_and_a_doubled_part_the_draft_is_followed_again() -> None:
    prompt = long_prompt(100)
    right = answer_to(prompt, 100)
    for changed in (
        [*right[:50], 1, *right[51:]],
        [*right[:50], *right[53:]],
        [*right[:50], 1, 2, 3, *right[50:]],
    ):
        assert n_calls(GenerationRequest(prompt, 100, GREEDY, draft=tuple(changed))) <= 12


def test_a_wrong_draft_is_given_up() -> None:
    prompt = long_prompt(100)
    assert n_calls(GenerationRequest(prompt, 100, GREEDY, draft=(1, 2) * 50)) <= 101
