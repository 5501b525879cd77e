"""The text and the hashes by which published tokenizers are known."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import tokenizers

from hymt_convert.bpe_vocabulary import PRE_TOKENIZERS
from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.tokenizer_checksum import CHECK_TEXT, CHECKSUMS, checksum
from hymt_convert.verify import verify_file
from tests.convert import toy_checkpoint as toy
from tests.convert.test_known_models import toy_catalog


def test_the_text_is_llama_cpps_to_the_byte() -> None:
    digest = "a36179c1e2b1cfcfbfad1dc779addad2ffc778201e4cf0d538bddeafa2c526da"
    assert hashlib.sha256(CHECK_TEXT.encode()).hexdigest() == digest


def test_every_supported_pre_tokenizer_has_a_checksum() -> None:
    assert CHECKSUMS.keys() == set(PRE_TOKENIZERS.values())
    assert all(len(value) == 64 for value in CHECKSUMS.values())


def test_the_checksum_is_that_of_a_printed_list() -> None:
    assert checksum((1, 22, 333)) == hashlib.sha256(b"[1, 22, 333]").hexdigest()


@pytest.mark.llama
@pytest.mark.parametrize(("is_right", "outcome"), [(True, "ok"), (False, "warning")])
def test_a_known_models_file_is_held_against_the_published_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_right: bool, outcome: str
) -> None:
    toy.write_checkpoint(tmp_path / "toy")
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "toy" / "tokenizer.json"))
    wanted = checksum(tokenizer.encode(CHECK_TEXT).ids) if is_right else CHECKSUMS["hunyuan"]
    monkeypatch.setattr("hymt_convert.verify.CHECKSUMS", {"hunyuan": wanted})
    catalog = toy_catalog()
    request = ConversionRequest(tmp_path / "toy", tmp_path, ("F16",), catalog=catalog, as_id="Hunyuan-MT-7B")
    path, spec = convert(request).files[0].path, catalog.get("Hunyuan-MT-7B")
    assert "published" not in repr(verify_file(path, spec=spec).checks)  # a toy's vocabulary is too small to be it
    monkeypatch.setattr("hymt_convert.verify.PUBLISHED_TOKENS", 1)
    checks = [check for check in verify_file(path, spec=spec).checks if "published" in check.message]
    assert [check.outcome for check in checks] == [outcome]
