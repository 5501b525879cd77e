"""Looks at finished GGUF files: their structure, and what llama.cpp makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hymt_convert.reference_model import ReferenceModel as ReferenceModel
from hymt_convert.vocabulary import TokenType
from hymt_local.engine.gguf_file import GgufHeader, check_supported, read_array, read_header
from hymt_local.errors import ModelFileError

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


def read_metadata(path: Path) -> Mapping[str, object]:
    """Return every header key of a file, arrays as lists.

    Raises:
        ModelFileError: it is not GGUF, or damaged.
    """
    return read_header(path, arrays=True).metadata


def _facts(header: GgufHeader) -> FileFacts:
    from gguf import GGMLQuantizationType

    return FileFacts(
        architecture=header.architecture,
        tensor_types={tensor.name: GGMLQuantizationType(tensor.type_id).name for tensor in header.tensors},
        tensor_shapes={tensor.name: tensor.shape[::-1] for tensor in header.tensors},
        size_bytes=header.size_bytes,
    )
