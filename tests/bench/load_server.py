"""Many clients at once, some of them rude: `python -m tests.bench.load_server [--clients 8] [--seconds 60]`.

Each client asks for texts made of phrases whose translations were fetched one by one before; in between come streams
that are left, connections that are dropped, bodies that are too large, wrong tokens and foreign origins. Fails when an
answer is lost or is somebody else's, and when memory grows.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from hymt_local.paths import Paths
from hymt_local.server_call import ask
from hymt_local.server_file import ServerFile, find_server
from tests.bench.bench_resident import running_server

PHRASES = Path(__file__).parents[2] / "convert" / "demo" / "data" / "phrases.tsv"
N_PHRASES = 60
MIB = 1024**2
MAX_GROWTH = 1.25
"""Of resident memory from the first quarter to the end."""
TIMEOUT_S = 60.0


@dataclass
class Tally:
    """What happened, of all clients."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    counts: Counter[str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    characters: int = 0

    def add(self, what: str, *, fault: str = "") -> None:
        with self.lock:
            self.counts[what] += 1
            if fault:
                self.faults.append(f"{what}: {fault}")


class LoadClient:
    """One client, who mixes requests by chance."""

    def __init__(self, server: ServerFile, known: Mapping[str, str], tally: Tally, seed: int) -> None:
        self._server = server
        self._known = known
        self._tally = tally
        self._random = random.Random(seed)

    def run_until(self, ends_at: float) -> None:
        kinds: list[Callable[[], None]] = [
            *[self._translate] * 12,
            *[self._stream] * 4,
            self._leave_stream,
            self._drop,
            self._send_too_much,
            self._use_wrong_token,
            self._come_from_elsewhere,
        ]
        while time.perf_counter() < ends_at:
            kind = self._random.choice(kinds)
            try:
                kind()
            except Exception as error:  # whatever it is, it is a lost answer
                self._tally.add(kind.__name__, fault=repr(error))

    def _text(self) -> tuple[str, str]:
        phrases = self._random.sample(list(self._known), self._random.randint(1, 4))
        return "\n".join(phrases), "\n".join(self._known[phrase] for phrase in phrases)

    def _translate(self) -> None:
        text, wanted = self._text()
        started_at = time.perf_counter()
        status, answer = self._ask(text)
        self._judge("answered", status, json.loads(answer).get("text"), wanted, started_at=started_at, text=text)

    def _stream(self) -> None:
        text, wanted = self._text()
        started_at = time.perf_counter()
        status, answer = self._ask(text, accept="text/event-stream")
        last = answer.decode().strip().rsplit("data: ", 1)[-1]
        self._judge("streamed", status, json.loads(last).get("text"), wanted, started_at=started_at, text=text)

    def _judge(self, what: str, status: int, got: object, wanted: str, *, started_at: float, text: str) -> None:
        if status == 429:
            self._tally.add("busy")
            return
        fault = "" if (status, got) == (200, wanted) else f"{status} {got!r} instead of {wanted!r}"
        self._tally.add(what, fault=fault)
        with self._tally.lock:
            self._tally.latencies_s.append(time.perf_counter() - started_at)
            self._tally.characters += len(text)

    def _leave_stream(self) -> None:
        connection, response = self._begin(self._text()[0], accept="text/event-stream")
        response.readline()
        response.close()
        connection.close()
        self._tally.add("left")

    def _drop(self) -> None:
        connection = self._connect()
        self._request(connection, self._body(self._text()[0]), {})
        connection.close()
        self._tally.add("dropped")

    def _send_too_much(self) -> None:
        connection = self._connect()
        connection.putrequest("POST", "/v1/translate")
        for name, value in {**self._headers(), "Content-Length": str(200 * MIB)}.items():
            connection.putheader(name, value)
        connection.endheaders()
        self._expect("too large", connection, 413)

    def _use_wrong_token(self) -> None:
        connection = self._connect()
        self._request(connection, self._body("Hello"), {"Authorization": "Bearer wrong"})
        self._expect("bad token", connection, 401)

    def _come_from_elsewhere(self) -> None:
        connection = self._connect()
        self._request(connection, self._body("Hello"), {"Origin": "https://evil.example"})
        self._expect("foreign", connection, 403)

    def _expect(self, what: str, connection: http.client.HTTPConnection, wanted: int) -> None:
        status = connection.getresponse().status
        connection.close()
        self._tally.add(what, fault="" if status == wanted else f"status {status}")

    def _ask(self, text: str, *, accept: str = "application/json") -> tuple[int, bytes]:
        connection, response = self._begin(text, accept=accept)
        try:
            return response.status, response.read()
        finally:
            connection.close()

    def _begin(self, text: str, *, accept: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._connect()
        self._request(connection, self._body(text), {"Accept": accept})
        return connection, connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._server.host, self._server.port, timeout=TIMEOUT_S)

    def _request(self, connection: http.client.HTTPConnection, body: bytes, headers: Mapping[str, str]) -> None:
        connection.request("POST", "/v1/translate", body, {**self._headers(), **headers})

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._server.token}", "Content-Type": "application/json"}

    def _body(self, text: str) -> bytes:
        wanted = {"text": text, "source_lang": "en", "target_lang": "fr", "use_cache": False}
        return json.dumps(wanted).encode()

    def fetch(self, phrase: str) -> str | None:
        """Return the translation of one phrase, or None when the model refuses it."""
        status, answer = self._ask(phrase)
        value = json.loads(answer)
        return value["text"] if status == 200 and not value["failed"] else None


def load(server: ServerFile, pid: int, *, n_clients: int, seconds: float) -> dict[str, Any]:
    """Run all clients and return what came of it."""
    tally = Tally()
    known = _known_phrases(LoadClient(server, {}, tally, 0))
    _run(server, known, Tally(), n_clients=n_clients, seconds=min(5.0, seconds / 4))  # caches and pools fill up
    first_bytes = resident_bytes(pid)
    started_at = time.perf_counter()
    _run(server, known, tally, n_clients=n_clients, seconds=seconds)
    wall_s = time.perf_counter() - started_at
    last_bytes = resident_bytes(pid)
    ask(server, "POST", "/v1/unload", {})
    unloaded_bytes = resident_bytes(pid)
    latencies = sorted(tally.latencies_s)
    return {
        "clients": n_clients,
        "seconds": wall_s,
        "counts": dict(sorted(tally.counts.items())),
        "faults": tally.faults,
        "answers_per_s": len(latencies) / wall_s,
        "characters_per_s": tally.characters / wall_s,
        "p50_s": latencies[len(latencies) // 2],
        "p95_s": latencies[len(latencies) * 95 // 100],
        "rss_before_mib": first_bytes / MIB,
        "rss_after_mib": last_bytes / MIB,
        "rss_unloaded_mib": unloaded_bytes / MIB,
    }


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a server and its engine."""
    process = psutil.Process(pid)
    return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))


def _run(server: ServerFile, known: Mapping[str, str], tally: Tally, *, n_clients: int, seconds: float) -> None:
    ends_at = time.perf_counter() + seconds
    clients = [LoadClient(server, known, tally, seed) for seed in range(n_clients)]
    threads = [threading.Thread(target=client.run_until, args=[ends_at]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _known_phrases(client: LoadClient) -> dict[str, str]:
    with PHRASES.open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        phrases = [row["en"] for row in rows]
    known: dict[str, str] = {}
    for phrase in phrases:
        translated = client.fetch(phrase)
        if translated is not None:
            known[phrase] = translated
        if len(known) >= N_PHRASES:
            break
    return known


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; 0 when nothing was lost or crossed and memory stayed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as home, running_server("demo", home=home) as (_, pid):
        server = find_server(Paths.under(Path(home)))
        assert server is not None
        result = load(server, pid, n_clients=options.clients, seconds=options.seconds)
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:18} {value:.3f}" if isinstance(value, float) else f"{name:18} {value}")
    has_grown = result["rss_after_mib"] > result["rss_before_mib"] * MAX_GROWTH
    return 1 if result["faults"] or has_grown else 0


if __name__ == "__main__":
    sys.exit(main())
