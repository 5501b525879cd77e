"""A checkpoint: which files, in which order, from where, and what is refused."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hymt_local.download import DownloadError, DownloadProgress, fetch_checkpoint, read_note
from hymt_local.errors import ModelFileError, ModelNotFoundError, StoreError, UnsupportedModelError
from tests.download.conftest import Events, FakeClock
from tests.download.fake_hub import COMMIT, FakeHub, Reply
from tests.download.test_sources import cached

REPO = "owner/model"
SMALL = {
    "config.json": b'{"architectures": ["HunYuanDenseV1ForCausalLM"]}',
    "generation_config.json": b"{}",
    "hy.tiktoken": b"IQ== 0\n",
    "tokenizer_config.json": b"{}",
    "tokenizer.json": b"{}",
    "special_tokens_map.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors.index.json": b'{"weight_map": {}}',
    "License.txt": b"Agreement",
    "NOTICE": b"Notice",
}
SHARDS = {f"model-{n:04}-of-0002.safetensors": random.Random(n).randbytes(50_000) for n in (1, 2)}
UNWANTED = {
    "tokenization_hy.py": b"import os",
    "pytorch_model.bin": b"pickle",
    "model.pt": b"pickle",
    "README.md": b"# card",
    "train.sh": b"rm -rf /",
    ".gitattributes": b"",
    "assets/config.json": b"{}",
}


@pytest.fixture
def repository(hub: FakeHub) -> FakeHub:
    for name, content in (SMALL | UNWANTED).items():
        hub.publish(REPO, name, content, lfs=False)
    for name, content in SHARDS.items():
        hub.add(REPO, name, content)
    return hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".hymt-source.json"}


def test_brings_what_a_conversion_needs_and_no_code(repository: FakeHub, folder: Path, environ: dict[str, str]) -> None:
    assert fetch_checkpoint(REPO, None, folder, environ=environ) == folder
    assert contents(folder) == SMALL | SHARDS


def test_says_where_the_files_came_from(repository: FakeHub, folder: Path, environ: dict[str, str]) -> None:
    fetch_checkpoint(REPO, "main", folder, environ=environ)
    note = read_note(folder)
    assert note is not None
    assert (note.repo, note.asked_revision, note.revision) == (REPO, "main", COMMIT)
    assert {entry.name for entry in note.files} == set(SMALL | SHARDS)


def test_the_configuration_is_seen_before_the_weights_are_fetched(
    repository: FakeHub, folder: Path, environ: dict[str, str]
) -> None:
    def refuse(seen: Path) -> None:
        assert contents(seen) == SMALL
        raise UnsupportedModelError("fp8")

    with pytest.raises(UnsupportedModelError, match="fp8"):
        fetch_checkpoint(REPO, None, folder, environ=environ, check_config=refuse)
    assert not any("safetensors" in request.path and "index" not in request.path for request in repository.transfers)


def test_only_missing_files_are_fetched_again(repository: FakeHub, folder: Path, environ: dict[str, str]) -> None:
    fetch_checkpoint(REPO, None, folder, environ=environ)
    (folder / "config.json").unlink()
    (folder / "model-0001-of-0002.safetensors").write_bytes(b"\0" * 50_000)
    repository.requests.clear()
    fetch_checkpoint(REPO, None, folder, environ=environ)
    assert contents(folder) == SMALL | SHARDS
    assert [request.path.rpartition("/")[2] for request in repository.transfers] == [
        "config.json",
        "model-0001-of-0002.safetensors",
    ]


def test_counts_all_files_together(repository: FakeHub, folder: Path, environ: dict[str, str], events: Events) -> None:
    fetch_checkpoint(REPO, None, folder, environ=environ, on_progress=events)
    last = events.all[-1]
    assert isinstance(last, DownloadProgress)
    total = sum(len(content) for content in (SMALL | SHARDS).values())
    assert (last.all_done_bytes, last.all_total_bytes) == (total, total)


def test_a_small_file_with_a_wrong_byte_is_refused(repository: FakeHub, folder: Path, environ: dict[str, str]) -> None:
    repository.files[REPO, "config.json"] = SMALL["config.json"].replace(b"V1", b"V2")
    with pytest.raises(ModelFileError, match=r"config\.json from .* is not the published file"):
        fetch_checkpoint(REPO, None, folder, environ=environ)
    assert "config.json" not in contents(folder)


def test_a_small_file_without_any_hash_is_accepted_by_size_and_never_kept(
    hub: FakeHub, folder: Path, environ: dict[str, str]
) -> None:
    hub.publish(REPO, "config.json", b'{"a": 1}', lfs=False)
    hub.publish(REPO, "model.safetensors", b"weights")
    del hub.siblings[REPO][0]["blobId"]
    fetch_checkpoint(REPO, None, folder, environ=environ)
    hub.files[REPO, "config.json"] = b'{"a": 2}'
    fetch_checkpoint(REPO, None, folder, environ=environ)
    assert contents(folder) == {"config.json": b'{"a": 2}', "model.safetensors": b"weights"}
    hub.files[REPO, "config.json"] = b"{}"
    with pytest.raises(ModelFileError, match="2 bytes, the published file 8"):
        fetch_checkpoint(REPO, None, folder, environ=environ)


def test_a_folder_of_this_machine_is_taken_as_it_is(hub: FakeHub, tmp_path: Path, environ: dict[str, str]) -> None:
    assert fetch_checkpoint(str(tmp_path), None, tmp_path / "unused", environ=environ) == tmp_path
    assert hub.requests == []


@pytest.mark.parametrize("repo", ["model", "no such/model!", "../a/b", "https://hub.example/a/b"])
def test_what_is_no_id_is_refused_before_anything_is_asked(
    hub: FakeHub, folder: Path, environ: dict[str, str], repo: str
) -> None:
    with pytest.raises(ModelNotFoundError, match="not the id of a repository"):
        fetch_checkpoint(repo, None, folder, environ=environ)
    assert hub.requests == []


def test_pickles_are_refused(hub: FakeHub, folder: Path, environ: dict[str, str]) -> None:
    hub.add(REPO, "config.json", b"{}", lfs=False)
    hub.add(REPO, "pytorch_model.bin", b"pickle")
    with pytest.raises(UnsupportedModelError, match="pickles"):
        fetch_checkpoint(REPO, None, folder, environ=environ)
    assert hub.transfers == []


def test_a_repository_without_weights_or_configuration_is_refused(
    hub: FakeHub, folder: Path, environ: dict[str, str]
) -> None:
    hub.add(REPO, "config.json", b"{}", lfs=False)
    with pytest.raises(UnsupportedModelError, match="no weights"):
        fetch_checkpoint(REPO, None, folder, environ=environ)
    hub.siblings.clear()
    hub.add(REPO, "model.safetensors", b"weights")
    with pytest.raises(ModelFileError, match=r"no config\.json"):
        fetch_checkpoint(REPO, None, folder, environ=environ)


def test_weights_without_a_published_hash_are_refused(hub: FakeHub, folder: Path, environ: dict[str, str]) -> None:
    hub.add(REPO, "config.json", b"{}", lfs=False)
    hub.add(REPO, "model.safetensors", b"weights", lfs=False)
    with pytest.raises(ModelFileError, match=r"no sha256 of model\.safetensors"):
        fetch_checkpoint(REPO, None, folder, environ=environ)


def test_names_that_differ_in_case_only_are_one_file(hub: FakeHub, folder: Path, environ: dict[str, str]) -> None:
    hub.add(REPO, "config.json", b"{}", lfs=False)
    hub.add(REPO, "model.safetensors", b"weights")
    hub.add(REPO, "LICENSE", b"one", lfs=False)
    hub.add(REPO, "License", b"two", lfs=False)
    fetch_checkpoint(REPO, None, folder, environ=environ)
    assert sorted(contents(folder)) == ["LICENSE", "config.json", "model.safetensors"]


def test_all_files_must_fit_the_disk_before_the_first_is_fetched(
    repository: FakeHub, folder: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 64 * 1024 * 1024 + 60_000
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: shutil._ntuple_diskusage(10**12, 10**12, room))
    with pytest.raises(StoreError, match="not enough space"):
        fetch_checkpoint(REPO, None, folder, environ=environ)
    assert repository.transfers == []


def test_shards_of_an_earlier_revision_are_removed_and_other_files_stay(
    repository: FakeHub, folder: Path, environ: dict[str, str]
) -> None:
    fetch_checkpoint(REPO, None, folder, environ=environ)
    (folder / "notes.txt").write_text("mine")
    repository.siblings[REPO] = [
        sibling for sibling in repository.siblings[REPO] if "safetensors" not in sibling["rfilename"]
    ]
    repository.add(REPO, "model.safetensors", b"one shard now")
    fetch_checkpoint(REPO, None, folder, environ=environ)
    assert [path.name for path in folder.glob("*.safetensors")] == ["model.safetensors"]
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_complete_folder_needs_no_network_when_offline_or_pinned(
    repository: FakeHub, folder: Path, environ: dict[str, str]
) -> None:
    fetch_checkpoint(REPO, None, folder, environ=environ)
    repository.requests.clear()
    fetch_checkpoint(REPO, COMMIT, folder, environ=environ)
    fetch_checkpoint(REPO, None, folder, environ={"HYMT_OFFLINE": "1"})
    assert repository.requests == []


def test_a_complete_folder_is_good_enough_when_nobody_answers(
    repository: FakeHub, folder: Path, environ: dict[str, str], clock: FakeClock
) -> None:
    fetch_checkpoint(REPO, None, folder, environ=environ)
    environ["HF_ENDPOINT"] = "http://127.0.0.1:1"
    assert fetch_checkpoint(REPO, None, folder, environ=environ, patience=clock.patience()) == folder


def test_offline_the_hub_cache_serves_a_whole_checkpoint(
    repository: FakeHub, folder: Path, environ: dict[str, str]
) -> None:
    for name, content in (SMALL | SHARDS).items():
        cached(Path(environ["HF_HUB_CACHE"]), repository.add(REPO, name, content, lfs=name in SHARDS), content)
    snapshot = Path(environ["HF_HUB_CACHE"]) / "models--owner--model" / "snapshots" / COMMIT
    (snapshot / ".gitattributes").symlink_to((snapshot / "NOTICE").resolve())
    environ["HF_ENDPOINT"] = "https://hub.example"
    fetch_checkpoint(REPO, None, folder, environ=environ, offline=True)
    fetch_checkpoint(REPO, COMMIT, folder.with_name("other"), environ=environ, offline=True)
    assert contents(folder) == contents(folder.with_name("other")) == SMALL | SHARDS
    assert repository.requests == []


def test_a_cache_on_another_disk_is_copied(
    repository: FakeHub, folder: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    for name, content in (SMALL | SHARDS).items():
        cached(Path(environ["HF_HUB_CACHE"]), repository.add(REPO, name, content, lfs=name in SHARDS), content)
    monkeypatch.setattr(os, "link", refuse)
    environ["HF_ENDPOINT"] = "https://hub.example"
    fetch_checkpoint(REPO, None, folder, environ=environ, offline=True)
    assert contents(folder) == SMALL | SHARDS
    assert repository.requests == []


def test_a_part_of_a_checkpoint_in_the_cache_is_not_taken_for_the_whole(
    repository: FakeHub, folder: Path, environ: dict[str, str]
) -> None:
    entry = repository.add(REPO, "config.json", SMALL["config.json"], lfs=False)
    cached(Path(environ["HF_HUB_CACHE"]), entry, SMALL["config.json"])
    environ["HF_ENDPOINT"] = "https://hub.example"
    with pytest.raises(DownloadError, match="only a part of owner/model"):
        fetch_checkpoint(REPO, None, folder, environ=environ, offline=True)


def test_the_source_that_answers_is_asked_first_for_the_other_files(
    repository: FakeHub, folder: Path, environ: dict[str, str], clock: FakeClock
) -> None:
    environ |= {"HF_ENDPOINT": "http://127.0.0.1:1", "MODELSCOPE_ENDPOINT": repository.url}
    fetch_checkpoint(REPO, None, folder, environ=environ, patience=clock.patience())
    assert contents(folder) == SMALL | SHARDS
    assert clock.waits == [1, 1, 1]


def test_a_gated_checkpoint_says_where_to_accept_its_licence(
    repository: FakeHub, folder: Path, environ: dict[str, str]
) -> None:
    repository.replies.append(Reply(403, {"X-Error-Code": "GatedRepo"}))
    with pytest.raises(DownloadError, match="gated") as caught:
        fetch_checkpoint(REPO, None, folder, environ=environ)
    assert f"https://127.0.0.1/{REPO}" in caught.value.hint


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = (
        "import sys, hymt_local.download; print([n for n in sys.modules if n.startswith(('huggingface', 'httpx'))])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
