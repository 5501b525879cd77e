"""Fit before load: what a model needs on a machine, and how to load it there. Facts in, a plan out.

The sizes are those of llama.cpp 0.5.0-dev with our context: flash attention, rows of logits for all
slots and one long draft, weights mapped. Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hymt_local.engine.gguf_file import GgufHeader
from hymt_local.engine.options import (
    KV_BYTES,
    MIB,
    PROMPT_SLICE,
    SLOTS,
    TINY_MODEL_BYTES,
    KvType,
    WeightsPlace,
    default_threads,
    n_cells,
    n_outputs,
)

GIB = 1 << 30

Verdict = Literal["good", "tight", "no"]
DiskKind = Literal["NVMe", "SSD", "hard disk", "network", "disk"]
"""`disk`: of a kind that the system does not tell."""

CONTEXT_STEP = 256
SHORTEST_CONTEXT = 1024
"""Tokens; below it a paragraph and its translation no longer fit."""

PROGRAM_BYTES = 56 * MIB
"""Python, our modules and the shared libraries, measured as resident memory."""
VOCABULARY_BYTES_PER_TOKEN = 400
"""234 measured for the tokens alone; the merges come on top."""
GPU_RUNTIME_BYTES = 250 * MIB
"""What a GPU's runtime takes of main memory."""
GPU_MARGIN_BYTES = 600 * MIB
"""Left free on each GPU: the runtime's own context, scratch of its kernels, and what the desktop takes meanwhile."""
SYSTEM_BYTES = GIB
"""What the operating system itself cannot do without."""
LEAST_SHARE_ON_GPU = 8
"""With fewer than a n-th of the layers on the GPU the copying eats the gain."""

COMFORTABLE_SHARE = 0.75
"""Of the available memory: the browser that is opened next has to live too."""
WORTHWHILE_SPEED_UP = 1.3
"""Slots are given up for it: one text at a time is what people wait for."""
CPU_BYTES_PER_S_PER_THREAD = 12e9
MOST_CPU_BYTES_PER_S = 30e9
"""Two channels of laptop memory; measured 33e9 with two threads on a server."""
GPU_BYTES_PER_S = 180e9
"""Of the slowest GPUs with 6 GB that are sold."""
SHORT_TEXT_SHARE = 8
"""Decoding reads the filled part of the KV cache: an eighth, for texts of a few sentences."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What decides how much memory a model takes. All weights are counted in bytes as they lie in the file."""

    name: str
    weights_bytes: int
    layer_bytes: int
    """Of one layer, on average."""
    output_bytes: int
    """Of the last product: the vocabulary's rows, which a GPU holds once more when they are shared with the input."""
    n_layers: int
    kv_width: int
    """Numbers that keys have per layer and token; values have as many."""
    row_floats: int
    """Floats of intermediate results per token of a batch."""
    vocab: int
    context_length: int
    """Tokens to open by default."""
    longest_context: int
    active_share: float = 1.0
    """Part of the weights that one token reads: below 1 for mixtures of experts."""

    def kv_bytes(self, n_cells: int, kv_type: KvType) -> int:
        """Return the size of the KV cache."""
        return int(2 * self.n_layers * self.kv_width * n_cells * KV_BYTES[kv_type])

    def compute_bytes(self, n_cells: int) -> int:
        """Return intermediate results and attention mask; exact to 5 % for the three published geometries."""
        return min(PROMPT_SLICE, n_cells) * (4 * self.row_floats + 2 * n_cells)

    def logits_bytes(self, n_outputs: int) -> int:
        """Return the rows of logits, which are kept in main memory."""
        return n_outputs * self.vocab * 4

    @property
    def program_bytes(self) -> int:
        """What the process takes whatever the context: itself and the vocabulary."""
        return PROGRAM_BYTES + VOCABULARY_BYTES_PER_TOKEN * self.vocab


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU, as llama.cpp sees it."""

    name: str
    total_bytes: int
    free_bytes: int
    is_unified: bool = False
    """It has no memory of its own."""


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The disk that models are read from."""

    kind: DiskKind
    bytes_per_s: float
    """Usual for the kind, or measured."""
    is_measured: bool = False


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What is free here and now."""

    total_bytes: int
    """Of main memory, or what a container may use of it."""
    available_bytes: int
    """What can be had without swapping."""
    n_cores: int
    """Physical ones that this process may use."""
    gpus: tuple[GpuFacts, ...] = ()
    disk_free_bytes: int | None = None
    """Where models are kept; None when it is unknown."""
    is_limited: bool = False
    """A container's limit counts, not the machine's memory."""
    disk: DiskFacts | None = None
    """Where models are kept; None when its kind is unknown."""
    idle_gpus: tuple[GpuFacts, ...] = ()
    """NVIDIA's, which this build of llama.cpp cannot use."""

    @property
    def margin_bytes(self) -> int:
        """What should stay free, so that other programs can grow a little."""
        return max(256 * MIB, self.total_bytes // 20)

    @property
    def most_bytes(self) -> int:
        """What a program can get at best, with all others closed."""
        return self.total_bytes - (64 * MIB if self.is_limited else SYSTEM_BYTES)


@dataclass(frozen=True, slots=True)
class FitWish:
    """What the user has fixed; None leaves it to the plan."""

    context_length: int | None = None
    gpu_layers: int | None = None
    threads: int | None = None
    kv_types: tuple[KvType, ...] = ("f16",)
    """In order of preference: q8_0 halves the cache and slows down the reading of long prompts."""
    slots: int | None = None
    """Generations decoded together."""
    kv_offload: bool = True
    """Keep the KV cache beside the layers that are on the GPU."""
    weights: WeightsPlace = "mapped"
    """Of those that are not on a GPU. How many llama.cpp rearranges depends on their types: all are counted."""


@dataclass(frozen=True, slots=True)
class FitPlan:
    """How to load a model, what that takes, and why."""

    model: str
    verdict: Verdict
    """`tight`: other programs may be pushed out of memory. `no`: it must not be loaded."""
    weights_bytes: int
    kv_bytes: int
    compute_bytes: int
    program_bytes: int
    ram_bytes: int
    """Of main memory, all in all."""
    vram_bytes: int
    headroom_bytes: int
    """Main memory that stays available; negative when there is not enough."""
    context_length: int
    kv_type: KvType
    n_slots: int
    """Segments translated at the same time."""
    micro_batch: int
    threads: int
    gpu_layers: int
    n_layers: int
    """The output counts as one, as llama.cpp does."""
    tokens_per_s: float
    """Decoding one text, a rough guess from how fast memory is."""
    load_s: float | None
    """Reading the weights once, as after a start of the machine; None where nothing is known of the disk."""
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """Weights, KV cache, intermediate results and the program together."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes + self.program_bytes


def facts_of_header(header: GgufHeader, *, name: str, context_length: int) -> ModelFacts:
    """Return the facts of a file that `check_supported` has accepted.

    Args:
        header: Of the file.
        name: For messages.
        context_length: Tokens to open by default.
    """

    def count(key: str, default: int = 0) -> int:
        value = header.of_architecture(key)
        return value if isinstance(value, int) else default

    n_layers, hidden, n_heads = count("block_count"), count("embedding_length"), count("attention.head_count")
    head_dim = count("attention.key_length", hidden // n_heads)
    sizes = {tensor.name: tensor.size_bytes for tensor in header.tensors}
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    in_layers = sum(size for tensor, size in sizes.items() if tensor.startswith("blk."))
    n_used, n_experts = count("expert_used_count"), count("expert_count")
    dense = 2 * count("feed_forward_length") + 8 * hidden
    experts = 2 * n_used * count("expert_feed_forward_length") + (n_used + 9) * hidden if n_experts else 0
    return ModelFacts(
        name=name,
        weights_bytes=sum(sizes.values()),
        layer_bytes=in_layers // n_layers,
        output_bytes=sizes.get("output.weight", sizes["token_embd.weight"]),
        n_layers=n_layers,
        kv_width=count("attention.head_count_kv", n_heads) * head_dim,
        row_floats=max(dense, experts),
        vocab=shapes["token_embd.weight"][-1],
        context_length=context_length,
        longest_context=count("context_length", context_length),
        active_share=_active_share(sizes, n_used=n_used, n_experts=n_experts),
    )


def plan(model: ModelFacts, machine: MachineFacts, *, wish: FitWish | None = None) -> FitPlan:
    """Return the best way to load a model: the first of the wished shapes that fits, else the one that fits best.

    What is given up first: slots (sooner, where that gets decidedly more layers onto the GPU), then bits of the KV
    cache, then context, if the user has not fixed it, in halves down to 1,024 tokens.
    """
    wish = wish or FitWish()
    attempts = [_attempt(model, machine, wish=wish, shape=shape) for shape in _shapes(model, wish)]
    best = max(attempts, key=lambda attempt: _RANKS[attempt.verdict])
    if best.verdict != "good":
        return best
    alike = [attempt for attempt in attempts if attempt.verdict == "good" and _is_like(attempt, best)]
    alike = [attempt for attempt in alike if _suits(attempt, machine)] or alike
    fastest = max(attempt.tokens_per_s for attempt in alike)
    return next(attempt for attempt in alike if attempt.tokens_per_s * WORTHWHILE_SPEED_UP >= fastest)


def _suits(attempt: FitPlan, machine: MachineFacts) -> bool:
    """Tell whether it has no more slots than there is memory to spare for: the last few bring least."""
    return attempt.n_slots < SLOTS[0] or attempt.ram_bytes <= COMFORTABLE_SHARE * machine.available_bytes


def _is_like(attempt: FitPlan, other: FitPlan) -> bool:
    return (attempt.context_length, attempt.kv_type) == (other.context_length, other.kv_type)


_RANKS: dict[Verdict, int] = {"no": 0, "tight": 1, "good": 2}


def _active_share(sizes: dict[str, int], *, n_used: int, n_experts: int) -> float:
    if not n_experts:
        return 1.0
    in_experts = sum(size for tensor, size in sizes.items() if "_exps." in tensor)
    return 1 - in_experts / sum(sizes.values()) * (1 - n_used / n_experts)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Of a context."""

    context_length: int
    kv_type: KvType
    n_slots: int

    @property
    def n_cells(self) -> int:
        """Of the KV cache, which all slots share."""
        return n_cells(self.context_length, self.n_slots)

    @property
    def n_outputs(self) -> int:
        """Rows of logits."""
        return n_outputs(self.n_slots)


def _shapes(model: ModelFacts, wish: FitWish) -> Iterator[_Shape]:
    """Yield what to try from best to smallest; what saves no cell is left out."""
    wanted = min(wish.context_length or model.context_length, model.longest_context)
    context_length = -(-wanted // CONTEXT_STEP) * CONTEXT_STEP
    shortest = context_length if wish.context_length else min(context_length, SHORTEST_CONTEXT)
    smallest = float("inf")
    while context_length >= shortest:
        for kv_type in wish.kv_types:
            for n_slots in SLOTS if wish.slots is None else (wish.slots,):
                shape = _Shape(context_length, kv_type, n_slots)
                if shape.n_cells * KV_BYTES[kv_type] < smallest:
                    smallest = shape.n_cells * KV_BYTES[kv_type]
                    yield shape
        context_length //= 2


def _attempt(model: ModelFacts, machine: MachineFacts, *, wish: FitWish, shape: _Shape) -> FitPlan:
    kv_bytes = model.kv_bytes(shape.n_cells, shape.kv_type)
    graph_bytes = model.compute_bytes(shape.n_cells)
    compute_bytes = graph_bytes + model.logits_bytes(shape.n_outputs)
    offloaded_bytes = kv_bytes if wish.kv_offload else 0
    share = _place(model, machine, wished=wish.gpu_layers, kv_bytes=offloaded_bytes, compute_bytes=graph_bytes)
    anonymous_bytes = kv_bytes - share.kv_bytes + compute_bytes + model.program_bytes + share.runtime_bytes
    anonymous_bytes += share.host_weights_bytes if wish.weights != "mapped" else 0
    mapped_bytes = share.host_weights_bytes if wish.weights != "held" else 0
    ram_bytes = anonymous_bytes + mapped_bytes + (share.vram_bytes if share.is_unified else 0)
    threads = wish.threads or default_threads(model.weights_bytes, machine.n_cores)
    verdict = _verdict(machine, ram_bytes=ram_bytes, anonymous_bytes=anonymous_bytes)
    return FitPlan(
        model=model.name,
        verdict=verdict,
        weights_bytes=model.weights_bytes,
        kv_bytes=kv_bytes,
        compute_bytes=compute_bytes,
        program_bytes=model.program_bytes,
        ram_bytes=ram_bytes,
        vram_bytes=share.vram_bytes,
        headroom_bytes=machine.available_bytes - ram_bytes,
        context_length=shape.context_length,
        kv_type=shape.kv_type,
        n_slots=shape.n_slots,
        micro_batch=min(PROMPT_SLICE, shape.n_cells),
        threads=threads,
        gpu_layers=share.n_layers,
        n_layers=model.n_layers + 1,
        tokens_per_s=_tokens_per_s(model, share, kv_bytes=kv_bytes, threads=threads),
        load_s=model.weights_bytes / machine.disk.bytes_per_s if machine.disk else None,
        reasons=tuple(_reasons(model, machine, wish=wish, share=share, threads=threads, shape=shape)),
        warnings=tuple(_warnings(machine, wish=wish, share=share, verdict=verdict, ram_bytes=ram_bytes)),
    )


@dataclass(frozen=True, slots=True)
class _Share:
    """What of a model lies where."""

    n_layers: int = 0
    """On the GPU, the output included."""
    vram_bytes: int = 0
    kv_bytes: int = 0
    """Of the KV cache, on the GPU."""
    host_weights_bytes: int = 0
    runtime_bytes: int = 0
    is_unified: bool = False
    n_wished: int = 0


def _place(
    model: ModelFacts, machine: MachineFacts, *, wished: int | None, kv_bytes: int, compute_bytes: int
) -> _Share:
    """Put as many layers on the GPUs as fit, and no more than wished."""
    n_all = model.n_layers + 1
    n_wished = n_all if wished is None else min(wished, n_all)
    if wished is None and model.weights_bytes < TINY_MODEL_BYTES:
        n_wished = 0
    n_layers = min(n_wished, _n_fitting(model, machine, kv_bytes=kv_bytes, compute_bytes=compute_bytes))
    if n_layers == 0 or (wished is None and n_layers * LEAST_SHARE_ON_GPU < n_all):
        return _Share(host_weights_bytes=model.weights_bytes, n_wished=n_wished)
    n_blocks = min(n_layers, model.n_layers)
    kv_on_gpu = kv_bytes * n_blocks // model.n_layers
    weights_on_gpu = n_blocks * model.layer_bytes
    output_bytes = model.output_bytes if n_layers == n_all else 0
    return _Share(
        n_layers=n_layers,
        vram_bytes=weights_on_gpu + output_bytes + kv_on_gpu + compute_bytes,
        kv_bytes=kv_on_gpu,
        host_weights_bytes=max(0, model.weights_bytes - weights_on_gpu),
        runtime_bytes=GPU_RUNTIME_BYTES,
        is_unified=all(gpu.is_unified for gpu in machine.gpus),
        n_wished=n_wished,
    )


def _n_fitting(model: ModelFacts, machine: MachineFacts, *, kv_bytes: int, compute_bytes: int) -> int:
    free_bytes = sum(max(0, gpu.free_bytes - GPU_MARGIN_BYTES) for gpu in machine.gpus) - compute_bytes
    if free_bytes <= 0:
        return 0
    per_layer = model.layer_bytes + kv_bytes // model.n_layers
    n_layers = min(model.n_layers, free_bytes // per_layer)
    has_room_for_output = free_bytes - n_layers * per_layer >= model.output_bytes
    return n_layers + 1 if n_layers == model.n_layers and has_room_for_output else n_layers


def _verdict(machine: MachineFacts, *, ram_bytes: int, anonymous_bytes: int) -> Verdict:
    if ram_bytes > machine.most_bytes or anonymous_bytes > machine.available_bytes:
        return "no"
    return "good" if ram_bytes + machine.margin_bytes <= machine.available_bytes else "tight"


def _tokens_per_s(model: ModelFacts, share: _Share, *, kv_bytes: int, threads: int) -> float:
    on_gpu = (model.weights_bytes - share.host_weights_bytes) * model.active_share
    embedding_bytes = model.output_bytes if share.n_layers > model.n_layers else 0  # of it the CPU reads one row
    on_cpu = max(0, share.host_weights_bytes - embedding_bytes) * model.active_share
    on_gpu += embedding_bytes
    cpu_speed = min(MOST_CPU_BYTES_PER_S, CPU_BYTES_PER_S_PER_THREAD * threads)
    return float(1 / ((on_cpu + (kv_bytes - share.kv_bytes) / SHORT_TEXT_SHARE) / cpu_speed + on_gpu / GPU_BYTES_PER_S))


def _reasons(
    model: ModelFacts,
    machine: MachineFacts,
    *,
    wish: FitWish,
    share: _Share,
    threads: int,
    shape: _Shape,
) -> Iterator[str]:
    yield _gpu_reason(model, machine, wish=wish, share=share)
    if wish.threads is None:
        few = model.weights_bytes < TINY_MODEL_BYTES
        why = "a tiny model gains nothing by more" if few else f"one less than the {machine.n_cores} physical cores"
        yield f"{threads} {'thread' if threads == 1 else 'threads'}: {why}"
    context_length, kv_type = shape.context_length, shape.kv_type
    wanted = min(wish.context_length or model.context_length, model.longest_context)
    if context_length < wanted:
        yield f"a context of {context_length} tokens instead of {wanted}: the KV cache of more does not fit"
    elif wish.context_length and wish.context_length > model.longest_context:
        yield f"a context of {context_length} tokens: the model knows no longer one"
    if wish.slots is None and shape.n_slots < SLOTS[0]:
        yield f"{shape.n_slots} at once instead of {SLOTS[0]}: the KV cache of more does not fit"
    if kv_type != wish.kv_types[0]:
        yield f"the KV cache in {kv_type}: in {wish.kv_types[0]} it does not fit"
    if machine.disk and model.weights_bytes >= TINY_MODEL_BYTES:
        yield _disk_reason(machine.disk, model.weights_bytes)


def _disk_reason(disk: DiskFacts, weights_bytes: int) -> str:
    where = {"network": "a network drive", "hard disk": "a hard disk", "disk": "the disk"}.get(
        disk.kind, f"an {disk.kind}{' drive' if disk.kind == 'NVMe' else ''}"
    )
    seconds = max(1, round(weights_bytes / disk.bytes_per_s))
    speed = f"{disk.bytes_per_s / 1e6:.0f} MB/s, {'measured' if disk.is_measured else 'as usual'}"
    return f"the first load takes about {seconds} s from {where} ({speed}); later ones find it in memory"


def _gpu_reason(model: ModelFacts, machine: MachineFacts, *, wish: FitWish, share: _Share) -> str:
    if wish.gpu_layers == 0:
        return "on the CPU: the setting `gpu_layers` is 0"
    if share.n_wished == 0:
        return "on the CPU: a tiny model is fastest there"
    if not machine.gpus:
        return _idle_reason(machine.idle_gpus) if machine.idle_gpus else "on the CPU: llama.cpp finds no GPU here"
    names = ", ".join(gpu.name for gpu in machine.gpus)
    free = gibibytes(sum(gpu.free_bytes for gpu in machine.gpus))
    if not share.n_layers:
        return f"on the CPU: too few layers fit into the {free} that are free on {names}"
    n_all = model.n_layers + 1
    part = "all layers" if share.n_layers == n_all else f"{share.n_layers} of {n_all} layers"
    return f"{part} on {names}, where {free} are free"


def _idle_reason(gpus: tuple[GpuFacts, ...]) -> str:
    names = ", ".join(gpu.name for gpu in gpus)
    return f"on the CPU: this build of llama.cpp cannot use the {names}; `hymt doctor` says how to get one that can"


def _warnings(
    machine: MachineFacts, *, wish: FitWish, share: _Share, verdict: Verdict, ram_bytes: int
) -> Iterator[str]:
    needed, free = gibibytes(ram_bytes), gibibytes(machine.available_bytes)
    if wish.gpu_layers is not None and share.n_wished > share.n_layers:
        yield f"`gpu_layers` = {wish.gpu_layers}, but only {share.n_layers} fit"
    if verdict == "tight":
        yield f"{needed} needed, {free} available: other programs may be swapped out; close some"
    elif ram_bytes > machine.most_bytes:
        where = "this container may use" if machine.is_limited else "this machine has"
        yield f"{needed} needed, {where} {gibibytes(machine.total_bytes)}: it would read its weights from disk for ever"
    elif verdict == "no":
        yield f"{needed} needed, {free} available: the system would run out of memory"


def gibibytes(size_bytes: int) -> str:
    """Return a size of memory for people."""
    return f"{size_bytes / GIB:.1f} GiB" if abs(size_bytes) >= GIB // 10 else f"{size_bytes / MIB:.0f} MiB"
