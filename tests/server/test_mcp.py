"""`hymt mcp`, by the protocol's own client: as a process over stdio, and in here for what needs a scripted engine."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from hymt_local.cli.app import run
from hymt_local.engine.scripted import Hang, empty, reply
from hymt_local.jobs import LocalService
from hymt_local.mcp_server import MAX_CHARACTERS, build_server
from tests.services import echo_model, scripted_service


@asynccontextmanager
async def connected(service: LocalService) -> AsyncIterator[Client]:
    with service:
        async with Client(build_server(service, languages=["en", "fr", "zh"])) as client:
            yield client


def echo_service() -> LocalService:
    return LocalService(lambda ref: echo_model(str.upper), cache_path=None)


def said(result: Any) -> str:
    return "".join(part.text for part in result.content)


async def test_an_agent_translates_detects_and_lists_over_stdio(isolated_environment: Path) -> None:
    hymt = StdioServerParameters(
        command=sys.executable,
        args=["-m", "hymt_local", "mcp", "-m", "demo"],
        env={"HYMT_HOME": str(isolated_environment), "LANG": "C.UTF-8", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    async with Client(stdio_client(hymt)) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        translated = await client.call_tool("translate", {"text": "Good morning.", "target_lang": "French"})
        detected = await client.call_tool("detect", {"text": "Где находится вокзал?"})
        refused = await client.call_tool("translate", {"text": "Quantum flux.", "target_lang": "fr"})
    assert tools == {"translate", "detect", "check", "terms", "languages"}
    assert not translated.is_error
    assert translated.structured_content is not None
    assert translated.structured_content["text"] == "Bonjour."
    assert (translated.structured_content["source_lang"], translated.structured_content["target_lang"]) == ("en", "fr")
    assert detected.structured_content is not None
    assert detected.structured_content["result"][0]["tag"] == "ru"
    assert refused.is_error
    assert "demo" in said(refused)


async def test_every_tool_describes_itself_and_its_arguments() -> None:
    async with connected(echo_service()) as client:
        tools = (await client.list_tools()).tools
    for tool in tools:
        assert tool.description
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        for name, schema in tool.input_schema.get("properties", {}).items():
            assert schema.get("description"), f"{tool.name}.{name}"


async def test_a_part_that_stayed_source_text_is_listed() -> None:
    service, _ = scripted_service(reply("Un."), empty())
    async with connected(service) as client:
        done = await client.call_tool("translate", {"text": "One.\nTwo.", "target_lang": "fr", "source_lang": "en"})
    assert not done.is_error
    assert done.structured_content is not None
    assert done.structured_content["text"] == "Un.\nTwo."
    (untranslated,) = done.structured_content["untranslated"]
    assert untranslated["source"] == "Two."
    assert untranslated["reason"]


async def test_an_agent_that_gives_up_cancels_the_translation() -> None:
    hang = Hang()
    service, _ = scripted_service(hang, reply("Deux."))
    async with connected(service) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "translate", {"text": "One", "target_lang": "fr", "source_lang": "en"})
            assert await asyncio.to_thread(hang.started.wait, 5)
            group.cancel_scope.cancel()
        with anyio.fail_after(5):  # the only slot of the engine is free again
            again = await client.call_tool("translate", {"text": "Two", "target_lang": "fr", "source_lang": "en"})
    assert said(again).count("Deux.") == 1


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("translate", {"text": " ", "target_lang": "fr"}, "empty"),
        ("translate", {"text": "x" * (MAX_CHARACTERS + 1), "target_lang": "fr"}, "several parts"),
        ("translate", {"text": "Hello", "target_lang": "Klingon"}, "unknown language 'Klingon'"),
        ("translate", {"text": "Hello", "target_lang": "fr", "source_lang": "Elvish"}, "unknown language 'Elvish'"),
        ("translate", {"text": "\udcff half", "target_lang": "fr"}, "UTF-8"),
        ("detect", {"text": ""}, "empty"),
        ("check", {"source": "a", "target": "b", "target_lang": "xx"}, "unknown language"),
        ("terms", {"source": "a", "glossary": {}}, "no terms"),
        ("terms", {"source": "a", "glossary": {"b": ["c"]}, "source_lang": "xx"}, "unknown language"),
    ],
    ids=["empty", "long", "target", "source", "half a character", "detect", "check", "no terms", "terms"],
)
async def test_a_refusal_says_what_to_do(tool: str, arguments: dict[str, str], told: str) -> None:
    async with connected(echo_service()) as client:
        result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert told in said(result)


async def test_check_finds_a_lost_placeholder_and_praises_nothing() -> None:
    asked = {"source": "Hi {name}, it was in 1995.", "target_lang": "fr"}
    async with connected(echo_service()) as client:
        bad = await client.call_tool("check", {**asked, "target": "Salut, c’était en 1995."})
        doubtful = await client.call_tool("check", {**asked, "target": "Salut {name}, c’était en 1959."})
        good = await client.call_tool("check", {**asked, "target": "Salut {name}, c’était en 1995."})
    assert bad.structured_content is not None
    assert doubtful.structured_content is not None
    assert not bad.structured_content["is_sound"]
    assert "{name}" in bad.structured_content["findings"][0]["message"]
    assert doubtful.structured_content["is_sound"]
    assert [each["severity"] for each in doubtful.structured_content["findings"]] == ["warning"]
    assert good.structured_content == {"is_sound": True, "findings": []}


async def test_check_detects_the_language_of_the_source() -> None:
    source = "The committee has decided that all of the members must be informed about the new rules before the end."
    asked = {"source": f"{source} Nobody may vote without them.", "target": "Oui, c’est ça.", "target_lang": "fr"}
    async with connected(echo_service()) as client:
        told = await client.call_tool("check", {**asked, "source_lang": "en"})
        detected = await client.call_tool("check", asked)
    assert told.structured_content is not None
    assert [each["code"] for each in told.structured_content["findings"]] == ["ratio"]
    assert detected.structured_content == told.structured_content


async def test_terms_are_found_and_a_translation_without_them_is_told() -> None:
    asked = {
        "source": "The valve and the pumps are closed.",
        "glossary": {"valve": ["vanne"], "pump": ["pompe"], "pipe": ["tuyau"]},
        "source_lang": "en",
        "target_lang": "fr",
    }
    async with connected(echo_service()) as client:
        found = await client.call_tool("terms", asked)
        bad = await client.call_tool("terms", {**asked, "target": "La soupape et les pompes sont fermées."})
        good = await client.call_tool("terms", {**asked, "target": "La vanne et les pompes sont fermées."})
    assert found.structured_content is not None
    assert found.structured_content["found"] == [
        {"term": "valve", "start": 4, "end": 9, "translations": ["vanne"]},
        {"term": "pump", "start": 18, "end": 23, "translations": ["pompe"]},
    ]
    assert found.structured_content["findings"] == []
    assert bad.structured_content is not None
    assert [each["code"] for each in bad.structured_content["findings"]] == ["term"]
    assert good.structured_content is not None
    assert good.structured_content["findings"] == []


async def test_names_stay_as_they_are() -> None:
    async with connected(echo_service()) as client:
        done = await client.call_tool(
            "translate", {"text": "Ask Acme now", "target_lang": "fr", "source_lang": "en", "protect": ["Acme"]}
        )
    assert done.structured_content is not None
    assert done.structured_content["text"] == "ASK Acme NOW"


async def test_lines_that_are_no_message_are_passed_over(isolated_environment: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hymt_local", "mcp", "-m", "echo"),
        env={"HYMT_HOME": str(isolated_environment), "LANG": "C.UTF-8", "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    who = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": who}
    for line in (b"noise", b"", b"\xff\xfe\x00", b"[1, 2]", b'{"id": 7}', json.dumps(hello).encode(), b"{half"):
        process.stdin.write(line + b"\n")
    process.stdin.write(b'{"jsonrpc": "2.0", "id": 2, "method": "nonsense"}\n')
    await process.stdin.drain()
    async with asyncio.timeout(60):
        answers = [json.loads(await process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        assert await process.wait() == 0
    assert {answer["id"]: "result" in answer for answer in answers} == {1: True, 2: False}


async def test_languages_are_those_of_the_model() -> None:
    async with connected(echo_service()) as client:
        result = await client.call_tool("languages", {})
    assert result.structured_content is not None
    assert [each["tag"] for each in result.structured_content["result"]] == ["en", "fr", "zh"]


def test_without_the_extra_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("hymt_local.cli.mcp.find_spec", lambda name: None if name == "mcp" else find_spec(name))
    assert run(["mcp"]) == 2
    assert b"hymt-local[mcp]" in capsysbinary.readouterr().err


def test_help_names_the_tools(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["mcp", "--help"]) == 0
    out = capsysbinary.readouterr().out.decode()
    assert all(tool in out for tool in ("translate", "detect", "check", "terms", "languages"))
