import pytest

from hymt_local.engine.draft import RETRY_EVERY, TRIALS, Draft, DraftMeter
from hymt_local.engine.options import DRAFT_SLICE, LONG_DRAFT_SLICE

TOKENS = list(range(200))


def test_a_draft_is_guessed_in_slices_that_grow_with_success() -> None:
    draft = Draft(TOKENS)
    assert draft.guess(100) == tuple(TOKENS[:DRAFT_SLICE])
    assert draft.guess(3) == tuple(TOKENS[:3])
    draft.follow(TOKENS[: DRAFT_SLICE + 1], n_new=DRAFT_SLICE + 1, n_right=DRAFT_SLICE, n_guessed=DRAFT_SLICE)
    assert draft.guess(100) == tuple(TOKENS[DRAFT_SLICE + 1 : DRAFT_SLICE + 1 + LONG_DRAFT_SLICE])


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
