"""Prompts: what a model reads, as control tokens and text that together become token ids.

A prompt is never one string: control tokens are named apart from text, so that text that looks like one stays text.
The template strings are the model cards' own, byte for byte; golden tests hold them. To add a generation, add a table
to `_TEMPLATES`, a chat form if it speaks a new one, and both names to the types of the catalog.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from hymt_local.catalog import ModelSpec
from hymt_local.errors import UnsupportedModelError, UsageError
from hymt_local.language import get_language, is_chinese
from hymt_local.segment import Guidance, GuidanceKind, Term

PromptLanguage = Literal["zh", "en"]


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A token of the vocabulary that no text stands for."""

    text: str
    required: bool = True
    """False: a vocabulary may hold it as ordinary text, which is then tokenized like any other."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The parts of a prompt, in order; template and source are one text, as the official tokenizers see them."""

    parts: tuple[ControlToken | str, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """What the engine has to tokenize as plain text, in order: the input of `assemble`."""
        return tuple(_text_of(part) for part in self.parts if not _is_required(part))

    def assemble(self, control_tokens: Mapping[str, int], tokenized: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Put the ids together.

        Args:
            control_tokens: Text -> id, of the vocabulary at hand.
            tokenized: The ids of each of `texts`.

        Raises:
            UnsupportedModelError: the vocabulary lacks a control token that the chat form needs.
        """
        if len(tokenized) != len(self.texts):
            raise ValueError(f"the ids of {len(self.texts)} texts are needed, not of {len(tokenized)}")
        remaining = iter(tokenized)
        return tuple(token for part in self.parts for token in _ids_of(part, control_tokens, remaining))


@dataclass(frozen=True, slots=True)
class Translate:
    """The plain task: translate the text."""

    name: ClassVar[str] = "default"


@dataclass(frozen=True, slots=True)
class Terminology:
    """Translate with these terms; at least one."""

    name: ClassVar[str] = "terminology"
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Context:
    """Translate in the light of a preceding text, which is not translated itself."""

    name: ClassVar[str] = "context"
    text: str


@dataclass(frozen=True, slots=True)
class Style:
    """Translate in a style, described in the language of the prompt."""

    name: ClassVar[str] = "style"
    style: str


@dataclass(frozen=True, slots=True)
class Personalization:
    """Translate by the user's preferences, in the language of the prompt; at least one."""

    name: ClassVar[str] = "personalization"
    preferences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delimiters:
    """Translate text whose delimiter symbols must stay, in number and place."""

    name: ClassVar[str] = "delimiters"


@dataclass(frozen=True, slots=True)
class Structured:
    """Translate only what people read in structured data."""

    name: ClassVar[str] = "structured"
    format_type: str
    """As people call it: `JSON`, `HTML`."""


@dataclass(frozen=True, slots=True)
class Background:
    """Translate with background information."""

    name: ClassVar[str] = "background"
    text: str


@dataclass(frozen=True, slots=True)
class Formatted:
    """Translate text with `<s1>...</s1>` tags around its formatted parts; the answer stands in `<target>` tags."""

    name: ClassVar[str] = "formatted"


@dataclass(frozen=True, slots=True)
class Fusion:
    """Make one refined translation out of six. Neither they nor the source may contain three backticks."""

    name: ClassVar[str] = "fusion"
    candidates: tuple[str, str, str, str, str, str]


Task = (
    Translate
    | Terminology
    | Context
    | Style
    | Personalization
    | Delimiters
    | Structured
    | Background
    | Formatted
    | Fusion
)

_TRANSLATE = Translate()
_SOURCE = "{source_text}"
_FENCE = "```"

_MT1_DEFAULTS: Mapping[str, str] = {
    "default.zh": "把下面的文本翻译成{target_language}，不要额外解释。\n\n{source_text}",
    "default.en": (
        "Translate the following segment into {target_language}, without additional explanation.\n\n{source_text}"
    ),
}

# By template set; then by task and language of the prompt. `{name}` is a variable, every other brace is text.
_TEMPLATES: Mapping[str, Mapping[str, str]] = {
    "mt1": _MT1_DEFAULTS,
    "chimera": {
        **_MT1_DEFAULTS,
        "fusion.en": (
            "Analyze the following multiple {target_language} translations of the {source_language} segment "
            "surrounded in triple backticks and generate a single refined {target_language} translation. "
            "Only output the refined translation, do not explain.\n\n"
            "The {source_language} segment:\n```{source_text}```\n\n"
            "The multiple `{target_language}` translations:\n"
            "1. ```{translated_text1}```\n"
            "2. ```{translated_text2}```\n"
            "3. ```{translated_text3}```\n"
            "4. ```{translated_text4}```\n"
            "5. ```{translated_text5}```\n"
            "6. ```{translated_text6}```"
        ),
    },
    "mt15": {
        "default.zh": (
            "将以下文本翻译为{target_language}，注意只需要输出翻译后的结果，不要额外解释：\n\n{source_text}"
        ),
        "default.en": _MT1_DEFAULTS["default.en"],
        "terminology.zh": (
            "参考下面的翻译：\n{terminology_lines}\n\n"
            "将以下文本翻译为{target_language}，注意只需要输出翻译后的结果，不要额外解释：\n{source_text}"
        ),
        "terminology_line.zh": "{source_term} 翻译成 {target_term}",
        "context.zh": (
            "{context}\n"
            "参考上面的信息，把下面的文本翻译成{target_language}，注意不需要翻译上文，也不要额外解释：\n"
            "{source_text}\n"
        ),
        # Published for Chinese as the target only; the name of another language takes its place.
        "formatted.zh": (
            "将以下<source></source>之间的文本翻译为{target_language}，"
            "注意只需要输出翻译后的结果，不要额外解释，"
            "原文中的<sn></sn>标签表示标签内文本包含格式信息，"
            "需要在译文中相应的位置尽量保留该标签。"
            "输出格式为：<target>str</target>\n\n"
            "<source>{source_text}</source>"
        ),
    },
    "mt2": {
        "default.zh": ("将以下文本翻译为 {target_lang}，注意只需要输出翻译后的结果，不要额外解释：\n\n{source_text}"),
        "default.en": (
            "Translate the following text into {target_lang}. Note that you should only output the translated "
            "result without any additional explanation:\n\n"
            "{source_text}"
        ),
        "terminology.zh": (
            "参考下面的翻译：\n{terminology_lines}\n"
            "将以下文本翻译为 {target_lang}，注意只需要输出翻译后的结果，不要额外解释：\n\n"
            "{source_text}"
        ),
        "terminology.en": (
            "Reference the following translations:\n{terminology_lines}\n\n"
            "Translate the following text into {target_lang}. Note that you must ONLY output the translated "
            "result without any additional explanation:\n\n"
            "{source_text}"
        ),
        "terminology_line.zh": "{source_term} 翻译成 {target_term}",
        "terminology_line.en": "{source_term} translates to {target_term}",
        "style.zh": ("请将以下文本翻译为 {target_lang}。\n注意翻译的风格要严格符合【{target_style}】\n\n{source_text}"),
        "style.en": (
            "Please translate the following text into {target_lang}. Note that the translation style must "
            "strictly conform to [{target_style}]:\n\n"
            "{source_text}"
        ),
        "personalization.zh": (
            "【待翻译文本】\n{source_text}\n\n"
            "【翻译任务】\n{preference_lines}\n"
            "{n}、将【待翻译文本】翻译为 {target_lang}。"
        ),
        "personalization.en": (
            "[Source Text]\n{source_text}\n\n"
            "[Translation Tasks]\n{preference_lines}\n"
            "{n}. Translate the [Source Text] into {target_lang}."
        ),
        "preference_line.zh": "{i}、{preference}",
        "preference_line.en": "{i}. {preference}",
        "delimiters.zh": (
            "请将以下文本准确翻译为 {target_lang}。\n"
            "你必须在译文中保留等量的分隔符，绝对不可遗漏、转义或翻译该符号，并注意分隔符的位置。\n\n"
            "{source_text}"
        ),
        "delimiters.en": (
            "Please accurately translate the following text into {target_lang}.\n"
            "You must retain the exact same number of delimiters in the translation. Strictly do not omit, "
            "escape, or translate these symbols, and pay close attention to their placement.\n\n"
            "{source_text}"
        ),
        # The first {source_text} is a label, not a variable: the data stands at the end, once.
        "structured.zh": (
            "# 任务目标\n"
            "将下方 {source_text} 中的 {format_type} 格式数据翻译为 {target_lang}。\n\n"
            "# 严格约束\n"
            "1. 结构锁定：绝对保持原有的 {format_type} 数据结构、缩进和层级完全不变。\n"
            "2. 选择性翻译：仅翻译面向用户展示的可见文本内容。\n"
            "3. 禁止修改：严禁翻译或更改任何代码标签、键名 (Key)、"
            "变量占位符（如 {{var}}、${var}、%s、%d 等）或代码属性。\n\n"
            "# 数据输入\n{source_text}"
        ),
        "structured.en": (
            "### Task\n"
            "Translate the user-facing text within the following {format_type} data into {target_lang}.\n\n"
            "### Strict Rules\n"
            "1. Structure Preservation: You MUST preserve the original {format_type} data structure, nesting, "
            "hierarchy, and indentation exactly as they are.\n"
            "2. Selective Translation: Translate ONLY the visible, user-facing text content/values.\n"
            "3. Strict Non-Translation: NEVER translate or alter code tags, keys, properties, object names, or "
            "variable placeholders. Leave them exactly in their original English/code form.\n\n"
            "### Source Data\n{source_text}"
        ),
        "background.zh": (
            "【背景信息】\n{background_text}\n\n"
            "请结合背景信息将以下文本翻译为 {target_lang}。\n\n"
            "【待翻译文本】\n{source_text}"
        ),
        "background.en": (
            "[Background Information]\n{background_text}\n\n"
            "Please translate the following text into {target_lang}, taking the provided background information "
            "into consideration.\n\n"
            "[Source Text]\n{source_text}"
        ),
    },
    "plain": {"default.en": "{source_text}"},
}

# How each kind of guidance is said among the user's preferences, which are free text: in the words of its own prompt.
_PREFERENCES: Mapping[str, str] = {
    "term.zh": "{source_term} 翻译成 {target_term}",
    "term.en": "{source_term} translates to {target_term}",
    "context.zh": "结合背景信息：{background_text}",
    "context.en": "Take the provided background information into consideration: {background_text}",
    "style.zh": "翻译的风格要严格符合【{target_style}】",
    "style.en": "The translation style must strictly conform to [{target_style}]",
    "delimiters.zh": "在译文中保留等量的分隔符，绝对不可遗漏、转义或翻译该符号，并注意分隔符的位置",
    "delimiters.en": (
        "Retain the exact same number of delimiters in the translation. Strictly do not omit, escape, or translate "
        "these symbols, and pay close attention to their placement"
    ),
}

_TEXT_GOES_HERE = None
_BEGIN_7B = ControlToken("<|startoftext|>")
_TURN_END_7B = ControlToken("<|extra_0|>")
_BEGIN = ControlToken("<｜hy_begin▁of▁sentence｜>")
_USER = ControlToken("<｜hy_User｜>")
_ASSISTANT = ControlToken("<｜hy_Assistant｜>")

# One turn of a user, up to where the answer begins; no model has a default system message.
_CHAT_FORMS: Mapping[str, tuple[ControlToken | str | None, ...]] = {
    "hunyuan": (_BEGIN_7B, _TEXT_GOES_HERE, _TURN_END_7B),
    "hunyuan-dense": (_BEGIN, _USER, _TEXT_GOES_HERE, _ASSISTANT),
    # Two published revisions disagree on the reasoning part; this is the one that names the EOS of the released file.
    "hunyuan-v3": (
        *(_BEGIN, ControlToken("<｜reasoning_mode｜>"), "reasoning_effort:no_think"),
        *(_USER, _TEXT_GOES_HERE, _ASSISTANT),
        *(ControlToken("<think>", required=False), ControlToken("</think>", required=False)),
    ),
    "plain": (_TEXT_GOES_HERE,),
}


def build_prompt(
    spec: ModelSpec,
    *,
    source_lang: str,
    target_lang: str,
    source: str,
    task: Task = _TRANSLATE,
    prompt_lang: PromptLanguage | None = None,
) -> Prompt:
    """Build the prompt of one segment.

    Args:
        spec: Decides templates, chat form and normalization.
        source_lang: Exact tag.
        target_lang: Exact tag.
        source: The text to translate; whatever it contains, it stays text.
        task: What to ask for, with its material.
        prompt_lang: Language of the instructions; None follows the model cards: Chinese when source or target is.

    Raises:
        UnsupportedModelError: the model card has no such prompt.
        UsageError: the material does not fit into the template.
    """
    templates = _TEMPLATES[spec.template_set]
    written_in = _prompt_language(spec, task, preferred_language(source_lang, target_lang), asked=prompt_lang)
    _check_material(task, source)
    variables = {
        **_language_variables(source_lang, target_lang, written_in),
        **_task_variables(task, templates, written_in),
    }
    text = _fill_around_source(templates[f"{task.name}.{written_in}"], variables, source)
    if spec.normalization == "NFC":
        text = unicodedata.normalize("NFC", text)
    return Prompt(tuple(text if part is _TEXT_GOES_HERE else part for part in _CHAT_FORMS[spec.chat]))


def has_task(spec: ModelSpec, name: str, prompt_lang: PromptLanguage | None = None) -> bool:
    """Tell whether a model's card has a prompt for a task, in one language or in any."""
    languages = ("zh", "en") if prompt_lang is None else (prompt_lang,)
    return any(f"{name}.{each}" in _TEMPLATES[spec.template_set] for each in languages)


def takes_guidance(spec: ModelSpec, kind: GuidanceKind) -> bool:
    """Tell whether a model's card has a prompt for a kind of guidance."""
    match kind:
        case GuidanceKind.TERMS:
            return has_task(spec, Terminology.name)
        case GuidanceKind.CONTEXT:
            return has_task(spec, Context.name) or has_task(spec, Background.name)
        case GuidanceKind.STYLE:
            return has_task(spec, Style.name)


def guided_task(
    spec: ModelSpec, guidance: Guidance, *, written_in: PromptLanguage, keeps_delimiters: bool = False
) -> Task:
    """Return the task that asks for what the guidance says, none of it unknown to the model.

    Several kinds at once are preferences where the card has a prompt for them; elsewhere terms come before the context.

    Args:
        spec: Decides which prompts there are.
        guidance: Of at least one kind.
        written_in: The language of the instructions.
        keeps_delimiters: Ask for the delimiters of the text too.
    """
    has_several = len(guidance.kinds) > 1 or keeps_delimiters
    if has_several and has_task(spec, Personalization.name):
        return Personalization(_preferences(guidance, written_in, keeps_delimiters=keeps_delimiters))
    if guidance.terms:
        return Terminology(guidance.terms)
    if guidance.context:
        is_background = has_task(spec, Background.name)
        return Background(guidance.context) if is_background else Context(guidance.context)
    return Style(guidance.style)


def _preferences(guidance: Guidance, written_in: PromptLanguage, *, keeps_delimiters: bool) -> tuple[str, ...]:
    term = _PREFERENCES[f"term.{written_in}"]
    said = [_fill(term, {"source_term": each.source, "target_term": each.target}) for each in guidance.terms]
    if guidance.context:
        said.append(_fill(_PREFERENCES[f"context.{written_in}"], {"background_text": guidance.context}))
    if guidance.style:
        said.append(_fill(_PREFERENCES[f"style.{written_in}"], {"target_style": guidance.style}))
    return (*said, _PREFERENCES[f"delimiters.{written_in}"]) if keeps_delimiters else tuple(said)


def preferred_language(source_lang: str, target_lang: str) -> PromptLanguage:
    """Return the language of the instructions that the model cards ask for: Chinese when source or target is."""
    return "zh" if is_chinese(source_lang) or is_chinese(target_lang) else "en"


def prompt_language(spec: ModelSpec, task: Task, source_lang: str, target_lang: str) -> PromptLanguage:
    """Return the language in which `build_prompt` writes the instructions unless told otherwise.

    Raises:
        UnsupportedModelError: the model card has no such prompt.
    """
    return _prompt_language(spec, task, preferred_language(source_lang, target_lang), asked=None)


def template_signature(
    spec: ModelSpec,
    *,
    source_lang: str,
    target_lang: str,
    task: Task = _TRANSLATE,
    prompt_lang: PromptLanguage | None = None,
) -> str:
    """Return a short digest of everything in the prompt except the source: template, names, material, chat form.

    Raises:
        UnsupportedModelError: the model card has no such prompt.
        UsageError: the material does not fit into the template.
    """
    prompt = build_prompt(
        spec, source_lang=source_lang, target_lang=target_lang, source=_SOURCE, task=task, prompt_lang=prompt_lang
    )
    return hashlib.sha256(repr((prompt.parts, spec.normalization)).encode()).hexdigest()[:16]


def _text_of(part: ControlToken | str) -> str:
    return part.text if isinstance(part, ControlToken) else part


def _is_required(part: ControlToken | str) -> bool:
    return isinstance(part, ControlToken) and part.required


def _ids_of(
    part: ControlToken | str, control_tokens: Mapping[str, int], tokenized: Iterator[tuple[int, ...]]
) -> tuple[int, ...]:
    as_text = () if _is_required(part) else next(tokenized)
    if isinstance(part, str):
        return as_text
    if part.text in control_tokens:
        return (control_tokens[part.text],)
    if part.required:
        message = f"the model's vocabulary has no control token {part.text!r}"
        raise UnsupportedModelError(message, hint="the file belongs to another model or was converted wrongly")
    return as_text


def _prompt_language(
    spec: ModelSpec, task: Task, preferred: PromptLanguage, *, asked: PromptLanguage | None
) -> PromptLanguage:
    """Choose among the languages in which the task is published; several tasks have but one."""
    languages: tuple[PromptLanguage, ...] = ("zh", "en")
    published = [each for each in languages if f"{task.name}.{each}" in _TEMPLATES[spec.template_set]]
    if not published:
        raise UnsupportedModelError(f"{spec.id} has no prompt for the task {task.name!r}", hint="use a Hy-MT2 model")
    if asked is not None and asked not in published:
        message = f"{spec.id} has no prompt for the task {task.name!r} in {get_language(asked).english}"
        raise UnsupportedModelError(message, hint="leave the language of the prompt open")
    wanted = asked or preferred
    return wanted if wanted in published else published[0]


def _check_material(task: Task, source: str) -> None:
    if isinstance(task, Fusion) and any(_FENCE in text for text in (source, *task.candidates)):
        raise UsageError("text with ``` cannot be fused", hint="translate it without fusion")


def _language_variables(source_lang: str, target_lang: str, prompt_lang: PromptLanguage) -> dict[str, str]:
    source, target = get_language(source_lang), get_language(target_lang)
    target_name = target.chinese if prompt_lang == "zh" else target.english
    source_name = source.chinese if prompt_lang == "zh" else source.english
    # The generations differ in what they call the same variable.
    return {"source_language": source_name, "target_language": target_name, "target_lang": target_name}


def _task_variables(task: Task, templates: Mapping[str, str], prompt_lang: PromptLanguage) -> dict[str, str]:
    match task:
        case Terminology(terms=terms):
            line = templates[f"terminology_line.{prompt_lang}"]
            lines = [_fill(line, {"source_term": term.source, "target_term": term.target}) for term in terms]
            return {"terminology_lines": "\n".join(lines)}
        case Personalization(preferences=preferences):
            line = templates[f"preference_line.{prompt_lang}"]
            lines = [_fill(line, {"i": str(i), "preference": each}) for i, each in enumerate(preferences, start=1)]
            return {"preference_lines": "\n".join(lines), "n": str(len(preferences) + 1)}
        case Context(text=text):
            return {"context": text}
        case Style(style=style):
            return {"target_style": style}
        case Structured(format_type=format_type):
            return {"format_type": format_type}
        case Background(text=text):
            return {"background_text": text}
        case Fusion(candidates=candidates):
            return {f"translated_text{i}": candidate for i, candidate in enumerate(candidates, start=1)}
        case _:
            return {}


def _fill_around_source(template: str, variables: Mapping[str, str], source: str) -> str:
    """Fill the template; the source goes into its last place for it and is never looked into."""
    before, _, after = template.rpartition(_SOURCE)
    return _fill(before, variables) + source + _fill(after, variables)


def _fill(template: str, variables: Mapping[str, str]) -> str:
    """Replace the known variables in one pass: braces in values and other braces of the template are text."""
    names = "|".join(map(re.escape, variables))
    return re.sub(rf"\{{({names})\}}", lambda match: variables[match[1]], template)
