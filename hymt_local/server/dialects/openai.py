"""OpenAI's chat completions and completions, for translations only: what else is asked is refused, not made up."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hymt_local.errors import ErrorReport, HymtError, ModelNotFoundError, TimeLimitError, UsageError, error_of
from hymt_local.events import Event, Failed, Finished, SegmentDone, Started, TextDelta, TranslationRequest
from hymt_local.server.codes import Codes
from hymt_local.server.context import ServerContext, client_of, read_json, while_connected
from hymt_local.server.dialect import Credentials
from hymt_local.server.flights import Flight
from hymt_local.server.limits import TimeBudget
from hymt_local.server.native import json_response
from hymt_local.server.ordered_text import OrderedText
from hymt_local.server.prompt_reading import Message, PromptTask, read_chat, read_prompt
from hymt_local.server.streaming import EventStream
from hymt_local.server.tagged_text import INLINE_RULES
from hymt_local.server.texts import Wish, translate_texts

NAME = "openai"
PREFIXES = ("/v1", "", "/openai", "/openai/v1")
PATHS = tuple(f"{prefix}/{name}" for prefix in PREFIXES for name in ("chat/completions", "completions", "models/"))
BODY_TOKEN_PATHS: tuple[str, ...] = ()
CODES = Codes(answered={"zh": "zh-CN", "zh-Hant": "zh-TW"})
PATIENCE_S = 10.0
"""A failure within this time of a stream's request gets a status of its own."""
_STOP = "stop"


class ChatMessage(msgspec.Struct, frozen=True):
    """One message; whatever else it has is ignored."""

    role: str
    content: str | list[dict[str, Any]] | None = None

    def message(self) -> Message:
        """Return it with the parts of its text joined.

        Raises:
            UsageError: it has a picture or a sound.
        """
        if not isinstance(self.content, list):
            return Message(self.role, self.content or "")
        texts = []
        for part in self.content:
            if not isinstance(part.get("text"), str):
                raise UsageError(f"a message has a part of type {str(part.get('type'))[:40]!r}", hint="send text only")
            texts.append(part["text"])
        return Message(self.role, "".join(texts))


class StreamOptions(msgspec.Struct, frozen=True):
    """What comes with a stream."""

    include_usage: bool | None = None


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    target_lang: str | None = None
    """Ours: names the language outside the prompt, which is then the text itself."""


class ChatBody(_Body, frozen=True, kw_only=True):
    """A request for a chat completion."""

    messages: list[ChatMessage]


class CompletionBody(_Body, frozen=True, kw_only=True):
    """A request for a completion."""

    prompt: str | list[str]


class SegmentJob(msgspec.Struct, frozen=True):
    """The JSON that KISS Translator sends as a message."""

    targetLanguage: str
    segments: list[SegmentItem]


class SegmentItem(msgspec.Struct, frozen=True):
    """One text of it."""

    id: int | str
    text: str


def token_of(credentials: Credentials) -> str | None:
    """Return None: the ways that hold for all are enough."""
    return None


def error_response(report: ErrorReport, status: int) -> Response:
    """Return `{"error": {"message", "type", "param", "code"}}`."""
    status = {422: 400, 499: 503}.get(status, status)
    response = json_response(_error(report, status), status=status)
    if report.code == TimeLimitError.code:
        response.headers["x-should-retry"] = "false"  # its clients would spend the same time again
    return response


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return the paths with and without `/v1`; the list of models is the native one."""

    async def chat(http: Request) -> Response:
        return await _chat(context, http)

    async def completion(http: Request) -> Response:
        return await _completion(context, http)

    async def model(http: Request) -> Response:
        return json_response(await asyncio.to_thread(_model, context, http.path_params["name"]))

    async def models(_: Request) -> Response:
        return json_response({"object": "list", "data": await asyncio.to_thread(_models, context)})

    found: list[BaseRoute] = []
    for prefix in PREFIXES:
        found += [
            Route(f"{prefix}/chat/completions", chat, methods=["POST"]),
            Route(f"{prefix}/completions", completion, methods=["POST"]),
            Route(f"{prefix}/models/{{name:path}}", model, methods=["GET"]),
        ]
        if prefix != "/v1":
            found.append(Route(f"{prefix}/models", models, methods=["GET"]))
    return found


# Asking


async def _chat(context: ServerContext, http: Request) -> Response:
    body = await read_json(http, ChatBody)
    messages = [each.message() for each in body.messages]
    form = _Form("chatcmpl", "chat.completion", is_chat=True)
    if job := _segment_job(messages):
        return await _answer_segments(context, http, job, body, form)
    return await _answer(context, http, read_chat(messages, target_lang=body.target_lang), body, form)


async def _completion(context: ServerContext, http: Request) -> Response:
    body = await read_json(http, CompletionBody)
    prompts = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    if len(prompts) != 1:
        raise UsageError(f"{len(prompts)} prompts in one request", hint="send one")
    named = None if body.target_lang is None else CODES.target_tag(body.target_lang)
    task = read_prompt(prompts[0]) if named is None else PromptTask(prompts[0], named)
    return await _answer(context, http, task, body, _Form("cmpl", "text_completion", is_chat=False))


async def _answer(context: ServerContext, http: Request, task: PromptTask, body: _Body, form: _Form) -> Response:
    model = await asyncio.to_thread(_installed, context, body.model)
    request = TranslationRequest(task.text, task.target_lang, task.source_lang, model)
    if not task.text.strip():
        raise UsageError("there is no text to translate", hint="send it after the instruction")
    if body.stream:
        return await _stream(context, http, request, _Chunks(form, _wants_usage(body)))
    wish = Wish(task.target_lang, task.source_lang, model=model)
    (done,) = await translate_texts(context, http, [task.text], wish)
    usage = _usage(done.usage.prompt_tokens, done.usage.output_tokens)
    return json_response(form.whole(done.text, done.model, usage))


async def _answer_segments(
    context: ServerContext, http: Request, job: SegmentJob, body: _Body, form: _Form
) -> Response:
    """Answer the JSON of KISS Translator with the JSON that it parses."""
    model = await asyncio.to_thread(_installed, context, body.model)
    wish = Wish(CODES.target_tag(job.targetLanguage), markup=INLINE_RULES, model=model)
    done = await translate_texts(context, http, [each.text for each in job.segments], wish)
    translations = [
        {"id": item.id, "text": each.text, "sourceLanguage": CODES.code(each.source_lang)}
        for item, each in zip(job.segments, done, strict=True)
    ]
    text = msgspec.json.encode({"translations": translations}).decode()
    name = next((each.model for each in done if each.model), "")
    usage = _usage(sum(x.usage.prompt_tokens for x in done), sum(x.usage.output_tokens for x in done))
    if not body.stream:
        return json_response(form.whole(text, name, usage))
    chunks = _Chunks(form, _wants_usage(body))
    data = b"".join([*chunks.begin(name), *chunks.say(text), *chunks.end(usage)])
    return Response(data, media_type="text/event-stream")


def _segment_job(messages: Sequence[Message]) -> SegmentJob | None:
    last = messages[-1].text.strip() if messages and messages[-1].role == "user" else ""
    if not last.startswith("{"):
        return None
    try:
        return msgspec.json.decode(last, type=SegmentJob)
    except (msgspec.DecodeError, RecursionError):
        return None


async def _stream(context: ServerContext, http: Request, request: TranslationRequest, chunks: _Chunks) -> Response:
    context.check_size(http, [request])
    async with AsyncExitStack() as stack:
        client = client_of(http)
        budget = TimeBudget.of(client.limits)
        stack.callback(context.line.enter(client))
        flight = await stack.enter_async_context(context.flights.board(request, client=client.name))
        async with budget.kept():
            await while_connected(http.receive, _until_sure(flight))
        if isinstance(flight.last, Failed):
            raise error_of(flight.last.error)
        return _ChatStream(flight, stack.pop_all(), chunks=chunks, ping_s=context.limits.ping_s, budget=budget)


async def _until_sure(flight: Flight) -> None:
    """Wait until there is text, or the end, or too much time has passed."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    n_seen = 0
    while not any(map(_is_text, flight.events[n_seen:])) and flight.last is None:
        n_seen = len(flight.events)
        if not await flight.grows(n_seen, timeout_s=max(0.0, deadline - asyncio.get_running_loop().time())):
            return


def _is_text(event: Event) -> bool:
    return isinstance(event, TextDelta) or (isinstance(event, SegmentDone) and event.error is None)


def _installed(context: ServerContext, name: str | None) -> str | None:
    """Return the reference of an installed model; any other name stands for the default, as clients need some name."""
    if not name:
        return None
    try:
        return context.app.store.resolve(name).ref
    except HymtError:
        return None


# Answering


@dataclass(frozen=True, slots=True)
class _Form:
    """The two shapes of one answer."""

    id_prefix: str
    kind: str
    is_chat: bool
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, model: str, usage: Mapping[str, int]) -> dict[str, Any]:
        content: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}
        )
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": _STOP}
        return {**self.head(model, self.kind), "choices": [choice], "usage": usage}

    def head(self, model: str, kind: str) -> dict[str, Any]:
        return {"id": f"{self.id_prefix}-{self.id}", "object": kind, "created": self.created, "model": model}

    def choice(self, delta: Mapping[str, str], finish_reason: str | None) -> dict[str, Any]:
        content: dict[str, Any] = {"delta": delta} if self.is_chat else {"text": delta.get("content", "")}
        return {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}


class _Chunks:
    """Writes a stream: the role, the text, the reason of the end, the usage if it is wanted, `[DONE]`."""

    def __init__(self, form: _Form, wants_usage: bool) -> None:
        self._form = form
        self._wants_usage = wants_usage
        self._model = ""

    def begin(self, model: str) -> Iterator[bytes]:
        self._model = model
        if self._form.is_chat:
            yield self._chunk([self._form.choice({"role": "assistant", "content": ""}, None)])

    def say(self, text: str) -> Iterator[bytes]:
        if text:
            yield self._chunk([self._form.choice({"content": text}, None)])

    def end(self, usage: Mapping[str, int]) -> Iterator[bytes]:
        yield self._chunk([self._form.choice({}, _STOP)])
        if self._wants_usage:
            yield self._chunk([], usage=usage)
        yield b"data: [DONE]\n\n"

    def fail(self, report: ErrorReport) -> Iterator[bytes]:
        yield _line(_error(report, report.http_status))
        yield b"data: [DONE]\n\n"

    def _chunk(self, choices: list[dict[str, Any]], **more: object) -> bytes:
        kind = "chat.completion.chunk" if self._form.is_chat else self._form.kind
        return _line({**self._form.head(self._model, kind), "choices": choices, **more})


class _ChatStream(EventStream):
    """Sends a flight as chunks."""

    def __init__(
        self, flight: Flight, boarded: AsyncExitStack, *, chunks: _Chunks, ping_s: float, budget: TimeBudget
    ) -> None:
        super().__init__(flight, boarded, start=0, ping_s=ping_s, budget=budget)
        self._chunks = chunks
        self._text = OrderedText()
        self._has_failed = False

    def encode(self, index: int, event: Event) -> bytes:
        return b"" if self._has_failed else b"".join(self._encode(event))

    def _encode(self, event: Event) -> Iterator[bytes]:
        try:
            text = self._text.take(event)
        except HymtError as error:
            self._has_failed = True
            yield from self._chunks.fail(error.report())
            return
        if isinstance(event, Started):
            yield from self._chunks.begin(event.model)
        yield from self._chunks.say(text)
        if isinstance(event, Finished):
            yield from self._chunks.end(_usage(event.usage.prompt_tokens, event.usage.output_tokens))
        elif isinstance(event, Failed):
            yield from self._chunks.fail(event.error)


def _line(value: object) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(value)


def _wants_usage(body: _Body) -> bool:
    return bool(body.stream_options and body.stream_options.include_usage)


def _usage(prompt_tokens: int, output_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
    }


def _error(report: ErrorReport, status: int) -> dict[str, dict[str, str | None]]:
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": report.text, "type": kind, "param": None, "code": report.code}}


def _models(context: ServerContext) -> list[dict[str, object]]:
    return [
        {"id": model.ref, "object": "model", "created": int(model.imported_at), "owned_by": "hymt-local"}
        for model in context.app.store.list()
    ]


def _model(context: ServerContext, name: str) -> dict[str, object]:
    for model in _models(context):
        if model["id"] == name:
            return model
    raise ModelNotFoundError(f"there is no model {name[:80]!r}", hint="`/v1/models` lists them")
