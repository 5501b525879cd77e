"""Compare our quantization with llama.cpp's `llama-quantize`, byte by byte, with and without an importance matrix.

Run `python -m tests.bench.stock_quantizer FOLDER_OF_LLAMA_QUANTIZE [SOURCE.gguf]`; both must be of one build of
llama.cpp. Without a source, a toy is converted. The matrix is one of ours, so that its form is tried, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.imatrix import compute_imatrix, write_imatrix
from hymt_convert.quantize import NEEDS_IMATRIX, quantize_file, tensor_type_rule
from hymt_convert.verify import read_file_facts
from hymt_local.engine.gguf_file import read_header
from tests.convert import toy_checkpoint as toy

TYPES = (
    "Q8_0", "Q6_K", "Q5_K_M", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_0", "IQ4_XS", "IQ4_NL", "Q3_K_M", "IQ3_M", "IQ3_XXS",
    "Q2_K", "IQ2_M", "IQ2_XXS", "IQ1_M",
)  # fmt: skip
RULE = "attn_v=q8_0"
SHAPE = toy.Shape(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, head_dim=64)


def toy_file(folder: Path) -> Path:
    toy.write_checkpoint(folder / "toy", SHAPE)
    return convert(ConversionRequest(folder / "toy", folder, ("F32",), name="toy")).files[0].path


def write_matrix(source: Path, target: Path) -> Path:
    """Read numbers with the model: whatever its vocabulary is, it has these tokens."""
    texts = [[3 + (7 * place + 31 * number) % 250 for place in range(60)] for number in range(8)]
    write_imatrix(target, compute_imatrix(source, lambda model: texts, dataset="numbers"))
    return target


def unequal_tensors(ours: Path, theirs: Path) -> Iterator[str]:
    """Yield the tensors whose type, shape or bytes differ."""
    one, other = read_header(ours), read_header(theirs)
    if {t.name for t in one.tensors} != {t.name for t in other.tensors}:
        yield "the list of tensors"
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


def compare(program: Path, source: Path, folder: Path, kind: str, *, options: list[str], matrix: Path | None) -> bool:
    ours, theirs = folder / "ours.gguf", folder / "theirs.gguf"
    rules = tuple(tensor_type_rule(text) for text in options)
    arguments = [*(["--imatrix", matrix.name] if matrix else []), *(f"--tensor-type={text}" for text in options)]
    arguments = [part for text in arguments for part in text.split("=", 1)] if options else arguments
    subprocess.run(
        [program, *arguments, source.resolve(), theirs.resolve(), kind], cwd=folder, check=True, capture_output=True
    )
    quantize_file(source, ours, kind, imatrix=matrix, rules=rules)
    unequal = list(unequal_tensors(ours, theirs))
    is_whole_file = ours.read_bytes() == theirs.read_bytes()
    count, how = len(read_file_facts(ours).tensor_types), " with a matrix" if matrix else ""
    what = " ".join([source.name, kind + how, *options])
    verdict = "file equal" if is_whole_file else f"file differs in {unequal or 'its header'}"
    print(f"{what}: {count - len(unequal)} of {count} tensors equal, {verdict}")
    return is_whole_file


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("source", type=Path, nargs="?")
    parser.add_argument("--types", default=",".join(TYPES))
    arguments = parser.parse_args()
    program = arguments.folder.resolve() / "llama-quantize"
    equal = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = (arguments.source or toy_file(folder)).resolve()
        matrix = write_matrix(source, folder / "matrix.gguf")
        for kind in arguments.types.split(","):
            if kind not in NEEDS_IMATRIX:
                equal.append(compare(program, source, folder, kind, options=[], matrix=None))
            equal.append(compare(program, source, folder, kind, options=[], matrix=matrix))
        equal.append(compare(program, source, folder, "Q4_K_M", options=[RULE], matrix=matrix))
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
