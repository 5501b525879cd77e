"""stdout is data: exact bytes, one clear error on stderr, documented exit statuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hymt_local.application import Application
from hymt_local.engine.scripted import Behaviour, Crash, ScriptedBackend, cut, open_scripted, reply
from hymt_local.errors import EngineLoadError
from hymt_local.events import TranslationRequest
from hymt_local.jobs import LocalService
from hymt_local.translation_job import TranslationJob
from tests.cli.conftest import RunHymt
from tests.services import scripted_model


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
def test_a_pipe_gets_the_bytes_back_exactly_from_the_identity_engine(hymt_here: RunHymt, source: bytes) -> None:
    done = hymt_here("-m", "echo", "-f", "en", "-t", "fr", stdin=source)
    assert (done.status, done.out, done.err) == (0, source, "")


def test_arguments_are_joined_and_get_a_line_end(hymt_here: RunHymt) -> None:
    assert hymt_here("-m", "echo", "-f", "en", "-t", "fr", "hello", "there").out == b"hello there\n"


def test_translate_is_the_same_command_and_takes_a_text_named_like_a_command(hymt_here: RunHymt) -> None:
    assert hymt_here("translate", "detect", "-m", "echo", "-f", "en", "-t", "fr").out == b"detect\n"


def test_pseudo_localization_keeps_placeholders_and_line_structure(hymt_here: RunHymt) -> None:
    done = hymt_here("-m", "pseudo", "-f", "en", "-t", "fr", stdin=b"Hello {name},\n\n  %d files\n")
    lines = done.text.split("\n")
    assert len(lines) == 4
    assert "{name}" in lines[0]
    assert lines[1] == ""
    assert lines[2].startswith("  ")
    assert "%d" in lines[2]


def test_json_names_everything_that_shaped_the_answer(hymt_here: RunHymt) -> None:
    answer = json.loads(hymt_here("-m", "echo", "-t", "fr", "--json", "Where is the station?").out)
    assert answer["source"] == answer["target"] == "Where is the station?"
    assert (answer["source_lang"], answer["target_lang"], answer["model"]) == ("en", "fr", "echo")
    assert answer["origin"] == "model"
    assert set(answer) == {
        "source", "target", "source_lang", "target_lang", "model", "signature", "origin", "tokens", "seconds", "failed",
        "findings", "attempts", "pivot_lang",
    }  # fmt: skip


def test_the_second_run_comes_from_the_cache_without_an_engine(hymt_here: RunHymt) -> None:
    first = json.loads(hymt_here("-m", "echo", "-f", "en", "-t", "fr", "--json", "Some text").out)
    second = json.loads(hymt_here("-m", "echo", "-f", "en", "-t", "fr", "--json", "Some text").out)
    assert (first["origin"], second["origin"]) == ("model", "cache")
    assert second["tokens"] == {"prompt": 0, "reused": 0, "output": 0}


def test_no_cache_neither_reads_nor_writes(hymt_here: RunHymt) -> None:
    for _ in range(2):
        answer = json.loads(hymt_here("-m", "echo", "-f", "en", "-t", "fr", "--json", "--no-cache", "Some text").out)
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
    hymt_here: RunHymt, arguments: tuple[str, ...], stdin: bytes, status: int, said: str
) -> None:
    done = hymt_here(*arguments, stdin=stdin)
    assert (done.status, done.out) == (status, b"")
    lines = done.err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]
    assert said in lines[0]


def test_errors_are_json_on_request(hymt_here: RunHymt) -> None:
    done = hymt_here("hello", "-t", "klingon", "--json")
    assert done.status == 2
    assert done.err == ""
    error = json.loads(done.out)["error"]
    assert error["code"] == "language"
    assert set(error) == {"code", "message", "hint"}


def test_settings_come_from_file_environment_and_flag_in_this_order(hymt_here: RunHymt) -> None:
    assert hymt_here("config", "set", "target_lang", "french").out == b"target_lang = fr\n"
    assert hymt_here("config", "set", "model", "echo").status == 0
    assert json.loads(hymt_here("--json", "Where is the station?").out)["target_lang"] == "fr"
    environ = {"HYMT_TARGET_LANG": "de"}
    assert json.loads(hymt_here("--json", "Where is the station?", environ=environ).out)["target_lang"] == "de"
    assert (
        json.loads(hymt_here("--json", "Where is the station?", "-t", "es", environ=environ).out)["target_lang"] == "es"
    )


def test_an_unwritable_data_folder_loses_the_cache_and_not_the_translation(
    hymt_here: RunHymt, isolated_environment: Path
) -> None:
    # Root ignores permission bits, so a file stands where the folder should be.
    (isolated_environment / "data").write_text("in the way")
    done = hymt_here("-m", "echo", "-f", "en", "-t", "fr", "hello")
    assert (done.status, done.out) == (0, b"hello\n")
    assert done.err.startswith("note: ")
    assert len(done.err.splitlines()) == 1


def test_a_corrupt_database_loses_the_cache_and_not_the_translation(
    hymt_here: RunHymt, isolated_environment: Path
) -> None:
    (isolated_environment / "data").mkdir()
    (isolated_environment / "data" / "memory.sqlite3").write_bytes(b"not a database at all, really not" * 200)
    done = hymt_here("-m", "echo", "-f", "en", "-t", "fr", "hello")
    assert (done.status, done.out) == (0, b"hello\n")
    assert done.err.startswith("note: ")


def test_a_misspelt_setting_in_the_file_is_named_with_a_suggestion(
    hymt_here: RunHymt, isolated_environment: Path
) -> None:
    config = isolated_environment / "config" / "config.toml"
    config.parent.mkdir()
    config.write_text('targetlang = "fr"\n')
    done = hymt_here("-m", "echo", "hello")
    assert done.status == 2
    assert "targetlang" in done.err
    assert "target_lang" in done.err


# What an engine can do to a translation

ANY = ("-m", "echo", "-f", "en", "-t", "fr")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedBackend]:
    """Let an engine that follows a script answer for `-m echo`."""

    def use(*script: Behaviour, load_errors: tuple[Exception, ...] = ()) -> ScriptedBackend:
        backend = ScriptedBackend(*script)
        opener = open_scripted(backend, load_errors=load_errors)
        monkeypatch.setattr(Application, "_opener", lambda *_: opener)
        return backend

    return use


UseEngine = Callable[..., ScriptedBackend]


def test_a_segment_that_fails_keeps_its_source_and_the_status_says_so(hymt_here: RunHymt, engine: UseEngine) -> None:
    engine(reply("un"), cut("de"), reply("trois"), cut("de"), cut("de"))
    done = hymt_here(*ANY, stdin=b"one\n  two\nthree\n")
    assert (done.status, done.out) == (1, b"un\n  two\ntrois\n")
    assert done.err.splitlines() == [
        "note: 1 segment(s) kept their source text",
        "error: the answer was cut off after 2 tokens",
        "hint: the source text was kept; translate this part again, alone or with another model",
    ]


def test_json_lists_the_segments_that_failed(hymt_here: RunHymt, engine: UseEngine) -> None:
    engine(reply("un"), cut("de"))
    done = hymt_here(*ANY, "--json", stdin=b"one\ntwo")
    (failed,) = json.loads(done.out)["failed"]
    assert done.status == 1
    assert (failed["segment"], failed["source"]) == (1, "two")
    assert set(failed["error"]) == {"code", "message", "hint"}


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_when_every_segment_fails_there_is_an_error_and_no_text(
    hymt_here: RunHymt, engine: UseEngine, flags: tuple[str, ...]
) -> None:
    engine(cut("un"))
    done = hymt_here(*ANY, *flags, stdin=b"one\ntwo\n")
    assert done.status == 1
    if flags:
        assert json.loads(done.out)["error"]["code"] == "segment_rejected"
    else:
        assert (done.out, done.err.splitlines()[0]) == (b"", "error: the answer was cut off after 2 tokens")


def test_an_engine_that_cannot_load_is_one_error(hymt_here: RunHymt, engine: UseEngine) -> None:
    engine(load_errors=(EngineLoadError("llama.cpp: out of memory", hint="close other programs"),))
    done = hymt_here(*ANY, "hello")
    assert (done.status, done.out) == (4, b"")
    assert done.err == "error: llama.cpp: out of memory\nhint: close other programs\n"


def test_an_engine_with_a_defect_is_one_error_and_the_log_keeps_the_text_to_itself(
    hymt_here: RunHymt, engine: UseEngine, isolated_environment: Path
) -> None:
    engine(Crash(ZeroDivisionError("division by zero")))
    done = hymt_here(*ANY, "a very private text", environ={"HYMT_LOG_LEVEL": "info"})
    assert (done.status, done.out) == (4, b"")
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    log = isolated_environment / "state" / "hymt.log"
    assert "private" not in (log.read_text() if log.exists() else "")


def test_quiet_keeps_notes_back_but_no_errors(hymt_here: RunHymt, isolated_environment: Path) -> None:
    (isolated_environment / "data").write_text("in the way")
    assert hymt_here(*ANY, "hello").err.startswith("note: translations are not remembered")
    assert hymt_here(*ANY, "-q", "hello").err == ""
    assert hymt_here("-q", "hello", "-t", "klingon").err.startswith("error: ")


def test_temperature_samples_as_the_model_card_says_with_the_seed(hymt_here: RunHymt, engine: UseEngine) -> None:
    backend = engine(reply("un"))
    hymt_here(*ANY, "--temperature", "0.5", "--seed", "7", "one")
    hymt_here(*ANY, "--seed", "7", "one")
    sampled, greedy = (request.sampling for request in backend.calls.requests)
    assert (sampled.temperature, sampled.seed) == (0.5, 7)
    assert greedy.temperature == 0.0


@pytest.mark.parametrize("lang", ["fr", "French", "français", "法语", "FR", "fr-CA"])
def test_a_language_may_be_named_in_many_ways(hymt_here: RunHymt, lang: str) -> None:
    answer = json.loads(hymt_here("-m", "echo", "-f", "en", "-t", lang, "--json", "hello").out)
    assert answer["target_lang"] == "fr"


def test_auto_detects_the_source_whatever_the_settings_say(hymt_here: RunHymt) -> None:
    hymt_here("config", "set", "source_lang", "de")
    answer = json.loads(hymt_here("-m", "echo", "-f", "auto", "-t", "fr", "--json", "Where is the station?").out)
    assert answer["source_lang"] == "en"
    assert hymt_here("config", "set", "source_lang", "auto").status == 0
    answer = json.loads(hymt_here("-m", "echo", "-t", "fr", "--json", "Where is the station?").out)
    assert answer["source_lang"] == "en"


def test_a_text_that_starts_with_a_dash_follows_two(hymt_here: RunHymt) -> None:
    assert hymt_here(*ANY, "--", "--json is", "-t text").out == b"--json is -t text\n"


def test_two_processes_may_share_the_cache(hymt: RunHymt) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda n: hymt(*ANY, stdin=b"".join(b"line %d of it\n" % i for i in range(50))), range(4)))
    assert [(item.status, item.err) for item in done] == [(0, "")] * 4


def test_protected_words_and_the_way_through_chinese_are_options(hymt_here: RunHymt) -> None:
    done = hymt_here(
        "-m", "pseudo", "-f", "en", "-t", "bo", "--protect", "Apple", "--protect", "Bob", "Ask Bob at Apple"
    )
    assert done.text == "⟦ÅÅšķ Bob ååţ Apple⟧\n"
    answer = json.loads(hymt_here("-m", "echo", "-f", "en", "-t", "bo", "--via", "zh", "--json", "Some text").out)
    assert answer["pivot_lang"] == "zh"
    assert hymt_here("-m", "echo", "-f", "en", "-t", "bo", "--via", "xx", "Some text").status == 2


def test_strict_counts_what_the_checks_say(monkeypatch: pytest.MonkeyPatch, hymt_here: RunHymt) -> None:
    monkeypatch.setattr(Application, "open_service", lambda self: FlaggingService())
    arguments = ("-m", "echo", "-f", "en", "-t", "fr", "Pay 1200 dollars")
    assert hymt_here(*arguments).status == 0
    assert "numbers of the source are missing: 1200 [number]" in hymt_here(*arguments).err
    assert hymt_here(*arguments, "--strict", "-q").status == 1
    answer = json.loads(hymt_here(*arguments, "--json", "--strict").out)
    assert [(each["segment"], each["code"], each["severity"]) for each in answer["findings"]] == [
        (0, "number", "warning")
    ]


class FlaggingService:
    """A service whose only model gets the figures wrong."""

    warnings = ()

    def __init__(self) -> None:
        model = scripted_model(ScriptedBackend(reply("Payez 1300 dollars")))
        self._service = LocalService(lambda ref: model, cache_path=None)

    def submit(self, request: TranslationRequest) -> TranslationJob:
        return self._service.submit(request)

    def close(self) -> None:
        self._service.close()
