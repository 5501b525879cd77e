"""What unloading gives back: `python -m tests.bench.bench_unload --file MODEL.gguf [--json]`.

Resident memory of the server and everything it started: before a model is loaded, while it is, and after nobody has
used it for a second. Fails when more stays than a tenth of what the model took.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hymt_local.application import open_application
from hymt_local.jobs import LocalService
from tests.bench.bench_stream_cancel import TIMEOUT_S, model_of_file
from tests.bench.load_server import MIB, resident_bytes
from tests.server.serving import Served, serving

MOST_LEFT = 0.1
IDLE_S = 1
POLL_S = 0.05


def measure(served: Served) -> dict[str, float]:
    """Load the model by a translation, and wait until it has gone."""
    before = resident_bytes(os.getpid())
    body = {"text": "Where is the station?", "source_lang": "en", "target_lang": "fr", "stream": True}
    asked_at = time.perf_counter()
    assert b"event: loaded" in served.ask("POST", "/v1/translate", body).body
    translated_at = time.perf_counter()
    loaded = resident_bytes(os.getpid())
    while served.on_loop(lambda: served.context.residency.names()):
        if time.perf_counter() > translated_at + TIMEOUT_S:
            raise TimeoutError("the model stays")
        time.sleep(POLL_S)
    gone_s = time.perf_counter() - translated_at
    after = resident_bytes(os.getpid())
    return {
        "before_mib": before / MIB,
        "loaded_mib": loaded / MIB,
        "unloaded_mib": after / MIB,
        "left": (after - before) / (loaded - before),
        "translated_s": translated_at - asked_at,
        "unloaded_after_s": gone_s,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; 0 when the memory came back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, required=True, help="a model file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as home:
        environ = {"HYMT_HOME": home}
        app = open_application(environ, flags={"model": "demo"})
        service = LocalService(lambda ref: model_of_file(app, options.file), cache_path=None)
        with serving(service, settings={"idle_unload_s": IDLE_S}, model="demo", environ=environ) as served:
            served.ask("GET", "/health")
            result = measure(served)
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:18} {value:.3f}")
    return 0 if result["left"] <= MOST_LEFT else 1


if __name__ == "__main__":
    sys.exit(main())
