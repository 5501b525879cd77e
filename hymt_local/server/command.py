"""`hymt serve`: run the resident server in the foreground, or print and install the unit that does."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from hymt_local.application import Application, open_application
from hymt_local.errors import UsageError
from hymt_local.server.process import AlreadyRunningError, ServeOptions, run_server
from hymt_local.server.running import RunningServer, Tls
from hymt_local.server.units import UnitFile, UnitKind, install, kind_of_system, start_hint, unit_files
from hymt_local.server_file import ServerFile

BACKGROUND_IDLE_S = 1800.0
"""A server that was started by the way does not stay for ever."""
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(name="serve")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="Port; 0: any.  [default: the setting's]")
@click.option("-m", "--model", metavar="MODEL", help="Default model of this server.")
@click.option("--no-load", is_flag=True, help="Do not load the model before the first request.")
@click.option("--exit-idle", type=click.FloatRange(1.0), metavar="S", help="End after so many seconds without work.")
@click.option("--listen", metavar="ADDRESS", help="Serve other machines too; needs TLS, or --plain-text.")
@click.option("--tls-certificate", type=_FILE, metavar="FILE", help="Certificate chain, PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its private key, PEM.")
@click.option("--plain-text", is_flag=True, help="Listen beyond this machine without TLS.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON when it takes requests.")
@click.option("--print-unit", type=click.Choice(["systemd", "launchd"]), help="Print the unit that starts it, and end.")
@click.option("--install-unit", is_flag=True, help="Write that unit for this user, and end.")
@click.option("--background", is_flag=True, hidden=True, help="As front ends start it: silent, and not for ever.")
def serve_command(
    port: int | None,
    model: str | None,
    no_load: bool,
    exit_idle: float | None,
    listen: str | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    plain_text: bool,
    as_json: bool,
    print_unit: UnitKind | None,
    install_unit: bool,
    background: bool,
) -> int:
    """Keep a model loaded, for every program of this user.

    The terminal UI and `hymt TEXT` use it while it runs; so do a web page and clients of LibreTranslate, DeepL and
    OpenAI. It listens on 127.0.0.1 only and wants a token. `hymt ps` shows it, `hymt stop` ends it.
    """
    app = open_application(os.environ, flags={"model": model})
    if print_unit or install_unit:
        return _unit(app, print_unit, installs=install_unit)
    options = ServeOptions(
        port=port,
        listen=listen,
        tls=_tls(tls_certificate, tls_key),
        allows_plain_text=plain_text,
        exit_idle_s=exit_idle or (BACKGROUND_IDLE_S if background else None),
        loads_model=not no_load,
    )

    def on_ready(server: RunningServer, file: ServerFile) -> None:
        if not background:
            _announce(file, code=server.context.clients.new_code(), as_json=as_json)

    try:
        run_server(app, options, environ=os.environ, on_ready=on_ready)
    except AlreadyRunningError:
        if not background:
            raise
    return 0


def _tls(certificate: Path | None, key: Path | None) -> Tls | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("TLS needs a certificate and its key", hint="give both --tls-certificate and --tls-key")
    return Tls(certificate, key)


def _announce(file: ServerFile, *, code: str, as_json: bool) -> None:
    page = f"{file.url}/#code={code}"
    if as_json:
        shown = {"url": file.url, "page": page, "pid": file.pid}
        click.echo(msgspec.json.encode(shown))
    else:
        click.echo(f"{file.url}\n{page}  (web page; the address is good for one visit)")


def _unit(app: Application, kind: UnitKind | None, *, installs: bool) -> int:
    kind = kind or kind_of_system()
    files = unit_files(kind, home=Path.home(), port=app.settings.server_port, environ=os.environ)
    if not installs:
        _print(files)
        return 0
    install(files)
    click.echo("".join(f"{file.path}\n" for file in files) + f"now: {start_hint(kind)}")
    return 0


def _print(files: tuple[UnitFile, ...]) -> None:
    """Print several files under their names; one alone as it is: before the first line of XML there is no comment."""
    if len(files) > 1:
        click.echo("\n".join(f"# {file.path}\n{file.text}" for file in files), nl=False)
        return
    click.echo(files[0].text, nl=False)
    click.echo(f"note: this belongs into {files[0].path}", err=True)
