"""llama.cpp as a backend: the only module here that imports llama_cpp, on its ctypes layer, with its own token loop.

Nearly every misuse of the C API kills the process instead of returning an error, so each call's preconditions are
checked here first: open handles, ids in range, batches within bounds, one thread, a file that has not shrunk.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import importlib.metadata
import json
import logging
import os
import platform
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hymt_local.engine.base import Backend, FinishReason, GenerationDone, GenerationRequest, ModelInfo, Outcome
from hymt_local.engine.batcher import Batcher
from hymt_local.engine.context import check_fits
from hymt_local.engine.counters import DraftStats, EngineCounters, PrefixStats
from hymt_local.engine.fingerprint import file_fingerprint
from hymt_local.engine.gguf_file import GgufHeader, quantization_of, read_header
from hymt_local.engine.gguf_support import check_supported
from hymt_local.engine.llama_context import ContextShape, LlamaContext, native_function
from hymt_local.engine.llama_vocabulary import Vocabulary
from hymt_local.engine.machine import query_gpus, usable_cores
from hymt_local.engine.options import (
    FLOAT_KV_TYPES,
    PROMPT_SLICE,
    LlamaOptions,
    default_threads,
    n_cells,
    n_outputs,
    n_sequences,
)
from hymt_local.engine.page_cache import read_ahead
from hymt_local.engine.prefix_store import PrefixStore
from hymt_local.engine.sampling import Chooser, Greedy, Sampled, check_sampling
from hymt_local.errors import (
    ConfigError,
    DecodeError,
    EngineError,
    EngineLoadError,
    EngineMemoryError,
    EngineUnavailableError,
    ModelFileError,
)
from hymt_local.events import SamplingParams, TokenUsage

SPIN_COUNT = "2000"
"""Of libgomp's barriers: with its default, decoding collapses as soon as other programs want the cores."""
LOG_TAIL_LINES = 50
READ_AHEAD_SHARE = 0.9
"""Of loading, when the file is not in memory yet."""
NO_MEMORY_WORDS = ("failed to allocate", "unable to allocate", "out of memory")
"""In llama.cpp's log, when memory was the reason of a failure."""

_WARNING_LEVELS = (3, 4)
"""Of ggml's log: warnings and errors."""

_logger = logging.getLogger(__name__)
_library_lock = threading.Lock()


def open_llama_backend(
    path: Path, options: LlamaOptions | None = None
) -> Callable[[Callable[[float], bool]], LlamaBackend]:
    """Return an opener of the GGUF file at `path`.

    The opener raises ModelError when the file is refused before llama.cpp sees it, EngineUnavailableError when
    llama-cpp-python is missing or does not load, and EngineLoadError when llama.cpp refuses or memory is short.
    """
    return functools.partial(_open, path, options or LlamaOptions())


def _open(path: Path, options: LlamaOptions, on_progress: Callable[[float], bool]) -> LlamaBackend:
    header = read_header(path)
    check_supported(header)
    return LlamaBackend(load_library(), header, options=options, on_progress=on_progress)


@dataclass(frozen=True)
class Library:
    """The loaded C library; one per process, because its log callback is global."""

    api: Any
    """The module `llama_cpp.llama_cpp`."""
    log: LogSink
    callbacks: tuple[object, ...]
    """C holds pointers to them."""

    def why(self) -> str:
        """Return what llama.cpp gave as the reason of its last failure to load."""
        errors = [line for line in self.log.tail if "error" in line.casefold()]
        line = (errors or list(self.log.tail) or ["no reason given"])[0]
        return line.split(": ", 1)[-1]  # the first part is a C function


def load_library() -> Library:
    """Import llama_cpp once per process, with the environment it needs. Safe from any thread.

    Raises:
        EngineUnavailableError: not installed, or not loadable on this machine.
    """
    with _library_lock:
        return _import_library()


@functools.cache
def _import_library() -> Library:
    prepare_environment()
    try:
        from llama_cpp import llama_cpp as api
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineUnavailableError(f"llama-cpp-python cannot be loaded: {error}", hint="run `hymt doctor`") from error
    sink = LogSink()
    forward = api.llama_log_callback(sink)
    silence = ctypes.cast(native_function("abs"), api.llama_log_callback)
    api.llama_log_set(forward, None)
    atexit.register(api.llama_log_set, silence, None)  # C may still log when Python is gone
    api.llama_backend_init()
    return Library(api, sink, (forward, silence))


def prepare_environment() -> None:
    """Set what libgomp and ggml read when they are loaded; what the user has set stays."""
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # else an abort starts gdb
    is_set = any(name.startswith(("OMP_", "GOMP_", "KMP_")) for name in os.environ)
    if sys.platform == "linux" and not is_set:
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT


class LogSink:
    """Receives llama.cpp's log: lines go to `logging` at DEBUG, the last ones are kept for error messages."""

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=LOG_TAIL_LINES)
        self.warnings: deque[str] = deque(maxlen=LOG_TAIL_LINES)
        self._unfinished = ""

    def clear(self) -> None:
        """Forget all lines."""
        self.tail.clear()
        self.warnings.clear()

    def __call__(self, level: int, text: bytes | None, user_data: object) -> None:
        """Take a piece of log; runs on whichever thread called C."""
        *lines, self._unfinished = (self._unfinished + (text or b"").decode("utf-8", errors="replace")).split("\n")
        for line in lines:
            self.tail.append(line)
            if level in _WARNING_LEVELS:
                self.warnings.append(line)
            with contextlib.suppress(Exception):  # no exception can leave a function that C called
                _logger.debug("%s", line)


class LlamaBackend(Backend):
    """One model in one context, with a batcher to drive it.

    Args:
        library: The C library.
        header: Of the model's file, checked by `check_supported`.
        options: How to load it.
        on_progress: Called with 0.0 to 1.0; loading is given up when it returns False.
    """

    def __init__(
        self,
        library: Library,
        header: GgufHeader,
        *,
        options: LlamaOptions,
        on_progress: Callable[[float], bool],
    ) -> None:
        _check_kv_type(options)
        self._closing = threading.Lock()
        self._owner = (os.getpid(), threading.get_ident())
        self._library = library
        self._path = header.path
        self._size_bytes = header.size_bytes
        self._uses_mmap = options.maps_file
        self._is_deterministic = options.deterministic
        self._file = header.path.open("rb")
        self._model: Any = None
        self._context: LlamaContext | None = None
        self._batcher: Batcher | None = None
        self._prefixes: PrefixStore | None = None
        try:
            self._model = _load_model(library, header, options=options, on_progress=on_progress)
            self._vocabulary = Vocabulary(library.api, self._model, header=header)
            shape = _context_shape(header, options)
            self._context = LlamaContext(library.api, self._model, shape=shape, n_vocab=self._vocabulary.n_tokens)
            self._info = self._describe(options, header=header)
            if options.prefix_bytes and not options.deterministic:
                self._prefixes = _open_prefixes(library, header, options=options, info=self._info)
            self._batcher = self._make_batcher(self._context)
        except BaseException:
            self.close()
            raise

    @property
    def info(self) -> ModelInfo:
        """Facts about the loaded model."""
        return self._info

    @property
    def counters(self) -> EngineCounters:
        """What drafts and kept prompt beginnings did."""
        drafts = self._batcher.meter.stats if self._batcher else DraftStats()
        return EngineCounters(drafts, self._prefixes.stats if self._prefixes else PrefixStats())

    @property
    def tokenizes_anywhere(self) -> bool:
        """Yes: the vocabulary never changes, and texts are cut so that any thread's stack is deep enough."""
        return True

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the ids of plain text. From any thread of the process."""
        with self._closing:
            if self._batcher is None:
                raise EngineError(f"the model {self._path.name} was closed", hint="open it again")
            return self._vocabulary.tokenize(text)

    def can_open(self, request: GenerationRequest) -> bool:
        """Return whether a slot and enough cells are free."""
        return self._check_usable().can_open(request)

    def open(self, request: GenerationRequest) -> int:
        """Let a generation join at the next step; with `max_tokens` 0 its prompt is read and nothing generated."""
        batcher = self._check_usable()
        self._check_request(request)
        return batcher.open(request)

    def step(self) -> list[Outcome]:
        """Decode once, at most `PROMPT_SLICE` tokens."""
        return self._check_usable().step()

    def drop(self, ticket: int) -> GenerationDone:
        """End an open generation."""
        if self._batcher is None:
            return GenerationDone(FinishReason.CANCELLED, TokenUsage())
        return self._batcher.drop(ticket)

    def interrupt(self) -> None:
        """Abort the decode call under way; what it has computed by then is kept. From any thread."""
        context = self._context
        if context is not None:
            context.interrupt()

    def close(self) -> None:
        """Free context and model; closing twice is fine."""
        if self._batcher is not None:
            self._batcher.close()
        if self._prefixes is not None:
            self._prefixes.close()
        with self._closing:
            if self._context is not None:
                self._context.close()
            if self._model:
                self._library.api.llama_model_free(self._model)
            self._batcher = self._context = self._model = None
        self._file.close()

    def _check_usable(self) -> Batcher:
        if self._batcher is None:
            raise EngineError(f"the model {self._path.name} was closed", hint="open it again")
        if self._owner != (os.getpid(), threading.get_ident()):
            raise EngineError(f"the model {self._path.name} was opened in another thread or process")
        if self._uses_mmap and os.fstat(self._file.fileno()).st_size < self._size_bytes:
            raise ModelFileError(f"{self._path} was cut short while in use", hint="restore the file")
        return self._batcher

    def _check_request(self, request: GenerationRequest) -> None:
        check_fits(request, context_length=self._info.context_length)
        check_sampling(request.sampling)
        if not request.prompt:
            raise DecodeError("an empty prompt")
        tokens = (*request.prompt, *request.answered)
        if min(tokens) < 0 or max(tokens) >= self._info.vocab_size:
            raise DecodeError(f"the prompt has an id outside of 0 to {self._info.vocab_size - 1}")

    def _make_batcher(self, context: LlamaContext) -> Batcher:
        return Batcher(
            context,
            slots=self._info.slots,
            make_chooser=self._make_chooser,
            piece=self._vocabulary.piece,
            stop_ids=self._vocabulary.stop_ids,
            prefixes=_ContextPrefixes(context, self._prefixes) if self._prefixes else None,
            is_exact=self._is_deterministic,
        )

    def _make_chooser(self, sampling: SamplingParams) -> Chooser:
        if sampling.temperature == 0:
            return Greedy(sampling.repetition_penalty)
        handle = self._context.handle if self._context else None
        return Sampled(self._library.api, handle, sampling=sampling, n_vocab=self._info.vocab_size)

    def _describe(self, options: LlamaOptions, *, header: GgufHeader) -> ModelInfo:
        api = self._library.api
        n_gpu_layers = _effective_gpu_layers(api, header, options)
        return ModelInfo(
            name=options.name or str(header.metadata.get("general.name", header.path.stem)),
            architecture=header.architecture,
            vocab_size=self._vocabulary.n_tokens,
            context_length=_context_length(header, options),
            quantization=quantization_of(header),
            file_sha256=file_fingerprint(header),
            control_tokens=self._vocabulary.control_tokens,
            stop_ids=self._vocabulary.stop_ids,
            n_gpu_layers=n_gpu_layers,
            n_layers=_layers(header),
            gpu=next((gpu.name for gpu in query_gpus()), "") if n_gpu_layers else "",
            is_reduced=options.is_reduced,
            size_bytes=int(api.llama_model_size(self._model)),
            slots=options.n_slots,
            is_deterministic=options.deterministic,
            threads=_context_shape(header, options).threads,
            kv_type=options.kv_type,
            build=_build(api),
            process_id=os.getpid(),
        )


class _ContextPrefixes:
    """Brings states from a store into a context and back."""

    def __init__(self, context: LlamaContext, store: PrefixStore) -> None:
        self._context = context
        self._store = store

    def restore(self, slot: int, tokens: list[int]) -> bool:
        if not self._store.is_worth(len(tokens)):
            return False
        started = time.perf_counter()
        state = self._store.get(tokens)
        if state is None:
            return False
        if not self._context.restore(slot, state, n_tokens=len(tokens)):
            self._store.forget(tokens)
            return False
        self._store.note_restored(len(tokens), time.perf_counter() - started)
        return True

    def save(self, slot: int, tokens: list[int]) -> None:
        if self._store.is_worth(len(tokens)) and not self._store.has(tokens):
            self._store.put(tokens, self._context.state(slot, len(tokens)))

    def note_computed(self, n_tokens: int, seconds: float) -> None:
        self._store.note_computed(n_tokens, seconds)


def _open_prefixes(library: Library, header: GgufHeader, *, options: LlamaOptions, info: ModelInfo) -> PrefixStore:
    """Return a store whose fingerprint names all that a state depends on; rope and LoRA are never overridden here."""
    api = library.api
    depends_on = {
        "file": info.file_sha256,
        "llama_cpp": importlib.metadata.version("llama-cpp-python"),
        "state_version": int(getattr(api, "LLAMA_STATE_SEQ_VERSION", 0)),
        "architecture": header.architecture,
        "layers": str(header.of_architecture("block_count")),
        "kv": options.kv_type,
        "flash_attention": options.flash_attention,
        "unified": True,
        "repacked": options.repacks,
        "gpu_layers": info.n_gpu_layers,
        "machine": platform.machine(),
    }
    fingerprint = json.dumps(depends_on, sort_keys=True)
    return PrefixStore(options.prefix_dir, fingerprint=fingerprint, disk_bytes=options.prefix_bytes)


def _build(api: Any) -> str:
    """Name the package and what llama.cpp says of itself: `CPU : AVX2 = 1 | FMA = 1`."""
    parts = str((api.llama_print_system_info() or b"").decode(errors="replace")).split("|")
    features = [part.partition("=")[0].split(":")[-1].strip() for part in parts if part.strip().endswith("= 1")]
    return f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')} ({' '.join(features)})"


class _Progress:
    """Reports the progress of loading from C, which no exception can leave.

    Args:
        on_progress: Called with 0.0 to 1.0; False gives up.
    """

    def __init__(self, on_progress: Callable[[float], bool]) -> None:
        self.is_given_up = False
        self.error: Exception | None = None
        self._on_progress = on_progress
        self._start = 0.0

    def __call__(self, fraction: float, user_data: object) -> bool:
        try:
            self.is_given_up = not self._on_progress(self._start + (1 - self._start) * fraction)
        except Exception as error:  # raised again on the other side of C
            self.error = error
        return not self.is_given_up and self.error is None

    def report_reading(self, fraction: float) -> bool:
        """Report how much of the file is in memory."""
        self._start = READ_AHEAD_SHARE * fraction
        return self._on_progress(self._start)


def _load_model(
    library: Library, header: GgufHeader, *, options: LlamaOptions, on_progress: Callable[[float], bool]
) -> Any:
    api = library.api
    progress = _Progress(on_progress)
    if options.maps_file and not read_ahead(header.path, progress.report_reading):
        raise EngineLoadError("loading was given up")
    params = api.llama_model_default_params()
    params.n_gpu_layers = options.gpu_layers
    params.load_mode = _load_mode(api, options)
    params.use_extra_bufts = options.repacks
    params.load_mtp = False
    params.progress_callback = callback = api.llama_progress_callback(progress)
    no_device = (ctypes.c_void_p * 1)(None)
    if options.gpu_layers == 0:
        params.devices = ctypes.addressof(no_device)
    shares = _shares(api, options)
    if shares is not None:
        params.tensor_split = shares
    library.log.clear()
    model = api.llama_model_load_from_file(os.fsencode(header.path), params)
    del callback
    if progress.error is not None:
        api.llama_model_free(model)
        raise progress.error
    if not model:
        raise _load_error(library, header, is_given_up=progress.is_given_up)
    if options.use_mlock and any("mlock" in line for line in library.log.warnings):
        _logger.warning("the weights are not locked in memory: the system does not permit it (see `ulimit -l`)")
    return model


def _shares(api: Any, options: LlamaOptions) -> Any:
    """Return the shares of the GPUs as C wants them: one for each that there could be; None for its own choice."""
    if not options.tensor_split:
        return None
    n_devices = max(1, api.llama_max_devices())  # llama.cpp reads as many, whatever there are
    return (ctypes.c_float * n_devices)(*options.tensor_split[:n_devices])


def _load_error(library: Library, header: GgufHeader, *, is_given_up: bool) -> EngineLoadError:
    if is_given_up:
        return EngineLoadError("loading was given up")
    what = f"llama.cpp cannot load {header.path.name}: {library.why()}"
    if any(words in line.casefold() for line in library.log.tail for words in NO_MEMORY_WORDS):
        return EngineMemoryError(what, hint="close other programs, or set a smaller context_length")
    return EngineLoadError(what, hint="run `hymt models verify`")


def _load_mode(api: Any, options: LlamaOptions) -> int:
    if options.maps_file:
        return int(api.LLAMA_LOAD_MODE_MMAP_MLOCK if options.use_mlock else api.LLAMA_LOAD_MODE_MMAP)
    return int(api.LLAMA_LOAD_MODE_MLOCK if options.use_mlock else api.LLAMA_LOAD_MODE_NONE)


def _context_length(header: GgufHeader, options: LlamaOptions) -> int:
    trained_length = int(str(header.of_architecture("context_length")))
    return max(1, min(options.context_length, trained_length))


def _context_shape(header: GgufHeader, options: LlamaOptions) -> ContextShape:
    slots = options.n_slots
    cells = n_cells(_context_length(header, options), slots)
    batch = min(PROMPT_SLICE, cells)
    return ContextShape(
        cells=cells,
        sequences=n_sequences(slots),
        outputs=n_outputs(slots, deterministic=options.deterministic),
        batch=batch,
        micro_batch=max(1, min(options.micro_batch, batch)),
        threads=options.threads or default_threads(header.size_bytes, usable_cores()),
        offload=options.gpu_layers != 0,
        kv_type=options.kv_type,
        kv_offload=options.kv_offload,
        flash_attention=options.flash_attention,
    )


def _check_kv_type(options: LlamaOptions) -> None:
    if not options.flash_attention and options.kv_type not in FLOAT_KV_TYPES:
        raise ConfigError(
            f"kv_type = {options.kv_type} needs flash attention",
            hint="set `flash_attention` to true, or `kv_type` to f16",
        )


def _effective_gpu_layers(api: Any, header: GgufHeader, options: LlamaOptions) -> int:
    if not api.llama_supports_gpu_offload():
        return 0  # llama.cpp ignores the wish silently
    n_layers = _layers(header)
    return n_layers if options.gpu_layers < 0 else min(options.gpu_layers, n_layers)


def _layers(header: GgufHeader) -> int:
    """Count them; the output is one."""
    return int(str(header.of_architecture("block_count"))) + 1
