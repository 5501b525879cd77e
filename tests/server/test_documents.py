"""Documents that clients send: followed, fetched, forgotten, and refused when they are not what they should be."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pytest

from hymt_local.client_keys import ClientFile
from hymt_local.engine.scripted import Crash, Gated, Hang, reply
from hymt_local.errors import DecodeError
from hymt_local.paths import Paths
from hymt_local.server.documents import MAX_DOCUMENTS, base_name
from hymt_local.server.limits import ServerLimits
from tests.server.serving import WAIT_S, Answer, Served, serving
from tests.server.test_clients import add
from tests.server.test_native import wait_until
from tests.services import scripted_service

MARKDOWN = b"# Title\r\n\r\nHello\r\n"
BOUNDARY = "b0undary"


def form(fields: Mapping[str, str], *, name: str = "letter.md", data: bytes = MARKDOWN) -> bytes:
    parts = [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items()]
    file = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return "".join([*parts, file]).encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode()


def send(served: Served, body: bytes, **more: str) -> Answer:
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return served.ask("POST", "/v1/documents", body, headers=headers, **more)


FRENCH = {"target_lang": "French", "source_lang": "en"}


def test_one_client_leaves_room_for_the_documents_of_others(paths: Paths) -> None:
    keys = [add(ClientFile(paths.clients_file), name) for name in ("a", "b")]
    with serving(scripted_service(reply("Bonjour"))[0]) as served:
        for key in keys:
            answers = [send(served, form(FRENCH), token=key).status for _ in range(MAX_DOCUMENTS // 2 + 1)]
            assert answers == [*[202] * (MAX_DOCUMENTS // 2), 429]


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(scripted_service(reply("Bonjour"))[0]) as running:
        yield running


def test_a_document_is_translated_and_keeps_its_bytes_around_the_text(served: Served) -> None:
    begun = send(served, form(FRENCH))
    assert (begun.status, begun.json["name"]) == (202, "letter.md")
    document = f"/v1/documents/{begun.json['id']}"
    wait_until(lambda: served.ask("GET", document).json["state"] == "done")
    state = served.ask("GET", document).json
    assert (state["n_units"], state["n_done"], state["n_failed"], state["error"]) == (2, 2, 0, None)
    result = served.ask("GET", f"{document}/result")
    assert result.body == b"# Bonjour\r\n\r\nBonjour\r\n"
    assert result.headers["content-disposition"] == "attachment; filename*=UTF-8''letter.md"
    assert served.ask("DELETE", document).status == 204
    assert served.ask("GET", document).status == 404


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (form({}), 400, "usage"),
        (form({"target_lang": "tlh"}), 400, "language"),
        (b"--b0undary\r\nnonsense", 400, "usage"),
        (form({**FRENCH, **{f"f{n}": "" for n in range(20)}}), 400, "usage"),
        (b"x" * 3000, 413, "request_too_large"),
    ],
    ids=range(5),
)
def test_a_form_that_is_not_right_is_refused(body: bytes, status: int, code: str) -> None:
    with serving(scripted_service()[0], limits=ServerLimits(document_bytes=2500)) as served:
        answer = send(served, body)
        assert (answer.status, answer.json["error"]["code"]) == (status, code)


def test_only_forms_are_taken(served: Served) -> None:
    assert served.ask("POST", "/v1/documents", {"file": "x"}).status == 415


@pytest.mark.parametrize(("name", "data"), [("a.xyz", b"\x00\x01"), ("a.md", b"\xff\xfe\xfd")])
def test_a_document_that_cannot_be_read_ends_with_the_reason(served: Served, name: str, data: bytes) -> None:
    document = f"/v1/documents/{send(served, form(FRENCH, name=name, data=data)).json['id']}"
    wait_until(lambda: served.ask("GET", document).json["state"] == "failed")
    assert served.ask("GET", document).json["error"]["code"] == "document"
    result = served.ask("GET", f"{document}/result")
    assert (result.status, result.json["error"]["code"]) == (409, "no_result")


def test_parts_that_fail_are_named_and_keep_their_text() -> None:
    with serving(scripted_service(reply("Bonjour"), Crash(DecodeError("llama_decode failed")))[0]) as served:
        document = f"/v1/documents/{send(served, form(FRENCH)).json['id']}"
        wait_until(lambda: served.ask("GET", document).json["state"] != "running")
        state = served.ask("GET", document).json
        assert (state["state"], state["n_failed"], state["failed"][0]["error"]["code"]) == ("done", 1, "decode")
        assert served.ask("GET", f"{document}/result").body == b"# Bonjour\r\n\r\nHello\r\n"


def test_deleting_cancels() -> None:
    hang = Hang()
    with serving(scripted_service(hang)[0]) as served:
        document = f"/v1/documents/{send(served, form(FRENCH)).json['id']}"
        assert hang.started.wait(WAIT_S)
        assert served.context.documents.n_running == 1
        assert served.ask("DELETE", document).status == 204
        wait_until(lambda: not served.context.documents.n_running)


def test_a_document_is_its_senders_alone(served: Served, paths: Paths) -> None:
    file = ClientFile(paths.clients_file)
    mine, other = add(file, "mine"), add(file, "other")
    document = f"/v1/documents/{send(served, form(FRENCH), token=mine).json['id']}"
    assert [served.ask("GET", document, token=token).status for token in (mine, other)] == [200, 404]
    assert served.ask("DELETE", document, token=other).status == 404


def test_there_is_an_end_to_what_is_kept() -> None:
    gate = threading.Event()
    with serving(scripted_service(Gated(gate, reply("Bonjour")))[0]) as served:
        for number in range(MAX_DOCUMENTS):
            assert send(served, form(FRENCH, data=b"%d a" % number)).status == 202
        refused = send(served, form(FRENCH))
        assert (refused.status, refused.json["error"]["code"]) == (429, "busy")
        gate.set()


def test_formats_are_listed(served: Served) -> None:
    formats = {each["name"]: each["extensions"] for each in served.ask("GET", "/v1/documents").json["formats"]}
    assert ".md" in formats["markdown"]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\x\\a.txt", "a.txt"),
        ("", "document"),
        ("a\r\nb.txt", "ab.txt"),
        ("/", "document"),
        ("..", "document"),
    ],
)
def test_a_clients_file_name_is_only_a_name(name: str, plain: str) -> None:
    assert base_name(name) == plain
