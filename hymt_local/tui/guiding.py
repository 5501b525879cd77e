"""The settings that guide a model: read as one value, cut to what it takes, written back, named in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hymt_local.config import Settings, write_setting
from hymt_local.segment import Guidance, GuidanceKind, Term
from hymt_local.tui.wording import Wording

if TYPE_CHECKING:
    from pathlib import Path

    from hymt_local.catalog import ModelSpec

GUIDANCE_SETTINGS = frozenset(GuidanceKind)
_SHOWN_CELLS = 24


def guidance_of(settings: Settings) -> Guidance:
    """Return what the settings say."""
    terms = tuple(Term(source, target) for source, target in settings.terms.items())
    return Guidance(terms, settings.context, settings.style)


def taken_by(spec: ModelSpec, guidance: Guidance) -> Guidance:
    """Return the part of the guidance that a model takes."""
    from hymt_local.prompts import takes_guidance  # only for those who guide

    return guidance.only({kind for kind in guidance.kinds if takes_guidance(spec, kind)})


def write_guidance(config_file: Path, settings: Settings, *, said: Guidance) -> None:
    """Write the settings that differ from what is said; what is empty goes back to its default.

    Raises:
        HymtError: a value does not fit, or the file cannot be written.
    """
    now = guidance_of(settings)
    if said.style != now.style:
        write_setting(config_file, "style", said.style or None)
    if said.context != now.context:
        write_setting(config_file, "context", said.context or None)
    if said.terms != now.terms:
        terms = {term.source: term.target for term in said.terms}
        write_setting(config_file, "terms", terms or None)


def guidance_label(guidance: Guidance, wording: Wording) -> str:
    """Return what a model is told in a few words; empty for nothing."""
    style = guidance.style.replace("\n", " ")
    short = style if len(style) <= _SHOWN_CELLS else f"{style[: _SHOWN_CELLS - 1]}…"
    parts = [
        short,
        wording("guidance.n_terms", count=len(guidance.terms)) if guidance.terms else "",
        wording("guidance.with_context") if guidance.context else "",
    ]
    return " · ".join(part for part in parts if part)
