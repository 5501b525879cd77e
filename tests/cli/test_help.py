"""The help texts, word for word: a changed one is read again before it is recorded, by `UPDATE_GOLDEN=1 pytest`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hymt_local.cli.app import COMMANDS, hymt_command
from tests.cli.conftest import RunHymt

GOLDEN = Path(__file__).parents[1] / "golden" / "help"


def walk(command: click.Command, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command line that has a help text."""
    yield names
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from walk(inner, *names, name)


def find(names: tuple[str, ...]) -> tuple[click.Command, click.Context]:
    """Return a command with a context like that of a real run."""
    command: click.Command = hymt_command
    context = click.Context(hymt_command, **hymt_command.context_settings)
    for name in names:
        assert isinstance(command, click.Group)
        inner = command.get_command(context, name)
        assert inner is not None
        command, context = inner, click.Context(inner, parent=context)
    return command, context


COMMAND_LINES = [names for names in walk(hymt_command) if names[:1] != ("convert",)]
"""All but the converter's, whose help belongs to its own tests."""


def name_of(names: tuple[str, ...]) -> str:
    return "-".join(("hymt", *names))


@pytest.mark.parametrize("names", COMMAND_LINES, ids=name_of)
def test_the_help_is_the_one_that_was_read_and_approved(hymt_here: RunHymt, names: tuple[str, ...]) -> None:
    done = hymt_here(*names, "--help", environ={"COLUMNS": "90"})
    assert (done.status, done.err) == (0, "")
    file = GOLDEN / f"{name_of(names)}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(done.out)
    assert done.text == file.read_text(encoding="utf-8")


def test_no_golden_help_is_left_of_a_command_that_is_gone() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == {name_of(names) for names in COMMAND_LINES}


@pytest.mark.parametrize("names", COMMAND_LINES, ids=name_of)
def test_every_command_and_every_option_is_explained(names: tuple[str, ...]) -> None:
    command, context = find(names)
    assert command.help
    options = [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("names", COMMAND_LINES, ids=name_of)
def test_no_help_is_wider_than_a_small_terminal(hymt_here: RunHymt, names: tuple[str, ...]) -> None:
    lines = hymt_here(*names, "--help", environ={"COLUMNS": "80"}).text.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in lines if line.endswith("...") and not line.startswith("Usage: ")] == []


def test_the_line_of_a_command_in_the_overview_is_that_of_its_own_help() -> None:
    for name, (_, line) in COMMANDS.items():
        if name not in {"translate", "convert"}:  # the overview says of `translate` what it is short for
            assert find((name,))[0].get_short_help_str(limit=100) == line


def test_help_is_printed_for_the_short_form_and_after_a_text(hymt_here: RunHymt) -> None:
    assert hymt_here("-h").out == hymt_here("--help").out
    assert hymt_here("some text", "-h").out == hymt_here("translate", "--help").out
