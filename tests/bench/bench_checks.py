"""False alarms of the output checks, measured on professional translations.

    python -m tests.bench.bench_checks [--pairs all|english] [--folder NTREX]

Every line of a parallel corpus is checked against its translation in another language, as if a model had written it. A
finding is a false alarm, nearly always; the rates are what a user would see on correct work.
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


@dataclass(frozen=True)
class Alarms:
    """How often the checks spoke up."""

    n_pairs: int
    errors: Counter[str]
    """Segments with such an error, by code."""
    warnings: Counter[str]
    n_with_error: int
    n_with_warning: int
    """Segments with a warning about anything but numbers."""
    examples: dict[str, tuple[Pair, Finding]]
    elapsed_s: float

    @property
    def error_rate(self) -> float:
        """Share of segments with an error."""
        return self.n_with_error / self.n_pairs

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
    n_pairs = n_with_error = n_with_warning = 0
    examples: dict[str, tuple[Pair, Finding]] = {}
    started = time.perf_counter()
    for source_lang, target_lang in pairs:
        lines = list(zip(corpus[source_lang], corpus[target_lang], strict=True))
        for source, target in lines[n_pairs % every :: every]:
            n_pairs += 1
            pair = Pair(source, target, source_lang, target_lang, identify=identify)
            found = check_pair(pair)
            codes = {severity: {f.code for f in found if f.severity is severity} for severity in Severity}
            errors.update(codes[Severity.ERROR])
            warnings.update(codes[Severity.WARNING])
            n_with_error += bool(codes[Severity.ERROR])
            n_with_warning += bool(codes[Severity.WARNING] - {"number"})
            for finding in found:
                examples.setdefault(f"{finding.severity} {finding.code}", (pair, finding))
    elapsed = time.perf_counter() - started
    return Alarms(n_pairs, errors, warnings, n_with_error, n_with_warning, examples, elapsed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", choices=["all", "english"], default="english")
    parser.add_argument("--every", type=int, default=1, help="check one line in so many")
    parser.add_argument(
        "--folder", type=Path, default=Path(os.environ.get("HYMT_TEST_DATA", "../shared/data")) / "ntrex"
    )
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
    if options.examples:
        for code, (pair, finding) in alarms.examples.items():
            print(
                f"\n{code} {pair.source_lang}>{pair.target_lang}: {finding.message}\n  {pair.source}\n  {pair.target}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
