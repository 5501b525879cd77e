"""How models are shown: sizes, rows and JSON that several subcommands have in common."""

from __future__ import annotations

from typing import Any

from hymt_local.catalog import ModelSpec
from hymt_local.cli.diagnostics import print_note
from hymt_local.installed import InstalledModel

GIGABYTE = 1e9


def size_text(size_bytes: int) -> str:
    """Return the size of a file for people."""
    if not size_bytes:
        return "-"
    return f"{size_bytes / GIGABYTE:.1f} GB" if size_bytes >= GIGABYTE / 10 else f"{size_bytes / 1e6:.1f} MB"


def installed_json(model: InstalledModel, *, default: str | None) -> dict[str, Any]:
    """Return an installed model as JSON data."""
    return {
        "ref": model.ref,
        "id": model.spec.id,
        "kind": model.spec.kind,
        "quantization": model.quantization,
        "path": str(model.path) if model.path else None,
        "size_bytes": model.size_bytes,
        "sha256": model.fingerprint if model.path else None,
        "published": model.published,
        "default": model.ref == default,
    }


def note_licence(spec: ModelSpec) -> None:
    """Say where a licence grants nothing."""
    if spec.licence.territory_excluded:
        places = ", ".join(spec.licence.territory_excluded)
        print_note(f"{spec.id} is under the {spec.licence.title}; not licensed in: {places}")
