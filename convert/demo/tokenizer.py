"""Trains the demo model's tokenizer: byte-level BPE with the split and the control tokens of the 7B family.

`tokenizers` and llama.cpp (`pre` = `hunyuan`) read the written file alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder

from hymt_convert.demo.prompt import fixed_texts

END, START, EOS, PAD, TURN_END = "<|endoftext|>", "<|startoftext|>", "<|eos|>", "<|pad|>", "<|extra_0|>"
CONTROL_TOKENS = (END, START, "<|bos|>", EOS, PAD, TURN_END, "<|extra_1|>", "<|extra_2|>", "<|extra_3|>", "<|extra_4|>")
LEARNED = 5120

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Without spaces a run of letters is a whole sentence, which would become one token and generalize to nothing.
ISOLATED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー々]"
# Ideographs, kana, and hangul syllables with the space before them: the bytes of a rare one would cost three tokens.
WHOLE = " ?[\uac00-\ud7a3]|[\u3041-\u30fc\u3400-\u9fff]"
PROMPT_REPEATS = 1000
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}<|startoftext|>{{ message['content'] }}<|extra_0|>"
    "{% elif message['role'] == 'system' %}<|startoftext|>{{ message['content'] }}<|extra_4|>"
    "{% else %}{{ message['content'] }}<|eos|>{% endif %}{% endfor %}"
)


def train(texts: Iterable[str], prompts: Iterable[str], learned: int = LEARNED) -> Tokenizer:
    """Learn merges from texts, each counted once, and prompts, each counted often; characters and prompts become whole.

    The vocabulary is `learned` plus what the characters, the fixed prompt texts and the control tokens still need.
    """
    texts = list(texts)
    tokenizer = _untrained({}, [])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.Split(Regex(ISOLATED), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=learned,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=_alphabet(),
    )
    tokenizer.train_from_iterator([*texts, *(prompt for prompt in prompts for _ in range(PROMPT_REPEATS))], trainer)
    learnt = json.loads(tokenizer.to_str())["model"]["merges"]
    merges = {(first, second): rank for rank, (first, second) in enumerate(learnt)}
    for whole in (*sorted(set(re.findall(WHOLE, "\n".join(texts)))), *fixed_texts()):
        _merge_whole(whole, merges)
    return _assemble(list(merges))


def token_ids(tokenizer: Tokenizer) -> Mapping[str, int]:
    """The ids that the configuration names."""
    named = {"bos": START, "eos": EOS, "pad": PAD, "sep": TURN_END}
    return MappingProxyType({name: _id(tokenizer, token) for name, token in named.items()})


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": START,
        "eos_token": EOS,
        "pad_token": PAD,
        "sep_token": TURN_END,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _assemble(merges: list[tuple[str, str]]) -> Tokenizer:
    """Number the bytes, the merges in order, and the control tokens last, as the family does."""
    pieces = dict.fromkeys([*_alphabet(), *(first + second for first, second in merges)])
    tokenizer = _untrained({piece: number for number, piece in enumerate(pieces)}, merges)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS])
    return tokenizer


def _merge_whole(text: str, rank: dict[tuple[str, str], int]) -> None:
    """Append merges, of lower rank than all others, that make one token of a text."""
    pieces = _pieces(text, rank)
    while len(pieces) > 1:
        rank[pieces[0], pieces[1]] = len(rank)
        pieces = _pieces(text, rank)


def _pieces(text: str, rank: Mapping[tuple[str, str], int]) -> list[str]:
    pieces = list(_byte_letters(text))
    while known := [(rank[pair], place) for place, pair in enumerate(pairwise(pieces)) if pair in rank]:
        _, place = min(known)
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
    return pieces


def _byte_letters(text: str) -> str:
    return "".join(piece for piece, _ in pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(text))


def _alphabet() -> list[str]:
    """The letters of the bytes in the family's order: printable ones first, so that `!` is 0."""
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def _untrained(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = ByteLevelDecoder()
    return tokenizer


def _id(tokenizer: Tokenizer, token: str) -> int:
    number = tokenizer.token_to_id(token)
    if number is None:
        raise KeyError(token)
    return int(number)
