"""The shipped demo model is the one that its card and scores describe, and it still does what they say."""

from __future__ import annotations

import hashlib
import json
import random
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from hymt_convert.demo.greedy import GreedyModel
from hymt_convert.demo.phrasebook import PHRASE_LANGUAGES, load_items
from hymt_convert.demo.scores import HERE, Case, card, groups, tally
from hymt_local.language import LANGUAGES

MODEL = Path(str(resources.files("hymt_local") / "data" / "demo" / "hymt-demo-Q8_0.gguf"))
SIZE_LIMIT = 8 * 1024 * 1024


@pytest.fixture(scope="module")
def scores() -> dict[str, Any]:
    result: dict[str, Any] = json.loads((HERE / "scores.json").read_text(encoding="utf-8"))
    return result


def test_the_file_is_the_one_that_was_scored(scores: dict[str, Any]) -> None:
    data = MODEL.read_bytes()
    assert scores["file"] == MODEL.name
    assert scores["size_bytes"] == len(data) <= SIZE_LIMIT
    assert scores["sha256"] == hashlib.sha256(data).hexdigest()


def test_the_card_tells_the_scores(scores: dict[str, Any]) -> None:
    template = (HERE / "card.template.md").read_text(encoding="utf-8")
    assert (HERE / "CARD.md").read_text(encoding="utf-8") == card(scores, template)


@pytest.mark.parametrize(("group", "least"), [("phrases", 98.0), ("held_out", 95.0)])
def test_every_claimed_direction_is_as_good_as_promised(scores: dict[str, Any], group: str, least: float) -> None:
    exact = scores["groups"][group]["exact"]
    assert len(exact) == len(PHRASE_LANGUAGES) * (len(PHRASE_LANGUAGES) - 1)
    below = {way.replace(">", "-") for way, (right, total) in exact.items() if right < least / 100 * total}
    assert below <= set(scores["unclaimed"])
    assert not below & set(scores["directions"])


def test_every_direction_is_measured_and_all_languages_occur(scores: dict[str, Any]) -> None:
    measured = {way.replace(">", "-") for group in scores["groups"].values() for way in group["exact"]}
    assert {*scores["directions"], *scores["unclaimed"]} == measured
    assert {tag for group in scores["groups"].values() for way in group["exact"] for tag in way.split(">")} == {
        language.tag for language in LANGUAGES
    }


@pytest.mark.llama
def test_a_sample_of_the_phrases_is_translated_exactly() -> None:
    chosen = groups(load_items())
    cases = random.Random(4).sample([*chosen["phrases"].cases, *chosen["held_out"].cases], 400)
    with GreedyModel(MODEL) as model:
        answers = list(model.translate([(*case.direction, case.source) for case in cases]))
    assert sum(answer == case.expected for answer, case in zip(answers, cases, strict=True)) >= 0.95 * len(cases)


def test_a_tally_counts_per_direction() -> None:
    case = Case(("en", "fr"), "Hello!", "Bonjour !")
    back = Case(("fr", "en"), "Bonjour !", "Hello!")
    counted = tally([(case, "Bonjour !"), (case, "Bonsoir !"), (back, "Hello!")])
    assert {way: (score.right, score.total) for way, score in counted.items()} == {
        ("en", "fr"): (1, 2),
        ("fr", "en"): (1, 1),
    }
    assert counted["en", "fr"].percent == 50
