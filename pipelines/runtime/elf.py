"""What a built library asks of the machine that loads it, read from the ELF file itself: no binutils needed."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.errors import FormatError

_ET_REL = 1
_SHT_SYMTAB, _SHT_DYNAMIC, _SHT_VERNEED, _SHT_DYNSYM = 2, 6, 0x6FFFFFFE, 11
_SHF_EXECINSTR = 4
_DT_NEEDED = 1
_SHN_UNDEF = 0


@dataclass(frozen=True)
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    entry: int


@dataclass(frozen=True)
class Elf:
    """``needed`` libraries, ``versions`` as (library, version), ``undefined`` and ``exported`` symbols (all global ones
    of an object file, else the dynamic ones), ``code`` as bytes."""

    bits: int
    needed: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    undefined: tuple[str, ...]
    exported: tuple[str, ...]
    code: bytes


def read_elf(path: Path) -> Elf:
    """Reads a little-endian ELF file of 32 or 64 bits. Raises FormatError when it is not one."""
    data = path.read_bytes()
    if data[:4] != b"\x7fELF" or data[4] not in (1, 2) or data[5] != 1:
        raise FormatError(f"{path} is not a little-endian ELF file")
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError) as error:
        raise FormatError(f"{path} is a damaged ELF file: {error}") from error


def _read(data: bytes) -> Elf:
    wide = data[4] == 2
    symbols = _SHT_SYMTAB if struct.unpack_from("<H", data, 16)[0] == _ET_REL else _SHT_DYNSYM
    if wide:
        table, entry_size, count = (*struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58))
    else:
        table, entry_size, count = (*struct.unpack_from("<I", data, 32), *struct.unpack_from("<HH", data, 46))
    sections = []
    for index in range(count):
        raw = struct.unpack_from("<IIQQQQIIQQ" if wide else "<IIIIIIIIII", data, table + index * entry_size)
        _, kind, flags, _, offset, size, link, _, _, entry = raw
        sections.append(_Section(kind, flags, offset, size, link, entry))

    def text(section: _Section, offset: int) -> str:
        start = section.offset + offset
        return data[start : data.index(b"\0", start)].decode()

    needed: list[str] = []
    versions: list[tuple[str, str]] = []
    undefined: list[str] = []
    exported: list[str] = []
    code = b""
    for section in sections:
        strings = sections[section.link] if section.link < len(sections) else section
        if section.kind == _SHT_DYNAMIC:
            pair = "<qQ" if wide else "<iI"
            for at in range(section.offset, section.offset + section.size, struct.calcsize(pair)):
                tag, value = struct.unpack_from(pair, data, at)
                if tag == _DT_NEEDED:
                    needed.append(text(strings, value))
        elif section.kind == _SHT_VERNEED:
            at = section.offset
            while True:
                _, auxiliaries, file, first, following = struct.unpack_from("<HHIII", data, at)
                version = at + first
                for _ in range(auxiliaries):
                    _, _, _, name, step = struct.unpack_from("<IHHII", data, version)
                    versions.append((text(strings, file), text(strings, name)))
                    version += step
                if not following:
                    break
                at += following
        elif section.kind == symbols:
            for at in range(section.offset, section.offset + section.size, section.entry):
                if wide:
                    name, info, _, index = struct.unpack_from("<IBBH", data, at)
                else:
                    name, _, _, info, _, index = struct.unpack_from("<IIIBBH", data, at)
                if name and info >> 4:  # named, and not local
                    (undefined if index == _SHN_UNDEF else exported).append(text(strings, name))
        if section.flags & _SHF_EXECINSTR and section.kind == 1:
            code += data[section.offset : section.offset + section.size]
    return Elf(64 if wide else 32, tuple(needed), tuple(versions), tuple(undefined), tuple(exported), code)


# A64 instruction words: (mask, value, name). Arm ARM, C4.1: floating-point data-processing (3 source), and FMLA and
# FMLS, three same and by element, of vectors and scalars. The machines that are built for have no half precision.
_FUSED = (
    (0xFF200000, 0x1F000000, "fmadd/fmsub"),
    (0xFF200000, 0x1F200000, "fnmadd/fnmsub"),
    (0xBFA0FC00, 0x0E20CC00, "fmla"),
    (0xBFA0FC00, 0x0EA0CC00, "fmls"),
    (0xAF80F400, 0x0F801000, "fmla (by element)"),
    (0xAF80F400, 0x0F805000, "fmls (by element)"),
)


def fused_instructions(code: bytes) -> list[str]:
    """Names of fused multiply-add instructions in A64 code, with their offset; empty when there is none."""
    found = []
    for index, (word,) in enumerate(struct.iter_unpack("<I", code[: len(code) // 4 * 4])):
        for mask, value, name in _FUSED:
            if word & mask == value:
                found.append(f"{name} at 0x{index * 4:x}")
    return found
