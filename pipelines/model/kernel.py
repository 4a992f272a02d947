"""The hot loops of packing: in C (``kernel.c``, compiled when needed), and the same in numpy.

Both give the same bits; a test holds them equal. Without a compiler packing is slower and nothing else changes.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolFailed, ToolMissing
from pipelines.golden import ternary
from pipelines.golden.formats import MAX_ROW_LENGTH, WORD_BYTES, words_for_row

F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]

SOURCE = Path(__file__).with_name("kernel.c")
FLAGS = ("-O3", "-march=native", "-std=c11", "-shared", "-fPIC", "-ffp-contract=off", "-fno-fast-math", "-g0")
COMPILE_S = 300.0  # zig's first run builds its own library


class Kernel(ABC):
    """The loops over weights."""

    name: str

    @abstractmethod
    def abs_sum(self, weights: F32, lanes: F64) -> None:
        """Adds |W| to float64[16] ``lanes``, as ``ternary.absmean`` does before the lanes are added pairwise.

        A matrix may come in parts; every part but the last must have a multiple of sixteen weights.
        """

    @abstractmethod
    def pack(self, weights: F32, inverse: np.float32, out: U8) -> None:
        """Rounds and packs float32[rows, n] into ``out`` uint8[rows, 8 * ceil(n / 40)]."""

    @abstractmethod
    def to_half(self, values: F32, out: F16) -> bool:
        """Rounds float32 to float16 of the same shape; whether all of it is finite there."""


class NumpyKernel(Kernel):
    name = "numpy"

    def abs_sum(self, weights: F32, lanes: F64) -> None:
        flat = np.abs(weights.reshape(-1))
        full = flat.size // ternary.MEAN_LANES * ternary.MEAN_LANES
        block = ternary.MEAN_LANES << 16
        for start in range(0, full, block):
            rows = flat[start : min(start + block, full)].reshape(-1, ternary.MEAN_LANES).astype(np.float64)
            rows[0] += lanes
            lanes[...] = np.add.accumulate(rows, axis=0)[-1]
        lanes[: flat.size - full] += flat[full:]

    def pack(self, weights: F32, inverse: np.float32, out: U8) -> None:
        scaled = np.minimum(np.maximum(weights * inverse, np.float32(-1)), np.float32(1))
        out[...] = ternary.pack_rows(np.rint(scaled).astype(np.int8))

    def to_half(self, values: F32, out: F16) -> bool:
        with np.errstate(over="ignore"):
            out[...] = values
        return bool(np.isfinite(out).all())


class CompiledKernel(Kernel):
    """``kernel.c`` as a shared library."""

    name = "C"

    def __init__(self, library: Path) -> None:
        loaded = ctypes.CDLL(str(library))
        self._abs_sum, self._pack = loaded.tf_abs_sum, loaded.tf_pack_rows
        pointer = ctypes.c_void_p
        self._abs_sum.argtypes = [pointer, ctypes.c_size_t, pointer]
        self._abs_sum.restype = None
        self._pack.argtypes = [pointer, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_float, pointer, ctypes.c_size_t]
        self._pack.restype = None
        self._to_half = loaded.tf_to_half
        self._to_half.argtypes = [pointer, ctypes.c_size_t, pointer]
        self._to_half.restype = ctypes.c_size_t

    def abs_sum(self, weights: F32, lanes: F64) -> None:
        if lanes.shape != (ternary.MEAN_LANES,) or lanes.dtype != np.float64 or not lanes.flags.c_contiguous:
            raise ValueError("abs_sum: lanes must be float64[16]")
        weights = np.ascontiguousarray(weights, dtype=np.float32)
        self._abs_sum(weights.ctypes.data, weights.size, lanes.ctypes.data)

    def pack(self, weights: F32, inverse: np.float32, out: U8) -> None:
        rows, columns = weights.shape
        row_bytes = words_for_row(columns) * WORD_BYTES
        if not 1 <= columns <= MAX_ROW_LENGTH or out.shape != (rows, row_bytes) or not out.flags.c_contiguous:
            raise ValueError(f"pack: {weights.shape} does not go into {out.shape}")
        weights = np.ascontiguousarray(weights, dtype=np.float32)
        self._pack(weights.ctypes.data, rows, columns, float(inverse), out.ctypes.data, row_bytes)

    def to_half(self, values: F32, out: F16) -> bool:
        if out.shape != values.shape or out.dtype != np.float16 or not out.flags.c_contiguous:
            raise ValueError("to_half: out must be float16 of the same shape")
        values = np.ascontiguousarray(values, dtype=np.float32)
        return int(self._to_half(values.ctypes.data, values.size, out.ctypes.data)) == 0


def compiled(deadline: Deadline, log: Path | None = None) -> Kernel:
    """Compiles ``kernel.c`` with the pinned compiler. ToolMissing or ToolFailed when that cannot be done."""
    with tempfile.TemporaryDirectory(prefix="tritforge-kernel-") as folder:
        library = Path(folder) / "kernel.so"
        command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, "-o", str(library), str(SOURCE), "-lm"]
        run_tool(command, deadline=deadline.at_most(COMPILE_S), log=log)
        return CompiledKernel(library)  # stays loaded after the file is gone


def best(deadline: Deadline, log: Path | None = None) -> Kernel:
    """The compiled kernel, or numpy's where there is no compiler."""
    try:
        return compiled(deadline, log)
    except (ToolMissing, ToolFailed):
        return NumpyKernel()
