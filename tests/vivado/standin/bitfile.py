"""Writes a ``.bit``: the real header, then a stream with sync word, id code, USR_ACCESS and filler frames."""

from __future__ import annotations

import hashlib
import struct

IDCODE_7Z020 = 0x0372_7093
PAYLOAD_BYTES = 4_045_564
"""Length of an uncompressed xc7z020 bitstream (UG470, table of bitstream lengths)."""

_IDCODE, _AXSS, _CMD, _FDRI, _CRC = 0b01100, 0b01101, 0b00100, 0b00010, 0b00000


def _write(register: int, *words: int) -> bytes:
    """A type-1 packet that writes words to a register."""
    return struct.pack(f">{1 + len(words)}I", 0x3000_0000 | register << 13 | len(words), *words)


def payload(digest: bytes, usr_access: int) -> bytes:
    """Deterministic: the same digest gives the same bytes."""
    head = b"\xff" * 32 + struct.pack(">II", 0x0000_00BB, 0x1122_0044) + b"\xff" * 8
    head += struct.pack(">II", 0xAA99_5566, 0x2000_0000)
    head += _write(_CMD, 7) + _write(_IDCODE, IDCODE_7Z020) + _write(_AXSS, usr_access) + _write(_CMD, 1)
    tail = _write(_CRC, int.from_bytes(digest[:4], "big")) + _write(_CMD, 13) + struct.pack(">I", 0x2000_0000) * 16
    frames = (PAYLOAD_BYTES - len(head) - len(tail) - 8) // 4
    head += struct.pack(">II", 0x3000_0000 | _FDRI << 13, 0x5000_0000 | frames)
    return head + hashlib.shake_256(digest).digest(frames * 4) + tail


def bitfile(design: str, part: str, date: str, time: str, data: bytes) -> bytes:
    """Header fields a to d as zero-terminated strings, e as length and payload."""
    out = struct.pack(">H", 9) + bytes.fromhex("0ff00ff00ff00ff000") + struct.pack(">H", 1)
    for key, text in ((b"a", design), (b"b", part), (b"c", date), (b"d", time)):
        value = text.encode() + b"\0"
        out += key + struct.pack(">H", len(value)) + value
    return out + b"e" + struct.pack(">I", len(data)) + data
