"""Tokens, codes, keys and what each client may take."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.client_keys import ClientFile, StoredClient, new_client
from hymt_local.engine.scripted import Gated, Hang, reply
from hymt_local.errors import AccessError, BusyError, RequestTooLargeError, StoreError, UsageError
from hymt_local.paths import Paths
from hymt_local.server.clients import CODE_LIFE_S, Clients
from hymt_local.server.limits import Bucket, ClientAccount, ClientLimits, ServerLimits
from tests.server.serving import WAIT_S, Served, serving
from tests.server.test_native import HELLO
from tests.services import scripted_service

EXTENSION = "chrome-extension://abcdef"


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(paths: Paths) -> ClientFile:
    return ClientFile(paths.clients_file)


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(scripted_service()[0]) as running:
        yield running


def add(file: ClientFile, name: str, **limits: int) -> str:
    client, key = new_client(StoredClient(name=name, key_sha256="", **limits))  # type: ignore[arg-type]
    file.add(client)
    return key


@pytest.mark.parametrize(
    "name", ["", " ", "owner", "page", " owner", "a\nb", "a\u202eb", "\x1b[2J", "x" * 61, "\ud800"]
)
def test_a_name_that_is_anothers_or_would_garble_the_log_is_refused(file: ClientFile, name: str) -> None:
    with pytest.raises(UsageError):
        add(file, name)
    with pytest.raises(UsageError):
        Clients("owner-token", file).new_code(name=name, origin=EXTENSION)


def test_pairing_does_not_take_the_name_of_another_client(file: ClientFile) -> None:
    key = add(file, "laptop")
    clients = Clients("owner-token", file)
    with pytest.raises(UsageError, match="taken"):
        clients.new_code(name="laptop", origin=EXTENSION)
    assert clients.identify(key)
    for _ in range(2):  # an extension may be paired anew
        clients.redeem(clients.new_code(name="phone", origin=EXTENSION), origin=EXTENSION)


def test_keys_are_known_by_digest_and_only_while_they_are_in_the_file(file: ClientFile, paths: Paths) -> None:
    clients = Clients("owner-token", file)
    key = add(file, "laptop")
    found = clients.identify(key)
    assert (found and found.name, found and found.is_owner) == ("laptop", False)
    assert key not in paths.clients_file.read_text(encoding="utf-8")
    assert paths.clients_file.stat().st_mode & 0o777 == 0o600
    file.remove("laptop")
    assert clients.identify(key) is None


@pytest.mark.parametrize("token", [None, "", "owner-toke", "owner-token ", "OWNER-TOKEN", "\udcff"])
def test_anything_but_the_token_is_nobody(file: ClientFile, token: str | None) -> None:
    clients = Clients("owner-token", file)
    assert clients.identify(token) is None
    owner = clients.identify("owner-token")
    assert owner is not None
    assert owner.is_owner


@pytest.mark.parametrize("name", ["owner", "", "twice"])
def test_a_name_is_taken_once(file: ClientFile, name: str) -> None:
    add(file, "twice")
    with pytest.raises(UsageError, match="taken"):
        add(file, name)


def test_a_file_that_makes_no_sense_is_an_error_and_lets_nobody_in(file: ClientFile, paths: Paths) -> None:
    paths.clients_file.parent.mkdir(parents=True)
    paths.clients_file.write_text("{", encoding="utf-8")
    with pytest.raises(StoreError, match=r"clients\.json"):
        Clients("owner-token", file).identify("x")


def test_a_code_is_good_once_and_for_five_minutes(file: ClientFile) -> None:
    clock = Clock()
    clients = Clients("owner-token", file, clock=clock)
    code = clients.new_code()
    page = clients.identify(clients.redeem(code, origin=None))
    assert (page and page.name, page and page.is_owner) == ("page", False)
    for old in (code, "guess"):
        with pytest.raises(AccessError, match="not valid"):
            clients.redeem(old, origin=None)
    late = clients.new_code()
    clock.now = CODE_LIFE_S + 1
    with pytest.raises(AccessError):
        clients.redeem(late, origin=None)


def test_codes_and_pages_are_bounded(file: ClientFile) -> None:
    clients = Clients("owner-token", file)
    first = clients.new_code()
    tokens = [clients.redeem(clients.new_code(), origin=None) for _ in range(70)]
    assert [clients.identify(token) is None for token in (tokens[0], tokens[-1])] == [True, False]
    for _ in range(40):
        clients.new_code()
    with pytest.raises(AccessError):
        clients.redeem(first, origin=None)


def test_an_extension_is_paired_by_a_code_and_its_key_is_worth_nothing_elsewhere(served: Served) -> None:
    preflight = {"Origin": EXTENSION, "Access-Control-Request-Method": "POST"}
    assert served.ask("OPTIONS", "/v1/session", token=None, headers=preflight).status == 403
    code = served.ask("POST", "/v1/pairing", {"origin": EXTENSION, "name": "my extension"}).json["code"]
    assert served.ask("OPTIONS", "/v1/session", token=None, headers=preflight).status == 204
    assert served.ask("POST", "/v1/session", {"code": code}, token=None).status == 401  # a code of another origin
    code = served.ask("POST", "/v1/pairing", {"origin": EXTENSION, "name": "my extension"}).json["code"]
    origin = {"Origin": EXTENSION}
    key = served.ask("POST", "/v1/session", {"code": code}, token=None, headers=origin).json["token"]
    assert served.ask("GET", "/v1/models", token=key, headers=origin).status == 200
    assert served.ask("GET", "/v1/models", token=key).status == 401
    served.context.clients._file.remove("my extension")
    assert served.ask("GET", "/v1/models", token=key, headers=origin).status == 403


@pytest.mark.parametrize("path", ["/v1/stop", "/v1/handover", "/v1/pairing", "/v1/unload"])
def test_only_the_owner_governs(served: Served, path: str) -> None:
    code = served.ask("POST", "/v1/handover").json["code"]
    page = served.ask("POST", "/v1/session", {"code": code}, token=None).json["token"]
    answer = served.ask("POST", path, {"origin": EXTENSION, "name": "x"}, token=page)
    assert (answer.status, answer.json["error"]["code"]) == (403, "forbidden")


def test_a_client_sees_its_own_jobs_only(served: Served, file: ClientFile) -> None:
    mine, other = add(file, "mine"), add(file, "other")
    job = served.ask("POST", "/v1/translate", {**HELLO, "detached": True}, token=mine).json["id"]
    assert [served.ask("GET", f"/v1/jobs/{job}", token=token).status for token in (mine, other)] == [200, 404]
    assert served.ask("DELETE", f"/v1/jobs/{job}", token=other).status == 404


def test_limits_of_a_client_are_kept(served: Served, file: ClientFile) -> None:
    key = add(file, "guest", requests_per_minute=60, characters_per_request=10, characters_per_minute=12, burst=3)
    too_long = served.ask("POST", "/v1/translate", {**HELLO, "text": "x" * 11}, token=key)
    assert (too_long.status, too_long.json["error"]["code"]) == (413, "request_too_large")
    assert served.ask("POST", "/v1/translate", {**HELLO, "text": "x" * 10}, token=key).status == 200
    too_much = served.ask("POST", "/v1/translate", {**HELLO, "text": "y" * 10}, token=key)
    assert (too_much.status, int(too_much.headers["retry-after"]) > 1) == (429, True)
    assert served.ask("GET", "/v1/models", token=key).status == 429
    assert served.ask("GET", "/v1/models").status == 200


@pytest.mark.parametrize("more", [{"protect": ["x" * 6, "y" * 6]}, {"draft": "x" * 11}])
def test_what_comes_beside_the_text_counts_too(served: Served, file: ClientFile, more: dict[str, object]) -> None:
    key = add(file, "guest", characters_per_request=10)
    assert served.ask("POST", "/v1/translate", {**HELLO, **more}, token=key).status == 413
    assert served.ask("POST", "/v1/translate", HELLO, token=key).status == 200


def test_an_account_fills_up_again() -> None:
    clock = Clock()
    account = ClientAccount(ClientLimits(requests_per_minute=60, burst=2), clock)
    account.charge_request()
    account.charge_request()
    with pytest.raises(BusyError) as refused:
        account.charge_request()
    assert refused.value.retry_after_s == pytest.approx(1.0)
    clock.now += 1.0
    account.charge_request()
    with pytest.raises(RequestTooLargeError):
        ClientAccount(ClientLimits(characters_per_request=5), clock).charge_text(6)


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 50)), max_size=40))
def test_a_bucket_never_gives_more_than_flows_in(takes: list[tuple[float, int]]) -> None:
    clock = Clock()
    bucket = Bucket(600, capacity=50, clock=clock)
    taken = 0
    for pause_s, amount in takes:
        clock.now += pause_s
        if bucket.take(amount) == 0.0:
            taken += amount
        assert taken <= 50 + clock.now * 10 + 1e-6


@pytest.fixture
def others(paths: Paths) -> tuple[str, str]:
    """Keys of two clients of the server that is started next."""
    return add(ClientFile(paths.clients_file), "a"), add(ClientFile(paths.clients_file), "b")


def test_who_cancels_a_job_cancels_it_for_itself(others: tuple[str, str]) -> None:
    gated = Gated(threading.Event(), reply("Bonjour"))
    answers: list[str] = []
    with serving(scripted_service(gated)[0]) as served:
        waiting = threading.Thread(
            target=lambda: answers.append(served.ask("POST", "/v1/translate", HELLO, token=others[0]).json["text"])
        )
        waiting.start()
        assert gated.started.wait(WAIT_S)
        begun = served.ask("POST", "/v1/translate", {**HELLO, "detached": True}, token=others[1])
        job = f"/v1/jobs/{begun.json['id']}"
        assert served.ask("DELETE", job, token=others[0]).status == 404
        assert served.ask("DELETE", job, token=others[1]).json["state"] == "running"
        assert served.ask("GET", job, token=others[1]).status == 404
        gated.gate.set()
        waiting.join(WAIT_S)
    assert answers == ["Bonjour"]


def test_detached_jobs_of_one_client_leave_places_to_the_others(others: tuple[str, str]) -> None:
    service, _ = scripted_service(Hang(), Hang(), Hang(), Hang())
    with serving(service, limits=ServerLimits(waiting_requests=4)) as served:
        answers = [
            served.ask(
                "POST", "/v1/translate", {**HELLO, "text": f"Hello {token} {n}", "detached": True}, token=token
            ).status
            for token in others
            for n in range(3)
        ]
    assert answers == [202, 202, 429] * 2
