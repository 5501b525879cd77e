"""The catalog: what is known of every model, read from `models.toml` and from the user's own file of the same form.

Everything a file says is checked here, once; whoever holds a `ModelSpec` can rely on it. It never looks at model files.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from hymt_local.errors import ConfigError, ModelNotFoundError
from hymt_local.events import SamplingParams
from hymt_local.language import LANGUAGES
from hymt_local.regular_file import read_regular

ModelKind = Literal["translation", "demo", "test"]
TokenizerFamily = Literal["hunyuan", "hunyuan-dense", "demo", "none"]
TemplateSet = Literal["mt1", "chimera", "mt15", "mt2", "plain"]
ChatForm = Literal["hunyuan", "hunyuan-dense", "hunyuan-v3", "plain"]

Text = Annotated[str, Meta(min_length=1)]
Identifier = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Repository = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")]
Revision = Annotated[str, Meta(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.gguf$")]
Territory = Annotated[str, Meta(pattern=r"^[A-Z]{2}$")]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]

_S = TypeVar("_S", bound=Struct)

ALL_TAGS: tuple[str, ...] = tuple(language.tag for language in LANGUAGES)
_F16_BYTES = 2


class Licence(Struct, frozen=True, forbid_unknown_fields=True):
    """The terms under which a model's weights may be used."""

    id: Identifier
    """An SPDX id, or our own name for a licence that has none."""
    title: Text
    territory_excluded: tuple[Territory, ...] = ()
    """ISO 3166 codes, and EU, of where the licence grants nothing; to be shown before a download or a conversion."""
    note: str = ""
    """The duties that a user must know of, in one or two sentences."""
    url: str = ""


class ModelFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One published GGUF of a model."""

    quantization: Identifier
    """llama.cpp's name, such as `Q4_K_M`."""
    name: FileName
    size_bytes: Annotated[int, Meta(ge=1)] | None = None
    """None when it was never published."""
    sha256: Sha256 | None = None
    """None when it was never published: such a file cannot be verified."""
    supported: bool = True
    note: str = ""
    """Why a file is not supported, or what is peculiar about it."""
    repo: Repository | None = None
    """Where it lies when not in the model's `gguf_repo`."""


class Sampling(Struct, frozen=True, forbid_unknown_fields=True):
    """What the model card recommends."""

    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.0
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0
    """0 turns it off."""
    repetition_penalty: Annotated[float, Meta(ge=1.0, le=2.0)] = 1.0

    def params(self, *, seed: int = 0) -> SamplingParams:
        """Return the card's own, random sampling."""
        return SamplingParams(self.temperature, self.top_k, self.top_p, self.repetition_penalty, seed)

    def greedy_params(self) -> SamplingParams:
        """Return the product's default: the likeliest token, with the card's repetition penalty."""
        return SamplingParams(0.0, self.top_k, self.top_p, self.repetition_penalty)


class Geometry(Struct, frozen=True, forbid_unknown_fields=True):
    """The sizes of a network that decide how much memory it needs."""

    layers: Count
    hidden: Count
    kv_heads: Count
    head_dim: Count
    vocab: Count

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV cache for one token of context: keys and values of all layers, in f16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * _F16_BYTES


class ModelSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One model of the catalog. The defaults are the family's."""

    id: Identifier
    title: Text
    kind: ModelKind = "translation"
    """`demo`: knows a closed domain and must refuse other text. `test`: translates nothing."""
    licence: Licence

    repo: Repository | None = None
    """The checkpoint; None when there is none to convert."""
    revision: Revision | None = None
    gguf_repo: Repository | None = None
    """The official GGUF files; None when there are none."""
    gguf_revision: Revision | None = None
    files: tuple[ModelFile, ...] = ()
    """In order of preference."""
    name_patterns: tuple[Text, ...] = ()
    """Regular expressions, searched without regard to case, that tell this model by a GGUF's name."""

    architecture: Text | None = None
    """`general.architecture` of its GGUF files; None when there is no file."""
    tokenizer: TokenizerFamily
    template_set: TemplateSet
    chat: ChatForm
    control_ids: dict[Text, TokenId] = {}
    """Expected id by token text; empty means that only the file knows."""
    stop_tokens: tuple[Text, ...] = ()
    """Texts of the control tokens that end an answer, besides the file's own EOS and EOT. A file may lack some."""
    normalization: Literal["NFC", "none"] = "none"
    """Of the prompt, before it is tokenized: what the official tokenizer does and llama.cpp does not."""
    geometry: Geometry | None = None

    sampling: Sampling = Sampling()
    unit: Literal["paragraph", "sentence"] = "paragraph"
    """What is translated by one prompt."""
    max_segment_tokens: Count
    """The longest source text of one prompt, in tokens, template not counted."""
    context_length: Annotated[int, Meta(ge=64, le=262144)]
    """Tokens of context to open by default, not the most that the model could take."""

    languages: tuple[str, ...] = ALL_TAGS
    full_languages: tuple[str, ...] = ()
    """The part of `languages` in which it knows whole sentences; of the rest, words only. Defaults to all of them."""

    def __post_init__(self) -> None:
        """Check what a single field cannot say; msgspec reports a ValueError with the path of the model."""
        _require_known("languages", self.languages, ALL_TAGS)
        _require_known("full_languages", self.full_languages, self.languages)
        _require_patterns(self.name_patterns)
        _require_unique("quantization", (file.quantization for file in self.files))
        if self.max_segment_tokens >= self.context_length:
            raise ValueError("`max_segment_tokens` must be below `context_length`")
        if not self.full_languages:
            msgspec.structs.force_setattr(self, "full_languages", self.languages)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV cache for one token of context in f16; 0 for a model without weights."""
        return self.geometry.kv_bytes_per_token if self.geometry else 0

    def memory_bytes(self, file_bytes: int, *, context_length: int | None = None) -> int:
        """Return the weights plus the KV cache in f16; compute buffers come on top."""
        return file_bytes + self.kv_bytes_per_token * (context_length or self.context_length)


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model as a user names it: `Hy-MT2-1.8B:Q4_K_M`."""

    id: str
    quantization: str | None = None
    """In upper case; None leaves the choice to the program."""

    def __str__(self) -> str:
        return f"{self.id}:{self.quantization}" if self.quantization else self.id


def parse_model_ref(text: str) -> ModelRef:
    """Split `ID` or `ID:QUANTIZATION`; whether the model exists is the catalog's business."""
    model_id, _, quantization = text.strip().partition(":")
    return ModelRef(model_id.strip(), quantization.strip().upper() or None)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All known models, packaged ones first."""

    models: tuple[ModelSpec, ...]

    def get(self, model_id: str) -> ModelSpec:
        """Return a model by its id, in any case.

        Raises:
            ModelNotFoundError: no such model; the hint names the nearest.
        """
        for spec in self.models:
            if spec.id.lower() == model_id.lower():
                return spec
        raise ModelNotFoundError(f"unknown model {model_id[:80]!r}", hint=self._near_miss(model_id))

    def _near_miss(self, model_id: str) -> str:
        from difflib import get_close_matches

        ids = {spec.id.lower(): spec.id for spec in self.models}
        close = get_close_matches(model_id[:80].lower(), ids, n=2)
        suggestion = f"did you mean {' or '.join(ids[match] for match in close)}? " if close else ""
        return f"{suggestion}`hymt models list` shows them"


def load_catalog(user_file: Path | None = None) -> Catalog:
    """Read the packaged catalog, and lay the user's over it: a model of the same id replaces ours.

    Args:
        user_file: A file of the same form; it may use the packaged families and licences. It need not exist.

    Raises:
        ConfigError: a file cannot be read or breaks a rule; the message names the file and the key.
    """
    packaged = _read(_packaged_file())
    models = {spec.id.lower(): spec for spec in packaged.models}
    if user_file is not None and user_file.exists():
        models |= {spec.id.lower(): spec for spec in _read(user_file, base=packaged).models}
    return Catalog(tuple(models.values()))


@dataclass(frozen=True, slots=True)
class _CatalogFile:
    """One file, read: its models, and the tables that models of another file may name."""

    models: tuple[ModelSpec, ...]
    shared: Mapping[str, Mapping[str, Any]]
    """`families` and `licences`, by table name and entry name."""


class _Document(Struct, frozen=True, forbid_unknown_fields=True):
    """The outermost form of a catalog file; models still name their families and licences."""

    schema: Literal[1]
    families: dict[Identifier, dict[str, Any]] = {}
    """Keys that several models have in common."""
    licences: dict[Identifier, dict[str, Any]] = {}
    models: list[dict[str, Any]] = []


def _packaged_file() -> Path:
    """A wheel carries the file inside the package; in a checkout it lies beside the package."""
    inside = Path(__file__).with_name("models.toml")
    return inside if inside.exists() else Path(__file__).parent.parent / "models.toml"


def _read(path: Path, *, base: _CatalogFile | None = None) -> _CatalogFile:
    try:
        raw = tomllib.loads(read_regular(path).decode())
        document = msgspec.convert(raw, _Document)
        _check_shared(document)
        shared = _merge_shared(document, base)
        models = [_resolve(table, shared, path=f"$.models[{index}]") for index, table in enumerate(document.models)]
        specs = tuple(_convert_model(table, index) for index, table in enumerate(models))
        _require_unique("id", (spec.id.lower() for spec in specs))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="check that the file can be read") from error
    except (ValueError, RecursionError) as error:  # broken UTF-8 or TOML, deep nesting, msgspec's and our own rules
        raise ConfigError(f"{path}: {error}", hint="see models.toml of hymt-local for the form of a catalog") from error
    return _CatalogFile(specs, shared)


def _check_shared(document: _Document) -> None:
    """Check what no model may use yet."""
    for name, terms in document.licences.items():
        _convert_at(f"$.licences.{name}", {"id": name, **terms}, Licence)
    for name, keys in document.families.items():
        for key in keys:
            if key not in ModelSpec.__struct_fields__:
                raise ValueError(f"unknown key `{key}` - at `$.families.{name}`")


def _merge_shared(document: _Document, base: _CatalogFile | None) -> dict[str, dict[str, Any]]:
    inherited: Mapping[str, Mapping[str, Any]] = base.shared if base else {}
    return {
        "families": {**inherited.get("families", {}), **document.families},
        "licences": {**inherited.get("licences", {}), **document.licences},
    }


def _resolve(table: dict[str, Any], shared: Mapping[str, Mapping[str, Any]], *, path: str) -> dict[str, Any]:
    """Put the family's keys under the model's own, and the licence in place of its name."""
    family = table.get("family")
    model = {key: value for key, value in table.items() if key != "family"}
    if family is not None:
        model = {**_entry(shared["families"], family, path=f"{path}.family"), **model}
    if isinstance(model.get("licence"), str):
        model["licence"] = {
            "id": model["licence"],
            **_entry(shared["licences"], model["licence"], path=f"{path}.licence"),
        }
    return model


def _entry(entries: Mapping[str, Any], name: object, *, path: str) -> dict[str, Any]:
    if not isinstance(name, str) or name not in entries:
        raise ValueError(f"unknown name {name!r}, expected one of {', '.join(entries) or 'none'} - at `{path}`")
    entry: dict[str, Any] = entries[name]
    return entry


def _convert_model(table: dict[str, Any], index: int) -> ModelSpec:
    try:
        return _convert_at(f"$.models[{index}]", table, ModelSpec)
    except ValueError as error:
        raise ValueError(f"{error} (model {table.get('id')!r})") from error


def _convert_at(path: str, table: dict[str, Any], kind: type[_S]) -> _S:
    """Convert a part of a file; a complaint names the place in the whole."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        message, _, inner = str(error).partition(" - at `$")
        raise ValueError(f"{message} - at `{path}{inner or '`'}") from error


def _require_known(field: str, tags: Iterable[str], known: tuple[str, ...]) -> None:
    for tag in tags:
        if tag not in known:
            raise ValueError(f"unknown tag {tag!r} in `{field}`")


def _require_patterns(patterns: Iterable[str]) -> None:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"bad regular expression {pattern!r} in `name_patterns`: {error}") from error


def _require_unique(field: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"`{field}` {value!r} occurs twice")
        seen.add(value)
