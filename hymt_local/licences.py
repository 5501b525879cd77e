"""Which licences the user has accepted, in a small file of the state folder: each is asked for once."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from hymt_local.catalog import Licence
from hymt_local.config import write_atomically
from hymt_local.errors import StoreError
from hymt_local.paths import Paths
from hymt_local.regular_file import read_regular

FILE_NAME = "licences.json"


class _Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    accepted_at: float
    """Seconds since the epoch."""


class AcceptedLicences:
    """The acceptances of one user. Every call reads the disk afresh."""

    def __init__(self, paths: Paths) -> None:
        self._file = paths.state_dir / FILE_NAME

    @property
    def file(self) -> Path:
        """Where they are kept."""
        return self._file

    def has(self, licence: Licence) -> bool:
        """Tell whether these very terms were accepted; another title under the same id is another licence."""
        acceptance = self._read().get(licence.id)
        return acceptance is not None and acceptance.title == licence.title

    def accept(self, licence: Licence) -> None:
        """Remember the user's consent.

        Raises:
            StoreError: the file cannot be written.
        """
        accepted = {**self._read(), licence.id: _Acceptance(title=licence.title, accepted_at=time.time())}
        write_atomically(self._file, msgspec.json.format(msgspec.json.encode(accepted), indent=2).decode() + "\n")

    def _read(self) -> dict[str, _Acceptance]:
        try:
            return msgspec.json.decode(read_regular(self._file), type=dict[str, _Acceptance])
        except (FileNotFoundError, msgspec.MsgspecError):  # what nobody can read was never accepted
            return {}
        except OSError as error:
            raise StoreError(
                f"cannot read {self._file}: {error.strerror or error}", hint="check the file's permissions"
            ) from error
