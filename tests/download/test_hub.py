"""What the hub says of a repository, and what its refusals mean; huggingface-hub sends nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hymt_local.download import DownloadError
from hymt_local.download.listing import list_repository
from hymt_local.download.remote_file import RepoListing
from hymt_local.download.session import open_session
from hymt_local.errors import HymtError, ModelFileError, ModelNotFoundError
from tests.download.conftest import FakeClock
from tests.download.fake_hub import COMMIT, FakeHub, Reply

REPO = "owner/model"


def listing(environ: dict[str, str], clock: FakeClock, revision: str = "main", **options: Any) -> RepoListing:
    return list_repository(REPO, revision, session=open_session(environ, patience=clock.patience(), **options))


def test_lists_files_with_sizes_hashes_and_commit(hub: FakeHub, environ: dict[str, str], clock: FakeClock) -> None:
    entries = (hub.add(REPO, "model.safetensors", b"weights"), hub.add(REPO, "config.json", b"{}", lfs=False))
    assert listing(environ, clock) == RepoListing(REPO, COMMIT, entries)


def test_asks_for_the_revision_once_and_for_nothing_else(
    hub: FakeHub, environ: dict[str, str], clock: FakeClock
) -> None:
    hub.add(REPO, "config.json", b"{}", lfs=False)
    listing(environ, clock, revision="refs/pr/1")
    assert [request.path for request in hub.requests] == [f"/api/models/{REPO}/revision/refs%2Fpr%2F1?blobs=true"]


def test_sub_folders_and_hidden_files_are_left_out(hub: FakeHub, environ: dict[str, str], clock: FakeClock) -> None:
    for name in (".gitattributes", "original/model.pth", "Model card (old).md"):
        hub.publish(REPO, name, b"x", lfs=False)
    assert listing(environ, clock).files == ()


@pytest.mark.parametrize("name", ["../config.json", "a/../../b", "/etc/passwd", "..\\x", "C:\\x", "x:y"])
def test_a_repository_that_names_files_outside_is_refused(
    hub: FakeHub, environ: dict[str, str], clock: FakeClock, name: str
) -> None:
    hub.publish(REPO, name, b"x")
    with pytest.raises(ModelFileError, match="outside its folder"):
        listing(environ, clock)


@pytest.mark.parametrize(
    ("reply", "kind", "message", "hint"),
    [
        (Reply(403, {"X-Error-Code": "GatedRepo"}), DownloadError, "owner/model is gated", "accept it at https://"),
        (Reply(401, {"X-Error-Code": "GatedRepo"}), DownloadError, "owner/model is gated", "HF_TOKEN"),
        (Reply(401), DownloadError, "refuses access", "HF_TOKEN"),
        (Reply(401, {"X-Error-Code": "RepoNotFound"}), ModelNotFoundError, "no repository owner/model", "HF_TOKEN"),
        (Reply(404, {"X-Error-Code": "RepoNotFound"}), ModelNotFoundError, "has no repository", "check the id"),
        (Reply(404), ModelNotFoundError, "has no repository", "check the id"),
        (Reply(404, {"X-Error-Code": "RevisionNotFound"}), ModelNotFoundError, "no revision 'main'", "branch"),
        (Reply(403), DownloadError, "refuses access", "HF_TOKEN"),
        (Reply(200, body=b"<html>log in</html>"), DownloadError, "does not answer as a hub", "HF_ENDPOINT"),
        (Reply(200, body=b"[1]"), DownloadError, "does not answer as a hub", "HF_ENDPOINT"),
        (Reply(200, body=b'{"id": "x"}'), DownloadError, "does not answer as a hub", "HF_ENDPOINT"),
    ],
)
def test_a_refusal_is_final_and_says_what_to_do(
    hub: FakeHub,
    environ: dict[str, str],
    clock: FakeClock,
    reply: Reply,
    kind: type[HymtError],
    message: str,
    hint: str,
) -> None:
    hub.replies.append(reply)
    with pytest.raises(kind, match=message) as caught:
        listing(environ, clock)
    assert hint in caught.value.hint
    assert clock.waits == []


@pytest.mark.parametrize(
    "sibling",
    [
        {"rfilename": "x", "size": 1, "blobId": "not a hash"},
        {"rfilename": "x", "size": -1},
        {"rfilename": "x"},
        {"rfilename": "x", "size": 1, "lfs": {"size": 1, "sha256": "short", "pointerSize": 1}},
        {"rfilename": "x", "size": "1"},
    ],
)
def test_nonsense_about_a_file_is_refused(
    hub: FakeHub, environ: dict[str, str], clock: FakeClock, sibling: dict[str, object]
) -> None:
    hub.replies.append(Reply(200, body=json.dumps({"id": REPO, "sha": COMMIT, "siblings": [sibling]}).encode()))
    with pytest.raises(HymtError):
        listing(environ, clock)


@pytest.mark.parametrize("status", [503, 500, 429])
def test_a_busy_hub_is_asked_again(hub: FakeHub, environ: dict[str, str], clock: FakeClock, status: int) -> None:
    hub.add(REPO, "config.json", b"{}", lfs=False)
    hub.replies.extend([Reply(status, {"Retry-After": "2"}), Reply(status)])
    assert listing(environ, clock).revision == COMMIT
    assert sum(clock.waits) == 2 + 2


def test_a_hub_that_stays_busy_is_given_up(hub: FakeHub, environ: dict[str, str], clock: FakeClock) -> None:
    hub.replies.extend(Reply(503) for _ in range(9))
    with pytest.raises(DownloadError, match=r"status 503, 4 attempts"):
        listing(environ, clock)


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"\xff", b'{"id": "x", "sha": "c", "siblings": [{"rfilename": null}]}'], ids=len
)
def test_nonsense_is_no_answer_of_a_hub(hub: FakeHub, environ: dict[str, str], clock: FakeClock, body: bytes) -> None:
    hub.replies.append(Reply(200, {"Content-Type": "application/json"}, body))
    with pytest.raises(DownloadError, match="does not answer as a hub does"):
        listing(environ, clock)


def test_a_revision_that_is_a_path_is_refused(hub: FakeHub, environ: dict[str, str], clock: FakeClock) -> None:
    hub.replies.append(Reply(200, {}, b'{"id": "owner/model", "sha": "../../x", "siblings": []}'))
    with pytest.raises(ModelNotFoundError, match="not a revision"):
        listing(environ, clock)


def test_a_hub_that_is_not_there_is_given_up(environ: dict[str, str], clock: FakeClock) -> None:
    environ["HF_ENDPOINT"] = "http://127.0.0.1:1"
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1 cannot be reached .*4 attempts"):
        listing(environ, clock)


@pytest.mark.parametrize(("token", "sent"), [("hf_secret", "Bearer hf_secret"), ("", None)])
def test_the_token_of_the_environment_is_the_only_one(
    hub: FakeHub,
    environ: dict[str, str],
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    token: str,
    sent: str | None,
) -> None:
    hub.add(REPO, "config.json", b"{}", lfs=False)
    monkeypatch.setenv("HF_TOKEN", "of another environment")
    listing(environ | {"HF_TOKEN": token}, clock)
    assert [request.authorization for request in hub.requests] == [sent]


def test_no_proxy_stands_between_this_machine_and_itself(
    hub: FakeHub, environ: dict[str, str], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(REPO, "config.json", b"{}", lfs=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert listing(environ, clock).revision == COMMIT


def test_offline_asks_no_other_machine(environ: dict[str, str], clock: FakeClock, refused_addresses: list[str]) -> None:
    environ["HF_ENDPOINT"] = "https://hub.example"
    with pytest.raises(DownloadError, match=r"offline: hub\.example"):
        listing(environ, clock, offline=True)
    assert refused_addresses == []


def test_offline_follows_no_redirect_of_a_hub_on_this_machine(
    hub: FakeHub, environ: dict[str, str], clock: FakeClock, refused_addresses: list[str]
) -> None:
    hub.replies.append(Reply(307, {"Location": "https://hub.example/api/models/x/y"}))
    with pytest.raises(DownloadError, match=r"offline: hub\.example"):
        listing(environ, clock, offline=True)
    assert refused_addresses == []


def test_modelscope_is_asked_when_the_hub_is_silent(hub: FakeHub, environ: dict[str, str], clock: FakeClock) -> None:
    environ |= {"HF_ENDPOINT": "http://127.0.0.1:1", "MODELSCOPE_ENDPOINT": hub.url}
    entry = hub.add(REPO, "model.safetensors", b"weights")
    found = listing(environ, clock)
    assert found.revision is None
    assert [(file.name, file.size_bytes, file.sha256) for file in found.files] == [
        ("model.safetensors", 7, entry.sha256)
    ]


def test_modelscope_is_not_asked_for_a_commit_of_the_hub(
    hub: FakeHub, environ: dict[str, str], clock: FakeClock
) -> None:
    environ |= {"HF_ENDPOINT": "http://127.0.0.1:1", "MODELSCOPE_ENDPOINT": hub.url}
    with pytest.raises(DownloadError, match="cannot be reached"):
        listing(environ, clock, revision=COMMIT)
    assert hub.requests == []


@pytest.mark.parametrize(
    "reply",
    [Reply(200, body=b"<html>"), Reply(200, body=b'{"Data": {}}'), Reply(404), Reply(200, body=b"x" * 5_000_000)],
)
def test_nonsense_of_modelscope_leaves_the_hubs_error(
    hub: FakeHub, environ: dict[str, str], clock: FakeClock, reply: Reply
) -> None:
    environ |= {"HF_ENDPOINT": "http://127.0.0.1:1", "MODELSCOPE_ENDPOINT": hub.url}
    hub.replies.append(reply)
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1 cannot be reached"):
        listing(environ, clock)
