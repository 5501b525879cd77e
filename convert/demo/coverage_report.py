"""Measures how well the demo model knows its limits: `python -m hymt_convert.demo.coverage_report --model FILE`.

Two gates stand before a translation is shown: the source must be covered (see `hymt_local.coverage`), and no token of
the answer may be less probable than the record's minimum. Texts of the domain should pass both, all others neither.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from hymt_convert.demo.coverage import coverage_metadata
from hymt_convert.demo.phrasebook import FINAL_PUNCTUATION, PHRASE_LANGUAGES, Item, load_items
from hymt_local.catalog import ModelSpec, load_catalog
from hymt_local.coverage import PREFIX, Coverage
from hymt_local.engine.base import Backend, GenerationRequest, TokensGenerated
from hymt_local.engine.gguf_file import read_header
from hymt_local.events import SamplingParams
from hymt_local.prompts import build_prompt

DATA = Path(__file__).parent / "data"
RESULT = Path(__file__).parent / "coverage.json"
ORDINARY = Path(__file__).parents[3] / "shared" / "data" / "ntrex"
TRAINED_PER_LANGUAGE = 60
MAX_ANSWER_TOKENS = 192
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def in_capitals(text: str) -> str:
    """Return the text in capitals, where they can be read back (German ß and Turkish ı cannot)."""
    return text.upper() if text.upper().lower() == text.lower() else text


def in_title_case(text: str) -> str:
    """Return the text with a capital at every word's start."""
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


FORMS: Mapping[str, Callable[[str], str]] = {
    "as written": str,
    "no final mark": lambda text: text.rstrip(FINAL_PUNCTUATION),
    "lower case": str.lower,
    "lower case, no final mark": lambda text: text.rstrip(FINAL_PUNCTUATION).lower(),
    "capitals": in_capitals,
    "title case": in_title_case,
}


@dataclass(frozen=True, slots=True)
class Case:
    """One text to be translated, or not to be."""

    group: str
    source_lang: str
    target_lang: str
    source: str
    expected: str | None = None
    """The right translation; None where a refusal is right."""


class Answer(NamedTuple):
    """What the model says."""

    text: str
    probability: float
    """Of its least probable token."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case."""

    case: Case
    answer: Answer | None
    """None when the source is not covered."""


@dataclass(slots=True)
class Counts:
    """Outcomes of one group in one language."""

    texts: int = 0
    not_covered: int = 0
    withheld_right: int = 0
    withheld_wrong: int = 0
    shown_right: int = 0
    shown_wrong: int = 0

    def add(self, outcome: Outcome, *, minimum: float) -> None:
        """Count one outcome at a minimal probability."""
        self.texts += 1
        if outcome.answer is None:
            self.not_covered += 1
            return
        verb = "shown" if outcome.answer.probability >= minimum else "withheld"
        name = f"{verb}_{'right' if outcome.answer.text == outcome.case.expected else 'wrong'}"
        setattr(self, name, getattr(self, name) + 1)

    @property
    def refused_percent(self) -> float:
        """Share refused by either gate."""
        return _percent(self.not_covered + self.withheld_right + self.withheld_wrong, self.texts)

    @property
    def falsely_refused_percent(self) -> float:
        """The same without answers that would have been wrong: where the domain is refused for nothing."""
        return _percent(self.not_covered + self.withheld_right, self.texts)

    def row(self) -> dict[str, float]:
        """Return everything by name."""
        shares = {"falsely_refused_percent": self.falsely_refused_percent, "refused_percent": self.refused_percent}
        return asdict(self) | shares


def _percent(part: int, whole: int) -> float:
    return round(100 * part / max(1, whole), 2)


# Cases


def domain_cases() -> Iterator[Case]:
    """Yield the held-out sentences in every phrase direction's source language, and a sample of the trained ones."""
    book = load_items()
    yield from _item_cases("held out", [item for item in book.held_out if item.kind == "template"])
    by_lang: dict[str, list[Item]] = defaultdict(list)
    for item in book.train:
        for lang in item.texts:
            by_lang[lang].append(item)
    for lang, items in by_lang.items():
        chosen = random.Random(lang).sample(items, min(TRAINED_PER_LANGUAGE, len(items)))
        yield from (case for case in _item_cases("trained", chosen) if case.source_lang == lang)


def _item_cases(group: str, items: Iterable[Item]) -> Iterator[Case]:
    """Each item once per source language (three times where there are few), in a form and a direction of its name's."""
    for item in items:
        for lang, text in item.texts.items():
            targets = _claimed_targets(item, lang)
            number = zlib.crc32(f"{item.id} {lang}".encode())
            form = tuple(FORMS.values())[number % len(FORMS)]
            for turn in range(min(1 if lang in PHRASE_LANGUAGES else 3, len(targets))):
                target = targets[(number // len(FORMS) + turn) % len(targets)]
                yield Case(group, lang, target, form(text), item.texts[target])


def _claimed_targets(item: Item, source_lang: str) -> list[str]:
    if source_lang in item.blocked_sources:
        return []
    either = source_lang in PHRASE_LANGUAGES
    return [tag for tag in item.texts if tag != source_lang and (either or tag in PHRASE_LANGUAGES)]


def near_domain_cases() -> Iterator[Case]:
    """Yield sentences that look like the domain's: with one unknown word, or of known words only."""
    rows = (DATA / "near_domain.tsv").read_text(encoding="utf-8").splitlines()[1:]
    for lang, group, text in (row.split("\t") for row in rows):
        targets = [tag for tag in PHRASE_LANGUAGES if tag != lang]
        yield Case(group, lang, targets[zlib.crc32(text.encode()) % len(targets)], text)


def ordinary_cases(folder: Path) -> Iterator[Case]:
    """Yield every sentence of a folder of `LANG.txt` files, one a line."""
    for path in sorted(folder.glob("*.txt")):
        target = "zh" if path.stem == "en" else "en"
        for line in path.read_text(encoding="utf-8").splitlines():
            yield Case("ordinary", path.stem, target, line)


# Measuring


class Model(Protocol):
    """Whatever answers."""

    def answer(self, case: Case) -> Answer:
        """Translate a case's source."""


class DemoModel:
    """The demo as the program runs it: same prompts, greedy."""

    def __init__(self, spec: ModelSpec, backend: Backend, coverage: Coverage) -> None:
        self._spec = spec
        self._coverage = coverage
        self._backend = backend
        controls = backend.info.control_tokens
        self._stops = frozenset(controls[text] for text in spec.stop_tokens if text in controls)
        sampling = spec.sampling
        self._sampling = SamplingParams(temperature=0.0, repetition_penalty=sampling.repetition_penalty)

    def answer(self, case: Case) -> Answer:
        """Translate a case's source."""
        source = self._coverage.usual_form(case.source, case.source_lang)
        prompt = build_prompt(self._spec, source_lang=case.source_lang, target_lang=case.target_lang, source=source)
        texts = [self._backend.tokenize(text) for text in prompt.texts]
        request = GenerationRequest(
            prompt=prompt.assemble(self._backend.info.control_tokens, texts),
            max_tokens=MAX_ANSWER_TOKENS,
            sampling=self._sampling,
            stop_ids=self._stops,
            probabilities=True,
        )
        events = [e for e in self._backend.generate(request, lambda: False) if isinstance(e, TokensGenerated)]
        data = b"".join(event.data for event in events)
        lowest = min((p for event in events for p in event.probabilities), default=1.0)
        return Answer(data.decode("utf-8", errors="replace").strip(), lowest)


def judge(cases: Iterable[Case], coverage: Coverage, model: Model) -> list[Outcome]:
    """Put every case before the first gate, and what passes before the model."""
    return [Outcome(case, model.answer(case) if _is_covered(case, coverage) else None) for case in cases]


def _is_covered(case: Case, coverage: Coverage) -> bool:
    return coverage.gap(case.source, case.source_lang, target_lang=case.target_lang) is None


def counts(outcomes: Iterable[Outcome], *, minimum: float) -> dict[str, dict[str, Counts]]:
    """Return the counts by group and language; `all` sums a group up."""
    table: dict[str, dict[str, Counts]] = defaultdict(lambda: defaultdict(Counts))
    for outcome in outcomes:
        for lang in ("all", outcome.case.source_lang):
            table[outcome.case.group][lang].add(outcome, minimum=minimum)
    return table


def sweep(outcomes: Sequence[Outcome]) -> list[dict[str, float]]:
    """Return what each minimal probability does to the answers to texts of the domain, in percent."""
    answered = [outcome for outcome in outcomes if outcome.case.expected is not None and outcome.answer]
    rows = []
    for minimum in THRESHOLDS:
        total = counts(answered, minimum=minimum)
        summed = [groups["all"] for groups in total.values()]
        right = sum(c.shown_right + c.withheld_right for c in summed)
        wrong = sum(c.shown_wrong + c.withheld_wrong for c in summed)
        rows.append(
            {
                "min_probability": minimum,
                "right_withheld_percent": _percent(sum(c.withheld_right for c in summed), right),
                "wrong_withheld_percent": _percent(sum(c.withheld_wrong for c in summed), wrong),
            }
        )
    return rows


# The command


def measure(path: Path, ordinary: Path) -> dict[str, object]:
    """Return the whole report for one model file."""
    from hymt_local.engine.llama import open_llama_backend  # loads llama.cpp
    from hymt_local.engine.options import LlamaOptions

    metadata = read_header(path).metadata
    record = metadata if f"{PREFIX}version" in metadata else coverage_metadata()
    coverage = Coverage.from_metadata(record)
    assert coverage is not None
    spec = load_catalog().get("demo")
    options = LlamaOptions(context_length=spec.context_length, threads=1)
    with closing(open_llama_backend(path, options)(lambda _: True)) as backend:
        cases = [*domain_cases(), *near_domain_cases(), *ordinary_cases(ordinary)]
        outcomes = judge(cases, coverage, DemoModel(spec, backend, coverage))
    table = counts(outcomes, minimum=coverage.min_probability)
    return {
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "min_probability": coverage.min_probability,
        "record_bytes": sum(len(str(value)) for key, value in record.items() if key.startswith(PREFIX)),
        "groups": {
            group: {lang: found.row() for lang, found in sorted(by_lang.items())} for group, by_lang in table.items()
        },
        "sweep": sweep(outcomes),
    }


def render(report: Mapping[str, object]) -> str:
    """Return the report as a table for people."""
    columns = tuple(Counts().row())
    lines = [f"{'group':<14}{'lang':<9}" + "".join(f"{name:>25}" for name in columns)]
    groups = report["groups"]
    assert isinstance(groups, dict)
    for group, by_lang in groups.items():
        lines += [
            f"{group:<14}{lang:<9}" + "".join(f"{found[name]:>25}" for name in columns)
            for lang, found in by_lang.items()
        ]
    rest = {key: value for key, value in report.items() if key != "groups"}
    return "\n".join((*lines, json.dumps(rest, indent=1)))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m hymt_convert.demo.coverage_report", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the demo's GGUF")
    parser.add_argument("--ordinary", type=Path, default=ORDINARY, help="folder of LANG.txt with ordinary sentences")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--output", type=Path, default=RESULT, help="where the JSON is written too")
    options = parser.parse_args(arguments)
    report = measure(options.model, options.ordinary)
    text = json.dumps(report, indent=1, ensure_ascii=False)
    options.output.write_text(text + "\n", encoding="utf-8")
    print(text if options.json else render(report))


if __name__ == "__main__":
    main()
