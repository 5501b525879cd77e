"""The demo model's training: a short run repeats itself, and the lean forward pass is the family's own mathematics."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import HunYuanDenseV1Config, HunYuanDenseV1ForCausalLM

from hymt_convert.demo.examples import Corpus, Example, Sampler, directions
from hymt_convert.demo.model import Decoder, Geometry, hf_config, hf_state
from hymt_convert.demo.phrasebook import PHRASE_LANGUAGES, Item
from hymt_convert.demo.prompt import prompt_text
from hymt_convert.demo.schedule import Cycle
from hymt_convert.demo.tokenizer import token_ids
from hymt_convert.demo.train import Plan, Progress, batches, collate, save, train

COLOURS = {
    "red": {"en": "The house is red.", "fr": "La maison est rouge.", "zh": "房子是红色的。", "ja": "家は赤いです。"},
    "blue": {"en": "The house is blue.", "fr": "La maison est bleue.", "zh": "房子是蓝色的。", "ja": "家は青いです。"},
    "green": {"en": "The car is green.", "fr": "La voiture est verte.", "zh": "车是绿色的。", "ja": "車は緑です。"},
    "hello": {"en": "Hello!", "fr": "Bonjour !", "zh": "您好！", "ja": "こんにちは！"},
}
ITEMS = tuple(Item(name, "phrase", "phrase", texts, 1) for name, texts in COLOURS.items())
WORDS = Item("weekday-1", "cldr", "weekday", {"en": "Monday", "fr": "lundi", "hi": "सोमवार", "bo": "གཟའ་ཟླ་བ་"}, 1)
SHARES = {"phrase": 0.8, "cldr": 0.2}
TINY = Plan(
    cycles=(
        Cycle(40, row_positions=400, forgetting=0.2, shares=SHARES),
        Cycle(40, peak_rate=2e-3, row_positions=300, shares=SHARES),
    ),
    seed=3,
    compiled=False,
)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.of((*ITEMS, WORDS))


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny(corpus: Corpus, **changes: int) -> Geometry:
    shape = Geometry(corpus.tokenizer.get_vocab_size(), 32, 2, 48, 2, 1, 16)
    return dataclasses.replace(shape, **changes)


def run(corpus: Corpus) -> tuple[list[float], Decoder]:
    losses: list[float] = []

    def watch(_: Decoder, now: Progress) -> None:
        losses.append(now.loss)

    return losses, train(corpus, tiny(corpus), TINY, watch)


def test_a_short_run_learns_and_repeats_itself_exactly(corpus: Corpus, one_thread: None) -> None:
    losses, model = run(corpus)
    again, same = run(corpus)

    assert losses == again
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters(), strict=True))
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


def test_the_rate_warms_up_holds_and_falls_to_a_fiftieth() -> None:
    rates = [Cycle(1000).rate(step) for step in range(1000)]

    assert rates[0] < rates[50] < rates[100] == rates[290] == max(rates)
    assert rates[300:] == sorted(rates[300:], reverse=True)
    assert rates[-1] == pytest.approx(max(rates) / 50)


@pytest.mark.parametrize("changes", [{}, {"num_attention_heads": 4, "num_key_value_heads": 2}, {"head_dim": 64}])
def test_the_lean_forward_pass_equals_the_stock_class(corpus: Corpus, changes: dict[str, int]) -> None:
    model = Decoder(tiny(corpus, **changes), seed=1, dtype=torch.float32)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():  # norms away from 1: their order with the rotation shows
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    config = HunYuanDenseV1Config(**hf_config(model.shape, token_ids(corpus.tokenizer)))
    stock = HunYuanDenseV1ForCausalLM(config).eval()
    stock.load_state_dict(hf_state(model) | {"lm_head.weight": model.embedding.detach()})

    rows = Sampler(corpus, SHARES, 5).draw(24)
    with torch.no_grad():
        lean = model(collate(rows))
        for place, row in enumerate(rows):
            tokens = torch.tensor([[*row.prefix, *row.source, *row.answer]])
            expected = stock(tokens).logits[0, -len(row.answer) :]
            assert (lean[place, : len(row.answer)] - expected).abs().max() <= 1e-4


def test_batches_are_full_and_hold_what_is_drawn(corpus: Corpus) -> None:
    cycle = Cycle(1, row_positions=500, shares=SHARES)
    drawn = list(itertools.islice(batches(Sampler(corpus, SHARES, 1), cycle), 20))

    sizes = [batch.source.numel() + batch.answer.numel() for batch in drawn]
    assert max(sizes) <= 500
    assert sum(sizes) > 0.7 * 500 * len(sizes)
    assert len({tuple(batch.source[0].tolist()) for batch in drawn}) > 5


def test_a_batch_asks_for_the_answer_and_its_end(corpus: Corpus) -> None:
    rows = [
        Example(prefix=(1, 2), source=(3,), answer=(9, 4, 5), end=8),
        Example(prefix=(1, 7, 2), source=(6, 6), answer=(9,), end=8),
    ]
    batch = collate(rows)

    assert batch.prefix.tolist() == [[1, 2, 0], [1, 7, 2]]
    assert batch.source.tolist() == [[0, 3], [6, 6]]
    assert batch.answer.tolist() == [[9, 4, 5], [9, 0, 0]]
    assert batch.target.tolist() == [[4, 5, 8], [8, -100, -100]]
    assert batch.row_prefix.tolist() == [0, 1]


def test_the_tokenizer_reads_a_prompt_as_its_prefix_and_its_text(corpus: Corpus) -> None:
    for item in (*ITEMS, WORDS):
        for way in directions(item):
            text = item.texts[way[0]]
            whole = corpus.tokenizer.encode(prompt_text(*way, text)).ids
            assert whole == [*corpus.prefix(way)[1:], *corpus.encode(text)]


def test_every_text_survives_the_tokenizer(corpus: Corpus) -> None:
    for text in (*WORDS.texts.values(), "漢字かな한글 ًّ 🙂 \t\n", "<|eos|>"[1:]):
        assert corpus.tokenizer.decode(corpus.encode(text), skip_special_tokens=False) == text


def test_ideographs_and_digits_stand_alone_and_the_prompt_does_not(corpus: Corpus) -> None:
    tokens = [corpus.tokenizer.decode([number]) for number in corpus.encode("红色的房子12")]
    assert tokens == list("红色的房子12")
    assert len(corpus.prefix(("zh", "fr"))) <= 7


def test_words_are_asked_for_between_a_phrase_language_and_any_other() -> None:
    ways = directions(WORDS)
    assert ("hi", "bo") not in ways
    assert ("hi", "en") in ways
    assert ("en", "bo") in ways
    assert all(source in PHRASE_LANGUAGES or target in PHRASE_LANGUAGES for source, target in ways)
    assert directions(dataclasses.replace(WORDS, blocked_sources=frozenset({"en"}))) == [
        way for way in ways if way[0] != "en"
    ]


def test_a_checkpoint_folder_is_complete(corpus: Corpus, tmp_path: Path) -> None:
    save(Decoder(tiny(corpus)), corpus.tokenizer, tmp_path)

    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    config = json.loads((tmp_path / "config.json").read_text())
    end = corpus.tokenizer.token_to_id("<|eos|>")
    assert config["eos_token_id"] == config["eod_token_id"] == end
