"""A look at the nodes of ggml's compute graph, by the memory layout of llama-cpp-python 0.3.36 (ggml 0.25.3).

llama.cpp shows every node to a callback. The C structure behind it is no public interface, so its layout is checked
against the library's own functions before it is believed.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hymt_local.errors import EngineError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_F32, _I32 = 0, 26
_MUL_MAT, _MUL_MAT_ID = b"MUL_MAT", b"MUL_MAT_ID"


class _Tensor(ctypes.Structure):
    """`struct ggml_tensor`; dimensions and strides are innermost first."""


_Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * 4),
    ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(_Tensor) * 10),
    ("view_src", ctypes.c_void_p),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
    ("extra", ctypes.c_void_p),
    ("padding", ctypes.c_char * 8),
]


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """One product of a weight matrix with activations; valid inside the callback only."""

    weight_name: str
    weight_shape: tuple[int, int, int, int]
    """Of the matrix: [n3, n2, rows, columns]."""
    inputs: NDArray[np.float32] | None
    """Activations: shape [n3, n2, n_rows, n_columns]; None when they are not f32."""
    expert_ids: NDArray[np.int32] | None
    """For fused experts, which of them each input goes through: shape [n_tokens, n_used]."""

    @property
    def n_rows(self) -> int:
        """Rows of one activation matrix."""
        return 0 if self.inputs is None else int(self.inputs.shape[2])


class GraphReader:
    """Turns the address that a callback is given into a matrix product.

    Raises:
        EngineError: this build of ggml lays its structures out in another way.
    """

    def __init__(self) -> None:
        import llama_cpp
        from llama_cpp._ctypes_extensions import load_shared_library

        folder = Path(llama_cpp.__file__).parent / "lib"
        self._lib: Any = load_shared_library("ggml-base", folder)
        self._lib.ggml_op_name.restype = self._lib.ggml_get_name.restype = ctypes.c_char_p
        self._lib.ggml_get_name.argtypes = self._lib.ggml_nbytes.argtypes = [ctypes.c_void_p]
        self._lib.ggml_nbytes.restype = self._lib.ggml_tensor_overhead.restype = ctypes.c_size_t
        self._is_checked = False
        self.op_name = functools.cache(self._op_name)

    def product(self, address: int) -> MatrixProduct | None:
        """Return the product at an address, None when the node is another operation."""
        node = _Tensor.from_address(address)
        if not self._is_checked:
            self._check(address, node)
        operation = self.op_name(node.op)
        if operation not in (_MUL_MAT, _MUL_MAT_ID):
            return None
        weight, inputs = node.src[0].contents, node.src[1].contents
        ids = _array(node.src[2].contents)[0, 0] if operation == _MUL_MAT_ID else None
        return MatrixProduct(
            weight_name=_plain_name(weight.name),
            weight_shape=(weight.ne[3], weight.ne[2], weight.ne[1], weight.ne[0]),
            inputs=_array(inputs) if inputs.type == _F32 else None,
            expert_ids=ids,
        )

    def _op_name(self, operation: int) -> bytes:
        return bytes(self._lib.ggml_op_name(operation))

    def _check(self, address: int, node: _Tensor) -> None:
        same_name = self._lib.ggml_get_name(address) == node.name
        expected = node.ne[0] * node.ne[1] * node.ne[2] * node.ne[3] * 4
        same_size = node.type not in (_F32, _I32) or self._lib.ggml_nbytes(address) >= expected
        if not (same_name and same_size and node.nb[0] in range(1, 1 << 16)):
            raise EngineError("this llama.cpp lays out its graph in an unknown way", hint="Install hymt-local again.")
        self._is_checked = True


def _array(tensor: Any) -> NDArray[Any]:
    """Return a view of a tensor in memory, outermost dimension first."""
    import numpy as np

    kind = np.dtype(np.float32 if tensor.type == _F32 else np.int32)
    shape, strides = tuple(tensor.ne)[::-1], tuple(tensor.nb)[::-1]
    if tensor.type not in (_F32, _I32) or tensor.nb[0] != kind.itemsize or not tensor.data:
        raise EngineError(f"llama.cpp keeps {_plain_name(tensor.name)} where it cannot be read")
    n_bytes = sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True)) + kind.itemsize
    memory = (ctypes.c_char * n_bytes).from_address(tensor.data)
    return np.ndarray(shape, kind, buffer=memory, strides=strides)


def _plain_name(name: bytes) -> str:
    """Return `blk.0.attn_k.weight` for `CPU#blk.0.attn_k.weight#0`, as the scheduler calls its copies."""
    text = name.decode("utf-8", "replace")
    return text.split("#")[1] if "#" in text else text
