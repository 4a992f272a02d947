"""Small golden models and their packed images, for tests of the runtime."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from pipelines.golden import formats, rope
from pipelines.golden.forward import GoldenLayer, GoldenModel, ModelShape, score_coefficients
from pipelines.golden.ternary import pack_rows

TINY_SHAPE = ModelShape(hidden=192, ffn=512, layers=4, heads=2, head_dim=96, vocab=2048, context=256)
SMALL_SHAPE = ModelShape(hidden=96, ffn=160, layers=2, heads=1, head_dim=96, vocab=301, context=24, head_planes=2)


def random_model(shape: ModelShape, seed: int) -> GoldenModel:
    """Ternary weights and plausible scales from a seed."""
    random = np.random.default_rng(seed)

    def trits(rows: int, length: int) -> np.ndarray:
        return random.integers(-1, 2, size=(rows, length)).astype(np.int8)

    def norm(length: int) -> np.ndarray:
        return (1 + 0.2 * random.standard_normal(length)).astype(np.float32)

    layers = []
    for _ in range(shape.layers):
        hidden, ffn = shape.hidden, shape.ffn
        codes = {name: trits(hidden, hidden) for name in ("q", "k", "v", "o")}
        codes |= {"gate": trits(ffn, hidden), "up": trits(ffn, hidden), "down": trits(hidden, ffn)}
        scales = {name: np.float32(0.03 + 0.02 * random.random()) for name in codes}
        layers.append(
            GoldenLayer(
                codes=codes,
                scales=scales,
                input_norm=norm(hidden),
                post_norm=norm(hidden),
                inner_attn_norm=norm(hidden),
                ffn_norm=norm(ffn),
                k_scale=(0.01 + 0.005 * random.random(shape.heads)).astype(np.float32),
                v_scale=(0.01 + 0.005 * random.random(shape.heads)).astype(np.float32),
            )
        )
    return GoldenModel(
        shape=shape,
        embedding=random.standard_normal((shape.vocab, shape.hidden)).astype(np.float16),
        layers=tuple(layers),
        final_norm=norm(shape.hidden),
        head_codes=trits(shape.head_planes * shape.vocab, shape.hidden),
        head_scales=(0.02 / 3.0 ** np.arange(shape.head_planes)).astype(np.float32),
    )


def _pieces(rows: int, length: int, max_transfer_bytes: int) -> list[int]:
    """Rows of each piece of a port's share."""
    fixed, row_bytes = 8 + 8 * formats.words_for_x(length), 8 * formats.words_for_row(length)
    pieces = []
    while rows:
        here = min(rows, (max_transfer_bytes - (fixed if not pieces else 8)) // row_bytes)
        pieces.append(here)
        rows -= here
    return pieces


def write_image(model: GoldenModel, folder: Path, max_transfer_bytes: int = (1 << 23) - 8) -> Path:
    """The three files of docs/formats.md, written independently of the packer."""
    shape = model.shape
    stream = bytearray()
    entries: list[formats.TransferEntry] = []

    def add(layer: int, group: str, codes: np.ndarray) -> None:
        length = codes.shape[1]
        for port, (first, count) in enumerate(formats.port_rows(codes.shape[0])):
            row = first
            for piece, rows in enumerate(_pieces(count, length, max_transfer_bytes)):
                stream.extend(bytes(-len(stream) % formats.TRANSFER_ALIGN_BYTES))
                header = formats.MatvecHeader(rows, length, load_x=piece == 0).encode().to_bytes(8, "little")
                slot = bytes(8 * formats.words_for_x(length)) if piece == 0 else b""
                data = header + slot + pack_rows(codes[row : row + rows]).tobytes()
                entries.append(
                    formats.TransferEntry(
                        layer,
                        formats.GROUPS.index(group),
                        port,
                        piece,
                        len(stream),
                        len(data),
                        row,
                        rows,
                        length,
                        int(piece == 0),
                        8 if piece == 0 else 0,
                        zlib.crc32(data),
                    )  # fmt: skip
                )
                stream.extend(data)
                row += rows

    for number, layer in enumerate(model.layers):
        for group in formats.GROUPS[:-1]:
            add(number, group, layer.group(group))
    add(shape.layers, "head", model.head_codes)

    tables: list[np.ndarray] = []
    for layer in model.layers:
        tables += [layer.input_norm, layer.post_norm, layer.inner_attn_norm, layer.ffn_norm]
        tables.append(np.array([layer.scales[name] for name in formats.MATRICES] + [0]))
        tables += [np.float32(1) / layer.k_scale, np.float32(1) / layer.v_scale, layer.v_scale]
        tables.append(score_coefficients(layer, shape.head_dim))
    tables += [model.final_norm, np.pad(model.head_scales, (0, 4 - shape.head_planes))]
    tables += list(rope.rope_tables(shape.context, shape.head_dim, shape.rope_theta))
    floats = b"".join(np.asarray(table, dtype="<f4").tobytes() for table in tables)
    table = b"".join(entry.encode() for entry in entries)
    embedding = np.asarray(model.embedding, dtype="<f2").tobytes()

    def params(crc: int) -> bytes:
        header = formats.ParamsHeader(
            file_bytes=formats.PARAMS_HEADER_BYTES + len(table) + len(floats),
            stream_bytes=len(stream), hidden=shape.hidden, ffn=shape.ffn, layers=shape.layers, heads=shape.heads,
            head_dim=shape.head_dim, vocab=shape.vocab, context=shape.context, head_planes=shape.head_planes,
            transfers=len(entries), ports=formats.PORTS, rms_eps=shape.rms_eps, bos=shape.bos, eos=shape.eos,
            max_transfer_bytes=max_transfer_bytes, tau=formats.TAU, score_shift=formats.SCORE_SHIFT,
            embedding_bytes=len(embedding), crc32=crc,
        )  # fmt: skip
        return header.encode() + table + floats

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights.tfs").write_bytes(bytes(stream))
    (folder / "params.tfp").write_bytes(params(zlib.crc32(params(0))))
    (folder / "embedding.f16").write_bytes(embedding)
    return folder
