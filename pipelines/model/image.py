"""The packed image: ``weights.tfs``, ``params.tfp``, ``embedding.f16`` and ``image.json``, as ``docs/formats.md`` says.

``ImageWriter`` writes group after group, so that a model is never in memory as a whole. ``Image.open`` believes
nothing: every byte of the four files is covered by a checksum or compared with what it must be, and a fault is a
FormatError that names file, offset and field.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from pipelines.base import files
from pipelines.base.errors import FormatError
from pipelines.golden import formats, rope, ternary
from pipelines.golden.attention import score_coefficient
from pipelines.golden.formats import (
    GROUP_MATRICES,
    GROUPS,
    HEAD_DIM,
    MATRICES,
    PARAMS_HEADER_BYTES,
    TRANSFER_ALIGN_BYTES,
    TRANSFER_ENTRY_BYTES,
    TRANSFER_LOADS_X,
    MatvecHeader,
    ParamsHeader,
    TransferEntry,
    port_rows,
    words_for_row,
    words_for_x,
)
from pipelines.golden.forward import GoldenLayer, GoldenModel, ModelShape

F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]

WEIGHTS, PARAMS, EMBEDDING, DESCRIPTION = "weights.tfs", "params.tfp", "embedding.f16", "image.json"
PACKED_FILES = (WEIGHTS, PARAMS, EMBEDDING)
DESCRIPTION_FORMAT = 1

HEAD_SCALES = 4  # slots in params.tfp
SCALE_SLOTS = 8  # the seven matrices of a layer and a zero
_CRC_OFFSET = 120  # of the crc32 field in the header of params.tfp
_INVERSE_ULPS = 3  # 1 / (1 / x) in float32 is at most this far from x


@dataclass(frozen=True)
class LayerParams:
    """float32 parameters of a layer; ``scales`` by matrix name, K and V scales [heads]."""

    input_norm: F32
    post_norm: F32
    inner_attn_norm: F32
    ffn_norm: F32
    scales: Mapping[str, np.float32]
    k_scale: F32
    v_scale: F32


@dataclass(frozen=True)
class Piece:
    """One transfer before its place in the file is known: rows of one port's share of a group."""

    port: int
    number: int
    first_row: int
    rows: int
    loads_x: bool


def pieces(rows: int, row_length: int, max_transfer_bytes: int) -> Iterator[Piece]:
    """How a group of ``rows`` rows is cut: halves for the ports, then pieces of at most ``max_transfer_bytes``."""
    row_bytes = words_for_row(row_length) * formats.WORD_BYTES
    x_bytes = words_for_x(row_length) * formats.WORD_BYTES
    for port, (first, count) in enumerate(port_rows(rows)):
        number, head = 0, formats.WORD_BYTES + x_bytes
        while count:
            fit = min(count, (max_transfer_bytes - head) // row_bytes)
            if fit < 1:
                raise FormatError(f"a transfer of {max_transfer_bytes} bytes holds no row of {row_length} trits")
            yield Piece(port, number, first, fit, number == 0)
            first, count, number, head = first + fit, count - fit, number + 1, formats.WORD_BYTES


def group_order(shape: ModelShape) -> list[tuple[int, str]]:
    """(layer, group) in the order of the file; the head is layer ``layers``."""
    order = [(layer, group) for layer in range(shape.layers) for group in GROUPS[:-1]]
    return [*order, (shape.layers, GROUPS[-1])]


def check_shape(shape: ModelShape) -> None:
    """Whether circuits and runtime can take these sizes; FormatError names the one that they cannot."""
    if shape.head_dim != HEAD_DIM or shape.hidden != shape.heads * HEAD_DIM:
        raise FormatError(f"hidden {shape.hidden} must be heads x {HEAD_DIM}; there are {shape.heads} heads")
    for name, value in (("hidden", shape.hidden), ("ffn", shape.ffn)):
        if value % 16 or not 16 <= value <= formats.MAX_ROW_LENGTH:
            raise FormatError(f"{name} is {value}; allowed are multiples of 16 up to {formats.MAX_ROW_LENGTH}")
    if not 1 <= shape.head_planes <= HEAD_SCALES:
        raise FormatError(f"head planes are {shape.head_planes}; allowed are 1 to {HEAD_SCALES}")
    if not 1 <= shape.context <= formats.MAX_CONTEXT:
        raise FormatError(f"context is {shape.context}; allowed are 1 to {formats.MAX_CONTEXT}")
    if not 1 <= shape.vocab * shape.head_planes <= formats.MAX_ROWS or not 1 <= shape.layers <= 256:
        raise FormatError(f"{shape.layers} layers or {shape.vocab} x {shape.head_planes} rows of the head are too many")
    if shape.vocab <= max(shape.bos, shape.eos):
        raise FormatError(f"bos {shape.bos} or eos {shape.eos} is outside the vocabulary of {shape.vocab}")


class _Hashed:
    """A stream that knows the sha256 and the size of what went through it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._digest, self.size = stream, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview) -> None:
        self._stream.write(data)
        self._digest.update(data)
        self.size += len(data)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class ImageWriter:
    """Writes an image into an empty folder: a context manager; ``group`` in file order, ``embedding``, then ``finish``.

    If the body raises, none of the four files is left in the folder.
    """

    def __init__(self, folder: Path, shape: ModelShape, max_transfer_bytes: int) -> None:
        check_shape(shape)
        self.folder, self.shape, self.max_transfer_bytes = folder, shape, max_transfer_bytes
        self.entries: list[TransferEntry] = []
        self._expected = iter(group_order(shape))
        self._files = contextlib.ExitStack()
        self._params: bytes | None = None
        self._description: dict[str, Any] = {}

    def __enter__(self) -> ImageWriter:
        self._weights = _Hashed(self._files.enter_context(files.atomic_file(self.folder / WEIGHTS)))
        self._embedding = _Hashed(self._files.enter_context(files.atomic_file(self.folder / EMBEDDING)))
        return self

    def group(self, layer: int, group: str, packed: list[U8]) -> None:
        """Writes the transfers of a group, given the packed rows uint8[rows, 8 * ceil(n / 40)] of each matrix."""
        if (layer, group) != next(self._expected, None):
            raise ValueError(f"group {group} of layer {layer} is out of order")
        rows = np.concatenate(packed) if len(packed) > 1 else packed[0]
        length = self.shape.group_row_length(group)
        if rows.shape != (self.shape.group_rows(group), words_for_row(length) * formats.WORD_BYTES):
            raise ValueError(f"group {group} of layer {layer} has shape {rows.shape}")
        for piece in pieces(len(rows), length, self.max_transfer_bytes):
            self._transfer(layer, GROUPS.index(group), piece, length, rows)

    def _transfer(self, layer: int, group: int, piece: Piece, length: int, rows: U8) -> None:
        header = MatvecHeader(piece.rows, length, piece.loads_x).encode().to_bytes(formats.WORD_BYTES, "little")
        slot = bytes(words_for_x(length) * formats.WORD_BYTES) if piece.loads_x else b""
        body = rows[piece.first_row : piece.first_row + piece.rows].data.cast("B")
        self._weights.write(bytes(-self._weights.size % TRANSFER_ALIGN_BYTES))
        offset = self._weights.size
        for part in (header, slot, body):
            self._weights.write(part)
        self.entries.append(
            TransferEntry(
                layer=layer,
                group=group,
                port=piece.port,
                piece=piece.number,
                offset=offset,
                size_bytes=self._weights.size - offset,
                first_row=piece.first_row,
                rows=piece.rows,
                row_length=length,
                flags=TRANSFER_LOADS_X if piece.loads_x else 0,
                x_offset=formats.WORD_BYTES if piece.loads_x else 0,
                crc32=zlib.crc32(body, zlib.crc32(header + slot)),
            )
        )

    def embedding(self, rows: F16) -> None:
        """Appends rows of the embedding, float16[n, hidden], all finite."""
        self._embedding.write(np.ascontiguousarray(rows, dtype="<f2").data.cast("B"))

    def finish(
        self, layers: list[LayerParams], final_norm: F32, head_scales: F32, description: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Makes ``params.tfp`` and ``image.json``; returns the latter. The files appear when the context ends."""
        if next(self._expected, None) is not None:
            raise ValueError("groups are missing")
        self._params = _encode_params(self, layers, final_norm, head_scales)
        self._description = {
            "format": DESCRIPTION_FORMAT,
            "formats_version": formats.FORMATS_VERSION,
            **description,
            "shape": describe_shape(self.shape),
            "max_transfer_bytes": self.max_transfer_bytes,
            "transfers": len(self.entries),
            "files": {
                WEIGHTS: {"bytes": self._weights.size, "sha256": self._weights.sha256},
                PARAMS: {"bytes": len(self._params), "sha256": files.sha256_bytes(self._params)},
                EMBEDDING: {"bytes": self._embedding.size, "sha256": self._embedding.sha256},
            },
        }
        self._description["seal"] = seal(self._description)
        return self._description

    @property
    def stream_bytes(self) -> int:
        return self._weights.size

    @property
    def embedding_bytes(self) -> int:
        return self._embedding.size

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._files.__exit__(kind, error, trace)
            if kind is None:
                if self._params is None:
                    raise ValueError("the image was not finished")
                files.write_bytes(self.folder / PARAMS, self._params)
                files.write_json(self.folder / DESCRIPTION, self._description)
        except BaseException:
            for name in (*PACKED_FILES, DESCRIPTION):
                (self.folder / name).unlink(missing_ok=True)
            raise


def seal(description: Mapping[str, Any]) -> str:
    """sha256 over everything else in ``image.json``, so that a damaged one is not believed."""
    return files.sha256_bytes(files.canonical_json({k: v for k, v in description.items() if k != "seal"}))


def describe_shape(shape: ModelShape) -> dict[str, Any]:
    return {name: getattr(shape, name) for name in ModelShape.__dataclass_fields__}


def norm_as_stored(weights: F32, name: str) -> F32:
    """Norm weights as the image holds them: below the bound zero; above it, NaN or infinite a FormatError."""
    low, high = formats.FLOAT_BOUNDS["NORM_WEIGHT"]
    if not (np.abs(weights) <= np.float32(2.0**high)).all():
        raise FormatError(f"norm {name} has a weight that is above 2**{high} or not finite")
    return np.where(np.abs(weights) < np.float32(2.0**low), np.float32(0), weights).astype(np.float32)


def _within(values: F32, bound: str) -> bool:
    """Whether all lie in the range of ``FLOAT_BOUNDS``; NaN does not."""
    low, high = formats.FLOAT_BOUNDS[bound]
    return bool(((values >= np.float32(2.0**low)) & (values <= np.float32(2.0**high))).all())


def _scales_as_stored(scales: F32, bound: str, name: str) -> F32:
    scales = np.asarray(scales, dtype=np.float32)
    if not _within(scales, bound):
        low, high = formats.FLOAT_BOUNDS[bound]
        raise FormatError(f"{name} is outside 2**{low} to 2**{high}: {scales.tolist()}")
    return scales


def _encode_params(writer: ImageWriter, layers: list[LayerParams], final_norm: F32, head_scales: F32) -> bytes:
    shape = writer.shape
    if len(layers) != shape.layers or head_scales.shape != (shape.head_planes,):
        raise ValueError("layers or head scales do not fit the shape")
    tables = [array for number, layer in enumerate(layers) for array in _layer_tables(number, layer, shape)]
    padded = np.zeros(HEAD_SCALES, dtype=np.float32)
    padded[: shape.head_planes] = _scales_as_stored(head_scales, "MATRIX_SCALE", "head scale")
    cos, sin = rope.rope_tables(shape.context, shape.head_dim, shape.rope_theta)
    tables += [norm_as_stored(final_norm, "final"), padded, cos, sin]
    body = b"".join(entry.encode() for entry in writer.entries)
    body += b"".join(np.ascontiguousarray(table, dtype="<f4").tobytes() for table in tables)
    header = ParamsHeader(
        file_bytes=PARAMS_HEADER_BYTES + len(body),
        stream_bytes=writer.stream_bytes,
        hidden=shape.hidden,
        ffn=shape.ffn,
        layers=shape.layers,
        heads=shape.heads,
        head_dim=shape.head_dim,
        vocab=shape.vocab,
        context=shape.context,
        head_planes=shape.head_planes,
        transfers=len(writer.entries),
        ports=formats.PORTS,
        rms_eps=shape.rms_eps,
        bos=shape.bos,
        eos=shape.eos,
        max_transfer_bytes=writer.max_transfer_bytes,
        tau=formats.TAU,
        score_shift=formats.SCORE_SHIFT,
        embedding_bytes=writer.embedding_bytes,
    ).encode()
    whole = bytearray(header + body)
    struct.pack_into("<I", whole, _CRC_OFFSET, zlib.crc32(whole))
    return bytes(whole)


def _layer_tables(number: int, layer: LayerParams, shape: ModelShape) -> list[F32]:
    where = f"of layer {number}"
    scales = np.zeros(SCALE_SLOTS, dtype=np.float32)
    scales[: len(MATRICES)] = _scales_as_stored(
        np.array([layer.scales[name] for name in MATRICES], dtype=np.float32),
        "MATRIX_SCALE",
        f"weight scale {where}",
    )
    k_scale = _scales_as_stored(layer.k_scale, "KV_SCALE", f"K scale {where}")
    v_scale = _scales_as_stored(layer.v_scale, "KV_SCALE", f"V scale {where}")
    coefficients = np.array([score_coefficient(scale, shape.head_dim) for scale in k_scale.tolist()], dtype=np.float32)
    return [
        norm_as_stored(layer.input_norm, f"input {where}"),
        norm_as_stored(layer.post_norm, f"post {where}"),
        norm_as_stored(layer.inner_attn_norm, f"inner_attn {where}"),
        norm_as_stored(layer.ffn_norm, f"ffn {where}"),
        scales,
        np.float32(1) / k_scale,
        np.float32(1) / v_scale,
        v_scale,
        coefficients,
    ]


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class Table:
    """A float32 table of ``params.tfp``: what it is and where it lies."""

    name: str
    layer: int  # -1 outside the layers
    offset: int
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return 4 * int(np.prod(self.shape))


def tables(shape: ModelShape, transfers: int) -> list[Table]:
    """All tables of ``params.tfp`` in file order."""
    heads, half = shape.heads, shape.head_dim // 2
    layer_tables: list[tuple[str, tuple[int, ...]]] = [
        ("input_norm", (shape.hidden,)),
        ("post_norm", (shape.hidden,)),
        ("inner_attn_norm", (shape.hidden,)),
        ("ffn_norm", (shape.ffn,)),
        ("scales", (SCALE_SLOTS,)),
        ("k_inverse_scale", (heads,)),
        ("v_inverse_scale", (heads,)),
        ("v_scale", (heads,)),
        ("score_coefficient", (heads,)),
    ]
    end_tables: list[tuple[str, tuple[int, ...]]] = [
        ("final_norm", (shape.hidden,)),
        ("head_scales", (HEAD_SCALES,)),
        ("rope_cos", (shape.context, half)),
        ("rope_sin", (shape.context, half)),
    ]
    found = []
    at = PARAMS_HEADER_BYTES + transfers * TRANSFER_ENTRY_BYTES
    for layer, names in [(n, layer_tables) for n in range(shape.layers)] + [(-1, end_tables)]:
        for name, dimensions in names:
            found.append(Table(name, layer, at, dimensions))
            at += found[-1].size_bytes
    return found


def decode_header(raw: bytes, where: str) -> ParamsHeader:
    """The 128-byte header, every fixed field compared with what it must be."""
    if len(raw) < PARAMS_HEADER_BYTES:
        raise FormatError(f"{where}: {len(raw)} bytes are too few for a header of {PARAMS_HEADER_BYTES}")
    (
        magic, version, header_bytes, file_bytes, stream_bytes,
        hidden, ffn, layers, heads, head_dim, vocab, context, head_planes,
        transfers, ports, rms_eps, bos, eos, max_transfer_bytes, tau,
        score_shift, embedding_bytes, flags, reserved, zeros, crc32, padding,
    ) = formats.PARAMS_HEADER.unpack(raw[:PARAMS_HEADER_BYTES])  # fmt: skip
    for name, value, wanted in (
        ("magic", magic, formats.PARAMS_MAGIC),
        ("formats version", version, formats.FORMATS_VERSION),
        ("header size", header_bytes, PARAMS_HEADER_BYTES),
        ("ports", ports, formats.PORTS),
        ("tau", tau, formats.TAU),
        ("score shift", score_shift, formats.SCORE_SHIFT),
        ("flags", flags, 0),
        ("reserved bytes", (reserved, zeros, padding), (0, bytes(8), bytes(4))),
    ):
        if value != wanted:
            raise FormatError(f"{where}: {name} is {value!r}, must be {wanted!r}")
    return ParamsHeader(
        file_bytes, stream_bytes, hidden, ffn, layers, heads, head_dim, vocab, context, head_planes, transfers, ports,
        rms_eps, bos, eos, max_transfer_bytes, tau, score_shift, embedding_bytes, flags, crc32,
    )  # fmt: skip


@dataclass(frozen=True)
class Image:
    """An image on disk whose params, transfer table and description have been checked; weights are on demand."""

    folder: Path
    header: ParamsHeader
    shape: ModelShape
    entries: tuple[TransferEntry, ...]
    params: bytes
    description: Mapping[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Image:
        """Checks everything but the contents of weights and embedding, which ``check`` and ``golden`` read."""
        description = _read_description(folder / DESCRIPTION)
        params = _read(folder / PARAMS)
        where = str(folder / PARAMS)
        header = decode_header(params, where)
        if header.file_bytes != len(params):
            raise FormatError(f"{where}: file size field is {header.file_bytes}, the file has {len(params)} bytes")
        blank = params[:_CRC_OFFSET] + bytes(4) + params[_CRC_OFFSET + 4 :]
        if zlib.crc32(blank) != header.crc32:
            raise FormatError(f"{where}: crc32 is 0x{zlib.crc32(blank):08x}, the header says 0x{header.crc32:08x}")
        shape = _shape_of(header, description, where)
        entries = _read_entries(params, header, shape, where)
        for name, size in (
            (WEIGHTS, header.stream_bytes),
            (PARAMS, header.file_bytes),
            (EMBEDDING, header.embedding_bytes),
        ):
            if description["files"][name]["bytes"] != size:
                raise FormatError(f"{folder / DESCRIPTION}: files.{name}.bytes does not agree with {PARAMS}")
            if _size(folder / name) != size:
                raise FormatError(f"{folder / name}: {_size(folder / name)} bytes, {PARAMS} says {size}")
        if description["files"][PARAMS]["sha256"] != files.sha256_bytes(params):
            raise FormatError(f"{where}: sha256 differs from {DESCRIPTION}")
        image = cls(folder, header, shape, tuple(entries), params, description)
        image._check_tables()
        return image

    def table(self, name: str, layer: int = -1) -> F32:
        """A table of ``params.tfp`` as float32."""
        for table in tables(self.shape, self.header.transfers):
            if (table.name, table.layer) == (name, layer):
                raw = np.frombuffer(self.params, "<f4", int(np.prod(table.shape)), table.offset)
                return raw.reshape(table.shape).astype(np.float32)
        raise KeyError(name)

    def _check_tables(self) -> None:
        where = self.folder / PARAMS
        cos, sin = rope.rope_tables(self.shape.context, self.shape.head_dim, self.shape.rope_theta)
        for table in tables(self.shape, self.header.transfers):
            value = self.table(table.name, table.layer)
            place = f"{where}: {table.name}" + (f" of layer {table.layer}" if table.layer >= 0 else "")
            place += f" at offset {table.offset}"
            if table.name.endswith("norm"):
                if not _within(np.abs(value[value != 0]), "NORM_WEIGHT"):
                    low, high = formats.FLOAT_BOUNDS["NORM_WEIGHT"]
                    raise FormatError(f"{place}: a norm weight is not zero and not in 2**{low} to 2**{high}")
                continue
            if table.name.startswith("rope"):
                if not np.array_equal(value, cos if table.name == "rope_cos" else sin):
                    raise FormatError(f"{place}: not the rotation table of theta {self.shape.rope_theta}")
                continue
            if table.name == "score_coefficient":
                continue  # compared with the K scales below
            used = {"scales": len(MATRICES), "head_scales": self.shape.head_planes}.get(table.name, value.size)
            bound = "KV_SCALE" if table.name[1:] in ("_scale", "_inverse_scale") else "MATRIX_SCALE"
            if not _within(value[:used], bound) or value[used:].any():
                low, high = formats.FLOAT_BOUNDS[bound]
                raise FormatError(f"{place}: a scale is outside 2**{low} to 2**{high}, or an unused one is not zero")
        for layer in range(self.shape.layers):
            if not np.array_equal(self.table("v_inverse_scale", layer), np.float32(1) / self.table("v_scale", layer)):
                raise FormatError(f"{where}: v_inverse_scale of layer {layer} is not 1 / v_scale")
            self.k_scale(layer)

    def k_scale(self, layer: int) -> F32:
        """float32[heads] K scales of a layer: the values whose inverse and score coefficient are in ``params.tfp``.

        FormatError when no value has both. Where two have both, they compute the same.
        """
        found = []
        pairs = zip(self.table("k_inverse_scale", layer), self.table("score_coefficient", layer), strict=True)
        for head, (inverse, coefficient) in enumerate(pairs):
            guess = np.float32(1) / inverse
            near = [guess]
            for direction in (np.float32(0), np.float32(np.inf)):
                at = guess
                for _ in range(_INVERSE_ULPS):
                    at = np.nextafter(at, direction)
                    near.append(at)
            fitting = [
                scale
                for scale in near
                if np.float32(1) / scale == inverse
                and score_coefficient(float(scale), self.shape.head_dim) == coefficient
            ]
            if not fitting:
                raise FormatError(
                    f"{self.folder / PARAMS}: k_inverse_scale and score_coefficient disagree in layer {layer},"
                    f" head {head}"
                )
            found.append(fitting[0])
        return np.array(found, dtype=np.float32)

    def transfer(self, entry: TransferEntry) -> U8:
        """The packed rows uint8[rows, 8 * ceil(n / 40)] of a transfer, after checking header, x slot and crc32."""
        where = f"{self.folder / WEIGHTS}: transfer at offset {entry.offset}"
        with (self.folder / WEIGHTS).open("rb") as stream:
            stream.seek(entry.offset)
            raw = stream.read(entry.size_bytes)
        if len(raw) != entry.size_bytes:
            raise FormatError(f"{where}: the file ends inside it")
        try:
            header = MatvecHeader.decode(int.from_bytes(raw[: formats.WORD_BYTES], "little"))
        except FormatError as error:
            raise FormatError(f"{where}: {error.message}") from error
        loads_x = bool(entry.flags & TRANSFER_LOADS_X)
        if header != MatvecHeader(entry.rows, entry.row_length, loads_x):
            raise FormatError(f"{where}: {header} does not agree with its entry in {PARAMS}")
        begin = formats.WORD_BYTES + (words_for_x(entry.row_length) * formats.WORD_BYTES if loads_x else 0)
        if any(raw[formats.WORD_BYTES : begin]):
            raise FormatError(f"{where}: the x slot is not zero")
        if zlib.crc32(raw) != entry.crc32:
            raise FormatError(f"{where}: crc32 is 0x{zlib.crc32(raw):08x}, {PARAMS} says 0x{entry.crc32:08x}")
        return np.frombuffer(raw, np.uint8, offset=begin).reshape(entry.rows, -1)

    def group(self, layer: int, group: str) -> npt.NDArray[np.int8]:
        """Codes int8[rows, n] of a group, all its transfers joined."""
        number = GROUPS.index(group)
        found = [entry for entry in self.entries if entry.layer == layer and entry.group == number]
        parts = []
        for entry in sorted(found, key=lambda e: e.first_row):
            try:
                parts.append(ternary.unpack_rows(self.transfer(entry), entry.row_length))
            except FormatError as error:
                raise FormatError(
                    f"{self.folder / WEIGHTS}: transfer at offset {entry.offset}: {error.message}"
                ) from error
        return np.concatenate(parts)

    def embedding(self) -> F16:
        """float16[vocab, hidden], checked to be finite and to have the size and sha256 that the description says."""
        path = self.folder / EMBEDDING
        raw = _read(path)
        if len(raw) != self.shape.vocab * self.shape.hidden * 2:
            raise FormatError(f"{path}: {len(raw)} bytes for {self.shape.vocab} x {self.shape.hidden} float16")
        if files.sha256_bytes(raw) != self.description["files"][EMBEDDING]["sha256"]:
            raise FormatError(f"{path}: sha256 differs from {DESCRIPTION}")
        values = np.frombuffer(raw, "<f2").reshape(self.shape.vocab, self.shape.hidden).astype(np.float16)
        if not np.isfinite(values).all():
            raise FormatError(f"{path}: a value is not finite")
        return values

    def check(self) -> None:
        """Reads everything: every transfer's codes, the gaps between transfers, sha256 of weights and embedding."""
        for layer, group in group_order(self.shape):
            self.group(layer, group)
        self._check_gaps()
        path = self.folder / WEIGHTS
        if files.sha256_file(path) != self.description["files"][WEIGHTS]["sha256"]:
            raise FormatError(f"{path}: sha256 differs from {DESCRIPTION}")
        self.embedding()

    def _check_gaps(self) -> None:
        with (self.folder / WEIGHTS).open("rb") as stream:
            at = 0
            for entry in self.entries:
                stream.seek(at)
                if any(stream.read(entry.offset - at)):
                    raise FormatError(
                        f"{self.folder / WEIGHTS}: a byte between offset {at} and {entry.offset} is not zero"
                    )
                at = entry.offset + entry.size_bytes

    def golden(self) -> GoldenModel:
        """The model that the golden arithmetic runs, out of a completely checked image."""
        self.check()
        layers = []
        for number in range(self.shape.layers):
            codes: dict[str, npt.NDArray[np.int8]] = {}
            for group, names in GROUP_MATRICES.items():
                codes.update(zip(names, np.split(self.group(number, group), len(names)), strict=True))
            scales = self.table("scales", number)
            layers.append(
                GoldenLayer(
                    codes=codes,
                    scales={name: np.float32(scales[i]) for i, name in enumerate(MATRICES)},
                    input_norm=self.table("input_norm", number),
                    post_norm=self.table("post_norm", number),
                    inner_attn_norm=self.table("inner_attn_norm", number),
                    ffn_norm=self.table("ffn_norm", number),
                    k_scale=self.k_scale(number),
                    v_scale=self.table("v_scale", number),
                )
            )
        return GoldenModel(
            shape=self.shape,
            embedding=self.embedding(),
            layers=tuple(layers),
            final_norm=self.table("final_norm"),
            head_codes=self.group(self.shape.layers, GROUPS[-1]),
            head_scales=self.table("head_scales")[: self.shape.head_planes],
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror or error}") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror or error}") from error


_DESCRIBED = {"format": int, "formats_version": int, "shape": dict, "files": dict, "seal": str}


def _read_description(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{path}: not a JSON object")
    for key, kind in _DESCRIBED.items():
        if not isinstance(value.get(key), kind):
            raise FormatError(f"{path}: '{key}' is missing or not of type {kind.__name__}")
    for key, wanted in (("format", DESCRIPTION_FORMAT), ("formats_version", formats.FORMATS_VERSION)):
        if value[key] != wanted:
            raise FormatError(f"{path}: {key} is {value[key]}, must be {wanted}", hint="convert the weights again")
    try:
        sealed = seal(value)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: {error}") from error
    if value["seal"] != sealed:
        raise FormatError(f"{path}: 'seal' does not fit its contents; the file was changed after it was written")
    for name in PACKED_FILES:
        entry = value["files"].get(name)
        if (
            not isinstance(entry, dict)
            or type(entry.get("bytes")) is not int
            or not isinstance(entry.get("sha256"), str)
        ):
            raise FormatError(f"{path}: files.{name} must have bytes and sha256")
    return value


def _shape_of(header: ParamsHeader, description: Mapping[str, Any], where: str) -> ModelShape:
    """The shape of the header; rope_theta, which the tables embody, comes from the description."""
    described = description["shape"]
    theta, eps = described.get("rope_theta"), described.get("rms_eps")
    if not isinstance(theta, float) or not 1 < theta < 1e9 or not isinstance(eps, float):
        raise FormatError(f"{DESCRIPTION}: shape.rope_theta or shape.rms_eps is not a number in range")
    if not 0 < eps < 1 or np.float32(eps) != np.float32(header.rms_eps):
        raise FormatError(f"{where}: rms_eps is {header.rms_eps}, {DESCRIPTION} says {eps}")
    shape = ModelShape(
        hidden=header.hidden,
        ffn=header.ffn,
        layers=header.layers,
        heads=header.heads,
        head_dim=header.head_dim,
        vocab=header.vocab,
        context=header.context,
        head_planes=header.head_planes,
        rms_eps=eps,
        rope_theta=theta,
        bos=header.bos,
        eos=header.eos,
    )
    try:
        check_shape(shape)
    except FormatError as error:
        raise FormatError(f"{where}: {error.message}") from error
    if describe_shape(shape) != described:
        raise FormatError(f"{where}: shape is not that of {DESCRIPTION}")
    return shape


def _read_entries(params: bytes, header: ParamsHeader, shape: ModelShape, where: str) -> list[TransferEntry]:
    """The transfer table, each field compared with what the shape makes it; only crc32 is taken as it stands."""
    # Fewest bytes that the table and what follows can have: refuses sizes that the file cannot hold.
    if PARAMS_HEADER_BYTES + header.transfers * TRANSFER_ENTRY_BYTES > len(params):
        raise FormatError(f"{where}: {header.transfers} transfers do not fit the file")
    last = tables(shape, header.transfers)[-1]
    if last.offset + last.size_bytes != len(params):
        raise FormatError(
            f"{where}: its tables end at {last.offset + last.size_bytes}, the file has {len(params)} bytes"
        )
    entries: list[TransferEntry] = []
    at = 0
    for layer, group in group_order(shape):
        length = shape.group_row_length(group)
        for piece in pieces(shape.group_rows(group), length, header.max_transfer_bytes):
            number = len(entries)
            if number == header.transfers:
                raise FormatError(f"{where}: {number} transfers are too few for this shape")
            begin = PARAMS_HEADER_BYTES + number * TRANSFER_ENTRY_BYTES
            entry = TransferEntry.decode(params[begin : begin + TRANSFER_ENTRY_BYTES])
            x_bytes = words_for_x(length) * formats.WORD_BYTES if piece.loads_x else 0
            offset = -(-at // TRANSFER_ALIGN_BYTES) * TRANSFER_ALIGN_BYTES
            size = formats.WORD_BYTES + x_bytes + piece.rows * words_for_row(length) * formats.WORD_BYTES
            wanted = TransferEntry(
                layer=layer,
                group=GROUPS.index(group),
                port=piece.port,
                piece=piece.number,
                offset=offset,
                size_bytes=size,
                first_row=piece.first_row,
                rows=piece.rows,
                row_length=length,
                flags=TRANSFER_LOADS_X if piece.loads_x else 0,
                x_offset=formats.WORD_BYTES if piece.loads_x else 0,
                crc32=entry.crc32,
            )
            if entry != wanted:
                raise FormatError(f"{where}: transfer {number} at offset {begin} is {entry}, must be {wanted}")
            entries.append(entry)
            at = offset + size
    if len(entries) != header.transfers:
        raise FormatError(f"{where}: {header.transfers} transfers, this shape has {len(entries)}")
    if at != header.stream_bytes:
        raise FormatError(f"{where}: the transfers end at {at}, stream size field is {header.stream_bytes}")
    return entries
