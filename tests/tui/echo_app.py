"""The real app on the real service, with an engine that needs no model: `python -m tests.tui.echo_app [BEHAVIOUR]`.

`fragile` runs in an engine process that can be killed.
`slow` is a service of its own that writes 50 tokens a second, as a resident process would send them.
"""

from __future__ import annotations

import os
import sys
import threading

from hymt_local.application import Application, open_application
from hymt_local.engine.host import FixedOrder, open_hosted
from hymt_local.engine.pipe import Order
from hymt_local.engine.process import Patience
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.engine.scripted import Echo, Hang, Reply, ScriptedBackend, reply
from hymt_local.events import Cancelled, Started, TextDelta, TranslationRequest
from hymt_local.jobs import LocalService, Service, TranslationJob
from hymt_local.language import LANGUAGES
from hymt_local.segment import Segment
from hymt_local.translator import OpenModel
from hymt_local.tui import ModelChoice, run_tui
from tests.services import a_spec

HOSTILE = "un \x1b]0;pwned\x07 \x1b[2J deux \u009b2J \x1b]52;c;cm0=\x07 trois"
BEHAVIOURS: dict[str, Echo | Hang | Reply] = {"echo": Echo(), "hang": Hang(), "hostile": reply(HOSTILE)}
TOKENS_PER_S = 50
WORDS_PER_LINE = 12


class SlowService:
    """Answers every request with words without end, one token at a time."""

    warnings: tuple[str, ...] = ()

    def submit(self, request: TranslationRequest) -> TranslationJob:
        stopped = threading.Event()

        def cancel(job: TranslationJob) -> None:
            stopped.set()
            job.put(Cancelled())

        job = TranslationJob(request, cancel=cancel)
        threading.Thread(target=self._write, args=(job, stopped), daemon=True).start()
        return job

    def close(self) -> None:
        """Threads end with the process."""

    def _write(self, job: TranslationJob, stopped: threading.Event) -> None:
        segment = Segment(0, job.request.text)
        job.put(Started("echo", "test", "en", "fr", 0.9, 1, (segment,)))
        n_words = 0
        while not stopped.wait(1 / TOKENS_PER_S):
            n_words += 1
            job.put(TextDelta(0, "word\n" if n_words % WORDS_PER_LINE == 0 else "word "))


def main(behaviour: str = "echo") -> int:
    """Run until the user quits."""
    application = open_application(os.environ, flags={"target_lang": "fr"})
    if behaviour == "slow":
        return run(application, SlowService())
    if behaviour == "fragile":
        return run_on(fragile_model(), application)
    backend = ScriptedBackend(BEHAVIOURS[behaviour], context_length=100_000)
    engine = ThreadedEngine(lambda on_progress: backend, name="echo")
    model = OpenModel(application.catalog.get("echo"), engine, fingerprint="echo")
    return run_on(model, application)


def fragile_model() -> OpenModel:
    """Return a model in a process of its own, which does what the text tells it."""
    order = Order("tests.engine_children:open_fragile", b"{}")
    opener = open_hosted(lambda ask_gpus: FixedOrder(order), name="fragile", patience=Patience(restart_s=0.01))
    engine = ThreadedEngine(opener, name="fragile")
    return OpenModel(a_spec(id="fragile", kind="test"), engine, fingerprint="f" * 64, quantization="none")


def run_on(model: OpenModel, application: Application) -> int:
    """Run with one model and no cache."""
    with LocalService(lambda ref: model, cache_path=None) as service:
        return run(application, service)


def run(application: Application, service: Service) -> int:
    return run_tui(
        service,
        application,
        environ=os.environ,
        languages=LANGUAGES,
        models=[ModelChoice("echo", "Echo", "test")],
        current="echo",
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
