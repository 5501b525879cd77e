"""LibreTranslate's dialect: its own client package, and what its other clients send."""

from __future__ import annotations

import json
import threading
import urllib.error
from typing import Any
from urllib.parse import urlencode

import pytest
from libretranslatepy import LibreTranslateAPI

from hymt_local.server import texts
from hymt_local.server.tagged_text import read_tagged
from tests.server.serving import TOKEN, WAIT_S, Served, multipart

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def client_of(served: Served, prefix: str = "") -> LibreTranslateAPI:
    return LibreTranslateAPI(f"http://127.0.0.1:{served.port}{prefix}", api_key=TOKEN)


def translate(served: Served, **fields: Any) -> Any:
    answer = served.ask("POST", "/translate", {"source": "en", "target": "fr", **fields})
    assert answer.status == 200, answer.body
    return answer.json


@pytest.mark.parametrize("prefix", ["", "/", "/libretranslate"])
def test_the_client_package_translates(demo_served: Served, prefix: str) -> None:
    assert client_of(demo_served, prefix).translate("Good morning.", "en", "fr") == "Bonjour."


def test_the_client_package_detects_and_lists_languages(demo_served: Served) -> None:
    client = client_of(demo_served)
    (best, *_) = client.detect("Где находится вокзал?")
    assert best["language"] == "ru"
    assert 0 < best["confidence"] <= 100
    languages = {each["code"]: each for each in client_of(demo_served, "/libretranslate").languages()}
    assert languages["zh-Hant"]["name"] == "Traditional Chinese"
    assert set(languages["fr"]["targets"]) == set(languages)
    assert {"zh-Hans", "en"} <= set(languages)


def test_a_wrong_key_is_told_in_its_own_shape(demo_served: Served) -> None:
    client = LibreTranslateAPI(f"http://127.0.0.1:{demo_served.port}/", api_key="wrong")
    with pytest.raises(urllib.error.HTTPError) as caught:
        client.translate("Hello", "en", "fr")
    with caught.value as response:
        assert response.code == 403
        assert isinstance(json.loads(response.read())["error"], str)


def test_a_list_is_answered_in_its_order_with_a_detection_of_each_text(loud_served: Served) -> None:
    texts = ["Where is the station?", "", "Wo ist denn hier der Bahnhof?", "  ", "Where is the station?", "12"]
    answer = translate(loud_served, q=texts, source="auto")
    assert answer["translatedText"] == [text.upper() for text in texts]
    detected = [each["language"] for each in answer["detectedLanguage"]]
    assert (detected[0], detected[2]) == ("en", "de")
    assert answer["detectedLanguage"][1] == answer["detectedLanguage"][5] == {"confidence": 0, "language": "en"}


def test_the_detected_language_is_told_only_when_it_was_asked_for(loud_served: Served) -> None:
    assert translate(loud_served, q="hello") == {"translatedText": "HELLO"}
    assert set(translate(loud_served, q="where is it", source="auto")["detectedLanguage"]) == {"confidence", "language"}


@pytest.mark.parametrize(
    "code", ["zh", "ZH", "zh-Hans", "zh-CN", "zt", "zh-hant", "pb", "pt", "pt-BR", "tl", "he", "iw"]
)
def test_codes_of_all_its_versions_are_accepted(loud_served: Served, code: str) -> None:
    assert translate(loud_served, q="hello", target=code) == {"translatedText": "HELLO"}


def test_html_is_found_where_the_client_forgets_to_say_so(loud_served: Served) -> None:
    html = "<p>Hello <b class='x'>world</b></p>"
    assert translate(loud_served, q=html)["translatedText"] == "<p>HELLO <b class='x'>WORLD</b></p>"
    assert translate(loud_served, q="a < b and c > d")["translatedText"] == "A < B AND C > D"
    assert translate(loud_served, q="a &lt; b", format="html")["translatedText"] == "A &lt; B"


def test_a_form_says_the_same_as_json(loud_served: Served) -> None:
    form = urlencode({"q": "one\r\ntwo", "source": "en", "target": "fr", "alternatives": "2"}).encode()
    for headers in (FORM, {"Content-Type": "text/plain"}):
        sent = form if headers is FORM else json.dumps({"q": "one\ntwo", "source": "en", "target": "fr"}).encode()
        answer = loud_served.ask("POST", "/translate", sent, headers=headers)
        assert answer.json["translatedText"] == "ONE\nTWO"
    assert loud_served.ask("POST", "/translate", form, headers=FORM).json["alternatives"] == []


def test_alternatives_are_an_empty_list_per_text(loud_served: Served) -> None:
    assert translate(loud_served, q=["a", "b"], alternatives=3)["alternatives"] == [[], []]
    assert "alternatives" not in translate(loud_served, q="<p>hello</p>", alternatives=3, format="html")


def test_the_frontend_finds_its_settings(demo_served: Served) -> None:
    settings = demo_served.ask("GET", "/frontend/settings").json
    assert settings["keyRequired"] is True
    assert settings["suggestions"] is False
    assert settings["language"]["source"]["code"] == "auto"
    assert isinstance(settings["supportedFilesFormat"], list)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"q": None}, 400),
        ({"q": 7}, 400),
        ({"q": ["a", 7]}, 400),
        ({"q": {"a": 1}}, 400),
        ({"target": None}, 400),
        ({"target": ""}, 400),
        ({"target": "auto"}, 400),
        ({"target": "xx"}, 400),
        ({"target": ["fr"]}, 400),
        ({"source": "klingon"}, 400),
        ({"format": "markdown"}, 400),
        ({"alternatives": -1}, 400),
        ({"alternatives": "many"}, 400),
        ({"alternatives": True}, 400),
        ({"q": ["a"] * 5000}, 413),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_request_is_told_in_one_text(loud_served: Served, change: dict[str, Any], status: int) -> None:
    fields = {"q": "hello", "source": "en", "target": "fr", **change}
    answer = loud_served.ask("POST", "/translate", {k: v for k, v in fields.items() if v is not None})
    assert answer.status == status
    assert set(answer.json) == {"error"}
    assert answer.json["error"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"q": "\\ud800"}', b"\xff\xfe", b'{"q":' + b"[" * 4000], ids=repr)
@pytest.mark.parametrize("path", ["/translate", "/libretranslate/translate", "/detect"])
def test_a_body_that_is_none_is_refused(loud_served: Served, path: str, body: bytes) -> None:
    answer = loud_served.ask("POST", path, body[:200], headers={"Content-Type": "application/json"})
    assert answer.status == 400
    assert answer.json["error"]


def test_a_failed_translation_is_an_error_and_never_the_source_text(demo_served: Served) -> None:
    answer = demo_served.ask(
        "POST", "/translate", {"q": ["Good morning.", "Quantum flux."], "source": "en", "target": "fr"}
    )
    assert answer.status == 400
    assert "translatedText" not in answer.json


def test_another_method_is_refused_with_the_one_to_use(loud_served: Served) -> None:
    answer = loud_served.ask("GET", "/translate")
    assert answer.status == 405
    assert "POST" in answer.json["error"]


@pytest.mark.parametrize("prefix", ["", "/libretranslate"])
def test_a_file_is_translated_and_fetched(loud_served: Served, prefix: str) -> None:
    form = multipart({"source": "auto", "target": "zt"}, name="my file.txt", data=b"where is it\n")
    answer = loud_served.ask("POST", f"{prefix}/translate_file", form.body, headers=form.headers)
    assert answer.status == 200, answer.body
    address = answer.json["translatedFileUrl"]
    assert address.startswith(f"http://127.0.0.1:{loud_served.port}{prefix}/download_file/")
    path = address.partition(str(loud_served.port))[2]
    fetched = loud_served.ask("GET", path)
    assert (fetched.status, fetched.body) == (200, b"WHERE IS IT\n")
    assert "my%20file.txt" in fetched.headers["content-disposition"]
    assert loud_served.ask("GET", path, token=None).status == 403


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"target": "fr"}, ""),
        ({"source": "en"}, "a.txt"),
        ({"source": "en", "target": "xx"}, "a.txt"),
        ({"source": "en", "target": "fr"}, "a.exe"),
    ],
    ids=["no file", "no target", "target", "format"],
)
def test_a_file_that_cannot_be_translated_is_refused(loud_served: Served, fields: dict[str, str], name: str) -> None:
    form = multipart(fields, name=name, data=b"\0\1\2\xff")
    answer = loud_served.ask("POST", "/translate_file", form.body, headers=form.headers)
    assert (answer.status, list(answer.json)) == (400, ["error"])


def test_suggestions_are_refused_as_on_a_server_without_them(demo_served: Served) -> None:
    answer = demo_served.ask("POST", "/suggest", {"q": "a", "s": "b", "source": "en", "target": "fr"})
    assert (answer.status, list(answer.json)) == (403, ["error"])


def test_a_large_page_does_not_hold_up_the_others(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, may_go_on = threading.Event(), threading.Event()

    def slow(text: str, rules: object) -> object:
        reading.set()
        assert may_go_on.wait(WAIT_S)
        return read_tagged(text, rules)  # type: ignore[arg-type]

    monkeypatch.setattr(texts, "read_tagged", slow)
    answers: list[int] = []
    page = {"q": "<p>Hello</p>", "source": "en", "target": "fr", "format": "html"}
    sending = threading.Thread(target=lambda: answers.append(shared.ask("POST", "/translate", page).status))
    sending.start()
    assert reading.wait(WAIT_S)
    assert shared.ask("GET", "/health").status == 200
    may_go_on.set()
    sending.join(WAIT_S)
    assert answers == [200]
