"""A checkpoint that the catalog knows: identified by more than its name, checked against it, and licensed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hymt_convert.architectures import get_architecture
from hymt_convert.checkpoint import INDEX_NAME, Origin, find_origin, open_checkpoint
from hymt_convert.conversion import ConversionPlan, ConversionRequest, convert, plan_conversion
from hymt_convert.known_models import expected_tokens, find_by_name, identify, names_quantized_weights
from hymt_convert.verify import read_metadata
from hymt_local.catalog import Catalog, Geometry, ModelSpec, load_catalog
from hymt_local.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError, UsageError
from tests.convert import toy_checkpoint as toy

REVISION = "0123456789abcdef0123456789abcdef01234567"


def toy_catalog(**changes: Any) -> Catalog:
    """The packaged catalog, in which Hunyuan-MT-7B has the sizes and ids of the toy."""
    packaged = load_catalog()
    spec = msgspec.structs.replace(
        packaged.get("Hunyuan-MT-7B"),
        geometry=Geometry(layers=2, hidden=64, kv_heads=2, head_dim=32, vocab=toy.VOCAB_SIZE),
        control_ids={text: toy.BOS + number for number, text in enumerate(toy.CONTROL_TOKENS)},
    )
    spec = msgspec.structs.replace(spec, **changes)
    return Catalog(tuple(spec if known.id == spec.id else known for known in packaged.models))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.write_checkpoint(tmp_path / "Hunyuan-MT-7B")
    return tmp_path / "Hunyuan-MT-7B"


def request(folder: Path, **changes: Any) -> ConversionRequest:
    return replace(ConversionRequest(folder, folder.parent / "out", ("F16",), catalog=toy_catalog()), **changes)


def plan(folder: Path, **changes: Any) -> ConversionPlan:
    return plan_conversion(request(folder, **changes))


def spec_of(made: ConversionPlan) -> ModelSpec | None:
    return made.identity.spec


def test_a_folder_of_the_right_name_and_sizes_is_the_known_model(folder: Path) -> None:
    known = spec_of(plan(folder))
    assert known is not None
    assert known.id == "Hunyuan-MT-7B"


def test_a_folder_of_the_right_name_and_other_sizes_is_not(folder: Path) -> None:
    made = plan(folder, catalog=load_catalog())
    assert spec_of(made) is None
    assert made.warnings == ("it is called like Hunyuan-MT-7B, but is another model: its block_count is 2, not 32",)


@pytest.mark.parametrize("claim", [{"as_id": "Hunyuan-MT-7B"}, {"source_id": "tencent/Hunyuan-MT-7B@main"}])
def test_what_must_be_the_known_model_and_is_not_is_refused(folder: Path, claim: dict[str, str]) -> None:
    with pytest.raises(ModelFileError, match="is not Hunyuan-MT-7B: its block_count is 2, not 32"):
        plan(folder, catalog=load_catalog(), **claim)


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ({"as_id": "hunyuan-mt-7b"}, "Hunyuan-MT-7B"),
        ({"source_id": "Tencent/hunyuan-mt-7b"}, "Hunyuan-MT-7B"),
        ({"name": "hunyuan_mt_7b-mine"}, "Hunyuan-MT-7B"),
        ({}, None),
    ],
)
def test_what_tells_the_model(folder: Path, claim: dict[str, str], expected: str | None) -> None:
    renamed = folder.rename(folder.parent / "weights")
    known = spec_of(plan(renamed, **claim))
    assert (known.id if known else None) == expected


def test_as_none_means_no_known_model(folder: Path) -> None:
    assert spec_of(plan(folder, as_id="none")) is None


def test_an_unknown_id_is_refused(folder: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="unknown model 'Hunyuan-MT-8B'"):
        plan(folder, as_id="Hunyuan-MT-8B")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dim": 64}, "its attention.key_length is 32, not 64"),
        ({"kv_heads": 4}, "its attention.head_count_kv is 2, not 4"),
        ({"hidden": 96}, "its embedding_length is 64, not 96"),
        ({"vocab": toy.VOCAB_SIZE + 1}, f"its vocabulary has {toy.VOCAB_SIZE} tokens, not {toy.VOCAB_SIZE + 1}"),
    ],
)
def test_every_size_counts(folder: Path, changes: dict[str, int], message: str) -> None:
    geometry = Geometry(**{"layers": 2, "hidden": 64, "kv_heads": 2, "head_dim": 32, "vocab": 265, **changes})
    with pytest.raises(ModelFileError, match=message):
        plan(folder, as_id="Hunyuan-MT-7B", catalog=toy_catalog(geometry=geometry))


def test_another_architecture_is_another_model(folder: Path) -> None:
    with pytest.raises(ModelFileError, match="its architecture is hunyuan-dense, not hy_v3"):
        plan(folder, as_id="Hy-MT2-30B-A3B")


def test_rows_of_padding_are_no_difference(tmp_path: Path) -> None:
    toy.write_checkpoint(tmp_path / "toy", toy.Shape(vocab_size=toy.VOCAB_SIZE + 89))
    assert spec_of(plan(tmp_path / "toy", as_id="Hunyuan-MT-7B")) is not None


def _edit(folder: Path, name: str, **changes: object) -> None:
    if not (folder / name).exists():
        toy.write_json(folder / name, {})
    toy.edit_json(folder / name, **changes)


CONTRADICTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("tokenizer_config.json", {"bos_token": "<|extra_0|>"}, r"BOS token is 262 '<\|extra_0\|>', that of Hunyuan-MT-7B"),
    ("tokenizer_config.json", {"eos_token": "<|extra_0|>"}, r"EOS token is 262 .* is '<\|eos\|>'"),
    ("tokenizer_config.json", {"pad_token": "<|eos|>"}, r"PADDING token is 263"),
]


@pytest.mark.parametrize(("name", "changes", "message"), CONTRADICTIONS)
def test_special_tokens_other_than_the_models_are_refused(
    folder: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    _edit(folder, name, **changes)
    with pytest.raises(ModelFileError, match=message):
        plan(folder)
    assert plan(folder, as_id="none").vocabulary.special_ids


@pytest.mark.parametrize("missing", ["tokenizer_config.json", "bos_token", "eos_token", "pad_token"])
def test_special_tokens_that_no_file_names_are_those_of_the_model(folder: Path, missing: str) -> None:
    if missing.endswith(".json"):
        (folder / missing).unlink()
    else:
        toy.edit_json(folder / "tokenizer_config.json", **{missing: ...})
    assert plan(folder).vocabulary.special_ids == {"bos": toy.BOS, "eos": toy.EOS, "padding": toy.PAD}


@pytest.mark.parametrize("decoy", [{"bos_token_id": 1}, {"pad_token_id": 0}, {"eos_token_id": toy.TURN_END}])
def test_wrong_ids_of_generation_config_are_ignored_with_a_warning(folder: Path, decoy: dict[str, int]) -> None:
    _edit(folder, "generation_config.json", **decoy)
    made = plan(folder)
    assert {name: made.vocabulary.special_ids[name] for name in ("bos", "eos", "padding")} == {
        "bos": toy.BOS,
        "eos": toy.EOS,
        "padding": toy.PAD,
    }
    assert [warning for warning in made.warnings if "generation_config.json says" in warning]


def test_the_eod_token_of_published_files_is_never_the_end(folder: Path) -> None:
    toy.edit_json(folder / "config.json", eod_token_id=3)
    path = convert(request(folder)).files[0].path
    assert read_metadata(path)["tokenizer.ggml.eos_token_id"] == toy.EOS


def test_control_tokens_at_other_ids_are_refused(folder: Path) -> None:
    catalog = toy_catalog(control_ids={"<|eos|>": toy.PAD})
    with pytest.raises(ModelFileError, match=r"'<\|pad\|>' at the id 264, Hunyuan-MT-7B has the control token"):
        plan(folder, catalog=catalog)


def test_a_vocabulary_without_the_models_tokens_is_refused(folder: Path) -> None:
    catalog = toy_catalog(control_ids={}, stop_tokens=("<|stop|>",))
    with pytest.raises(ModelFileError, match=r"no control token '<\|stop\|>', the EOS token of Hunyuan-MT-7B"):
        plan(folder, catalog=catalog)


@pytest.mark.parametrize("spec", [spec for spec in load_catalog().models if spec.kind == "translation"])
def test_the_expected_tokens_of_every_model_have_their_ids_in_the_catalog(spec: ModelSpec) -> None:
    expected = expected_tokens(spec)
    assert expected.texts.keys() == {"bos", "eos", "padding"}
    for texts in expected.texts.values():
        assert set(texts) & spec.control_ids.keys()


LICENCE_KEYS = (
    "general.license", "general.license.name", "general.license.link", "general.license.note",
    "general.license.territory_excluded",
)  # fmt: skip


def test_licence_and_territory_are_in_the_header(folder: Path) -> None:
    path = convert(request(folder, source_id=f"tencent/Hunyuan-MT-7B@{REVISION}")).files[0].path
    header = read_metadata(path)
    assert header["general.license"] == "Tencent-Hunyuan-Community"
    assert header["general.license.territory_excluded"] == ["EU", "GB", "KR"]
    assert "Not licensed in the European Union" in str(header["general.license.note"])
    assert str(header["general.license.link"]).endswith("License.txt")
    assert header["general.name"] == "Hunyuan-MT-7B"
    assert header["general.source.id"] == "tencent/Hunyuan-MT-7B"
    assert header["general.source.revision"] == REVISION
    assert "(modified: names and number formats of the tensors)" in str(header["general.description"])


def test_a_permissive_licence_has_no_territory(folder: Path) -> None:
    licence = load_catalog().get("Hy-MT2-7B").licence
    path = convert(request(folder, catalog=toy_catalog(licence=licence))).files[0].path
    header = read_metadata(path)
    assert [key for key in LICENCE_KEYS if key in header] == list(LICENCE_KEYS[:3])


def test_a_licence_that_is_given_wins(folder: Path) -> None:
    path = convert(request(folder, licence="CC0-1.0")).files[0].path
    assert read_metadata(path)["general.license"] == "CC0-1.0"


def test_a_template_that_is_missing_is_the_familys(folder: Path) -> None:
    toy.edit_json(folder / "tokenizer_config.json", chat_template=...)
    made = plan(folder)
    assert "<|extra_0|>" in (made.vocabulary.chat_template or "")
    assert made.warnings == ("the checkpoint has no chat template: that of Hunyuan-MT-7B is written",)


def test_a_template_of_another_family_is_replaced(folder: Path) -> None:
    toy.edit_json(folder / "tokenizer_config.json", chat_template="{{ messages }}")
    made = plan(folder)
    assert "<|extra_0|>" in (made.vocabulary.chat_template or "")
    assert "lacks <|extra_0|>" in made.warnings[0]


def test_the_models_own_template_is_kept(folder: Path) -> None:
    own = "{{ bos_token }}{{ messages[0].content }}<|extra_0|>"
    toy.edit_json(folder / "tokenizer_config.json", chat_template=own)
    made = plan(folder)
    assert made.vocabulary.chat_template == own
    assert made.warnings == ()


def test_an_unknown_model_without_a_template_is_warned_of(folder: Path) -> None:
    toy.edit_json(folder / "tokenizer_config.json", chat_template=...)
    made = plan(folder, as_id="none")
    assert made.vocabulary.chat_template is None
    assert made.warnings == ("the checkpoint has no chat template: other programs may fail",)


QUANTIZED: list[tuple[Callable[[Path], None], str]] = [
    (lambda f: _edit(f, "config.json", quantization_config={"quant_method": "fp8"}), "fp8"),
    (lambda f: _edit(f, "config.json", quantization_config={"quant_method": "gptq", "bits": 4}), "gptq"),
    (lambda f: _edit(f, "config.json", compression_config={"format": "x"}), "compression_config in config.json"),
    (lambda f: _edit(f, "hf_quant_config.json"), "hf_quant_config.json"),
    (lambda f: _add_tensor(f, "model.layers.0.mlp.up_proj.qweight"), "tensor model.layers.0.mlp.up_proj.qweight, F32"),
    (lambda f: _add_tensor(f, "model.layers.0.mlp.up_proj.weight_scale"), "mlp.up_proj.weight_scale, F32"),
    (lambda f: _add_tensor(f, "x", dtype="F8_E4M3"), "tensor x, F8_E4M3"),
]


def _add_tensor(folder: Path, name: str, *, dtype: str = "F32") -> None:
    header = {name: {"dtype": dtype, "shape": [4], "data_offsets": [0, 4 if dtype.startswith("F8") else 16]}}
    toy.write_raw_safetensors(folder / "more.safetensors", header, bytes(16))


@pytest.mark.parametrize(("quantize", "message"), QUANTIZED, ids=[case[1] for case in QUANTIZED])
@pytest.mark.parametrize("name", ["Hunyuan-MT-7B-fp8", "hymt-gptq"])
def test_quantized_weights_are_refused_with_the_id_of_the_plain_ones(
    folder: Path, name: str, quantize: Callable[[Path], None], message: str
) -> None:
    folder = folder.rename(folder.parent / name)
    quantize(folder)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        plan(folder)
    known = "tencent/Hunyuan-MT-7B." if name.startswith("Hunyuan") else "without -fp8"
    assert known in caught.value.hint


@pytest.mark.parametrize(
    ("name", "is_quantized"),
    [
        ("tencent/Hunyuan-MT-7B", False),
        ("tencent/Hunyuan-MT-7B-fp8", True),
        ("tencent/HY-MT1.5-1.8B-FP8", True),
        ("tencent/HY-MT1.5-1.8B-GPTQ-Int4", True),
        ("someone/Hy-MT2-7B-w4a16", True),
        ("someone/Hy-MT2-7B_AWQ", True),
    ],
)
def test_a_repository_name_tells_of_quantized_weights(name: str, is_quantized: bool) -> None:
    assert names_quantized_weights(name) is is_quantized


def test_every_published_quantized_checkpoint_leads_to_its_plain_one() -> None:
    catalog = load_catalog()
    for spec in catalog.models:
        if spec.repo is not None and spec.kind == "translation":
            for suffix in ("-fp8", "-FP8", "-GPTQ-Int4"):
                assert find_by_name(catalog, [spec.repo + suffix]) == spec


def _snapshot(folder: Path) -> Path:
    """The layout of the hub client's cache: links into a folder of blobs."""
    home = folder.parent / "models--tencent--Hunyuan-MT-7B"
    (home / "snapshots" / REVISION).mkdir(parents=True)
    (home / "blobs").mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(home / "blobs" / f"blob{number}")
        (home / "snapshots" / REVISION / path.name).symlink_to(f"../../blobs/blob{number}")
    return home / "snapshots" / REVISION


def test_a_folder_in_the_hub_clients_cache_converts_and_tells_its_origin(folder: Path) -> None:
    snapshot = _snapshot(folder)
    made = plan(snapshot)
    assert made.origin == Origin("tencent/Hunyuan-MT-7B", REVISION)
    assert made.name == "Hunyuan-MT-7B"
    header = read_metadata(convert(request(snapshot)).files[0].path)
    assert header["general.source.revision"] == REVISION


def test_a_link_that_leaves_the_cache_is_still_refused(folder: Path) -> None:
    snapshot = _snapshot(folder)
    outside = folder.parent / "outside.safetensors"
    outside.write_bytes((snapshot / "model.safetensors").read_bytes())
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(outside)
    with pytest.raises(ModelFileError, match="leads out of the checkpoint folder"):
        plan(snapshot)


def test_the_revision_of_a_downloaded_folder_is_known(folder: Path) -> None:
    note = folder / ".cache" / "huggingface" / "download" / "config.json.metadata"
    note.parent.mkdir(parents=True)
    note.write_text(f"{REVISION}\netag\n1764500000.0\n")
    assert find_origin(folder) == Origin(None, REVISION)
    note.write_text("")
    assert find_origin(folder) == Origin()


@pytest.mark.parametrize("text", ["tencent/Hunyuan-MT-7B", "tencent/Hunyuan-MT-7B@v1", "x"])
def test_an_origin_reads_as_it_is_written(text: str) -> None:
    assert str(Origin.parse(text)) == text


def test_identification_needs_no_catalog_entry_with_sizes(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    model = get_architecture(checkpoint.config)(checkpoint)
    found = identify(load_catalog(), model, as_id=None, source_id=None, names=["hymt-demo"])
    assert found.spec is not None
    assert found.spec.id == "demo"


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden"])
def test_a_name_that_is_no_file_name_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no usable name"):
        plan(folder, name=name)


def test_the_index_is_read_through_the_cache_too(folder: Path) -> None:
    names = open_checkpoint(folder).tensors
    toy.write_json(folder / INDEX_NAME, {"weight_map": dict.fromkeys(names, "model.safetensors")})
    assert open_checkpoint(_snapshot(folder)).tensors.keys() == names.keys()
