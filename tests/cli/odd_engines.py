"""`python -m tests.cli.odd_engines KIND ARGUMENTS`: the command line with an engine that does what KIND says.

- `hang` answers nothing until it is cancelled, `deaf` not even then; both write `generating` to standard error once the
  engine is at work;
- `loading` reports how its loading goes, and answers in two pieces;
- `corrected` first answers with broken UTF-8, then properly.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

from hymt_local.application import Application
from hymt_local.cli.app import run
from hymt_local.engine.base import GenerationEvent, GenerationRequest
from hymt_local.engine.scripted import Hang, Reply, ScriptedBackend, open_scripted


class DeafBackend(ScriptedBackend):
    """Never notices that it is cancelled, like a kernel that hangs."""

    def play(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """Answer nothing for ever."""
        announce()
        threading.Event().wait()
        yield from ()


def announce() -> None:
    print("generating", file=sys.stderr, flush=True)


def hanging() -> ScriptedBackend:
    hang = Hang()

    def watch() -> None:
        hang.started.wait()
        announce()

    threading.Thread(target=watch, daemon=True).start()
    return ScriptedBackend(hang)


BACKENDS: dict[str, Callable[[], ScriptedBackend]] = {
    "hang": hanging,
    "deaf": DeafBackend,
    "loading": lambda: ScriptedBackend(Reply(b"Bonjour", chunk=4)),
    "corrected": lambda: ScriptedBackend(Reply(b"Bonj\xff"), Reply(b"Bonjour")),
}


def main() -> None:
    kind, *arguments = sys.argv[1:]
    backend = BACKENDS[kind]()
    opener = open_scripted(backend, progress=(0.25, 0.5, 1.0) if kind == "loading" else ())
    Application._opener = lambda *_: opener  # type: ignore[method-assign]
    status = run(["-m", "echo", "-f", "en", "-t", "fr", *arguments])
    if kind in {"hang", "deaf"}:
        print(f"closed {backend.calls.n_closed}", file=sys.stderr, flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
