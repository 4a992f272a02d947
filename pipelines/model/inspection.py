"""What lies where in a packed image: every byte of its files has a name."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import FormatError, UsageError
from pipelines.golden import formats, ternary
from pipelines.golden.formats import GROUP_MATRICES, GROUPS, PARAMS_HEADER_BYTES, TRANSFER_ENTRY_BYTES, TransferEntry
from pipelines.model.image import EMBEDDING, PARAMS, WEIGHTS, Image, tables

_HEADER_FIELDS = (
    "magic", "formats version", "header size", "file size", "size of weights.tfs",
    "hidden", "ffn", "layers", "heads", "head_dim", "vocab", "context", "head planes",
    "transfers", "ports", "rms_eps", "bos", "eos", "max transfer bytes", "tau",
    "score shift", "size of embedding.f16", "flags", "reserved", "reserved", "crc32 of the file", "padding",
)  # fmt: skip
_ENTRY_FIELDS = tuple(TransferEntry.__dataclass_fields__)


@dataclass(frozen=True)
class Region:
    """A stretch of a file."""

    offset: int
    size_bytes: int
    what: str

    def json(self) -> dict[str, Any]:
        return {"offset": self.offset, "bytes": self.size_bytes, "what": self.what}


def regions(image: Image, file: str) -> Iterator[Region]:
    """The parts of one of the three packed files, in order and without gaps."""
    if file == WEIGHTS:
        yield from _weights(image)
    elif file == PARAMS:
        yield Region(0, PARAMS_HEADER_BYTES, "header")
        yield Region(PARAMS_HEADER_BYTES, len(image.entries) * TRANSFER_ENTRY_BYTES, "transfer table")
        for table in tables(image.shape, image.header.transfers):
            where = f"layer {table.layer}: " if table.layer >= 0 else ""
            yield Region(table.offset, table.size_bytes, f"{where}{table.name}, float32{list(table.shape)}")
    elif file == EMBEDDING:
        yield Region(0, image.header.embedding_bytes, f"float16[{image.shape.vocab}, {image.shape.hidden}]")
    else:
        raise UsageError(f"{file} is not a file of a packed image", hint=f"{WEIGHTS}, {PARAMS} or {EMBEDDING}")


def _weights(image: Image) -> Iterator[Region]:
    at = 0
    for number, entry in enumerate(image.entries):
        if entry.offset > at:
            yield Region(at, entry.offset - at, "gap up to the next 64 bytes")
        yield Region(entry.offset, entry.size_bytes, f"transfer {number}: {_transfer_name(image, entry)}")
        at = entry.offset + entry.size_bytes


def _transfer_name(image: Image, entry: TransferEntry) -> str:
    where = "head" if entry.layer == image.shape.layers else f"layer {entry.layer}, group {GROUPS[entry.group]}"
    last = entry.first_row + entry.rows - 1
    return (
        f"{where}, port {entry.port}, piece {entry.piece}, rows {entry.first_row} to {last} of {entry.row_length} trits"
        f"{', loads x' if entry.x_offset else ''}"
    )


def explain(image: Image, file: str, offset: int) -> list[str]:
    """What the byte at ``offset`` is, from the outside in. UsageError when the file has no such byte."""
    for region in regions(image, file):
        if region.offset <= offset < region.offset + region.size_bytes:
            lines = [f"{file} + {offset}: {region.what}"]
            within = offset - region.offset
            if file == WEIGHTS and region.what.startswith("transfer"):
                entry = next(e for e in image.entries if e.offset == region.offset)
                lines += _in_transfer(image, entry, within)
            elif file == PARAMS:
                lines += _in_params(image, region, within)
            elif file == EMBEDDING:
                row, column = divmod(within // 2, image.shape.hidden)
                lines.append(f"token {row}, element {column}: {float(image.embedding()[row, column])!r}")
            return lines
    size = max(region.offset + region.size_bytes for region in regions(image, file))
    raise UsageError(f"{file} ends at offset {size}; there is no byte at {offset}")


def _in_transfer(image: Image, entry: TransferEntry, within: int) -> list[str]:
    if within < formats.WORD_BYTES:
        return [f"byte {within} of the header word: rows {entry.rows}, row length {entry.row_length}"]
    x_bytes = formats.words_for_x(entry.row_length) * formats.WORD_BYTES if entry.x_offset else 0
    within -= formats.WORD_BYTES
    if within < x_bytes:
        return [f"x slot, entry {within} (zero in the file; the runtime writes x here)"]
    row, byte = divmod(within - x_bytes, formats.words_for_row(entry.row_length) * formats.WORD_BYTES)
    code = int(image.transfer(entry)[row, byte])
    first = byte * formats.TRITS_PER_BYTE
    group_row = entry.first_row + row
    return [
        f"row {row} of the transfer: {_matrix_row(image, entry, group_row)}",
        f"byte {byte} of the row, code {code}: trits {first} to {first + formats.TRITS_PER_BYTE - 1} ="
        f" {ternary.decode_table()[code].tolist()}" + (", padding" if first >= entry.row_length else ""),
    ]


def _matrix_row(image: Image, entry: TransferEntry, group_row: int) -> str:
    group = GROUPS[entry.group]
    if group == GROUPS[-1]:
        plane, token = divmod(group_row, image.shape.vocab)
        return f"plane {plane} of the head, token {token}"
    names = GROUP_MATRICES[group]
    each = image.shape.group_rows(group) // len(names)
    return f"row {group_row % each} of matrix {names[group_row // each]}"


def _in_params(image: Image, region: Region, within: int) -> list[str]:
    if region.what == "header":
        return [_field(formats.PARAMS_HEADER, _HEADER_FIELDS, image.params[:PARAMS_HEADER_BYTES], within)]
    if region.what == "transfer table":
        number, within = divmod(within, TRANSFER_ENTRY_BYTES)
        begin = PARAMS_HEADER_BYTES + number * TRANSFER_ENTRY_BYTES
        raw = image.params[begin : begin + TRANSFER_ENTRY_BYTES]
        entry = _transfer_name(image, image.entries[number])
        return [f"entry {number}: {entry}", _field(formats.TRANSFER_ENTRY, _ENTRY_FIELDS, raw, within)]
    index = within // 4
    value = np.frombuffer(image.params, "<f4", 1, region.offset + 4 * index)[0]
    return [f"element {index}: {float(value)!r}"]


def _field(layout: struct.Struct, names: tuple[str, ...], raw: bytes, within: int) -> str:
    """Name and value of the field of a packed struct that a byte belongs to."""
    codes = [c for c in _expanded(layout.format.lstrip("<"))]
    at = 0
    for code, name, value in zip(codes, names, layout.unpack(raw), strict=True):
        size = struct.calcsize("<" + code)
        if at <= within < at + size:
            return f"field '{name}' at {at}: {value!r}"
        at += size
    return "padding"


def _expanded(layout: str) -> Iterator[str]:
    """``8sI2Q`` as ``8s``, ``I``, ``Q``, ``Q``."""
    count = ""
    for letter in layout:
        if letter.isdigit():
            count += letter
        elif letter == "s":
            yield count + letter
            count = ""
        else:
            yield from [letter] * int(count or 1)
            count = ""


def open_for(path: Path) -> Image:
    """The image that a file belongs to. FormatError when its folder holds none."""
    if not path.exists():
        raise UsageError(f"{path}: no such file")
    folder = path if path.is_dir() else path.parent
    try:
        return Image.open(folder)
    except FormatError as error:
        raise FormatError(f"{folder} is not a sound image: {error.message}", hint=error.hint) from error
