"""A ``.bit`` file: its header, its payload, what the payload says of itself, and the payload as Linux wants it.

The header holds the design's name, date and time, so two equal builds differ there; only the payload is compared.
"""

from __future__ import annotations

import array
import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.base.errors import ToolFailed

SYNC_WORD = b"\xaa\x99\x55\x66"
IDCODE_OF_PART = {"xc7z020clg400-1": 0x0372_7093}
IDCODE_MASK = 0x0FFF_FFFF
"""The upper four bits are the revision of the silicon."""

PAYLOAD_BYTES_OF_PART = {"xc7z020clg400-1": 4_045_564}
"""Length of an uncompressed bitstream (UG470, bitstream lengths)."""

_REGISTER_IDCODE = 0b01100
_REGISTER_AXSS = 0b01101  # written from the property USR_ACCESS


class BitfileError(ToolFailed):
    """A bitstream is cut off or not one."""


@dataclass(frozen=True)
class Bitfile:
    """What a ``.bit`` says."""

    design: str  # tritforge_system_wrapper
    options: dict[str, str]  # UserID, Version, …, from the same field
    part: str  # 7z020clg400
    date: str
    time: str
    payload: bytes
    idcode: int | None
    usr_access: int | None

    @property
    def payload_sha256(self) -> str:
        return hashlib.sha256(self.payload).hexdigest()


def parse(data: bytes) -> Bitfile:
    """Reads a whole file. The header is a run of fields, each a letter, a length and that many bytes::

    00 09 | 0f f0 0f f0 0f f0 0f f0 00 | 00 01
    'a' 00 3a  tritforge_system_wrapper;UserID=0XFFFFFFFF;Version=2024.1 00
    'b' 00 0c  7z020clg400 00      'c' date      'd' time
    'e' 00 3d ba fc  <payload>
    """
    try:
        (skip,) = struct.unpack_from(">H", data, 0)
        at = 2 + skip + 2
        fields: dict[str, str] = {}
        while True:
            key = data[at : at + 1].decode("ascii")
            if key == "e":
                (length,) = struct.unpack_from(">I", data, at + 1)
                payload = data[at + 5 :]
                break
            if key not in ("a", "b", "c", "d") or key in fields:
                raise BitfileError(f"this is not a bitstream: field {key!r} at byte {at}")
            (length,) = struct.unpack_from(">H", data, at + 1)
            fields[key] = data[at + 3 : at + 3 + length].rstrip(b"\0").decode("utf-8", "replace")
            at += 3 + length
    except (struct.error, UnicodeDecodeError):
        raise BitfileError("this is not a bitstream, or only its first bytes") from None
    if len(payload) != length:
        raise BitfileError(f"the bitstream is cut off: {len(payload)} of {length} bytes of payload")
    if set("abcd") - set(fields):
        raise BitfileError("the bitstream's header lacks a field")
    name, *options = fields["a"].split(";")
    idcode = usr_access = None
    for register, words in register_writes(payload):
        if register == _REGISTER_IDCODE and words:
            idcode = words[0]
        elif register == _REGISTER_AXSS and words:
            usr_access = words[0]
    return Bitfile(
        design=name,
        options=dict(option.split("=", 1) for option in options if "=" in option),
        part=fields["b"],
        date=fields["c"],
        time=fields["d"],
        payload=payload,
        idcode=idcode,
        usr_access=usr_access,
    )


def register_writes(payload: bytes) -> Iterator[tuple[int, list[int]]]:
    """Writes to configuration registers, in order; of long ones (frames) only the first word is given.

    UG470, "Configuration packets": type 1 is ``001 op(2) register(14) reserved(2) count(11)``; type 2, ``010 op(2)
    count(27)``, continues the register of the type 1 before it.
    """
    start = payload.find(SYNC_WORD)
    if start < 0:
        raise BitfileError("the bitstream has no synchronisation word")
    at, register = start + 4, 0
    while at + 4 <= len(payload):
        (word,) = struct.unpack_from(">I", payload, at)
        at += 4
        kind, operation = word >> 29, word >> 27 & 3
        if kind == 1:
            register, count = word >> 13 & 0x3FFF, word & 0x7FF
        elif kind == 2:
            count = word & 0x7FF_FFFF
        else:
            continue  # padding after the last command
        if operation == 2 and count:
            shown = min(count, 1)
            if at + 4 * shown > len(payload):
                return
            yield register, list(struct.unpack_from(f">{shown}I", payload, at))
            at += 4 * count
    return


def byte_swapped(payload: bytes) -> bytes:
    """The payload with the bytes of each 32-bit word turned round: what Linux' fpga_manager loads on a Zynq-7000."""
    if len(payload) % 4:
        raise BitfileError(f"the payload has {len(payload)} bytes, not whole 32-bit words")
    words = array.array("I", payload)
    assert words.itemsize == 4
    words.byteswap()
    return words.tobytes()


def check(bit: Bitfile, *, part: str, content_id: int) -> list[str]:
    """What is wrong with a bitstream that should be for ``part`` and carry ``content_id``; empty when nothing is."""
    wrong = []
    expected = re.sub(r"^xc|-\d\w*$", "", part)
    if bit.part.replace("-", "") != expected:
        wrong.append(f"it is for {bit.part}, not {expected}")
    if bit.idcode is None or (bit.idcode ^ IDCODE_OF_PART[part]) & IDCODE_MASK:
        found = "none" if bit.idcode is None else f"0x{bit.idcode:08X}"
        wrong.append(f"its device id is {found}, not 0x{IDCODE_OF_PART[part]:08X}")
    if bit.usr_access != content_id:
        found = "none" if bit.usr_access is None else f"0x{bit.usr_access:08X}"
        wrong.append(f"its USR_ACCESS is {found}, not the content id 0x{content_id:08X}")
    if len(bit.payload) != PAYLOAD_BYTES_OF_PART[part]:
        wrong.append(f"its payload has {len(bit.payload)} bytes, not {PAYLOAD_BYTES_OF_PART[part]}")
    return wrong
