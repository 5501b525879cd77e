"""DeepL's dialect, by its own client package; and DeepLX's."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import deepl
import pytest

from hymt_local.server.dialects import deepl as dialect
from tests.server.serving import TOKEN, Served, multipart

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def client(demo_served: Served) -> Iterator[deepl.DeepLClient]:
    with closing(deepl.DeepLClient(TOKEN, server_url=f"http://127.0.0.1:{demo_served.port}")) as client:
        yield client


@pytest.fixture
def loud(loud_served: Served) -> Iterator[deepl.DeepLClient]:
    with closing(deepl.DeepLClient(TOKEN, server_url=f"http://127.0.0.1:{loud_served.port}/deepl/")) as client:
        yield client


def test_the_client_package_translates_a_text_and_a_list(client: deepl.DeepLClient) -> None:
    one = client.translate_text("Good morning.", target_lang="FR")
    assert isinstance(one, deepl.TextResult)
    assert (one.text, one.detected_source_lang, one.billed_characters) == ("Bonjour.", "EN", 13)
    many = client.translate_text(["Good morning.", "", "Thank you very much."], source_lang="EN", target_lang="FR")
    assert isinstance(many, list)
    assert [each.text for each in many] == ["Bonjour.", "", "Merci beaucoup."]


def test_every_target_that_is_listed_is_accepted(client: deepl.DeepLClient, loud: deepl.DeepLClient) -> None:
    targets = {language.code for language in client.get_target_languages()}
    assert {"EN-GB", "EN-US", "PT-BR", "PT-PT", "ZH-HANS", "ZH-HANT", "FR", "YUE"} <= targets
    assert not {"EN", "PT", "ZH"} & targets
    for code in sorted(targets):
        done = loud.translate_text("hello", source_lang="FR", target_lang=code)
        assert isinstance(done, deepl.TextResult)
        assert done.text in {"HELLO", "hello"}, code


def test_sources_have_no_variants(client: deepl.DeepLClient) -> None:
    sources = [language.code for language in client.get_source_languages()]
    assert {"EN", "PT", "ZH", "FR"} <= set(sources)
    assert not [code for code in sources if "-" in code]
    assert len(sources) == len(set(sources))


def test_usage_and_glossaries_are_those_of_an_account_that_has_none(client: deepl.DeepLClient) -> None:
    usage = client.get_usage()
    assert usage.character.valid
    assert not usage.any_limit_reached
    assert client.get_glossary_languages() == []
    assert client.list_glossaries() == []
    assert client.list_multilingual_glossaries() == []
    with pytest.raises(deepl.QuotaExceededException, match="Quota exceeded"):
        client.create_glossary("mine", "en", "fr", {"a": "b"})
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_glossary("11111111-1111-1111-1111-111111111111")
    with pytest.raises(deepl.DeepLException):
        client.translate_text("Hello", source_lang="EN", target_lang="FR", glossary="11111111")


def test_what_is_not_there_answers_in_its_shape(demo_served: Served) -> None:
    for path in ("/v3/style_rules", "/v2/write/rephrase", "/deepl/v3/translation_memories"):
        answer = demo_served.ask("GET", path)
        assert answer.status == 404
        assert answer.json["message"]


def test_a_wrong_key_is_an_authorization_error(demo_served: Served) -> None:
    with (
        closing(deepl.DeepLClient("wrong:fx", server_url=f"http://127.0.0.1:{demo_served.port}")) as client,
        pytest.raises(deepl.AuthorizationException),
    ):
        client.translate_text("Hello", target_lang="FR")


def test_a_key_may_come_in_either_header_or_the_form(loud_served: Served) -> None:
    form = urlencode({"text": "hi", "target_lang": "FR", "auth_key": TOKEN}).encode()
    assert loud_served.ask("POST", "/v2/translate", form, token=None, headers=FORM).status == 200
    for header in (f"DeepL-Auth-Key {TOKEN}", f"Bearer {TOKEN}"):
        body = {"text": ["hi"], "target_lang": "FR"}
        answer = loud_served.ask("POST", "/v2/translate", body, token=None, headers={"Authorization": header})
        assert answer.status == 200


def test_old_clients_repeat_the_text_in_a_form(loud_served: Served) -> None:
    form = urlencode([("text", "one"), ("text", "two"), ("target_lang", "fr"), ("source_lang", "en")]).encode()
    answer = loud_served.ask("POST", "/v2/translate", form, headers=FORM)
    assert [each["text"] for each in answer.json["translations"]] == ["ONE", "TWO"]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("<p>Hi <b>you</b> &amp; me</p>", {"tag_handling": "html"}, "<p>HI <b>YOU</b> &amp; ME</p>"),
        ("<a>Hi <x>you</x></a>", {"tag_handling": "xml", "ignore_tags": ["x"]}, "<a>HI <x>you</x></a>"),
        ("<d><t>One</t><p>Two</p></d>", {"tag_handling": "xml"}, "<d><t>ONE</t><p>TWO</p></d>"),
        ("one<sep/>two", {"tag_handling": "xml", "splitting_tags": ["sep"]}, "ONE<sep/>TWO"),
        ("one <i>two", {"tag_handling": "xml", "outline_detection": False}, "ONE <i>TWO"),
        ("a < b <c", {"tag_handling": "xml"}, "A &lt; B &lt;C"),
        ("<code>x = y</code> and z", {"tag_handling": "html"}, "<code>x = y</code> AND Z"),
        ("a < b", {}, "A < B"),
    ],
)
def test_tags_are_handled_as_asked(loud: deepl.DeepLClient, text: str, options: dict[str, Any], expected: str) -> None:
    done = loud.translate_text(text, source_lang="EN", target_lang="FR", **options)
    assert isinstance(done, deepl.TextResult)
    assert done.text == expected


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ({"text": None}, 400, "Parameter 'text' not specified."),
        ({"text": []}, 400, "Parameter 'text' not specified."),
        ({"text": [None]}, 400, "text[0]"),
        ({"target_lang": None}, 400, "Parameter 'target_lang' not specified."),
        ({"target_lang": "KLINGON"}, 400, "Value for 'target_lang' not supported."),
        ({"source_lang": "XX"}, 400, "Value for 'source_lang' not supported."),
        ({"tag_handling": "latex"}, 400, "Value for 'tag_handling' not supported."),
        ({"text": ["a"] * 5000}, 413, "5000 texts"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_request_is_told_in_its_shape(
    loud_served: Served, change: dict[str, Any], status: int, told: str
) -> None:
    fields = {"text": ["hello"], "target_lang": "FR", **change}
    answer = loud_served.ask("POST", "/v2/translate", {k: v for k, v in fields.items() if v is not None})
    assert answer.status == status
    assert told in answer.json["message"]


def test_unknown_fields_are_ignored(loud: deepl.DeepLClient) -> None:
    done = loud.translate_text(
        "hello",
        source_lang="EN",
        target_lang="DE",
        formality="prefer_more",
        preserve_formatting=True,
        split_sentences="0",
        context="a greeting",
        model_type="prefer_quality_optimized",
    )
    assert isinstance(done, deepl.TextResult)
    assert (done.text, done.model_type_used) == ("HELLO", "quality_optimized")


def test_every_error_status_is_one_that_its_client_knows() -> None:
    from hymt_local.errors import HymtError, ServerError, UsageError

    kinds: list[type[HymtError]] = [HymtError]
    for kind in kinds + HymtError.__subclasses__() + UsageError.__subclasses__() + ServerError.__subclasses__():
        report = kind("what", hint="next").report()
        response = dialect.error_response(report, report.http_status)
        assert response.status_code in {400, 403, 404, 409, 413, 415, 421, 429, 456, 500, 503}, kind


# Documents


def test_the_client_package_translates_a_document(loud: deepl.DeepLClient, tmp_path: Path) -> None:
    source, target = tmp_path / "a.html", tmp_path / "b.html"
    source.write_bytes(b"<p>one <b>two</b></p>")
    status = loud.translate_document_from_filepath(source, target, source_lang="EN", target_lang="ZH-HANT")
    assert status.done
    assert status.billed_characters
    assert b"ONE <b>TWO</b></p>" in target.read_bytes()


def test_a_document_that_cannot_be_read_is_told(loud: deepl.DeepLClient) -> None:
    with pytest.raises(deepl.DocumentTranslationException):
        loud.translate_document(io.BytesIO(b"\0\1"), io.BytesIO(), filename="a.exe", target_lang="FR")
    with pytest.raises(deepl.DeepLException, match="output_format"):
        loud.translate_document(io.BytesIO(b"a"), io.BytesIO(), filename="a.txt", target_lang="FR", output_format="pdf")


def test_a_document_is_given_once_and_to_nobody_without_its_key(loud_served: Served) -> None:
    form = multipart({"target_lang": "FR", "source_lang": "EN"}, name="a.txt", data=b"one\n")
    sent = loud_served.ask("POST", "/v2/document", form.body, headers=form.headers).json
    path = f"/v2/document/{sent['document_id']}"
    assert loud_served.ask("POST", path, {"document_key": "wrong"}).status == 400
    key = {"document_key": sent["document_key"]}
    deadline = time.monotonic() + 20
    while loud_served.ask("POST", path, key).json["status"] != "done":
        assert time.monotonic() < deadline
    assert loud_served.ask("POST", f"{path}/result", key).body == b"ONE\n"
    assert loud_served.ask("POST", f"{path}/result", key).status == 404


# DeepLX


@pytest.mark.parametrize("path", ["/translate", "/deeplx", "/deeplx/translate", "/deeplx/translate/"])
def test_deeplx_answers_one_text(loud_served: Served, path: str) -> None:
    body = {"text": "one\ntwo", "source_lang": "auto", "target_lang": "ZH"}
    answer = loud_served.ask("POST", f"{path}?token={TOKEN}", body, token=None)
    assert answer.status == 200
    assert answer.json["code"] == 200
    assert answer.json["data"] == "ONE\nTWO"
    assert isinstance(answer.json["id"], int)
    assert (answer.json["target_lang"], answer.json["method"], answer.json["alternatives"]) == ("ZH", "Free", [])


def test_deeplx_keeps_tags(loud_served: Served) -> None:
    body = {"text": "<b>hi</b> you", "source_lang": "EN", "target_lang": "FR", "tag_handling": "html"}
    assert loud_served.ask("POST", "/translate", body).json["data"] == "<b>HI</b> YOU"


@pytest.mark.parametrize(
    "change", [{"text": ""}, {"text": 5}, {"target_lang": "xx"}, {"tag_handling": "md"}, {"source_lang": "xx"}], ids=str
)
def test_deeplx_tells_errors_in_its_shape(loud_served: Served, change: dict[str, Any]) -> None:
    answer = loud_served.ask("POST", "/translate", {"text": "a", "source_lang": "en", "target_lang": "fr", **change})
    assert (answer.status, answer.json["code"]) == (400, 400)
    assert answer.json["message"]
