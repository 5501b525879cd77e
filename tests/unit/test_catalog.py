"""The catalog: what the packaged file says, and how a wrong one is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hymt_local.catalog import ALL_TAGS, Catalog, ModelRef, ModelSpec, load_catalog, parse_model_ref
from hymt_local.errors import ConfigError, ModelNotFoundError
from hymt_local.events import SamplingParams

SMALL = """\
schema = 1
[[models]]
id = "Mine"
title = "My model"
licence = "Apache-2.0"
tokenizer = "hunyuan"
template_set = "mt1"
chat = "hunyuan"
max_segment_tokens = 100
context_length = 1000
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def load_user_text(folder: Path, text: str) -> Catalog:
    file = folder / "catalog.toml"
    file.write_text(text, encoding="utf-8")
    return load_catalog(file)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_user_text(folder, text)
    assert str(folder / "catalog.toml") in caught.value.message
    assert caught.value.hint
    return caught.value.message


def test_every_model_of_the_family_is_there(catalog: Catalog) -> None:
    assert {spec.id for spec in catalog.models if spec.kind == "translation"} == {
        *("Hunyuan-MT-7B", "Hunyuan-MT-Chimera-7B", "HY-MT1.5-1.8B", "HY-MT1.5-7B"),
        *("Hy-MT2-1.8B", "Hy-MT2-7B", "Hy-MT2-30B-A3B"),
    }
    assert {spec.id: spec.kind for spec in catalog.models if spec.kind != "translation"} == {
        "demo": "demo",
        "echo": "test",
        "pseudo": "test",
    }


def test_only_hy_mt2_and_our_own_are_free_of_a_territory(catalog: Catalog) -> None:
    for spec in catalog.models:
        is_free = spec.id.startswith("Hy-MT2") or spec.kind != "translation"
        assert (spec.licence.id == "Apache-2.0") == is_free
        assert spec.licence.territory_excluded == (() if is_free else ("EU", "GB", "KR"))
        assert is_free or "South Korea" in spec.licence.note


def test_the_kv_cache_is_as_large_as_the_geometry_says(catalog: Catalog) -> None:
    kibibytes = {spec.id: spec.kv_bytes_per_token / 1024 for spec in catalog.models if spec.kind == "translation"}
    assert kibibytes == {
        **dict.fromkeys(("Hunyuan-MT-7B", "Hunyuan-MT-Chimera-7B", "HY-MT1.5-7B", "Hy-MT2-7B"), 128),
        **dict.fromkeys(("HY-MT1.5-1.8B", "Hy-MT2-1.8B"), 64),
        "Hy-MT2-30B-A3B": 96,
    }


def test_memory_is_weights_and_cache(catalog: Catalog) -> None:
    spec = catalog.get("Hy-MT2-7B")
    assert spec.memory_bytes(1000, context_length=2) == 1000 + 2 * 128 * 1024
    assert spec.memory_bytes(0) == 512 * 1024 * 1024
    assert catalog.get("echo").memory_bytes(0) == 0


def test_published_files_have_their_size_and_hash(catalog: Catalog) -> None:
    for spec in catalog.models:
        assert bool(spec.gguf_repo) == (spec.kind == "translation" and bool(spec.files))
        for file in spec.files:
            if spec.kind == "translation":
                assert file.size_bytes
                assert file.size_bytes > 400_000_000
            if spec.id.startswith("Hy-MT2"):
                assert file.sha256
    hashes = [file.sha256 for spec in catalog.models for file in spec.files if file.sha256]
    assert len(set(hashes)) == len(hashes)


def test_files_that_stock_llama_cpp_cannot_read_say_why(catalog: Catalog) -> None:
    unsupported = [file for spec in catalog.models for file in spec.files if not file.supported]
    assert [file.quantization for file in unsupported] == ["2bit", "1.25bit"]
    assert all("forks of llama.cpp" in file.note and file.repo for file in unsupported)


def test_control_ids_are_exact(catalog: Catalog) -> None:
    large, small = catalog.get("Hy-MT2-7B"), catalog.get("Hy-MT2-1.8B")
    assert large.control_ids["<|startoftext|>"] == 127958
    assert large.control_ids["<|extra_0|>"] == 127962
    assert [large.control_ids[text] for text in large.stop_tokens] == [127960]
    assert small.control_ids["<｜hy_begin▁of▁sentence｜>"] == 120000
    assert [small.control_ids[text] for text in small.stop_tokens] == [120020]
    assert not any("|" in text or "__" in text for text in small.control_ids)


def test_only_the_tiktoken_family_is_normalized(catalog: Catalog) -> None:
    normalized = {spec.id for spec in catalog.models if spec.normalization == "NFC"}
    assert normalized == {"demo", "Hunyuan-MT-7B", "Hunyuan-MT-Chimera-7B", "HY-MT1.5-7B", "Hy-MT2-7B"}


def test_the_default_decoding_is_greedy_with_the_cards_penalty(catalog: Catalog) -> None:
    sampling = catalog.get("Hunyuan-MT-7B").sampling
    assert sampling.greedy_params().temperature == 0.0
    assert sampling.greedy_params().repetition_penalty == 1.05
    assert sampling.params(seed=7) == SamplingParams(0.7, 20, 0.6, 1.05, 7)
    assert catalog.get("Hy-MT2-30B-A3B").sampling.params() == SamplingParams(0.7, 0, 1.0, 1.0)


def test_the_demo_speaks_sentences_in_ten_languages_and_words_in_all(catalog: Catalog) -> None:
    demo = catalog.get("demo")
    assert demo.full_languages == ("en", "zh", "fr", "es", "de", "ja", "ru", "ar", "ko", "pt")
    assert demo.languages == ALL_TAGS
    assert demo.sampling.greedy_params().repetition_penalty == 1.0


def test_a_translation_model_speaks_all_of_its_languages_in_full(catalog: Catalog) -> None:
    assert catalog.get("Hy-MT2-7B").full_languages == ALL_TAGS


@pytest.mark.parametrize(
    ("name", "model_id"),
    [
        ("Hunyuan-MT-7B.i1-Q4_K_M.gguf", "Hunyuan-MT-7B"),
        ("Hunyuan-MT-7B-q4_k_m.gguf", "Hunyuan-MT-7B"),
        ("Hunyuan MT 7B", "Hunyuan-MT-7B"),
        ("tencent_Hunyuan-MT-Chimera-7B-Q8_0.gguf", "Hunyuan-MT-Chimera-7B"),
        ("HY-MT1.5-1.8B.i1-IQ4_NL.gguf", "HY-MT1.5-1.8B"),
        ("Hy MT1.5 7B", "HY-MT1.5-7B"),
        ("Hy-MT2-1.8B-Q4_0.gguf", "Hy-MT2-1.8B"),
        ("HY-MT2-7B-Q6_K.gguf", "Hy-MT2-7B"),
        ("Hy-MT2-30B-A3B.Q4_K_M.gguf", "Hy-MT2-30B-A3B"),
        ("hymt-demo-Q8_0.gguf", "demo"),
        ("tencent_Hunyuan-7B-Instruct-Q4_K_M.gguf", None),
        ("Hunyuan-A13B-Instruct-Q4_K_M.gguf", None),
        ("llama-2-7b.Q4_K_M.gguf", None),
        ("Hy-MT2-17B.gguf", None),
    ],
)
def test_a_name_tells_at_most_one_model(catalog: Catalog, name: str, model_id: str | None) -> None:
    told = [
        spec.id
        for spec in catalog.models
        if any(re.search(pattern, name, re.IGNORECASE) for pattern in spec.name_patterns)
    ]
    assert told == ([model_id] if model_id else [])


def test_every_published_file_name_tells_its_own_model(catalog: Catalog) -> None:
    for spec in catalog.models:
        for file in spec.files:
            assert any(re.search(pattern, file.name, re.IGNORECASE) for pattern in spec.name_patterns)


def test_ids_are_found_in_any_case(catalog: Catalog) -> None:
    assert catalog.get("hy-mt2-1.8b").id == "Hy-MT2-1.8B"


def test_an_unknown_id_is_refused_with_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(ModelNotFoundError, match="Hy-MT2-8B") as caught:
        catalog.get("Hy-MT2-8B")
    assert "Hy-MT2-" in caught.value.hint
    with pytest.raises(ModelNotFoundError) as caught:
        catalog.get("")
    assert "hymt models list" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("Hy-MT2-1.8B:q4_k_m", ModelRef("Hy-MT2-1.8B", "Q4_K_M")),
        ("demo", ModelRef("demo")),
        (" demo : ", ModelRef("demo")),
        ("", ModelRef("")),
    ],
)
def test_a_reference_is_an_id_and_perhaps_a_quantization(text: str, ref: ModelRef) -> None:
    assert parse_model_ref(text) == ref


def test_a_reference_reads_back_as_it_is_written() -> None:
    for text in ("demo", "Hy-MT2-1.8B:Q4_K_M"):
        assert str(parse_model_ref(text)) == text


def test_a_user_may_add_a_model_with_the_packaged_licences_and_families(tmp_path: Path, catalog: Catalog) -> None:
    text = 'schema = 1\n[[models]]\nid = "Mine"\ntitle = "x"\nfamily = "dense-7B"\nlicence = "Apache-2.0"\n'
    loaded = load_user_text(tmp_path, text + 'template_set = "mt2"\nmax_segment_tokens = 7\n')
    assert loaded.models[:-1] == catalog.models
    mine, packaged = loaded.get("mine"), catalog.get("Hy-MT2-7B")
    assert (mine.control_ids, mine.geometry, mine.licence) == (
        packaged.control_ids,
        packaged.geometry,
        packaged.licence,
    )
    assert mine.max_segment_tokens == 7


def test_a_user_may_replace_a_model_by_its_id(tmp_path: Path, catalog: Catalog) -> None:
    loaded = load_user_text(tmp_path, SMALL.replace('"Mine"', '"HY-mt2-7b"'))
    assert loaded.get("Hy-MT2-7B").title == "My model"
    assert len(loaded.models) == len(catalog.models)


def test_a_user_may_bring_a_licence(tmp_path: Path) -> None:
    licence = '[licences.House-Rules]\ntitle = "House rules"\nterritory_excluded = ["FR"]\n'
    loaded = load_user_text(tmp_path, SMALL.replace('"Apache-2.0"', '"House-Rules"') + licence)
    assert loaded.get("Mine").licence.territory_excluded == ("FR",)


def test_an_absent_user_file_is_no_error(tmp_path: Path, catalog: Catalog) -> None:
    assert load_catalog(tmp_path / "absent.toml") == catalog


def test_a_folder_in_place_of_the_user_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path))):
        load_catalog(tmp_path)


FILE = '[[models.files]]\nquantization = "Q8_0"\nname = "a.gguf"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SMALL + "temprature = 1\n", "`temprature` - at `$.models[0]` (model 'Mine')"),
        (SMALL + FILE + "sise = 1\n", "`sise` - at `$.models[0].files[0]` (model 'Mine')"),
        (SMALL + FILE + 'sha256 = "ABC"\n', "`$.models[0].files[0].sha256`"),
        (SMALL + FILE + "size_bytes = 0\n", "`$.models[0].files[0].size_bytes`"),
        (SMALL + FILE.replace("a.gguf", "../a.gguf"), "`$.models[0].files[0].name`"),
        (SMALL + FILE + FILE, "`quantization` 'Q8_0' occurs twice"),
        (SMALL + 'languages = ["en", "tlh"]\n', "unknown tag 'tlh' in `languages`"),
        (SMALL + 'languages = ["en"]\nfull_languages = ["fr"]\n', "unknown tag 'fr' in `full_languages`"),
        (SMALL + "sampling = { temperature = 3.0 }\n", "`$.models[0].sampling.temperature`"),
        (SMALL + "sampling = { top_p = 0.0 }\n", "`$.models[0].sampling.top_p`"),
        (SMALL + 'control_ids = { "<|eos|>" = -1 }\n', "`$.models[0].control_ids[...]`"),
        (SMALL + "name_patterns = ['(']\n", "bad regular expression '('"),
        (SMALL + 'revision = "a0c709d9"\n', "`$.models[0].revision`"),
        (SMALL + 'family = "dense-8B"\n', "unknown name 'dense-8B'"),
        (SMALL + "family = [1]\n", "`$.models[0].family`"),
        (SMALL.replace("Apache-2.0", "GPL"), "unknown name 'GPL'"),
        (SMALL.replace('"mt1"', '"mt9"'), "'mt9' - at `$.models[0].template_set`"),
        (SMALL.replace("= 1000", "= 100"), "`max_segment_tokens` must be below `context_length`"),
        (SMALL.replace('title = "My model"\n', ""), "`title`"),
        (SMALL + SMALL.removeprefix("schema = 1\n").replace("Mine", "mine"), "`id` 'mine' occurs twice"),
        (
            SMALL + '[licences.Odd]\ntitle = "x"\nterritory_excluded = ["Europe"]\n',
            "`$.licences.Odd.territory_excluded[0]`",
        ),
        (SMALL + '[familys.x]\ntokenizer = "none"\n', "`familys`"),
        (SMALL.replace("schema = 1", "schema = 2"), "`$.schema`"),
        ("", "`schema`"),
        ("schema = ", "end of document"),
        (SMALL + "[families.Odd]\ntokeniser = 'none'\n", "`tokeniser` - at `$.families.Odd`"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_of_the_fault(tmp_path: Path, text: str, told: str) -> None:
    assert told in refusal(tmp_path, text)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "catalog.toml"
    file.write_bytes(b"schema = 1 # \xff\n")
    with pytest.raises(ConfigError, match="utf-8"):
        load_catalog(file)


def test_specs_are_immutable(catalog: Catalog) -> None:
    spec: ModelSpec = catalog.get("demo")
    with pytest.raises(AttributeError):
        spec.id = "other"  # type: ignore[misc]
