"""What a quantization costs: each figure against an independent computation, and chrF against sacrebleu's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from hymt_convert import quality as quality_module
from hymt_convert.passages import Passage, Tokenizer, all_texts, pairs, passages, sentences
from hymt_convert.progress import Progress
from hymt_convert.quality import chrf, divergences, log_probabilities, measure_quality
from hymt_convert.reference_model import ReferenceModel
from hymt_local.catalog import ModelSpec, load_catalog
from hymt_local.errors import ModelFileError, UnsupportedModelError, UsageError
from hymt_local.language import LANGUAGES
from tests.toy_models import ToyGeometry, ToyModel, write_toy_model

TAGS = [language.tag for language in LANGUAGES]


@pytest.fixture(scope="module")
def demo() -> ModelSpec:
    return load_catalog().get("demo")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_model(tmp_path_factory.mktemp("toy") / "reference.gguf")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_model(tmp_path_factory.mktemp("toy") / "other.gguf", ToyModel(scale=0.7))


def first(count: int, spec: ModelSpec | None) -> Callable[[Tokenizer], Sequence[Passage]]:
    return lambda tokenizer: passages(tokenizer, spec, "evaluation")[:count]


# Computed with sacrebleu 2.6.0: CHRF().corpus_score(hypotheses, [references]).score
SACREBLEU = [
    (["the cat sat on the mat"], ["the cat is on the mat"], 64.577942),
    (["abc"], ["abc"], 100.0),
    (["abc"], ["xyz"], 0.0),
    (["a"], ["ab"], 55.555556),
    ([""], ["ab"], 0.0),
    (["你好，世界"], ["你好世界。"], 26.0),
    (["hello there", "good bye"], ["hello here", "goodbye all"], 58.242121),
    (["x y z"], ["xyz"], 100.0),
    (["aaaa"], ["aa"], 78.125),
]


@pytest.mark.parametrize(("hypotheses", "references", "score"), SACREBLEU)
def test_chrf_is_sacrebleus(hypotheses: list[str], references: list[str], score: float) -> None:
    assert chrf(hypotheses, references) == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize(
    ("hypothesis_lang", "reference_lang", "score"),
    [("zh", "zh-Hant", 37.09012), ("id", "ms", 68.515888), ("hi", "mr", 13.723291), ("uk", "ru", 29.428734)],
)
def test_chrf_is_sacrebleus_on_sentences(hypothesis_lang: str, reference_lang: str, score: float) -> None:
    rows = sentences("evaluation")
    hypotheses, references = ([row[lang] for row in rows] for lang in (hypothesis_lang, reference_lang))
    assert chrf(hypotheses, references) == pytest.approx(score, abs=1e-6)


def test_the_divergence_of_two_coins() -> None:
    fair, biased = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    assert divergences(fair, biased)[0] == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert divergences(fair, fair)[0] == 0


def test_log_probabilities_stand_large_logits() -> None:
    logits: NDArray[np.float32] = np.array([[1e30, 0.0], [500.0, 500.0]], np.float32)
    np.testing.assert_allclose(log_probabilities(logits), [[0.0, -1e30], [math.log(0.5)] * 2], rtol=1e-6)


@pytest.mark.llama
def test_a_file_costs_nothing_against_itself(toy: Path, demo: ModelSpec) -> None:
    (quality,) = measure_quality(toy, [toy], first(20, demo), threads=1)
    assert (quality.mean_kl, quality.max_kl, quality.top1_agreement) == (0.0, 0.0, 1.0)
    assert (quality.perplexity_ratio, quality.chrf) == (1.0, 100.0)
    assert quality.n_positions > 100


@pytest.mark.llama
def test_the_figures_are_those_of_the_definitions(toy: Path, other: Path, demo: ModelSpec) -> None:
    (quality,) = measure_quality(toy, [other], first(7, demo), threads=1)
    kl, agreements, surprise, reference_surprise = [], [], [], []
    with ReferenceModel(toy) as reference, ReferenceModel(other) as candidate:
        for passage in passages(reference, demo, "evaluation")[:7]:
            begin = len(passage.prompt) - 1
            p, q = (softmax(model.logits(passage.tokens)[begin:-1]) for model in (reference, candidate))
            kl += (p * np.log(p / q)).sum(axis=-1).tolist()
            agreements += (p.argmax(axis=-1) == q.argmax(axis=-1)).tolist()
            for place, token in enumerate(passage.answer):
                surprise.append(-math.log(q[place, token]))
                reference_surprise.append(-math.log(p[place, token]))
    assert quality.n_positions == len(kl)
    assert quality.mean_kl == pytest.approx(np.mean(kl), rel=1e-3)
    assert quality.max_kl == pytest.approx(max(kl), rel=1e-3)
    assert quality.p99_kl == pytest.approx(np.quantile(kl, 0.99), rel=1e-3)
    assert quality.top1_agreement == pytest.approx(np.mean(agreements))
    assert quality.perplexity == pytest.approx(np.exp(np.mean(surprise)), rel=1e-4)
    assert quality.perplexity_ratio == pytest.approx(np.exp(np.mean(surprise) - np.mean(reference_surprise)), rel=1e-4)
    assert quality.chrf is not None
    assert 0 <= quality.chrf < 100


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shares = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


@pytest.mark.llama
def test_several_files_are_measured_in_their_order(toy: Path, other: Path, demo: ModelSpec) -> None:
    steps: list[Progress] = []
    qualities = measure_quality(toy, [other, toy], first(9, demo), threads=1, on_step=steps.append)
    assert [quality.path for quality in qualities] == [other, toy]
    assert qualities[0].mean_kl > qualities[1].mean_kl == 0
    names = dict.fromkeys(step.step for step in steps)
    assert list(names) == [
        "comparing predictions", "translating with reference.gguf", "translating with other.gguf"
    ]  # fmt: skip
    ends = {step.step: step for step in steps}.values()
    assert all(end.done == end.total > 0 for end in ends)
    assert steps[0].done == 0  # from here the time that is left can be told after the first batch


@pytest.mark.llama
def test_a_long_text_is_translated_in_part_but_in_every_language(
    toy: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality_module, "ANSWER_TOKENS", 2)
    asked: list[int] = []
    answers = ReferenceModel.answers

    def spy(model: ReferenceModel, prompts: Sequence[Sequence[int]], **options: Any) -> list[list[int]]:
        asked.append(len({tuple(prompt) for prompt in prompts}))
        return answers(model, prompts, **options)

    monkeypatch.setattr(ReferenceModel, "answers", spy)
    measure_quality(toy, [other], in_every_language, threads=1)
    assert asked == [38, 38]


def in_every_language(tokenizer: Tokenizer) -> list[Passage]:
    """Three short sentences in each, told apart by their second token."""
    begin = tokenizer.bos_id
    return [Passage((begin, place % 38), (1, 2), tokenizer.end_ids, is_prompt=True) for place in range(3 * 38)]


@pytest.mark.llama
def test_a_model_without_prompts_is_judged_by_plain_text(toy: Path, other: Path) -> None:
    (quality,) = measure_quality(toy, [other], first(4, None), threads=1)
    assert quality.chrf is None
    assert quality.mean_kl > 0
    assert quality.table()["chrf"] is None


@pytest.mark.llama
def test_files_of_another_vocabulary_cannot_be_compared(toy: Path, tmp_path: Path) -> None:
    larger = write_toy_model(tmp_path / "larger.gguf", ToyModel(geometry=ToyGeometry(n_filler_tokens=3)))
    with pytest.raises(ModelFileError, match=r"larger.gguf has 275 tokens, reference.gguf 272"):
        measure_quality(toy, [larger], first(1, None), threads=1)


@pytest.mark.llama
def test_a_file_that_predicts_nan_is_named(toy: Path, demo: ModelSpec, tmp_path: Path) -> None:
    broken = write_toy_model(tmp_path / "broken.gguf", ToyModel(scale=math.nan))
    with pytest.raises(ModelFileError, match=r"broken.gguf predicts something that is not a number"):
        measure_quality(toy, [broken], first(1, demo), threads=1)


@pytest.mark.llama
def test_there_must_be_something_to_compare_on(toy: Path) -> None:
    with pytest.raises(UsageError, match="no text to compare"):
        measure_quality(toy, [toy], lambda tokenizer: [], threads=1)


def test_a_file_of_another_kind_is_refused_before_llama_cpp_sees_it(toy: Path, tmp_path: Path) -> None:
    other = write_toy_model(tmp_path / "other.gguf", ToyModel(architecture="llama"))
    with pytest.raises(UnsupportedModelError, match="architecture 'llama'"):
        measure_quality(toy, [other], first(1, None))


@pytest.mark.parametrize("part", ["calibration", "evaluation"])
def test_every_language_is_read_and_written(part: str) -> None:
    found = pairs(None, "calibration" if part == "calibration" else "evaluation")
    assert {pair.target_lang for pair in found} == {pair.source_lang for pair in found} == set(TAGS)
    assert all(pair.source and pair.target and pair.source_lang != pair.target_lang for pair in found)


def test_the_sentences_for_making_and_judging_are_different() -> None:
    made, judged = ({pair.source for pair in pairs(None, part)} for part in ("calibration", "evaluation"))
    assert not made & judged
    assert len(sentences("calibration")) == 10
    assert all(list(row) == TAGS for part in ("calibration", "evaluation") for row in sentences(part))


def test_sentences_are_distinct_and_without_stray_spaces() -> None:
    texts = all_texts()
    assert len(set(texts)) == len(texts)
    assert all(text == " ".join(text.split()) for text in texts)


def test_the_demo_is_judged_by_its_own_phrases(demo: ModelSpec) -> None:
    made, judged = pairs(demo, "calibration"), pairs(demo, "evaluation")
    assert {pair.source_lang for pair in made} == set(demo.full_languages)
    assert not {pair.source for pair in made} & {pair.source for pair in judged}


@pytest.mark.llama
def test_passages_are_the_models_own_prompts(toy: Path, demo: ModelSpec) -> None:
    with ReferenceModel(toy) as model:
        passage = passages(model, demo, "evaluation")[0]
        pair = pairs(demo, "evaluation")[0]
        controls = model.control_tokens
        assert passage.prompt[0] == controls["<|startoftext|>"]
        assert passage.prompt[-1] == controls["<|extra_0|>"]
        assert passage.answer[-1] == controls["<|eos|>"]
        assert model.text(passage.prompt).endswith(f"\n\n{pair.source}")
        assert model.text(passage.answer) == pair.target


@pytest.mark.llama
def test_a_vocabulary_that_cannot_end_an_answer_is_refused(toy: Path, demo: ModelSpec) -> None:
    spec = msgspec.structs.replace(demo, stop_tokens=("<|unknown|>",))
    with ReferenceModel(toy) as model, pytest.raises(UnsupportedModelError, match=r"has no <\|unknown\|>"):
        passages(model, spec, "evaluation")
