"""Which published model suits this machine: every file of the catalog judged by its fit, and the best of them named."""

from __future__ import annotations

from dataclasses import dataclass

from hymt_local.catalog import Catalog, ModelFile, ModelSpec
from hymt_local.engine.fit import COMFORTABLE_SHARE, FitPlan, FitWish, MachineFacts, ModelFacts, plan
from hymt_local.engine.gguf_file import GgufHeader
from hymt_local.engine.gguf_support import MOE_ARCHITECTURE

COMFORTABLE_TOKENS_PER_S = 5.0
"""About as fast as people read."""
FLUENT_TOKENS_PER_S = 15.0
"""Above it nobody waits for the finer quantization of a model."""
KEPT_SPEED = 0.7
"""Below it the finer quantization must keep this part of the speed."""
COMFORTABLE_REST_BYTES = 768 << 20
"""At least that stays free: a small machine with less would read the weights from its disk again and again."""
LARGEST_DEFAULT_BYTES = 10_000_000_000
"""What is downloaded without being asked for by name."""
SPARE_DISK_BYTES = 64 << 20

_Q6_K_BYTES, _Q8_0_BYTES = 210 / 256, 34 / 32
"""Of one weight: llama.cpp keeps the vocabulary's rows in Q6_K, in Q8_0 files in Q8_0."""
_ROW_FLOATS_PER_HIDDEN = 15
"""With a feed-forward width of 3.5 times the hidden one, that of the published 7B."""
_MOE_ROW_FLOATS_PER_HIDDEN = 23
_MOE_ACTIVE_SHARE = 0.1
"""3 of 30 billion weights."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A published file, and how it would be loaded here."""

    spec: ModelSpec
    file: ModelFile
    plan: FitPlan

    @property
    def ref(self) -> str:
        """The reference a user types."""
        return f"{self.spec.id}:{self.file.quantization}"

    def is_comfortable(self, machine: MachineFacts) -> bool:
        """Tell whether it fits as it should be loaded, with room to spare, and decodes as fast as people read."""
        return (
            self.plan.verdict == "good"
            and self.plan.ram_bytes <= COMFORTABLE_SHARE * machine.available_bytes
            and self.plan.headroom_bytes >= COMFORTABLE_REST_BYTES
            and self.plan.context_length >= self.spec.context_length
            and self.plan.tokens_per_s >= COMFORTABLE_TOKENS_PER_S
        )


def facts_of_file(spec: ModelSpec, file: ModelFile) -> ModelFacts | None:
    """Return the facts of a file that is not here, from the catalog; None when it does not say enough."""
    geometry = spec.geometry
    if geometry is None or file.size_bytes is None:
        return None
    is_moe = spec.architecture == MOE_ARCHITECTURE
    per_weight = _Q8_0_BYTES if file.quantization == "Q8_0" else _Q6_K_BYTES
    rows_bytes = min(int(geometry.vocab * geometry.hidden * per_weight), file.size_bytes)
    return ModelFacts(
        name=f"{spec.id}:{file.quantization}",
        weights_bytes=file.size_bytes,
        layer_bytes=(file.size_bytes - rows_bytes) // geometry.layers,
        output_bytes=rows_bytes,
        n_layers=geometry.layers,
        kv_width=geometry.kv_heads * geometry.head_dim,
        row_floats=geometry.hidden * (_MOE_ROW_FLOATS_PER_HIDDEN if is_moe else _ROW_FLOATS_PER_HIDDEN),
        vocab=geometry.vocab,
        context_length=spec.context_length,
        longest_context=max(spec.context_length, 32768),
        active_share=_MOE_ACTIVE_SHARE if is_moe else 1.0,
    )


def candidates(catalog: Catalog, machine: MachineFacts, *, wish: FitWish | None = None) -> tuple[Candidate, ...]:
    """Return every published file that this program can run, in the catalog's order."""
    found = []
    for spec in catalog.models:
        for file in spec.files if spec.kind == "translation" else ():
            facts = facts_of_file(spec, file) if file.supported else None
            if facts is not None:
                found.append(Candidate(spec, file, plan(facts, machine, wish=wish)))
    return tuple(found)


def recommend(found: tuple[Candidate, ...], machine: MachineFacts, *, is_named: bool = False) -> Candidate | None:
    """Return what to download when the user names nothing; None when nothing fits.

    Free licences and files below 10 GB only, unless the user has named the model (`is_named`). The largest model
    that is comfortable: in 4 bits it translates better than a smaller one in 8. Of its files the finest one that is
    not much slower. Where none is comfortable: the fastest that fits.
    """
    free = [
        candidate
        for candidate in found
        if (is_named or not candidate.spec.licence.territory_excluded)
        and (is_named or _size(candidate) <= LARGEST_DEFAULT_BYTES)
        and has_room_on_disk(candidate, machine)
    ]
    comfortable = [candidate for candidate in free if candidate.is_comfortable(machine)]
    if comfortable:
        return _finest(comfortable)
    for verdict in ("good", "tight"):
        fitting = [candidate for candidate in free if candidate.plan.verdict == verdict]
        if fitting:
            return max(fitting, key=lambda candidate: candidate.plan.tokens_per_s)
    return None


def nearest(found: tuple[Candidate, ...], machine: MachineFacts, *, spec: ModelSpec) -> Candidate | None:
    """Return what comes closest to a model that does not fit: a smaller file of the same, else the recommendation."""
    same = [
        candidate
        for candidate in found
        if candidate.spec.id == spec.id and candidate.plan.verdict != "no" and has_room_on_disk(candidate, machine)
    ]
    return max(same, key=_size, default=None) or recommend(found, machine)


def default_spec(catalog: Catalog, header: GgufHeader) -> ModelSpec:
    """Return the model of the catalog that a file most resembles, for what its header does not tell."""
    same = [spec for spec in catalog.models if spec.architecture == header.architecture and spec.kind == "translation"]
    hidden = header.of_architecture("embedding_length")
    return next((spec for spec in same if spec.geometry and spec.geometry.hidden == hidden), same[0])


def has_room_on_disk(candidate: Candidate, machine: MachineFacts) -> bool:
    """Tell whether the file can be stored; where nothing is known of the disk, it can."""
    free_bytes = machine.disk_free_bytes
    return free_bytes is None or free_bytes >= _size(candidate) + SPARE_DISK_BYTES


def _size(candidate: Candidate) -> int:
    return candidate.file.size_bytes or 0


def _finest(comfortable: list[Candidate]) -> Candidate:
    largest = max(_n_weights(candidate.spec) for candidate in comfortable)
    files = [candidate for candidate in comfortable if _n_weights(candidate.spec) == largest]
    speed = min(FLUENT_TOKENS_PER_S, KEPT_SPEED * max(candidate.plan.tokens_per_s for candidate in files))
    return max((candidate for candidate in files if candidate.plan.tokens_per_s >= speed), key=_size)


def _n_weights(spec: ModelSpec) -> int:
    """Rank models by size whatever their quantization: by the smallest file that is published."""
    return min((file.size_bytes for file in spec.files if file.supported and file.size_bytes), default=0)
