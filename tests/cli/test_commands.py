"""Every command but `translate`: what it prints for people and for programs, and how it fails."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hymt_local import __version__, installed
from hymt_local.application import Application
from hymt_local.catalog import ModelFile, load_catalog
from hymt_local.cli.demo import SAMPLES
from hymt_local.cli.models.listing import _catalog_row
from hymt_local.config import setting_names
from hymt_local.engine.scripted import ScriptedBackend, cut, open_scripted, reply
from hymt_local.language import LANGUAGES
from tests.cli.conftest import Completed, RunHymt
from tests.toy_models import write_toy_model

pytestmark = pytest.mark.usefixtures("no_trial")

ANY_ID = "Hunyuan-MT-7B"
NO_LLAMA = 'import sys\nsys.modules["llama_cpp"] = None\n'


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return write_toy_model(tmp_path / "toy.gguf")


@pytest.fixture
def no_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "demo_file", lambda: tmp_path / "absent")


def parsed(done: Completed) -> Any:
    assert (done.status, done.err) == (0, "")
    return json.loads(done.out)


def the_error(done: Completed) -> str:
    """Return the message of the one error that a command ended with."""
    assert done.out == b""
    what, hint = done.err.splitlines()
    assert what.startswith("error: ")
    assert hint.startswith("hint: ")
    return what.removeprefix("error: ")


# hymt, --version


def test_the_version_is_printed(hymt: RunHymt) -> None:
    assert hymt("--version").text == f"hymt, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["models"], "`hymt models` needs one of: fit, import, list, pull, rm, use, verify"),
        (["config"], "`hymt config` needs one of: path, schema, set, show"),
        (["models", "lst"], "no such command 'lst'"),
        (["config", "set", "threads"], "missing argument 'VALUE'"),
        (["models", "import"], "missing argument 'FILE'"),
        (["languages", "surplus"], "got unexpected extra argument (surplus)"),
        (["hello", "-t"], "option '-t' requires an argument"),
        (["hello", "--seed", "x"], "invalid value for '--seed'"),
        (["bench", "--runs", "0"], "invalid value for '--runs'"),
    ],
)
def test_a_wrong_command_line_is_one_error_with_status_2(hymt_here: RunHymt, arguments: list[str], said: str) -> None:
    done = hymt_here(*arguments)
    assert done.status == 2
    assert the_error(done).startswith(said)


def test_a_wrong_command_line_is_json_on_request(hymt_here: RunHymt) -> None:
    done = hymt_here("models", "list", "--json", "--nonsense")
    assert (done.status, done.err) == (2, "")
    assert json.loads(done.out)["error"]["code"] == "usage"


def test_a_defect_is_reported_without_a_traceback_which_is_in_the_log(
    hymt_here: RunHymt, isolated_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug\x1b[2J")

    monkeypatch.setattr("hymt_local.cli.languages.open_application", broken)
    done = hymt_here("languages")
    assert done.status == 4
    assert the_error(done) == "internal error: ZeroDivisionError: a bug\ufffd[2J"
    assert "Traceback" in (isolated_environment / "state" / "hymt.log").read_text()


# models


@pytest.mark.usefixtures("no_demo")
def test_models_list_names_the_catalog_before_anything_is_installed(hymt_here: RunHymt) -> None:
    done = hymt_here("models", "list")
    assert (done.status, done.err) == (
        0,
        "note: no model is installed: `hymt models pull` fetches one, "
        "`hymt models import FILE.gguf` adds a file you have\n",
    )
    for model_id in ("Hy-MT2-1.8B", "Hunyuan-MT-7B", "Hunyuan-MT-Chimera-7B"):
        assert f" {model_id} " in done.text
    assert "echo" not in done.text
    assert "echo" in hymt_here("models", "list", "--all").text


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((2_000_000_000,), "2.0 GB "),
        ((3_000_000_000, 1_000_000_000, 2_000_000_000), "1.0 GB to 3.0 GB "),
        ((), "convert it yourself"),
    ],
)
def test_the_sizes_of_a_model_are_a_range_where_they_differ(sizes: tuple[int, ...], said: str) -> None:
    spec = load_catalog().get("Hy-MT2-1.8B")
    files = tuple(ModelFile(f"Q{size}", f"{size}.gguf", size_bytes=size) for size in sizes)
    assert f"{_catalog_row(structs.replace(spec, files=files))[3]} ".startswith(said)


def test_an_imported_model_is_listed_as_the_default(hymt_here: RunHymt, toy: Path) -> None:
    imported = hymt_here("models", "import", str(toy), "--as", ANY_ID)
    ref, path = imported.text.rstrip("\n").split("\t")
    assert (imported.status, ref) == (0, "Hunyuan-MT-7B:F32")
    assert Path(path).samefile(toy)
    assert imported.err.startswith("note: Hunyuan-MT-7B is under the Tencent Hunyuan Community License Agreement;")
    assert imported.err.rstrip().endswith("EU, GB, KR")
    listed = hymt_here("models", "list").text.splitlines()
    assert listed[1].split() == ["*", "Hunyuan-MT-7B:F32", "0.4", "MB", "translation", "Tencent-Hunyuan-Community"]


def test_models_list_and_import_have_the_same_json_shape(hymt_here: RunHymt, toy: Path) -> None:
    imported = parsed(hymt_here("models", "import", str(toy), "--as", ANY_ID, "--json"))
    listed = parsed(hymt_here("models", "list", "--json"))
    assert set(imported) == {
        "ref", "id", "kind", "quantization", "path", "size_bytes", "sha256", "published", "default",
    }  # fmt: skip
    assert {**imported, "default": True} == listed["installed"][0]
    assert set(listed) == {"problems", "installed", "catalog"}
    assert listed["problems"] == []
    assert {entry["id"] for entry in listed["catalog"]} >= {"demo", "echo", "pseudo", ANY_ID}
    published = next(entry for entry in listed["catalog"] if entry["id"] == "Hy-MT2-1.8B")
    assert published["territory_excluded"] == []
    assert set(published["files"][0]) == {"quantization", "name", "size_bytes", "sha256", "supported"}


def test_models_use_names_the_default_and_auto_forgets_it(hymt_here: RunHymt, toy: Path) -> None:
    hymt_here("models", "import", str(toy), "--as", ANY_ID)
    assert hymt_here("models", "use", "echo").out == b"echo\n"
    assert parsed(hymt_here("config", "show", "--json"))["model"] == {"value": "echo", "origin": "file"}
    assert hymt_here("models", "use", "auto").out == b"Hunyuan-MT-7B:F32\n"
    assert parsed(hymt_here("config", "show", "--json"))["model"] == {"value": None, "origin": "default"}


def test_models_use_refuses_what_is_not_installed(hymt_here: RunHymt) -> None:
    done = hymt_here("models", "use", "Hy-MT2-7B")
    assert (done.status, the_error(done)) == (3, "model Hy-MT2-7B is not installed")
    assert parsed(hymt_here("config", "show", "--json"))["model"]["value"] is None


def test_models_list_goes_on_when_the_default_cannot_be_used(
    hymt_here: RunHymt, toy: Path, isolated_environment: Path
) -> None:
    hymt_here("models", "import", str(toy), "--as", ANY_ID)
    models_dir = isolated_environment / "data" / "models"
    next(models_dir.glob("*.gguf")).unlink()
    (models_dir / "other.json").write_text("{")
    done = hymt_here("models", "list")
    assert done.status == 0
    assert "Hunyuan-MT-7B:F32" in done.text
    (note,) = done.err.splitlines()
    assert note.startswith("note: ")
    assert "other.json" in note
    assert hymt_here("translate", "hi", "-m", ANY_ID, "-f", "en", "-t", "fr").status == 3
    assert hymt_here("hi", "-m", "echo", "-f", "en", "-t", "fr").status == 0


# config


def test_config_show_lists_every_setting_with_its_origin(hymt_here: RunHymt, isolated_environment: Path) -> None:
    hymt_here("config", "set", "target_lang", "Chinese")
    lines = hymt_here("config", "show", "--origin", environ={"HYMT_THREADS": "3"}).text.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert tuple(rows) == setting_names()
    assert rows["target_lang"] == ["zh", str(isolated_environment / "config" / "config.toml")]
    assert rows["threads"] == ["3", "HYMT_THREADS"]
    assert rows["cache"] == ["true", "default"]
    assert rows["model"] == rows["server_hosts"] == rows["pair_models"] == ["(unset)", "default"]


def test_config_show_as_json_names_value_and_origin(hymt_here: RunHymt) -> None:
    shown = parsed(hymt_here("config", "show", "--json", environ={"HYMT_CACHE": "0"}))
    assert tuple(shown) == setting_names()
    assert shown["cache"] == {"value": False, "origin": "environment"}


def test_config_set_says_when_a_variable_wins(hymt_here: RunHymt) -> None:
    done = hymt_here("config", "set", "threads", "4", environ={"HYMT_THREADS": "2"})
    assert (done.status, done.text) == (0, "threads = 2\n")
    assert done.err == "note: HYMT_THREADS is set and wins over config.toml\n"


def test_config_set_unset_removes(hymt_here: RunHymt) -> None:
    hymt_here("config", "set", "threads", "4")
    assert hymt_here("config", "set", "threads", "unset").text == "threads = (unset)\n"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("threads", "-1", "command line: `threads = '-1'`: expected `int` >= 1"),
        ("temperature", "hot", "command line: `temperature = 'hot'`: expected `float`, got `str`"),
        ("tmperature", "1", "unknown setting `tmperature`"),
        ("target_lang", "klingon", "unknown language 'klingon'"),
    ],
)
def test_config_set_refuses_bad_values(hymt_here: RunHymt, name: str, value: str, said: str) -> None:
    done = hymt_here("config", "set", name, value)
    assert done.status == 2
    assert the_error(done).startswith(said)


def test_config_path_names_every_place(hymt_here: RunHymt, isolated_environment: Path) -> None:
    places = parsed(hymt_here("config", "path", "--json"))
    assert set(places) == {"config", "catalog", "database", "models", "cache", "log"}
    assert all(Path(place).is_relative_to(isolated_environment) for place in places.values())
    assert f"config    {places['config']}\n" in hymt_here("config", "path").text


def test_config_schema_is_a_json_schema(hymt_here: RunHymt) -> None:
    schema = parsed(hymt_here("config", "schema"))
    assert schema["$ref"] == "#/$defs/Settings"
    assert set(schema["$defs"]["Settings"]["properties"]) == set(setting_names())


# languages, detect


def test_languages_lists_those_of_a_model_that_need_not_be_installed(hymt_here: RunHymt) -> None:
    listed = parsed(hymt_here("languages", "-m", "Hy-MT2-7B:Q4_K_M", "--json"))
    assert [entry["tag"] for entry in listed] == [language.tag for language in LANGUAGES]
    assert listed[0] == {"tag": "zh", "english": "Chinese", "chinese": "中文", "native": "中文"}
    table = hymt_here("languages", "-m", "Hy-MT2-7B").text.splitlines()
    assert table[0].split() == ["TAG", "ENGLISH", "CHINESE", "NATIVE"]
    assert len(table) == len(LANGUAGES) + 1


def test_languages_of_an_unknown_model_is_an_error(hymt_here: RunHymt) -> None:
    done = hymt_here("languages", "-m", "nonexistent")
    assert (done.status, the_error(done)) == (3, "unknown model 'nonexistent'")


def test_detect_names_the_language(hymt_here: RunHymt) -> None:
    assert hymt_here("detect", "Здравствуйте, как дела?").text.startswith("ru\tRussian\t")
    assert hymt_here("detect", stdin="你好，世界".encode()).text.startswith("zh\tChinese\t")


def test_l_2_detect_tells_each_sentence_and_the_whole(hymt_here: RunHymt) -> None:
    text = "Where is the station? Wo ist der Bahnhof? Danke sehr, das ist nett."
    assert [line.split("\t")[0] for line in hymt_here("detect", "--each", text).text.splitlines()] == [
        "en",
        "de",
        "de",
        "de",
    ]
    sentences = parsed(hymt_here("detect", "--each", "--json", text))["sentences"]
    assert [sentence["candidates"][0]["script"] for sentence in sentences] == ["Latn"] * 3


def test_detect_as_json_ranks_candidates(hymt_here: RunHymt) -> None:
    found = parsed(hymt_here("detect", "--json", "Where is the station?"))["candidates"]
    assert found[0]["tag"] == "en"
    confidences = [candidate["confidence"] for candidate in found]
    assert confidences == sorted(confidences, reverse=True)
    assert all(0 <= confidence <= 1 for confidence in confidences)


def test_detect_without_letters_is_undetermined(hymt_here: RunHymt) -> None:
    assert hymt_here("detect", "12 + 3 = 15").text == "und\tno letters to judge by\n"
    assert parsed(hymt_here("detect", "--json", "12")) == {"candidates": []}


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        ([], b"", "nothing to detect: the input is empty"),
        ([" "], b"", "nothing to detect: the input is empty"),
        ([], b"caf\xe9", "standard input is not valid UTF-8: byte 3 is 0xe9"),
        (["caf\udce9"], b"", "the text is not valid UTF-8 at character 3"),
    ],
)
def test_detect_refuses_bad_input(hymt_here: RunHymt, arguments: list[str], stdin: bytes, said: str) -> None:
    done = hymt_here("detect", *arguments, stdin=stdin)
    assert (done.status, the_error(done)) == (2, said)


# doctor


def checks_of(done: Completed) -> dict[str, dict[str, str]]:
    report = json.loads(done.out)
    assert set(report) == {"version", "checks", "healthy"}
    assert report["healthy"] == (done.status == 0)
    return {check["name"]: check for check in report["checks"]}


def test_doctor_on_a_sound_installation(hymt_here: RunHymt, toy: Path) -> None:
    hymt_here("models", "import", str(toy), "--as", ANY_ID)
    hymt_here("hi", "-m", "echo", "-f", "en", "-t", "fr")
    done = hymt_here("doctor", "--json")
    checks = checks_of(done)
    assert list(checks) == [
        "python", "compiler", "processor", "engine", "gpu", "memory", "environment", "configuration", "model", "fit",
        "data folder", "phrase cache", "server", "network", "terminal",
    ]  # fmt: skip
    assert {check["status"] for check in checks.values()} <= {"ok", "warn"}
    assert checks["engine"]["found"].startswith("llama-cpp-python 0.")
    assert checks["model"]["found"].startswith("Hunyuan-MT-7B:F32 (")
    assert checks["phrase cache"]["found"].startswith("1 entries in ")


def test_doctor_for_people_puts_each_fix_under_its_finding(hymt_here: RunHymt) -> None:
    lines = hymt_here("doctor", environ={"HYMT_MODLE": "x"}).text.splitlines()
    assert lines[0] == f"hymt-local {__version__}"
    (place,) = [number for number, line in enumerate(lines) if line.startswith("warn  environment")]
    assert lines[place].endswith("no setting reads HYMT_MODLE")
    assert lines[place + 1].split("-> ") == [" " * 21, "check the spelling"]


def test_doctor_without_the_engine_says_how_to_install_it(hymt: RunHymt, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_LLAMA)
    done = hymt("doctor", "--json", environ={"PYTHONPATH": str(tmp_path), "PATH": ""})
    engine = checks_of(done)["engine"]
    assert done.status == 4
    assert (engine["status"], engine["found"]) == ("fail", "llama-cpp-python is not installed")
    assert engine["fix"].startswith("pip install llama-cpp-python==0.3.36 (needs a C++ compiler")


def test_doctor_with_a_broken_engine_says_how_to_mend_it(hymt_here: RunHymt, monkeypatch: pytest.MonkeyPatch) -> None:
    from hymt_local.engine import llama
    from hymt_local.errors import EngineUnavailableError

    def broken() -> None:
        raise EngineUnavailableError("llama-cpp-python cannot be loaded: libggml.so: no such file")

    monkeypatch.setattr(llama, "load_library", broken)
    done = hymt_here("doctor", "--json")
    engine = checks_of(done)["engine"]
    assert (done.status, engine["status"]) == (4, "fail")
    assert engine["fix"] == "pip install --force-reinstall --no-cache-dir llama-cpp-python==0.3.36"


@pytest.mark.usefixtures("no_demo")
def test_doctor_without_a_model_says_how_to_get_one(hymt_here: RunHymt) -> None:
    done = hymt_here("doctor", "--json")
    model = checks_of(done)["model"]
    assert (done.status, model["status"], model["found"]) == (3, "fail", "no model is installed")
    assert "hymt models import" in model["fix"]


def test_doctor_finds_a_bad_model_file(hymt_here: RunHymt, toy: Path, isolated_environment: Path) -> None:
    hymt_here("models", "import", str(toy), "--as", ANY_ID)
    next((isolated_environment / "data" / "models").glob("*.gguf")).unlink()
    done = hymt_here("doctor", "--json")
    assert (done.status, checks_of(done)["model"]["status"]) == (3, "fail")


def test_doctor_finds_a_data_folder_that_is_none(hymt_here: RunHymt, isolated_environment: Path) -> None:
    (isolated_environment / "data").write_text("in the way")
    done = hymt_here("doctor", "--json", environ={"HYMT_MODEL": "echo"})
    folder = checks_of(done)["data folder"]
    assert (done.status, folder["status"]) == (6, "fail")
    assert "Not a directory" in folder["found"]
    assert "HYMT_HOME" in folder["fix"]


def test_doctor_finds_a_corrupt_database(hymt_here: RunHymt, isolated_environment: Path) -> None:
    (isolated_environment / "data").mkdir()
    (isolated_environment / "data" / "memory.sqlite3").write_bytes(b"not a database, really not" * 200)
    done = hymt_here("doctor", "--json", environ={"HYMT_MODEL": "echo"})
    cache = checks_of(done)["phrase cache"]
    assert (done.status, cache["status"]) == (6, "fail")
    assert cache["fix"]


def test_doctor_stops_at_a_configuration_nobody_can_read(hymt_here: RunHymt) -> None:
    done = hymt_here("doctor", "--json", environ={"HYMT_THREADS": "many"})
    checks = checks_of(done)
    assert (done.status, list(checks)[-1], checks["configuration"]["status"]) == (2, "configuration", "fail")
    assert "HYMT_THREADS" in checks["configuration"]["found"]


# bench


def test_bench_measures_a_model(hymt_here: RunHymt, toy: Path) -> None:
    hymt_here("models", "import", str(toy), "--as", ANY_ID)
    sizes = ("--prompt-tokens", "24", "--output-tokens", "8", "--runs", "2")
    result = parsed(hymt_here("bench", "-m", ANY_ID, "--json", *sizes))
    assert set(result) == {
        "model", "quantization", "machine", "build", "threads", "context_length", "slots", "kv_type", "gpu_layers",
        "load_s", "memory_bytes", "prompt_tokens", "prompt_tokens_per_s", "output_tokens", "output_tokens_per_s",
        "first_token_s", "batch", "draft_ratio", "prefix_ratio", "counters", "runs", "peers",
    }  # fmt: skip
    assert result["counters"]["drafts"]["guessed"] > 0
    assert result["counters"]["prefixes"]["saved"] > 0
    assert [point["generations"] for point in result["batch"]] == [1, 16, 32]
    assert "llama-cpp-python" in result["build"]
    assert (result["threads"], result["slots"], result["gpu_layers"]) == (1, 32, 0)
    assert result["memory_bytes"] > 0
    assert 0 < result["first_token_s"] < 60
    assert 0 < result["prefix_ratio"] < 10
    assert (result["model"], result["prompt_tokens"], result["runs"]) == ("Hunyuan-MT-7B:F32", 24, 2)
    assert result["load_s"] > 0
    assert result["prompt_tokens_per_s"] > 0


_LLAMA_BENCH = """
import json
print(json.dumps([{"n_prompt": 16, "avg_ts": 50.0}, {"n_prompt": 0, "n_gen": 8, "avg_ts": 20.0}]))
"""
_LLAMA_SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"{}")
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(json.dumps({"tokens_predicted": body["n_predict"]}).encode())
    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *_):
        pass

ThreadingHTTPServer.request_queue_size = 128  # many come at once
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def test_bench_compares_with_llama_cpps_programs_where_they_are(hymt_here: RunHymt, toy: Path, tmp_path: Path) -> None:
    programs = {"llama-bench": _LLAMA_BENCH, "llama-server": _LLAMA_SERVER}
    for name, program in programs.items():
        (tmp_path / name).write_text(f"#!{sys.executable}\n{program}")
        (tmp_path / name).chmod(0o755)
    hymt_here("models", "import", str(toy), "--as", ANY_ID)
    sizes = ("--prompt-tokens", "16", "--output-tokens", "8", "--runs", "1")
    result = parsed(hymt_here("bench", "-m", ANY_ID, "--json", *sizes, environ={"PATH": str(tmp_path)}))
    bench, server = result["peers"]
    assert (bench["name"], bench["prompt_tokens_per_s"], bench["output_tokens_per_s"]) == ("llama-bench", 50, 20)
    assert (server["name"], server["error"]) == ("llama-server", "")
    assert server["batch_tokens_per_s"] > 0
    (tmp_path / "llama-server").unlink()
    (tmp_path / "llama-bench").write_text(f"#!{sys.executable}\nraise SystemExit(3)")
    done = hymt_here("bench", "-m", ANY_ID, *sizes, environ={"PATH": str(tmp_path)})
    assert done.status == 0
    assert "llama-bench" in done.text
    assert "it ended with status 3" in done.text


def test_bench_of_an_engine_without_speed_is_refused(hymt_here: RunHymt) -> None:
    done = hymt_here("bench", "-m", "echo")
    assert (done.status, the_error(done)) == (2, "the test engines have no speed to measure")


def test_bench_of_a_prompt_that_does_not_fit_is_refused(hymt_here: RunHymt, toy: Path) -> None:
    hymt_here("models", "import", str(toy), "--as", ANY_ID)
    done = hymt_here("bench", "-m", ANY_ID, "--prompt-tokens", "4096", environ={"HYMT_CONTEXT_LENGTH": "256"})
    assert done.status == 4
    assert "256" in the_error(done)


# demo


def test_demo_translates_its_samples_into_every_language_with_timings(hymt_here: RunHymt) -> None:
    done = hymt_here("demo", "-m", "echo")
    assert (done.status, done.err) == (0, "")
    lines = done.text.splitlines()
    n_translations = len(SAMPLES) * (len(LANGUAGES) - 1)
    assert lines[-1].startswith(f"{n_translations} of {n_translations} translations in ")
    shown = [line for line in lines if re.fullmatch(r"  fr      French              .+   \(\d+ ms, \d+ tokens\)", line)]
    assert len(shown) == len(SAMPLES)
    assert "Good morning." in shown[0]
    assert "  zh-Hant Traditional Chinese Good morning." in done.text


def test_demo_counts_what_fails_and_says_so_in_its_status(hymt_here: RunHymt, monkeypatch: pytest.MonkeyPatch) -> None:
    opener = open_scripted(ScriptedBackend(reply("Bonjour"), cut("Bon")))
    monkeypatch.setattr(Application, "_opener", lambda *_: opener)
    done = hymt_here("demo", "-m", "echo")
    n_translations = len(SAMPLES) * (len(LANGUAGES) - 1)
    assert done.status == 1
    assert f"\n0 of {n_translations} translations in " in done.text
    assert done.text.count("Bon   (failed)\n") == n_translations
    assert done.err.count("error: the answer was cut off after 3 tokens\n") == n_translations


@pytest.mark.usefixtures("no_demo")
def test_demo_without_its_model_is_one_error(hymt_here: RunHymt) -> None:
    done = hymt_here("demo")
    assert (done.status, the_error(done)) == (3, "model demo is not installed")
