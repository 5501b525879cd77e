"""What the routes of every dialect share: the service, the models, the limits, and the ways to translate."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from hymt_local.application import Application
from hymt_local.client_keys import ClientFile
from hymt_local.detect import LanguageDetector
from hymt_local.errors import ErrorReport, InputEncodingError, RequestTooLargeError, UsageError, error_of
from hymt_local.events import Cancelled, Event, Failed, Finished, LastEvent, Started, TranslationRequest
from hymt_local.jobs import LocalService
from hymt_local.server.clients import Client, Clients
from hymt_local.server.documents import Documents
from hymt_local.server.flights import RETRY_GRACE_S, Flight, Flights
from hymt_local.server.limits import ServerLimits, TimeBudget
from hymt_local.server.metrics import Metrics
from hymt_local.server.residency import Residency
from hymt_local.server.waiting_line import WaitingLine
from hymt_local.translation_job import Service

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Access:
    """From where the server may be spoken to."""

    hosts: frozenset[str]
    """Names in `Host`, lower case, without port."""
    origins: frozenset[str]
    """Of pages, besides the server's own; those of paired extensions are in `Clients`."""


class FlightWatch:
    """Tells metrics and residency of every translation."""

    def __init__(self, metrics: Metrics, residency: Residency) -> None:
        self.used_at = time.monotonic()
        """When a translation last began or ended."""
        self._metrics = metrics
        self._residency = residency

    def see(self, flight: Flight, event: Event) -> None:
        """Look at one event."""
        self.used_at = time.monotonic()
        if isinstance(event, Started):
            self._residency.begin(event.model)
        if isinstance(event, LastEvent):
            self._count(flight, event)
            if flight.model is not None:
                self._residency.end(flight.model)

    def _count(self, flight: Flight, last: LastEvent) -> None:
        self._metrics.count_translation(
            END_NAMES[type(last)],
            duration_s=time.monotonic() - flight.started_at,
            output_tokens=last.usage.output_tokens if isinstance(last, Finished) else 0,
        )


@dataclass(frozen=True, slots=True)
class ServerContext:
    """Everything that routes are built from. Belongs to the server's loop."""

    app: Application
    """Settings, catalog and installed models (`app.store.list()`, `app.resolve_model(ref)`)."""
    service: Service
    flights: Flights
    line: WaitingLine
    documents: Documents
    clients: Clients
    access: Access
    limits: ServerLimits
    metrics: Metrics
    residency: Residency
    watch: FlightWatch
    detector: LanguageDetector
    """Shared with the service; slow on first use: call it from a worker thread."""
    stop: Callable[[], None]
    """Begin to stop the server."""
    started_at: float = field(default_factory=time.time)
    """Seconds since 1970."""

    async def translate(
        self, http: Request, request: TranslationRequest, *, grace_s: float = RETRY_GRACE_S
    ) -> Finished:
        """Translate one text for a client; identical requests are computed once.

        When the client goes away, the job is cancelled `grace_s` later. Read the body before.

        Raises:
            HymtError: the translation failed, or a limit is reached.
            ClientDisconnect: the client has gone.
        """
        (finished,) = await self.translate_all(http, [request], grace_s=grace_s)
        return finished

    async def translate_all(
        self, http: Request, requests: Sequence[TranslationRequest], *, grace_s: float = RETRY_GRACE_S
    ) -> list[Finished]:
        """Translate many texts of one HTTP request, in one batch; the answers have their order.

        Raises:
            HymtError: the first failure; the others are cancelled.
            ClientDisconnect: the client has gone.
        """
        return [await flight.finished() for flight in await self.fly_all(http, requests, grace_s=grace_s)]

    async def fly_all(
        self, http: Request, requests: Sequence[TranslationRequest], *, grace_s: float = RETRY_GRACE_S
    ) -> list[Flight]:
        """Like `translate_all`, for those who need more than the end: every flight has finished.

        Raises:
            HymtError: the first failure; the others are cancelled.
            ClientDisconnect: the client has gone.
        """
        self.check_size(http, requests)
        slots = asyncio.Semaphore(TEXTS_AT_ONCE)
        client = client_of(http)

        async def one(request: TranslationRequest) -> Flight:
            async with slots, self.flights.board(request, client=client.name, grace_s=grace_s) as flight:
                await flight.finished()
                return flight

        with self.line.place(client):
            async with TimeBudget.of(client.limits).kept():
                return await while_connected(http.receive, _gather([one(request) for request in requests]))

    def check_size(self, http: Request, requests: Sequence[TranslationRequest]) -> None:
        """Count the texts against the limits of server and client.

        Raises:
            RequestTooLargeError: too many texts, or too long.
            BusyError: the client has had its share for the moment.
        """
        self.check_texts(http, [text for each in requests for text in (each.text, *(unit.text for unit in each.units))])
        aside = [text for each in requests[:1] for text in (*each.protect, each.draft or "")]  # a list's are the same
        self.clients.account(client_of(http)).charge_text(sum(map(len, aside)))

    def check_texts(self, http: Request, texts: Sequence[str]) -> None:
        """Count texts of any use; see `check_size`."""
        most = self.limits.texts_per_request
        if len(texts) > most:
            raise RequestTooLargeError(
                f"{len(texts)} texts in one request, the most is {most}", hint="send them in parts"
            )
        n_characters = sum(map(len, texts))
        self.clients.account(client_of(http)).charge_text(n_characters)
        self.metrics.count_characters(n_characters)


def build_context(
    app: Application,
    service: LocalService,
    *,
    token: str,
    stop: Callable[[], None],
    limits: ServerLimits | None = None,
    access: Access | None = None,
) -> ServerContext:
    """Join the parts around a service, whose owner closes it. On the server's loop."""
    limits = limits or ServerLimits()
    metrics = Metrics()
    residency = Residency(service.unload, keep_alive_s=app.settings.idle_unload_s)
    loop = asyncio.get_running_loop()
    service.when_freed = lambda names: _on_loop(loop, residency.forget, names)
    watch = FlightWatch(metrics, residency)
    flights = Flights(service, observer=watch.see)
    documents = Documents(app, service, residency)
    return ServerContext(
        app=app,
        service=service,
        flights=flights,
        line=WaitingLine(limits.waiting_requests, others=lambda: flights.detached + documents.running),
        documents=documents,
        clients=Clients(token, ClientFile(app.paths.clients_file)),
        access=access or Access(LOOPBACK_NAMES, frozenset()),
        limits=limits,
        metrics=metrics,
        residency=residency,
        watch=watch,
        detector=service.detector,
        stop=stop,
    )


def _on_loop(loop: asyncio.AbstractEventLoop, work: Callable[..., object], *arguments: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
        loop.call_soon_threadsafe(work, *arguments)


LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
END_NAMES: Mapping[type[LastEvent], str] = {Finished: "done", Failed: "error", Cancelled: "cancelled"}
TEXTS_AT_ONCE = 16
"""Texts of one HTTP request that are given to the engine together."""


def client_of(http: Request) -> Client:
    """Return who sends this request; the guard has let it in."""
    client = http.scope["state"]["client"]
    assert isinstance(client, Client)
    return client


async def read_json(http: Request, kind: type[T]) -> T:
    """Return the body as a value of `kind`; unknown fields are ignored.

    Raises:
        InputEncodingError: not UTF-8.
        UsageError: not JSON, nested too deep, or not of this shape.
        RequestTooLargeError: the body is too long.
    """
    return decode_json(await http.body(), kind)


def decode_json(body: bytes, kind: type[T]) -> T:
    """Return JSON as a value of `kind`; see `read_json`."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputEncodingError(f"the body is not UTF-8 (byte {error.start})", hint="send UTF-8") from error
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"the body is not what this address takes: {error}", hint="see /openapi.json") from error


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Return what `work` returns, or cancel it when the client goes away. The body must have been read.

    Raises:
        ClientDisconnect: it has gone.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _gather(coroutines: Sequence[Any]) -> list[Any]:
    """Run all at once; the first error cancels the others and is raised."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def complete_text(finished: Finished) -> str:
    """Return the text of a translation none of whose segments failed.

    Raises:
        HymtError: why the first one failed.
    """
    for failed in finished.failed:
        if failed.error is not None:
            raise error_of(failed.error)
    return finished.text


def error_json(report: ErrorReport) -> dict[str, dict[str, str]]:
    """Return an error in the shape of this program's own interfaces."""
    return {"error": {"code": report.code, "message": report.message, "hint": report.hint}}


def token_in_headers(headers: Headers) -> str | None:
    """Return the token in the headers that hold for all dialects."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() in {"bearer", "deepl-auth-key"} and value.strip():
        return value.strip()
    return headers.get("x-api-key")
