"""False alarms of the output checks, measured on professional translations.

    python -m tests.bench.bench_checks [--pairs all|english] [--every N] [--folder NTREX] [--lines N]

Every line of a parallel corpus is checked against its translation in another language, as if a model had written it. A
finding is a false alarm, nearly always; the rates are what a user would see on correct work. A few translations of the
corpus are at fault themselves (simplified characters in Cantonese, a comma for a sentence): `--lines` shows which lines
are behind the most errors, with all their directions, and the rate without them.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hymt_local.checks import Pair, check_pair
from hymt_local.detect import LanguageDetector
from hymt_local.segment import Finding, Severity

Place = tuple[str, int]
"""A language and the number of a line."""


@dataclass(frozen=True)
class Alarms:
    """How often the checks spoke up."""

    n_pairs: int
    errors: Counter[str]
    """Segments with such an error, by code."""
    warnings: Counter[str]
    n_with_warning: int
    """Segments with a warning about anything but numbers."""
    pairs_with_error: tuple[tuple[Place, Place], ...]
    examples: dict[str, tuple[Pair, Finding]]
    elapsed_s: float

    @property
    def error_rate(self) -> float:
        """Share of segments with an error."""
        return len(self.pairs_with_error) / self.n_pairs

    def without_worst(self, n_lines: int) -> tuple[list[tuple[Place, int]], int]:
        """Return the lines behind the most errors, each with how many it explains, and how many errors remain."""
        worst: list[tuple[Place, int]] = []
        remaining = list(self.pairs_with_error)
        while remaining and len(worst) < n_lines:
            place, count = Counter(place for pair in remaining for place in pair).most_common(1)[0]
            worst.append((place, count))
            remaining = [pair for pair in remaining if place not in pair]
        return worst, len(remaining)

    @property
    def warning_rate(self) -> float:
        """Share of segments with a warning about anything but numbers."""
        return self.n_with_warning / self.n_pairs


def read_corpus(folder: Path) -> dict[str, list[str]]:
    """Return the lines of every language of a parallel corpus, one file each."""
    return {path.stem: path.read_text(encoding="utf-8").splitlines() for path in sorted(folder.glob("*.txt"))}


def directions(languages: Iterable[str], *, which: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of languages: all, or those with English on one side."""
    for pair in itertools.permutations(languages, 2):
        if which == "all" or "en" in pair:
            yield pair


def measure(corpus: dict[str, list[str]], pairs: Iterable[tuple[str, str]], *, every: int = 1) -> Alarms:
    """Check every `every`-th line of each direction."""
    detector = LanguageDetector()

    def identify(text: str) -> tuple[str, float] | None:
        found = detector.detect(text)
        return (found.tag, found.confidence) if found else None

    errors, warnings = Counter[str](), Counter[str]()
    n_pairs = n_with_warning = 0
    with_error: list[tuple[Place, Place]] = []
    examples: dict[str, tuple[Pair, Finding]] = {}
    started = time.perf_counter()
    for source_lang, target_lang in pairs:
        lines = list(zip(itertools.count(1), corpus[source_lang], corpus[target_lang], strict=False))
        for number, source, target in lines[n_pairs % every :: every]:
            n_pairs += 1
            pair = Pair(source, target, source_lang, target_lang, identify=identify)
            found = check_pair(pair)
            codes = {severity: {f.code for f in found if f.severity is severity} for severity in Severity}
            errors.update(codes[Severity.ERROR])
            warnings.update(codes[Severity.WARNING])
            with_error += [((source_lang, number), (target_lang, number))] if codes[Severity.ERROR] else []
            n_with_warning += bool(codes[Severity.WARNING] - {"number"})
            for finding in found:
                examples.setdefault(f"{finding.severity} {finding.code}", (pair, finding))
    elapsed = time.perf_counter() - started
    return Alarms(n_pairs, errors, warnings, n_with_warning, tuple(with_error), examples, elapsed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", choices=["all", "english"], default="english")
    parser.add_argument("--every", type=int, default=1, help="check one line in so many")
    parser.add_argument(
        "--folder", type=Path, default=Path(os.environ.get("HYMT_TEST_DATA", "../shared/data")) / "ntrex"
    )
    parser.add_argument("--lines", type=int, default=0, help="show so many lines that are behind the most errors")
    parser.add_argument("--examples", action="store_true")
    options = parser.parse_args(arguments)
    corpus = read_corpus(options.folder)
    alarms = measure(corpus, directions(corpus, which=options.pairs), every=options.every)
    print(f"{alarms.n_pairs} pairs, {1e6 * alarms.elapsed_s / alarms.n_pairs:.0f} us each")
    for name, rate, counts in (
        ("errors", alarms.error_rate, alarms.errors),
        ("warnings but numbers", alarms.warning_rate, alarms.warnings),
    ):
        print(f"{name}: {rate:.3%}")
        for code, count in counts.most_common():
            print(f"  {code:20} {count / alarms.n_pairs:.3%}")
    if options.lines:
        worst, n_left = alarms.without_worst(options.lines)
        for (lang, number), count in worst:
            print(f"  {lang} {number}: {count} errors: {corpus[lang][number - 1]}")
        print(f"errors without these lines: {n_left / alarms.n_pairs:.3%}")
    if options.examples:
        for code, (pair, finding) in alarms.examples.items():
            print(
                f"\n{code} {pair.source_lang}>{pair.target_lang}: {finding.message}\n  {pair.source}\n  {pair.target}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
