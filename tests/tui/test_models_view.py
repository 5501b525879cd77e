"""The models view against a hub on this machine: judged, fetched, stopped and continued, verified, chosen, removed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from hymt_local.application import Application
from hymt_local.paths import Paths
from hymt_local.tui.downloads import Download, download_label, duration_text
from hymt_local.tui.views import View
from hymt_local.tui.wording import load_wording
from tests.download.fake_hub import FakeHub
from tests.machines import machine
from tests.toy_models import write_toy_model
from tests.tui.conftest import MakeApp
from tests.tui.driving import app_of, at_rest, detail, notice, paste, rows, source, status, until
from tests.tui.fakes import FakeService

REPO, NAME, REF = "tencent/Hy-MT2-1.8B-GGUF", "Hy-MT2-1.8B-Q4_K_M.gguf", "Hy-MT2-1.8B:Q4_K_M"
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
sha256 = "{sha256}"
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


Publish = Callable[..., None]


@pytest.fixture
def publish(hub: FakeHub, paths: Paths, content: bytes) -> Publish:
    """Publish a toy as the 1.8B, and say so in the user's catalog."""

    def publish(*, licence: str = "Apache-2.0") -> None:
        hub.add(REPO, NAME, content)
        paths.config_dir.mkdir(parents=True, exist_ok=True)
        sha256 = hashlib.sha256(content).hexdigest()
        text = CATALOG.format(licence=licence, repo=REPO, name=NAME, size=len(content), sha256=sha256)
        paths.catalog_file.write_text(text)

    return publish


@pytest.fixture(autouse=True)
def surroundings(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An 8 GB machine without a GPU; the fake hub is the only source."""
    monkeypatch.setattr(Application, "probe_machine", lambda self: machine(8))
    environ = {"HF_ENDPOINT": hub.url, "MODELSCOPE_ENDPOINT": "", "HF_HUB_CACHE": str(tmp_path / "cache")}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


async def open_models(pilot: Pilot[None]) -> None:
    await pilot.press("alt+4")
    await until(pilot, lambda: app_of(pilot).view is View.MODELS and "memory free" in notice(pilot))


async def choose(pilot: Pilot[None], ref: str) -> None:
    """Move the cursor to a row."""
    app_of(pilot).screen.choose_row(ref)  # type: ignore[attr-defined]
    await pilot.pause()


async def answer_licence(pilot: Pilot[None], key: str) -> str:
    """Answer the question, and return it."""
    await until(pilot, lambda: len(pilot.app.screen.query("#dialog-note")) == 1)
    text = str(pilot.app.screen.query_one("#dialog-note").render())
    await pilot.press(key)
    return text


async def test_every_model_has_size_licence_and_fit(make_app: MakeApp) -> None:
    async with make_app().run_test(size=(140, 40)) as pilot:
        await open_models(pilot)
        (row,) = [row for row in rows(pilot) if "Hy-MT2-7B:Q4_K_M" in row]
        assert "4.6 GB" in row
        assert [row for row in rows(pilot) if "★ suits best" in row]
        await choose(pilot, "HY-MT1.5-7B:Q8_0")
        assert "EU, GB, KR" in detail(pilot)
        assert "Needs memory" in detail(pilot)
        await choose(pilot, "Hunyuan-MT-7B")
        await pilot.press("enter")
        assert "hymt convert tencent/Hunyuan-MT-7B" in notice(pilot)


async def test_a_download_is_asked_for_shown_and_translates_when_the_demo_did(
    make_app: MakeApp, publish: Publish, paths: Paths, service: FakeService
) -> None:
    publish()
    async with make_app(model=1).run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: f"{REF} suits this machine" in status(pilot))
        await pilot.press("ctrl+g")
        said = await answer_licence(pilot, "y")
        assert "Apache License 2.0" in said
        assert NAME in said
        await until(pilot, lambda: app_of(pilot).translate_screen.model.ref == REF)
        await until(pilot, lambda: f"{REF} translates from now on" in notice(pilot))
        await until(pilot, lambda: any(row.startswith("● ") and "in use" in row for row in rows(pilot)))
        await pilot.press("alt+1")
        await paste(pilot, "Hello")
        await until(pilot, lambda: len(service.jobs) == 1)
    assert service.requests[0].model == REF
    assert (paths.models_dir / NAME).is_file()
    assert list(json.loads((paths.state_dir / "licences.json").read_text())) == ["Apache-2.0"]


async def test_work_goes_on_during_a_download_which_is_stopped_and_continued(
    make_app: MakeApp, publish: Publish, hub: FakeHub, paths: Paths, service: FakeService, content: bytes
) -> None:
    publish()
    hub.stall_after = 200_000
    async with make_app(model=1).run_test(size=(140, 40)) as pilot:
        await open_models(pilot)
        await choose(pilot, REF)
        await pilot.press("enter")
        await answer_licence(pilot, "enter")
        await until(pilot, lambda: hub.stalled.is_set())
        await pilot.press("alt+1")
        await until(pilot, lambda: REF in status(pilot) and "MB" in status(pilot))
        await paste(pilot, "Hello")
        await until(pilot, lambda: len(service.jobs) == 1)
        assert source(pilot).text == "Hello"
        await pilot.press("alt+4", "x")
        await until(pilot, lambda: "the download was stopped" in notice(pilot))
        await until(pilot, lambda: "Enter continues it" in detail(pilot))
        hub.released.set()
        await pilot.press("enter")
        await until(pilot, lambda: app_of(pilot).translate_screen.model.ref == REF)
    assert (paths.models_dir / NAME).read_bytes() == content
    assert hub.transfers[-1].range is not None


async def test_without_consent_nothing_is_fetched(make_app: MakeApp, publish: Publish, hub: FakeHub) -> None:
    publish(licence="Tencent-HY-Community")
    async with make_app().run_test(size=(140, 40)) as pilot:
        await open_models(pilot)
        await choose(pilot, REF)
        await pilot.press("enter")
        said = await answer_licence(pilot, "n")
        assert "Not licensed in: EU, GB, KR" in said
        await at_rest(pilot)
    assert hub.requests == []


async def test_an_error_of_the_download_is_told_with_its_way_out(
    make_app: MakeApp, publish: Publish, hub: FakeHub, content: bytes
) -> None:
    publish()
    hub.files[REPO, NAME] = content[:-1] + b"!"
    async with make_app().run_test(size=(140, 40)) as pilot:
        await open_models(pilot)
        await choose(pilot, REF)
        await pilot.press("enter")
        await answer_licence(pilot, "y")
        await until(pilot, lambda: "wrong sha256" in notice(pilot))
        assert "HF_ENDPOINT" in notice(pilot)


async def test_an_installed_model_is_verified_used_and_removed(make_app: MakeApp, tmp_path: Path, paths: Paths) -> None:
    file = write_toy_model(tmp_path / "Hy-MT2-1.8B-Q4_K_M.gguf")
    async with make_app(model=2).run_test(size=(140, 40)) as pilot:
        ref = app_of(pilot).environment.application.store.import_file(file, as_id="Hy-MT2-1.8B").ref
        await open_models(pilot)
        await choose(pilot, ref)
        await pilot.press("v")
        await until(pilot, lambda: "as it was imported" in notice(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: app_of(pilot).translate_screen.model.ref == ref)
        await pilot.press("delete")
        await answer_licence(pilot, "y")
        await until(pilot, lambda: list(paths.models_dir.glob("*.json")) == [])
        await until(pilot, lambda: app_of(pilot).translate_screen.model.ref == "demo")
    assert file.exists()


async def test_what_belongs_to_the_package_stays(make_app: MakeApp) -> None:
    async with make_app().run_test(size=(140, 40)) as pilot:
        await open_models(pilot)
        await choose(pilot, "demo")
        await pilot.press("delete")
        await until(pilot, lambda: "can be removed" in notice(pilot))
        await pilot.press("x")
        await until(pilot, lambda: "No download is running" in notice(pilot))


def test_the_label_of_a_download_has_amount_rate_and_time() -> None:
    wording = load_wording("en")
    catalog_entry = Download(spec=None, file=None)  # type: ignore[arg-type]
    from dataclasses import replace

    state = replace(catalog_entry, done_bytes=1_200_000_000, total_bytes=4_600_000_000)
    moving = replace(state, rate_bytes_per_s=12_300_000.0, eta_s=276.0)
    assert download_label(moving, wording) == "1.20 / 4.60 GB · 12.3 MB/s · 5 min left"
    assert download_label(replace(state, waiting="status 503"), wording) == "status 503"
    assert [duration_text(seconds) for seconds in (59, 7199, 7500)] == ["59 s", "2 h 0 min", "2 h 5 min"]
