"""Language identification and sentence splitting against their gates.

    python -m tests.bench.bench_text [--json]

Identification: own sentences, news of the parallel corpus whole and cut to 40 characters, and the Universal
Declaration of Human Rights by paragraph. Splitting: groups of four news lines joined as their language joins
sentences; recall of the three inner boundaries.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import resource
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hymt_local.detect import LanguageDetector
from hymt_local.segmenter import Level, parts_at

Case = tuple[str, str]
"""Expected tag, text."""

MERGED = {"id": "ms", "yue": "zh-Hant"}
"""Written Malay and Indonesian, formal Cantonese and Traditional Chinese: not to be told apart in every sentence."""
OTHER_SCRIPTS = {"kk-Arab": "kk", "mn-Mong": "mn"}
UDHR_TAGS = {
    "arb": "ar",
    "ben": "bn",
    "bod": "bo",
    "cmn_hans": "zh",
    "cmn_hant": "zh-Hant",
    "deu_1996": "de",
    "eng": "en",
    "fra": "fr",
    "heb": "he",
    "hin": "hi",
    "ind": "id",
    "jpn": "ja",
    "kaz": "kk",
    "khm": "km",
    "kor": "ko",
    "rus": "ru",
    "tha": "th",
    "uig_arab": "ug",
    "urd": "ur",
    "yue": "yue",
}
GATES = {"own": 0.97, "news": 0.98, "news 40": 0.965, "udhr": 0.975, "news merged": 0.995, "news 40 merged": 0.985}
_PARAGRAPH = re.compile(r"<(p|li)\b[^>]*>(.*?)</\1>", re.DOTALL)
_GROUP = 4
_UNSPACED = {"zh", "zh-Hant", "yue", "ja"}


def own_cases(folder: Path) -> list[Case]:
    """Return the project's own sentences."""
    lines = (folder / "lid" / "own_sentences.tsv").read_text(encoding="utf-8").splitlines()
    return [(OTHER_SCRIPTS.get(tag, tag), text) for tag, text in (line.split("\t") for line in lines)]


def news_cases(folder: Path, n_characters: int | None = None) -> list[Case]:
    """Return the news lines, or their beginnings."""
    return [
        (path.stem, line[:n_characters])
        for path in sorted((folder / "ntrex").glob("*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]


def udhr_cases(folder: Path) -> list[Case]:
    """Return the paragraphs of the declaration that have words."""
    return [(UDHR_TAGS[path.stem], text) for path in sorted((folder / "udhr").glob("*.html")) for text in _texts(path)]


def _texts(path: Path) -> Iterator[str]:
    for match in _PARAGRAPH.finditer(path.read_text(encoding="utf-8")):
        text = " ".join(html.unescape(re.sub(r"<[^>]*>", "", match[2])).split())
        if sum(map(str.isalpha, text)) > 1:
            yield text


def share_right(detector: LanguageDetector, cases: Sequence[Case], *, merged: bool = False) -> float:
    """Return the share of texts whose language was found."""
    found = [(expected, detector.detect(text)) for expected, text in cases]
    tags = [(expected, each.tag if each else "und") for expected, each in found]
    return sum(len({MERGED.get(tag, tag) if merged else tag for tag in pair}) == 1 for pair in tags) / len(cases)


def detection_gates(folder: Path) -> dict[str, float]:
    """Return what was measured for each gate."""
    detector = LanguageDetector()
    news, short = news_cases(folder), news_cases(folder, 40)
    return {
        "own": share_right(detector, own_cases(folder)),
        "news": share_right(detector, news),
        "news 40": share_right(detector, short),
        "udhr": share_right(detector, udhr_cases(folder)),
        "news merged": share_right(detector, news, merged=True),
        "news 40 merged": share_right(detector, short, merged=True),
    }


def boundary_recall(folder: Path, languages: Iterable[str]) -> dict[str, float]:
    """Return, by language, the share of boundaries between joined news lines that the splitter finds."""
    recall: dict[str, float] = {}
    for lang in languages:
        lines = (folder / "ntrex" / f"{lang}.txt").read_text(encoding="utf-8").splitlines()
        joiner = "" if lang in _UNSPACED else " "
        n_found = n_wanted = 0
        for start in range(0, len(lines) - _GROUP + 1, _GROUP):
            group = [line.strip() for line in lines[start : start + _GROUP]]
            ends, position = set[int](), 0
            for part in parts_at(joiner.join(group), Level.SENTENCE, lang=lang):
                position += len(part)
                ends.add(position)
            wanted = [len(joiner.join([*group[:n], ""])) for n in range(1, _GROUP)]
            n_wanted += len(wanted)
            n_found += sum(place in ends for place in wanted)
        recall[lang] = n_found / n_wanted
    return recall


def time_us(folder: Path) -> dict[str, float]:
    """Return median and 95th percentile of one detection, in microseconds of processor time."""
    detector = LanguageDetector()
    cases = news_cases(folder)
    detector.detect(cases[0][1])
    times: list[float] = []
    for _, text in cases:
        started = time.thread_time()
        detector.detect(text)
        times.append(1e6 * (time.thread_time() - started))
    return {"median": statistics.median(times), "p95": statistics.quantiles(times, n=20)[-1]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was measured beside its gate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("HYMT_TEST_DATA", "../shared/data")))
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args(arguments)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gates = detection_gates(options.folder)
    growth_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    languages = sorted(path.stem for path in (options.folder / "ntrex").glob("*.txt"))
    recall = boundary_recall(options.folder, languages)
    times = time_us(options.folder)
    if options.as_json:
        print(json.dumps({"detection": gates, "recall": recall, "time_us": times, "growth_mb": growth_mb}))
        return 0
    for name, value in gates.items():
        print(f"{name:16} {value:.4f}  gate {GATES[name]}  {'ok' if value >= GATES[name] else 'MISSED'}")
    print(f"detection: median {times['median']:.0f} us, p95 {times['p95']:.0f} us; memory grows by {growth_mb:.0f} MB")
    print(f"sentence boundaries: recall {statistics.mean(recall.values()):.3f}")
    print("  " + " ".join(f"{lang} {value:.2f}" for lang, value in sorted(recall.items(), key=lambda each: each[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
