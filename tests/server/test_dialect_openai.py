"""OpenAI's dialect, by its own client package, and by the prompts that translators really send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import openai
import pytest
from openai import OpenAI

from hymt_local.engine.scripted import Hang, cut, empty, reply
from tests.server.serving import TOKEN, Served, serving
from tests.services import scripted_service

FRENCH = "Translate into French: Good morning."


@pytest.fixture
def client(demo_served: Served) -> Iterator[OpenAI]:
    with closing(client_of(demo_served)) as client:
        yield client


def client_of(served: Served, base: str = "/v1") -> OpenAI:
    return OpenAI(api_key=TOKEN, base_url=f"http://127.0.0.1:{served.port}{base}", max_retries=0)


def ask(client: OpenAI, *messages: tuple[str, str], **options: Any) -> str:
    chat: Any = [{"role": role, "content": text} for role, text in messages]
    done = client.chat.completions.create(model="gpt-4o", messages=chat, **options)
    return str(done.choices[0].message.content)


def chunks_of(client: OpenAI, prompt: str, **options: Any) -> list[Any]:
    chat: Any = [{"role": "user", "content": prompt}]
    return list(client.chat.completions.create(model="any", messages=chat, stream=True, **options))


@pytest.mark.parametrize("base", ["/v1", "", "/openai", "/openai/v1/"])
def test_the_client_package_translates(demo_served: Served, base: str) -> None:
    with closing(client_of(demo_served, base)) as client:
        done = client.chat.completions.create(model="x", messages=[{"role": "user", "content": FRENCH}])
    assert done.choices[0].message.content == "Bonjour."
    assert (done.choices[0].finish_reason, done.object, done.model) == ("stop", "chat.completion", "demo")
    assert done.usage is not None
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens > 0


def test_a_stream_has_a_role_deltas_an_end_and_the_usage(client: OpenAI) -> None:
    chunks = chunks_of(client, FRENCH, stream_options={"include_usage": True})
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Bonjour."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.usage for chunk in chunks_of(client, FRENCH)][-1] is None


def test_completions_work_both_ways(client: OpenAI) -> None:
    done = client.completions.create(model="x", prompt=FRENCH)
    assert (done.choices[0].text, done.object) == ("Bonjour.", "text_completion")
    streamed = client.completions.create(model="x", prompt=[FRENCH], stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == "Bonjour."


def test_models_are_listed_and_found(client: OpenAI) -> None:
    ids = [model.id for model in client.models.list()]
    assert "demo" in ids
    assert client.models.retrieve("demo").id == "demo"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


def test_text_parts_unknown_fields_and_a_developer_message_are_fine(client: OpenAI) -> None:
    parts: Any = [{"type": "text", "text": "Good "}, {"type": "text", "text": "morning."}]
    done = client.chat.completions.create(
        model="x",
        messages=[{"role": "developer", "content": "Translate to French."}, {"role": "user", "content": parts}],
        temperature=0.7,
        extra_body={"top_k": 20, "think": False, "repetition_penalty": 1.05},
    )
    assert done.choices[0].message.content == "Bonjour."


def test_the_language_may_stand_outside_the_prompt(client: OpenAI) -> None:
    assert ask(client, ("user", "Good morning."), extra_body={"target_lang": "fr"}) == "Bonjour."


@pytest.mark.parametrize(
    "messages",
    [
        [("user", 'Translate into French:\n"""\nGood morning.\n"""')],
        [("user", "Translate the following segment into French, without additional explanation.\n\nGood morning.")],
        [("user", "把下面的文本翻译成法语，不要额外解释。\n\nGood morning.")],
        [("user", "将以下文本翻译为 French，注意只需要输出翻译后的结果，不要额外解释：\n\nGood morning.")],
        [
            ("system", "You are a professional, authentic machine translation engine."),
            ("user", "Translate the following source text from to fr. Output translation directly without any "
             "additional text.\n\nSource Text: Good morning.\n\nTranslated Text:"),
        ],
        [("system", "You are a translator. Translate from English to French."), ("user", "Good morning.")],
        [("system", "你是翻译专家。请翻译成法语。"), ("user", "Good morning.")],
        [("system", "Translate to French."), ("user", "Hi"), ("assistant", "Salut"), ("user", "Good morning.")],
    ],
    ids=["pot", "card en", "card zh", "card 1.5", "kiss", "system", "system zh", "history"],
)  # fmt: skip
def test_prompts_of_real_clients_give_the_bare_translation(client: OpenAI, messages: list[tuple[str, str]]) -> None:
    assert ask(client, *messages) == "Bonjour."


@pytest.mark.parametrize("stream", [False, True])
def test_a_job_in_json_is_answered_in_json(client: OpenAI, stream: bool) -> None:
    job = {"targetLanguage": "fr", "segments": [{"id": 0, "text": "Good morning."}, {"id": 7, "text": ""}]}
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks_of(client, json.dumps(job)))
    else:
        text = ask(client, ("system", "Act as a translation API."), ("user", json.dumps(job)))
    assert json.loads(text) == {
        "translations": [
            {"id": 0, "text": "Bonjour.", "sourceLanguage": "en"},
            {"id": 7, "text": "", "sourceLanguage": "en"},
        ]
    }


def test_tags_in_a_job_come_back_where_they_belong(loud_served: Served) -> None:
    job = {"targetLanguage": "zh-CN", "segments": [{"id": "a", "text": "<i1>Hi</i1> you {1}"}]}
    with closing(client_of(loud_served)) as client:
        answer = json.loads(ask(client, ("user", json.dumps(job))))
    assert answer["translations"][0]["text"] == "<i1>HI</i1> YOU {1}"


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([("user", "Who are you?")], "only translates"),
        ([("system", "You are helpful."), ("user", "Write a poem.")], "only translates"),
        ([("user", "Translate into Klingon: Hello")], "only translates"),
        ([("user", "Translate into French:")], "only translates"),
        ([("system", "Translate into French"), ("user", "  ")], "no text"),
        ([("system", "Translate into French")], "no message of a user"),
        ([], "no message of a user"),
    ],
    ids=["question", "poem", "klingon", "no text", "blank", "no user", "nothing"],
)
def test_what_is_no_translation_is_refused_with_a_way_to_ask(
    client: OpenAI, messages: list[tuple[str, str]], told: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, *messages)
    assert told in caught.value.message
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": "hi"},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user", "content": FRENCH}], "stream": "yes"},
        {"messages": [{"role": "user", "content": "hi"}], "target_lang": "xx"},
        [1],
    ],
    ids=str,
)
def test_a_bad_body_is_told_in_its_shape(demo_served: Served, body: Any) -> None:
    answer = demo_served.ask("POST", "/v1/chat/completions", body)
    assert answer.status == 400
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}


def test_a_wrong_key_is_an_authentication_error(demo_served: Served) -> None:
    stranger = client_of(demo_served).copy(api_key="sk-no")
    with closing(stranger), pytest.raises(openai.AuthenticationError):
        ask(stranger, ("user", FRENCH))


def test_a_failure_before_any_text_is_a_status_and_not_a_broken_stream(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="demo"):
        chunks_of(client, "Translate from English into French: Quantum flux.")


def test_lines_stream_in_order_and_join_to_the_whole() -> None:
    service, _ = scripted_service(reply("Un."), reply("Deux deux deux."), reply("Trois."))
    with serving(service) as served, closing(client_of(served)) as client:
        chunks = chunks_of(client, "Translate from English into French:\n\nOne.\n\n  Two.\nThree.\n")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Un.\n\n  Deux deux deux.\nTrois.\n"


def test_a_segment_that_fails_in_the_middle_ends_the_stream_with_an_error() -> None:
    service, _ = scripted_service(reply("Un."), cut("Deux"), empty())
    with serving(service) as served, closing(client_of(served)) as client, pytest.raises(openai.APIError):
        chunks_of(client, "Translate from English into French:\n\nOne.\nTwo.")


def test_a_correction_of_what_was_sent_ends_the_stream_with_an_error() -> None:
    service, _ = scripted_service(reply("half <|extra_0|>"), reply("Entier."))
    with serving(service) as served, closing(client_of(served)) as client:
        chat: Any = [{"role": "user", "content": "Translate from English into French:\n\nWhole."}]
        stream = client.chat.completions.create(model="x", messages=chat, stream=True)
        with pytest.raises(openai.APIError, match="corrected"):
            list(stream)


def test_closing_the_stream_cancels_the_translation() -> None:
    hang = Hang()
    service, _ = scripted_service(reply("Un."), hang, reply("Trois."))
    with serving(service) as served, closing(client_of(served)) as client:
        chat: Any = [{"role": "user", "content": "Translate from English into French:\n\nOne.\nTwo."}]
        stream = client.chat.completions.create(model="x", messages=chat, stream=True)
        assert hang.started.wait(5)
        stream.close()
        # The engine has one slot: the answer to another request shows that it is free again.
        assert ask(client, ("user", "Translate from English into French: Three."), timeout=8) == "Trois."
