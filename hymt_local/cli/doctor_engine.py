"""What `hymt doctor` finds of the engine: is it installed, can this processor run it, does it see a GPU."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from hymt_local.cli.check import Check, guarded_check
from hymt_local.errors import EngineUnavailableError

ENGINE_REQUIREMENT = "llama-cpp-python==0.3.36"
"""As in pyproject.toml, which a broken installation may not be able to tell."""
TRIAL_S = 60.0
TRIAL = """
import sys
from hymt_local.engine.llama import load_library
from hymt_local.errors import EngineUnavailableError
try:
    api = load_library().api
except EngineUnavailableError as error:
    sys.exit(error.message)
print(api.llama_print_system_info().decode())
"""
ILLEGAL_INSTRUCTION = frozenset({-4, 132, 0xC000001D, 0xC000001D - (1 << 32)})
"""How a process ends that meets an instruction its processor lacks: Linux and macOS, behind a shell, Windows."""
FLAGS: Mapping[str, tuple[str, ...]] = {
    "SSE3": ("pni", "sse3"), "SSSE3": ("ssse3",), "AVX": ("avx",), "AVX2": ("avx2",), "FMA": ("fma",),
    "F16C": ("f16c",), "BMI2": ("bmi2",), "AVX_VNNI": ("avx_vnni",), "AVX512": ("avx512f",),
    "AVX512_VBMI": ("avx512vbmi", "avx512_vbmi"), "AVX512_VNNI": ("avx512_vnni",), "AVX512_BF16": ("avx512_bf16",),
    "AMX_INT8": ("amx_int8",), "NEON": ("asimd", "neon"), "DOTPROD": ("asimddp",), "MATMUL_INT8": ("i8mm",),
    "SVE": ("sve",),
}  # fmt: skip
"""llama.cpp's name of a feature it was built for -> the names of Linux for it."""
WORTHWHILE = ("AVX2", "FMA", "F16C")
"""Without them a build is several times slower than the processor allows."""
REBUILD = f"pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python {ENGINE_REQUIREMENT}"
_CPU_INFO = Path("/proc/cpuinfo")
_NVIDIA_SIGNS = (Path("/proc/driver/nvidia/version"),)


def engine_checks() -> Iterator[Check]:
    """Yield what is found of the engine; nothing is loaded into this process before a child has survived it."""
    package = guarded_check("engine", check_package)
    if package.status == "fail":
        yield package
        return
    processor = guarded_check("processor", check_processor)
    yield processor
    if processor.status != "fail":
        yield guarded_check("engine", check_engine)
        yield guarded_check("gpu", check_gpu)


def check_engine() -> Check:
    """Load the engine into this process.

    Raises:
        EngineUnavailableError: it cannot be loaded.
    """
    from importlib.metadata import version

    from hymt_local.engine.llama import load_library

    try:
        has_gpu = load_library().api.llama_supports_gpu_offload()
    except EngineUnavailableError as error:
        fix = f"pip install --force-reinstall --no-cache-dir {ENGINE_REQUIREMENT}"
        raise EngineUnavailableError(error.message, hint=fix) from error
    return Check(
        "engine", "ok", f"llama-cpp-python {version('llama-cpp-python')}, {'can use a GPU' if has_gpu else 'CPU only'}"
    )


def check_package() -> Check:
    """Look for the package, without importing it.

    Raises:
        EngineUnavailableError: it is not installed; the hint is how to install it on this machine.
    """
    if importlib.util.find_spec("llama_cpp") is not None:
        return Check("engine", "ok", "installed")
    fix = f"pip install {ENGINE_REQUIREMENT}"
    if compiler() is None:
        fix += " (needs a C++ compiler; the README names prebuilt wheels)"
    raise EngineUnavailableError("llama-cpp-python is not installed", hint=fix)


def compiler() -> str | None:
    """Return the C++ compiler that a build would use."""
    return next((name for name in ("c++", "g++", "clang++", "cl") if shutil.which(name)), None)


def check_compiler() -> Check:
    """Say whether the engine could be built here; a missing compiler matters only then."""
    name = compiler()
    return Check("compiler", "ok", name or "none: needed only to build llama-cpp-python")


def check_processor() -> Check:
    """Let a child process load the engine: a build for another processor would end this one without a word.

    Raises:
        EngineUnavailableError: the child was killed, or could not load it.
    """
    done = subprocess.run(
        [sys.executable, "-c", TRIAL],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=TRIAL_S,
        check=False,
    )
    return judge_processor(done.returncode, done.stdout, done.stderr, flags=processor_flags())


def judge_processor(status: int, out: str, err: str, *, flags: frozenset[str]) -> Check:
    """Judge how the trial ended.

    Args:
        status: Exit status of the child.
        out: Its output: llama.cpp's list of features.
        err: What it said besides.
        flags: What the system says of the processor; empty when it says nothing.

    Raises:
        EngineUnavailableError: the engine cannot run here.
    """
    if status in ILLEGAL_INSTRUCTION:
        raise EngineUnavailableError(
            "llama-cpp-python was built for a processor with more instructions than this one", hint=REBUILD
        )
    if status:
        reason = (err.strip().splitlines() or [f"it ended with status {status}"])[-1]
        raise EngineUnavailableError(f"llama-cpp-python does not start: {reason}", hint=REBUILD)
    built = built_features(out)
    lacking = [name for name in built if flags and name in FLAGS and not flags.intersection(FLAGS[name])]
    if lacking:
        raise EngineUnavailableError(
            f"llama-cpp-python was built for {', '.join(lacking)}, which this processor lacks", hint=REBUILD
        )
    unused = [name for name in WORTHWHILE if flags.intersection(FLAGS[name]) and name not in built]
    named = ", ".join(name for name in built if name in FLAGS) or "no special instructions"
    if unused:
        return Check("processor", "warn", f"the engine is built without {', '.join(unused)}", REBUILD)
    return Check("processor", "ok", f"{platform.machine()}; the engine uses {named}")


def built_features(system_info: str) -> tuple[str, ...]:
    """Return the features that llama.cpp's own description calls present."""
    return tuple(re.findall(r"(\w+) = 1", system_info))


def processor_flags(cpu_info: Path = _CPU_INFO) -> frozenset[str]:
    """Return the flags of the first processor; empty where the system has no such file."""
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    match = re.search(r"(?m)^(?:flags|Features)\s*:(.*)$", text)
    return frozenset(match.group(1).split()) if match else frozenset()


def check_gpu() -> Check:
    """List the GPUs that llama.cpp sees, and those that it could see with another build."""
    from hymt_local.engine.fit import gibibytes
    from hymt_local.engine.machine import query_gpus_apart
    from hymt_local.engine.nvidia import query_nvidia

    gpus = query_gpus_apart()
    if gpus:
        named = (f"{gpu.name}, {gibibytes(gpu.free_bytes)} of {gibibytes(gpu.total_bytes)} free" for gpu in gpus)
        return Check("gpu", "ok", "; ".join(named))
    idle = query_nvidia()
    fix = f'CMAKE_ARGS="-DGGML_CUDA=on" {REBUILD} (needs the CUDA toolkit; the README names prebuilt wheels)'
    if idle:
        names = ", ".join(f"{gpu.name} with {gibibytes(gpu.free_bytes)} free" for gpu in idle)
        return Check("gpu", "warn", f"{names}: the engine is built without CUDA and cannot use it", fix)
    if has_nvidia():
        return Check(
            "gpu", "warn", "there is an NVIDIA GPU, and the engine is built without CUDA or finds no driver", fix
        )
    return Check("gpu", "ok", "none that this build can use")


def has_nvidia() -> bool:
    """Tell whether the system has NVIDIA's driver."""
    return bool(shutil.which("nvidia-smi")) or any(os.path.lexists(sign) for sign in _NVIDIA_SIGNS)
