"""Runs a function in a process of its own, because a strange file can end the process that llama.cpp reads it in.

Run as `python -m hymt_convert.isolated`, this module is that process: it reads a job from stdin, and writes progress
and the result to stdout. Both ends are this program, so that the values may be pickled.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import IO, Any, ParamSpec, TypeVar

from hymt_local.errors import EngineError, HymtError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_PROGRESS, _RESULT, _ERROR = "progress", "result", "error"
_LAST_BYTES = 4096


def run_isolated(function: Callable[_P, _T], /, *arguments: _P.args, **options: _P.kwargs) -> _T:
    """Call a function of a module in a child process and return what it returns.

    An option `on_step` is called in this process. Everything else must be picklable.

    Raises:
        HymtError: what the function raised.
        EngineError: the process ended in another way.
    """
    on_step = options.pop("on_step", None)
    job = (function.__module__, function.__qualname__, arguments, options, on_step is not None)
    # -P: a module lying in the current folder, which may be the checkpoint's, is not imported.
    command = [sys.executable, "-P", "-m", __name__]
    with tempfile.TemporaryFile() as order, tempfile.TemporaryFile() as log:
        pickle.dump(job, order)
        order.seek(0)
        with subprocess.Popen(command, stdin=order, stdout=subprocess.PIPE, stderr=log) as child:
            assert child.stdout is not None
            try:
                message = _last_message(child.stdout, on_step)
            except BaseException:
                child.kill()
                raise
        if message is None:
            raise EngineError(
                f"llama.cpp ended while it worked on the file: {_last_words(log, child.returncode)}",
                hint="The file is damaged or of another kind, or memory is short.",
            )
    kind, value = message
    if kind == _ERROR:
        raise value
    result: _T = value
    return result


def _last_message(stream: IO[bytes], on_step: Any) -> tuple[str, Any] | None:
    while True:
        try:
            kind, value = pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            return None
        if kind != _PROGRESS:
            return kind, value
        on_step(*value)


def _last_words(log: IO[bytes], status: int) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _LAST_BYTES))
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    ending = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    return f"{lines[-1]} ({ending})" if lines else ending


def _child() -> None:
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    with os.fdopen(os.dup(1), "wb") as stream:
        os.dup2(2, 1)  # what C prints does not get between the messages

        def send(kind: str, value: object) -> None:
            pickle.dump((kind, value), stream)
            stream.flush()

        module, name, arguments, options, wants_steps = pickle.load(sys.stdin.buffer)
        if wants_steps:
            options["on_step"] = lambda *step: send(_PROGRESS, step)
        try:
            result = getattr(importlib.import_module(module), name)(*arguments, **options)
        except HymtError as error:
            send(_ERROR, error)
        else:
            send(_RESULT, result)


if __name__ == "__main__":
    _child()
