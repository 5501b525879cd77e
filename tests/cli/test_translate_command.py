"""stdout is data: exact bytes, one clear error on stderr, documented exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import RunHymt


@pytest.mark.parametrize(
    "source",
    [
        b"hello",
        b"hello\n",
        b"  one\r\n\r\n\ttwo  \r\n",
        "\ufeffcafé\n".encode(),
        "line\u2028separator\x0bvt\x85nel\n".encode(),
        b"\x1b]0;title\x07 is only text here\n",
        "你好，世界。\n第二行\n".encode(),
        b"102\n",
        b" \n\t\n",
    ],
)
def test_a_pipe_gets_the_bytes_back_exactly_from_the_identity_engine(hymt: RunHymt, source: bytes) -> None:
    done = hymt("-m", "echo", "-f", "en", "-t", "fr", stdin=source)
    assert (done.status, done.out, done.err) == (0, source, "")


def test_arguments_are_joined_and_get_a_line_end(hymt: RunHymt) -> None:
    assert hymt("-m", "echo", "-f", "en", "-t", "fr", "hello", "there").out == b"hello there\n"


def test_translate_is_the_same_command_and_takes_a_text_named_like_a_command(hymt: RunHymt) -> None:
    assert hymt("translate", "detect", "-m", "echo", "-f", "en", "-t", "fr").out == b"detect\n"


def test_pseudo_localization_keeps_placeholders_and_line_structure(hymt: RunHymt) -> None:
    done = hymt("-m", "pseudo", "-f", "en", "-t", "fr", stdin=b"Hello {name},\n\n  %d files\n")
    lines = done.text.split("\n")
    assert len(lines) == 4
    assert "{name}" in lines[0]
    assert lines[1] == ""
    assert lines[2].startswith("  ")
    assert "%d" in lines[2]


def test_json_names_everything_that_shaped_the_answer(hymt: RunHymt) -> None:
    answer = json.loads(hymt("-m", "echo", "-t", "fr", "--json", "Where is the station?").out)
    assert answer["source"] == answer["target"] == "Where is the station?"
    assert (answer["source_lang"], answer["target_lang"], answer["model"]) == ("en", "fr", "echo")
    assert answer["origin"] == "model"
    assert set(answer) == {
        "source", "target", "source_lang", "target_lang", "model", "signature", "origin", "tokens", "seconds", "failed",
    }  # fmt: skip


def test_the_second_run_comes_from_the_cache_without_an_engine(hymt: RunHymt) -> None:
    first = json.loads(hymt("-m", "echo", "-f", "en", "-t", "fr", "--json", "Some text").out)
    second = json.loads(hymt("-m", "echo", "-f", "en", "-t", "fr", "--json", "Some text").out)
    assert (first["origin"], second["origin"]) == ("model", "cache")
    assert second["tokens"] == {"prompt": 0, "reused": 0, "output": 0}


def test_no_cache_neither_reads_nor_writes(hymt: RunHymt) -> None:
    for _ in range(2):
        answer = json.loads(hymt("-m", "echo", "-f", "en", "-t", "fr", "--json", "--no-cache", "Some text").out)
        assert answer["origin"] == "model"


@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "said"),
    [
        (("hello", "-t", "klingon"), b"", 2, "klingon"),
        (("hello", "-f", "xx", "-t", "fr"), b"", 2, "xx"),
        (("hello",), b"", 2, "target language"),
        (("-t", "fr"), b"", 2, "empty"),
        (("-t", "fr", ""), b"", 2, "empty"),
        (("-t", "fr"), b"abc\xff\xfe", 2, "byte 3"),
        (("hello", "-t", "fr", "--temperature", "9"), b"", 2, "temperature"),
        (("hello", "-t", "fr", "--no-such-option"), b"", 2, "no-such-option"),
        (("hello", "-t", "fr", "-m", "nonexistent"), b"", 3, "nonexistent"),
        (("hello", "-t", "fr", "-m", "Hy-MT2-7B"), b"", 3, "not installed"),
        (("hello", "-t", "fr", "-m", "Hy-MT2-7B:Q9_Z"), b"", 3, "Hy-MT2-7B:Q9_Z"),
    ],
)
def test_bad_input_is_one_clear_error_with_its_status(
    hymt: RunHymt, arguments: tuple[str, ...], stdin: bytes, status: int, said: str
) -> None:
    done = hymt(*arguments, stdin=stdin)
    assert (done.status, done.out) == (status, b"")
    lines = done.err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]
    assert said in lines[0]


def test_errors_are_json_on_request(hymt: RunHymt) -> None:
    done = hymt("hello", "-t", "klingon", "--json")
    assert done.status == 2
    assert done.err == ""
    error = json.loads(done.out)["error"]
    assert error["code"] == "language"
    assert set(error) == {"code", "message", "hint"}


def test_settings_come_from_file_environment_and_flag_in_this_order(hymt: RunHymt) -> None:
    assert hymt("config", "set", "target_lang", "french").out == b"target_lang = fr\n"
    assert hymt("config", "set", "model", "echo").status == 0
    assert json.loads(hymt("--json", "hello").out)["target_lang"] == "fr"
    environ = {"HYMT_TARGET_LANG": "de"}
    assert json.loads(hymt("--json", "hello", environ=environ).out)["target_lang"] == "de"
    assert json.loads(hymt("--json", "hello", "-t", "es", environ=environ).out)["target_lang"] == "es"


def test_an_unwritable_data_folder_loses_the_cache_and_not_the_translation(
    hymt: RunHymt, isolated_environment: Path
) -> None:
    # Root ignores permission bits, so a file stands where the folder should be.
    (isolated_environment / "data").write_text("in the way")
    done = hymt("-m", "echo", "-f", "en", "-t", "fr", "hello")
    assert (done.status, done.out) == (0, b"hello\n")
    assert done.err.startswith("note: ")
    assert len(done.err.splitlines()) == 1


def test_a_corrupt_database_loses_the_cache_and_not_the_translation(hymt: RunHymt, isolated_environment: Path) -> None:
    (isolated_environment / "data").mkdir()
    (isolated_environment / "data" / "memory.sqlite3").write_bytes(b"not a database at all, really not" * 200)
    done = hymt("-m", "echo", "-f", "en", "-t", "fr", "hello")
    assert (done.status, done.out) == (0, b"hello\n")
    assert done.err.startswith("note: ")


def test_a_misspelt_setting_in_the_file_is_named_with_a_suggestion(hymt: RunHymt, isolated_environment: Path) -> None:
    config = isolated_environment / "config" / "config.toml"
    config.parent.mkdir()
    config.write_text('targetlang = "fr"\n')
    done = hymt("-m", "echo", "hello")
    assert done.status == 2
    assert "targetlang" in done.err
    assert "target_lang" in done.err
