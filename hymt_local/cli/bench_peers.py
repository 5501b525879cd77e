"""The same work by llama.cpp's own programs, where they are on the PATH: `llama-bench` and `llama-server`."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 900.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Peer:
    """Speed of another program with the same file; 0.0 for what it was not asked."""

    name: str
    prompt_tokens_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    batch_tokens_per_s: float = 0.0
    """Of as many generations together as our largest batch, their prompts included."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class PeerWork:
    """What both sides do."""

    path: Path
    prompt_tokens: int
    output_tokens: int
    runs: int
    threads: int
    gpu_layers: int
    n_together: int
    batch_prompt: tuple[int, ...]
    """Token ids."""


def measure_peers(work: PeerWork) -> tuple[Peer, ...]:
    """Run what there is; a program that fails is reported with its reason. Loopback is all the network it uses."""
    peers = []
    for name, measure in (("llama-bench", _run_bench), ("llama-server", _run_server)):
        program = shutil.which(name)
        if program is None:
            continue
        try:
            peers.append(measure(program, work))
        except subprocess.CalledProcessError as error:
            peers.append(Peer(name, error=f"it ended with status {error.returncode}"))
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            peers.append(Peer(name, error=f"{type(error).__name__}: {error}".splitlines()[0][:120]))
    return tuple(peers)


def _run_bench(program: str, work: PeerWork) -> Peer:
    arguments = [
        program, "-m", str(work.path), "-p", str(work.prompt_tokens), "-n", str(work.output_tokens),
        "-r", str(work.runs), "-t", str(work.threads), "-ngl", str(work.gpu_layers), "-fa", "1", "-o", "json",
    ]  # fmt: skip
    done = subprocess.run(arguments, capture_output=True, timeout=PATIENCE_S, check=True)
    rates = {bool(row["n_prompt"]): float(row["avg_ts"]) for row in json.loads(done.stdout)}
    return Peer("llama-bench", prompt_tokens_per_s=round(rates[True], 2), output_tokens_per_s=round(rates[False], 2))


def _run_server(program: str, work: PeerWork) -> Peer:
    n_tokens = (len(work.batch_prompt) + work.output_tokens + 8) * work.n_together
    arguments = (
        "-np", str(work.n_together), "-c", str(max(4096, n_tokens)), "-t", str(work.threads),
        "-ngl", str(work.gpu_layers),
    )  # fmt: skip
    with (
        running_server(program, work.path, arguments=arguments) as address,
        ThreadPoolExecutor(work.n_together) as pool,
    ):
        _complete(address, work, 0)
        started = time.perf_counter()
        n_tokens = sum(pool.map(lambda index: _complete(address, work, 1 + index), range(work.n_together)))
        rate = n_tokens / (time.perf_counter() - started)
    return Peer("llama-server", batch_tokens_per_s=round(rate, 2))


@contextlib.contextmanager
def running_server(program: str, path: Path, *, arguments: Sequence[str]) -> Iterator[str]:
    """Run llama-server on loopback; the value is its address, given when it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "-m", str(path), "--host", "127.0.0.1", "--port", str(port), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until_ready(process, address)
        yield address
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if process.poll() is not None:
            raise OSError(f"it ended with status {process.returncode}")
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(f"{address}/health"):
            return
        if time.monotonic() > deadline:
            raise OSError("it did not get ready")
        time.sleep(_POLL_S)


def _complete(address: str, work: PeerWork, index: int) -> int:
    """Return the number of tokens of one answer; each prompt begins otherwise."""
    turn = index % len(work.batch_prompt)
    prompt = (*work.batch_prompt[turn:], *work.batch_prompt[:turn])
    return complete(address, prompt, n_tokens=work.output_tokens, keeps_prompt=False)


def complete(address: str, prompt: Sequence[int], *, n_tokens: int, keeps_prompt: bool = True) -> int:
    """Let a llama-server answer a prompt; return how many tokens it wrote, at most `n_tokens`."""
    body: dict[str, Any] = {
        "prompt": list(prompt),
        "n_predict": n_tokens,
        "temperature": 0,
        "cache_prompt": keeps_prompt,
    }
    request = urllib.request.Request(
        f"{address}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return int(json.load(response)["tokens_predicted"])
