"""Unquantized copies of model files, for tests that need a reference for a file that exists quantized only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

_LEFT_OUT = ("general.architecture", "general.file_type", "general.quantization_version")


def write_unquantized(source: Path, target: Path) -> Path:
    """Write an F32 file with the same header and the values that the weights of `source` stand for."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in _LEFT_OUT:
            continue
        if field.types[0] == GGUFValueType.ARRAY:
            writer.add_array(key, field.contents())
        else:
            writer.add_key_value(key, field.contents(), field.types[0])
    writer.add_file_type(0)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
