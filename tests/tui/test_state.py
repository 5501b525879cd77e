"""The values behind the screens: transcript, run state, languages, keys."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.events import (
    Cancelled,
    Failed,
    ModelLoading,
    Origin,
    PromptProgress,
    SegmentDone,
    Started,
    TextDelta,
    TokenUsage,
    TranslationRequest,
)
from hymt_local.language import LANGUAGES
from hymt_local.tui.keymap import APP_COMMANDS, TRANSLATE_COMMANDS
from hymt_local.tui.languages import default_target, search
from hymt_local.tui.run_state import Phase, RunState, advance
from hymt_local.tui.transcript import Transcript
from tests.tui.fakes import NOT_COVERED, finished, started


class TestTranscript:
    @given(st.lists(st.text("ab \n", max_size=8), min_size=1, max_size=6).map("\n".join), st.randoms())
    def test_echoed_segments_in_any_order_grow_to_the_source(self, text: str, random: Random) -> None:
        event = started(TranslationRequest(text or "a", "fr"))
        order = list(event.segments)
        random.shuffle(order)
        transcript, seen = Transcript(), [""]
        transcript.start(event)
        for segment in order:
            transcript.add(TextDelta(segment.index, segment.source[:1]))
            seen.append(transcript.text)
            transcript.settle(SegmentDone(segment.index, segment.source, segment.source, Origin.MODEL))
            seen.append(transcript.text)
        assert seen[-1] == (text or "a")
        assert all(later.startswith(earlier) for earlier, later in pairwise(seen))

    def test_without_known_segments_each_gets_a_line(self) -> None:
        transcript = Transcript()
        transcript.start(Started("m", "test", "en", "fr", None, 2))
        transcript.settle(SegmentDone(0, "a", "A", Origin.MODEL))
        transcript.add(TextDelta(1, "B"))
        assert transcript.text == "A\nB"

    @pytest.mark.parametrize(("final", "rows"), [("un\n\ntwo\n", {2}), ("un. two", set())])
    def test_failed_rows_are_known_only_when_the_segments_add_up(self, final: str, rows: set[int]) -> None:
        request = TranslationRequest("one\n\ntwo\n", "fr")
        failed = SegmentDone(2, "two", "two", Origin.SOURCE, TokenUsage(), NOT_COVERED)
        transcript = Transcript()
        transcript.start(started(request))
        for done in (SegmentDone(0, "one", "un", Origin.MODEL), SegmentDone(1, "", "", Origin.SOURCE), failed):
            transcript.settle(done)
        transcript.finish(finished(request, final, failed=(failed,)))
        assert transcript.failed_rows() == rows


class TestRunState:
    def test_the_phases_of_a_run(self) -> None:
        request = TranslationRequest("one\ntwo", "fr")
        state, phases = RunState(phase=Phase.WAITING), []
        for event in (
            started(request),
            ModelLoading("demo", 0.2),
            PromptProgress(0, 1, 2),
            TextDelta(0, "u"),
            PromptProgress(1, 1, 2),
            SegmentDone(0, "one", "un", Origin.MODEL, TokenUsage(output_tokens=4, decode_s=0.1)),
            finished(request, "un\ndeux"),
        ):
            state = advance(state, event)
            phases.append(state.phase.value)
        assert phases == ["waiting", "loading", "reading", "writing", "writing", "writing", "done"]
        assert not state.phase.is_active

    def test_speed_is_known_once_something_was_decoded(self) -> None:
        state = RunState()
        assert state.tokens_per_s is None
        usage = TokenUsage(output_tokens=10, decode_s=0.5)
        assert advance(state, SegmentDone(0, "a", "b", Origin.MODEL, usage)).tokens_per_s == 20

    @pytest.mark.parametrize(("event", "phase"), [(Failed(NOT_COVERED), Phase.FAILED), (Cancelled(), Phase.CANCELLED)])
    def test_a_run_that_ends_early(self, event: Failed | Cancelled, phase: Phase) -> None:
        assert advance(RunState(phase=Phase.WRITING), event).phase is phase


class TestLanguages:
    @pytest.mark.parametrize(
        ("query", "first"),
        [
            ("zh", "zh"),
            ("chin", "zh"),
            ("繁", "zh-Hant"),
            ("日本", "ja"),
            ("farsi", "fa"),
            ("iw", "he"),
            ("arab", "ar"),
        ],
    )
    def test_search_puts_the_best_first(self, query: str, first: str) -> None:
        assert search(query, LANGUAGES)[0].tag == first

    def test_an_empty_search_keeps_the_order(self) -> None:
        assert search("  ", LANGUAGES) == list(LANGUAGES)

    def test_nothing_matches_nonsense(self) -> None:
        assert search("qqq", LANGUAGES) == []

    @pytest.mark.parametrize(
        ("environ", "tag"),
        [
            ({"LANG": "de_DE.UTF-8"}, "de"),
            ({"LC_ALL": "zh_TW.UTF-8", "LANG": "de_DE"}, "zh-Hant"),
            ({"LANG": "en_US.UTF-8"}, "zh"),
            ({"LANG": "C.UTF-8"}, "zh"),
            ({}, "zh"),
        ],
    )
    def test_the_default_target_is_the_users_own_language(self, environ: dict[str, str], tag: str) -> None:
        assert default_target(environ, LANGUAGES) == tag


def test_no_key_has_two_meanings_and_no_action_two_names() -> None:
    commands = (*TRANSLATE_COMMANDS, *APP_COMMANDS)
    keys = [key for command in commands for key in command.keys.split(",") if key]
    assert len(keys) == len(set(keys))
    assert len({command.id for command in commands}) == len(commands)
    assert sum(command.in_footer for command in commands) == 6
