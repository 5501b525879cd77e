"""Compare our quantization with `llama-quantize`, byte by byte, and our importance matrices with `llama-imatrix`.

Run `python -m tests.bench.stock_quantizer FOLDER_OF_THE_PROGRAMS [SOURCE.gguf] [--types Q4_K_M,IQ2_M]`; they must be of
the build of llama.cpp that llama-cpp-python has. Without a source, a dense toy and a mixture of experts are converted.
Each type is made without a matrix, with ours and with that of `llama-imatrix`, so that both forms of file are tried.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.imatrix import compute_imatrix, read_imatrix, write_imatrix
from hymt_convert.passages import Tokenizer, all_texts
from hymt_convert.quantize import FILE_TYPES, NEEDS_IMATRIX, quantize_file, tensor_type_rule
from hymt_convert.verify import read_file_facts
from hymt_local.engine.gguf_file import read_header
from tests.convert import toy_checkpoint as toy
from tests.convert import toy_moe

RULE = "attn_v=q8_0"
DENSE = toy.Shape(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, head_dim=64)
EXPERTS = toy_moe.MoeShape(hidden_size=256, intermediate_size=512, moe_intermediate_size=256, head_dim=64)
EXPERTS_ONLY = ("MXFP4_MOE",)
"""Types that the quantizer has for experts only."""
CHUNK_TOKENS, N_CHUNKS = 128, 16
SAME_SUMS = 1e-4
"""Of the largest sum of a matrix: llama-imatrix adds up in single precision."""


def toy_files(folder: Path) -> list[Path]:
    toy.write_checkpoint(folder / "dense", DENSE)
    toy_moe.write_checkpoint(folder / "experts", EXPERTS)
    requests = [ConversionRequest(folder / name, folder, ("F32",)) for name in ("dense", "experts")]
    return [convert(request).files[0].path for request in requests]


def write_matrices(programs: Path, source: Path, folder: Path) -> tuple[Path, Path]:
    """Read one text with both programs and return both matrices."""
    text = "\n".join(all_texts())
    ours, theirs = folder / "ours.imatrix.gguf", folder / "theirs.imatrix.gguf"

    def chunks(tokenizer: Tokenizer) -> list[list[int]]:
        tokens = tokenizer.tokenize(text)
        return [tokens[start : start + CHUNK_TOKENS] for start in range(0, CHUNK_TOKENS * N_CHUNKS, CHUNK_TOKENS)]

    write_imatrix(ours, compute_imatrix(source, chunks, dataset="text.txt", chunk_tokens=CHUNK_TOKENS))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    size, number = str(CHUNK_TOKENS), str(N_CHUNKS)
    options = ["-c", size, "-b", size, "-ub", size, "--chunks", number, "--no-ppl", "-fa", "off"]
    precise = ["-ctk", "f32", "-ctv", "f32"]
    command: list[str | Path] = [
        programs / "llama-imatrix",
        "-m",
        source,
        "-f",
        "text.txt",
        "-o",
        theirs,
        *options,
        *precise,
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return ours, theirs


def compare_matrices(source: Path, first: Path, second: Path) -> bool:
    """Tell how far the sums of two matrices are apart, of the largest sum of each weight matrix."""
    one, other = read_imatrix(first), read_imatrix(second)
    if one.entries.keys() != other.entries.keys():
        print(f"{source.name} importance matrix: other weights than llama-imatrix")
        return False
    apart, is_counted_alike = 0.0, True
    for name, entry in one.entries.items():
        theirs = other.entries[name]
        apart = max(apart, float(np.abs(entry.sums - theirs.sums).max() / theirs.sums.max()))
        is_counted_alike &= bool(np.array_equal(entry.counts, theirs.counts))
    counts = "same counts" if is_counted_alike else "OTHER COUNTS"
    print(f"{source.name} importance matrix: {len(one.entries)} weights, {counts}, sums within {apart:.1e}")
    return is_counted_alike and apart < SAME_SUMS


def unequal_tensors(ours: Path, theirs: Path) -> Iterator[str]:
    """Yield the tensors whose type, shape or bytes differ."""
    one, other = read_header(ours), read_header(theirs)
    if {t.name for t in one.tensors} != {t.name for t in other.tensors}:
        yield "the list of tensors"
        return
    rows = {tensor.name: tensor for tensor in other.tensors}
    for tensor in one.tensors:
        row = rows[tensor.name]
        is_same = (tensor.type_id, tensor.shape, tensor.size_bytes) == (row.type_id, row.shape, row.size_bytes)
        first = _data(ours, one.data_offset + tensor.offset, tensor.size_bytes)
        if not is_same or first != _data(theirs, other.data_offset + row.offset, row.size_bytes):
            yield tensor.name


def _data(path: Path, offset: int, size_bytes: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size_bytes)


def compare(programs: Path, source: Path, folder: Path, kind: str, *, rule: str = "", matrix: Path | None) -> bool:
    ours, theirs = folder / "ours.gguf", folder / "theirs.gguf"
    rules = (tensor_type_rule(rule),) if rule else ()
    options = [*(["--imatrix", matrix.name] if matrix else []), *(["--tensor-type", rule] if rule else [])]
    command: list[str | Path] = [programs / "llama-quantize", *options, source, theirs, kind]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    quantize_file(source, ours, kind, imatrix=matrix, rules=rules)
    unequal = list(unequal_tensors(ours, theirs))
    is_whole_file = ours.read_bytes() == theirs.read_bytes()
    count = len(read_file_facts(ours).tensor_types)
    what = " ".join([source.name, kind, *([f"with {matrix.name}"] if matrix else []), *([rule] if rule else [])])
    verdict = "file equal" if is_whole_file else f"file DIFFERS in {unequal or 'its header'}"
    print(f"{what}: {count - len(unequal)} of {count} tensors equal, {verdict}", flush=True)
    return is_whole_file


def compare_all(programs: Path, source: Path, folder: Path, types: Iterable[str]) -> Iterator[bool]:
    """Make every type of one source, and one with a rule."""
    matrices = write_matrices(programs, source, folder)
    yield compare_matrices(source, *matrices)
    is_sparse = "_exps" in " ".join(read_file_facts(source).tensor_types)
    for kind in types:
        if kind in EXPERTS_ONLY and not is_sparse:
            continue
        if kind not in NEEDS_IMATRIX:
            yield compare(programs, source, folder, kind, matrix=None)
        for matrix in matrices:
            yield compare(programs, source, folder, kind, matrix=matrix)
    yield compare(programs, source, folder, "Q4_K_M", rule=RULE, matrix=matrices[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("source", type=Path, nargs="?")
    parser.add_argument("--types", default=",".join(FILE_TYPES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = [arguments.source.resolve()] if arguments.source else toy_files(folder)
        programs, types = arguments.folder.resolve(), arguments.types.split(",")
        equal = [same for source in sources for same in compare_all(programs, source, folder, types)]
    print(f"{sum(equal)} of {len(equal)} comparisons equal")
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
