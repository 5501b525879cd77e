"""What a command line loads: heavy packages only where their work is done. Looked at in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

HEAVY = {
    "asyncio", "gguf", "huggingface_hub", "langcodes", "llama_cpp", "logging.config", "mcp", "msgspec",
    "numpy", "platformdirs", "psutil", "py3langid", "pydantic", "rich", "sentencepiece", "sentencex", "sqlite3",
    "textual", "tokenizers", "tomlkit", "torch", "transformers", "unittest",
}  # fmt: skip
PROGRAM = """
import json, sys
from hymt_local.__main__ import main
sys.argv[0] = "hymt"
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
finally:
    sys.stderr.write(json.dumps(sorted(sys.modules)))
"""


def loaded_by(process_environ: Mapping[str, str], *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, env=dict(process_environ), check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["--help"], set[str]()),
        (["--version"], set[str]()),
        (["translate", "--help"], {"msgspec"}),
        (["config", "show"], {"msgspec"}),
        (["config", "path"], {"msgspec"}),
        (["models", "list"], {"msgspec"}),
        (["languages", "-m", "Hy-MT2-1.8B"], {"msgspec"}),
        (["-m", "echo", "hi", "-t", "fr", "-f", "en"], {"msgspec", "asyncio", "sqlite3"}),
        (["-m", "echo", "Where is the station?", "-t", "fr"], {"msgspec", "asyncio", "sqlite3"}),
        (["detect", "你好"], {"msgspec"}),
        (["mcp", "--help"], {"msgspec"}),
    ],
    ids=" ".join,
)
def test_a_command_loads_no_heavy_package_that_it_does_not_use(
    process_environ: Mapping[str, str], arguments: list[str], allowed: set[str]
) -> None:
    assert loaded_by(process_environ, *arguments) & HEAVY <= allowed


def test_help_imports_no_command(process_environ: Mapping[str, str]) -> None:
    loaded = loaded_by(process_environ, "--help")
    commands = {path.stem for path in (Path(__file__).parents[2] / "hymt_local" / "cli").glob("*.py")}
    expected = {"app", "diagnostics", "output"}
    assert {name for name in commands if f"hymt_local.cli.{name}" in loaded} == expected
    assert "hymt_convert" not in loaded
