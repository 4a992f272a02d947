"""Formats: stream words, packed image, register map and trace points. Defined here once.

``codegen`` writes the same numbers into ``hw/rtl/tritforge_pkg.sv`` and ``native/include/tf_formats.h``; prose in
``docs/formats.md``. All words are little-endian. Raise ``FORMATS_VERSION`` on any change that an older circuit,
runtime or image would misread.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pipelines.base.errors import FormatError

FORMATS_VERSION = 1

WORD_BYTES = 8  # one AXI4-Stream beat of an HP port
PORTS = 2  # ports (DMAs) of each circuit
CACHE_LINE_BYTES = 32  # Cortex-A9 L1 and L2
TRANSFER_ALIGN_BYTES = 64  # a transfer starts on its own cache lines; also what an SG descriptor wants

# ---------------------------------------------------------------- ternary matrix-vector
TRITS_PER_BYTE = 5  # 3**5 = 243 of 256 codes
TRITS_PER_WORD = TRITS_PER_BYTE * WORD_BYTES
TRIT_CODES = 3**TRITS_PER_BYTE
ZERO_TRITS_CODE = 121  # five zero trits: 1 + 3 + 9 + 27 + 81
MAX_ROW_LENGTH = 4096  # trits; depth of the x memory
MAX_ROWS = (1 << 24) - 1

MATVEC_MAGIC = 0xB1
ATTENTION_MAGIC = 0xA7
HEADER_VERSION = 1

# ---------------------------------------------------------------- attention
HEAD_DIM = 96
MAX_CONTEXT_BOARD = 512
MAX_CONTEXT = 2048
TAU = 16  # steps of the exponential table per unit of the real score
SCORE_SHIFT = 24  # z = (q.k * m) >> 24
M_MAX = 131_071  # 17 bits and a zero sign bit: the DSP's 18-bit signed input
EXP_TABLE_ENTRIES = 256  # distances beyond give probability 0

# ---------------------------------------------------------------- engines: sticky error bits
ERROR_BITS = {
    "bad_magic": 0,  # header byte 0
    "bad_version": 1,  # header bits 11:8
    "bad_check": 2,  # header byte 7 is not the xor of bytes 0..6
    "bad_field": 3,  # a count or length outside its range, or a reserved bit set
    "illegal_code": 4,  # a weight byte of 243..255
    "early_tlast": 5,  # TLAST inside a group or head
    "x_missing": 6,  # a group keeps x, but none was loaded since reset, or it is shorter than the row
}
ENGINES = ("matvec0", "matvec1", "attention0", "attention1")

# ---------------------------------------------------------------- control block (AXI4-Lite, byte offsets)
CONTROL_ID = 0x54495254  # "TRIT" read as little-endian bytes
REGISTERS = {
    "ID": 0x000,
    "VERSION": 0x004,  # FORMATS_VERSION
    "CONTENT_ID": 0x008,  # 32-bit content id of the build
    "CONFIG": 0x00C,  # bits 7:0 engines, 15:8 head_dim / 8, 31:16 largest T
    "CYCLES_LO": 0x010,  # free-running clock counter; reading LO latches HI
    "CYCLES_HI": 0x014,
    "CONTROL": 0x018,  # write one: bits 3:0 reset engine e, bit 8 clear all counters; reads 0
    "SCRATCH": 0x01C,  # read/write, for a bus check
}
ENGINE_BASE = 0x100
ENGINE_STRIDE = 0x040
ENGINE_REGISTERS = {
    "WORDS_IN": 0x00,  # accepted input beats
    "WORDS_OUT": 0x04,  # accepted output beats
    "STALL_IN": 0x08,  # cycles inside a transfer, ready, but no input valid
    "STALL_OUT": 0x0C,  # cycles with input valid, not ready because results wait for the output
    "STALL_TURN": 0x10,  # cycles with input valid, not ready for any other reason
    "TRANSFERS": 0x14,  # input beats with TLAST
    "ERRORS": 0x18,  # sticky ERROR_BITS; cleared by the engine's reset only
    "ERROR_WORD": 0x1C,  # index in the transfer of the word that raised the first error
}

# ---------------------------------------------------------------- addresses on the general-purpose port
CONTROL_BASE = 0x43C0_0000
DMA_BASE = 0x4040_0000
DMA_STRIDE = 0x0001_0000  # in the order of ENGINES
SEGMENT_BYTES = 0x0001_0000

# ---------------------------------------------------------------- groups of a layer, in the order of a token
GROUPS = ("qkv", "o", "gate_up", "down", "head")
MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
GROUP_MATRICES = {"qkv": ("q", "k", "v"), "o": ("o",), "gate_up": ("gate", "up"), "down": ("down",)}

# ---------------------------------------------------------------- params.tfp
PARAMS_MAGIC = b"TFPARAM1"
PARAMS_HEADER = struct.Struct("<8sIIQQ8IIIfIIIIIQII8sI4s")  # fields of ParamsHeader, then crc32 and padding
PARAMS_HEADER_BYTES = 128
TRANSFER_ENTRY = struct.Struct("<IIIIQQIIIIII")
TRANSFER_ENTRY_BYTES = 56
TRANSFER_LOADS_X = 1  # flag bit of a transfer entry

# Bounds of its floats: (smallest, largest) magnitude as exponents of two. Within them every number of a token that
# decides a bit is a normal float32, at the smallest and at the largest (docs/formats.md has the sums).
FLOAT_BOUNDS = {
    "NORM_WEIGHT": (-30, 10),  # or zero
    "MATRIX_SCALE": (-30, 6),  # of q k v o gate up down, and of each plane of the head
    "KV_SCALE": (-30, 30),  # of K and V of a head, and their inverses
    "SCORE_COEFFICIENT": (-7, 57),  # tau * sk / sqrt(8..504) * 2**24
}

# Trace points of a token, in order: (name, per layer?). The id of a point is its index. Golden model and runtime
# report the same arrays under the same ids, which is what lets `verify` bisect.
TRACE_POINTS: tuple[tuple[str, bool], ...] = (
    ("embedding", False),  # f32[hidden]
    ("attn_in_code", True),  # i8[hidden], after input norm and quantisation
    ("attn_in_scale", True),  # f32[1]
    ("qkv_acc", True),  # i32[3 * hidden], from the circuit
    ("q_rot", True),  # f32[hidden], after RoPE
    ("k_rot", True),  # f32[hidden]
    ("q_code", True),  # i8[hidden]
    ("score_m", True),  # i32[heads]
    ("k_code", True),  # i8[hidden], appended to the cache
    ("v_code", True),  # i8[hidden]
    ("attn_acc", True),  # i32[heads * (head_dim + 1)], from the circuit: numerators, then sum of p
    ("attn_out", True),  # f32[hidden]
    ("o_in_code", True),
    ("o_in_scale", True),
    ("o_acc", True),  # i32[hidden]
    ("attn_residual", True),  # f32[hidden]
    ("ffn_in_code", True),
    ("ffn_in_scale", True),
    ("gate_up_acc", True),  # i32[2 * ffn]
    ("ffn_hidden", True),  # f32[ffn]
    ("down_in_code", True),  # i8[ffn]
    ("down_in_scale", True),
    ("down_acc", True),  # i32[hidden]
    ("ffn_residual", True),  # f32[hidden]
    ("head_in_code", False),  # i8[hidden]
    ("head_in_scale", False),
    ("head_acc", False),  # i32[planes * vocab]
    ("logits", False),  # f32[vocab]
)


def probability_bits(context: int) -> int:
    """Bits of a probability so that sum(p * V) fits int32 at this largest T: 15 up to 512, 13 up to 2048."""
    if not 1 <= context <= MAX_CONTEXT:
        raise FormatError(f"context is {context}; allowed are 1 to {MAX_CONTEXT}")
    return 15 if context <= MAX_CONTEXT_BOARD else 13


def words_for_row(row_length: int) -> int:
    """64-bit words of one packed row of ``row_length`` trits."""
    return -(-row_length // TRITS_PER_WORD)


def words_for_x(row_length: int) -> int:
    """64-bit words of an int8 vector of ``row_length`` entries."""
    return -(-row_length // WORD_BYTES)


def _with_check(word: int) -> int:
    """The header word with byte 7 set to the xor of bytes 0..6."""
    check = 0
    for byte in word.to_bytes(8, "little")[:7]:
        check ^= byte
    return word | check << 56


def _checked(word: int, magic: int, what: str) -> None:
    raw = word.to_bytes(8, "little")
    check = 0
    for byte in raw[:7]:
        check ^= byte
    if raw[0] != magic:
        raise FormatError(f"{what} header: magic is 0x{raw[0]:02x}, must be 0x{magic:02x}")
    if raw[1] & 15 != HEADER_VERSION:
        raise FormatError(f"{what} header: version is {raw[1] & 15}, must be {HEADER_VERSION}")
    if raw[7] != check:
        raise FormatError(f"{what} header: check byte is 0x{raw[7]:02x}, must be 0x{check:02x}")


@dataclass(frozen=True)
class MatvecHeader:
    """Header of a group: ``rows`` rows of ``row_length`` trits; x follows or the last one is kept.

    Bits: 7:0 magic, 11:8 version, 12 x follows, 15:13 number of x minus one (0; room for batched prefill), 31:16 row
    length, 55:32 rows, 63:56 check.
    """

    rows: int
    row_length: int
    load_x: bool

    def encode(self) -> int:
        if not 1 <= self.rows <= MAX_ROWS:
            raise FormatError(f"matvec header: rows is {self.rows}; allowed are 1 to {MAX_ROWS}")
        if not 1 <= self.row_length <= MAX_ROW_LENGTH:
            raise FormatError(f"matvec header: row length is {self.row_length}; allowed are 1 to {MAX_ROW_LENGTH}")
        return _with_check(
            MATVEC_MAGIC | HEADER_VERSION << 8 | int(self.load_x) << 12 | self.row_length << 16 | self.rows << 32
        )

    @classmethod
    def decode(cls, word: int) -> MatvecHeader:
        _checked(word, MATVEC_MAGIC, "matvec")
        if word >> 13 & 7:
            raise FormatError(f"matvec header: number of x is {(word >> 13 & 7) + 1}, must be 1")
        header = cls(rows=word >> 32 & 0xFF_FFFF, row_length=word >> 16 & 0xFFFF, load_x=bool(word >> 12 & 1))
        header.encode()
        return header


@dataclass(frozen=True)
class AttentionHeader:
    """Header of a head: T positions, multiplier m.

    Bits: 7:0 magic, 11:8 version, 15:12 zero, 31:16 T, 48:32 m, 49 zero, 55:50 head_dim / 8, 63:56 check.
    """

    positions: int
    m: int
    head_dim: int = HEAD_DIM

    def encode(self) -> int:
        if not 1 <= self.positions <= MAX_CONTEXT:
            raise FormatError(f"attention header: T is {self.positions}; allowed are 1 to {MAX_CONTEXT}")
        if not 0 <= self.m <= M_MAX:
            raise FormatError(f"attention header: m is {self.m}; allowed are 0 to {M_MAX}")
        if self.head_dim % 8 or not 8 <= self.head_dim <= 504:
            raise FormatError(f"attention header: head_dim is {self.head_dim}; allowed are multiples of 8 to 504")
        return _with_check(
            ATTENTION_MAGIC | HEADER_VERSION << 8 | self.positions << 16 | self.m << 32 | (self.head_dim // 8) << 50
        )

    @classmethod
    def decode(cls, word: int) -> AttentionHeader:
        _checked(word, ATTENTION_MAGIC, "attention")
        if word >> 12 & 15 or word >> 49 & 1:
            raise FormatError("attention header: a reserved bit is set")
        header = cls(positions=word >> 16 & 0xFFFF, m=word >> 32 & 0x1_FFFF, head_dim=(word >> 50 & 63) * 8)
        header.encode()
        return header


@dataclass(frozen=True)
class ParamsHeader:
    """First 128 bytes of ``params.tfp``; ``crc32`` (zlib) covers the whole file with its own four bytes zero."""

    file_bytes: int
    stream_bytes: int  # size of weights.tfs
    hidden: int
    ffn: int
    layers: int
    heads: int
    head_dim: int
    vocab: int
    context: int  # largest T; positions in the RoPE tables
    head_planes: int  # ternary planes of the output head
    transfers: int  # entries in the transfer table
    ports: int
    rms_eps: float
    bos: int
    eos: int
    max_transfer_bytes: int
    tau: int
    score_shift: int
    embedding_bytes: int  # size of embedding.f16
    flags: int = 0
    crc32: int = 0

    def encode(self) -> bytes:
        return PARAMS_HEADER.pack(
            PARAMS_MAGIC, FORMATS_VERSION, PARAMS_HEADER_BYTES, self.file_bytes, self.stream_bytes,
            self.hidden, self.ffn, self.layers, self.heads, self.head_dim, self.vocab, self.context, self.head_planes,
            self.transfers, self.ports, self.rms_eps, self.bos, self.eos, self.max_transfer_bytes, self.tau,
            self.score_shift, self.embedding_bytes, self.flags, 0, bytes(8), self.crc32, bytes(4),
        )  # fmt: skip


@dataclass(frozen=True)
class TransferEntry:
    """One DMA transfer of ``weights.tfs``: header word, x slot if it loads x, then ``rows`` packed rows.

    A group that is longer than ``max_transfer_bytes`` on a port is cut into pieces at row boundaries; the first piece
    loads x, the others keep it. ``first_row`` counts within the group. The head is layer ``layers``.
    """

    layer: int
    group: int  # index in GROUPS
    port: int
    piece: int
    offset: int  # bytes from the start of weights.tfs; a multiple of TRANSFER_ALIGN_BYTES
    size_bytes: int
    first_row: int
    rows: int
    row_length: int
    flags: int  # TRANSFER_LOADS_X
    x_offset: int  # bytes from the transfer's start to its x slot: 8, or 0 without one
    crc32: int  # zlib, of the transfer's bytes with an all-zero x slot

    def encode(self) -> bytes:
        return TRANSFER_ENTRY.pack(
            self.layer, self.group, self.port, self.piece, self.offset, self.size_bytes,
            self.first_row, self.rows, self.row_length, self.flags, self.x_offset, self.crc32,
        )  # fmt: skip

    @classmethod
    def decode(cls, raw: bytes) -> TransferEntry:
        return cls(*TRANSFER_ENTRY.unpack(raw))


def port_rows(rows: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(first row, rows) of each port: port 0 takes the first half, and the odd row."""
    half = (rows + 1) // 2
    return (0, half), (half, rows - half)
