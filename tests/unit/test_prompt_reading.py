"""What chat prompts ask for: the language and the bare text out of the words of many clients."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.errors import HymtError
from hymt_local.server.prompt_reading import Message, NotATranslationError, PromptTask, read_chat, read_prompt

HEADS = {
    "Translate into French:\n": "fr",
    "Translate to Chinese (Traditional): ": "zh-Hant",
    "Please translate the following text to Brazilian Portuguese:\n": "pt",
    "Translate the following segment into Simplified Chinese, without additional explanation.\n\n": "zh",
    "Translate the following text into German. Note that you should only output the translated result:\n\n": "de",
    "Translate from English to Traditional Chinese (Taiwan):\n\n": "zh-Hant",
    "Translate this into **Japanese**.\n\n": "ja",
    "把下面的文本翻译成英语，不要额外解释。\n\n": "en",
    "将以下文本翻译为 zh-TW，注意只需要输出翻译后的结果，不要额外解释：\n\n": "zh-Hant",
    "请将以下文本翻譯成繁體中文：": "zh-Hant",
    "请将以下文本翻译为 法语。\n注意翻译的风格要严格符合【正式】\n\n": "fr",
}
TEXTS = ("Hello, world", "one\n\ntwo", "a: b", 'Say "no" to French', "  kept inside  x", "你好：世界")


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("text", TEXTS)
def test_the_words_of_the_client_are_taken_off(head: str, text: str) -> None:
    task = read_prompt(head + text)
    assert (task.target_lang, task.text.strip()) == (HEADS[head], text.strip())


@pytest.mark.parametrize("fence", [('"""', '"""'), ("```", "```"), ("<source>", "</source>")])
def test_fences_are_taken_off_and_what_is_inside_stays(fence: tuple[str, str]) -> None:
    inside = "  one\n\ntwo: three\n"
    task = read_prompt(f"Translate into French:\n{fence[0]}\n{inside}\n{fence[1]}")
    assert task.text == inside


def test_a_quoted_text_is_understood() -> None:
    assert read_prompt('Translate "Hello, "you"" to French.') == PromptTask('Hello, "you"', "fr")
    assert read_prompt("please translate 'a\nb' into 法语") == PromptTask("a\nb", "fr")


@pytest.mark.parametrize(
    ("instruction", "tag"),
    [
        ("You are a translation engine. Translate everything to German.", "de"),
        ("You are fluent in English. Translate all to German. Do not translate words in English.", "de"),
        ("You translate from Korean to English.", "en"),
        ("target_language: pt-BR", "pt"),
        ("Target language is Thai. Reply in plain text.", "th"),
        ("你是专业的翻译引擎，请把用户的话翻译成日语。", "ja"),
        ("Render the user's message into `zh-CN`.", "zh"),
    ],
)
def test_a_system_message_names_the_language(instruction: str, tag: str) -> None:
    chat = [Message("system", instruction), Message("user", "He wanted to translate to French:\nand more")]
    task = read_chat(chat)
    assert (task.target_lang, task.text) == (tag, "He wanted to translate to French:\nand more")


def test_the_prompt_itself_wins_over_the_system_message() -> None:
    chat = [Message("system", "Translate to German."), Message("user", "Translate into French: Hello")]
    assert read_chat(chat) == PromptTask("Hello", "fr")
    assert read_chat(chat, target_lang="ja") == PromptTask("Translate into French: Hello", "ja")


def test_a_source_language_is_read_too() -> None:
    assert read_prompt("Translate from Japanese to English: こんにちは") == PromptTask("こんにちは", "en", "ja")


@pytest.mark.parametrize(
    "prompt",
    [
        "Who are you?",
        "Write a poem in French about translation",
        "Translate it to me",
        "Translate this into Klingon: hi",
        "Translate into French:",
        "Summarize in German: Hello",
        "",
        "翻译一下：你好",
    ],
)
def test_what_names_no_language_or_no_text_is_refused(prompt: str) -> None:
    with pytest.raises(NotATranslationError, match="no language"):
        read_prompt(prompt)


@given(st.lists(st.builds(Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.text(max_size=80))))
def test_whatever_is_sent_is_a_task_or_a_refusal(messages: list[Message]) -> None:
    try:
        task = read_chat(messages)
    except HymtError:
        return
    assert task.text in [m.text for m in messages] or any(task.text in m.text for m in messages)


@pytest.mark.parametrize(
    "part", ["translate ", "to ", "\n", ":", "from x to ", '"""', '"x" to ', "翻译成", "Source Text: ", " "]
)
def test_a_long_prompt_is_read_in_linear_time(part: str) -> None:
    started = time.process_time()
    with pytest.raises(HymtError):
        read_prompt("Translate " + part * 200_000)
    assert time.process_time() - started < 2.0
