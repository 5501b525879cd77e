"""Counts of the server in the text format of Prometheus. No label holds text of a user."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable

BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Everything that is counted. Belongs to the server's loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_at = clock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._ends: Counter[str] = Counter()
        self._durations = [0] * (len(BUCKETS_S) + 1)
        self._duration_sum_s = 0.0
        self._characters = 0
        self._output_tokens = 0
        self._alerts = 0

    def count_request(self, dialect: str, status: int) -> None:
        """Count one answered HTTP request."""
        self._requests[dialect, status] += 1

    def count_characters(self, n_characters: int) -> None:
        """Count text that was taken in."""
        self._characters += n_characters

    def count_translation(self, end: str, *, duration_s: float, output_tokens: int) -> None:
        """Count one translation that came to an end: `done`, `error` or `cancelled`."""
        self._ends[end] += 1
        self._durations[bisect_left(BUCKETS_S, duration_s)] += 1
        self._duration_sum_s += duration_s
        self._output_tokens += output_tokens

    def count_alert(self) -> None:
        """Count one line of alert."""
        self._alerts += 1

    def render(self, *, active: int, loaded: int) -> str:
        """Return all as text; `active` translations are under way, `loaded` models are in memory."""
        lines = [
            *_family("hymt_uptime_seconds", "gauge", [("", self._clock() - self._started_at)]),
            *_family("hymt_translations_active", "gauge", [("", active)]),
            *_family("hymt_models_loaded", "gauge", [("", loaded)]),
            *_family("hymt_characters_total", "counter", [("", self._characters)]),
            *_family("hymt_output_tokens_total", "counter", [("", self._output_tokens)]),
            *_family("hymt_alerts_total", "counter", [("", self._alerts)]),
            *_family(
                "hymt_http_requests_total",
                "counter",
                [
                    (f'{{dialect="{name}",status="{status}"}}', n)
                    for (name, status), n in sorted(self._requests.items())
                ],
            ),
            *_family(
                "hymt_translations_total", "counter", [(f'{{end="{end}"}}', n) for end, n in sorted(self._ends.items())]
            ),
            *self._histogram("hymt_translation_seconds"),
        ]
        return "\n".join(lines) + "\n"

    def _histogram(self, name: str) -> Iterable[str]:
        yield f"# TYPE {name} histogram"
        total = 0
        for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), self._durations, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._duration_sum_s:.6f}"
        yield f"{name}_count {total}"


def _family(name: str, kind: str, samples: Iterable[tuple[str, float]]) -> Iterable[str]:
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield f"{name}{labels} {value:.6f}" if isinstance(value, float) else f"{name}{labels} {value}"
