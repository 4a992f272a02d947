"""The loader: every damage has its own error, nothing damaged is ever used."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from board_rt.runtime import ContextFull, FileFailure, FormatFailure, Runtime, RuntimeFailure, UsageFailure
from pipelines.golden import formats
from tests.native import images

CRC_OFFSET = 120
TABLES = formats.PARAMS_HEADER_BYTES


@pytest.fixture
def copy(small_image: Path, tmp_path: Path) -> Path:
    shutil.copytree(small_image, tmp_path / "image")
    return tmp_path / "image"


def rewrite(folder: Path, name: str, change: Callable[[bytearray], None], *, seal: bool = True) -> None:
    """Changes a file; ``seal`` puts the checksum of params.tfp right again."""
    data = bytearray((folder / name).read_bytes())
    change(data)
    if name == "params.tfp" and seal:
        data[CRC_OFFSET : CRC_OFFSET + 4] = bytes(4)
        data[CRC_OFFSET : CRC_OFFSET + 4] = struct.pack("<I", zlib.crc32(bytes(data)))
    (folder / name).write_bytes(bytes(data))


def reseal_transfer(folder: Path, index: int) -> None:
    """Puts the checksum of a transfer right after weights.tfs was changed."""
    params = bytearray((folder / "params.tfp").read_bytes())
    at = TABLES + index * formats.TRANSFER_ENTRY_BYTES
    entry = formats.TransferEntry.decode(bytes(params[at : at + formats.TRANSFER_ENTRY_BYTES]))
    stream = (folder / "weights.tfs").read_bytes()
    crc = zlib.crc32(stream[entry.offset : entry.offset + entry.size_bytes])
    rewrite(folder, "params.tfp", lambda d: d.__setitem__(slice(at + 52, at + 56), struct.pack("<I", crc)))


def put(offset: int, raw: bytes) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[offset : offset + len(raw)] = raw

    return change


def u32(offset: int, value: int) -> Callable[[bytearray], None]:
    return put(offset, struct.pack("<I", value))


# Offsets in ParamsHeader, docs/formats.md
HEADER = [
    ("magic", put(0, b"TFPARAM2"), "does not start with TFPARAM1"),
    ("version", u32(8, 2), "'version'"),
    ("header size", u32(12, 64), "'header_bytes'"),
    ("file size", put(16, struct.pack("<Q", 5)), "'file_bytes'"),
    ("stream size", put(24, struct.pack("<Q", 1 << 40)), "'stream_bytes'"),
    ("hidden", u32(32, 100), "'hidden'"),
    ("ffn", u32(36, 4112), "'ffn'"),
    ("no layers", u32(40, 0), "'layers'"),
    ("layers", u32(40, 3), "has .* bytes, its header makes"),
    ("heads", u32(44, 2), "'heads'"),
    ("head_dim", u32(48, 7), "'head_dim'"),
    ("vocab", u32(52, 1 << 30), "'vocab'"),
    ("context", u32(56, 4096), "'context'"),
    ("planes", u32(60, 5), "'head_planes'"),
    ("transfers", u32(64, 1 << 30), "'transfers'"),
    ("ports", u32(68, 1), "'ports'"),
    ("eps", put(72, struct.pack("<f", float("nan"))), "'rms_eps'"),
    ("bos", u32(76, 301), "'bos'"),
    ("eos", u32(80, 1 << 31), "'eos'"),
    ("limit", u32(84, 8), "'max_transfer_bytes'"),
    ("tau", u32(88, 15), "'tau'"),
    ("shift", u32(92, 25), "'score_shift'"),
    ("embedding size", put(96, struct.pack("<Q", 2)), "'embedding_bytes'"),
    ("flags", u32(104, 1), "'flags'"),
    ("reserved", put(115, b"\1"), "reserved"),
    ("padding", put(125, b"\1"), "padding"),
]


@pytest.mark.parametrize(("name", "change", "words"), HEADER, ids=[name for name, _, _ in HEADER])
def test_header(name: str, change: Callable[[bytearray], None], words: str, copy: Path, host_library: Path) -> None:
    rewrite(copy, "params.tfp", change)
    with pytest.raises(FormatFailure, match=words):
        Runtime(host_library, copy, "host")


ENTRY_FIELDS = {
    "layer": 0, "group": 4, "port": 8, "piece": 12, "offset": 16, "size_bytes": 24, "first_row": 32, "rows": 36,
    "row_length": 40, "flags": 44, "x_offset": 48,
}  # fmt: skip


@pytest.mark.parametrize("field", ENTRY_FIELDS)
@pytest.mark.parametrize("value", [7, 0xFFFFFFFF])
def test_transfer_table(field: str, value: int, copy: Path, host_library: Path) -> None:
    rewrite(copy, "params.tfp", u32(TABLES + 2 * formats.TRANSFER_ENTRY_BYTES + ENTRY_FIELDS[field], value))
    named = "(rows|size_bytes)" if field == "rows" else field  # another number of rows first shows in the size
    with pytest.raises(FormatFailure, match=f"transfer 2 .*field '{named}'"):
        Runtime(host_library, copy, "host")


def float_offset(copy: Path, index: int) -> int:
    transfers = struct.unpack_from("<I", (copy / "params.tfp").read_bytes(), 64)[0]
    return TABLES + transfers * formats.TRANSFER_ENTRY_BYTES + 4 * index


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1024.125, 2.0**-31, 1e-40])
def test_norm_weight(value: float, copy: Path, host_library: Path) -> None:
    rewrite(copy, "params.tfp", put(float_offset(copy, 5), struct.pack("<f", value)))
    with pytest.raises(FormatFailure, match=r"input_norm\[5\] of layer 0"):
        Runtime(host_library, copy, "host")


FIRST_SCALE = 3 * images.SMALL_SHAPE.hidden + images.SMALL_SHAPE.ffn
# tables of a layer behind the norms, one head: index of a float, its name, its bound
SCALES = [
    (1, r"scales\[1\]", "MATRIX_SCALE"),
    (8, r"k_inverse_scale\[0\]", "KV_SCALE"),
    (9, r"v_inverse_scale\[0\]", "KV_SCALE"),
    (10, r"v_scale\[0\]", "KV_SCALE"),
    (11, r"score_coefficient\[0\]", "SCORE_COEFFICIENT"),
]


@pytest.mark.parametrize(("index", "name", "bound"), SCALES, ids=[name for _, name, _ in SCALES])
def test_scale(index: int, name: str, bound: str, copy: Path, host_library: Path) -> None:
    def opened(value: float | np.float32) -> None:
        rewrite(copy, "params.tfp", put(float_offset(copy, FIRST_SCALE + index), struct.pack("<f", value)))
        Runtime(host_library, copy, "host").close()

    low, high = (np.float32(2.0**exponent) for exponent in formats.FLOAT_BOUNDS[bound])
    opened(low)
    opened(high)
    below, above = np.nextafter(low, np.float32(0)), np.nextafter(high, np.float32(np.inf))
    for value in (float("nan"), float("inf"), -1.0, 0.0, -low, below, above):
        with pytest.raises(FormatFailure, match=rf"{name} of layer 0"):
            opened(value)


def test_params_checksum(copy: Path, host_library: Path) -> None:
    rewrite(copy, "params.tfp", put(float_offset(copy, 9), struct.pack("<f", 1.25)), seal=False)
    with pytest.raises(FormatFailure, match="crc32"):
        Runtime(host_library, copy, "host")


@pytest.mark.parametrize("code", range(formats.TRIT_CODES, 256))
def test_illegal_code(code: int, copy: Path, host_library: Path) -> None:
    at = 8 + images.SMALL_SHAPE.hidden + 24 * 3 + 4
    rewrite(copy, "weights.tfs", put(at, bytes([code])))
    reseal_transfer(copy, 0)
    with pytest.raises(FormatFailure, match=f"byte {at} .row 3 of transfer 0. is {code}"):
        Runtime(host_library, copy, "host")


def test_trit_behind_the_row(copy: Path, host_library: Path) -> None:
    """A row of 96 ends inside byte 19: its fifth digit, and the bytes after it, must be zero trits."""
    for at in (8 + 96 + 19, 8 + 96 + 20, 8 + 96 + 23):
        rewrite(copy, "weights.tfs", put(at, b"\xf2"))
        reseal_transfer(copy, 0)
        with pytest.raises(FormatFailure, match="behind the row's end"):
            Runtime(host_library, copy, "host")


@pytest.mark.parametrize(
    ("at", "words"),
    [(0, "header is"), (4, "header is"), (9, "x slot"), (200, "crc32")],
    ids=["magic", "rows", "x slot", "weights"],
)
def test_stream(at: int, words: str, copy: Path, host_library: Path) -> None:
    rewrite(copy, "weights.tfs", lambda data: data.__setitem__(at, data[at] ^ 1))
    with pytest.raises(FormatFailure, match="crc32"):
        Runtime(host_library, copy, "host")
    if words != "crc32":
        reseal_transfer(copy, 0)
        with pytest.raises(FormatFailure, match=words):
            Runtime(host_library, copy, "host")


def test_gap_between_transfers(copy: Path, host_library: Path) -> None:
    params = (copy / "params.tfp").read_bytes()
    first = formats.TransferEntry.decode(params[TABLES : TABLES + formats.TRANSFER_ENTRY_BYTES])
    assert first.size_bytes % 64, "the image has a gap here"
    rewrite(copy, "weights.tfs", put(first.size_bytes, b"\1"))
    with pytest.raises(FormatFailure, match="between transfers"):
        Runtime(host_library, copy, "host")


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E01])
def test_embedding(bits: int, copy: Path, host_library: Path) -> None:
    rewrite(copy, "embedding.f16", put(2 * (96 * 5 + 3), struct.pack("<H", bits)))
    with pytest.raises(FormatFailure, match="row 5 has a NaN or an infinite"):
        Runtime(host_library, copy, "host")


@pytest.mark.parametrize("name", ["params.tfp", "weights.tfs", "embedding.f16"])
def test_missing_and_cut_files(name: str, copy: Path, host_library: Path, model_library: Path) -> None:
    whole = (copy / name).read_bytes()
    for size in (0, 1, 127, len(whole) // 2, len(whole) - 1):
        (copy / name).write_bytes(whole[:size])
        for backend in ("host", "model"):
            with pytest.raises(FormatFailure):
                Runtime(host_library, copy, backend, pl_library=model_library)
    (copy / name).unlink()
    with pytest.raises(FileFailure, match="cannot be opened"):
        Runtime(host_library, copy, "host")
    (copy / name).mkdir()
    with pytest.raises(FileFailure, match="regular"):
        Runtime(host_library, copy, "host")


def test_random_damage(copy: Path, host_library: Path, full_campaigns: bool) -> None:
    """Sealed or not, a damaged file is refused, or the byte does not matter for anything that is computed."""
    random = np.random.default_rng(11)
    whole = {name: (copy / name).read_bytes() for name in ("params.tfp", "weights.tfs")}
    for turn in range(20_000 if full_campaigns else 400):
        name = "params.tfp" if turn % 4 else "weights.tfs"
        data = bytearray(whole[name])
        for _ in range(int(random.integers(1, 4))):
            data[int(random.integers(0, min(len(data), 2000)))] = int(random.integers(0, 256))
        (copy / name).write_bytes(bytes(data))
        if name == "params.tfp":
            rewrite(copy, name, lambda _: None)
        try:
            with Runtime(host_library, copy, "host") as runtime:
                runtime.forward(1)
        except RuntimeFailure:
            pass
        (copy / name).write_bytes(whole[name])


def test_use_errors(copy: Path, host_library: Path) -> None:
    with Runtime(host_library, copy, "host", context=3) as runtime:
        with pytest.raises(UsageFailure, match="outside 0 to 300"):
            runtime.forward(301)
        for token in (1, 2, 3):
            runtime.forward(token)
        with pytest.raises(ContextFull, match="3 positions"):
            runtime.forward(4)
        runtime.reset()
        assert runtime.position == 0
        runtime.forward(1)
    with pytest.raises(UsageFailure, match="closed"):
        runtime.forward(1)
    runtime.close()
    for arguments, words in (
        ({"backend": "fpga"}, "none of host, rtl, model, mmio"),
        ({"backend": "host", "threads": 0}, "threads"),
        ({"backend": "host", "context": 25}, "tables for 24"),
        ({"backend": "rtl"}, "needs the path"),
        ({"backend": "mmio"}, "needs registers and buffers"),
    ):
        with pytest.raises(UsageFailure, match=words):
            Runtime(host_library, copy, **arguments)  # type: ignore[arg-type]
