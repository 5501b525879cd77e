"""`python -m tests.cli.slow_engines KIND ARGUMENTS`: the command line with an engine that keeps it waiting.

It writes `generating` to standard error once the engine is at work.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

from hymt_local.application import Application
from hymt_local.cli.app import run
from hymt_local.engine.base import GenerationEvent, GenerationRequest
from hymt_local.engine.scripted import Hang, ScriptedBackend, open_scripted


class DeafBackend(ScriptedBackend):
    """Never notices that it is cancelled, like a kernel that hangs."""

    def generate(self, request: GenerationRequest, is_cancelled: Callable[[], bool]) -> Iterator[GenerationEvent]:
        """Answer nothing for ever."""
        announce()
        threading.Event().wait()
        yield from ()


def announce() -> None:
    print("generating", file=sys.stderr, flush=True)


def slow_backend(kind: str) -> ScriptedBackend:
    if kind == "deaf":
        return DeafBackend()
    hang = Hang()

    def watch() -> None:
        hang.started.wait()
        announce()

    threading.Thread(target=watch, daemon=True).start()
    return ScriptedBackend(hang)


def main() -> None:
    kind, *arguments = sys.argv[1:]
    backend = slow_backend(kind)
    Application._opener = lambda *_: open_scripted(backend)  # type: ignore[method-assign]
    status = run(["-m", "echo", "-f", "en", "-t", "fr", *arguments])
    print(f"closed {backend.calls.n_closed}", file=sys.stderr, flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
