"""The request log: who, how much, how long; never what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hymt_local.engine.scripted import reply
from hymt_local.server import request_log
from hymt_local.server.request_log import MAX_REFUSALS, RequestLine, RequestLog
from tests.server.serving import serving
from tests.server.test_clients import Clock
from tests.services import scripted_service

LINE = RequestLine("owner", "native", "POST", 200, 12, 345, 0.25)


def test_a_line_has_lengths_and_no_text(tmp_path: Path) -> None:
    file = tmp_path / "requests.log"
    with serving(scripted_service(reply("geheime Antwort"))[0], request_log=file) as served:
        served.ask("POST", "/v1/translate", {"text": "Hello secret", "source_lang": "en", "target_lang": "fr"})
        served.ask("GET", "/secret-path?token=secret-token", token=None, headers={"Host": "secret.host"})
    text = file.read_text(encoding="utf-8")
    assert "owner native POST 200 in=66 out=" in text
    assert "- native GET 421 in=0 out=" in text
    assert not [word for word in ("secret", "geheim", "Hello") if word in text]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_method_that_a_client_made_up_is_not_logged(tmp_path: Path) -> None:
    file = tmp_path / "requests.log"
    with serving(scripted_service()[0], request_log=file) as served:
        answer = served.ask("SECRET" * 1000, "/v1/translate")
        assert (answer.status, len(answer.body) < 300) == (405, True)
    assert "owner native ? 405 " in file.read_text(encoding="utf-8")
    assert "SECRET" not in file.read_text(encoding="utf-8")


def test_a_name_stays_one_word_of_one_line(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "requests.log", alert=lambda line: None)
    log.write(replace(LINE, client="a b\nowner\u2028\x1b"))
    log.close()
    assert " a_b_owner__ native POST 200 " in (tmp_path / "requests.log").read_text(encoding="utf-8")


def test_the_file_is_rotated_and_stays_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "MAX_BYTES", 500)
    log = RequestLog(tmp_path / "requests.log", alert=lambda line: None)
    for _ in range(100):
        log.write(LINE)
    log.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["requests.log", *(f"requests.log.{n}" for n in (1, 2, 3))]
    assert all(file.stat().st_size <= 500 and file.stat().st_mode & 0o777 == 0o600 for file in files)


def test_a_disk_that_is_full_costs_the_line_only() -> None:
    log = RequestLog(Path("/dev/full"), alert=lambda line: None)
    log.write(LINE)
    log.write(LINE)
    log.close()


def test_many_refusals_in_a_minute_are_one_alert() -> None:
    clock, alerts = Clock(), list[str]()
    log = RequestLog(None, alert=alerts.append, clock=clock)
    refused = RequestLine("-", "native", "GET", 401, 0, 0, 0.0)
    for _ in range(MAX_REFUSALS):
        log.write(refused)
    assert alerts == []
    for _ in range(5):
        log.write(refused)
    assert len(alerts) == 1
    clock.now += 61.0
    for _ in range(MAX_REFUSALS):
        log.write(refused)
    assert len(alerts) == 1
