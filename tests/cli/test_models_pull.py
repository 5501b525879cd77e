"""`hymt models pull` against a hub on this machine: what is fetched, what is asked, and what an interruption leaves."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from hymt_local.application import Application
from hymt_local.catalog import load_catalog
from hymt_local.cli.models.pull import Reporter, duration_text, licence_lines, progress_label, waiting_label
from hymt_local.download import DownloadProgress, DownloadWaiting
from hymt_local.paths import Paths
from tests.cli.conftest import Completed, RunHymt
from tests.download.fake_hub import FakeHub, Reply
from tests.machines import machine
from tests.toy_models import write_toy_model

REPO = "tencent/Hy-MT2-1.8B-GGUF"
NAME = "Hy-MT2-1.8B-Q4_K_M.gguf"
CATALOG = """\
schema = 1
[[models]]
id = "Hy-MT2-1.8B"
title = "Hy-MT2 1.8B"
family = "dense-1_8B"
licence = "{licence}"
template_set = "mt2"
gguf_repo = "{repo}"
[[models.files]]
quantization = "Q4_K_M"
name = "{name}"
size_bytes = {size}
{hash}
"""


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    server = FakeHub()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_toy_model(tmp_path_factory.mktemp("toy") / "toy.gguf").read_bytes()


@pytest.fixture
def publish(hub: FakeHub, paths: Paths, content: bytes) -> Callable[..., None]:
    """Publish a toy as the 1.8B, and say so in the user's catalog."""

    def publish(data: bytes = content, *, licence: str = "Apache-2.0", is_pinned: bool = True) -> None:
        hub.add(REPO, NAME, data)
        paths.config_dir.mkdir(parents=True, exist_ok=True)
        digest = f'sha256 = "{hashlib.sha256(data).hexdigest()}"' if is_pinned else ""
        text = CATALOG.format(licence=licence, repo=REPO, name=NAME, size=len(data), hash=digest)
        paths.catalog_file.write_text(text)

    return publish


@pytest.fixture(autouse=True)
def surroundings(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An 8 GB machine without a GPU; the fake hub is the only source."""
    monkeypatch.setattr(Application, "probe_machine", lambda self: machine(8))
    for name, value in hub_environ(hub, tmp_path).items():
        monkeypatch.setenv(name, value)


def hub_environ(hub: FakeHub, tmp_path: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "MODELSCOPE_ENDPOINT": "", "HF_HUB_CACHE": str(tmp_path / "cache")}


def parts(paths: Paths) -> list[Path]:
    return list(paths.models_dir.glob(".*.part"))


def assert_one_error(done: Completed, *, said: str, status: int = 3) -> str:
    """Check that a command ended with one error; returns its hint."""
    assert (done.status, done.out) == (status, b"")
    *_, what, hint = done.err.splitlines()
    assert what.startswith("error: ")
    assert said in what
    return hint.removeprefix("hint: ")


# What is fetched


def test_without_a_name_the_recommended_model_is_fetched_and_becomes_the_default(
    hymt_here: RunHymt, publish: Callable[..., None], paths: Paths, content: bytes
) -> None:
    publish()
    done = hymt_here("models", "pull", "--accept-licence")
    assert (done.status, done.text) == (0, f"Hy-MT2-1.8B:Q4_K_M\t{paths.models_dir / NAME}\n")
    assert (paths.models_dir / NAME).read_bytes() == content
    assert parts(paths) == []
    listed = json.loads(hymt_here("models", "list", "--json").out)["installed"][0]
    assert (listed["ref"], listed["default"], listed["published"]) == ("Hy-MT2-1.8B:Q4_K_M", True, True)


def test_a_model_is_named_in_any_case(hymt_here: RunHymt, publish: Callable[..., None]) -> None:
    publish()
    done = hymt_here("models", "pull", "hy-mt2-1.8b:q4_k_m", "--accept-licence")
    assert done.text.startswith("Hy-MT2-1.8B:Q4_K_M\t")


def test_a_file_without_a_pinned_hash_is_verified_by_the_hubs(hymt_here: RunHymt, publish: Callable[..., None]) -> None:
    publish(is_pinned=False)
    assert hymt_here("models", "pull", "Hy-MT2-1.8B", "--accept-licence").status == 0


def test_what_is_installed_is_not_fetched_again(hymt_here: RunHymt, publish: Callable[..., None], hub: FakeHub) -> None:
    publish()
    hymt_here("models", "pull", "--accept-licence")
    done = hymt_here("models", "pull")
    assert done.status == 0
    assert done.err == "note: Hy-MT2-1.8B:Q4_K_M is installed already\n"
    assert len(hub.transfers) == 1


def test_a_default_that_was_chosen_gives_way_and_that_is_said(hymt_here: RunHymt, publish: Callable[..., None]) -> None:
    publish()
    hymt_here("models", "use", "echo")
    done = hymt_here("models", "pull", "--accept-licence")
    assert "note: Hy-MT2-1.8B:Q4_K_M is the default now; it was echo\n" in done.err
    assert json.loads(hymt_here("config", "show", "--json").out)["model"]["value"] == "Hy-MT2-1.8B:Q4_K_M"


def test_a_default_of_the_environment_stays_and_that_is_said(hymt_here: RunHymt, publish: Callable[..., None]) -> None:
    publish()
    done = hymt_here("models", "pull", "--accept-licence", environ={"HYMT_MODEL": "echo"})
    assert "HYMT_MODEL is set and wins: echo stays the default" in done.err


def test_an_interrupted_transfer_of_another_process_is_continued(
    hymt_here: RunHymt, publish: Callable[..., None], hub: FakeHub
) -> None:
    publish()
    hub.cuts.extend([100_000, 200_000])
    assert hymt_here("models", "pull", "--accept-licence").status == 0
    assert [request.range for request in hub.transfers] == [None, "bytes=100000-", "bytes=300000-"]


# What is refused


def test_a_model_that_does_not_fit_is_refused_before_any_byte(hymt_here: RunHymt, hub: FakeHub) -> None:
    hint = assert_one_error(hymt_here("models", "pull", "Hy-MT2-30B-A3B"), said="Hy-MT2-30B-A3B:Q4_K_M does not fit")
    assert hint.startswith("`hymt models pull Hy-MT2-1.8B:Q8_0` fits here")
    assert hub.requests == []


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("nonsense", "unknown model"),
        ("Hunyuan-MT-7B", "has no published GGUF"),
        ("Hy-MT2-7B:Q2_K", "is not published as Q2_K"),
        ("Hy-MT2-1.8B:2bit", "cannot be run by this program"),
        ("echo", "has no published GGUF"),
    ],
)
def test_what_cannot_be_fetched_is_one_error(hymt_here: RunHymt, ref: str, said: str) -> None:
    assert_one_error(hymt_here("models", "pull", ref, "--accept-licence"), said=said)


def test_a_hopeless_machine_is_told_so(hymt_here: RunHymt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "probe_machine", lambda self: machine(4, available=0.01))
    assert_one_error(hymt_here("models", "pull"), said="no published model fits this machine now")


def test_offline_nothing_is_asked_and_the_way_out_is_named(
    hymt_here: RunHymt, publish: Callable[..., None], hub: FakeHub
) -> None:
    publish()
    environ = {"HYMT_OFFLINE": "1", "HF_ENDPOINT": "https://huggingface.co"}
    done = hymt_here("models", "pull", "--accept-licence", environ=environ)
    hint = assert_one_error(done, said="offline: huggingface.co was not contacted")
    assert "offline = false" in hint
    assert hub.requests == []


def test_a_tampered_file_is_not_installed(
    hymt_here: RunHymt, publish: Callable[..., None], hub: FakeHub, content: bytes, paths: Paths
) -> None:
    publish()
    hub.files[REPO, NAME] = content[:-1] + b"!"
    assert_one_error(hymt_here("models", "pull", "--accept-licence"), said="is not the published file (wrong sha256)")
    assert [file.name for file in paths.models_dir.iterdir() if file.suffix == ".gguf"] == []


def test_a_published_file_that_is_no_model_is_not_installed(
    hymt_here: RunHymt, publish: Callable[..., None], paths: Paths
) -> None:
    publish(b"<html>" * 1000)
    assert_one_error(hymt_here("models", "pull", "--accept-licence"), said="no sound model")
    assert list(paths.models_dir.glob("*.json")) == []


def test_a_gated_model_names_the_page(hymt_here: RunHymt, publish: Callable[..., None], hub: FakeHub) -> None:
    publish()
    hub.blob_replies.append(Reply(403, {"X-Error-Code": "GatedRepo"}))
    hint = assert_one_error(hymt_here("models", "pull", "--accept-licence"), said="is gated")
    assert "HF_TOKEN" in hint


# The licence


def test_without_consent_and_a_terminal_nothing_is_fetched(
    hymt_here: RunHymt, publish: Callable[..., None], hub: FakeHub
) -> None:
    publish(licence="Tencent-HY-Community")
    done = hymt_here("models", "pull", "Hy-MT2-1.8B")
    hint = assert_one_error(
        done, said="the Tencent HY Community License Agreement of Hy-MT2-1.8B has not been accepted"
    )
    assert "--accept-licence" in hint
    assert "note: not licensed in: EU, GB, KR\n" in done.err
    assert hub.requests == []


def test_consent_is_remembered_per_licence(hymt_here: RunHymt, publish: Callable[..., None], paths: Paths) -> None:
    publish(licence="Tencent-HY-Community")
    assert hymt_here("models", "pull", "Hy-MT2-1.8B", "--accept-licence").status == 0
    assert list(json.loads((paths.state_dir / "licences.json").read_text())) == ["Tencent-HY-Community"]
    hymt_here("models", "rm", "Hy-MT2-1.8B", "--yes")
    again = hymt_here("models", "pull", "Hy-MT2-1.8B")
    assert again.status == 0
    assert "licensed" not in again.err
    publish(licence="Apache-2.0")
    hymt_here("models", "rm", "Hy-MT2-1.8B", "--yes")
    assert_one_error(hymt_here("models", "pull", "Hy-MT2-1.8B"), said="has not been accepted")


@pytest.mark.parametrize(("answer", "status"), [(True, 0), (False, 3)])
def test_on_a_terminal_the_question_is_asked(
    hymt_here: RunHymt, publish: Callable[..., None], monkeypatch: pytest.MonkeyPatch, answer: bool, status: int
) -> None:
    publish()
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("hymt_local.cli.models.pull._can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    assert hymt_here("models", "pull").status == status
    assert asked == ["Accept the Apache License 2.0?"]


def test_every_licence_of_the_catalog_is_shown_with_its_territory_and_duties() -> None:
    for spec in load_catalog().models:
        lines = licence_lines(spec.id, spec.licence)
        assert spec.licence.title in lines[0]
        assert ("not licensed in: EU, GB, KR" in lines) == bool(spec.licence.territory_excluded)


# Progress


def test_json_is_an_object_per_line_and_ends_with_the_model(hymt_here: RunHymt, publish: Callable[..., None]) -> None:
    publish()
    done = hymt_here("models", "pull", "--accept-licence", "--json")
    events = [json.loads(line) for line in done.text.splitlines()]
    assert {event["event"] for event in events[:-1]} == {"progress"}
    assert set(events[0]) >= {"name", "phase", "done_bytes", "total_bytes", "rate_bytes_per_s", "eta_s"}
    assert (events[-1]["event"], events[-1]["ref"]) == ("installed", "Hy-MT2-1.8B:Q4_K_M")


def test_an_error_is_a_json_line_too(hymt_here: RunHymt, publish: Callable[..., None]) -> None:
    publish()
    done = hymt_here("models", "pull", "--json")
    assert done.status == 3
    (line,) = done.text.splitlines()
    assert json.loads(line)["code"] == "licence"


def test_the_line_on_a_terminal_has_rate_and_remaining_time() -> None:
    event = DownloadProgress("m.gguf", "download", 1_200_000_000, 4_600_000_000, 0, 0, 12_300_000.0, 276.0)
    assert progress_label(event) == "m.gguf  1.20 of 4.60 GB  12.3 MB/s  5 min left"


def test_waiting_is_shown_with_its_reason_and_the_time_left(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    reporter = Reporter(as_json=True)
    reporter(DownloadWaiting("m.gguf", "the hub answered with status 503", 4.0))
    (line,) = capfdbinary.readouterr().out.splitlines()
    assert json.loads(line) == {
        "event": "waiting", "name": "m.gguf", "reason": "the hub answered with status 503", "remaining_s": 4.0,
    }  # fmt: skip
    assert waiting_label(DownloadWaiting("m", "status 503", 4.0)) == "status 503, trying again in 4 s"
    assert waiting_label(DownloadWaiting("m", "another process is fetching it", None)) == (
        "another process is fetching it"
    )


def test_without_a_terminal_each_reason_for_waiting_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter(as_json=False)
    for reason in ("hub cannot be reached", "hub cannot be reached", "mirror cannot be reached"):
        reporter(DownloadWaiting("m.gguf", reason, 4.0))
    told = "note: hub cannot be reached; trying again\nnote: mirror cannot be reached; trying again\n"
    assert tuple(capsys.readouterr()) == ("", told)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (59.7, "1 min"),
        (61, "1 min"),
        (3599, "1 h 0 min"),
        (7199, "2 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations_are_rounded(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


# Interruption


def test_ctrl_c_leaves_a_part_that_the_next_call_continues(
    hub: FakeHub,
    hymt_here: RunHymt,
    publish: Callable[..., None],
    paths: Paths,
    process_environ: Mapping[str, str],
) -> None:
    publish()
    hub.stall_after = 200_000
    command = [sys.executable, "-m", "hymt_local", "models", "pull", "Hy-MT2-1.8B", "--accept-licence"]
    process: Any = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(process_environ)
    )
    assert hub.stalled.wait(60)
    while sum(part.stat().st_size for part in parts(paths)) < 200_000:
        assert process.poll() is None
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    *_, what, hint = err.splitlines()
    assert what == f"error: the download was stopped: 0.2 MB of {NAME} are here"
    assert hint == "hint: `hymt models pull Hy-MT2-1.8B:Q4_K_M` continues it"
    assert [part.stat().st_size for part in parts(paths)] == [200_000]
    hub.released.set()
    assert hymt_here("models", "pull", "Hy-MT2-1.8B").status == 0
    assert [request.range for request in hub.transfers] == [None, "bytes=200000-"]
    assert parts(paths) == []
