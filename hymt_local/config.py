"""Settings by layer: defaults < config.toml < `HYMT_*` variables < flags the user typed.

One pure function resolves them, refuses what it does not know, and says where each value came from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from hymt_local.errors import ConfigError, StoreError
from hymt_local.paths import HOME_VARIABLE
from hymt_local.regular_file import read_regular

VARIABLE_PREFIX = "HYMT_"
_HINT = "`hymt config schema` prints what each setting takes"
_SHOWN_CHARACTERS = 80


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every setting. The field's description is the help text of `hymt config`."""

    model: Annotated[str | None, msgspec.Meta(description="model reference, ID or ID:QUANTIZATION")] = None
    source_lang: Annotated[str | None, msgspec.Meta(description="source language; unset means detect it")] = None
    target_lang: Annotated[str | None, msgspec.Meta(description="target language when none is named")] = None
    threads: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=512)] | None,
        msgspec.Meta(description="decode threads; unset: physical cores less one"),
    ] = None
    context_length: Annotated[
        Annotated[int, msgspec.Meta(ge=256, le=262144)] | None,
        msgspec.Meta(description="context in tokens; unset: the model's usual one"),
    ] = None
    gpu_layers: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=1000)] | Literal["auto"],
        msgspec.Meta(description="layers on the GPU; auto: as many as fit, 0: CPU only"),
    ] = "auto"
    kv_type: Annotated[
        Literal["auto", "f16", "bf16", "q8_0", "q4_0"],
        msgspec.Meta(description="KV cache; auto: f16, q8_0: half the memory, q4_0: a quarter, slower and less exact"),
    ] = "auto"
    kv_offload: Annotated[bool, msgspec.Meta(description="keep the KV cache on the GPU, beside its layers")] = True
    tensor_split: Annotated[
        Annotated[str, msgspec.Meta(pattern=r"^\d+(\.\d+)?(,\d+(\.\d+)?)*$", max_length=200)] | None,
        msgspec.Meta(description="shares of several GPUs, such as 3,1; unset: by their free memory"),
    ] = None
    flash_attention: Annotated[
        bool, msgspec.Meta(description="attention without its large table; q8_0 and q4_0 need it, some GPUs lack it")
    ] = True
    repack: Annotated[
        Literal["auto", "on", "off"],
        msgspec.Meta(description="rearranged weights; on: single texts 10-20 % faster, batches slower, slow to load"),
    ] = "auto"
    mlock: Annotated[
        bool, msgspec.Meta(description="keep the weights in memory whatever other programs want; needs a permission")
    ] = False
    slots: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=64)] | None,
        msgspec.Meta(description="segments translated at once; unset: 32, or what fits into memory"),
    ] = None
    deterministic: Annotated[
        bool, msgspec.Meta(description="one segment at a time: the same answer to the last bit, several times slower")
    ] = False
    engine_process: Annotated[
        Literal["auto", "child", "inline"],
        msgspec.Meta(description="where models run; child survives crashes, auto: child but for tiny models"),
    ] = "auto"
    pair_models: Annotated[
        dict[str, str],
        msgspec.Meta(description="models of single language pairs; `hymt models use MODEL --for en-zh` sets them"),
    ] = {}
    memory_check: Annotated[bool, msgspec.Meta(description="refuse to load a model that does not fit into memory")] = (
        True
    )
    self_test: Annotated[
        bool, msgspec.Meta(description="let a model translate a few sentences before its first use, and refuse garbage")
    ] = True
    offline: Annotated[bool, msgspec.Meta(description="open no connection that leaves this machine")] = False
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0, description="0 is greedy and repeatable")] = 0.0
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1, description="seed when temperature is above 0")] = 0
    attempts: Annotated[
        int, msgspec.Meta(ge=1, le=3, description="how often a segment is tried before its source text stays")
    ] = 3
    retry_order: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^ *((context|sampling|prompt|masks|sentences) *(, *|$))*$",
            description="what another attempt changes, where it can help; what is left out is never tried",
        ),
    ] = "context,sampling,prompt,masks,sentences"
    cache: Annotated[bool, msgspec.Meta(description="remember verified translations in the phrase cache")] = True
    pivot: Annotated[
        Literal["off", "auto", "zh"],
        msgspec.Meta(description="translate through Chinese; auto: from or into a minority language of China"),
    ] = "off"
    live: Annotated[bool, msgspec.Meta(description="terminal UI: translate while typing")] = True
    live_pause_ms: Annotated[
        int, msgspec.Meta(ge=50, le=10_000, description="terminal UI: pause before a live translation, milliseconds")
    ] = 400
    resident: Annotated[
        Literal["auto", "on", "off"],
        msgspec.Meta(
            description="the server that keeps models loaded; auto: used when it runs, and started by the terminal UI; "
            "on: started by every command; off: never"
        ),
    ] = "auto"
    idle_unload_s: Annotated[
        int, msgspec.Meta(ge=-1, le=604_800, description="seconds an unused model stays loaded; -1: for ever")
    ] = 600
    server_port: Annotated[
        int, msgspec.Meta(ge=1024, le=65_500, description="server: first port to try on 127.0.0.1")
    ] = 4968
    server_queue: Annotated[
        int, msgspec.Meta(ge=1, le=10_000, description="server: translations under way or waiting, of all clients")
    ] = 64
    server_hosts: Annotated[
        str, msgspec.Meta(description="server: names it answers to besides localhost, separated by commas")
    ] = ""
    server_origins: Annotated[
        str,
        msgspec.Meta(description="server: origins of pages that may use it (http://HOST:PORT), separated by commas"),
    ] = ""
    second_target: Annotated[
        str | None, msgspec.Meta(description="terminal UI: target when the text is in the target language already")
    ] = None
    history: Annotated[
        bool, msgspec.Meta(description="terminal UI: keep past translations, and the unsaved text for the next start")
    ] = True
    style: Annotated[
        str,
        msgspec.Meta(max_length=500, description="terminal UI: how translations are to sound; for Hy-MT2"),
    ] = ""
    context: Annotated[
        str,
        msgspec.Meta(max_length=8000, description="terminal UI: what the texts are about; for Hy-MT2 and HY-MT1.5"),
    ] = ""
    terms: Annotated[
        dict[str, str],
        msgspec.Meta(max_length=1000, description="terminal UI: terms and their translations; for Hy-MT2 and HY-MT1.5"),
    ] = {}
    layout: Annotated[
        Literal["auto", "side", "stack"],
        msgspec.Meta(description="terminal UI: panes beside or above each other; auto decides by width and script"),
    ] = "auto"
    rtl: Annotated[
        Literal["auto", "terminal", "visual", "off"],
        msgspec.Meta(description="terminal UI: who puts right-to-left text in order, the terminal or this program"),
    ] = "auto"
    ui_language: Annotated[
        Literal["auto", "en", "zh"], msgspec.Meta(description="terminal UI: its own language; auto follows the locale")
    ] = "auto"
    theme: Annotated[str, msgspec.Meta(description="terminal UI: name of a Textual theme")] = "textual-dark"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        msgspec.Meta(description="detail of the log file; debug may contain source text"),
    ] = "warning"


class Layer(StrEnum):
    """Where a value came from."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """The settings in force and the layer each of them came from."""

    settings: Settings
    origins: Mapping[str, Layer]


def setting_names() -> tuple[str, ...]:
    """Return every setting's name, in the order of `Settings`."""
    return Settings.__struct_fields__


def variable_name(setting: str) -> str:
    """Return the environment variable of a setting."""
    return VARIABLE_PREFIX + setting.upper()


def load_settings(
    config_file: Path, environ: Mapping[str, str], *, flags: Mapping[str, Any] | None = None
) -> ResolvedSettings:
    """Resolve all layers; `flags` holds only what the user typed.

    Raises:
        ConfigError: an unknown key, a wrong type or a value out of range; the message names layer, key and value.
        StoreError: the file exists but cannot be read.
    """
    typed_flags = {key: value for key, value in (flags or {}).items() if value is not None}
    layers = (
        (Layer.FILE, _checked(_read_file(config_file), str(config_file))),
        (Layer.ENVIRONMENT, _checked(_read_environment(environ), "environment", from_text=True, spelled=variable_name)),
        (Layer.FLAG, _checked(typed_flags, "command line")),
    )
    merged: dict[str, Any] = {}
    origins = dict.fromkeys(setting_names(), Layer.DEFAULT)
    for layer, values in layers:
        merged.update(values)
        origins.update(dict.fromkeys(values, layer))
    return ResolvedSettings(Settings(**merged), origins)


def unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return `HYMT_*` variables that no setting reads: most likely misspelt."""
    known = {variable_name(name) for name in setting_names()} | {HOME_VARIABLE}
    return tuple(sorted(name for name in environ if name.startswith(VARIABLE_PREFIX) and name not in known))


def check_setting(name: str, value: str) -> Any:
    """Return a value that was typed as text in its own type.

    Raises:
        ConfigError: unknown name, wrong type or out of range.
    """
    return _checked({name: value}, "typed", from_text=True)[name]


def write_setting(config_file: Path, name: str, value: str | Mapping[str, str] | None) -> None:
    """Set one value in the file, keeping its comments; None removes it. The new file replaces the old one at once.

    Raises:
        ConfigError: unknown name or value out of range; the file is untouched.
        StoreError: the file cannot be read or written; the old one stays.
    """
    import tomlkit  # 30 ms, and only needed to write

    _check_name(name, "command line")
    typed = None if value is None else _checked({name: value}, "command line", from_text=True)[name]
    _read_file(config_file)  # a file that nobody can read is not replaced
    try:
        document = tomlkit.parse(_read_text(config_file))
    except ValueError as error:  # stricter than tomllib about what no setting needs
        raise _bad_toml(config_file, error) from error
    if typed is None:
        document.pop(name, None)
    else:
        document[name] = tomlkit.item(typed) if not isinstance(typed, dict) else _inline_table(typed)
    _checked(document.unwrap(), str(config_file))
    write_atomically(config_file, tomlkit.dumps(document))


def _inline_table(values: Mapping[str, str]) -> Any:
    """A table of its own would take in every setting that is written after it."""
    import tomlkit

    table = tomlkit.inline_table()
    table.update(values)
    return table


def settings_schema() -> dict[str, Any]:
    """Return the JSON Schema of config.toml."""
    return msgspec.json.schema(Settings)


def write_atomically(path: Path, text: str) -> None:
    """Write a private (0600) text file by a temporary neighbour, fsync and rename; a link's target is replaced.

    Raises:
        StoreError: the folder or file cannot be written; what was there stays.
    """
    import tempfile  # with random and shutil: who only reads settings does without

    try:
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text.encode())
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {path}: {error.strerror or error}",
        hint="check the folder's permissions and free space, or set HYMT_HOME to a folder of yours",
    )


def _read_text(path: Path) -> str:
    try:
        return read_regular(path).decode("utf-8-sig")  # line ends as they are; some editors write a byte order mark
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 (byte {error.start})", hint="save it as UTF-8, or move it away to start afresh"
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror or error}",
            hint="check the file's permissions, or move it away to start afresh",
        ) from error


def _read_file(path: Path) -> dict[str, Any]:
    text = _read_text(path)
    if not text:
        return {}
    import tomllib  # only here: most users have no such file

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, a number of 5000 digits, brackets 1000 deep
        raise _bad_toml(path, error) from error


def _bad_toml(path: Path, error: Exception) -> ConfigError:
    return ConfigError(f"{path} is not valid TOML: {error}", hint="fix that line, or move the file away")


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values = {name: environ.get(variable_name(name)) for name in setting_names()}
    return {name: value for name, value in values.items() if value}


def _checked(
    values: Mapping[str, Any], place: str, *, from_text: bool = False, spelled: Callable[[str], str] = str
) -> dict[str, Any]:
    """Return one layer's values in their own types.

    Args:
        values: Setting -> value.
        place: The layer, for messages.
        from_text: The values are strings that may spell numbers and booleans.
        spelled: What the user calls a setting in this layer.
    """
    for name, value in values.items():
        _check_name(name, place)
        if isinstance(value, str) and not _is_encodable(value):
            raise ConfigError(f"{place}: `{spelled(name)} = {_shortened(value)}`: not valid UTF-8", hint=_HINT)
    try:
        settings = msgspec.convert(dict(values), Settings, strict=not from_text)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        name = path.strip("`").removeprefix("$.").partition("[")[0]
        raise ConfigError(
            f"{place}: `{spelled(name)} = {_shortened(values[name])}`: {what[:1].lower()}{what[1:]}", hint=_HINT
        ) from error
    return {name: getattr(settings, name) for name in values}


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_name(name: str, place: str) -> None:
    if name in setting_names():
        return
    import difflib

    close = difflib.get_close_matches(name, setting_names(), n=1)
    hint = f"did you mean `{close[0]}`?" if close else "`hymt config show` lists every setting"
    raise ConfigError(f"unknown setting `{name[:_SHOWN_CHARACTERS]}` ({place})", hint=hint)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
