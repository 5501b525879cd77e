"""Scores of the demo model: `python -m hymt_convert.demo.scores --model FILE.gguf`.

Exact match of greedy translations, per direction, with the file itself run by llama.cpp. Writes `scores.json` and the
card that is shipped with the model.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hymt_convert.demo.examples import Direction, directions, group_of, hurried
from hymt_convert.demo.greedy import GreedyModel
from hymt_convert.demo.phrasebook import PHRASE_LANGUAGES, Item, Phrasebook, load_items
from hymt_convert.demo.schedule import STEPS
from hymt_convert.verify import read_file_facts, read_metadata

HERE = Path(__file__).parent
SAMPLE = 100
"""Items of one direction, where a group is not taken whole; half of it as a hurried user types, a third penalized."""
NAME_SAMPLE = 12
"""The same in a direction of names, weekdays, months or numbers, of which there are 650; of dates a third of it."""
LEAST_PERCENT = {"phrases": 98.0, "held_out": 95.0}
"""What a direction must reach to be claimed for sentences."""
SEED = 1
PENALTY = 1.05
"""What real models of the family ask for; the demo must not be hurt by it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One translation to be made."""

    direction: Direction
    source: str
    expected: str


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Cases that are scored together, direction by direction."""

    title: str
    cases: Sequence[Case]
    penalty: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Score:
    """Exact matches of one direction."""

    right: int
    total: int

    @property
    def percent(self) -> float:
        """Of the total."""
        return 100 * self.right / self.total


def groups(book: Phrasebook, sample: int = SAMPLE, name_sample: int = NAME_SAMPLE) -> dict[str, Group]:
    """Everything that is measured; the cases are the same in every run."""
    trained, held_out = _by_group(book.train), _by_group(book.held_out)
    phrases = _cases(trained["phrase"])
    seen = _sampled(_cases(trained["template"]), sample)
    sentences = [*phrases, *_cases(trained["template"])]
    return {
        "phrases": Group("phrases", phrases),
        "combinations": Group("template combinations of the training data", seen),
        "held_out": Group("template combinations never seen", _cases(held_out["template"])),
        "noisy": Group(
            "phrases and combinations as a hurried user types them", _noisy(_sampled(sentences, sample // 2))
        ),
        "names": Group("names, weekdays, months, numbers", _sampled(_cases(trained["cldr"]), name_sample)),
        "dates": Group("dates of the training data", _sampled(_cases(trained["date"]), name_sample // 3)),
        "held_out_dates": Group("dates never seen", _sampled(_cases(held_out["date"]), name_sample // 3)),
        "penalized": Group(f"phrases with a repetition penalty of {PENALTY}", _sampled(phrases, sample // 3), PENALTY),
    }


def _by_group(items: Iterable[Item]) -> Mapping[str, list[Item]]:
    found: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        found[group_of(item)].append(item)
    return found


def _cases(items: Iterable[Item]) -> list[Case]:
    return [
        Case((source, target), item.texts[source], item.texts[target])
        for item in items
        for source, target in directions(item)
    ]


def _sampled(cases: Iterable[Case], count: int) -> list[Case]:
    """At most `count` of every direction."""
    found: dict[Direction, list[Case]] = defaultdict(list)
    for case in cases:
        found[case.direction].append(case)
    rng = random.Random(SEED)
    chosen = (rng.sample(found[way], min(count, len(found[way]))) for way in sorted(found))
    return [case for way in chosen for case in way]


def _noisy(cases: Iterable[Case]) -> list[Case]:
    """The cases whose source a hurried user would type differently, in that form."""
    rng = random.Random(SEED)
    typed = ((case, hurried(case.source, case.direction[0], rng)) for case in cases)
    return [dataclasses.replace(case, source=source) for case, source in typed if source != case.source]


def measure(model: Path, chosen: Mapping[str, Group], threads: int) -> Iterator[tuple[str, dict[Direction, Score]]]:
    """Yield the scores of each group as they are known."""
    for name, group in chosen.items():
        with GreedyModel(model, threads=threads, penalty=group.penalty) as greedy:
            # Texts of like length together: a batch lasts as long as its longest answer.
            cases = sorted(group.cases, key=lambda case: len(case.expected.encode()))
            answers = greedy.translate([(*case.direction, case.source) for case in cases])
            yield name, tally(zip(cases, answers, strict=True))


def tally(outcomes: Iterable[tuple[Case, str]]) -> dict[Direction, Score]:
    """Count exact matches per direction."""
    right: dict[Direction, int] = defaultdict(int)
    total: dict[Direction, int] = defaultdict(int)
    for case, answer in outcomes:
        total[case.direction] += 1
        right[case.direction] += answer == case.expected
    return {way: Score(right[way], total[way]) for way in sorted(total)}


def report(model: Path, chosen: Mapping[str, Group], scores: Mapping[str, Mapping[Direction, Score]]) -> dict[str, Any]:
    """The content of `scores.json`."""
    data = model.read_bytes()
    claimed = {way for by_way in scores.values() for way in by_way} - _unfit(scores)
    return {
        "file": model.name,
        "size_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "training_steps": STEPS,
        "geometry": _geometry(model),
        "phrase_languages": list(PHRASE_LANGUAGES),
        "directions": sorted("-".join(way) for way in claimed),
        "unclaimed": sorted("-".join(way) for way in _unfit(scores)),
        "groups": {name: _summary(chosen[name], by_way) for name, by_way in scores.items()},
    }


def _unfit(scores: Mapping[str, Mapping[Direction, Score]]) -> set[Direction]:
    """Directions that are trained and measured, but not good enough to be claimed."""
    return {
        way
        for name, least in LEAST_PERCENT.items()
        for way, score in scores.get(name, {}).items()
        if score.percent < least
    }


def _geometry(model: Path) -> dict[str, int]:
    """What the header says, in the words of the checkpoint's configuration."""
    metadata, facts = read_metadata(model), read_file_facts(model)
    keys = {
        "layers": "block_count",
        "hidden": "embedding_length",
        "inner": "feed_forward_length",
        "heads": "attention.head_count",
        "kv_heads": "attention.head_count_kv",
        "head_dim": "attention.key_length",
        "context": "context_length",
        "vocabulary": "vocab_size",
    }
    found = {name: int(str(metadata[f"{facts.architecture}.{key}"])) for name, key in keys.items()}
    return found | {"parameters": sum(math.prod(shape) for shape in facts.tensor_shapes.values())}


def _summary(group: Group, by_way: Mapping[Direction, Score]) -> dict[str, Any]:
    percents = {way: score.percent for way, score in by_way.items()}
    worst = min(percents, key=lambda way: percents[way])
    return {
        "title": group.title,
        "items": sum(score.total for score in by_way.values()),
        "min": round(percents[worst], 2),
        "median": round(statistics.median(percents.values()), 2),
        "mean": round(statistics.fmean(percents.values()), 2),
        "worst": ">".join(worst),
        "exact": {">".join(way): [score.right, score.total] for way, score in by_way.items()},
    }


def card(result: Mapping[str, Any], template: str) -> str:
    """Fill the card's `{name}` places; every other brace stays."""
    rows = [
        f"| {group['title']} | {len(group['exact'])} | {group['items']} | {group['min']:.1f} | {group['median']:.1f}"
        f" | {group['worst']} |"
        for group in result["groups"].values()
    ]
    header = ["| group | directions | items | min % | median % | worst direction |", "|---|---:|---:|---:|---:|---|"]
    values = {
        "file": result["file"],
        "bytes": f"{result['size_bytes']:,}",
        "sha256": result["sha256"],
        "steps": f"{result['training_steps']:,}",
        "directions": str(len(result["directions"])),
        "unclaimed": ", ".join(result["unclaimed"]) or "none",
        **{name: f"{number:,}" for name, number in result["geometry"].items()},
        "table": "\n".join([*header, *rows]),
    }
    for name, value in values.items():
        template = template.replace("{" + name + "}", value)
    return template


def main(arguments: Sequence[str] | None = None, measured: Callable[..., Iterator[tuple[str, Any]]] = measure) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m hymt_convert.demo.scores", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the GGUF file")
    parser.add_argument("--json", type=Path, default=HERE / "scores.json", metavar="OUT")
    parser.add_argument("--card", type=Path, default=HERE / "CARD.md", metavar="OUT")
    parser.add_argument("--sample", type=int, default=SAMPLE, help=f"items per direction (default {SAMPLE})")
    parser.add_argument("--name-sample", type=int, default=NAME_SAMPLE, help=f"for names (default {NAME_SAMPLE})")
    parser.add_argument("--groups", nargs="*", help="only these; nothing is written then")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    chosen = groups(load_items(), options.sample, options.name_sample)
    if options.groups:
        chosen = {name: chosen[name] for name in options.groups}
    scores = {}
    for name, by_way in measured(options.model, chosen, options.threads):
        scores[name] = by_way
        summary = _summary(chosen[name], by_way)
        print(f"{name}: min {summary['min']} ({summary['worst']}), median {summary['median']}", flush=True)
    if not options.groups:
        result = report(options.model, chosen, scores)
        options.json.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        template = (HERE / "card.template.md").read_text(encoding="utf-8")
        options.card.write_text(card(result, template), encoding="utf-8")


if __name__ == "__main__":
    main()
