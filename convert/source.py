"""What the user named as the source of a conversion: a folder, a repository on the hub, or a model of the catalog.

Nothing is fetched before `fetch` is called; that, and only that, may use the network.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hymt_convert.architectures import get_architecture
from hymt_convert.checkpoint import Origin, read_configuration
from hymt_convert.known_models import find_by_name, names_quantized_weights
from hymt_local.catalog import Catalog, ModelSpec
from hymt_local.errors import ModelFileError, UnsupportedModelError

if TYPE_CHECKING:
    from hymt_local.download import DownloadEvent

_REPOSITORY = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w./-]+))?")


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A folder on this machine, which need not exist."""

    folder: Path


@dataclass(frozen=True, slots=True)
class HubSource:
    """A checkpoint that has to be fetched, or is in a cache."""

    origin: Origin
    spec: ModelSpec | None
    """The model of the catalog that the name tells, for its licence."""


def parse_source(text: str, catalog: Catalog) -> LocalSource | HubSource:
    """Tell what a source is: an existing folder first, then a catalog id, then `owner/name[@revision]`.

    Raises:
        UnsupportedModelError: a repository whose name says that its weights are quantized.
    """
    if Path(text).exists():
        return LocalSource(Path(text))
    name, _, revision = text.partition("@")
    for spec in catalog.models:
        if spec.repo is not None and name.lower() == spec.id.lower():
            return HubSource(Origin(spec.repo, revision or spec.revision), spec)
    match = _REPOSITORY.fullmatch(text)
    if match is None:
        return LocalSource(Path(text))
    return _hub_source(Origin(match[1], match[2]), catalog)


def check_spelling(source: LocalSource, catalog: Catalog) -> None:
    """Refuse a folder that does not exist when it is spelled almost like a model.

    Raises:
        ModelFileError: with the id that may be meant.
    """
    name, _, _ = str(source.folder).partition("@")
    ids = {name.lower(): name for spec in catalog.models if spec.repo for name in (spec.id, spec.repo)}
    near = difflib.get_close_matches(name.lower(), ids, n=1, cutoff=0.8)
    if near and not source.folder.exists():
        raise ModelFileError(f"{source.folder} does not exist", hint=f"Did you mean {ids[near[0]]}?")


def _hub_source(origin: Origin, catalog: Catalog) -> HubSource:
    repository = str(origin.repository)
    spec = find_by_name(catalog, [repository])
    if names_quantized_weights(repository):
        plain = spec.repo if spec is not None and spec.repo else "the same id without -fp8, -FP8 or -GPTQ-Int4"
        raise UnsupportedModelError(
            f"{repository} holds quantized weights by its name", hint=f"Convert the bf16 checkpoint: {plain}."
        )
    is_published = spec is not None and spec.repo is not None and spec.repo.lower() == repository.lower()
    if spec is not None and is_published and origin.revision is None:
        origin = Origin(spec.repo, spec.revision)
    return HubSource(origin, spec)


def fetch(
    source: HubSource,
    checkpoints_folder: Path,
    *,
    environ: Mapping[str, str],
    offline: bool = False,
    on_progress: Callable[[DownloadEvent], None] | None = None,
) -> Path:
    """Return the folder of a checkpoint, fetched if need be; what is here already is not fetched again.

    A configuration that cannot be converted is refused before the weights are fetched.

    Args:
        source: What to fetch.
        checkpoints_folder: Every checkpoint gets a folder of its own in it.
        environ: For the hub's address, token and cache.
        offline: Take only what is on this machine.
        on_progress: Told of the download.

    Raises:
        HymtError: no network, no such repository, no room, a damaged file.
    """
    from hymt_local.download import fetch_checkpoint

    repository = str(source.origin.repository)
    plain_id = source.spec.repo if source.spec is not None else None

    def check(folder: Path) -> None:
        get_architecture(read_configuration(folder, plain_id=plain_id))

    return fetch_checkpoint(
        repository,
        source.origin.revision,
        checkpoints_folder / repository.replace("/", "--"),
        environ=environ,
        offline=offline,
        on_progress=on_progress,
        check_config=check,
    )
