"""One conversion from a checkpoint folder to finished GGUF files: the numbered list of its steps.

`plan_conversion` reads and checks everything that can be checked without reading weights; `run_conversion` writes. Both
are synchronous. A run that raises an error leaves nothing behind; one that is interrupted or killed leaves a workspace
from which the same request goes on.
"""

from __future__ import annotations

import functools
import hashlib
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, cast

from hymt_convert.architectures import MetadataValue, ModelPlan, get_architecture
from hymt_convert.checkpoint import Checkpoint, Origin, find_origin, open_checkpoint
from hymt_convert.gguf_writer import FILE_TYPES as FLOAT_FILE_TYPES
from hymt_convert.gguf_writer import HEADER_ALLOWANCE_BYTES, FloatType, check_space, publish, stored_bytes, write_gguf
from hymt_convert.imatrix import make_imatrix, read_imatrix
from hymt_convert.isolated import run_isolated
from hymt_convert.known_models import (
    Identity,
    expected_tokens,
    identify,
    licence_metadata,
    plain_checkpoint_id,
    with_chat_template,
)
from hymt_convert.passages import passages
from hymt_convert.progress import OnProgress, Progress
from hymt_convert.quality import Quality, measure_quality
from hymt_convert.quantize import TensorTypeRule, check_rules, quantization_name, quantize_file
from hymt_convert.safetensors_file import CheckpointTensor
from hymt_convert.verify import VerifyReport, check_file, verify_file
from hymt_convert.vocabulary import Vocabulary, read_vocabulary
from hymt_convert.workspace import IMATRIX_STATE, Workspace, open_workspace, written_bytes
from hymt_local import __version__
from hymt_local.catalog import Catalog
from hymt_local.errors import ModelError, ModelFileError, StoreError, UnsupportedModelError, UsageError

_BITS_PER_WEIGHT = {"Q8": 8.5, "Q6": 6.6, "Q5": 6.0, "Q4": 5.0, "IQ4": 4.6, "MXFP4": 4.5, "NVFP4": 4.6}
"""Upper estimates for the disk-space check; other types count as 4 bits."""
_MODIFIED = "(modified: names and number formats of the tensors)"
"""The licences of the first two generations want changed files to say so."""
_NEXT_STEPS: Mapping[type[ModelError], str] = {
    ModelFileError: "The checkpoint is damaged, or its files are of different models: download it again.",
    UnsupportedModelError: "Only checkpoints that are built like the published ones can be converted faithfully.",
}
"""Of errors that have no better one."""
_LOSSLESS: Mapping[frozenset[str], FloatType] = {frozenset({"BF16"}): "BF16", frozenset({"F16"}): "F16"}


@dataclass(frozen=True, slots=True)
class ConversionRequest:
    """What to convert, and what to say about it in the result."""

    source: Path
    """A checkpoint folder."""
    output_folder: Path
    """Created if need be; the files are called `<name>-<quantization>.gguf`."""
    quantizations: tuple[str, ...]
    """F32, F16, BF16 or a type of llama.cpp's quantizer; case does not matter."""
    name: str | None = None
    """`general.name` and the stem of the file names; when None, the id of a known model or the folder's name."""
    source_id: str | None = None
    """Where the checkpoint comes from, such as `tencent/Hunyuan-MT-7B@revision`; never a path of this machine."""
    licence: str | None = None
    """SPDX id or title of the weights' licence; that of the catalog when None and the model is known."""
    catalog: Catalog | None = None
    """Where known models are looked up; None when the checkpoint is none of them."""
    as_id: str | None = None
    """The model of the catalog that it is; `none` when it is none. When None, its origin, name and sizes tell."""
    extra: Mapping[str, MetadataValue] = field(default_factory=dict)
    """Further header keys, none of the model's own; arrays must not be empty."""
    imatrix: bool = False
    """Compute an importance matrix and quantize with it; it is kept as `<name>-imatrix.gguf`."""
    imatrix_file: Path | None = None
    """Quantize with this importance matrix."""
    rules: tuple[TensorTypeRule, ...] = ()
    """Types of single tensors."""
    verify: bool = False
    """Look at the finished files, load them and translate with them."""
    quality: bool = False
    """Measure what the quantizations cost; `verify` does it, too, when the unquantized file is kept."""
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """A checked request: what will be written where."""

    request: ConversionRequest
    name: str
    origin: Origin
    identity: Identity
    model: ModelPlan
    vocabulary: Vocabulary
    outputs: Mapping[str, Path]
    """Quantization -> file."""
    base_type: FloatType
    """The type the quantizer reads: one that holds the checkpoint's weights exactly."""
    estimated_bytes: int
    """Disk space needed while converting, an upper bound."""

    @property
    def imatrix_file(self) -> Path:
        """Where an importance matrix is written that is computed."""
        return self.request.output_folder / f"{self.name}-imatrix.gguf"

    @property
    def measures_quality(self) -> bool:
        """Whether quantizations are compared with the unquantized file: when that is asked for, or is kept anyway."""
        is_quantized = any(kind not in FLOAT_FILE_TYPES for kind in self.outputs)
        is_wanted = self.request.quality or (self.request.verify and self.base_type in self.outputs)
        return is_quantized and is_wanted

    def output_bytes(self, kind: str) -> int:
        """Return the size of one file, an upper bound."""
        return _output_bytes(self.model, kind)

    def moved_to(self, folder: Path) -> ConversionPlan:
        """Return the same plan with another output folder."""
        outputs = {kind: folder / path.name for kind, path in self.outputs.items()}
        return replace(self, request=replace(self.request, output_folder=folder), outputs=outputs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know before it is run; one line each."""
        return (*self.identity.warnings, *self.model.warnings, *self.vocabulary.warnings)


@dataclass(frozen=True, slots=True)
class ConvertedFile:
    """One finished file."""

    path: Path
    quantization: str
    size_bytes: int
    fallbacks: Mapping[str, str]
    """See `quantize.QuantizationReport`."""


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """What came out."""

    files: tuple[ConvertedFile, ...]
    elapsed_s: float
    imatrix: Path | None = None
    """The importance matrix that was computed."""
    verifications: tuple[VerifyReport, ...] = ()
    """One for each file when asked for."""
    qualities: tuple[Quality, ...] = ()
    """One for each quantization when asked for, against the unquantized file."""


def plan_conversion(request: ConversionRequest) -> ConversionPlan:
    """Check the whole request without reading a weight or writing a byte.

    Raises:
        UsageError: an unknown quantization, an unusable name, or a rule that fits no tensor.
        ModelFileError: the checkpoint is damaged or incomplete.
        UnsupportedModelError: it cannot be converted faithfully.
        ValueError: `extra` overrules a key of the model.
    """
    try:
        return _plan(request)
    except ModelError as error:
        error.hint = error.hint or _NEXT_STEPS.get(type(error), "")
        raise


def _plan(request: ConversionRequest) -> ConversionPlan:
    quantizations = type_names(request.quantizations, with_imatrix=request.imatrix or request.imatrix_file is not None)
    origin = Origin.parse(request.source_id) if request.source_id else find_origin(request.source)
    folder_name = request.source.resolve().name
    names = [text for text in (origin.repository, request.name, folder_name) if text]
    catalog = request.catalog or Catalog(())
    checkpoint = open_checkpoint(request.source, plain_id=plain_checkpoint_id(catalog, names))
    model = get_architecture(checkpoint.config)(checkpoint)
    _check_quantizing(request, model)
    identity = identify(catalog, model, as_id=request.as_id, source_id=origin.repository, names=names)
    vocabulary = _vocabulary(checkpoint, model, identity)
    name = _file_name(request.name or (identity.spec.id if identity.spec is not None else folder_name))
    stored = frozenset().union(*(plan.dtypes for plan in model.tensors if not plan.full_precision))
    base_type = _LOSSLESS.get(stored, "F32")
    outputs = {kind: request.output_folder / f"{name}-{kind}.gguf" for kind in quantizations}
    estimated_bytes = _estimate(model, quantizations, base_type)
    plan = ConversionPlan(request, name, origin, identity, model, vocabulary, outputs, base_type, estimated_bytes)
    _check_extra(request.extra, _own_header(plan, base_type))
    return plan


def run_conversion(plan: ConversionPlan, *, on_progress: OnProgress | None = None) -> ConversionReport:
    """Write the files of a plan; existing ones are replaced when their successor is complete.

    What an earlier run of the same plan had finished when it was killed is not done again; the files are the same to
    the byte.

    Raises:
        StoreError: the output folder cannot be written to or is too small, or it is in use by another conversion.
        ModelFileError: a weight is not a finite number, or a file is damaged.
        UnsupportedModelError: a type is not possible for this model.
        EngineError: the quantizer failed.
    """
    started = time.monotonic()
    _make_folder(plan.request.output_folder)
    folder, digest = plan.request.output_folder, fingerprint(plan)
    written = written_bytes(folder, plan.name, identity=digest, outputs=plan.outputs)
    check_space(folder, plan.estimated_bytes - written)
    with open_workspace(folder, plan.name, identity=digest) as workspace:
        run = _Run(plan, workspace, on_progress or (lambda progress: None))
        files = {kind: run.write_float(kind) for kind in plan.outputs if kind in FLOAT_FILE_TYPES}
        quantized = [kind for kind in plan.outputs if kind not in FLOAT_FILE_TYPES]
        imatrix, qualities = None, []
        if quantized:
            base = run.base_file()
            imatrix = run.imatrix(base)
            files |= {kind: run.quantize(base, kind, imatrix) for kind in quantized}
            if plan.measures_quality:
                qualities = run.measure(base, [files[kind].path for kind in quantized])
        finished = tuple(files[kind] for kind in plan.outputs)
        verifications = tuple(run.verify(file.path) for file in finished) if plan.request.verify else ()
    return ConversionReport(
        finished,
        time.monotonic() - started,
        imatrix=imatrix if plan.request.imatrix else None,
        verifications=verifications,
        qualities=tuple(qualities),
    )


def convert(request: ConversionRequest, *, on_progress: OnProgress | None = None) -> ConversionReport:
    """Plan and run a conversion (raises what both raise)."""
    return run_conversion(plan_conversion(request), on_progress=on_progress)


def header(plan: ConversionPlan, kind: str) -> dict[str, MetadataValue]:
    """Return every header key of an unquantized file of the plan."""
    return {**_own_header(plan, kind), **plan.request.extra}


def _own_header(plan: ConversionPlan, kind: str) -> dict[str, MetadataValue]:
    request, spec = plan.request, plan.identity.spec
    licence: dict[str, MetadataValue] = licence_metadata(spec) if spec is not None else {}
    if request.licence:
        licence["general.license"] = request.licence
    title = spec.title if spec is not None else plan.name
    converter = f"hymt-local {__version__}"
    source = f" from {plan.origin}" if plan.origin.repository else ""
    general: dict[str, MetadataValue | None] = {
        "general.architecture": plan.model.architecture,
        "general.type": "model",
        "general.name": plan.name,
        "general.description": f"{title}, converted{source} to GGUF by {converter} {_MODIFIED}",
        **licence,
        "general.source.id": plan.origin.repository,
        "general.source.revision": plan.origin.revision,
        "general.converted_by": converter,
        "general.file_type": FLOAT_FILE_TYPES[cast("FloatType", kind)],
    }
    known = {key: value for key, value in general.items() if value is not None}
    return {**known, **plan.model.metadata, **plan.vocabulary.metadata()}


def _vocabulary(checkpoint: Checkpoint, model: ModelPlan, identity: Identity) -> Vocabulary:
    expected = expected_tokens(identity.spec) if identity.spec is not None else None
    vocabulary = read_vocabulary(checkpoint, vocab_size=model.vocab_size, expected=expected)
    return with_chat_template(vocabulary, identity.spec)


def fingerprint(plan: ConversionPlan) -> str:
    """Return a digest of everything that decides the bytes of the plan's files."""
    sources = {part.path for tensor in plan.model.tensors for part in tensor.parts}
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(sources)]
    tensors = [
        (tensor.name, tensor.shape, tensor.full_precision, [_place(part) for part in tensor.parts])
        for tensor in plan.model.tensors
    ]
    given = plan.request.imatrix_file
    matrix = hashlib.sha256(given.read_bytes()).hexdigest() if given is not None else plan.request.imatrix
    described = repr((header(plan, plan.base_type), files, tensors, matrix, plan.request.rules))
    return hashlib.sha256(described.encode("utf-8", "surrogatepass")).hexdigest()


def _place(part: CheckpointTensor) -> tuple[str, str, int, int]:
    return part.path.name, part.dtype, part.offset, part.size_bytes


def _check_extra(extra: Mapping[str, MetadataValue], own: Collection[str]) -> None:
    overruling = sorted(extra.keys() & set(own))
    if overruling:
        raise ValueError(f"extra keys overrule the model's own: {', '.join(overruling)}")


def _file_name(name: str) -> str:
    if not re.fullmatch(r"[\w][\w.+ -]*", name):
        raise UsageError(f"{name!r} is no usable name for a file", hint="Give another one with --name.")
    return name


def type_names(given: Sequence[str], *, with_imatrix: bool) -> tuple[str, ...]:
    """Return the canonical names of the types asked for, each once.

    Raises:
        UsageError: there is none, or one that does not exist or needs an importance matrix.
    """
    names = [
        text.upper() if text.upper() in FLOAT_FILE_TYPES else quantization_name(text, with_imatrix=with_imatrix)
        for text in given
    ]
    if not names:
        raise UsageError("no quantization is given", hint="For example --quant Q8_0.")
    return tuple(dict.fromkeys(names))


def _check_quantizing(request: ConversionRequest, model: ModelPlan) -> None:
    if request.imatrix and request.imatrix_file is not None:
        raise UsageError(
            "an importance matrix is either computed or given, not both", hint="Leave --imatrix or --imatrix-file out."
        )
    check_rules(request.rules, (tensor.name for tensor in model.tensors if len(tensor.shape) > 1))
    if request.imatrix_file is not None:
        read_imatrix(request.imatrix_file).check_fits({tensor.name: tensor.shape for tensor in model.tensors})


def _estimate(model: ModelPlan, quantizations: tuple[str, ...], base_type: FloatType) -> int:
    total = sum(_output_bytes(model, kind) for kind in quantizations)
    if base_type not in quantizations and any(kind not in FLOAT_FILE_TYPES for kind in quantizations):
        total += stored_bytes(model.tensors, base_type) + HEADER_ALLOWANCE_BYTES
    return total


def _output_bytes(model: ModelPlan, kind: str) -> int:
    if kind in FLOAT_FILE_TYPES:
        return stored_bytes(model.tensors, cast("FloatType", kind)) + HEADER_ALLOWANCE_BYTES
    bits = _BITS_PER_WEIGHT.get(kind.split("_", maxsplit=1)[0], 4.0)
    return int(sum(plan.element_count for plan in model.tensors) * bits / 8) + HEADER_ALLOWANCE_BYTES


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot create {folder}: {error.strerror or error}", hint="Choose another with -o."
        ) from error


@dataclass(frozen=True, slots=True)
class _Run:
    """The steps of one run, each of which knows whether an earlier run has done it."""

    plan: ConversionPlan
    workspace: Workspace
    report: OnProgress

    def write_float(self, kind: str) -> ConvertedFile:
        """Write an unquantized file and put it in its place."""
        if self._known_fallbacks(kind) is None:
            self._publish(kind, self._write(kind), {})
        return self._finished(kind, {})

    def base_file(self) -> Path:
        """Return the file that the quantizer reads: one that was asked for, or one that ends with the run."""
        kind = self.plan.base_type
        return self.plan.outputs[kind] if kind in self.plan.outputs else self._write(kind)

    def imatrix(self, base: Path) -> Path | None:
        """Return the importance matrix to quantize with, computed from the base file when that was asked for."""
        path = self.plan.imatrix_file
        if not self.plan.request.imatrix:
            return self.plan.request.imatrix_file
        if self.workspace.finished_output("imatrix", path) is None:
            run_isolated(
                make_imatrix, base, path, self.plan.identity.spec,
                threads=self.plan.request.threads, state_file=self.workspace.folder / IMATRIX_STATE,
                on_step=self._steps("computing the importance matrix", "tokens"),
            )  # fmt: skip
            self.workspace.output_finished("imatrix", path, fallbacks={})
        return path

    def quantize(self, base: Path, kind: str, imatrix: Path | None) -> ConvertedFile:
        """Quantize the base file and put the result in its place."""
        fallbacks = self._known_fallbacks(kind)
        if fallbacks is None:
            fallbacks = self._quantize(base, kind, imatrix)
        return self._finished(kind, fallbacks)

    def measure(self, base: Path, files: Sequence[Path]) -> list[Quality]:
        """Compare quantizations with the base file."""
        make_passages = functools.partial(passages, spec=self.plan.identity.spec, part="evaluation")
        return run_isolated(
            measure_quality, base, files, make_passages,
            threads=self.plan.request.threads, on_step=self.report,
        )  # fmt: skip

    def verify(self, path: Path) -> VerifyReport:
        """Look at a finished file."""
        request = self.plan.request
        spec, was_asked = self.plan.identity.spec, request.catalog is not None
        return verify_file(
            path, spec=spec, by_name=not was_asked, checkpoint=request.source,
            threads=request.threads, on_progress=self.report,
        )  # fmt: skip

    def _steps(self, step: str, unit: str) -> Callable[[int, int], None]:
        def advance(done: int, total: int) -> None:
            self.report(Progress(step, done, total, unit))

        return advance

    def _quantize(self, base: Path, kind: str, imatrix: Path | None) -> Mapping[str, str]:
        advance = self._steps(f"quantizing to {kind}", "tensors")
        unfinished = self.workspace.path(kind)
        request = self.plan.request
        result = quantize_file(
            base, unfinished, kind, imatrix=imatrix, rules=request.rules, threads=request.threads, on_step=advance
        )
        self._publish(kind, unfinished, result.fallbacks)
        return result.fallbacks

    def _write(self, kind: str) -> Path:
        float_type, tensors = cast("FloatType", kind), self.plan.model.tensors
        path, n_finished = self.workspace.path(kind), self.workspace.n_finished(kind)
        total, resumed = stored_bytes(tensors, float_type), stored_bytes(tensors[:n_finished], float_type)
        done = 0

        def advance(size_bytes: int) -> None:
            nonlocal done
            done += size_bytes
            self.report(Progress(f"writing {kind}", done, total, "bytes", resumed=resumed))

        def note(count: int, file: BinaryIO) -> None:
            self.workspace.tensor_finished(kind, count, file, is_last=count == len(tensors))

        write_gguf(
            path, header(self.plan, kind), tensors,
            float_type=float_type, n_finished=n_finished, on_bytes=advance, on_tensor=note,
        )  # fmt: skip
        return path

    def _publish(self, kind: str, unfinished: Path, fallbacks: Mapping[str, str]) -> None:
        path = self.plan.outputs[kind]
        publish(unfinished, path)
        self.workspace.output_finished(kind, path, fallbacks=fallbacks)

    def _known_fallbacks(self, kind: str) -> Mapping[str, str] | None:
        return self.workspace.finished_output(kind, self.plan.outputs[kind])

    def _finished(self, kind: str, fallbacks: Mapping[str, str]) -> ConvertedFile:
        path = self.plan.outputs[kind]
        facts = check_file(path, shapes={tensor.name: tensor.shape for tensor in self.plan.model.tensors})
        return ConvertedFile(path, kind, facts.size_bytes, fallbacks)
