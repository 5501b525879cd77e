"""The languages of the model family, and the matching of what people write for them: tags, locales, names.

The names are the model cards' own, not CLDR's: they go into prompts. Nothing here knows which model speaks what.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from hymt_local.errors import LanguageError


@dataclass(frozen=True, slots=True)
class Language:
    """One language of the model cards."""

    tag: str
    """BCP 47."""
    english: str
    """The name in English prompts."""
    chinese: str
    """The name in Chinese prompts."""
    native: str
    """The language's own name, for people who look for it in a list."""
    script: str
    """ISO 15924 code of the script its text is written in; `Jpan` and `Kore` stand for their mixtures."""
    rtl: bool = False


# Order, tags, English and Chinese names: the table of all three model cards ("33 languages and 5 variants").
LANGUAGES: tuple[Language, ...] = (
    Language("zh", "Chinese", "中文", "中文", "Hans"),
    Language("en", "English", "英语", "English", "Latn"),
    Language("fr", "French", "法语", "Français", "Latn"),
    Language("pt", "Portuguese", "葡萄牙语", "Português", "Latn"),
    Language("es", "Spanish", "西班牙语", "Español", "Latn"),
    Language("ja", "Japanese", "日语", "日本語", "Jpan"),
    Language("tr", "Turkish", "土耳其语", "Türkçe", "Latn"),
    Language("ru", "Russian", "俄语", "Русский", "Cyrl"),
    Language("ar", "Arabic", "阿拉伯语", "العربية", "Arab", rtl=True),
    Language("ko", "Korean", "韩语", "한국어", "Kore"),
    Language("th", "Thai", "泰语", "ไทย", "Thai"),
    Language("it", "Italian", "意大利语", "Italiano", "Latn"),
    Language("de", "German", "德语", "Deutsch", "Latn"),
    Language("vi", "Vietnamese", "越南语", "Tiếng Việt", "Latn"),
    Language("ms", "Malay", "马来语", "Bahasa Melayu", "Latn"),
    Language("id", "Indonesian", "印尼语", "Bahasa Indonesia", "Latn"),
    Language("tl", "Filipino", "菲律宾语", "Filipino", "Latn"),
    Language("hi", "Hindi", "印地语", "हिन्दी", "Deva"),
    Language("zh-Hant", "Traditional Chinese", "繁体中文", "繁體中文", "Hant"),
    Language("pl", "Polish", "波兰语", "Polski", "Latn"),
    Language("cs", "Czech", "捷克语", "Čeština", "Latn"),
    Language("nl", "Dutch", "荷兰语", "Nederlands", "Latn"),
    Language("km", "Khmer", "高棉语", "ភាសាខ្មែរ", "Khmr"),
    Language("my", "Burmese", "缅甸语", "မြန်မာဘာသာ", "Mymr"),
    Language("fa", "Persian", "波斯语", "فارسی", "Arab", rtl=True),
    Language("gu", "Gujarati", "古吉拉特语", "ગુજરાતી", "Gujr"),
    Language("ur", "Urdu", "乌尔都语", "اردو", "Arab", rtl=True),
    Language("te", "Telugu", "泰卢固语", "తెలుగు", "Telu"),
    Language("mr", "Marathi", "马拉地语", "मराठी", "Deva"),
    Language("he", "Hebrew", "希伯来语", "עברית", "Hebr", rtl=True),
    Language("bn", "Bengali", "孟加拉语", "বাংলা", "Beng"),
    Language("ta", "Tamil", "泰米尔语", "தமிழ்", "Taml"),
    Language("uk", "Ukrainian", "乌克兰语", "Українська", "Cyrl"),
    Language("bo", "Tibetan", "藏语", "བོད་སྐད་", "Tibt"),
    Language("kk", "Kazakh", "哈萨克语", "Қазақ тілі", "Cyrl"),
    Language("mn", "Mongolian", "蒙古语", "Монгол", "Cyrl"),
    Language("ug", "Uyghur", "维吾尔语", "ئۇيغۇرچە", "Arab", rtl=True),
    Language("yue", "Cantonese", "粤语", "粵語", "Hant"),
)

_CHINESE_TAGS = frozenset({"zh", "zh-Hant", "yue"})
_STANDARD_CHINESE = frozenset({"zh", "zh-Hant"})
_TAUGHT_THROUGH_CHINESE = frozenset({"bo", "ug", "kk", "mn", "yue"})
_SHOWN_CHARACTERS = 60
_LIST_HINT = "`hymt languages` lists them"

# Language subtags that the table spells differently: retired codes, and the standard member of a macrolanguage.
_SUBTAG_ALIASES = {
    "iw": "he",
    "in": "id",
    "fil": "tl",
    "cmn": "zh",
    "arb": "ar",
    "pes": "fa",
    "zsm": "ms",
    "khk": "mn",
}

# Names people use that are neither a card's name nor the language's own.
_NAME_ALIASES = {
    "zh": (
        *("Simplified Chinese", "Chinese (Simplified)", "Mandarin", "Mandarin Chinese"),
        *("汉语", "普通话", "国语", "简体中文", "中文(简体)", "简体"),
    ),
    "zh-Hant": ("Chinese (Traditional)", "中文(繁体)", "繁体", "正体中文"),
    "yue": ("Cantonese Chinese", "广东话", "白话"),
    "pt": ("Brazilian Portuguese", "Brazilian"),
    "es": ("Castilian", "Castellano"),
    "tl": ("Tagalog", "Pilipino", "他加禄语"),
    "id": ("Bahasa", "印度尼西亚语"),
    "ms": ("Malaysian", "Melayu"),
    "fa": ("Farsi", "Parsi"),
    "ko": ("朝鲜语", "조선말"),
    "km": ("Cambodian", "柬埔寨语", "ខ្មែរ"),
    "my": ("Myanmar", "မြန်မာ"),
    "bn": ("Bangla",),
    "ug": ("Uighur", "Uygur"),
    "kk": ("Qazaq", "Қазақша"),
    "mn": ("Монгол хэл",),
    "bo": ("བོད་ཡིག་",),
    "th": ("ภาษาไทย",),
    "ar": ("عربي",),
    "uk": ("Украинский",),
}

# Traditional forms of the characters in the Chinese names above: 繁體中文, 韓語 and 粵語 find their language too.
_TRADITIONAL_TO_SIMPLIFIED = str.maketrans(
    "語國簡體漢廣話韓亞蘭來馬緬烏爾盧維薩達魯賓祿粵臘東", "语国简体汉广话韩亚兰来马缅乌尔卢维萨达鲁宾禄粤腊东"
)

_TAG_SHAPE = re.compile(r"[a-z]{2,3}(?:-[a-z0-9]{1,8})*")
_TRADITIONAL_REGIONS = frozenset({"tw", "hk", "mo"})


def get_language(tag: str) -> Language:
    """Return the language of an exact tag of the table.

    Raises:
        LanguageError: no such tag; use `match_language` for what people write.
    """
    language = _by_tag().get(tag)
    if language is None:
        raise _unknown(tag, LANGUAGES)
    return language


def is_chinese(tag: str) -> bool:
    """Tell whether the model cards count `tag` as Chinese: the Chinese prompt is used for it."""
    return tag in _CHINESE_TAGS


def gains_from_pivot(source_lang: str, target_lang: str) -> bool:
    """Tell whether a translation through Chinese may be better than a direct one.

    The models were trained on pairs of Chinese with these languages, not on pairs of these with others.
    """
    tags = {source_lang, target_lang}
    return bool(tags & _TAUGHT_THROUGH_CHINESE) and not tags & _STANDARD_CHINESE and not tags <= _CHINESE_TAGS


def can_pivot(source_lang: str, target_lang: str) -> bool:
    """Tell whether there is a way through Chinese at all: neither language is Chinese itself."""
    return source_lang != target_lang and not {source_lang, target_lang} & _STANDARD_CHINESE


def match_language(text: str, *, supported: Sequence[str] | None = None) -> str:
    """Return the tag that `text` names: a tag, a locale such as `zh_TW.UTF-8`, or a name in any of three languages.

    Case, accents and regions that the family does not tell apart are ignored; scripts and regions of Chinese are not.

    Args:
        text: What the user wrote.
        supported: Tags to accept; None accepts the whole table.

    Raises:
        LanguageError: unknown, or not among `supported`; the hint names the nearest languages.
    """
    tag = find_language(text)
    accepted = LANGUAGES if supported is None else tuple(get_language(each) for each in supported)
    if tag is None:
        raise _unknown(text, accepted)
    if supported is not None and tag not in supported:
        raise LanguageError(f"the model does not speak {get_language(tag).english} ({tag})", hint=_LIST_HINT)
    return tag


def find_language(text: str) -> str | None:
    """Return the tag that `text` names, as `match_language` finds it, or None; cheap when there is none."""
    return _names().get(_fold(text)) or _match_tag(text)


@cache
def _by_tag() -> dict[str, Language]:
    return {language.tag: language for language in LANGUAGES}


@cache
def _names() -> dict[str, str]:
    """Folded name or tag -> tag."""
    names: dict[str, str] = {}
    for language in LANGUAGES:
        for name in _names_of(language):
            names.setdefault(_fold(name), language.tag)
    return names


def _names_of(language: Language) -> Iterable[str]:
    yield from (language.tag, language.english, language.chinese, language.native)
    yield from _NAME_ALIASES.get(language.tag, ())
    if language.chinese.endswith("语"):
        yield language.chinese.removesuffix("语") + "文"


def _fold(text: str) -> str:
    """Reduce a name to what two spellings of it share: no case, accents, outer space or traditional characters."""
    decomposed = unicodedata.normalize("NFKD", text.strip().casefold().replace("_", "-"))
    plain = "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
    return plain.translate(_TRADITIONAL_TO_SIMPLIFIED).rstrip("་")


def _match_tag(text: str) -> str | None:
    """Match the tag forms: BCP 47 and POSIX locale names with encoding and modifier."""
    tag = re.split(r"[.@]", text.strip(), maxsplit=1)[0].replace("_", "-").lower()
    if not _TAG_SHAPE.fullmatch(tag):
        return None
    return _match_subtags(tag) or _match_subtags(_standardized(tag))


def _match_subtags(tag: str) -> str | None:
    language, *rest = tag.split("-")
    if language == "zh" and rest and len(rest[0]) == 3:  # an extended language subtag: zh-yue
        language, *rest = rest
    language = _SUBTAG_ALIASES.get(language, language)
    if language == "zh":
        return _match_chinese(rest)
    return language if language in _by_tag() else None


def _match_chinese(subtags: Sequence[str]) -> str:
    if "hans" in subtags:
        return "zh"
    traditional = "hant" in subtags or not _TRADITIONAL_REGIONS.isdisjoint(subtags)
    return "zh-Hant" if traditional else "zh"


def _standardized(tag: str) -> str:
    """Return the lower-case standard form: three-letter and grandfathered codes become what the table holds."""
    # Imported here because it takes 36 ms and only codes that the table does not know need it.
    from langcodes import standardize_tag
    from langcodes.tag_parser import LanguageTagError

    try:
        return standardize_tag(tag).lower()
    except LanguageTagError:
        return tag


def _unknown(text: str, accepted: Sequence[Language]) -> LanguageError:
    from difflib import get_close_matches

    names = {_fold(name): language for language in accepted for name in _names_of(language)}
    close = get_close_matches(_fold(text[:_SHOWN_CHARACTERS]), names, n=5, cutoff=0.7)
    suggestions = dict.fromkeys(f"{names[name].english} ({names[name].tag})" for name in close)
    hint = f"did you mean {' or '.join(list(suggestions)[:2])}? {_LIST_HINT}" if suggestions else _LIST_HINT
    return LanguageError(f"unknown language {text[:_SHOWN_CHARACTERS]!r}", hint=hint)
