"""The text and the hashes by which published tokenizers are known."""

from __future__ import annotations

import hashlib

from hymt_convert.bpe_vocabulary import PRE_TOKENIZERS
from hymt_convert.tokenizer_checksum import CHECK_TEXT, CHECKSUMS, checksum


def test_the_text_is_llama_cpps_to_the_byte() -> None:
    digest = "a36179c1e2b1cfcfbfad1dc779addad2ffc778201e4cf0d538bddeafa2c526da"
    assert hashlib.sha256(CHECK_TEXT.encode()).hexdigest() == digest


def test_every_supported_pre_tokenizer_has_a_checksum() -> None:
    assert CHECKSUMS.keys() == set(PRE_TOKENIZERS.values())
    assert all(len(value) == 64 for value in CHECKSUMS.values())


def test_the_checksum_is_that_of_a_printed_list() -> None:
    assert checksum((1, 22, 333)) == hashlib.sha256(b"[1, 22, 333]").hexdigest()
