"""What holds for every dialect, whatever is sent: no inner error, its own shape, nothing lost, no order changed."""

from __future__ import annotations

import json
import string
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hymt_local.engine.scripted import Gated, reply
from hymt_local.server.dialect import Dialect, dialect_of
from hymt_local.server.dialects import DIALECTS
from tests.server.serving import TOKEN, Served, serving
from tests.services import scripted_service

FIELDS: Mapping[str, tuple[str, ...]] = {
    "/translate": (
        "q",
        "text",
        "source",
        "target",
        "source_lang",
        "target_lang",
        "from",
        "to",
        "format",
        "alternatives",
    ),
    "/detect": ("q", "text"),
    "/libretranslate/translate": ("q", "source", "target", "format", "alternatives"),
    "/v2/translate": ("text", "source_lang", "target_lang", "tag_handling", "ignore_tags", "outline_detection"),
    "/deeplx": ("text", "source_lang", "target_lang", "tag_handling"),
    "/v1/chat/completions": ("messages", "stream", "stream_options", "target_lang", "model"),
    "/v1/completions": ("prompt", "stream", "target_lang", "model"),
    "/imme": ("text_list", "source_lang", "target_lang"),
    "/kiss": ("texts", "text", "from", "to"),
    "/translate/batch": ("texts", "from", "to", "html"),
    "/hcfy": ("text", "destination", "source"),
    "/language/translate/v2": ("q", "source", "target", "format"),
}
BATCHES = {
    "/translate": lambda texts: {"q": texts, "source": "en", "target": "fr"},
    "/v2/translate": lambda texts: {"text": texts, "source_lang": "EN", "target_lang": "FR"},
    "/imme": lambda texts: {"text_list": texts, "source_lang": "en", "target_lang": "fr"},
    "/kiss": lambda texts: {"texts": texts, "from": "en", "to": "fr"},
    "/translate/batch": lambda texts: {"texts": texts, "from": "en", "to": "fr"},
}
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=6)
words = st.sampled_from(
    ["fr", "EN", "auto", "zt", "xx", "html", "xml", "", "hello", "<b>x</b>", "Translate to French: a"]
)
values = st.recursive(
    scalars | words, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=2), max_leaves=6
)
fuzz = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.mark.parametrize("path", sorted(FIELDS))
@fuzz
@given(data=st.data())
def test_no_json_makes_an_inner_error(loud_served: Served, path: str, data: st.DataObject) -> None:
    body = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS[path], values)) | values)
    answer = loud_served.ask("POST", path, json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    check(answer.status, answer.body)


@pytest.mark.parametrize("path", sorted(FIELDS))
@fuzz
@given(data=st.data())
def test_no_form_and_no_noise_makes_an_inner_error(loud_served: Served, path: str, data: st.DataObject) -> None:
    form = st.lists(st.tuples(st.sampled_from(FIELDS[path]), words | st.text(string.printable, max_size=5)), max_size=5)
    body = data.draw(form.map(lambda pairs: urlencode(pairs).encode()) | st.binary(max_size=30))
    kind = data.draw(st.sampled_from(["application/x-www-form-urlencoded", "application/json", "text/plain", "x", ""]))
    answer = loud_served.ask("POST", path, body, headers={"Content-Type": kind} if kind else {})
    check(answer.status, answer.body)


def check(status: int, body: bytes) -> None:
    """A refusal is a JSON object with some words in it; an inner error is a defect."""
    assert status < 500, body
    if status != 200:
        answer: Any = json.loads(body)
        assert isinstance(answer, dict)
        assert any(answer.get(name) for name in ("error", "message"))


@pytest.mark.parametrize("path", sorted(BATCHES))
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts=st.lists(st.sampled_from(["one", "two", "", " ", "3", "a <b>b</b>", "{0} x"]), min_size=1, max_size=12))
def test_a_batch_keeps_order_and_count(loud_served: Served, path: str, texts: list[str]) -> None:
    answer = loud_served.ask("POST", path, BATCHES[path](texts))
    assert answer.status == 200, answer.body
    found = next(value for value in answer.json.values() if isinstance(value, list))
    assert [each if isinstance(each, str) else each["text"] for each in found] == [louder(text) for text in texts]


def louder(text: str) -> str:
    return text.upper().replace("<B>", "<b>").replace("</B>", "</b>")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.NAME)
def test_every_path_of_a_dialect_gives_errors_in_its_own_shape(dialect: Dialect) -> None:
    for path in dialect.PATHS:
        assert dialect_of(path, DIALECTS) is dialect, path
    for path in dialect.BODY_TOKEN_PATHS:
        assert dialect_of(path, DIALECTS) is dialect, path


def test_no_two_dialects_claim_one_path() -> None:
    paths = [path for dialect in DIALECTS for path in dialect.PATHS]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("path", ["/translate", "/v2/translate", "/imme", "/kiss", "/v1/chat/completions"])
def test_a_client_that_asks_again_gets_the_answer_of_its_first_request(path: str, tmp_path: Path) -> None:
    """Whether the server has noticed yet that the first connection is gone, or not."""
    gate = threading.Event()
    gated = Gated(gate, reply("Un."))
    service, backend = scripted_service(gated, reply("Wrong: computed twice."), cache_path=tmp_path / "memory.sqlite3")
    chat = {"messages": [{"role": "user", "content": "Translate from English to French: One."}]}
    body = chat if path.endswith("completions") else BATCHES[path](["One."])
    with serving(service) as served:
        with closing(served.connect()) as impatient:
            impatient.sendall(raw_request(path, body))
            assert gated.started.wait(10)
        gate.set()
        answer = served.ask("POST", path, body)
    assert (answer.status, answer.body.count(b"Un.")) == (200, 1)
    assert len(backend.calls.requests) == 1


def raw_request(path: str, body: object) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
    lengths = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return f"{head}{lengths}".encode() + data
