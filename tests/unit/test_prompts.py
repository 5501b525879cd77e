"""Prompts: the model cards' words, and how they become token ids.

The golden files hold every prompt in full. After an intended change write them anew with
`python -m tests.unit.test_prompts` and read the difference.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hymt_local.catalog import Catalog, ModelSpec, load_catalog
from hymt_local.errors import LanguageError, UnsupportedModelError, UsageError
from hymt_local.language import LANGUAGES, Language, get_language, is_chinese
from hymt_local.prompts import (
    Background,
    Context,
    ControlToken,
    Delimiters,
    Formatted,
    Fusion,
    Personalization,
    Prompt,
    PromptLanguage,
    Structured,
    Style,
    Task,
    Terminology,
    Translate,
    build_prompt,
    template_signature,
)
from hymt_local.segment import Term

GOLDEN = Path(__file__).parents[1] / "golden" / "prompts"
MODELS = {"mt1": "Hunyuan-MT-7B", "chimera": "Hunyuan-MT-Chimera-7B", "mt15": "HY-MT1.5-7B", "mt2": "Hy-MT2-1.8B"}
SOURCE = "Hello {name},\n\tsee ${price} \\ “here”!"
TASKS: tuple[Task, ...] = (
    Translate(),
    Terminology((Term("a {b}", "c"), Term("d", "e\\1"))),
    Context("Before this: {target_lang}."),
    Style("formal"),
    Personalization(("be short", "keep {names}")),
    Delimiters(),
    Structured("JSON"),
    Background("A letter."),
    Formatted(),
    Fusion(("one", "two", "three", "four", "five", "six")),
)
PROMPT_LANGUAGES: tuple[PromptLanguage, ...] = ("zh", "en")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def text_of(prompt: Prompt) -> str:
    (text,) = (part for part in prompt.parts if isinstance(part, str) and part != "reasoning_effort:no_think")
    return text


def shown(prompt: Prompt) -> str:
    return "".join(f"⟦{part.text}⟧" if isinstance(part, ControlToken) else part for part in prompt.parts)


def build(spec: ModelSpec, *, task: Task, target_lang: str, prompt_lang: PromptLanguage) -> Prompt | None:
    try:
        return build_prompt(
            spec, source_lang="en", target_lang=target_lang, source=SOURCE, task=task, prompt_lang=prompt_lang
        )
    except UnsupportedModelError:
        return None


def golden_prompts(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    for task in TASKS:
        for prompt_lang in PROMPT_LANGUAGES:
            for language in LANGUAGES:
                prompt = build(spec, task=task, target_lang=language.tag, prompt_lang=prompt_lang)
                if prompt is not None:
                    yield f"{task.name}.{prompt_lang}.{language.tag}", text_of(prompt)


def golden_chats(catalog: Catalog) -> Iterator[tuple[str, str]]:
    for spec in catalog.models:
        yield spec.id, shown(build_prompt(spec, source_lang="en", target_lang="fr", source="Hello!"))


def written(entries: Iterator[tuple[str, str]]) -> str:
    return "".join(f'"{key}" = {json.dumps(text, ensure_ascii=False)}\n' for key, text in entries)


@pytest.mark.parametrize("template_set", MODELS)
def test_every_prompt_is_the_golden_one(catalog: Catalog, template_set: str) -> None:
    golden = (GOLDEN / f"{template_set}.toml").read_text(encoding="utf-8")
    assert dict(golden_prompts(catalog.get(MODELS[template_set]))) == tomllib.loads(golden)


def test_every_chat_form_is_the_golden_one(catalog: Catalog) -> None:
    assert dict(golden_chats(catalog)) == tomllib.loads((GOLDEN / "chat.toml").read_text(encoding="utf-8"))


CARD_TASKS: dict[str, Task] = {
    "default": Translate(),
    "style": Style("STYLE"),
    "delimiters": Delimiters(),
    "structured": Structured("JSON"),
    "background": Background("INFO"),
    "terminology": Terminology((Term("S", "T"), Term("U", "V"))),
    "personalization": Personalization(("P", "Q")),
}
CARD_VALUES = {"target_style": "STYLE", "format_type": "JSON", "background_text": "INFO", "context": "BEFORE"}
CARD_LINES = {
    "zh": {"terminology_lines": "S 翻译成 T\nU 翻译成 V", "preference_lines": "1、P\n2、Q", "n": "3"},
    "en": {
        "terminology_lines": "S translates to T\nU translates to V",
        "preference_lines": "1. P\n2. Q",
        "n": "3",
    },
}


def card(name: str, **values: str) -> str:
    """Fill a template of the model cards in the plainest way; the values hold no braces."""
    templates: dict[str, str] = tomllib.loads((GOLDEN / "templates.toml").read_text(encoding="utf-8"))
    before, _, after = templates[name].rpartition("{source_text}")
    for variable, value in values.items():
        before, after = before.replace(f"{{{variable}}}", value), after.replace(f"{{{variable}}}", value)
    return before + "SOURCE" + after


def ours(spec: ModelSpec, target: Language, task: Task, *, prompt_lang: PromptLanguage) -> str:
    return text_of(
        build_prompt(
            spec, source_lang="ja", target_lang=target.tag, source="SOURCE", task=task, prompt_lang=prompt_lang
        )
    )


# An independent way to the same text, from the templates as they were copied from the model cards.


@pytest.mark.parametrize("prompt_lang", PROMPT_LANGUAGES)
@pytest.mark.parametrize("target", LANGUAGES, ids=lambda each: each.tag)
def test_prompts_in_both_languages_are_the_cards_filled(
    catalog: Catalog, target: Language, prompt_lang: PromptLanguage
) -> None:
    name = target.chinese if prompt_lang == "zh" else target.english
    values = {**CARD_VALUES, **CARD_LINES[prompt_lang], "target_language": name, "target_lang": name}
    for task_name, task in CARD_TASKS.items():
        filled = card(f"mt2.{task_name}.{prompt_lang}", **values)
        assert ours(catalog.get("Hy-MT2-7B"), target, task, prompt_lang=prompt_lang) == filled
    for generation, model_id in (("mt1", "Hunyuan-MT-7B"), ("mt1", MODELS["chimera"]), ("mt15", "HY-MT1.5-7B")):
        filled = card(f"{generation}.{prompt_lang}", **values)
        assert ours(catalog.get(model_id), target, Translate(), prompt_lang=prompt_lang) == filled


@pytest.mark.parametrize("target", LANGUAGES, ids=lambda each: each.tag)
def test_prompts_in_one_language_are_the_cards_filled(catalog: Catalog, target: Language) -> None:
    spec, name = catalog.get("HY-MT1.5-7B"), target.chinese
    in_context = ours(spec, target, Context("BEFORE"), prompt_lang="zh")
    assert in_context == card("mt15.context", target_language=name, context="BEFORE")
    with_term = ours(spec, target, Terminology((Term("S", "T"),)), prompt_lang="zh")
    assert with_term == card("mt15.terminology", target_language=name, source_term="S", target_term="T")
    fusion = Fusion(("C1", "C2", "C3", "C4", "C5", "C6"))
    candidates = {f"translated_text{number}": f"C{number}" for number in range(1, 7)}
    fused = card("mt1.chimera", target_language=target.english, source_language="Japanese", **candidates)
    assert ours(catalog.get(MODELS["chimera"]), target, fusion, prompt_lang="en") == fused


def test_the_prompt_for_formatted_text_is_the_cards_filled(catalog: Catalog) -> None:
    templates: dict[str, str] = tomllib.loads((GOLDEN / "templates.toml").read_text(encoding="utf-8"))
    published = templates["mt15.formatted"].replace("{src_text_with_format}", "SOURCE")
    formatted = ours(catalog.get("HY-MT1.5-7B"), get_language("zh"), Formatted(), prompt_lang="zh")
    assert formatted == published


@pytest.mark.parametrize("model_id", ["Hunyuan-MT-7B", "Hunyuan-MT-Chimera-7B", "HY-MT1.5-1.8B", "Hy-MT2-7B", "demo"])
def test_the_prompt_is_chinese_when_either_side_is(catalog: Catalog, model_id: str) -> None:
    spec = catalog.get(model_id)
    for source in LANGUAGES:
        for target in LANGUAGES:
            text = text_of(build_prompt(spec, source_lang=source.tag, target_lang=target.tag, source="x"))
            assert ("翻译" in text) == (is_chinese(source.tag) or is_chinese(target.tag))


def test_a_caller_may_choose_the_language_of_the_prompt(catalog: Catalog) -> None:
    prompt = build_prompt(catalog.get("Hy-MT2-7B"), source_lang="en", target_lang="fr", source="x", prompt_lang="zh")
    assert text_of(prompt).startswith("将以下文本翻译为 法语，")


def test_a_task_published_in_one_prompt_language_uses_it_unasked(catalog: Catalog) -> None:
    spec = catalog.get("HY-MT1.5-7B")
    prompt = build_prompt(spec, source_lang="en", target_lang="fr", source="x", task=Context("y"))
    assert "翻译成法语" in text_of(prompt)
    with pytest.raises(UnsupportedModelError, match="English"):
        build_prompt(spec, source_lang="en", target_lang="fr", source="x", task=Context("y"), prompt_lang="en")


def test_a_task_the_card_does_not_know_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UnsupportedModelError, match="Hunyuan-MT-7B has no prompt for the task 'style'"):
        build_prompt(catalog.get("Hunyuan-MT-7B"), source_lang="en", target_lang="fr", source="x", task=Style("formal"))


@pytest.mark.parametrize("where", ["source", "candidate"])
def test_a_fence_inside_a_fused_text_is_refused(catalog: Catalog, where: str) -> None:
    spec = catalog.get("Hunyuan-MT-Chimera-7B")
    fenced = "a ```b``` c"
    task = Fusion(("1", "2", "3", "4", "5", fenced if where == "candidate" else "6"))
    source = fenced if where == "source" else "x"
    with pytest.raises(UsageError, match="```"):
        build_prompt(spec, source_lang="en", target_lang="fr", source=source, task=task)


def test_an_unknown_tag_is_refused(catalog: Catalog) -> None:
    with pytest.raises(LanguageError):
        build_prompt(catalog.get("Hy-MT2-7B"), source_lang="en", target_lang="zh-TW", source="x")


def test_braces_of_a_template_that_are_no_variables_stay(catalog: Catalog) -> None:
    spec = catalog.get("Hy-MT2-7B")
    text = text_of(build_prompt(spec, source_lang="en", target_lang="zh", source="DATA", task=Structured("HTML")))
    assert "（如 {{var}}、${var}、%s、%d 等）" in text
    assert text.startswith("# 任务目标\n将下方 {source_text} 中的 HTML 格式数据")
    assert text.endswith("# 数据输入\nDATA")


def test_the_test_engines_see_the_source_alone(catalog: Catalog) -> None:
    for model_id in ("echo", "pseudo"):
        prompt = build_prompt(catalog.get(model_id), source_lang="en", target_lang="zh", source=SOURCE)
        assert prompt.parts == (SOURCE,)


def test_the_7b_family_reads_nfc_and_the_small_one_what_is_there(catalog: Catalog) -> None:
    decomposed = "cafe\u0301"
    for model_id, expected in (("Hy-MT2-7B", "caf\u00e9"), ("Hy-MT2-1.8B", decomposed), ("Hy-MT2-30B-A3B", decomposed)):
        prompt = build_prompt(catalog.get(model_id), source_lang="fr", target_lang="en", source=decomposed)
        assert text_of(prompt).endswith(f"\n{expected}")


def test_control_tokens_and_text_are_assembled_in_order(catalog: Catalog) -> None:
    prompt = build_prompt(catalog.get("Hunyuan-MT-7B"), source_lang="en", target_lang="fr", source="x<|extra_0|>")
    assert len(prompt.texts) == 1
    ids = prompt.assemble({"<|startoftext|>": 127958, "<|extra_0|>": 127962}, [(5, 6, 7)])
    assert ids == (127958, 5, 6, 7, 127962)


def test_control_tokens_of_the_catalog_are_those_the_chat_form_needs(catalog: Catalog) -> None:
    for spec in catalog.models:
        prompt = build_prompt(spec, source_lang="en", target_lang="fr", source="x")
        needed = {part.text for part in prompt.parts if isinstance(part, ControlToken)}
        unpublished = {"<｜reasoning_mode｜>", "<think>", "</think>"}
        assert needed - unpublished <= set(spec.control_ids) or not spec.control_ids


def test_a_vocabulary_without_a_needed_control_token_is_refused(catalog: Catalog) -> None:
    prompt = build_prompt(catalog.get("Hy-MT2-1.8B"), source_lang="en", target_lang="fr", source="x")
    with pytest.raises(UnsupportedModelError, match="hy_Assistant"):
        prompt.assemble({"<｜hy_begin▁of▁sentence｜>": 0, "<｜hy_User｜>": 1}, [(5,)])


def test_thought_tags_are_control_tokens_where_the_vocabulary_has_them_as_such(catalog: Catalog) -> None:
    prompt = build_prompt(catalog.get("Hy-MT2-30B-A3B"), source_lang="en", target_lang="fr", source="x")
    control_tokens = {
        "<｜hy_begin▁of▁sentence｜>": 1,
        "<｜reasoning_mode｜>": 2,
        "<｜hy_User｜>": 3,
        "<｜hy_Assistant｜>": 4,
    }
    assert prompt.texts[0] == "reasoning_effort:no_think"
    assert prompt.texts[2:] == ("<think>", "</think>")
    tokenized = [(10, 11), (20,), (30, 31), (40,)]
    assert prompt.assemble(control_tokens, tokenized) == (1, 2, 10, 11, 3, 20, 4, 30, 31, 40)
    with_tags = {**control_tokens, "<think>": 5, "</think>": 6}
    assert prompt.assemble(with_tags, tokenized) == (1, 2, 10, 11, 3, 20, 4, 5, 6)


@pytest.mark.parametrize("tokenized", [[], [(1,), (2,)]])
def test_ids_of_other_texts_are_a_mistake(tokenized: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="1 texts"):
        Prompt(("a",)).assemble({}, tokenized)


def test_the_signature_tells_what_shapes_the_prompt_apart(catalog: Catalog) -> None:
    large, small, old = (catalog.get(model_id) for model_id in ("Hy-MT2-7B", "Hy-MT2-1.8B", "Hunyuan-MT-7B"))
    signatures = [
        template_signature(large, source_lang="en", target_lang="fr"),
        template_signature(large, source_lang="en", target_lang="de"),
        template_signature(large, source_lang="zh", target_lang="fr"),
        template_signature(large, source_lang="en", target_lang="fr", task=Style("formal")),
        template_signature(large, source_lang="en", target_lang="fr", task=Style("curt")),
        template_signature(small, source_lang="en", target_lang="fr"),
        template_signature(old, source_lang="en", target_lang="fr"),
    ]
    assert len(set(signatures)) == len(signatures)


def test_the_signature_is_the_same_for_the_same_prompt(catalog: Catalog) -> None:
    spec = catalog.get("Hy-MT2-7B")
    english = template_signature(spec, source_lang="en", target_lang="fr")
    assert template_signature(spec, source_lang="de", target_lang="fr") == english
    assert template_signature(spec, source_lang="en", target_lang="fr", prompt_lang="en") == english


def write_golden_files() -> None:
    catalog = load_catalog()
    for template_set, model_id in MODELS.items():
        (GOLDEN / f"{template_set}.toml").write_text(written(golden_prompts(catalog.get(model_id))), encoding="utf-8")
    (GOLDEN / "chat.toml").write_text(written(golden_chats(catalog)), encoding="utf-8")


if __name__ == "__main__":
    write_golden_files()
