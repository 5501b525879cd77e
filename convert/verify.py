"""Looks at finished GGUF files, ours and others': structure, header, tokenizer, and whether they translate.

`check_file` is the converter's own last step and raises; `verify_file` looks at everything and reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hymt_convert.header_faults import Fault, find_faults, identify
from hymt_convert.isolated import run_isolated
from hymt_convert.passages import all_texts
from hymt_convert.probe import Probe, Translation, probe_file
from hymt_convert.progress import OnProgress
from hymt_convert.reference_model import ReferenceModel as ReferenceModel
from hymt_convert.tokenizer_checksum import CHECK_TEXT, CHECKSUMS, PUBLISHED_TOKENS, checksum
from hymt_convert.vocabulary import TokenType
from hymt_local.catalog import Catalog, ModelSpec, load_catalog
from hymt_local.checks import check_output
from hymt_local.engine.gguf_file import GgufHeader, quantization_of, read_array, read_header
from hymt_local.engine.gguf_support import check_supported
from hymt_local.errors import EngineError, EngineUnavailableError, ModelError, ModelFileError

Outcome = Literal["ok", "warning", "failed", "skipped"]

AWKWARD_TEXTS = (
    "3.14 × 10⁻⁹ = 1,234,567.89 €", "  two  spaces\tand\ttabs ", "line one\nline two\r\n\n", "👩‍👩‍👧 🇨🇳 e\u0301 ﬁ ½",
    "https://example.org/a?b=c#d <b>&amp;</b> ${var} %s", "<|eos|><|extra_0|><｜hy_User｜>",
    "$5 (five), \"quoted\" 'text'",
)  # fmt: skip
"""Numbers, spaces, combining marks, markup, and texts of control tokens, which must stay text."""
_VOCABULARY_KEYS = ("model", "pre", "tokens", "merges", "scores")
_SEPARATOR_KEY = "tokenizer.ggml.seperator_token_id"  # the specification's spelling


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the header of a sound file says."""

    architecture: str
    tensor_types: Mapping[str, str]
    """Tensor name -> ggml type name, in file order."""
    tensor_shapes: Mapping[str, tuple[int, ...]]
    """In the order of the checkpoint: rows first."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    """`structure`, `tensors`, `header`, `tokenizer`, `checkpoint`, `numbers` or `translation`."""
    outcome: Outcome
    message: str
    """One line."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Everything that was looked at in one file."""

    path: Path
    model_id: str | None
    """Of the catalog; None when the file's names do not tell."""
    quantization: str
    size_bytes: int
    checks: tuple[Check, ...]
    faults: tuple[Fault, ...] = ()
    """Of the header; `hymt convert repair` repairs those that name changes."""
    translations: tuple[Translation, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether nothing failed."""
        return all(check.outcome != "failed" for check in self.checks)

    @property
    def is_repairable(self) -> bool:
        """Whether a header fault can be repaired."""
        return any(fault.changes for fault in self.faults)

    def table(self) -> dict[str, object]:
        """Return plain data, for JSON."""
        return {
            "path": str(self.path),
            "model": self.model_id,
            "quantization": self.quantization,
            "size_bytes": self.size_bytes,
            "sound": self.is_sound,
            "repairable": self.is_repairable,
            "checks": [
                {"name": check.name, "outcome": check.outcome, "message": check.message} for check in self.checks
            ],
            "translations": [
                {"source_lang": each.source_lang, "target_lang": each.target_lang, "source": each.source}
                | {"target": each.target}
                for each in self.translations
            ],
        }


def read_file_facts(path: Path) -> FileFacts:
    """Read a file's header; every tensor is known to lie inside the file.

    Raises:
        ModelFileError: it is not GGUF, or damaged.
    """
    return _facts(read_header(path))


def check_file(path: Path, *, shapes: Mapping[str, tuple[int, ...]]) -> FileFacts:
    """Check a file made by this converter: what the engine asks of it, and every tensor, shape and special id.

    Raises:
        ModelFileError: with what is wrong.
        UnsupportedModelError: the engine would refuse it.
    """
    header = read_header(path)
    check_supported(header)
    facts = _facts(header)
    if facts.tensor_shapes != dict(shapes):
        odd = sorted(set(facts.tensor_shapes.items()) ^ set(shapes.items()))
        raise ModelFileError(f"{path.name} differs from its checkpoint in tensor {odd[0][0]}")
    end = header.metadata.get("tokenizer.ggml.eos_token_id")
    types = read_array(header, "tokenizer.ggml.token_type")
    if not isinstance(end, int) or types[end] != TokenType.CONTROL:
        raise ModelFileError(f"{path.name} ends its texts with token {end}, which is not a control token")
    if _SEPARATOR_KEY in header.metadata:
        raise ModelFileError(f"{path.name} has a separator token, which loaders append to prompts")
    return facts


def quantization_label(header: GgufHeader) -> str:
    """Return the name of a file's type, those of very few bits too."""
    from hymt_convert.quantize import FILE_TYPES

    file_type = header.metadata.get("general.file_type")
    return next((name for name, number in FILE_TYPES.items() if number == file_type), quantization_of(header))


def read_metadata(path: Path) -> Mapping[str, object]:
    """Return every header key of a file, arrays as lists.

    Raises:
        ModelFileError: it is not GGUF, or damaged.
    """
    return read_header(path, arrays=True).metadata


def verify_file(
    path: Path,
    *,
    spec: ModelSpec | None = None,
    by_name: bool = True,
    catalog: Catalog | None = None,
    checkpoint: Path | None = None,
    run: bool = True,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> VerifyReport:
    """Look at everything in a file that can be told without an unquantized one.

    Args:
        path: The file.
        spec: The model, if it is known.
        by_name: When it is not, ask the catalog by the file's names.
        catalog: That catalog; None for the packaged one.
        checkpoint: The folder that it was converted from: its tokenizer is compared.
        run: Load the file, read all its weights, tokenize and translate with it.
        threads: None for one per core.
        on_progress: Told of what takes long.

    Raises:
        ModelFileError: it is not a whole GGUF file.
    """
    header = read_header(path)
    spec = spec or (identify(header, catalog or load_catalog()) if by_name else None)
    checks = [Check("structure", "ok", f"{len(header.tensors)} tensors inside {header.size_bytes} bytes")]
    faults: tuple[Fault, ...] = ()
    probe: Probe | None = None
    refusal = _refusal(lambda: check_supported(header))
    if refusal is not None:
        checks.append(Check("tensors", "failed", refusal))
    else:
        checks.append(_check_shapes(header, spec))
        faults = find_faults(header, spec)
        checks += _header_checks(faults)
        if run:
            probe, more = _run_checks(header, spec, checkpoint, threads=threads, on_progress=on_progress)
            checks += more
    return VerifyReport(
        path, spec.id if spec else None, quantization_label(header), header.size_bytes,
        tuple(checks), faults, probe.translations if probe else (),
    )  # fmt: skip


def _facts(header: GgufHeader) -> FileFacts:
    from gguf import GGMLQuantizationType

    return FileFacts(
        architecture=header.architecture,
        tensor_types={tensor.name: GGMLQuantizationType(tensor.type_id).name for tensor in header.tensors},
        tensor_shapes={tensor.name: tensor.shape[::-1] for tensor in header.tensors},
        size_bytes=header.size_bytes,
    )


def _refusal(check: Callable[[], object]) -> str | None:
    try:
        check()
    except ModelError as error:
        return error.message
    return None


def _check_shapes(header: GgufHeader, spec: ModelSpec | None) -> Check:
    """Compare the tensors with what the header's own numbers, and the catalog's, make them."""
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    for name, expected in _expected_shapes(header):
        if shapes.get(name, expected) != expected:
            return Check("tensors", "failed", f"{name} has the shape {shapes[name]}, the header says {expected}")
    geometry = spec.geometry if spec else None
    if geometry is not None:
        found = header.of_architecture("block_count"), header.of_architecture("embedding_length")
        if found != (geometry.layers, geometry.hidden):
            wanted = f"{geometry.layers} layers of width {geometry.hidden}"
            return Check(
                "tensors", "failed", f"{wanted} make a {spec.id if spec else ''}, not {found[0]} of {found[1]}"
            )
    n_weights = sum(math.prod(tensor.shape) for tensor in header.tensors)
    return Check("tensors", "ok", f"all tensors of the architecture, {n_weights / 1e9:.3g} billion weights")


def _expected_shapes(header: GgufHeader) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the shapes of the attention, which all architectures share; innermost dimension first."""
    hidden, heads = _number(header, "embedding_length"), _number(header, "attention.head_count")
    kv_heads = _number(header, "attention.head_count_kv") or heads
    dim = _number(header, "attention.key_length") or hidden // heads
    yield "output_norm.weight", (hidden,)
    yield "output.weight", (hidden, len(read_array(header, "tokenizer.ggml.tokens")))
    names = {tensor.name for tensor in header.tensors}
    for block in range(_number(header, "block_count")):
        prefix = f"blk.{block}."
        yield prefix + "attn_q.weight", (hidden, heads * dim)
        yield prefix + "attn_output.weight", (heads * dim, hidden)
        for name in ("attn_q_norm", "attn_k_norm"):
            yield f"{prefix}{name}.weight", (dim,)
        for name in ("attn_k", "attn_v"):
            yield f"{prefix}{name}.weight", (hidden, kv_heads * dim)
        for name in ("attn_norm", "ffn_norm"):
            yield f"{prefix}{name}.weight", (hidden,)
        if prefix + "ffn_gate.weight" in names:  # else it is a layer of experts
            inner = _number(header, "feed_forward_length")
            yield prefix + "ffn_gate.weight", (hidden, inner)
            yield prefix + "ffn_up.weight", (hidden, inner)
            yield prefix + "ffn_down.weight", (inner, hidden)


def _number(header: GgufHeader, name: str) -> int:
    value = header.of_architecture(name)
    return value if isinstance(value, int) else 0


def _header_checks(faults: Sequence[Fault]) -> list[Check]:
    if not faults:
        return [Check("header", "ok", "special ids, splitting and chat template are right")]
    return [Check("header", "failed" if fault.is_grave else "warning", fault.message) for fault in faults]


def _run_checks(
    header: GgufHeader,
    spec: ModelSpec | None,
    checkpoint: Path | None,
    *,
    threads: int | None,
    on_progress: OnProgress | None,
) -> tuple[Probe | None, list[Check]]:
    texts = (*all_texts(), *AWKWARD_TEXTS, CHECK_TEXT)
    try:
        probe = run_isolated(probe_file, header.path, spec, texts, threads=threads, on_step=on_progress)
    except EngineUnavailableError as error:
        return None, [Check("numbers", "skipped", error.message)]
    except (ModelError, EngineError) as error:
        return None, [Check("numbers", "failed", error.message)]
    checks = [
        Check("numbers", "ok", "all weights and predictions are numbers"),
        _check_tokenizer(probe),
        *_check_published(header, spec, probe.token_ids[-1]),
        *(_check_against(checkpoint, header, spec, texts, probe) if checkpoint is not None else ()),
        _check_translations(probe.translations),
    ]
    return probe, checks


def _check_tokenizer(probe: Probe) -> Check:
    if probe.control_texts:
        return Check("tokenizer", "failed", f"plain text becomes control tokens: {probe.control_texts[0]!r}")
    if probe.changed_texts:
        text, back = probe.changed_texts[0]
        return Check("tokenizer", "failed", f"{text[:40]!r} comes back as {back[:40]!r}")
    count = sum(map(len, probe.token_ids))
    return Check("tokenizer", "ok", f"{len(probe.token_ids)} texts in 38 languages come back from their {count} tokens")


def _check_published(header: GgufHeader, spec: ModelSpec | None, token_ids: Sequence[int]) -> Iterator[Check]:
    """Tell whether a known model's vocabulary is the published one; of the toy of a test nothing is known."""
    wanted = CHECKSUMS.get(spec.tokenizer) if spec is not None else None
    if wanted is None or len(read_array(header, "tokenizer.ggml.tokens")) < PUBLISHED_TOKENS:
        return
    if checksum(token_ids) == wanted:
        yield Check("tokenizer", "ok", "it is the published tokenizer, by llama.cpp's checksum")
    else:  # for one of the two, nobody has compared llama.cpp with the original yet
        yield Check("tokenizer", "warning", "it splits llama.cpp's test text unlike the published tokenizer")


def _check_against(
    checkpoint: Path, header: GgufHeader, spec: ModelSpec | None, texts: Sequence[str], probe: Probe
) -> Iterator[Check]:
    """Compare the vocabulary with the checkpoint's, and token ids where its library is installed."""
    from hymt_convert.checkpoint import open_checkpoint
    from hymt_convert.known_models import expected_tokens
    from hymt_convert.vocabulary import read_vocabulary

    try:
        n_tokens = len(read_array(header, "tokenizer.ggml.tokens"))
        expected = expected_tokens(spec) if spec is not None else None
        vocabulary = read_vocabulary(open_checkpoint(checkpoint), vocab_size=n_tokens, expected=expected)
    except ModelError as error:
        yield Check("checkpoint", "failed", error.message)
        return
    wanted = vocabulary.metadata()
    for key in (f"tokenizer.ggml.{name}" for name in _VOCABULARY_KEYS):
        value = wanted.get(key)
        found = read_array(header, key) or header.metadata.get(key)
        if found != (list(value) if isinstance(value, list | tuple) else value):
            yield Check("checkpoint", "failed", f"{key} is not that of the checkpoint")
            return
    yield _check_ids(checkpoint / "tokenizer.json", texts, probe)


def _check_ids(tokenizer_file: Path, texts: Sequence[str], probe: Probe) -> Check:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return Check("checkpoint", "ok", "vocabulary and merges are those of the checkpoint")
    if not tokenizer_file.exists():
        return Check("checkpoint", "ok", "the vocabulary is that of the checkpoint")
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.encode_special_tokens = True  # their texts stay text, as in our prompts
    for text, ids in zip(texts, probe.token_ids, strict=True):
        if tokenizer.encode(text, add_special_tokens=False).ids != list(ids) and _is_normal(tokenizer, text):
            return Check("checkpoint", "failed", f"the checkpoint's own tokenizer splits {text[:40]!r} otherwise")
    return Check("checkpoint", "ok", "the checkpoint's own tokenizer gives the same ids")


def _is_normal(tokenizer: object, text: str) -> bool:
    """Tell whether a tokenizer takes a text as it is; llama.cpp does not normalize, our prompts are normal already."""
    normalizer = getattr(tokenizer, "normalizer", None)
    return normalizer is None or normalizer.normalize_str(text) == text


def _check_translations(translations: Sequence[Translation]) -> Check:
    if not translations:
        return Check("translation", "skipped", "the catalog does not know the model, so there are no prompts for it")
    for each in translations:
        finding = check_output(each.source, each.target, target_lang=each.target_lang)
        if finding is None and not each.is_ended:
            return Check("translation", "warning", f"{each.source!r} has no end: {each.target[:40]!r}")
        if finding is not None:
            return Check("translation", "warning", f"{each.source!r} becomes {each.target[:40]!r}: {finding.message}")
    return Check("translation", "ok", "; ".join(f"{each.source} {each.target}" for each in translations))
