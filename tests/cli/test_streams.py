"""Standard streams that are closed, full, broken, huge or in the wrong encoding, and disks that take nothing."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import Completed, RunHymt
from tests.toy_models import write_toy_model

ECHO = ("-m", "echo", "-f", "en", "-t", "fr")
FULL = Path("/dev/full")


def shell(command: str, environ: Mapping[str, str], *, stdin: bytes = b"") -> Completed:
    """Run a shell command in which `hymt` is this program."""
    done = subprocess.run(
        ["bash", "-c", f'hymt() {{ "{sys.executable}" -m hymt_local "$@"; }}; {command}'],
        input=stdin, capture_output=True, env=dict(environ), timeout=60, check=False,
    )  # fmt: skip
    return Completed(done.returncode, done.stdout, done.stderr.decode())


def assert_one_error(done: Completed, *, status: int, said: str) -> None:
    assert (done.status, done.out) == (status, b"")
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["error", "hint"], done.err
    assert said in done.err


# Closed


def test_closed_input_is_empty_input(process_environ: Mapping[str, str]) -> None:
    assert_one_error(shell("hymt -m echo -t fr <&-", process_environ), status=2, said="the input is empty")


def test_closed_input_does_not_matter_when_there_is_text(process_environ: Mapping[str, str]) -> None:
    assert shell("hymt -m echo -f en -t fr hello <&-", process_environ) == Completed(0, b"hello\n", "")


@pytest.mark.parametrize("command", ["hymt -m echo -f en -t fr hello", "hymt --help", "hymt config show"])
def test_closed_output_is_an_error(process_environ: Mapping[str, str], command: str) -> None:
    done = shell(f"{command} >&-", process_environ)
    assert_one_error(done, status=6, said="Bad file descriptor")


def test_errors_never_go_to_the_output_when_stderr_is_closed(process_environ: Mapping[str, str]) -> None:
    assert shell("hymt hello 2>&-", process_environ) == Completed(2, b"", "")
    assert shell("hymt -m echo -f en -t fr hello 2>&-", process_environ) == Completed(0, b"hello\n", "")


def test_all_closed_still_gives_the_status(process_environ: Mapping[str, str]) -> None:
    assert shell("hymt hello -t klingon <&- >&- 2>&-", process_environ).status == 2


def test_a_reader_that_goes_away_ends_it_quietly(process_environ: Mapping[str, str]) -> None:
    text = b"some words on a line\n" * 4000  # more than a pipe holds
    done = shell("hymt -m echo -f en -t fr | head -c 4; echo ${PIPESTATUS[0]}", process_environ, stdin=text)
    assert (done.out, done.err) == (b"some141\n", "")
    done = shell("hymt --help | true; echo ${PIPESTATUS[0]}", process_environ)
    assert (done.out.strip() in {b"0", b"141"}, done.err) == (True, "")


# Full


@pytest.mark.parametrize(
    "arguments", [("hello", *ECHO), ("hello", *ECHO, "--json"), ("--version",), ("config", "path"), ("models", "list")]
)
def test_a_full_disk_under_stdout_is_one_error(process_environ: Mapping[str, str], arguments: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hymt_local", *arguments],
            stdout=full, stderr=subprocess.PIPE, env=dict(process_environ), timeout=60, check=False,
        )  # fmt: skip
    completed = Completed(done.returncode, b"", done.stderr.decode().replace("note", "hint"))
    errors = [line for line in completed.err.splitlines() if line.startswith("error")]
    assert completed.status == 6
    assert len(errors) == 1
    assert errors[0].startswith("error: No space left on device")
    assert "Traceback" not in completed.err


def test_a_full_disk_under_stderr_changes_nothing(process_environ: Mapping[str, str]) -> None:
    assert shell("hymt hello -t klingon 2>/dev/full", process_environ) == Completed(2, b"", "")


def test_partial_writes_of_an_unbuffered_pipe_lose_nothing(process_environ: Mapping[str, str]) -> None:
    text = b"some words on a line\n" * 10_000
    environ = {**process_environ, "PYTHONUNBUFFERED": "1"}
    done = shell("hymt -m echo -f en -t fr --no-cache | cat", environ, stdin=text)
    assert (done.status, done.out == text, done.err) == (0, True, "")


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[bool]:
    """Mount a file system in memory where this is allowed; says whether it is."""
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "hymt-test", str(place)]
    can_mount = shutil.which("mount") and shutil.which("umount")
    is_mounted = bool(can_mount) and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_under_the_data_folder_costs_the_cache_and_not_the_translation(
    process_environ: Mapping[str, str], isolated_environment: Path
) -> None:
    with mounted(isolated_environment / "data", "size=64k") as is_mounted:
        if is_mounted:
            with contextlib.suppress(OSError), (isolated_environment / "data" / "filler").open("wb") as filler:
                filler.write(bytes(1 << 20))
        limit = "" if is_mounted else "ulimit -f 0; "  # no file may grow: the nearest thing for who may not mount
        done = shell(f"{limit}hymt -m echo -f en -t fr hello there | cat", process_environ)
    assert (done.status, done.out) == (0, b"hello there\n")
    (note,) = done.err.splitlines()
    assert note.startswith("note: translations are not remembered: ")


@contextlib.contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Make a folder that nobody can write to, root included where mounting is allowed."""
    with mounted(place, "ro") as is_mounted:
        if is_mounted:
            yield
        elif os.geteuid():
            place.chmod(0o500)
            yield
            place.chmod(0o700)
        else:  # root without the right to mount: permission bits do not bind it
            place.rmdir()
            place.write_text("in the way")
            yield


def test_a_read_only_data_folder_costs_the_cache_and_not_the_translation(
    hymt_here: RunHymt, isolated_environment: Path
) -> None:
    with read_only(isolated_environment / "data"):
        done = hymt_here("hello", *ECHO)
        assert (done.status, done.out) == (0, b"hello\n")
        (note,) = done.err.splitlines()
        assert note.startswith("note: translations are not remembered: ")


def test_with_everything_read_only_reading_works_and_writing_is_a_store_error(
    hymt_here: RunHymt, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    toy = write_toy_model(tmp_path / "toy.gguf")
    environ = {"HYMT_HOME": str(home)}
    with read_only(home):
        if home.is_dir():
            assert hymt_here("hello", *ECHO, environ=environ).out == b"hello\n"
            assert hymt_here("models", "list", environ=environ).status == 0
            assert hymt_here("doctor", environ={**environ, "HYMT_MODEL": "echo"}).status == 6
        for command in (["config", "set", "threads", "4"], ["models", "use", "echo"]):
            assert_one_error(hymt_here(*command, environ=environ), status=6, said="cannot")
        importing = hymt_here("models", "import", str(toy), "--as", "Hunyuan-MT-7B", environ=environ)
        assert_one_error(importing, status=6, said="cannot")


def test_a_file_that_may_not_grow_is_like_a_full_disk(
    process_environ: Mapping[str, str], isolated_environment: Path
) -> None:
    done = shell("ulimit -f 0; hymt config set threads 4", process_environ)
    assert_one_error(done, status=6, said="cannot write")
    assert list((isolated_environment / "config").iterdir()) == []


@pytest.mark.parametrize("place", ["config", "data", "state", "cache"])
def test_a_file_in_place_of_a_folder_never_costs_a_translation(
    hymt_here: RunHymt, isolated_environment: Path, place: str
) -> None:
    (isolated_environment / place).write_text("in the way")
    done = hymt_here("hello", *ECHO)
    if place == "config":  # settings that cannot be read may not be guessed
        assert_one_error(done, status=6, said="Not a directory")
    else:
        assert (done.status, done.out) == (0, b"hello\n")


# Encodings and odd bytes


@pytest.mark.parametrize(
    "environ",
    [
        {"LANG": "C"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_output_to_a_pipe_is_utf8_whatever_the_locale(hymt: RunHymt, environ: dict[str, str]) -> None:
    done = hymt(*ECHO, stdin="语 é 🙂\n".encode(), environ=environ)
    assert done == Completed(0, "语 é 🙂\n".encode(), "")


def test_an_argument_is_the_same_text_in_an_ascii_locale(hymt: RunHymt) -> None:
    done = hymt("语 é", *ECHO, environ={"LC_ALL": "C"})
    assert done.out == "语 é\n".encode()


@pytest.mark.parametrize(
    "data", [b"a\0b\n", b"\0", b"\x1b[31m\x07\x7f\n", "\u202e\u2066x\n".encode(), b"\r", b"\n\n\r\n"]
)
def test_odd_characters_come_through_a_pipe(hymt_here: RunHymt, data: bytes) -> None:
    assert hymt_here(*ECHO, stdin=data) == Completed(0, data, "")


@pytest.mark.parametrize("data", [b"\xff", b"ok \xc3", b"\xed\xa0\x80", b"\xff\xfea\0b\0", b"caf\xe9\n"])
def test_input_that_is_not_utf8_is_refused_with_its_place(hymt_here: RunHymt, data: bytes) -> None:
    assert_one_error(hymt_here(*ECHO, stdin=data), status=2, said="standard input is not valid UTF-8: byte ")


@pytest.mark.parametrize(
    "arguments",
    [
        (b"caf\xe9", *ECHO),
        (b"hi", "-t", b"\xff"),
        (b"hi", b"--\xff"),
        ("detect", b"\xff"),
        ("hi", "-t", "fr", "-m", b"\xff"),
    ],
)
def test_arguments_that_are_not_utf8_are_one_error(hymt: RunHymt, arguments: tuple[str | bytes, ...]) -> None:
    done = hymt(*arguments)
    assert_one_error(done, status=done.status, said="")
    assert done.status in {2, 3}


def test_an_argument_that_is_not_utf8_is_valid_json_as_well(hymt: RunHymt) -> None:
    done = hymt("hi", "-t", b"\xff", "--json")
    assert done.status == 2
    assert set(json.loads(done.out)["error"]) == {"code", "message", "hint"}


def test_a_megabyte_of_arguments_is_translated(hymt: RunHymt) -> None:
    lines = ["word " * 2000 + "\n"] * 10
    texts = ["".join(lines)] * 10  # Linux takes no single argument over 128 KiB
    done = hymt(*texts, *ECHO, "--no-cache")
    assert done == Completed(0, " ".join(texts).encode(), "")


def test_ten_megabytes_of_input_come_back_unchanged(hymt: RunHymt) -> None:
    paragraph = b"A paragraph that goes on for a while, as paragraphs do, with some words in it. " * 100 + b"\n"
    text = paragraph * 1300  # all alike: translated once
    done = hymt(*ECHO, "--no-cache", stdin=text)
    assert (done.status, done.out == text, done.err) == (0, True, "")


# Homes


@pytest.mark.parametrize("name", ["with spaces", "家 · ñ", "$(touch x)`'\""])
def test_a_home_of_any_name_works(hymt_here: RunHymt, tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    environ = {"HYMT_HOME": str(home)}
    assert hymt_here("config", "set", "target_lang", "fr", environ=environ).status == 0
    assert hymt_here("hello", "-m", "echo", environ=environ) == Completed(0, b"hello\n", "")
    assert sorted(folder.name for folder in home.iterdir()) == ["config", "data"]


def test_a_home_that_is_not_utf8_works(hymt: RunHymt, tmp_path: Path) -> None:
    environ = {"HYMT_HOME": os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")}
    assert hymt("hello", *ECHO, environ=environ) == Completed(0, b"hello\n", "")
    assert json.loads(hymt("config", "path", "--json", environ=environ).out)["config"].endswith(
        "/caf\udce9/config/config.toml"
    )


def test_without_home_the_user_database_says_where_it_is(process_environ: Mapping[str, str]) -> None:
    done = shell("unset HOME HYMT_HOME; hymt config path --json", process_environ)
    assert done.status == 0
    assert all(Path(place).is_absolute() for place in json.loads(done.out).values())


def test_a_home_of_nobody_is_one_error(hymt: RunHymt) -> None:
    done = hymt("hello", *ECHO, environ={"HYMT_HOME": "~nobody-of-this-name/x"})
    assert_one_error(done, status=2, said="HYMT_HOME")


def test_few_file_descriptors_are_enough(process_environ: Mapping[str, str]) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 32
    assert shell("ulimit -n 32; hymt -m echo -f en -t fr hello", process_environ) == Completed(0, b"hello\n", "")
