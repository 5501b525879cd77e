"""The HTTP dialects of other translators, one file each."""

from __future__ import annotations

from hymt_local.server.dialect import Dialect
from hymt_local.server.dialects import (
    deepl,
    deeplx,
    google,
    hcfy,
    immersive,
    kiss,
    libretranslate,
    mtranserver,
    openai,
    shared_paths,
)

DIALECTS: tuple[Dialect, ...] = (
    shared_paths,
    libretranslate,
    deepl,
    deeplx,
    openai,
    immersive,
    kiss,
    mtranserver,
    hcfy,
    google,
)
"""Every dialect but the native one. Where two claim a route, the first has it."""
