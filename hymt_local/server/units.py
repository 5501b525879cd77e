"""The server as a service of the system: a systemd user unit with its socket, a launchd agent."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

from hymt_local.config import write_atomically
from hymt_local.errors import UsageError

UnitKind = Literal["systemd", "launchd"]
LABEL = "local.hymt.server"
EXIT_IDLE_S = 1800


@dataclass(frozen=True, slots=True)
class UnitFile:
    """One file of a unit."""

    path: Path
    text: str


def unit_files(kind: UnitKind, *, home: Path, port: int, environ: Mapping[str, str]) -> tuple[UnitFile, ...]:
    """Return the files of the unit for this installation.

    Args:
        kind: Which system.
        home: The user's folder.
        port: Where it listens.
        environ: Its `HYMT_*` variables are kept.
    """
    kept = {name: value for name, value in sorted(environ.items()) if name.startswith("HYMT_")}
    if kind == "systemd":
        folder = home / ".config" / "systemd" / "user"
        return (UnitFile(folder / "hymt.socket", _socket(port)), UnitFile(folder / "hymt.service", _service(kept)))
    return (UnitFile(home / "Library" / "LaunchAgents" / f"{LABEL}.plist", _agent(kept)),)


def install(files: tuple[UnitFile, ...]) -> None:
    """Write the files.

    Raises:
        StoreError: one cannot be written.
    """
    for file in files:
        write_atomically(file.path, file.text)


def start_hint(kind: UnitKind) -> str:
    """Return the command that makes the system read the files."""
    if kind == "systemd":
        return "systemctl --user daemon-reload && systemctl --user enable --now hymt.socket"
    return f"launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{LABEL}.plist"


def kind_of_system() -> UnitKind:
    """Return what this system has.

    Raises:
        UsageError: neither.
    """
    if sys.platform == "linux":
        return "systemd"
    if sys.platform == "darwin":
        return "launchd"
    raise UsageError(f"no unit is known for {sys.platform}", hint="the server is started when it is needed")


def _socket(port: int) -> str:
    return f"""\
[Unit]
Description=hymt-local translation server, started by its first client

[Socket]
ListenStream=127.0.0.1:{port}

[Install]
WantedBy=sockets.target
"""


def _service(kept: Mapping[str, str]) -> str:
    variables = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in kept.items())
    return f"""\
[Unit]
Description=hymt-local translation server
Requires=hymt.socket

[Service]
ExecStart={_quoted(sys.executable)} -m hymt_local serve --exit-idle {EXIT_IDLE_S}
{variables}NoNewPrivileges=yes
UMask=0077
TimeoutStopSec=5
"""


def _quoted(text: str) -> str:
    """Quote for a unit file, where % stands for specifiers and $ for variables."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _agent(kept: Mapping[str, str]) -> str:
    variables = "".join(
        f"    <key>{escape(name)}</key>\n    <string>{escape(value)}</string>\n" for name, value in kept.items()
    )
    return f"""\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>{LABEL}</string>
  <key>ProgramArguments</key>
  <array>
    <string>{escape(sys.executable)}</string>
    <string>-m</string>
    <string>hymt_local</string>
    <string>serve</string>
  </array>
  <key>EnvironmentVariables</key>
  <dict>
{variables}  </dict>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <false/>
  <key>ProcessType</key>
  <string>Adaptive</string>
</dict>
</plist>
"""
