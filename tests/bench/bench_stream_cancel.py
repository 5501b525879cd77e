"""How soon a generation ends when a reader closes its stream: `python -m tests.bench.bench_stream_cancel [--json]`.

From closing the connection to the moment at which the engine has dropped the generation, at random points of reading a
long prompt and of writing the answer, through the whole server. Wants a model that reads slowly enough to be caught:
`--file` is any model file, with the vocabulary and prompts of Hunyuan-MT-7B; its engine runs in a process of its own,
as a real model's does. The demo, without it, shows that the bench works.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace as replace_fields

from hymt_local.application import Application, open_application
from hymt_local.engine.base import Backend, BackendOpener
from hymt_local.engine.host import open_hosted
from hymt_local.engine.machine import usable_cores
from hymt_local.engine.options import LlamaOptions, default_threads
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.jobs import LocalService
from hymt_local.loading import LlamaOrders
from hymt_local.translator import OpenModel
from tests.server.serving import TOKEN, Served, serving

LONG = " ".join(f"The station number {n} is near the old bridge." for n in range(60))
BUDGET_S = 0.1
TIMEOUT_S = 300.0


class Drops:
    """Says when the engine has dropped a generation."""

    def __init__(self) -> None:
        self._dropped = threading.Event()
        self._at = 0.0

    def watch(self, backend: Backend) -> Backend:
        drop = backend.drop

        def watched(ticket: int) -> Any:
            done = drop(ticket)
            self._at = time.perf_counter()
            self._dropped.set()
            return done

        backend.drop = watched  # type: ignore[method-assign]
        return backend

    def after(self, leave: Callable[[], None]) -> float:
        """Return how long after leaving a generation was dropped."""
        self._dropped.clear()
        started_at = time.perf_counter()
        leave()
        if not self._dropped.wait(TIMEOUT_S):
            raise TimeoutError("the engine went on")
        return self._at - started_at


def watched_model(app: Application, drops: Drops, file: Path | None) -> OpenModel:
    """Return the default model, or that of a file, with an engine that is looked at."""
    if file is not None:
        return model_of_file(app, file, watch=drops.watch)
    model = app.open_model(None)
    opener = app._opener(app.resolve_model(None))
    return replace(model, engine=ThreadedEngine(lambda tell: drops.watch(opener(tell)), name=model.name))


def model_of_file(
    app: Application, file: Path, *, watch: Callable[[Backend], Backend] = lambda backend: backend
) -> OpenModel:
    """Return a model that speaks like Hunyuan-MT-7B, whatever the size of its file and the numbers of its tokens."""
    spec = replace_fields(app.catalog.get("Hunyuan-MT-7B"), control_ids={})
    options = LlamaOptions(
        context_length=8192, threads=default_threads(file.stat().st_size, usable_cores()), prefix_bytes=0
    )
    opener: BackendOpener = open_hosted(lambda ask_gpus: LlamaOrders(file, options), name=file.stem)
    engine = ThreadedEngine(lambda tell: watch(opener(tell)), name=file.stem)
    return OpenModel(spec, engine, fingerprint="0" * 64, quantization="none")


def measure(served: Served, drops: Drops, *, rounds: int, seed: int = 5) -> dict[str, Any]:
    """Close streams at random points."""
    draw = random.Random(seed)
    latencies: dict[str, list[float]] = {"reading": [], "writing": []}
    for turn in range(rounds):
        for phase, times in latencies.items():
            is_reading = phase == "reading"
            connection, response = _opened(served, f"{turn} {LONG if is_reading else 'Where is the station?'}")
            if not _until(response, b"progress" if is_reading else b"token"):
                continue  # it was too quick
            time.sleep(draw.random() * 0.3 * is_reading)

            def leave(connection: http.client.HTTPConnection = connection, response: Any = response) -> None:
                response.close()
                connection.close()

            times.append(drops.after(leave))
    return {
        "rounds": rounds,
        **{f"{phase}_median_ms": 1e3 * median(times) for phase, times in latencies.items() if times},
        **{f"{phase}_worst_ms": 1e3 * max(times) for phase, times in latencies.items() if times},
    }


def _opened(served: Served, text: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=TIMEOUT_S)
    body = {"text": text, "source_lang": "en", "target_lang": "fr", "use_cache": False, "keep_alive_s": -1}
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", "Accept": "text/event-stream"}
    connection.request("POST", "/v1/translate", json.dumps(body), headers)
    return connection, connection.getresponse()


def _until(response: http.client.HTTPResponse, wanted: bytes) -> bool:
    for line in response:
        if line == b"event: %s\n" % wanted:
            return True
        if line in {b"event: done\n", b"event: error\n"}:
            return False
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; 0 when there are some, and none is beyond the budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, help="a model file")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    drops = Drops()
    with tempfile.TemporaryDirectory() as made:
        environ = {"HYMT_HOME": made}
        app = open_application(environ, flags={"model": "demo"})
        service = LocalService(lambda ref: watched_model(app, drops, options.file), cache_path=None)
        with serving(service, model="demo", environ=environ) as served:
            result = measure(served, drops, rounds=options.rounds)
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:18} {value:.1f}")
    worst = [value for name, value in result.items() if name.endswith("worst_ms")]
    return 0 if max(worst, default=inf) <= 1e3 * BUDGET_S else 1


if __name__ == "__main__":
    sys.exit(main())
