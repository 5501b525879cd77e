"""Laws of prompts: whatever the text contains, it stays text, whole and in its place."""

from __future__ import annotations

import unicodedata
from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st

from hymt_local.catalog import Catalog, ModelSpec, load_catalog
from hymt_local.language import LANGUAGES
from hymt_local.prompts import (
    Background,
    Context,
    ControlToken,
    Prompt,
    Style,
    Task,
    Terminology,
    Translate,
    build_prompt,
    template_signature,
)
from hymt_local.segment import Term

MARK = "\ue000"
OTHER_MARK = "\ue001"
CONTROL_TEXTS = ("<|extra_0|>", "<|startoftext|>", "<｜hy_Assistant｜>", "<think>", "<|eos|>")
VARIABLES = ("{source_text}", "{target_lang}", "{target_language}", "{0}", "{}", "{{", "}", "\\1", "%s")

tags = st.sampled_from([language.tag for language in LANGUAGES])
plain = st.text(st.characters(codec="utf-8", exclude_characters=(MARK, OTHER_MARK)))
texts = st.lists(st.one_of(plain, st.sampled_from(CONTROL_TEXTS + VARIABLES))).map("".join)


@cache
def catalog() -> Catalog:
    return load_catalog()


specs = st.sampled_from([spec.id for spec in load_catalog().models]).map(lambda model_id: catalog().get(model_id))


def normalized(spec: ModelSpec, text: str) -> str:
    return unicodedata.normalize("NFC", text) if spec.normalization == "NFC" else text


@given(spec=specs, source_lang=tags, target_lang=tags, source=texts)
@example(spec=load_catalog().get("Hy-MT2-7B"), source_lang="en", target_lang="fr", source="\u0301e\u0301")
@example(spec=load_catalog().get("Hy-MT2-7B"), source_lang="en", target_lang="fr", source="")
def test_the_source_stands_once_and_whole_in_a_frame_that_does_not_depend_on_it(
    spec: ModelSpec, source_lang: str, target_lang: str, source: str
) -> None:
    frame = build_prompt(spec, source_lang=source_lang, target_lang=target_lang, source=MARK)
    prompt = build_prompt(spec, source_lang=source_lang, target_lang=target_lang, source=source)
    assert sum(text.count(MARK) for text in frame.texts) == 1
    assert prompt.texts == tuple(text.replace(MARK, normalized(spec, source)) for text in frame.texts)


@given(spec=specs, source_lang=tags, target_lang=tags, source=texts)
def test_text_never_becomes_a_control_token(spec: ModelSpec, source_lang: str, target_lang: str, source: str) -> None:
    frame = build_prompt(spec, source_lang=source_lang, target_lang=target_lang, source=MARK)
    prompt = build_prompt(spec, source_lang=source_lang, target_lang=target_lang, source=source)

    def is_control(part: ControlToken | str) -> bool:
        return isinstance(part, ControlToken)

    assert [part for part in prompt.parts if is_control(part)] == [part for part in frame.parts if is_control(part)]
    assert [is_control(part) for part in prompt.parts] == [is_control(part) for part in frame.parts]


@given(parts=st.lists(st.one_of(st.text(), st.sampled_from(CONTROL_TEXTS).map(ControlToken)), max_size=8))
def test_assembly_keeps_every_id_in_the_order_of_the_parts(parts: list[ControlToken | str]) -> None:
    prompt = Prompt(tuple(parts))
    control_tokens = {text: -number for number, text in enumerate(CONTROL_TEXTS, start=1)}
    tokenized = [tuple(text.encode()) for text in prompt.texts]
    expected: list[int] = []
    for part in parts:
        expected.extend([control_tokens[part.text]] if isinstance(part, ControlToken) else part.encode())
    assert prompt.assemble(control_tokens, tokenized) == tuple(expected)


def tasks_with(material: str) -> tuple[Task, ...]:
    return (Terminology((Term(material, material),)), Style(material), Background(material))


@given(material=texts, source=texts, target_lang=tags)
def test_material_of_a_task_is_never_looked_into(material: str, source: str, target_lang: str) -> None:
    spec = catalog().get("Hy-MT2-1.8B")
    for task, marked in zip(tasks_with(material), tasks_with(MARK), strict=True):
        text = build_prompt(spec, source_lang="en", target_lang=target_lang, source=source, task=task).texts[0]
        frame = build_prompt(spec, source_lang="en", target_lang=target_lang, source=OTHER_MARK, task=marked).texts[0]
        assert text == frame.replace(MARK, material).replace(OTHER_MARK, source)


@given(spec=specs, source_lang=tags, target_lang=tags)
def test_equal_signatures_mean_equal_prompts(spec: ModelSpec, source_lang: str, target_lang: str) -> None:
    english = template_signature(spec, source_lang="en", target_lang="fr")
    other = template_signature(spec, source_lang=source_lang, target_lang=target_lang)
    prompts = [
        build_prompt(spec, source_lang="en", target_lang="fr", source=MARK),
        build_prompt(spec, source_lang=source_lang, target_lang=target_lang, source=MARK),
    ]
    assert (english == other) == (prompts[0] == prompts[1])


@given(before=texts, source=texts)
def test_context_and_source_keep_their_places(before: str, source: str) -> None:
    spec = catalog().get("HY-MT1.5-1.8B")
    text = build_prompt(spec, source_lang="en", target_lang="fr", source=source, task=Context(before)).texts[0]
    assert text.startswith(f"{before}\n参考上面的信息")
    assert text.endswith(f"：\n{source}\n")


@given(source=texts)
def test_the_plain_task_is_the_default(source: str) -> None:
    spec = catalog().get("Hy-MT2-7B")
    unasked = build_prompt(spec, source_lang="en", target_lang="fr", source=source)
    assert build_prompt(spec, source_lang="en", target_lang="fr", source=source, task=Translate()) == unasked
