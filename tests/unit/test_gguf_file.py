import contextlib
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.engine.gguf_file import BLOCK_SIZES, GgufHeader, SkippedArray, quantization_of, read_array, read_header
from hymt_local.engine.gguf_support import FOREIGN_TYPES, check_supported
from hymt_local.errors import HymtError, ModelFileError, UnsupportedModelError
from tests.toy_models import ToyGeometry, ToyModel, write_toy_model

ARCHITECTURE = "hunyuan-dense"
MOE = ToyModel(architecture="hy_v3")


@pytest.fixture(scope="module")
def toy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_model(tmp_path_factory.mktemp("toy") / "toy.gguf")


def checked(path: Path) -> GgufHeader:
    header = read_header(path)
    check_supported(header)
    return header


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def key_u32(key: str, value: int) -> bytes:
    return string(key) + struct.pack("<II", 4, value)


def changed(toy: Path, folder: Path, old: bytes, new: bytes) -> Path:
    """Replace bytes of the header by as many others."""
    assert len(old) == len(new)
    data = toy.read_bytes()
    assert data.count(old) == 1
    (folder / "changed.gguf").write_bytes(data.replace(old, new))
    return folder / "changed.gguf"


# Reading


def test_a_header_is_read_as_the_gguf_package_reads_it(toy_path: Path) -> None:
    header, reference = checked(toy_path), GGUFReader(toy_path)
    assert header.data_offset == reference.data_offset
    assert [(t.name, t.shape, t.type_id, t.size_bytes) for t in header.tensors] == [
        (t.name, tuple(map(int, t.shape)), int(t.tensor_type), int(t.n_bytes)) for t in reference.tensors
    ]
    assert [header.data_offset + t.offset for t in header.tensors] == [t.data_offset for t in reference.tensors]
    for key, field in reference.fields.items():
        if not key.startswith("GGUF."):
            value = header.metadata[key]
            assert (read_array(header, key) if isinstance(value, SkippedArray) else value) == field.contents()


def test_arrays_are_read_when_asked_for_and_located_otherwise(toy_path: Path) -> None:
    key = "tokenizer.ggml.tokens"
    skipped, whole = read_header(toy_path), read_header(toy_path, arrays=True)
    assert isinstance(skipped.metadata[key], SkippedArray)
    assert whole.metadata[key] == read_array(skipped, key) == read_array(whole, key)
    assert read_array(skipped, "no.such.key") == []
    check_supported(whole)


def test_a_header_beyond_the_first_read_is_read_to_its_end(tmp_path: Path) -> None:
    model = ToyModel(ToyGeometry(n_filler_tokens=120_000))
    header = checked(write_toy_model(tmp_path / "toy.gguf", model))
    assert header.data_offset > 2 << 20
    tokens = read_array(header, "tokenizer.ggml.tokens")
    assert (len(tokens), tokens[-1], tokens[300]) == (120_272, "<|extra_4|>", "~38~")


def test_every_tensor_type_has_the_size_the_gguf_package_gives_it() -> None:
    in_files = {t: size for t, size in GGML_QUANT_SIZES.items() if t.name not in {"Q8_1", "Q8_K"}}
    expected = {t.value: size for t, size in in_files.items() if t.value not in FOREIGN_TYPES}
    assert dict(BLOCK_SIZES) == expected
    assert FOREIGN_TYPES.keys().isdisjoint(BLOCK_SIZES)


@pytest.mark.parametrize("tensor_type", ["F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_quantized_files_are_measured_to_the_byte(tmp_path: Path, tensor_type: str) -> None:
    geometry = ToyGeometry(tensor_type=GGMLQuantizationType[tensor_type])
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel(geometry))
    last = checked(path).tensors[-1]
    assert checked(path).data_offset + last.offset + last.size_bytes <= path.stat().st_size
    os.truncate(path, checked(path).data_offset + last.offset + last.size_bytes - 1)
    with pytest.raises(ModelFileError, match="truncated"):
        read_header(path)


@pytest.mark.parametrize(("file_type", "name"), [(15, "Q4_K_M"), (0, "F32"), (77, "type 77"), (None, "unknown")])
def test_the_quantization_is_named_as_people_name_it(toy_path: Path, file_type: int | None, name: str) -> None:
    metadata = {} if file_type is None else {"general.file_type": file_type}
    assert quantization_of(GgufHeader(toy_path, 3, metadata, (), 0, 0)) == name


# Not a GGUF


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is empty"),
        (b"GG", "not a GGUF"),
        (b"<!DOCTYPE html>\n<html>404</html>", "an HTML page"),
        (b"\xef\xbb\xbf  <html><body>Sign in", "an HTML page"),
        ("Bonjour, ceci est un texte. é".encode(), "a text file"),
        ("火".encode() * 300, "a text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b'\x20\0\0\0\0\0\0\0{"a":{}}', "a safetensors file"),
        (b"PK\x03\x04rest", "a ZIP archive"),
        (b"\x89\x01\x02\x03" * 100, "something else"),
    ],
)
def test_what_is_no_gguf_is_called_what_it_is(tmp_path: Path, data: bytes, what: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=what) as caught:
        read_header(path)
    assert caught.value.hint
    assert "model.gguf" in caught.value.message


def test_a_missing_file_a_directory_and_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    for path, what in (("none.gguf", "there is no file"), (".", "is a directory"), ("pipe.gguf", "not a regular file")):
        with pytest.raises(ModelFileError, match=what):
            read_header(tmp_path / path)
    with pytest.raises(ModelFileError, match="cannot read"):
        read_header(Path("a\0b"))


@pytest.mark.parametrize(
    ("version", "what"), [(1, "version 1"), (2, "version 2"), (4, "version 4"), (0x03000000, "big-endian")]
)
def test_other_versions_are_refused(toy_path: Path, tmp_path: Path, version: int, what: str) -> None:
    path = changed(toy_path, tmp_path, struct.pack("<4sI", b"GGUF", 3), struct.pack("<4sI", b"GGUF", version))
    with pytest.raises(UnsupportedModelError, match=what):
        read_header(path)


# Truncated and corrupt


@pytest.mark.parametrize("kept", [0.001, 0.01, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused_with_both_sizes(toy_path: Path, tmp_path: Path, kept: float) -> None:
    data = toy_path.read_bytes()
    path = tmp_path / "toy.gguf"
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(ModelFileError, match=f"truncated: .*{path.stat().st_size}") as caught:
        read_header(path)
    if kept > 0.1:
        assert str(len(data)) in caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (struct.pack("<IQ", 3, 24), struct.pack("<IQ", 3, 1 << 60), "1152921504606846976 tensors"),
        (struct.pack("<QQ", 24, 21), struct.pack("<QQ", 24, 1 << 40), "1099511627776 keys"),
        (string("general.name"), struct.pack("<Q", 1 << 62) + b"general.name", "a string of 4611686018427387904"),
        (key_u32("general.file_type", 0), string("general.file_type") + struct.pack("<II", 99, 0), "unknown type 99"),
        (key_u32(f"{ARCHITECTURE}.block_count", 2), key_u32(f"{ARCHITECTURE}.block_count", 100_000), "100000 blocks"),
        (string("blk.1.attn_q.weight"), string("blk.0.attn_q.weight"), "two tensors of one name"),
        (string("output_norm.weight") + b"\1", string("output_norm.weight") + b"\0", "0 dimensions"),
        (string("output_norm.weight") + b"\1", string("output_norm.weight") + b"\5", "5 dimensions"),
        (struct.pack("<IQIQ", 1, 64, 0, 69632), struct.pack("<IQIQ", 1, 64, 0, 69632 + 4), "unaligned"),
        (struct.pack("<IQIQ", 1, 64, 0, 69632), struct.pack("<IQIQ", 1, 64, 0, 1 << 40), "inside another|truncated"),
        (struct.pack("<IQIQ", 1, 64, 0, 69632), struct.pack("<IQIQ", 1, 64, 0, 0), "inside another"),
        (struct.pack("<IQIQ", 1, 64, 0, 69632), struct.pack("<IQIQ", 1, 0, 0, 69632), "of shape"),
        (struct.pack("<IQIQ", 1, 64, 0, 69632), struct.pack("<IQIQ", 1, 1 << 63, 0, 69632), "of shape"),
        (struct.pack("<IQIQ", 1, 64, 0, 69632), struct.pack("<IQIQ", 1, 64, 12, 69632), "blocks of 256"),
    ],
)
def test_a_corrupt_header_is_refused(toy_path: Path, tmp_path: Path, old: bytes, new: bytes, what: str) -> None:
    path = changed(toy_path, tmp_path, old, new)
    with pytest.raises(ModelFileError, match=what):
        read_header(path)


def test_a_key_that_comes_twice_is_refused(tmp_path: Path) -> None:
    keys = key_u32("general.alignment", 32) * 2
    (tmp_path / "toy.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + keys + bytes(64))
    with pytest.raises(ModelFileError, match=r"'general\.alignment' twice"):
        read_header(tmp_path / "toy.gguf")


@pytest.mark.parametrize("alignment", [0, 4, 33, 1 << 31])
def test_an_alignment_that_llama_cpp_dies_of_is_refused(tmp_path: Path, alignment: int) -> None:
    key = key_u32("general.alignment", alignment)
    (tmp_path / "toy.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + bytes(64))
    with pytest.raises(ModelFileError, match=f"an alignment of {alignment}"):
        read_header(tmp_path / "toy.gguf")


def test_a_string_array_that_runs_past_the_end_is_refused(toy_path: Path, tmp_path: Path) -> None:
    tokens = read_header(toy_path).metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, SkippedArray)
    data = bytearray(toy_path.read_bytes())
    for length in (1 << 62, (1 << 64) - 1, len(data)):
        data[tokens.position : tokens.position + 8] = struct.pack("<Q", length)
        (tmp_path / "toy.gguf").write_bytes(data)
        for arrays in (True, False):
            with pytest.raises(ModelFileError, match=r"truncated|corrupt"):
                read_header(tmp_path / "toy.gguf", arrays=arrays)


# Sound files that this program cannot run


def with_keys(folder: Path, changes: dict[str, object], model: ToyModel | None = None) -> GgufHeader:
    """Return a toy's header with other metadata; None removes a key."""
    header = read_header(write_toy_model(folder / "toy.gguf", model))
    metadata = {**header.metadata, **{key.replace("*", ARCHITECTURE): value for key, value in changes.items()}}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    return GgufHeader(header.path, 3, metadata, header.tensors, header.data_offset, header.size_bytes)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"general.architecture": "llama"}, "architecture 'llama'; this program runs hunyuan-dense and hy_v3"),
        ({"general.architecture": None}, "no architecture"),
        ({"general.type": "adapter"}, "of type 'adapter'"),
        ({"split.count": 3}, "one of 3 parts"),
        ({"tokenizer.ggml.model": None}, "no tokenizer"),
        ({"tokenizer.ggml.tokens": None}, "no tokenizer"),
        ({"tokenizer.ggml.tokens": []}, "no tokenizer"),
        ({"tokenizer.ggml.model": "bert"}, "kind 'bert'"),
        ({"tokenizer.ggml.model": "llama"}, "SentencePiece vocabulary without <0x00>"),
        ({"*.rope.scaling.type": "su"}, "positions by 'su'"),
        ({"*.rope.dimension_sections": [16, 8, 8, 0]}, "a vision model"),
        ({"*.attention.causal": False}, "does not generate text"),
        ({"*.expert_group_count": 1}, "groups its experts"),
    ],
)
def test_what_this_program_cannot_run_is_named(tmp_path: Path, changes: dict[str, object], what: str) -> None:
    with pytest.raises(UnsupportedModelError, match=what):
        check_supported(with_keys(tmp_path, changes))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        *[
            ({f"*.{key}": value}, key)
            for key in ("block_count", "context_length", "embedding_length", "feed_forward_length")
            for value in (None, 0, -1, "2", 2.5, True, 1 << 31)
        ],
        ({"*.attention.head_count": None}, "head_count = None"),
        ({"*.attention.head_count": [2, 2]}, "head_count = "),
        ({"*.attention.head_count_kv": 0}, "head_count_kv = 0"),
        ({"*.attention.head_count_kv": 3}, "2 heads for 3 key-value heads"),
        ({"*.attention.layer_norm_rms_epsilon": None}, "epsilon = None"),
        ({"*.attention.layer_norm_rms_epsilon": -1e-5}, "epsilon = -1e-05"),
        ({"*.attention.layer_norm_rms_epsilon": float("nan")}, "epsilon = nan"),
        ({"*.attention.value_length": 64}, "value_length 64"),
        ({"*.rope.dimension_count": 16}, "rope.dimension_count 16"),
        ({"*.expert_count": 8, "*.expert_used_count": 2}, "2 of 8 experts"),
        ({"*.nextn_predict_layers": 3}, "prediction layers"),
        ({"tokenizer.ggml.merges": None}, "no tokenizer.ggml.merges"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "2 token types for 272 tokens"),
        ({"tokenizer.ggml.tokens": ["a"] * 272}, "a token twice"),
        ({"tokenizer.ggml.tokens": [f"a\0{index}" for index in range(272)]}, "a token twice"),
        ({"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": None}, r"shape \(64, 272\), not \(64, 2\)"),
    ],
)
def test_keys_that_llama_cpp_fails_on_or_dies_of_are_named(
    tmp_path: Path, changes: dict[str, object], what: str
) -> None:
    with pytest.raises(ModelFileError, match=what):
        check_supported(with_keys(tmp_path, changes))


@pytest.mark.parametrize("expert_count", [0, 1, 513])
def test_a_mixture_of_experts_needs_a_possible_number_of_them(tmp_path: Path, expert_count: int) -> None:
    changes: dict[str, object] = {"hy_v3.expert_count": expert_count}
    with pytest.raises(ModelFileError, match=f"2 of {expert_count} experts"):
        check_supported(with_keys(tmp_path, changes, MOE))


@pytest.mark.parametrize("part", ["ffn_gate_inp", "ffn_up_exps", "ffn_down_exps", "ffn_gate_shexp", "attn_q_norm"])
def test_a_mixture_of_experts_needs_all_its_tensors(tmp_path: Path, part: str) -> None:
    checked(write_toy_model(tmp_path / "toy.gguf", MOE))
    model = ToyModel(architecture="hy_v3", skipped_tensors=frozenset({f"blk.1.{part}.weight"}))
    missing = "ffn_gate" if part == "ffn_gate_inp" else part
    with pytest.raises(ModelFileError, match=f"no tensor blk.1.{missing}.weight"):
        checked(write_toy_model(tmp_path / "toy.gguf", model))


def test_blocks_that_only_predict_ahead_may_be_missing(tmp_path: Path) -> None:
    skipped = {f"blk.1.{part}.weight" for part in ("attn_norm", "ffn_gate_inp")}
    model = ToyModel(architecture="hy_v3", skipped_tensors=frozenset(skipped))
    check_supported(with_keys(tmp_path, {"hy_v3.nextn_predict_layers": 1}, model))
    with pytest.raises(ModelFileError, match="2 prediction layers"):
        check_supported(with_keys(tmp_path, {"hy_v3.nextn_predict_layers": 2}, model))


@pytest.mark.parametrize(
    "tensor", ["token_embd", "output_norm", "blk.1.attn_q_norm", "blk.0.attn_k", "blk.1.ffn_down", "blk.0.ffn_norm"]
)
def test_a_missing_tensor_is_named(tmp_path: Path, tensor: str) -> None:
    model = ToyModel(skipped_tensors=frozenset({f"{tensor}.weight"}))
    with pytest.raises(ModelFileError, match=f"no tensor {tensor}.weight"):
        checked(write_toy_model(tmp_path / "toy.gguf", model))


@pytest.mark.parametrize(
    ("name", "type_id", "what"),
    [
        ("blk.0.attn_q.weight", 42, "type 42: STQ1_0, the 1.25-bit format of Hy-MT2-1.8B-1.25Bit"),
        ("blk.0.attn_q.weight", 40, "type 40: Q2_0C, the 2-bit format of Hy-MT2-1.8B-2Bit"),
        ("blk.0.attn_q.weight", 99, "type 99: a kind this program cannot compute with"),
        ("blk.0.attn_q.weight", 26, "type 26"),
        ("blk.0.attn_norm.weight", 1, "type 1"),
    ],
)
def test_tensor_types_that_cannot_be_computed_with_are_named(
    toy_path: Path, tmp_path: Path, name: str, type_id: int, what: str
) -> None:
    data = bytearray(toy_path.read_bytes())
    n_dimensions = 1 if "norm" in name else 2
    position = data.index(string(name)) + len(string(name)) + 4 + 8 * n_dimensions
    data[position : position + 4] = struct.pack("<I", type_id)
    (tmp_path / "toy.gguf").write_bytes(data)
    header = read_header(tmp_path / "toy.gguf")
    with pytest.raises(UnsupportedModelError, match=what) as caught:
        check_supported(header)
    assert name in caught.value.message
    assert "Q4_K_M" in caught.value.hint


# Laws


@pytest.fixture(scope="module")
def try_bytes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], None]:
    path = tmp_path_factory.mktemp("laws") / "toy.gguf"

    def attempt(data: bytes) -> None:
        path.write_bytes(data)
        for arrays in (False, True):
            with contextlib.suppress(HymtError):
                check_supported(read_header(path, arrays=arrays))

    return attempt


@given(share=st.floats(0, 1), is_in_header=st.booleans())
def test_a_file_cut_anywhere_is_refused(
    toy_path: Path, tmp_path_factory: pytest.TempPathFactory, share: float, is_in_header: bool
) -> None:
    data = toy_path.read_bytes()
    n_whole = read_header(toy_path).data_offset if is_in_header else len(data) - 1
    path = tmp_path_factory.getbasetemp() / "cut.gguf"
    path.write_bytes(data[: int(share * n_whole)])
    with pytest.raises(ModelFileError):
        checked(path)


@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_header_with_any_bytes_changed_raises_nothing_but_our_errors_and_soon(
    toy_path: Path, try_bytes: Callable[[bytes], None], flips: list[tuple[float, int]]
) -> None:
    data = bytearray(toy_path.read_bytes())
    n_header = read_header(toy_path).data_offset
    for share, value in flips:
        data[int(share * n_header)] = value
    started = time.process_time()
    try_bytes(bytes(data))
    assert time.process_time() - started < 1


@given(st.binary(max_size=200))
def test_random_bytes_after_the_magic_raise_nothing_but_our_errors(
    try_bytes: Callable[[bytes], None], data: bytes
) -> None:
    try_bytes(b"GGUF" + struct.pack("<I", 3) + data)
