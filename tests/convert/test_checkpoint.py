"""Reading a checkpoint folder: what is sound opens, everything else is refused with one clear error."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_convert.checkpoint import INDEX_NAME, open_checkpoint
from hymt_convert.safetensors_file import BLOCK_BYTES, read_tensors
from hymt_local.errors import ModelError, ModelFileError, UnsupportedModelError
from tests.convert import toy_checkpoint as toy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.write_checkpoint(tmp_path / "toy")
    return tmp_path / "toy"


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_values_come_back_in_blocks(tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hymt_convert.safetensors_file.BLOCK_BYTES", 64)
    value = np.random.default_rng(0).integers(-100, 100, (7, 13)).astype(np.float32)  # exact in all three types
    toy.write_safetensors(tmp_path / "a.safetensors", {"other": value + 1, "x": value}, dtype=dtype)
    tensor = read_tensors(tmp_path / "a.safetensors")["x"]
    blocks = list(tensor.blocks())
    assert len(blocks) > 1
    assert np.array_equal(np.concatenate(blocks).reshape(tensor.shape), value)


def test_blocks_hold_whole_elements() -> None:
    assert BLOCK_BYTES % 8 == 0


def test_shards_without_an_index_are_joined(folder: Path) -> None:
    weights = toy.random_weights(toy.Shape())
    toy.split_into_shards(folder, weights, ["b.safetensors", "model-0001-of-0002.safetensors"], dtype="F32")
    (folder / INDEX_NAME).unlink()
    assert open_checkpoint(folder).tensors.keys() == weights.keys()


def _truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])


def _empty_shard(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def _header_bomb(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes((1 << 62).to_bytes(8, "little") + path.read_bytes()[8:])


def _deep_header(folder: Path) -> None:
    text = b'{"a":' * 50_000
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)


def _index_outside(folder: Path) -> None:
    toy.write_json(folder / INDEX_NAME, {"weight_map": {"x": "../other.safetensors"}})


def _index_missing_file(folder: Path) -> None:
    toy.write_json(folder / INDEX_NAME, {"weight_map": {"x": "model-00002.safetensors"}})


def _index_missing_tensor(folder: Path) -> None:
    names = read_tensors(folder / "model.safetensors")
    toy.write_json(folder / INDEX_NAME, {"weight_map": dict.fromkeys([*names, "model.extra"], "model.safetensors")})


def _index_forgets_tensor(folder: Path) -> None:
    names = sorted(read_tensors(folder / "model.safetensors"))
    toy.write_json(folder / INDEX_NAME, {"weight_map": dict.fromkeys(names[1:], "model.safetensors")})


def _duplicate_tensor(folder: Path) -> None:
    toy.write_safetensors(folder / "more.safetensors", {"model.norm.weight": np.ones(3, dtype=np.float32)})


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _quantized(folder: Path) -> None:
    toy.edit_json(folder / "config.json", quantization_config={"quant_method": "compressed-tensors"})


def _no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def _config_no_json(folder: Path) -> None:
    (folder / "config.json").write_text("<html>")


def _link_outside(folder: Path) -> None:
    target = folder.parent / "elsewhere.safetensors"
    (folder / "model.safetensors").rename(target)
    (folder / "model.safetensors").symlink_to(target)


def _dangling_link(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "nowhere")


def _pipe_for_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")


def _folder_for_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()


DAMAGE: list[tuple[Callable[[Path], None], type[ModelError], str]] = [
    (_truncate, ModelFileError, "model.safetensors is truncated: tensor"),
    (_empty_shard, ModelFileError, "model.safetensors holds 0 bytes"),
    (_header_bomb, ModelFileError, "claims a header of 4611686018427387904 bytes"),
    (_deep_header, ModelFileError, "header of model.safetensors is not valid"),
    (_index_outside, ModelFileError, "outside the folder: '../other.safetensors'"),
    (_index_missing_file, ModelFileError, "cannot read model-00002.safetensors"),
    (_index_missing_tensor, ModelFileError, "model.extra is missing in model.safetensors"),
    (_index_forgets_tensor, ModelFileError, "is not in model.safetensors.index.json"),
    (_duplicate_tensor, ModelFileError, "model.norm.weight is in both"),
    (_pickled, UnsupportedModelError, "pytorch_model.bin is a pickle"),
    (_no_weights, ModelFileError, "has no safetensors file"),
    (_quantized, UnsupportedModelError, "quantized already \\(compressed-tensors\\)"),
    (_no_config, ModelFileError, "has no config.json"),
    (_config_no_json, ModelFileError, "config.json is not valid JSON"),
    (_link_outside, ModelFileError, "model.safetensors is a link that leads out"),
    (_pipe_for_weights, ModelFileError, "model.safetensors is not a regular file"),
    (_folder_for_config, ModelFileError, "config.json is not a regular file"),
    (_dangling_link, ModelFileError, "cannot read model.safetensors"),
]


@pytest.mark.parametrize(("damage", "error", "message"), DAMAGE, ids=[case[0].__name__[1:] for case in DAMAGE])
def test_a_damaged_folder_is_refused_by_name(
    folder: Path, damage: Callable[[Path], None], error: type[ModelError], message: str
) -> None:
    damage(folder)
    with pytest.raises(error, match=message):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["missing", "toy/config.json"])
def test_a_source_that_is_no_folder_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match=r"does not exist|is a file"):
        open_checkpoint(folder.parent / name)


def _entry(begin: int, end: int, **changes: object) -> dict[str, object]:
    return {"dtype": "F32", "shape": [(end - begin) // 4], "data_offsets": [begin, end], **changes}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": _entry(0, 8), "b": _entry(4, 12)}, "a and b overlap"),
        ({"a": _entry(0, 8, shape=[3])}, "takes 8 bytes, but F32 \\[3\\] needs 12"),
        ({"a": _entry(0, 8, shape=[-2])}, "impossible shape"),
        ({"a": _entry(0, 8, shape=[True, 2])}, "impossible shape"),
        ({"a": _entry(0, 8, shape=[1] * 9)}, "impossible shape"),
        ({"a": _entry(8, 0, shape=[2])}, "impossible offsets"),
        ({"a": _entry(0, 8, data_offsets=[0, 1 << 70])}, "takes .* bytes"),
        ({"a": _entry(1 << 40, (1 << 40) + 8)}, "is truncated"),
        ({"a": _entry(0, 8, dtype="F33")}, "unknown element type 'F33'"),
        ({"a": 3}, "unknown element type None"),
        ([], "is not a table"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: object, message: str) -> None:
    toy.write_raw_safetensors(tmp_path / "a.safetensors", header, bytes(12))
    with pytest.raises(ModelFileError, match=message):
        read_tensors(tmp_path / "a.safetensors")


def test_a_tensor_named_twice_is_refused(tmp_path: Path) -> None:
    text = f'{{"a": {json.dumps(_entry(0, 8))}, "a": {json.dumps(_entry(0, 8))}}}'.encode()
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(ModelFileError, match="duplicate name 'a'"):
        read_tensors(tmp_path / "a.safetensors")


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I8", "F64"])
def test_other_element_types_are_refused_when_read(tmp_path: Path, dtype: str) -> None:
    header = {"a": {"dtype": dtype, "shape": [0], "data_offsets": [0, 0]}}
    toy.write_raw_safetensors(tmp_path / "a.safetensors", header, b"")
    with pytest.raises(UnsupportedModelError, match=f"tensor a in a.safetensors is {dtype}"):
        list(read_tensors(tmp_path / "a.safetensors")["a"].blocks())


def test_a_file_that_shrinks_while_it_is_read_is_an_error(folder: Path) -> None:
    tensor = open_checkpoint(folder).tensors["model.embed_tokens.weight"]
    tensor.path.write_bytes(tensor.path.read_bytes()[: tensor.offset + 10])
    with pytest.raises(ModelFileError, match=r"ended inside tensor model.embed_tokens.weight"):
        list(tensor.blocks())


@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_hold_sound_tensors(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "arbitrary.safetensors"
    path.write_bytes(data)
    try:
        tensors = read_tensors(path)
    except ModelFileError:
        return
    assert all(tensor.offset + tensor.size_bytes <= len(data) for tensor in tensors.values())
