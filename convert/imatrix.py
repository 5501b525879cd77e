"""Importance matrices: how much each input column of each matrix matters, for quantization to few bits.

While llama.cpp reads calibration text, the squares of what enters each matrix product are summed by column. Numbers,
names and file format are those of llama.cpp's own `llama-imatrix`, so that either program can use the other's files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hymt_convert import imatrix_state
from hymt_convert.ggml_graph import GraphReader, MatrixProduct
from hymt_convert.gguf_writer import replacing
from hymt_convert.passages import DATASET, Tokenizer, passages
from hymt_convert.reference_model import ReferenceModel, Span
from hymt_local.catalog import ModelSpec
from hymt_local.engine.gguf_file import GgufHeader, read_array, read_header
from hymt_local.engine.gguf_support import check_supported
from hymt_local.errors import DecodeError, ModelFileError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHUNK_TOKENS = 512
"""Tokens computed at once: the more, the fewer passes over the weights. 512 is also `llama-imatrix`'s own default."""
MAX_SEQUENCES = 64
"""Texts computed at once; llama.cpp allows 256."""
KEEP_S = 30.0
"""At most so much has to be computed again after an interrupt, and the batch at hand."""
_SMALLEST_BATCH = 16
"""Products of fewer rows are left out, as by `llama-imatrix`."""
_SUMS, _COUNTS = ".in_sum2", ".counts"
_DATASETS, _CHUNK_COUNT, _CHUNK_SIZE = "imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"
_F32 = 0

OnStep = Callable[[int, int], None]
"""Told how many tokens are done, of how many."""


@dataclass(frozen=True, slots=True)
class Importance:
    """What went into one matrix, or into each expert of a fused one."""

    sums: NDArray[np.float32]
    """Sums of squares: shape [n_matrices, n_columns]."""
    counts: NDArray[np.float32]
    """Rows that were summed: shape [n_matrices]; one count may stand for all."""


@dataclass(frozen=True, slots=True)
class ImportanceMatrix:
    """The sums of a whole model."""

    entries: Mapping[str, Importance]
    """By tensor name."""
    datasets: tuple[str, ...] = ()
    """What was read, in words; never a path of this machine."""
    chunk_count: int = 0
    chunk_size: int = CHUNK_TOKENS
    """Tokens of a chunk."""

    def weights(self, name: str) -> NDArray[np.float32]:
        """Return the mean squares of a tensor, all its matrices in one row; 1 for experts that no token reached."""
        import numpy as np

        entry = self.entries[name]
        counts = np.broadcast_to(entry.counts[:, None], (len(entry.sums), 1))
        means = np.divide(entry.sums, counts, out=np.ones_like(entry.sums), where=counts > 0)
        return np.ascontiguousarray(means.ravel())

    def check_fits(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse the matrix of another model.

        Args:
            shapes: Tensor name -> shape, rows first.

        Raises:
            ModelFileError: with the tensor in which they differ.
        """
        if not self.entries.keys() & shapes.keys():
            raise ModelFileError("the importance matrix names no tensor of the model", hint="It is another model's.")
        for name, entry in self.entries.items():
            shape = shapes.get(name)
            if shape is None:
                continue
            n_matrices = shape[0] if len(shape) == 3 else 1
            if entry.sums.shape != (n_matrices, shape[-1]):
                columns = f"{entry.sums.size} columns for {name}, the model {n_matrices * shape[-1]}"
                raise ModelFileError(
                    f"the importance matrix has {columns}",
                    hint="It is another model's: compute one with --imatrix.",
                )


def compute_imatrix(
    model_file: Path,
    make_texts: Callable[[Tokenizer], Sequence[Sequence[int]]],
    *,
    dataset: str,
    threads: int | None = None,
    chunk_tokens: int = CHUNK_TOKENS,
    state_file: Path | None = None,
    on_step: OnStep | None = None,
) -> ImportanceMatrix:
    """Read texts with a model and return the sums.

    Args:
        model_file: An unquantized or hardly quantized file; it is mapped, not copied into memory.
        make_texts: Makes the token ids of each text with everything around it; each is read on its own.
        dataset: Words for what the texts are.
        threads: None for one per core.
        chunk_tokens: Tokens computed at once; texts are cut to this length.
        state_file: Where the sums are kept meanwhile: after an interrupt it goes on with what this file holds, and the
            result is the same to the bit. It belongs to this model file alone, and stays.
        on_step: Progress, called on this thread.

    Raises:
        EngineError: llama.cpp cannot load or run the model.
        UnsupportedModelError: the engine does not run such models.
        ModelFileError: the file is damaged, or the model computes something that is not a number.
        UsageError: there is too little text.
    """
    check_supported(read_header(model_file))
    collector = _Collector(model_file.name)
    with ReferenceModel(
        model_file, context_length=chunk_tokens, threads=threads, sequences=MAX_SEQUENCES, on_node=collector
    ) as model:
        batches = list(_packed(make_texts(model), chunk_tokens))
        sizes = [sum(map(len, batch)) for batch in batches]
        n_done = collector.take_over(state_file, batches)
        report = on_step or (lambda done, total: None)
        report(sum(sizes[:n_done]), sum(sizes))
        for number, batch in enumerate(batches[n_done:], start=n_done + 1):
            _read(model, batch, collector)
            collector.keep(state_file, batches, number)
            report(sum(sizes[:number]), sum(sizes))
    entries = collector.entries()
    if not entries:
        raise UsageError("the calibration text is too short", hint=f"At least {_SMALLEST_BATCH} tokens are needed.")
    most = max(int(entry.counts.max()) for entry in entries.values())
    return ImportanceMatrix(entries, (dataset,), most // chunk_tokens, chunk_tokens)


def make_imatrix(
    model_file: Path,
    target: Path,
    spec: ModelSpec | None,
    *,
    threads: int | None = None,
    state_file: Path | None = None,
    on_step: OnStep | None = None,
) -> None:
    """Read the calibration sentences with a model and write the matrix (raises what both do).

    Call it through `isolated.run_isolated` when the model file is a stranger's.
    """

    def make_texts(tokenizer: Tokenizer) -> list[tuple[int, ...]]:
        return [passage.tokens for passage in passages(tokenizer, spec, "calibration")]

    matrix = compute_imatrix(
        model_file, make_texts, dataset=DATASET, threads=threads, state_file=state_file, on_step=on_step
    )
    write_imatrix(target, matrix)


def _read(model: ReferenceModel, batch: Sequence[Sequence[int]], collector: _Collector) -> None:
    # Logits are asked for at every token: else the last layer skips what does not lead to them.
    spans = [Span(number, 0, tokens, n_logits=len(tokens)) for number, tokens in enumerate(batch)]
    model.clear()
    try:
        model.read(spans)
    except DecodeError as error:
        raise (collector.failure or error) from error
    if collector.failure is not None:
        raise collector.failure


def write_imatrix(path: Path, matrix: ImportanceMatrix) -> None:
    """Write the GGUF form of `llama-imatrix`; the file appears when it is complete.

    Raises:
        StoreError: the folder cannot be written to.
    """
    import numpy as np
    from gguf import GGUFWriter

    with replacing(path) as temporary:
        writer = GGUFWriter(temporary, "")
        writer.kv_data[0].clear()  # no architecture: it is not a model
        writer.add_string("general.type", "imatrix")
        writer.add_array(_DATASETS, list(matrix.datasets) or [""])
        writer.add_uint32(_CHUNK_COUNT, matrix.chunk_count)
        writer.add_uint32(_CHUNK_SIZE, matrix.chunk_size)
        for name, entry in sorted(matrix.entries.items()):
            writer.add_tensor(name + _SUMS, entry.sums)
            writer.add_tensor(name + _COUNTS, np.ascontiguousarray(entry.counts[:, None]))
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()


def read_imatrix(path: Path) -> ImportanceMatrix:
    """Read a file that `write_imatrix` or `llama-imatrix` wrote.

    Raises:
        ModelFileError: not an importance matrix in GGUF form, or damaged.
    """
    header = _checked_header(path)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    sums = {name.removesuffix(_SUMS): _read_tensor(header, name) for name in tensors if name.endswith(_SUMS)}
    counts = {name.removesuffix(_COUNTS): _read_tensor(header, name) for name in tensors if name.endswith(_COUNTS)}
    if not sums or sums.keys() != counts.keys():
        odd = sorted(sums.keys() ^ counts.keys())
        raise _damaged(path, f"sums or counts of {odd[0]} are missing" if odd else "it is empty")
    entries = {name: _entry(path, name, sums[name], counts[name]) for name in sums}
    return ImportanceMatrix(
        entries,
        tuple(str(text) for text in read_array(header, _DATASETS) if text),
        _number(header, _CHUNK_COUNT),
        _number(header, _CHUNK_SIZE),
    )


def _checked_header(path: Path) -> GgufHeader:
    try:
        header = read_header(path)
    except ModelFileError as error:
        raise ModelFileError(
            f"{path.name} is no importance matrix: {error.message}",
            hint="Older .dat files are converted by `llama-imatrix --in-file FILE -o FILE.gguf`.",
        ) from error
    if header.metadata.get("general.type") != "imatrix":
        raise ModelFileError(
            f"{path.name} is a GGUF file, but not an importance matrix", hint="Compute one: --imatrix."
        )
    return header


def _read_tensor(header: GgufHeader, name: str) -> NDArray[np.float32]:
    """Return a tensor of shape [rows, columns]."""
    import numpy as np

    tensor = next(tensor for tensor in header.tensors if tensor.name == name)
    if tensor.type_id != _F32:
        raise _damaged(header.path, f"{name} is not F32")
    with header.path.open("rb") as file:
        file.seek(header.data_offset + tensor.offset)
        data = np.frombuffer(file.read(tensor.size_bytes), dtype="<f4")
    return data.reshape(-1, tensor.shape[0]).astype(np.float32)


def _entry(path: Path, name: str, sums: NDArray[np.float32], counts: NDArray[np.float32]) -> Importance:
    import numpy as np

    counts = counts.ravel()
    if len(counts) not in (1, len(sums)):
        raise _damaged(path, f"{len(counts)} counts for {len(sums)} matrices of {name}")
    if not (np.isfinite(sums).all() and np.isfinite(counts).all() and (sums >= 0).all() and (counts >= 0).all()):
        raise _damaged(path, f"{name} has values that no sum of squares can have")
    return Importance(sums, counts)


def _number(header: GgufHeader, key: str) -> int:
    value = header.metadata.get(key, 0)
    return value if isinstance(value, int) else 0


def _damaged(path: Path, what: str) -> ModelFileError:
    return ModelFileError(f"the importance matrix {path.name} is damaged: {what}", hint="Compute it again: --imatrix.")


def _packed(texts: Iterable[Sequence[int]], chunk_tokens: int) -> Iterator[list[Sequence[int]]]:
    """Yield lists of texts that are computed together: up to `chunk_tokens` tokens in `MAX_SEQUENCES` texts."""
    batch: list[Sequence[int]] = []
    room = chunk_tokens
    for text in texts:
        tokens = text[:chunk_tokens]
        if not tokens:
            continue
        if len(tokens) > room or len(batch) == MAX_SEQUENCES:
            yield batch
            batch, room = [], chunk_tokens
        batch.append(tokens)
        room -= len(tokens)
    if batch:
        yield batch


class _Collector:
    """Sums what enters matrix products; C calls it once per node before and once after computing it."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._graph = GraphReader()
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._counts: dict[str, NDArray[np.float64]] = {}
        self._kept_at = time.monotonic()
        self.failure: BaseException | None = None

    def __call__(self, address: int, is_question: bool, user_data: object) -> bool:
        """Answer whether the node is wanted, or take its inputs; False ends the computation."""
        try:
            product = self._graph.product(address)
            if product is None or not _is_wanted(product):
                return False
            if not is_question:
                self._take(product)
        except BaseException as error:  # ctypes would print it and go on, with Ctrl-C too
            self.failure = error
            return False
        return True

    def take_over(self, path: Path | None, batches: Sequence[Sequence[Sequence[int]]]) -> int:
        """Go on with sums of the same texts; returns how many batches are in them."""
        state = imatrix_state.read(path, batches) if path is not None else None
        if state is None:
            return 0
        self._sums, self._counts = state.sums, state.counts
        return state.n_batches

    def keep(self, path: Path | None, batches: Sequence[Sequence[Sequence[int]]], n_batches: int) -> None:
        """Write the sums, now and then."""
        if path is None or time.monotonic() - self._kept_at < KEEP_S:
            return
        imatrix_state.write(path, batches, imatrix_state.State(self._sums, self._counts, n_batches))
        self._kept_at = time.monotonic()

    def entries(self) -> dict[str, Importance]:
        """Return the sums so far."""
        import numpy as np

        return {
            name: Importance(sums.astype(np.float32), self._counts[name].astype(np.float32))
            for name, sums in self._sums.items()
        }

    def _take(self, product: MatrixProduct) -> None:
        import numpy as np

        outer, middle, _, n_columns = product.weight_shape
        n_matrices = outer * middle
        name = product.weight_name
        sums = self._sums.setdefault(name, np.zeros((n_matrices, n_columns)))
        counts = self._counts.setdefault(name, np.zeros(n_matrices if product.expert_ids is not None else 1))
        if product.expert_ids is not None:
            _add_experts(product, sums, counts)
        else:
            _add_matrices(product, sums, counts)
        if not np.isfinite(sums).all():
            raise ModelFileError(
                f"{self._model_name} computes something that is not a number before {name}",
                hint="Its weights are damaged: `hymt convert verify` tells more.",
            )


def _is_wanted(product: MatrixProduct) -> bool:
    if product.expert_ids is not None:
        return True
    return product.weight_name.startswith("blk.") and product.n_rows >= _SMALLEST_BATCH


def _add_matrices(product: MatrixProduct, sums: NDArray[np.float64], counts: NDArray[np.float64]) -> None:
    assert product.inputs is not None
    outer, middle, _, _ = product.weight_shape
    for i3, block in enumerate(product.inputs):
        for i2, rows in enumerate(block):
            sums[i3 % outer * middle + i2 % middle] += _squares(rows)
    counts += product.inputs.size // product.inputs.shape[3] // len(sums)


def _add_experts(product: MatrixProduct, sums: NDArray[np.float64], counts: NDArray[np.float64]) -> None:
    assert product.inputs is not None
    assert product.expert_ids is not None
    tokens = product.inputs[0]  # [n_tokens, 1 or n_used, n_columns]
    for place in range(product.expert_ids.shape[1]):
        chosen = product.expert_ids[:, place]
        rows = tokens[:, place % tokens.shape[1]]
        for expert in set(chosen.tolist()):
            mine = rows[chosen == expert]
            sums[expert] += _squares(mine)
            counts[expert] += len(mine)


def _squares(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the sum of squares of each column."""
    import numpy as np

    sums: NDArray[np.float64] = np.square(rows, dtype=np.float64).sum(axis=0)
    return sums
