"""The server's own interface, below `/v1`, and what it tells about itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from hymt_local import __version__
from hymt_local.catalog import ModelSpec
from hymt_local.errors import ErrorReport, ForbiddenError, HymtError, UsageError, error_of
from hymt_local.event_stream import MEDIA_TYPE
from hymt_local.events import Cancelled, Failed, Finished, SegmentDone, Started, TranslationRequest
from hymt_local.language import get_language
from hymt_local.server import bodies
from hymt_local.server.context import ServerContext, client_of, error_json, read_json, while_connected
from hymt_local.server.dialect import Credentials
from hymt_local.server.document_routes import DocumentRoutes
from hymt_local.server.flights import Flight
from hymt_local.server.limits import TimeBudget
from hymt_local.server.operations import Operation, describe
from hymt_local.server.operations import json_response as json_response  # for the dialects
from hymt_local.server.streaming import EventStream

NAME = "native"
PATHS = ("/",)
BODY_TOKEN_PATHS: tuple[str, ...] = ()
SERVER_NAME = "hymt-local"
METRICS_TYPE = "text/plain; version=0.0.4"


def token_of(credentials: Credentials) -> str | None:
    """Return None: the ways that hold for all are enough."""
    return None


def error_response(report: ErrorReport, status: int) -> Response:
    """Return the error as this program's JSON."""
    return json_response(error_json(report), status=status)


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return the native routes."""
    return [operation.route() for operation in operations(context)]


def operations(context: ServerContext) -> tuple[Operation, ...]:
    """Return everything that the native interface can do."""
    work, about, door = _Work(context), _About(context), _Door(context)
    gone = (401, 403, 404, 421, 429)
    plain = (401, 403, 421, 429)
    return (
        Operation(
            *("POST", "/v1/translate", "Translate a text, or a list of texts", work.translate),
            takes=bodies.TranslateBody,
            gives={200: (Finished, bodies.Translations), 202: bodies.JobState},
            fails=(400, 401, 403, 404, 413, 415, 421, 422, 429, 499, 502, 503, 504, 507),
            is_streamable=True,
        ),
        Operation(
            *("GET", "/v1/jobs/{id}", "Say where a job stands", work.job_state),
            gives={200: bodies.JobState},
            fails=gone,
        ),
        Operation(
            *("GET", "/v1/jobs/{id}/events", "Follow a job, from `Last-Event-ID` on", work.job_events),
            gives={200: MEDIA_TYPE},
            fails=(400, *gone),
        ),
        Operation(
            *("DELETE", "/v1/jobs/{id}", "Cancel a job", work.cancel_job), gives={200: bodies.JobState}, fails=gone
        ),
        *DocumentRoutes(context).operations(),
        Operation(
            *("POST", "/v1/detect", "Say which languages texts may be in", about.detect),
            takes=bodies.DetectBody,
            gives={200: bodies.Detections},
        ),
        Operation(
            *("GET", "/v1/languages", "List what a model speaks", about.languages),
            gives={200: bodies.Languages},
            fails=(401, 403, 404, 421, 422, 429, 507),
            query={"model": "a reference of /v1/models; the default otherwise"},
        ),
        Operation(
            *("GET", "/v1/models", "List the installed models", about.models), gives={200: bodies.Models}, fails=plain
        ),
        Operation(
            *("GET", "/v1/status", "Say what the server does", about.state),
            gives={200: bodies.ServerState},
            fails=plain,
        ),
        Operation(
            *("GET", "/metrics", "Count everything, for Prometheus", about.metrics),
            gives={200: METRICS_TYPE},
            fails=plain,
        ),
        Operation(
            *("GET", "/health", "Say that the server lives", about.health),
            gives={200: bodies.Health},
            fails=(421,),
            is_public=True,
        ),
        Operation(
            *("GET", "/ready", "Say whether the default model can be used", about.ready),
            gives={200: bodies.Health},
            fails=(404, 421, 422, 503, 507),
            is_public=True,
        ),
        Operation(
            *("POST", "/v1/session", "Get a token for a one-time code", door.session),
            takes=bodies.CodeBody,
            gives={200: bodies.TokenAnswer},
            is_public=True,
        ),
        Operation(
            *("POST", "/v1/handover", "Make a one-time code for the web page", door.handover),
            gives={200: bodies.CodeBody},
            fails=plain,
        ),
        Operation(
            *("POST", "/v1/pairing", "Let an extension in that will show a code", door.pair),
            takes=bodies.PairingBody,
            gives={200: bodies.CodeBody},
        ),
        Operation(
            *("POST", "/v1/unload", "Free models that nobody uses now", door.unload),
            takes=bodies.UnloadBody,
            gives={200: bodies.Unloaded},
        ),
        Operation(*("POST", "/v1/stop", "Stop the server", door.stop), gives={202: None}, fails=plain),
        Operation(
            *("GET", "/openapi.json", "This description", about.openapi),
            gives={200: "application/json"},
            fails=(421,),
            is_public=True,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """Translations and jobs."""

    context: ServerContext

    async def translate(self, http: Request) -> Response:
        body = await read_json(http, bodies.TranslateBody)
        requests = body.requests()
        streams = body.stream or MEDIA_TYPE in http.headers.get("accept", "")
        self._wish(body)
        if isinstance(body.text, list):
            if streams or body.detached or body.units:
                raise UsageError("a list of texts is answered at once", hint="send one text per request to follow it")
            return json_response(bodies.Translations(await self._translate_list(http, requests)))
        if not (streams or body.detached):
            finished = await self.context.translate(http, requests[0], grace_s=0)
            return json_response(bodies.translation(finished))
        self.context.check_size(http, requests)
        async with AsyncExitStack() as stack:
            leave = self.context.line.enter(client_of(http))
            stack.callback(leave)
            client, budget = client_of(http).name, TimeBudget.of(client_of(http).limits)
            board = self.context.flights.board(requests[0], client=client, detached=body.detached)
            flight = await stack.enter_async_context(board)
            flight.owners.add(client)
            if body.detached:
                _end_in_time(flight, client, budget)
            if not streams:
                return json_response(_job_state(flight), status=202)
            async with budget.kept():
                await while_connected(http.receive, flight.grows(0, timeout_s=None))
            _raise_early_failure(flight)
            return EventStream(flight, stack.pop_all(), start=0, ping_s=self.context.limits.ping_s, budget=budget)

    async def _translate_list(self, http: Request, requests: Sequence[TranslationRequest]) -> list[Finished]:
        """Translate texts in their order; in a list, unlike alone, an empty one is no mistake, and stays empty."""
        asked = [request if request.text else msgspec.structs.replace(request, text=" ") for request in requests]
        done = await self.context.translate_all(http, asked, grace_s=0)
        return [
            finished if request.text else msgspec.structs.replace(finished, text="")
            for request, finished in zip(requests, done, strict=True)
        ]

    async def job_state(self, http: Request) -> Response:
        return json_response(_job_state(self._flight(http)))

    async def job_events(self, http: Request) -> Response:
        flight = self._flight(http)
        last_seen = http.headers.get("last-event-id", "-1")
        if not last_seen.removeprefix("-").isascii() or not last_seen.removeprefix("-").isdigit():
            raise UsageError("Last-Event-ID is not a number", hint="send the id of the last event you have")
        stack = AsyncExitStack()
        await stack.enter_async_context(self.context.flights.rejoin(flight, client=client_of(http).name))
        return EventStream(
            flight,
            stack,
            start=max(0, int(last_seen[:12]) + 1),
            ping_s=self.context.limits.ping_s,
            budget=TimeBudget(),  # the job has one of its own
        )

    async def cancel_job(self, http: Request) -> Response:
        flight = self._flight(http)
        client = client_of(http)
        if flight.disown(client.name) or client.is_owner:
            flight.job.cancel()
            await flight.ended()
        return json_response(_job_state(flight))

    def _flight(self, http: Request) -> Flight:
        flight = self.context.flights.by_id(http.path_params["id"])
        client = client_of(http)
        if flight is None or not (client.is_owner or client.name in flight.owners):
            raise _NoJobError("there is no such job (any more)", hint="jobs end with their connection unless detached")
        return flight

    def _wish(self, body: bodies.TranslateBody) -> None:
        if body.keep_alive_s is not None:
            model = self.context.app.resolve_model(body.model)
            self.context.residency.wish(model.ref, body.keep_alive_s)


class _NoJobError(UsageError):
    code = "job_not_found"
    http_status = 404


def _end_in_time(flight: Flight, client: str, budget: TimeBudget) -> None:
    """Let a job that no connection holds fail when its client's time is over, unless others want it too."""

    def end() -> None:
        if flight.last is None and flight.disown(client):
            flight.job.put(Failed(budget.exceeded().report()))
            flight.job.cancel()

    if budget.ends_at is not None:
        asyncio.get_running_loop().call_at(budget.ends_at, end)


def _raise_early_failure(flight: Flight) -> None:
    """Give a request that failed before anything was sent its own status."""
    first = flight.events[0]
    if isinstance(first, Failed):
        raise error_of(first.error)


def _job_state(flight: Flight) -> bodies.JobState:
    state: Literal["running", "done", "error", "cancelled"] = "running"
    match flight.last:
        case Finished():
            state = "done"
        case Failed():
            state = "error"
        case Cancelled():
            state = "cancelled"
    return bodies.JobState(
        id=flight.id,
        state=state,
        n_events=len(flight.events),
        model=flight.model,
        segments_done=sum(isinstance(event, SegmentDone) for event in flight.events),
        segments=next((event.n_segments for event in flight.events if isinstance(event, Started)), None),
    )


@dataclass(frozen=True, slots=True)
class _About:
    """What may be asked of server and models. None of it loads a model or keeps one loaded."""

    context: ServerContext

    async def detect(self, http: Request) -> Response:
        body = await read_json(http, bodies.DetectBody)
        texts = body.text if isinstance(body.text, list) else [body.text]
        self.context.check_texts(http, texts)
        found = await asyncio.to_thread(lambda: [self.context.detector.candidates(text) for text in texts])
        return json_response(
            bodies.Detections([[bodies.Detected(each.tag, each.confidence) for each in one] for one in found])
        )

    async def languages(self, http: Request) -> Response:
        model = await asyncio.to_thread(self.context.app.resolve_model, http.query_params.get("model"))
        languages = [get_language(tag) for tag in model.spec.languages]
        items = [bodies.LanguageItem(x.tag, x.english, x.chinese, x.native, x.rtl) for x in languages]
        return json_response(bodies.Languages(model.ref, items))

    async def models(self, _: Request) -> Response:
        return json_response(await asyncio.to_thread(self._models))

    def _models(self) -> bodies.Models:
        try:
            default = self.context.app.resolve_model(None).ref
        except HymtError:
            default = ""
        items = [
            _model_item(model.ref, model.spec, created=int(model.imported_at), is_default=model.ref == default)
            for model in self.context.app.store.list()
        ]
        return bodies.Models("list", items)

    async def state(self, _: Request) -> Response:
        residency = self.context.residency
        models = [
            bodies.LoadedModel(name, residency.is_used(name), residency.remaining_s(name)) for name in residency.names()
        ]
        return json_response(
            bodies.ServerState(os.getpid(), __version__, self.context.started_at, self.context.flights.n_active, models)
        )

    async def metrics(self, _: Request) -> Response:
        residency = self.context.residency
        text = self.context.metrics.render(active=self.context.flights.n_active, loaded=len(residency.names()))
        return PlainTextResponse(text, media_type=METRICS_TYPE)

    async def health(self, _: Request) -> Response:
        return json_response(bodies.Health("ok", SERVER_NAME, __version__))

    async def ready(self, _: Request) -> Response:
        await asyncio.to_thread(self.context.app.resolve_model, None)
        return json_response(bodies.Health("ok", SERVER_NAME, __version__))

    async def openapi(self, _: Request) -> Response:
        return json_response(describe(operations(self.context)))


def _model_item(ref: str, spec: ModelSpec, *, created: int, is_default: bool) -> bodies.ModelItem:
    return bodies.ModelItem(
        id=ref,
        object="model",
        created=created,
        owned_by=SERVER_NAME,
        title=spec.title,
        kind=spec.kind,
        is_default=is_default,
        languages=list(spec.languages),
        licence=spec.licence.id,
    )


@dataclass(frozen=True, slots=True)
class _Door:
    """Who comes in, and what only the owner may do."""

    context: ServerContext

    async def session(self, http: Request) -> Response:
        body = await read_json(http, bodies.CodeBody)
        token = self.context.clients.redeem(body.code, origin=http.headers.get("origin"))
        return json_response(bodies.TokenAnswer(token))

    async def handover(self, http: Request) -> Response:
        _require_owner(http)
        return json_response(bodies.CodeBody(self.context.clients.new_code()))

    async def pair(self, http: Request) -> Response:
        _require_owner(http)
        body = await read_json(http, bodies.PairingBody)
        return json_response(bodies.CodeBody(self.context.clients.new_code(name=body.name, origin=body.origin)))

    async def unload(self, http: Request) -> Response:
        _require_owner(http)
        body = await read_json(http, bodies.UnloadBody)
        return json_response(bodies.Unloaded(list(await self.context.residency.unload_now(body.model))))

    async def stop(self, http: Request) -> Response:
        _require_owner(http)
        self.context.stop()
        return Response(status_code=202)


def _require_owner(http: Request) -> None:
    if not client_of(http).is_owner:
        raise ForbiddenError("only the owner of the server may do this", hint="use `hymt` on the server's machine")
