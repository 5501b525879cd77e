"""Compare our converter with llama.cpp's own, tensor by tensor and key by key, on toy checkpoints.

Run `python -m tests.bench.stock_converter FOLDER_OF_LLAMA_CPP [--write]`; it needs the sources of llama.cpp (a source
distribution of llama-cpp-python carries them), torch and transformers. `--write` renews the golden files from which
`tests/convert/test_stock_converter.py` checks the table in `convert/README.md`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFReader

from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.verify import read_file_facts, read_metadata
from hymt_local.catalog import Catalog
from tests.convert import toy_checkpoint as toy
from tests.convert import toy_moe

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "convert"
SOURCE_ID = "tencent/Toy@0123456789abcdef0123456789abcdef01234567"
_CHILD = """
import runpy, sys
root, *arguments = sys.argv[1:]
sys.path[:0] = [root, root + "/gguf-py"]
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: "hunyuan"  # the toy's tokenizer is not on its list
sys.argv = ["convert_hf_to_gguf.py", *arguments]
runpy.run_path(root + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def write_dense(folder: Path) -> None:
    """A folder like the published 7B ones, decoys and repeated head included."""
    shape = toy.Shape(max_position_embeddings=32768)  # the stock converter asserts this or 262144
    weights = toy.write_checkpoint(folder, shape, dtype="BF16")
    repeated = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
    toy.write_safetensors(folder / "model.safetensors", repeated, dtype="BF16")
    _write_other_files(folder)


def write_moe(folder: Path) -> None:
    """A folder like the published 30B one."""
    toy_moe.write_checkpoint(folder, dtype="BF16")
    _write_other_files(folder)


def _write_other_files(folder: Path) -> None:
    toy.edit_json(
        folder / "tokenizer_config.json", eos_token=toy.CONTROL_TOKENS[2], tokenizer_class="PreTrainedTokenizerFast"
    )
    ends = [toy.EOS, toy.TURN_END]
    sampling = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.6, "repetition_penalty": 1.05}
    toy.write_json(folder / "generation_config.json", {"eos_token_id": ends, "pad_token_id": toy.PAD, **sampling})


TOYS: Mapping[str, Callable[[Path], None]] = {"hunyuan-dense": write_dense, "hy_v3": write_moe}


def our_file(folder: Path, output_folder: Path, float_type: str) -> Path:
    """Convert with all that a user may say."""
    request = ConversionRequest(
        folder, output_folder, (float_type,), name="Toy", source_id=SOURCE_ID, licence="apache-2.0", catalog=Catalog(())
    )
    return convert(request).files[0].path


def header_of(path: Path) -> dict[str, object]:
    """Return the header with long arrays replaced by their length and digest."""
    return {key: _short(value) for key, value in read_metadata(path).items()}


def _short(value: object) -> object:
    if isinstance(value, float):
        return float(np.float32(value))
    if isinstance(value, list) and len(value) > 8:
        return f"{len(value)} values, sha256 {hashlib.sha256(repr(value).encode()).hexdigest()[:16]}"
    return value


def _stock_file(llama_cpp: Path, folder: Path, output_folder: Path, float_type: str) -> Path:
    path = output_folder / f"stock-{float_type}.gguf"
    arguments = [str(folder), "--outfile", str(path), "--outtype", float_type.lower()]
    subprocess.run([sys.executable, "-c", _CHILD, str(llama_cpp), *arguments], check=True, stdout=subprocess.DEVNULL)
    return path


def _unequal_tensors(first: Path, second: Path) -> list[str]:
    one, other = ({t.name: t for t in GGUFReader(path).tensors} for path in (first, second))
    unequal = sorted(one.keys() ^ other.keys())
    for name in one.keys() & other.keys():
        same_type = one[name].tensor_type == other[name].tensor_type
        if not same_type or np.asarray(one[name].data).tobytes() != np.asarray(other[name].data).tobytes():
            unequal.append(name)
    return unequal


def _compare(name: str, llama_cpp: Path, folder: Path, *, write: bool) -> bool:
    TOYS[name](folder / "toy")
    is_equal = True
    for float_type in ("F32", "F16", "BF16"):
        ours, stock = (
            our_file(folder / "toy", folder, float_type),
            _stock_file(llama_cpp, folder / "toy", folder, float_type),
        )
        unequal = _unequal_tensors(ours, stock)
        count = len(read_file_facts(ours).tensor_types)
        print(f"{name} {float_type}: {count - len(unequal)} of {count} tensors equal {unequal or ''}")
        is_equal &= not unequal
    facts = read_file_facts(stock)
    theirs = header_of(stock)
    golden = {
        "header": theirs,
        "tensors": {n: [k, facts.tensor_shapes[n]] for n, k in facts.tensor_types.items()},
    }
    if write:
        GOLDEN.mkdir(parents=True, exist_ok=True)
        text = json.dumps(golden, ensure_ascii=False, indent=1)
        (GOLDEN / f"stock-{name}.json").write_text(text + "\n", encoding="utf-8")
    mine = header_of(ours)
    for key in sorted(mine.keys() | theirs.keys()):
        if mine.get(key) != theirs.get(key):
            print(f"  {key}: stock {theirs.get(key)!r:.70}, ours {mine.get(key)!r:.70}")
    return is_equal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("--write", action="store_true", help="renew the golden files")
    arguments = parser.parse_args()
    equal = []
    for name in TOYS:
        with tempfile.TemporaryDirectory() as folder:
            equal.append(_compare(name, arguments.llama_cpp, Path(folder), write=arguments.write))
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
