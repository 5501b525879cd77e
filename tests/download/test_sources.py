"""Where a file comes from: caches, the hub, ModelScope; what each may see; and what offline means."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from hymt_local.catalog import ModelFile, ModelSpec, load_catalog
from hymt_local.download import DownloadError, RemoteFile, fetch_file, fetch_model
from hymt_local.download.network import Network, explain, is_loopback
from hymt_local.download.session import Session, open_session
from hymt_local.errors import CancelledError, ConfigError, ModelNotFoundError, UnsupportedModelError
from tests.download.conftest import FakeClock
from tests.download.fake_hub import COMMIT, FakeHub, Reply

CONTENT = random.Random(4).randbytes(100_000)
REPO = "owner/model"
NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def entry(hub: FakeHub) -> RemoteFile:
    return hub.add(REPO, "model.gguf", CONTENT)


@pytest.fixture
def mirror(entry: RemoteFile) -> Iterator[FakeHub]:
    """Another server with the same file, spoken to as ModelScope."""
    server = FakeHub()
    server.add(REPO, entry.name, CONTENT)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


def cached(cache: Path, entry: RemoteFile, content: bytes) -> Path:
    """Put a file into a hub cache as huggingface-hub does; returns the blob."""
    repository = cache / f"models--{entry.repo.replace('/', '--')}"
    blob = repository / "blobs" / (entry.digest or "")
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True, exist_ok=True)
    (snapshot / entry.name).symlink_to(blob)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return blob


def test_a_file_of_the_hub_cache_is_hard_linked(
    hub: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str]
) -> None:
    blob = cached(Path(environ["HF_HUB_CACHE"]), entry, CONTENT)
    path = fetch_file(entry, folder, environ=environ)
    assert path == folder / "model.gguf"
    assert path.samefile(blob)
    assert not path.is_symlink()
    assert hub.requests == []


def test_a_snapshot_without_links_is_found_too(
    hub: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str]
) -> None:
    snapshot = Path(environ["HF_HUB_CACHE"]) / "models--owner--model" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "model.gguf").write_bytes(CONTENT)
    assert fetch_file(entry, folder, environ=environ).samefile(snapshot / "model.gguf")
    assert hub.requests == []


def test_a_damaged_file_of_the_cache_is_not_used(
    hub: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str]
) -> None:
    cached(Path(environ["HF_HUB_CACHE"]), entry, CONTENT[:-1] + b"\0")
    assert fetch_file(entry, folder, environ=environ).read_bytes() == CONTENT
    assert len(hub.transfers) == 1


def test_a_file_of_the_cache_that_cannot_be_linked_is_used_in_place(
    entry: RemoteFile, folder: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    blob = cached(Path(environ["HF_HUB_CACHE"]), entry, CONTENT)
    monkeypatch.setattr(os, "link", refuse)
    assert fetch_file(entry, folder, environ=environ) == blob
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/c", "HF_HOME": "/b"}, "/c"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/d"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
    ],
)
def test_finds_the_cache_where_the_hub_library_keeps_it(variables: dict[str, str], expected: str) -> None:
    assert Network.from_environment(variables).hub_cache == Path(expected)


def test_modelscope_helps_when_the_hub_cannot_be_reached(
    mirror: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str], clock: FakeClock
) -> None:
    environ |= {"HF_ENDPOINT": NOBODY, "MODELSCOPE_ENDPOINT": mirror.url, "HF_TOKEN": "hf_secret"}
    assert fetch_file(entry, folder, environ=environ, patience=clock.patience()).read_bytes() == CONTENT
    assert [request.path for request in mirror.requests] == ["/models/owner/model/resolve/master/model.gguf"]
    assert clock.waits == [1, 1, 1]


def test_a_part_begun_at_one_source_is_continued_at_the_next(
    hub: FakeHub, mirror: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str], clock: FakeClock
) -> None:
    environ["MODELSCOPE_ENDPOINT"] = mirror.url
    hub.cuts.append(40_000)
    hub.cut_always = 0
    assert fetch_file(entry, folder, environ=environ, patience=clock.patience()).read_bytes() == CONTENT
    assert [request.range for request in mirror.requests] == ["bytes=40000-"]


def test_modelscope_helps_when_the_hub_has_another_file_by_now(
    hub: FakeHub, mirror: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str]
) -> None:
    environ["MODELSCOPE_ENDPOINT"] = mirror.url
    hub.files[REPO, "model.gguf"] = b"another"
    assert fetch_file(entry, folder, environ=environ).read_bytes() == CONTENT


def test_a_mirror_with_another_content_is_harmless(
    hub: FakeHub, mirror: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str], clock: FakeClock
) -> None:
    environ |= {"HF_ENDPOINT": NOBODY, "MODELSCOPE_ENDPOINT": mirror.url}
    mirror.files[REPO, "model.gguf"] = b"\0" * len(CONTENT)
    with pytest.raises(Exception, match="wrong sha256"):
        fetch_file(entry, folder, environ=environ, patience=clock.patience())
    assert list(folder.iterdir()) == []


def test_the_first_sources_error_is_the_one_reported(
    hub: FakeHub, mirror: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str], clock: FakeClock
) -> None:
    environ |= {"MODELSCOPE_ENDPOINT": NOBODY}
    hub.files.clear()
    with pytest.raises(ModelNotFoundError, match=r"has no model\.gguf"):
        fetch_file(entry, folder, environ=environ, patience=clock.patience())


def test_a_licence_gate_is_not_walked_around(
    hub: FakeHub, mirror: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str]
) -> None:
    environ["MODELSCOPE_ENDPOINT"] = mirror.url
    hub.replies.append(Reply(403, {"X-Error-Code": "GatedRepo"}))
    with pytest.raises(DownloadError, match="gated"):
        fetch_file(entry, folder, environ=environ)
    assert mirror.requests == []


def test_modelscope_knows_tencent_by_another_name() -> None:
    source = Network().sources()[1]
    entry = RemoteFile("tencent/Hy-MT2-7B-GGUF", "Hy-MT2-7B-Q4_K_M.gguf", 1, sha256="0" * 64)
    assert source.url(entry) == (
        "https://www.modelscope.cn/models/Tencent-Hunyuan/Hy-MT2-7B-GGUF/resolve/master/Hy-MT2-7B-Q4_K_M.gguf"
    )


# --- the token --------------------------------------------------------------------------------------------------------


def test_the_token_does_not_follow_to_another_host(
    hub: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str]
) -> None:
    environ["HF_TOKEN"] = " hf_secret\n"
    fetch_file(entry, folder, environ=environ)
    assert [(request.host, request.authorization) for request in hub.requests] == [
        ("127.0.0.1", "Bearer hf_secret"),
        ("localhost", None),
    ]


def test_the_token_stays_on_the_same_host(
    hub: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str]
) -> None:
    environ["HF_TOKEN"] = "hf_secret"
    renamed = f"/{REPO}/resolve/main/model.gguf"
    hub.replies.append(Reply(307, {"Location": renamed}))
    fetch_file(entry, folder, environ=environ)
    assert [request.authorization for request in hub.requests] == ["Bearer hf_secret", "Bearer hf_secret", None]


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        ("https://hub.example", True),
        ("http://hub.example", False),
        ("http://127.0.0.1:8000", True),
        ("http://localhost:8000", True),
        ("http://localhost.example", False),
        ("http://127.0.0.1.example", False),
    ],
)
def test_the_token_needs_encryption_or_this_machine(url: str, is_sent: bool) -> None:
    network = Network.from_environment({"HF_ENDPOINT": url, "HF_TOKEN": "hf_secret"})
    assert (network.token_for(url) is not None) == is_sent


def test_the_token_is_shown_nowhere() -> None:
    assert "hf_secret" not in repr(Network.from_environment({"HF_TOKEN": "hf_secret"}))
    with pytest.raises(ConfigError) as caught:
        Network.from_environment({"HF_TOKEN": "hf_secret\r\nX: y"})
    assert "hf_secret" not in str(caught.value.report())


def test_no_redirect_from_encryption_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SimpleNamespace(status=302, headers={"Location": "http://blobs.example/file"}, close=lambda: None)
    monkeypatch.setattr("hymt_local.download.network._send", lambda _url, **_options: answer)
    with pytest.raises(DownloadError, match="from https to an unencrypted address"):
        Network().open("https://hub.example/file", headers={}, timeout_s=1)


def test_endless_redirects_end(hub: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str]) -> None:
    hub.replies.extend(Reply(302, {"Location": "/again"}) for _ in range(20))
    with pytest.raises(DownloadError, match="in circles"):
        fetch_file(entry, folder, environ=environ)
    assert len(hub.requests) == 6


@pytest.mark.parametrize(
    "location",
    [
        *("file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "http://[bad", "http://[::1", "http://localhost:abc/"),
        *("http://localhost:99999/", "http://user:secret@127.0.0.1/", "http://a..b/", f"http://{'a' * 64}/"),
    ],
)
def test_a_redirect_leads_to_web_addresses_only(
    hub: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str], location: str
) -> None:
    hub.replies.append(Reply(302, {"Location": location}))
    with pytest.raises(DownloadError, match="not a web address") as caught:
        fetch_file(entry, folder, environ=environ)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "value",
    [
        *("hub.example", "ftp://hub.example", "https://", "https://hub.example?x=1", "https://a..b", "https://a b"),
        *("https://[::1", "https://hub.example:abc", "https://hub.example:99999", "https://me:secret@hub.example"),
    ],
)
def test_an_endpoint_must_be_a_web_address(value: str) -> None:
    with pytest.raises(ConfigError, match="HF_ENDPOINT") as caught:
        Network.from_environment({"HF_ENDPOINT": value})
    assert "secret" not in f"{caught.value.message}{caught.value.hint}"


@pytest.mark.parametrize(
    "value", ["https://hub.example/sub/", "HTTPS://HUB.example", "http://[::1]:8080", "https://ü.example"]
)
def test_an_endpoint_may_have_a_path_a_port_and_any_name(value: str) -> None:
    assert Network.from_environment({"HF_ENDPOINT": value}).hub == value.rstrip("/")


# --- proxies ----------------------------------------------------------------------------------------------------------


def test_a_proxy_is_used_for_other_machines(
    hub: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", hub.url)
    environ |= {"HF_ENDPOINT": "http://hub.example", "HF_TOKEN": "hf_secret"}
    assert fetch_file(entry, folder, environ=environ).read_bytes() == CONTENT
    assert hub.requests[0].path == f"http://hub.example/{REPO}/resolve/{COMMIT}/model.gguf"
    assert hub.requests[0].authorization is None


@pytest.mark.parametrize("proxy", [NOBODY, NOBODY.replace("//", "//me:s3cret@"), f"{NOBODY}/"])
def test_a_proxy_that_does_not_answer_is_named_without_its_password(
    entry: RemoteFile,
    folder: Path,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    clock: FakeClock,
    proxy: str,
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    environ |= {"HF_ENDPOINT": "http://hub.example"}
    host = NOBODY.removeprefix("http://")
    with pytest.raises(DownloadError) as caught:
        fetch_file(entry, folder, environ=environ, patience=clock.patience())
    assert caught.value.message.startswith(f"hub.example behind the proxy {host} cannot be reached (")
    monkeypatch.setenv("no_proxy", "hub.example")
    assert explain("http://hub.example/a", OSError(1, "why")) == "hub.example cannot be reached (why)"


def test_no_proxy_stands_between_this_machine_and_itself(
    entry: RemoteFile, folder: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", NOBODY)
    assert fetch_file(entry, folder, environ=environ).read_bytes() == CONTENT


# --- offline ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "offline"),
    [
        ({"HYMT_OFFLINE": "1"}, False),
        ({"HF_HUB_OFFLINE": "TRUE"}, False),
        ({"HYMT_OFFLINE": "ture"}, False),
        ({"HYMT_OFFLINE": "0"}, True),
    ],
)
def test_offline_opens_no_socket_to_another_machine(
    entry: RemoteFile, folder: Path, variables: dict[str, str], offline: bool, refused_addresses: list[str]
) -> None:
    with pytest.raises(DownloadError, match=r"offline: huggingface\.co was not contacted") as caught:
        fetch_file(entry, folder, environ=variables, offline=offline)
    assert "HYMT_OFFLINE" in caught.value.hint
    assert refused_addresses == []
    assert list(folder.iterdir()) == []


def test_offline_uses_what_is_on_this_machine(
    hub: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str]
) -> None:
    environ |= {"HF_ENDPOINT": "https://hub.example", "MODELSCOPE_ENDPOINT": hub.url}
    assert fetch_file(entry, folder, environ=environ, offline=True).read_bytes() == CONTENT


def test_offline_follows_no_redirect_to_another_machine(
    hub: FakeHub, entry: RemoteFile, folder: Path, environ: dict[str, str]
) -> None:
    hub.replies.append(Reply(302, {"Location": "https://blobs.example/file"}))
    with pytest.raises(DownloadError, match=r"offline: blobs\.example"):
        fetch_file(entry, folder, environ=environ, offline=True)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:1/x", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:80/", True),
        ("http://0.0.0.0", False),
        ("http://10.0.0.1", False),
        ("http://localhost@hub.example/", False),
        ("http://hub.example", False),
        ("nonsense", False),
    ],
)
def test_tells_this_machine_by_name(url: str, expected: bool) -> None:
    assert is_loopback(url) == expected


# --- models of the catalog --------------------------------------------------------------------------------------------


@pytest.fixture
def spec() -> ModelSpec:
    return load_catalog().get("Hy-MT2-1.8B")


@pytest.fixture
def file(spec: ModelSpec, hub: FakeHub) -> ModelFile:
    """Small content in place of the published one, at a place only the hub knows."""
    published = spec.files[0]
    entry = hub.add(spec.gguf_repo or "", published.name, CONTENT)
    return msgspec.structs.replace(published, sha256=entry.sha256, size_bytes=len(CONTENT))


def test_a_pinned_model_needs_no_question_to_the_hub(
    hub: FakeHub, spec: ModelSpec, file: ModelFile, folder: Path, environ: dict[str, str]
) -> None:
    assert fetch_model(spec, file, folder, environ=environ).read_bytes() == CONTENT
    assert hub.asked("/api") == []
    assert hub.requests[0].path.startswith(f"/{spec.gguf_repo}/resolve/{spec.gguf_revision or 'main'}/")


def test_the_hub_is_asked_for_the_hash_of_an_unpinned_model(
    hub: FakeHub, spec: ModelSpec, file: ModelFile, folder: Path, environ: dict[str, str]
) -> None:
    unpinned = msgspec.structs.replace(file, sha256=None)
    assert fetch_model(spec, unpinned, folder, environ=environ).read_bytes() == CONTENT
    assert len(hub.asked("/api")) == 1
    assert hub.requests[1].path.startswith(f"/{spec.gguf_repo}/resolve/{COMMIT}/")


def test_a_model_that_the_repository_lost_is_named(
    hub: FakeHub, spec: ModelSpec, file: ModelFile, folder: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(ModelNotFoundError, match=r"has no gone\.gguf"):
        fetch_model(spec, ModelFile("Q4_K_M", "gone.gguf"), folder, environ=environ)


def test_an_unsupported_file_is_not_fetched(
    hub: FakeHub, spec: ModelSpec, file: ModelFile, folder: Path, environ: dict[str, str]
) -> None:
    unsupported = msgspec.structs.replace(file, supported=False, note="its tensor types are unknown")
    with pytest.raises(UnsupportedModelError, match="tensor types"):
        fetch_model(spec, unsupported, folder, environ=environ)
    assert hub.requests == []


def test_a_model_without_gguf_is_to_be_converted(folder: Path, environ: dict[str, str]) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        fetch_model(load_catalog().get("Hunyuan-MT-7B"), ModelFile("Q4_K_M", "x.gguf"), folder, environ=environ)
    assert "hymt convert tencent/Hunyuan-MT-7B" in caught.value.hint


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_a_lookup_is_left_behind_when_the_user_stops(environ: dict[str, str]) -> None:
    from hymt_local.download.session import interruptible

    session: Session = open_session(environ)
    begun, end = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        end.wait(20)

    def stop() -> None:
        begun.wait(20)
        session.cancel.set()

    threading.Thread(target=stop).start()
    with pytest.raises(CancelledError):
        interruptible(hang, session)
    end.set()
