"""An importance matrix on the way: for a large model it takes hours, which an interrupt should not cost.

The sums are kept in double precision, so that going on with them gives the same matrix to the bit.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hymt_convert.gguf_writer import replacing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Batches = Sequence[Sequence[Sequence[int]]]
"""What is read: lists of texts, each as token ids."""
_SUMS, _COUNTS, _TEXTS, _N_BATCHES = "sums/", "counts/", "texts", "n_batches"


@dataclass(frozen=True, slots=True)
class State:
    """The sums of the first batches."""

    sums: dict[str, NDArray[np.float64]]
    counts: dict[str, NDArray[np.float64]]
    n_batches: int


def write(path: Path, batches: Batches, state: State) -> None:
    """Write a state; the file appears when it is complete.

    Raises:
        StoreError: the folder cannot be written to.
    """
    import numpy as np

    arrays = {_SUMS + name: values for name, values in state.sums.items()}
    arrays |= {_COUNTS + name: values for name, values in state.counts.items()}
    arrays |= {_TEXTS: np.array(_digest(batches)), _N_BATCHES: np.array(state.n_batches)}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read(path: Path, batches: Batches) -> State | None:
    """Return what a file holds of these texts; None when there is none, or none that can be used."""
    import numpy as np

    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if str(file[_TEXTS]) != _digest(batches):
                return None
            sums, counts = (
                {name.removeprefix(kind): file[name] for name in file.files if name.startswith(kind)}
                for kind in (_SUMS, _COUNTS)
            )
            return State(sums, counts, int(file[_N_BATCHES]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _digest(batches: Batches) -> str:
    return hashlib.sha256(repr([[list(text) for text in batch] for batch in batches]).encode()).hexdigest()
