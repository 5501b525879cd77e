"""The dialects of browser extensions and small servers: Immersive Translate, KISS Translator, MTranServer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.serving import TOKEN, Served

PLACEHOLDERS = ["Hello {0}big{1} world", "<b0>Hi</b0> you", "", "12", "Hello {0}big{1} world"]
IN_CAPITALS = ["HELLO {0}BIG{1} WORLD", "<b0>HI</b0> YOU", "", "12", "HELLO {0}BIG{1} WORLD"]


@pytest.mark.parametrize("path", ["/immersive", "/imme", "/imme/"])
def test_immersive_gives_every_text_back_with_its_placeholders(loud_served: Served, path: str) -> None:
    body = {"source_lang": "auto", "target_lang": "zh-CN", "text_list": PLACEHOLDERS}
    answer = loud_served.ask("POST", f"{path}?token={TOKEN}", body, token=None)
    assert [each["text"] for each in answer.json["translations"]] == IN_CAPITALS
    assert all(set(each) == {"text", "detected_source_lang"} for each in answer.json["translations"])


def test_immersive_honours_the_source_language(loud_served: Served) -> None:
    body = {"source_lang": "zh-TW", "target_lang": "fil", "text_list": ["hello"]}
    answer = loud_served.ask("POST", "/imme", body)
    assert answer.json == {"translations": [{"detected_source_lang": "zh-TW", "text": "HELLO"}]}


def test_kiss_answers_its_new_form_and_its_old(loud_served: Served) -> None:
    new = loud_served.ask("POST", "/kiss", {"texts": PLACEHOLDERS, "from": "en", "to": "zh-CN"})
    assert [each["text"] for each in new.json["translations"]] == IN_CAPITALS
    assert {each["src"] for each in new.json["translations"]} == {"en"}
    old = loud_served.ask("POST", "/kiss", {"text": "hello", "from": "en", "to": "zh-CN"})
    assert old.json == {"text": "HELLO", "from": "en", "to": "zh-CN"}


@pytest.mark.parametrize("prefix", ["", "/mtranserver"])
def test_mtranserver_translates_one_text_and_many(loud_served: Served, prefix: str) -> None:
    one = loud_served.ask("POST", f"{prefix}/translate", {"from": "auto", "to": "zh-Hans", "text": "where is it"})
    assert one.json == {"result": "WHERE IS IT", "text": "WHERE IS IT", "from": "en", "to": "zh-Hans"}
    body = {"from": "en", "to": "fr", "texts": ["<p>a b</p>", "", "c d"], "html": True}
    many = loud_served.ask("POST", f"{prefix}/translate/batch", body)
    assert many.json == {"results": ["<p>A B</p>", "", "C D"]}
    assert loud_served.ask("GET", f"{prefix}/version").json["version"]
    assert loud_served.ask("GET", f"{prefix}/__heartbeat__").body == b"Ready"


def test_mtranserver_lists_languages_under_its_prefix(demo_served: Served) -> None:
    assert "zh-Hans" in demo_served.ask("GET", "/mtranserver/languages").json["languages"]


def test_hcfy_names_languages_in_chinese_and_takes_the_second_when_the_first_is_the_source(loud_served: Served) -> None:
    body = {"name": "my", "text": "one\ntwo", "destination": ["中文(简体)", "英语"], "source": "英语"}
    answer = loud_served.ask("POST", f"/hcfy?token={TOKEN}", body, token=None)
    assert answer.json == {"text": "one\ntwo", "from": "英语", "to": "中文(简体)", "result": ["ONE", "TWO"]}
    there = loud_served.ask("POST", "/hcfy", {**body, "source": "中文(简体)"}).json
    assert (there["from"], there["to"]) == ("中文(简体)", "英语")
    japanese = {"text": "東京の図書館はどこですか", "destination": ["中文(简体)", "英语"]}
    assert loud_served.ask("POST", "/hcfy", japanese).json["from"] == "日语"


def test_google_takes_its_key_from_the_address_and_html_unless_told(loud_served: Served) -> None:
    path = f"/language/translate/v2?key={TOKEN}&target=zh-TW"
    answer = loud_served.ask("POST", path, {"q": ["where is <b>it</b>", ""]}, token=None)
    translations = answer.json["data"]["translations"]
    assert [each["translatedText"] for each in translations] == ["WHERE IS <b>IT</b>", ""]
    assert translations[0]["detectedSourceLanguage"] == "en"
    plain = loud_served.ask("GET", f"{path}&q=a%20%3C%20b&source=en&format=text", token=None)
    assert plain.json == {"data": {"translations": [{"translatedText": "A < B"}]}}
    refused = loud_served.ask("POST", f"/google{path}", {"q": "a", "format": "pdf"}, token=None)
    assert (refused.status, refused.json["error"]["code"]) == (400, 400)
    assert loud_served.ask("GET", "/language/translate/v2?q=a&target=fr&key=no", token=None).status == 403


def test_linguaspark_detects(loud_served: Served) -> None:
    assert loud_served.ask("POST", "/detect", {"text": "Где находится вокзал?"}).json == {"language": "ru"}
    assert loud_served.ask("POST", "/detect", {"text": ""}).json == {"language": "en"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/imme", {"target_lang": "fr"}),
        ("/imme", {"target_lang": "xx", "text_list": ["a"]}),
        ("/imme", {"text_list": ["a"]}),
        ("/imme", {"target_lang": "fr", "text_list": [1]}),
        ("/imme", {"target_lang": "fr", "source_lang": "xx", "text_list": ["a"]}),
        ("/kiss", {"to": "fr"}),
        ("/kiss", {"to": "xx", "texts": ["a"]}),
        ("/kiss", {"to": ["fr"], "texts": ["a"]}),
        ("/translate", {"to": "xx", "text": "a"}),
        ("/translate", {"to": "fr", "text": 3}),
        ("/translate/batch", {"to": "fr"}),
        ("/hcfy", {"text": "a"}),
        ("/hcfy", {"text": "a", "destination": ["克林贡语"]}),
        ("/hcfy", {"text": "a", "destination": [1]}),
        ("/translate/batch", {"texts": ["a"]}),
    ],
    ids=str,
)
def test_a_bad_request_is_told_in_a_message(loud_served: Served, path: str, body: dict[str, Any]) -> None:
    answer = loud_served.ask("POST", path, body)
    assert answer.status == 400
    assert answer.json["message"]


@pytest.mark.parametrize("path", ["/imme", "/kiss", "/translate", "/translate/batch", "/deeplx", "/v2/translate"])
def test_without_a_key_nothing_is_translated(loud_served: Served, path: str) -> None:
    answer = loud_served.ask("POST", path, {"text": "a", "to": "fr", "target_lang": "fr"}, token=None)
    assert answer.status in {401, 403}
    assert answer.json["message"]


@pytest.mark.parametrize("path", ["/imme", "/kiss", "/translate/batch"])
def test_one_text_that_fails_fails_them_all(demo_served: Served, path: str) -> None:
    texts = ["Good morning.", "Quantum flux."]
    body = {"source_lang": "en", "target_lang": "fr", "from": "en", "to": "fr", "texts": texts, "text_list": texts}
    answer = demo_served.ask("POST", path, body)
    assert answer.status == 422
    assert set(answer.json) <= {"message", "error"}
