"""Headers of ``.safetensors`` files: which tensor lies where, checked before a byte of it is used.

The layout (https://huggingface.co/docs/safetensors): a little-endian u64, the length of a JSON object; the object
(name → dtype, shape, data_offsets relative to its end), then the tensors without gaps. Read here rather than through
the ``safetensors`` package, which maps whole files: a checkpoint of 3 GB shall be streamed through a buffer of bounded
size. A test holds both readers equal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from pipelines.base.errors import CheckpointError

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]

DTYPE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2,
    "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip
FLOAT_DTYPES = ("F32", "F16", "BF16")  # what weights may be
MAX_HEADER_BYTES = 100_000_000  # the format's own bound
_ALIGN = 8
_PART_BYTES = 512 << 10  # read at once for a visitor: small enough for a core's own cache


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies: ``offset`` and ``size_bytes`` in ``file``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    size_bytes: int


def read_header(path: Path) -> dict[str, TensorInfo]:
    """All tensors of a file. CheckpointError names the file, and the tensor where it is one tensor's fault."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            prefix = stream.read(8)
            if len(prefix) < 8:
                raise CheckpointError(f"{path}: {size} bytes are too few for a safetensors file")
            length = int.from_bytes(prefix, "little")
            if length > min(MAX_HEADER_BYTES, size - 8):
                raise CheckpointError(
                    f"{path}: its header would take {length} bytes, the file has {size}",
                    hint="the file is truncated, or no safetensors file",
                )
            raw = stream.read(length)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    try:
        entries = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: header is not JSON: {error}") from error
    if not isinstance(entries, dict):
        raise CheckpointError(f"{path}: header is not a JSON object")
    entries.pop("__metadata__", None)
    tensors = {name: _entry(path, name, entry, 8 + length, size) for name, entry in entries.items()}
    _check_cover(path, tensors.values(), 8 + length, size)
    return tensors


def _entry(path: Path, name: str, entry: object, begin: int, file_bytes: int) -> TensorInfo:
    where = f"{path}: tensor '{name}'"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where}: its entry must have dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in DTYPE_BYTES:
        raise CheckpointError(f"{where}: unknown dtype {dtype!r}")
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{where}: shape or data_offsets are not lists of natural numbers")
    first, last = offsets
    wanted = math.prod(shape) * DTYPE_BYTES[dtype]
    if last - first != wanted:
        raise CheckpointError(f"{where}: {dtype} {shape} takes {wanted} bytes, data_offsets span {last - first}")
    if begin + last > file_bytes:
        raise CheckpointError(
            f"{where}: ends at byte {begin + last}, the file has {file_bytes}",
            hint="the file is truncated; fetch it again",
        )
    return TensorInfo(name, dtype, tuple(shape), path, begin + first, wanted)


def _naturals(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in value)


def _check_cover(path: Path, tensors: Iterable[TensorInfo], begin: int, file_bytes: int) -> None:
    """Tensors must follow each other without gap or overlap up to the file's end."""
    at = begin
    for tensor in sorted(tensors, key=lambda t: (t.offset, t.size_bytes)):
        if tensor.offset != at:
            raise CheckpointError(f"{path}: tensor '{tensor.name}' begins at byte {tensor.offset}, expected {at}")
        at += tensor.size_bytes
    if at != file_bytes:
        raise CheckpointError(f"{path}: {file_bytes - at} bytes behind the last tensor")


def read_into(stream: FileIO, buffer: memoryview, what: str) -> None:
    """Fills ``buffer`` from the stream's position; CheckpointError if the file ends before."""
    done = 0
    while done < len(buffer):
        count = stream.readinto(buffer[done:])
        if not count:
            raise CheckpointError(f"{what}: the file became shorter while it was read")
        done += count


Visit = Callable[[F32], None]
"""Called with float32[n], the next weights of a tensor in file order; n is a multiple of 16 but for the last."""


def read_rows(info: TensorInfo, start: int, stop: int, buffer: U8 | None = None, visit: Visit | None = None) -> F32:
    """Rows ``start`` to ``stop`` (first axis) as float32; the caller has checked that the dtype is a float one.

    ``buffer`` (uint8, large enough) is read into when given, and float32 results are views of it: reusing it saves the
    page faults of fresh memory, which cost more than the reading. ``visit`` sees the weights while they come, which
    saves fetching them from memory once more.
    """
    row = math.prod(info.shape[1:])
    unit = DTYPE_BYTES[info.dtype]
    size = (stop - start) * row * unit
    raw = np.empty(size, dtype=np.uint8) if buffer is None else buffer[:size]
    try:
        with info.file.open("rb", buffering=0) as stream:
            stream.seek(info.offset + start * row * unit)
            step = _PART_BYTES if visit is not None else max(1, size)
            for at in range(0, size, step):
                part = raw[at : at + step]
                read_into(stream, memoryview(part.data), f"{info.file}: tensor '{info.name}'")
                if visit is not None and info.dtype == "F32":
                    visit(_to_float32(part, info.dtype))
    except OSError as error:
        raise CheckpointError(f"{info.file}: tensor '{info.name}': {error.strerror or error}") from error
    values = _to_float32(raw, info.dtype)
    if visit is not None and info.dtype != "F32":
        visit(values)
    return values.reshape(stop - start, *info.shape[1:])


def _to_float32(raw: npt.NDArray[np.uint8], dtype: str) -> F32:
    if dtype == "F32":
        return raw.view("<f4").astype(np.float32, copy=False)
    if dtype == "F16":
        return raw.view("<f2").astype(np.float32)
    if dtype == "BF16":  # the upper half of a float32
        return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    raise CheckpointError(f"dtype {dtype} is not one of {', '.join(FLOAT_DTYPES)}")


def write_stream(
    stream: IO[bytes], tensors: list[tuple[str, tuple[int, ...]]], parts: Iterator[F32], metadata: dict[str, str]
) -> None:
    """Writes float32 tensors of known names and shapes, whose values come in any number of parts, in order."""
    entries: dict[str, object] = {"__metadata__": metadata}
    at = 0
    for name, shape in tensors:
        size = math.prod(shape) * 4
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGN)
    stream.write(len(header).to_bytes(8, "little") + header)
    written = 0
    for part in parts:
        stream.write(np.ascontiguousarray(part, dtype="<f4").data)
        written += part.size * 4
    if written != at:
        raise ValueError(f"{written} bytes of tensors were given, {at} announced")
