import random

import pytest

from hymt_local.engine.draft import RETRY_EVERY, TRIALS, Draft, DraftMeter
from hymt_local.engine.options import DRAFT_SLICE, LONG_DRAFT_SLICE

TOKENS = list(range(200))


def test_a_draft_is_guessed_in_slices_that_are_short_after_a_disagreement_and_grow_with_success() -> None:
    draft = Draft(TOKENS)
    assert draft.guess(100) == tuple(TOKENS[:LONG_DRAFT_SLICE])
    assert draft.guess(3) == tuple(TOKENS[:3])
    answer = [*TOKENS[:5], 999]
    draft.follow(answer, n_new=6, n_right=5, n_guessed=LONG_DRAFT_SLICE)
    for token in (6, 7):
        answer.append(token)
        draft.follow(answer, n_new=1, n_right=0, n_guessed=0)
    assert draft.guess(100) == tuple(TOKENS[8 : 8 + DRAFT_SLICE])
    answer += TOKENS[8 : 8 + DRAFT_SLICE + 1]
    draft.follow(answer, n_new=DRAFT_SLICE + 1, n_right=DRAFT_SLICE, n_guessed=DRAFT_SLICE)
    assert draft.guess(100) == tuple(TOKENS[9 + DRAFT_SLICE : 9 + DRAFT_SLICE + LONG_DRAFT_SLICE])


@pytest.mark.parametrize(
    ("answer_goes_on", "resumes_at"),
    [([999, 6, 7], 8), ([999, 998, 5, 6], 7), ([8, 9], 10), ([999, 50, 51], 52)],
    ids=["replaced", "inserted", "left out", "moved on"],
)
def test_a_draft_is_silent_after_a_disagreement_until_two_tokens_agree(
    answer_goes_on: list[int], resumes_at: int
) -> None:
    draft = Draft(TOKENS)
    answer = TOKENS[:5]
    answer.append(answer_goes_on[0])
    draft.follow(answer, n_new=6, n_right=5, n_guessed=DRAFT_SLICE)
    for token in answer_goes_on[1:]:
        assert draft.guess(100) == ()
        answer.append(token)
        draft.follow(answer, n_new=1, n_right=0, n_guessed=0)
    assert draft.guess(2) == (resumes_at, resumes_at + 1)


@pytest.mark.parametrize(
    ("n_beside", "n_guessed"), [(1, 31), (2, 30), (5, 27), (9, 23), (10, 31), (17, 31), (18, 30), (40, 24)]
)
def test_a_guess_leaves_a_few_rows_beyond_what_kernels_compute_at_a_time_to_the_next_call(
    n_beside: int, n_guessed: int
) -> None:
    assert len(Draft(TOKENS).guess(100, n_beside=n_beside)) == n_guessed
    assert len(Draft(TOKENS[:31]).guess(100, n_beside=n_beside)) == 31


def test_a_draft_that_ends_has_nothing_more_to_say() -> None:
    draft = Draft([1, 2])
    draft.follow([1, 2, 3], n_new=3, n_right=2, n_guessed=2)
    assert draft.guess(100) == ()


def test_drafts_are_used_as_long_as_they_pay() -> None:
    meter = DraftMeter()
    meter.note_row(0.1)
    for _ in range(TRIALS):
        assert meter.admits()
        meter.note_slice(0.5, n_guessed=15, n_accepted=14)
    assert meter.pays
    for _ in range(30):
        meter.note_slice(0.5, n_guessed=15, n_accepted=1)
    assert not meter.pays
    assert sum(meter.admits() for _ in range(2 * RETRY_EVERY)) == 2
    for _ in range(30):
        meter.note_slice(0.1, n_guessed=15, n_accepted=9)
    assert meter.pays


STEP_MS = {1: 143, 16: 658, 32: 904}
"""Of a 7B on two cores, by rows: the next larger of these is what a step costs."""


def cost_of(answer: list[int], draft: list[int]) -> float:
    """Write an answer with a draft; return its time over the time without."""
    follower, written, cost_ms = Draft(draft), list[int](), 0
    while len(written) < len(answer):
        guess = follower.guess(31)
        n_right = 0
        rest = answer[len(written) :]
        while n_right < min(len(guess), len(rest) - 1) and guess[n_right] == rest[n_right]:
            n_right += 1
        cost_ms += next(ms for rows, ms in STEP_MS.items() if rows > len(guess))
        written += rest[: n_right + 1]
        follower.follow(written, n_new=n_right + 1, n_right=n_right, n_guessed=len(guess))
    return cost_ms / (STEP_MS[1] * len(answer))


def test_a_changed_word_costs_less_than_half_of_writing_everything() -> None:
    answer = random.Random(3).sample(range(1000), 100)
    draft = [*answer[:50], 2000, 2001, 2002, *answer[52:]]
    assert cost_of(answer, draft) <= 0.45
    assert cost_of(answer, answer) <= 0.3
    assert cost_of(answer, answer[:-3]) <= 0.3


def test_a_text_that_repeats_itself_does_not_lead_a_draft_astray_for_long() -> None:
    """Two tokens agree here and there by chance, and what follows does not."""
    draw = random.Random(4)
    answer = [draw.randrange(3) for _ in range(300)]
    draft = [draw.randrange(3) for _ in range(300)]
    assert cost_of(answer, draft) <= 1.8
    looping = [1, 2, 3, 1, 2, 4] * 50
    assert cost_of(looping, [*looping[:100], 9, 9, 9, *looping[101:]]) <= 0.6
