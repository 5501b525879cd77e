"""What `hymt doctor` finds of what the user keeps: models, memory for them, the database, and the network policy."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hymt_local.application import Application
from hymt_local.cli.check import Check
from hymt_local.config import Layer, variable_name
from hymt_local.errors import StoreError

if TYPE_CHECKING:
    from hymt_local.engine.fit import MachineFacts

PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def check_model(app: Application, machine: MachineFacts) -> Check:
    """Look at the default model: its file, its header, and whether it fits.

    Raises:
        HymtError: it cannot be used.
    """
    model = app.resolve_model(None)
    for problem in app.store.problems():
        raise problem
    if model.spec.kind == "demo":
        return Check(
            "model",
            "warn",
            "only the demo phrasebook is installed",
            "`hymt models pull` fetches the model that suits this machine",
        )
    if model.path is None:
        return Check("model", "ok", f"{model.ref} (no file)")
    fit = app.plan_installed(model, machine)
    if fit.verdict != "good":
        return Check("model", "warn", f"{model.ref}: {fit.warnings[-1]}", "`hymt models fit` shows what fits")
    return Check("model", "ok", f"{model.ref} ({model.path})")


def check_fit(app: Application, machine: MachineFacts) -> Check:
    """Name the model that suits this machine."""
    from hymt_local.recommend import candidates, recommend

    best = recommend(candidates(app.catalog, machine, wish=app.fit_wish()), machine)
    if best is None:
        return Check("fit", "warn", "no published model fits now", "close other programs, or free disk space")
    found = f"{best.ref} suits this machine: about {best.plan.tokens_per_s:.0f} tokens/s"
    if machine.idle_gpus:
        with_gpu = replace(machine, gpus=machine.idle_gpus)
        better = recommend(candidates(app.catalog, with_gpu, wish=app.fit_wish()), with_gpu)
        if better is not None and better.plan.gpu_layers:
            found += f"; with the GPU {better.ref}: about {better.plan.tokens_per_s:.0f} tokens/s"
    return Check("fit", "ok", found)


def check_database(app: Application) -> Check:
    """Open the database and let SQLite look through it.

    Raises:
        StoreError: it cannot be opened, or is damaged.
    """
    path = app.paths.database
    if not path.exists():
        return Check("phrase cache", "ok", "not created yet")
    from hymt_local.memory.phrase_cache import PhraseCache

    cache = PhraseCache(path)
    try:
        entries = cache.stats().entries
    finally:
        cache.close()
    damage = _damage(app)
    if damage:
        raise StoreError(f"{path} is damaged: {damage}", hint="move the file away: a new one is made on the next run")
    return Check("phrase cache", "ok", f"{entries} entries in {path}")


def check_network(app: Application) -> Check:
    """Say what may leave this machine.

    Raises:
        ConfigError: a variable that names a server or a token is malformed.
    """
    from hymt_local.download.network import Network

    if app.settings.offline:
        place = variable_name("offline") if app.resolved.origins["offline"] is Layer.ENVIRONMENT else "config.toml"
        return Check("network", "ok", f"offline: no connection leaves this machine (set in {place})")
    network = Network.from_environment(os.environ)
    if network.offline:
        return Check("network", "ok", "offline: no connection leaves this machine (HF_HUB_OFFLINE is set)")
    hub = urlsplit(network.hub).hostname
    proxy = " through a proxy" if any(os.environ.get(name) for name in PROXIES) else ""
    return Check(
        "network", "ok", f"used by model downloads and `convert` only, to {hub}{proxy}; `offline = true` closes it"
    )


def _damage(app: Application) -> str:
    """Return the first thing that SQLite finds wrong; the empty string when there is nothing."""
    import sqlite3

    try:
        connection = sqlite3.connect(f"{app.paths.database.absolute().as_uri()}?mode=ro", uri=True)
        try:
            (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return str(error)
    return "" if finding == "ok" else str(finding)
