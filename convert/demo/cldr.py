"""Regenerates ``data/cldr.tsv``, the demo model's names, numbers and dates, from ICU's copy of Unicode CLDR.

Needs PyICU, which nothing else in the project needs. Another ICU version may give other texts; the committed file
is from the version that ``data/README.md`` names. A text that ICU borrows from another language is left out.
"""

import argparse
import datetime
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import icu

_LANGUAGE_CODES = (
    "zh en fr pt es ja tr ru ar ko th it de vi ms id tl hi zh-Hant pl cs nl km my fa gu ur te mr he bn ta uk bo kk mn"
    " ug yue"
)
_LATIN_CODES = "en fr pt es tr it de vi ms id tl pl cs nl"
_COUNTRY_CODES = (
    "AR AT AU BD BE BR CA CH CL CN CO CZ DE DK EG ES FI FR GB GR ID IE IL IN IQ IR IS IT JP KE KH KR KZ LA LK MA MM MN"
    " MX MY NG NL NO NP NZ PE PH PK PL PT RU SA SE SG TH TR UA US VN ZA"
)
LANGUAGES = tuple(_LANGUAGE_CODES.split())
LATIN_LANGUAGES = frozenset(_LATIN_CODES.split())
COUNTRIES = tuple(_COUNTRY_CODES.split())
NUMBERS = (*range(21), *range(30, 100, 10), 100, 1000)
DATE_COUNT = 160
LONG_DATE_STEP = 4
DATE_YEAR = 2023
PATTERNS = {  # CLDR 48's, where ICU 72 (CLDR 42) has none and falls back on the root's order
    ("bo", "EEEEMMMMd"): "MMMMའི་ཚེས་d, EEEE",
    ("km", "MMMMd"): "d MMMM",
    ("mn", "EEEEMMMMd"): "MMMM'ын' d, EEEE 'гараг'",
}
WRONG_NUMBERS = {  # rules that give what nobody writes: 'jedna tisíc', 'ஒன்று ஆயிரம்', 'dalawáng pû', 'إثنان'
    "ar": (2, 11, 12),
    "cs": (1000,),
    "ta": (1000,),
    "tl": (0, *range(20, 100, 10)),
}
HEADER = "id\tkind\tlang\ttext\n"
DEFAULT_OUTPUT = Path(__file__).parent / "data" / "cldr.tsv"

_INVISIBLE = re.compile("[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")


class Row(NamedTuple):
    """One line of the file; ``id`` is the meaning, the same in every language."""

    id: str
    kind: str
    lang: str
    text: str


def clean(text: str) -> str:
    """NFC on one line, without soft hyphens, zero-width spaces and bidi controls; joiners stay, they are spelling."""
    return " ".join(unicodedata.normalize("NFC", _INVISIBLE.sub("", text)).split())


def without_stress(text: str) -> str:
    """Filipino rules mark stress as dictionaries do and newspapers do not."""
    return re.sub("[\u0300-\u0302]", "", unicodedata.normalize("NFD", text))


def has_latin(text: str) -> bool:
    """Whether any letter is of the Latin script, fullwidth forms aside."""
    return any(unicodedata.name(char, "").startswith("LATIN ") for char in text)


def icu_locale(lang: str) -> icu.Locale:
    """Forces the Gregorian calendar, which is not the default of Persian and Thai."""
    name = {"tl": "fil"}.get(lang, lang).replace("-", "_")
    return icu.Locale(f"{name}@calendar=gregorian")


def language_rows(lang: str) -> Iterator[Row]:
    """Without the names that ICU answers with the code, having none."""
    locale = icu_locale(lang)
    names = icu.LocaleDisplayNames.createInstance(locale, icu.UDialectHandling.DIALECT_NAMES)
    for code in LANGUAGES:
        asked = icu_locale(code).getBaseName()
        text = str(names.localeDisplayName(asked))
        if text != asked:
            yield Row(f"language-{code}", "language", lang, text)


def country_rows(lang: str) -> Iterator[Row]:
    """Without the names that ICU answers with the code, having none."""
    locale = icu_locale(lang)
    for code in COUNTRIES:
        text = str(icu.Locale("und", code).getDisplayCountry(locale))
        if text != code:
            yield Row(f"country-{code}", "country", lang, text)


def calendar_rows(lang: str) -> Iterator[Row]:
    """Weekday 1 is Monday; ICU counts from Sunday and has an empty entry first."""
    symbols = icu.DateFormatSymbols(icu_locale(lang))
    form = (icu.DateFormatSymbols.STANDALONE, icu.DateFormatSymbols.WIDE)
    sunday, *others = symbols.getWeekdays(*form)[1:]
    for number, text in enumerate((*others, sunday), 1):
        yield Row(f"weekday-{number}", "weekday", lang, str(text))
    for number, text in enumerate(symbols.getMonths(*form), 1):
        yield Row(f"month-{number:02}", "month", lang, str(text))


def number_rows(lang: str) -> Iterator[Row]:
    """Nothing where ICU has no rules of the language and would spell in English."""
    locale = icu_locale(lang)
    rules = icu.RuleBasedNumberFormat(icu.URBNFRuleSetTag.SPELLOUT, locale)
    if rules.getLocale(icu.ULocDataLocaleType.ACTUAL_LOCALE).getLanguage() != locale.getLanguage():
        return
    for number in NUMBERS:
        if number not in WRONG_NUMBERS.get(lang, ()):
            text = str(rules.format(number))
            yield Row(f"number-{number}", "number", lang, without_stress(text) if lang == "tl" else text)


def dates() -> list[datetime.date]:
    """Spread evenly over a year; ``DATE_YEAR`` decides only which weekday a long date has."""
    first = datetime.date(DATE_YEAR, 1, 1)
    return [first + datetime.timedelta(days=365 * step // DATE_COUNT) for step in range(DATE_COUNT)]


def date_pattern(lang: str, skeleton: str) -> str:
    """The locale's own order and words for the skeleton's fields."""
    generator = icu.DateTimePatternGenerator.createInstance(icu_locale(lang))
    return PATTERNS.get((lang, skeleton)) or str(generator.getBestPattern(skeleton))


def skeleton_rows(lang: str, prefix: str, skeleton: str, days: Iterable[datetime.date]) -> Iterator[Row]:
    """The days in the skeleton's format, with the digits that the locale prefers."""
    formatter = icu.SimpleDateFormat(date_pattern(lang, skeleton), icu_locale(lang))
    formatter.setTimeZone(icu.TimeZone.createTimeZone("UTC"))
    for day in days:
        noon = datetime.datetime.combine(day, datetime.time(12), datetime.UTC).timestamp()
        yield Row(f"{prefix}-{day:%m%d}", "date", lang, str(formatter.format(noon)))


def date_rows(lang: str) -> Iterator[Row]:
    """All dates as day and month, some of them with their weekday."""
    yield from skeleton_rows(lang, "date", "MMMMd", dates())
    yield from skeleton_rows(lang, "date-long", "EEEEMMMMd", dates()[::LONG_DATE_STEP])


def language_data(lang: str) -> Iterator[Row]:
    """Everything ICU has for the language itself: Latin letters elsewhere betray a root or English fallback."""
    for source in (language_rows, country_rows, calendar_rows, number_rows, date_rows):
        for row in source(lang):
            text = clean(row.text)
            if text and (lang in LATIN_LANGUAGES or not has_latin(text)):
                yield row._replace(text=text)


def all_rows() -> list[Row]:
    """The whole file, in its order."""
    rows = (row for lang in LANGUAGES for row in language_data(lang))
    return sorted(rows, key=lambda row: (row.kind, row.id, row.lang))


def render(rows: Iterable[Row]) -> str:
    """The file's text, header included."""
    return HEADER + "".join("\t".join(row) + "\n" for row in rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file and say how many rows it has."""
    parser = argparse.ArgumentParser(description="Regenerate the demo model's CLDR data with PyICU.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="file to write")
    output: Path = parser.parse_args(argv).output
    rows = all_rows()
    output.write_text(render(rows), encoding="utf-8", newline="\n")
    print(f"{len(rows)} rows from ICU {icu.ICU_VERSION}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
