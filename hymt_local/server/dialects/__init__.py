"""The HTTP dialects of other translators, one file each."""

from __future__ import annotations

from hymt_local.server.dialect import Dialect

DIALECTS: tuple[Dialect, ...] = ()
"""Every dialect but the native one. Where two claim a route, the first has it."""
