"""Checkpoints, folders and disks that mean harm: one clear error each, and nothing under a final name."""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hymt_convert.__main__ import main
from tests.convert import toy_checkpoint as toy

SHARD = "model.safetensors"
INDEX = "model.safetensors.index.json"
UP = "model.layers.1.mlp.up_proj.weight"


def _truncated_shard(folder: Path) -> None:
    os.truncate(folder / SHARD, (folder / SHARD).stat().st_size - 1000)


def _shard_cut_in_its_header(folder: Path) -> None:
    os.truncate(folder / SHARD, 40)


def _header_bomb(folder: Path) -> None:
    with (folder / SHARD).open("r+b") as file:
        file.write((1 << 63).to_bytes(8, "little"))


def _change_header(folder: Path, change: Callable[[dict[str, dict[str, list[int]]]], None]) -> None:
    content = (folder / SHARD).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    toy.write_raw_safetensors(folder / SHARD, header, content[8 + length :])


def _overlapping_offsets(folder: Path) -> None:
    def change(header: dict[str, dict[str, list[int]]]) -> None:
        up, gate = header[UP], header["model.layers.1.mlp.gate_proj.weight"]
        start = gate["data_offsets"][0] + 4
        up["data_offsets"] = [start, start + 4 * math.prod(up["shape"])]

    _change_header(folder, change)


def _offsets_out_of_the_file(folder: Path) -> None:
    def change(header: dict[str, dict[str, list[int]]]) -> None:
        size = 4 * math.prod(header[UP]["shape"])
        header[UP]["data_offsets"] = [1 << 50, (1 << 50) + size]

    _change_header(folder, change)


def _weight(value: float) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = toy.random_weights(toy.Shape())
        weights[UP][5, 7] = value
        toy.write_safetensors(folder / SHARD, weights)

    return damage


def _index_naming(path: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder.parent / "elsewhere.safetensors").write_bytes((folder / SHARD).read_bytes())
        named = str(folder.parent / path) if path.startswith("elsewhere") else path
        toy.write_json(folder / INDEX, {"weight_map": {"model.norm.weight": named}})

    return damage


def _link_outside(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).rename(folder.parent / f"outside-{name}")
        (folder / name).symlink_to(folder.parent / f"outside-{name}")

    return damage


def _link_to_itself(folder: Path) -> None:
    (folder / SHARD).unlink()
    (folder / SHARD).symlink_to(SHARD)


def _duplicate_id(folder: Path) -> None:
    table = toy.tokenizer_json()
    table["model"]["vocab"]["hello"] = table["model"]["vocab"]["he"]
    toy.write_json(folder / "tokenizer.json", table)


def _added_token_on_a_taken_id(folder: Path) -> None:
    table = toy.tokenizer_json()
    table["added_tokens"][1]["id"] = table["added_tokens"][0]["id"]
    toy.write_json(folder / "tokenizer.json", table)


def _huge_id(folder: Path) -> None:
    table = toy.tokenizer_json()
    table["model"]["vocab"]["hello"] = 1 << 40
    toy.write_json(folder / "tokenizer.json", table)


def _negative_id(folder: Path) -> None:
    table = toy.tokenizer_json()
    table["model"]["vocab"]["hello"] = -1
    toy.write_json(folder / "tokenizer.json", table)


def _empty(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, 0) if (folder / name).exists() else (folder / name).touch()


def _settings(**changes: object) -> Callable[[Path], None]:
    return lambda folder: toy.edit_json(folder / "config.json", **changes)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated shard": (_truncated_shard, "model.safetensors is truncated"),
    "shard cut in its header": (_shard_cut_in_its_header, "claims a header of"),
    "header length bomb": (_header_bomb, "claims a header of 9223372036854775808 bytes"),
    "overlapping offsets": (_overlapping_offsets, "overlap in model.safetensors"),
    "offsets out of the file": (_offsets_out_of_the_file, f"tensor {UP} ends at byte"),
    "NaN": (_weight(math.nan), f"tensor {UP} in model.safetensors holds NaN or infinity"),
    "infinity": (_weight(-math.inf), f"tensor {UP} in model.safetensors holds NaN or infinity"),
    "index above the folder": (_index_naming("../elsewhere.safetensors"), "names a file outside the folder"),
    "index with an absolute path": (_index_naming("elsewhere.safetensors"), "names a file outside the folder"),
    "index with a folder's name": (_index_naming(".."), "outside the folder"),
    "index with a zero byte": (_index_naming("a\0.safetensors"), "outside the folder"),
    "index with no name": (_index_naming(""), "outside the folder"),
    "duplicate token ids": (_duplicate_id, "id"),
    "added tokens of one id": (_added_token_on_a_taken_id, "id"),
    "a token id without end": (_huge_id, "id"),
    "a negative token id": (_negative_id, "id"),
    "empty shard": (_empty(SHARD), "model.safetensors holds 0 bytes"),
    "empty config.json": (_empty("config.json"), "config.json is not valid JSON"),
    "empty tokenizer.json": (_empty("tokenizer.json"), "tokenizer.json is not valid JSON"),
    "empty index": (_empty(INDEX), f"{INDEX} is not valid JSON"),
    "link to weights elsewhere": (_link_outside(SHARD), "is a link that leads out of the checkpoint folder"),
    "link to a configuration elsewhere": (_link_outside("config.json"), "is a link that leads out"),
    "link to a tokenizer elsewhere": (_link_outside("tokenizer.json"), "is a link that leads out"),
    "link to itself": (_link_to_itself, "model.safetensors"),
    "sizes without end": (_settings(num_hidden_layers=1 << 40), ""),
    "sizes that are text": (_settings(hidden_size="64"), "hidden_size"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.write_checkpoint(tmp_path / "toy")
    return tmp_path / "toy"


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_checkpoint_that_means_harm_is_one_error_and_leaves_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object], message: str
) -> None:
    damage(folder)
    output = tmp_path / "output"
    status = main([str(folder), "-q", "F16", "-q", "Q8_0", "-o", str(output), "--no-verify"])
    spoken = capsys.readouterr().err.splitlines()
    lines = [line for line in spoken if line.startswith("error: ")]
    assert status == 3
    assert spoken[-1].startswith("hint: ")
    assert len(lines) == 1
    assert message in lines[0]
    assert "internal error" not in lines[0]
    assert not output.exists() or list(output.iterdir()) == []


def test_a_target_that_is_read_only_is_one_error(folder: Path, tmp_path: Path) -> None:
    """The user who may write everywhere is tried with a folder that nobody may write to."""
    output = tmp_path / "output"
    output.mkdir(mode=0o500)
    target = Path("/proc/self") if os.access(output, os.W_OK) else output
    command = [sys.executable, "-m", "hymt_convert", str(folder), "-q", "F16", "-o", str(target), "--no-verify"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 6
    assert "error: " in result.stderr
    assert "Traceback" not in result.stderr
    assert list(output.iterdir()) == []


@pytest.mark.parametrize("program", ["hymt_convert", "hymt_local"])
def test_a_disk_that_fills_up_is_one_error(folder: Path, tmp_path: Path, program: str) -> None:
    output = tmp_path / "output"
    command = [sys.executable, "-m", program, *(["convert"] if program == "hymt_local" else []), str(folder)]
    options = ["-q", "F16", "-o", str(output), "--no-verify"]
    limit = (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])  # writing more fails, as on a full disk
    result = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )  # fmt: skip
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert result.returncode == 6
    assert len(errors) == 1
    assert "cannot write F16.gguf in " in errors[0]
    assert "Traceback" not in result.stderr
    assert list(output.iterdir()) == []


@pytest.mark.parametrize("name", ["truncated shard", "NaN", "duplicate token ids", "link to itself"])
def test_the_program_itself_has_the_same_status(folder: Path, tmp_path: Path, name: str) -> None:
    damage, message = DAMAGE[name]
    damage(folder)
    output = tmp_path / "output"
    command = [sys.executable, "-m", "hymt_local", "convert", str(folder), "-q", "F16", "-o", str(output)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 3
    assert result.stdout == ""
    assert message in result.stderr
    assert "hint: " in result.stderr
    assert "Traceback" not in result.stderr
    assert not output.exists() or list(output.iterdir()) == []
