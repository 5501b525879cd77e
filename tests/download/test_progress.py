"""Rate, remaining time, and never more than five events a second."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hymt_local.download import DownloadProgress
from hymt_local.download.progress import ProgressMeter
from tests.download.conftest import Events, FakeClock


def meter(clock: FakeClock, events: Events, *, total: int) -> ProgressMeter:
    made = ProgressMeter(events, now=clock.now)
    made.expect(total)
    return made


def test_rate_and_remaining_time_do_not_count_what_was_there(clock: FakeClock, events: Events) -> None:
    progress = meter(clock, events, total=2000)
    progress.start("a", phase="download", total_bytes=1000, done_bytes=500)
    for done_bytes in (600, 700, 800):
        clock.seconds += 1
        progress.update(done_bytes)
    assert events.all[0] == DownloadProgress("a", "download", 500, 1000, 500, 2000, None, None)
    assert events.all[-1] == DownloadProgress("a", "download", 800, 1000, 800, 2000, 100.0, 12.0)


def test_the_rate_is_that_of_the_last_seconds(clock: FakeClock, events: Events) -> None:
    progress = meter(clock, events, total=10**6)
    progress.start("a", phase="download", total_bytes=10**6)
    done_bytes = 0
    for rate in [10] * 20 + [1000] * 6:
        clock.seconds += 1
        done_bytes += rate
        progress.update(done_bytes)
    last = events.all[-1]
    assert isinstance(last, DownloadProgress)
    assert last.rate_bytes_per_s == 1000


def test_beginning_again_gives_no_negative_rate(clock: FakeClock, events: Events) -> None:
    progress = meter(clock, events, total=1000)
    progress.start("a", phase="download", total_bytes=1000)
    for done_bytes in (900, 0, 10):
        clock.seconds += 1
        progress.update(done_bytes)
    last = events.all[-1]
    assert isinstance(last, DownloadProgress)
    assert last.rate_bytes_per_s == 10


def test_files_add_up_and_verifying_counts_for_its_file_only(clock: FakeClock, events: Events) -> None:
    progress = meter(clock, events, total=300)
    progress.start("a", phase="verify", total_bytes=100)
    clock.seconds += 1
    progress.update(100)
    progress.finish_file(100)
    clock.seconds += 1
    progress.start("b", phase="download", total_bytes=200, done_bytes=50)
    progress.finish_file(200)
    seen = [
        (event.name, event.done_bytes, event.all_done_bytes)
        for event in events.all
        if isinstance(event, DownloadProgress)
    ]
    assert seen == [("a", 0, 0), ("a", 100, 0), ("b", 50, 150), ("b", 200, 300)]


@given(steps=st.lists(st.tuples(st.floats(0, 0.5), st.integers(0, 1000)), max_size=60))
def test_at_most_five_events_a_second(steps: list[tuple[float, int]]) -> None:
    clock, events = FakeClock(), Events()
    total = sum(size for _, size in steps) + 1
    progress = meter(clock, events, total=total)
    progress.start("a", phase="download", total_bytes=total)
    done_bytes, times = 0, []
    for seconds, size in steps:
        clock.seconds += seconds
        done_bytes += size
        before = len(events.all)
        progress.update(done_bytes)
        times += [clock.seconds] * (len(events.all) - before)
    assert all(later - earlier >= 0.2 for earlier, later in pairwise(times))
    assert all(event.eta_s is None or event.eta_s >= 0 for event in events.all if isinstance(event, DownloadProgress))
