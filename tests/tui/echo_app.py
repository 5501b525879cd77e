"""The real app on the real service, with an engine that needs no model: `python -m tests.tui.echo_app [BEHAVIOUR]`."""

from __future__ import annotations

import os
import sys

from hymt_local.application import open_application
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.engine.scripted import Echo, Hang, Reply, ScriptedBackend, reply
from hymt_local.jobs import LocalService
from hymt_local.language import LANGUAGES
from hymt_local.translator import OpenModel
from hymt_local.tui import ModelChoice, run_tui

HOSTILE = "un \x1b]0;pwned\x07 \x1b[2J deux \u009b2J \x1b]52;c;cm0=\x07 trois"
BEHAVIOURS: dict[str, Echo | Hang | Reply] = {"echo": Echo(), "hang": Hang(), "hostile": reply(HOSTILE)}


def main(behaviour: str = "echo") -> int:
    """Run until the user quits."""
    application = open_application(os.environ, flags={"target_lang": "fr"})
    backend = ScriptedBackend(BEHAVIOURS[behaviour], context_length=100_000)
    engine = ThreadedEngine(lambda on_progress: backend, name="echo")
    model = OpenModel(application.catalog.get("echo"), engine, fingerprint="echo")
    with LocalService(lambda ref: model, cache_path=None) as service:
        return run_tui(
            service,
            application,
            environ=os.environ,
            languages=LANGUAGES,
            models=[ModelChoice("echo", model.spec.title, model.spec.kind)],
            current="echo",
        )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
