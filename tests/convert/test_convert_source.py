"""Where a conversion begins and ends: folder, hub or catalog id here, a model that is ready to be used there."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hymt_convert import workspace
from hymt_convert.__main__ import main
from hymt_convert.checkpoint import Origin
from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.progress import Progress
from hymt_convert.progress_bar import ProgressBar, describe_amount
from hymt_convert.source import HubSource, LocalSource, fetch, parse_source
from hymt_convert.verify import read_metadata
from hymt_local import __version__
from hymt_local.application import open_application
from hymt_local.catalog import Catalog, load_catalog
from hymt_local.download import DownloadProgress, DownloadWaiting
from hymt_local.errors import ModelFileError, UnsupportedModelError
from hymt_local.installed import ModelStore, file_sha256
from hymt_local.paths import Paths
from tests.convert import toy_checkpoint as toy
from tests.download import fake_hub

REVISION = "0123456789abcdef0123456789abcdef01234567"
USER_CATALOG = f"""
schema = 1
[[models]]
id = "Hunyuan-MT-7B"
title = "Hunyuan-MT 7B"
family = "dense-7B"
licence = "Tencent-Hunyuan-Community"
template_set = "mt1"
repo = "tencent/Hunyuan-MT-7B"
name_patterns = ['hunyuan[-_ ]?mt[-_ ]7b']
context_length = 256
max_segment_tokens = 64
geometry = {{ layers = 2, hidden = 64, kv_heads = 2, head_dim = 32, vocab = {toy.VOCAB_SIZE} }}
[models.control_ids]
"<|startoftext|>" = {toy.BOS}
"<|extra_0|>" = {toy.TURN_END}
"<|eos|>" = {toy.EOS}
"<|pad|>" = {toy.PAD}
"""
"""Hunyuan-MT-7B with the sizes of the toy."""


@pytest.fixture
def folder(tmp_path: Path, paths: Paths) -> Path:
    paths.config_dir.mkdir(parents=True)
    paths.catalog_file.write_text(USER_CATALOG, encoding="utf-8")
    toy.write_checkpoint(tmp_path / "Hunyuan-MT-7B")
    return tmp_path / "Hunyuan-MT-7B"


@pytest.fixture
def catalog() -> Catalog:
    return load_catalog()


class FakeHub:
    """Takes the place of the downloader: gives a folder, and notes what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, str | None, bool]] = []

    def fetch_checkpoint(
        self, repo: str, revision: str | None, folder: Path, *, offline: bool, check_config: Any, **options: Any
    ) -> Path:
        self.asked.append((repo, revision, offline))
        check_config(self.folder)
        return self.folder


@pytest.fixture
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    hub = FakeHub(folder)
    monkeypatch.setattr("hymt_local.download.fetch_checkpoint", hub.fetch_checkpoint)
    return hub


@pytest.mark.parametrize(
    ("text", "repository", "revision"),
    [
        ("tencent/Hunyuan-MT-7B", "tencent/Hunyuan-MT-7B", None),
        ("tencent/Hunyuan-MT-7B@main", "tencent/Hunyuan-MT-7B", "main"),
        ("Hunyuan-MT-7B", "tencent/Hunyuan-MT-7B", None),
        ("hy-mt2-1.8b@abc", "tencent/Hy-MT2-1.8B", "abc"),
        ("someone/fine-tune@refs/pr/3", "someone/fine-tune", "refs/pr/3"),
    ],
)
def test_a_name_that_is_no_folder_is_looked_for_on_the_hub(
    catalog: Catalog, text: str, repository: str, revision: str | None
) -> None:
    source = parse_source(text, catalog)
    assert isinstance(source, HubSource)
    assert source.origin == Origin(repository, revision)
    assert (source.spec is not None) == text.lower().startswith(("tencent/", "hunyuan", "hy-"))


@pytest.mark.parametrize("text", ["./missing", "a/b/c", "/nowhere/x", "missing", "..", "a b/c"])
def test_what_cannot_be_an_id_is_a_folder(catalog: Catalog, text: str) -> None:
    assert parse_source(text, catalog) == LocalSource(Path(text))


def test_a_folder_of_that_name_comes_first(tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tencent" / "Hunyuan-MT-7B").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse_source("tencent/Hunyuan-MT-7B", catalog) == LocalSource(Path("tencent/Hunyuan-MT-7B"))


@pytest.mark.parametrize("text", ["tencent/Hunyuan-MT-7B-fp8", "tencent/HY-MT1.5-1.8B-GPTQ-Int4", "x/y-AWQ"])
def test_quantized_weights_are_refused_before_anything_is_fetched(catalog: Catalog, text: str) -> None:
    with pytest.raises(UnsupportedModelError, match="holds quantized weights") as caught:
        parse_source(text, catalog)
    plain = text.removesuffix("-fp8").removesuffix("-GPTQ-Int4")
    assert (plain if text.startswith("tencent") else "without -fp8") in caught.value.hint


def test_a_configuration_that_cannot_be_converted_is_refused_before_the_weights(hub: FakeHub, catalog: Catalog) -> None:
    toy.edit_json(hub.folder / "config.json", quantization_config={"quant_method": "fp8"})
    (hub.folder / "model.safetensors").unlink()
    source = parse_source("tencent/Hunyuan-MT-7B", catalog)
    assert isinstance(source, HubSource)
    with pytest.raises(UnsupportedModelError, match=r"quantized already \(fp8\)"):
        fetch(source, hub.folder.parent, environ={})


def test_a_known_model_lands_in_the_models_folder_and_is_usable(
    folder: Path, paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder), "-q", "q8_0", "-q", "f16", "--no-verify"]) == 0
    captured = capsys.readouterr()
    path = paths.models_dir / "Hunyuan-MT-7B-Q8_0.gguf"
    assert captured.out.splitlines()[0] == f"{path}  Q8_0  0.1 MB  hymt -m Hunyuan-MT-7B:Q8_0"
    store = open_application({"HYMT_HOME": str(paths.models_dir.parents[1])}).store
    model = store.resolve("hunyuan-mt-7b:q8_0")
    assert (model.path, model.quantization) == (path, "Q8_0")
    assert store.resolve("Hunyuan-MT-7B:F16").ref == "Hunyuan-MT-7B:F16"
    assert [file.name for file in paths.models_dir.iterdir() if file.name.startswith(".")] == []


@pytest.mark.llama
def test_the_registered_file_opens_in_the_engine(folder: Path, paths: Paths) -> None:
    assert main([str(folder), "-q", "q8_0"]) == 0
    application = open_application({"HYMT_HOME": str(paths.models_dir.parents[1])})
    opened = application.open_model("Hunyuan-MT-7B:Q8_0")
    assert opened.spec.id == "Hunyuan-MT-7B"


@pytest.mark.llama
def test_the_manifest_keeps_the_source_and_the_report(folder: Path, paths: Paths) -> None:
    source = f"tencent/Hunyuan-MT-7B@{REVISION}"
    assert main([str(folder), "-q", "q8_0", "-q", "f32", "--source-id", source]) == 0
    for kind in ("Q8_0", "F32"):
        manifest = json.loads((paths.models_dir / f"Hunyuan-MT-7B--{kind}.json").read_text())
        file = paths.models_dir / f"Hunyuan-MT-7B-{kind}.gguf"
        assert (manifest["path"], manifest["quantization"], manifest["is_ours"]) == (str(file), kind, True)
        assert manifest["sha256"] == file_sha256(file)
        conversion = manifest["conversion"]
        assert conversion["source"] == source
        assert conversion["converted_by"] == f"hymt-local {__version__}"
        assert conversion["verification"]["sound"] is True
        assert {check["name"] for check in conversion["verification"]["checks"]} >= {"structure", "numbers"}
        assert (conversion["quality"] is None) == (kind == "F32")


def test_a_converted_model_is_removed_with_its_file(folder: Path, paths: Paths) -> None:
    assert main([str(folder), "-q", "f16", "--no-verify"]) == 0
    store = ModelStore(paths, load_catalog(paths.catalog_file))
    model = store.find("Hunyuan-MT-7B:F16")
    assert store.remove(model)
    assert list(paths.models_dir.iterdir()) == []


def test_verify_and_repair_know_the_users_models(
    folder: Path, tmp_path: Path, paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = paths.catalog_file.read_text(encoding="utf-8")
    paths.catalog_file.write_text(catalog.replace('id = "Hunyuan-MT-7B"', 'id = "Mine"'), encoding="utf-8")
    assert main([str(folder), "-q", "f16", "--no-verify", "-o", str(tmp_path), "--as", "mine"]) == 0
    capsys.readouterr()
    file = tmp_path / "Mine-F16.gguf"
    assert main(["verify", str(file), "--as", "mine", "--header-only"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{file}  Mine  F16"
    assert main(["repair", str(file), "--as", "mine", "--dry-run"]) == 0


def test_a_folder_that_is_given_is_used_and_nothing_is_registered(
    folder: Path, paths: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder), "-q", "f16", "--no-verify", "-o", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["model"] is None
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["Hunyuan-MT-7B-F16.gguf"]
    assert not paths.models_dir.exists()


def test_an_unknown_model_lands_in_this_folder(
    folder: Path, paths: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(folder), "-q", "f16", "--no-verify", "--as", "none"]) == 0
    assert (tmp_path / "Hunyuan-MT-7B-F16.gguf").exists()
    assert not paths.models_dir.exists()
    assert "note: the model is not in the catalog, so nothing is registered" in capsys.readouterr().err


def test_licence_and_territory_are_shown_before_the_first_byte(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = toy.random_weights(toy.Shape())
    weights["model.embed_tokens.weight"][0] = float("nan")
    toy.write_safetensors(folder / "model.safetensors", weights)
    assert main([str(folder), "-q", "f16", "--no-verify"]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("note: Hunyuan-MT-7B is under the Tencent Hunyuan Community License Agreement (https:")
    assert lines[1].startswith("note: Not licensed in the European Union, the United Kingdom and South Korea")
    assert "holds NaN" in lines[-2]


def test_a_hub_id_is_fetched_and_recorded(hub: FakeHub, paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"tencent/Hunyuan-MT-7B@{REVISION}", "-q", "f16", "--no-verify"]) == 0
    assert hub.asked == [("tencent/Hunyuan-MT-7B", REVISION, False)]
    header = read_metadata(paths.models_dir / "Hunyuan-MT-7B-F16.gguf")
    assert (header["general.source.id"], header["general.source.revision"]) == ("tencent/Hunyuan-MT-7B", REVISION)
    captured = capsys.readouterr()
    assert captured.err.count("is under the Tencent Hunyuan Community License") == 1
    assert f"note: the checkpoint is in {hub.folder}" in captured.err


@pytest.fixture
def real_hub(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_hub.FakeHub]:
    """A server with the toy as the official repository, which the real downloader asks."""
    server = fake_hub.FakeHub()
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        if path.suffix == ".safetensors":
            server.add("tencent/Hunyuan-MT-7B", path.name, content)
        else:
            server.publish("tencent/Hunyuan-MT-7B", path.name, content, lfs=False)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


def test_from_the_hub_to_a_registered_model(
    real_hub: fake_hub.FakeHub, paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["Hunyuan-MT-7B", "-q", "f16", "--no-verify"]) == 0, capsys.readouterr().err
    header = read_metadata(paths.models_dir / "Hunyuan-MT-7B-F16.gguf")
    assert header["general.source.id"] == "tencent/Hunyuan-MT-7B"
    assert header["general.source.revision"] == fake_hub.COMMIT
    fetched = len(real_hub.transfers)
    assert main(["Hunyuan-MT-7B", "-q", "q8_0", "--no-verify"]) == 0
    assert len(real_hub.transfers) == fetched  # the checkpoint is still here


@pytest.mark.parametrize(
    "arguments",
    [["-q", "Q9_9"], ["-q", "IQ2_XS"], ["--tensor-type", "attn_v"], ["-q", "q8_0", "--tensor-type", "a=Q9"]],
)
def test_a_wrong_command_downloads_nothing(hub: FakeHub, arguments: list[str]) -> None:
    assert main(["Hunyuan-MT-7B", *arguments]) == 2
    assert hub.asked == []


def test_a_dry_run_fetches_nothing(hub: FakeHub, paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["Hunyuan-MT-7B", "-q", "f16", "--no-verify", "--dry-run", "--json"]) == 0
    assert hub.asked == [("tencent/Hunyuan-MT-7B", None, True)]
    plan = json.loads(capsys.readouterr().out)
    assert plan["model"] == "Hunyuan-MT-7B"
    assert plan["source"] == "tencent/Hunyuan-MT-7B"
    assert plan["licence"] == "Tencent-Hunyuan-Community"
    assert plan["files"] == [str(paths.models_dir / "Hunyuan-MT-7B-F16.gguf")]
    assert not paths.models_dir.exists()


def test_a_source_that_is_nothing_says_what_it_could_be(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["./nowhere"]) == 3
    assert "does not exist\nhint: Give the folder that holds config.json" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["Hunyuan-MT-8B", "hunyuan-mt-7b-", "HunyuanMT-7B", "tencent/Hunyuan-MT-7B@"])
def test_a_misspelt_model_is_guessed(paths: Paths, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main([text]) == 3
    assert f"error: {text} does not exist\nhint: Did you mean " in capsys.readouterr().err


def test_a_dry_run_of_what_is_not_here_says_so(
    real_hub: fake_hub.FakeHub, paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    assert main(["Hunyuan-MT-7B", "--dry-run"]) == 3
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith("error: tencent/Hunyuan-MT-7B is not on this machine, and --dry-run fetches nothing")
    assert hint == "hint: Give a folder, or leave --dry-run out."


class Killed(BaseException):
    """Stands in for a kill."""


def _interrupt(progress: Progress) -> None:
    raise Killed


def test_an_interrupted_conversion_of_another_model_is_mentioned(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Killed):
        convert(ConversionRequest(folder, tmp_path / "out", ("F16",), name="other"), on_progress=_interrupt)
    assert main([str(folder), "-q", "f16", "--no-verify", "-o", str(tmp_path / "out")]) == 0
    note = "note: an interrupted conversion of other (0.0 GB) can go on if the same command is given again"
    assert note in capsys.readouterr().err


def test_an_interrupt_says_that_the_command_can_be_repeated(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hymt_convert.conversion.write_gguf", interrupt)
    assert main([str(folder), "-q", "f16", "--no-verify", "-o", str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err.endswith("error: interrupted\nhint: The same command goes on from here.\n")
    assert (tmp_path / "out" / f".Hunyuan-MT-7B{workspace.SUFFIX}").is_dir()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("done", "total", "unit", "speed", "text"),
    [
        (4.2e9, 15e9, "bytes", 310e6, "4.2/15.0 GB 310 MB/s"),
        (0, 15e9, "bytes", None, "0.0/15.0 GB"),
        (12, 354, "tensors", 3.0, "12/354 tensors"),
    ],
)
def test_amounts_are_readable(done: float, total: float, unit: str, speed: float | None, text: str) -> None:
    assert describe_amount(done, total, unit=unit, speed=speed) == text


def _last_line(draw: Callable[[ProgressBar, Clock], None]) -> str:
    stream, clock = Terminal(), Clock()
    with ProgressBar(stream, now=clock) as bar:
        draw(bar, clock)
    return stream.getvalue().replace("\x1b[2K", "").split("\r")[-1]


def test_rate_and_remaining_time_leave_out_what_was_there_before() -> None:
    def draw(bar: ProgressBar, clock: Clock) -> None:
        for done in (10e9, 11e9, 12e9, 13e9):
            bar.show(Progress("writing BF16", int(done), int(16e9), "bytes", resumed=int(10e9)))
            clock.now += 5

    line = _last_line(draw)
    assert "writing BF16" in line
    assert "13.0/16.0 GB 200 MB/s" in line
    assert "0:00:15" in line


def test_the_time_left_is_told_however_rare_the_reports_are() -> None:
    def draw(bar: ProgressBar, clock: Clock) -> None:
        for done in (0, 512, 1024):
            bar.show(Progress("computing the importance matrix", done, 4096, "tokens"))
            clock.now += 100

    line = _last_line(draw)
    assert "1024/4096 tokens" in line
    assert "0:10:00" in line


def test_downloads_and_hashing_are_drawn_too() -> None:
    def draw(bar: ProgressBar, clock: Clock) -> None:
        bar.show_download(DownloadWaiting("x", "no answer", 3.0))
        bar.show_download(DownloadProgress("a", "download", 1, 2, int(3e9), int(16e9), None, None))
        bar.show_hashing(int(2e9), int(4e9))

    text = _last_line(draw)
    assert "hashing 4.0 GB" in text


def test_where_there_is_no_terminal_a_line_a_minute_is_enough() -> None:
    stream, clock = io.StringIO(), Clock()
    with ProgressBar(stream, now=clock) as bar:
        for done in (0, 4, 8, 10):
            bar.show(Progress("writing F16\x1b[2J", done * 10**9, 10**10, "bytes"))
            clock.now += 40
    assert stream.getvalue() == "writing F16\ufffd[2J: 8.0/10.0 GB 100 MB/s, 0:00:20 left\n"


def test_the_own_downloaders_note_tells_the_origin(folder: Path, tmp_path: Path) -> None:
    note = {"repo": "tencent/Hunyuan-MT-7B", "asked_revision": "main", "revision": REVISION, "files": []}
    toy.write_json(folder / ".hymt-source.json", note)
    path = convert(ConversionRequest(folder, tmp_path, ("F16",))).files[0].path
    header = read_metadata(path)
    assert (header["general.source.id"], header["general.source.revision"]) == ("tencent/Hunyuan-MT-7B", REVISION)


def test_a_wrong_model_is_refused_before_anything_is_written(folder: Path, paths: Paths) -> None:
    assert main([str(folder), "-q", "f16", "--no-verify", "--as", "Hy-MT2-7B"]) == ModelFileError.exit_status
    assert not paths.models_dir.exists()
