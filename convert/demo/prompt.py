"""The demo model's prompts: Hunyuan-MT's own wording, and what of it stands before the source text."""

from __future__ import annotations

from hymt_local.language import get_language, is_chinese

CHINESE_PROMPT = "把下面的文本翻译成{target}，不要额外解释。\n\n{source}"
ENGLISH_PROMPT = "Translate the following segment into {target}, without additional explanation.\n\n{source}"


def prompt_text(source_lang: str, target_lang: str, text: str) -> str:
    """The user's turn; Chinese when either language is."""
    language = get_language(target_lang)
    if is_chinese(source_lang) or is_chinese(target_lang):
        return CHINESE_PROMPT.replace("{target}", language.chinese).replace("{source}", text)
    return ENGLISH_PROMPT.replace("{target}", language.english).replace("{source}", text)


def fixed_texts() -> tuple[str, ...]:
    """The words that every prompt repeats, in the pieces that the family's split leaves whole."""
    return ("把下面的文本翻译成", "，不要额外解释", "。\n\n", ".\n\n")
