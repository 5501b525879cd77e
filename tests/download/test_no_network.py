"""Without any network a download gives up in seconds and says so; a network that fails now and then is waited for."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from hymt_local.download import DownloadError, DownloadEvent, DownloadWaiting, RemoteFile, fetch_file
from hymt_local.download.listing import list_repository
from hymt_local.download.session import open_session
from tests.download.conftest import FakeClock
from tests.download.fake_hub import FakeHub

REPO = "owner/model"
CONTENT = bytes(range(256)) * 400
PUBLIC = {"HF_ENDPOINT": "https://hub.invalid", "MODELSCOPE_ENDPOINT": "https://scope.invalid"}
NO_NAMES = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
NO_ROUTE = OSError(errno.ENETUNREACH, "Network is unreachable")


def cut_off(monkeypatch: pytest.MonkeyPatch, error: OSError, *, calls: int = 10**9) -> None:
    """Let the next name look-ups fail so."""
    resolve, left = socket.getaddrinfo, [calls]

    def lookup(*arguments: object, **options: object) -> object:
        if left[0]:
            left[0] -= 1
            raise error
        return resolve(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@pytest.fixture
def entry(hub: FakeHub) -> RemoteFile:
    return hub.add(REPO, "model.gguf", CONTENT)


@pytest.mark.parametrize("error", [NO_NAMES, NO_ROUTE], ids=["no names", "no route"])
def test_a_transfer_is_given_up_within_seconds(
    monkeypatch: pytest.MonkeyPatch, entry: RemoteFile, tmp_path: Path, clock: FakeClock, error: OSError
) -> None:
    cut_off(monkeypatch, error)
    with pytest.raises(DownloadError, match=r"no way to the internet: hub\.invalid cannot be reached") as caught:
        fetch_file(entry, tmp_path, environ={**PUBLIC, "HF_HUB_CACHE": str(tmp_path)}, patience=clock.patience())
    assert "hymt models import" in caught.value.hint
    assert sum(clock.waits) <= 3


def test_so_is_a_question_to_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock) -> None:
    cut_off(monkeypatch, NO_NAMES)
    session = open_session({**PUBLIC, "HF_HUB_CACHE": str(tmp_path)}, patience=clock.patience())
    with pytest.raises(DownloadError, match="no way to the internet"):
        list_repository(REPO, "main", session=session)
    assert sum(clock.waits) <= 3


def test_a_misspelt_host_is_named_when_no_other_is_asked(
    monkeypatch: pytest.MonkeyPatch, entry: RemoteFile, tmp_path: Path, clock: FakeClock
) -> None:
    cut_off(monkeypatch, NO_NAMES)
    environ = {**PUBLIC, "MODELSCOPE_ENDPOINT": "", "HF_HUB_CACHE": str(tmp_path)}
    with pytest.raises(DownloadError, match=r"^hub\.invalid cannot be reached"):
        fetch_file(entry, tmp_path, environ=environ, patience=clock.patience())


def test_one_failed_lookup_of_a_name_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, entry: RemoteFile, tmp_path: Path, environ: dict[str, str], clock: FakeClock
) -> None:
    cut_off(monkeypatch, NO_NAMES, calls=1)
    assert fetch_file(entry, tmp_path, environ=environ, patience=clock.patience()).read_bytes() == CONTENT


def test_a_network_that_goes_away_in_the_middle_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
    hub: FakeHub,
    entry: RemoteFile,
    tmp_path: Path,
    environ: dict[str, str],
    clock: FakeClock,
) -> None:
    hub.cuts.append(50_000)

    def lose_it(event: DownloadEvent) -> None:
        if isinstance(event, DownloadWaiting) and "broke the connection" in event.reason and not lost:
            lost.append(event)
            cut_off(monkeypatch, NO_NAMES, calls=6)

    lost: list[DownloadEvent] = []
    hub.cut_always = 0
    clock.on_wait = lambda: setattr(hub, "cut_always", None)
    path = fetch_file(entry, tmp_path, environ=environ, patience=clock.patience(), on_progress=lose_it)
    assert path.read_bytes() == CONTENT
    assert lost
    assert len(clock.waits) > 2 * 6
