"""Reads a stream of events as it comes, and closes it when told to."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.server.serving import TOKEN, WAIT_S, Served


@dataclass(frozen=True)
class Told:
    """One event as a client sees it."""

    id: int
    name: str
    data: Any


@dataclass(frozen=True)
class Stream:
    response: http.client.HTTPResponse

    @property
    def job_id(self) -> str:
        return self.response.headers["X-Job-Id"]

    def __iter__(self) -> Iterator[Told]:
        fields: dict[str, str] = {}
        for line in self.response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "event" in fields:
                yield Told(int(fields["id"]), fields["event"], json.loads(fields["data"]))
                fields = {}

    def until(self, name: str) -> Told:
        return next(told for told in self if told.name == name)


@contextmanager
def streaming(
    served: Served, path: str, body: object = None, *, last_id: int | None = None, token: str = TOKEN
) -> Iterator[Stream]:
    """POST a body, or GET, and read events; leaving the context closes the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=WAIT_S)
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    if last_id is not None:
        headers["Last-Event-ID"] = str(last_id)
    try:
        if body is None:
            connection.request("GET", path, headers=headers)
        else:
            connection.request("POST", path, json.dumps(body), {**headers, "Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        try:
            yield Stream(response)
        finally:
            response.close()
    finally:
        connection.close()
