"""Every test gets its own home and a clean environment; nothing of the developer's machine leaks in."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from hymt_local.paths import Paths

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started by a shell in the background: children would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(autouse=True)
def isolated_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point every folder of ours below a temporary one and fix what shapes output: locale, colour, width."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(("HYMT_", "HF_", "LC_")) or name in {
            "NO_COLOR",
            "FORCE_COLOR",
            "LANGUAGE",
            "SSH_CONNECTION",
        }:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HYMT_HOME", str(home))
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("COLUMNS", "100")
    return home


@pytest.fixture
def paths(isolated_environment: Path) -> Paths:
    """The folders this test may use."""
    return Paths.under(isolated_environment)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The corpora beside the checkout; share-alike, so never inside it."""
    folder = Path(os.environ.get("HYMT_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    assert folder.is_dir(), f"the test corpora are not at {folder}: set HYMT_TEST_DATA"
    return folder
