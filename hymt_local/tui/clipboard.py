"""Copying so that it works somewhere: the system's own tool, and a private file that always holds the last text.

The terminal's clipboard (OSC 52) is written by Textual. Whether a terminal took it cannot be known: tmux, by default,
drops it.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from hymt_local.config import write_atomically
from hymt_local.errors import StoreError

TOOL_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that puts its standard input on the clipboard."""

    command: tuple[str, ...]
    encoding: str = "utf-8"


TOOLS = (
    Tool(("wl-copy",)),
    Tool(("xclip", "-selection", "clipboard")),
    Tool(("xsel", "--clipboard", "--input")),
    Tool(("pbcopy",)),
    Tool(("clip.exe",), "utf-16le"),  # reads UTF-16 only, and is what WSL has
)


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What worked besides the terminal's own clipboard."""

    tool: str | None
    """The program that took the text."""
    file: Path | None
    error: str = ""
    """Why there is no file."""


async def copy_text(text: str, *, copy_file: Path, search_path: str | None) -> CopyReport:
    """Give the text to the first tool that takes it, and write the file (mode 0600).

    Args:
        text: Sanitized.
        copy_file: Replaced as a whole.
        search_path: Where to look for tools, in the form of `PATH`; None takes the process's own.
    """
    tool = await _copy_with_tool(text, search_path=search_path)
    try:
        await asyncio.to_thread(write_atomically, copy_file, text)
    except StoreError as error:
        return CopyReport(tool, None, error.message)
    return CopyReport(tool, copy_file)


async def _copy_with_tool(text: str, *, search_path: str | None) -> str | None:
    for tool in TOOLS:
        program = shutil.which(tool.command[0], path=search_path)
        if program and await _took(text.encode(tool.encoding), (program, *tool.command[1:])):
            return tool.command[0]
    return None


async def _took(data: bytes, command: tuple[str, ...]) -> bool:
    """Run one tool; without a display it fails at once, and a stuck one is ended."""
    quiet = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=quiet, stderr=quiet
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(TOOL_TIMEOUT_S):
            await process.communicate(data)
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode == 0
