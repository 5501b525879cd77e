"""A checkpoint folder as published on the hub: config.json, safetensors and tokenizer files.

Nothing in it is executed and nothing outside it is read: pickled weights and links that leave the folder are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from hymt_convert.safetensors_file import UNREADABLE, CheckpointTensor, read_tensors
from hymt_local.errors import ModelFileError, UnsupportedModelError

INDEX_NAME = "model.safetensors.index.json"
JSON_LIMIT_BYTES = 256 << 20
"""The largest published tokenizer.json has 16 MB."""
_SNAPSHOTS, _MODELS = "snapshots", "models--"
"""Folders of the hub client's cache: `models--owner--name/snapshots/<revision>`."""
_DOWNLOAD_NOTE = ".cache/huggingface/download/config.json.metadata"
_QUANTIZED_TENSORS = (".qweight", ".weight_packed", ".weight_scale", ".weight_scale_inv")
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened folder: the configuration is read, the tensors are located and checked, no weight is loaded."""

    folder: Path
    config: Mapping[str, object]
    tensors: Mapping[str, CheckpointTensor]

    def read_json(self, name: str) -> Mapping[str, object] | None:
        """Return a JSON table of the folder, None when there is no such file.

        Raises:
            ModelFileError: it is too large, not JSON, not a table, or a link out of the folder.
        """
        return read_json(self.folder, name)

    def read_bytes(self, name: str) -> bytes | None:
        """Return the content of a file of the folder, None when there is no such file (raises like `read_json`)."""
        return read_bytes(self.folder, name)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a checkpoint comes from, as far as that is known."""

    repository: str | None = None
    """`owner/name` on the hub."""
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Split `owner/name@revision`; the revision may be missing."""
        repository, _, revision = text.partition("@")
        return cls(repository, revision or None)

    def __str__(self) -> str:
        return "@".join(filter(None, [self.repository, self.revision]))


def find_origin(folder: Path) -> Origin:
    """Return what is noted of a folder: by our own downloader, or by the hub's client in its cache or elsewhere."""
    from hymt_local.download import read_note  # it brings the whole HTTP machinery along

    folder = folder.resolve()
    note = read_note(folder)
    if note is not None:
        return Origin(note.repo, note.revision or note.asked_revision)
    owner = folder.parent.parent.name
    if folder.parent.name == _SNAPSHOTS and owner.startswith(_MODELS):
        return Origin(owner.removeprefix(_MODELS).replace("--", "/", 1), _revision(folder.name))
    try:
        noted = (folder / _DOWNLOAD_NOTE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return Origin()
    return Origin(None, _revision(noted[0] if noted else ""))


def _revision(text: str) -> str | None:
    return text if re.fullmatch(r"[0-9a-f]{40}", text) else None


def open_checkpoint(folder: Path, *, plain_id: str | None = None) -> Checkpoint:
    """Open a folder.

    Args:
        folder: With config.json, safetensors and tokenizer files.
        plain_id: The repository of the model's unquantized weights, for the hint when these are quantized.

    Raises:
        ModelFileError: a file is missing, damaged or contradicts another.
        UnsupportedModelError: quantized or pickled weights.
    """
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise ModelFileError(
            f"{folder} {what}",
            hint="Give the folder that holds config.json and the safetensors, or the model's id on the hub.",
        )
    config = read_configuration(folder, plain_id=plain_id)
    tensors = _locate_tensors(folder)
    for name, tensor in tensors.items():
        if name.endswith(_QUANTIZED_TENSORS) or tensor.dtype.startswith("F8_"):
            raise _quantized(f"tensor {name}, {tensor.dtype}", plain_id)
    return Checkpoint(folder, config, tensors)


def read_configuration(folder: Path, *, plain_id: str | None = None) -> Mapping[str, object]:
    """Return config.json of a folder that need not have its weights yet (arguments and errors as `open_checkpoint`)."""
    config = read_json(folder, "config.json")
    if config is None:
        raise ModelFileError(f"{folder} has no config.json", hint="Give the folder of a whole checkpoint.")
    for key in ("quantization_config", "compression_config"):
        settings = config.get(key)
        if settings:
            kind = settings.get("quant_method") if isinstance(settings, dict) else None
            raise _quantized(str(kind or f"{key} in config.json"), plain_id)
    if (folder / "hf_quant_config.json").exists():
        raise _quantized("hf_quant_config.json", plain_id)
    return config


def _quantized(how: str, plain_id: str | None) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"the checkpoint is quantized already ({how})",
        hint=f"Convert from the bf16 checkpoint: {plain_id or 'the same id without -fp8, -FP8 or -GPTQ-Int4'}.",
    )


def read_bytes(folder: Path, name: str) -> bytes | None:
    """Return a file's content, None when it is absent.

    Raises:
        ModelFileError: it cannot be read, is too large, or is a link out of the folder.
    """
    path = folder / name
    if not path.is_symlink() and not path.exists():
        return None
    _check_inside(folder, path)
    try:
        if path.stat().st_size > JSON_LIMIT_BYTES:
            raise ModelFileError(f"{name} has {path.stat().st_size} bytes: more than any tokenizer or configuration")
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {name}: {error.strerror or error}", hint=UNREADABLE) from error


def read_json(folder: Path, name: str) -> Mapping[str, object] | None:
    """Return a JSON table, None when the file is absent (raises like `read_bytes`, and when it is not a table)."""
    content = read_bytes(folder, name)
    if content is None:
        return None
    try:
        table = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{name} is not valid JSON: {error}", hint="Download it again.") from error
    if not isinstance(table, dict):
        raise ModelFileError(f"{name} is not a JSON table", hint="Download it again.")
    return cast("Mapping[str, object]", table)


def _check_inside(folder: Path, path: Path) -> None:
    home = folder.resolve()
    places = [home]
    if home.parent.name == _SNAPSHOTS and home.parent.parent.name.startswith(_MODELS):
        places.append(home.parent.parent / "blobs")  # the hub's client keeps the files there and links to them
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:  # Python 3.13 no longer raises for a loop
        raise ModelFileError(f"{path.name} is a link that leads round in a circle") from error
    if not any(target.is_relative_to(place) for place in places):
        raise ModelFileError(
            f"{path.name} is a link that leads out of the checkpoint folder", hint="Copy the files themselves (cp -rL)."
        )
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        raise ModelFileError(f"{path.name} is not a regular file")


def _locate_tensors(folder: Path) -> dict[str, CheckpointTensor]:
    index = read_json(folder, INDEX_NAME)
    names = sorted(path.name for path in folder.glob("*.safetensors")) if index is None else _indexed_files(index)
    if not names:
        _refuse_pickled(folder)
        raise ModelFileError(f"{folder} has no safetensors file", hint="Download the weights too.")
    tensors: dict[str, CheckpointTensor] = {}
    for name in names:
        path = folder / name
        _check_inside(folder, path)
        for tensor in read_tensors(path).values():
            if tensor.name in tensors:
                raise ModelFileError(f"tensor {tensor.name} is in both {tensors[tensor.name].path.name} and {name}")
            tensors[tensor.name] = tensor
    if index is not None:
        _check_index(cast("dict[str, str]", index["weight_map"]), tensors)
    return tensors


def _refuse_pickled(folder: Path) -> None:
    for pattern in PICKLED:
        for path in folder.glob(pattern):
            raise UnsupportedModelError(
                f"{path.name} is a pickle, which can run code when it is read",
                hint="Use a revision of the model that has safetensors.",
            )


def _indexed_files(index: Mapping[str, object]) -> list[str]:
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise ModelFileError(f"{INDEX_NAME} has no weight_map from tensors to files", hint="Download it again.")
    names = sorted(set(weight_map.values()))
    for name in names:
        if name in ("", ".", "..") or Path(name).name != name or "\\" in name or "\0" in name:
            raise ModelFileError(f"{INDEX_NAME} names a file outside the folder: {name!r}")
    return names


def _check_index(weight_map: Mapping[str, str], tensors: Mapping[str, CheckpointTensor]) -> None:
    for name, file_name in weight_map.items():
        if name not in tensors:
            raise ModelFileError(f"tensor {name} is missing in {file_name}", hint="Download that shard again.")
        if tensors[name].path.name != file_name:
            raise ModelFileError(f"tensor {name} is in {tensors[name].path.name}, but {INDEX_NAME} says {file_name}")
    unknown = sorted(set(tensors) - set(weight_map))
    if unknown:
        raise ModelFileError(f"tensor {unknown[0]} of {tensors[unknown[0]].path.name} is not in {INDEX_NAME}")
