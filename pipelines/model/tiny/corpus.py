"""The text that ``tiny`` learns: the six novels of Jane Austen, out of Debian's ``r-cran-janeaustenr``.

The novels are out of copyright. The package carries them as an R lazy-load database
(``data/Rdata.rdb``): a sequence of records, each a 4-byte big-endian length of the unpacked record
and then a zlib stream, which holds one R object in XDR serialisation (format version 3: "X\\n", three
int32, a counted native encoding, then the object). Each novel is a character vector of printed lines.

The lines are turned back into running text: a paragraph is one line, paragraphs are parted by an
empty line, so that paragraph breaks are learnt with the words. Chapter headings, title pages, notes and
the transcriber's marks (``_italics_``, rules of asterisks) are left out.

The last chapter of every novel is held out for evaluation and the last but one of ``Emma`` for
calibration; neither is seen in training, and neither has a line in common with the other.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.errors import FormatError

PACKAGE = "r-cran-janeaustenr"
DATABASE = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
# First lines of the novels as they stand in the database.
TITLES = ("EMMA", "MANSFIELD PARK", "NORTHANGER ABBEY", "Persuasion", "PRIDE AND PREJUDICE", "SENSE AND SENSIBILITY")

_HEADING = re.compile(r"(chapter|volume) +([ivxlc]+|\d+)\.?", re.IGNORECASE)
_END_OF_NOVEL = ("FINIS", "Finis", "THE END", "A NOTE ON THE TEXT")
_STRSXP = 0x10  # R's type number of a character vector
_NA_STRING = -1  # length that R writes for a missing string


@dataclass(frozen=True)
class Corpus:
    """Three texts without overlap. ``training`` is a list of chapters, the other two are running text."""

    training: list[str]
    evaluation: str
    calibration: str


def records(database: bytes) -> list[bytes]:
    """Unpacked records of an R lazy-load database. FormatError names the offset of a damaged one."""
    found = []
    at = 0
    while at < len(database):
        if at + 4 > len(database):
            raise FormatError(f"{DATABASE}: truncated record header at offset {at}")
        (length,) = struct.unpack_from(">I", database, at)
        stream = zlib.decompressobj()
        try:
            record = stream.decompress(database[at + 4 :])
        except zlib.error as error:
            raise FormatError(f"{DATABASE}: record at offset {at}: {error}") from error
        if len(record) != length or not stream.eof:
            raise FormatError(f"{DATABASE}: record at offset {at} has {len(record)} bytes, its header says {length}")
        found.append(record)
        at = len(database) - len(stream.unused_data)
    return found


def character_vector(record: bytes) -> list[str]:
    """The strings of one serialised R character vector."""
    if not record.startswith(b"X\n\x00\x00\x00\x03"):
        raise FormatError(f"{DATABASE}: not an XDR serialisation of version 3")
    at = 2 + 3 * 4
    try:
        (name_length,) = struct.unpack_from(">I", record, at)
        at += 4 + name_length
        kind, count = struct.unpack_from(">II", record, at)
        at += 8
        if kind & 0xFF != _STRSXP:
            raise FormatError(f"{DATABASE}: object type {kind & 0xFF} is not a character vector")
        strings = []
        for _ in range(count):
            _, length = struct.unpack_from(">Ii", record, at)
            at += 8
            if length == _NA_STRING:
                length = 0
            if length < 0 or at + length > len(record):
                raise FormatError(f"{DATABASE}: string length {length} at offset {at - 4}")
            strings.append(record[at : at + length].decode("utf-8"))
            at += length
    except struct.error as error:
        raise FormatError(f"{DATABASE}: truncated object: {error}") from error
    return strings


def chapters(lines: list[str]) -> list[str]:
    """Running text of each chapter of a novel given as printed lines."""
    found: list[list[str]] = []
    paragraph: list[str] = []

    def close() -> None:
        text = " ".join(" ".join(paragraph).replace("_", "").split())
        paragraph.clear()
        if text and found and not text.startswith("*"):
            found[-1].append(text.replace("*", ""))

    for line in lines:
        stripped = line.strip()
        if stripped in _END_OF_NOVEL:
            break
        if _HEADING.fullmatch(stripped):
            close()
            found.append([])
        elif stripped:
            paragraph.append(stripped)
        else:
            close()
    close()
    return ["\n\n".join(paragraphs) + "\n\n" for paragraphs in found if paragraphs]


def split(novels: dict[str, list[str]]) -> Corpus:
    """Holds out the last chapter of each novel (evaluation) and the last but one of Emma (calibration)."""
    training: list[str] = []
    evaluation = []
    calibration = ""
    for title in TITLES:
        found = chapters(novels[title])
        evaluation.append(found.pop())
        if title == "EMMA":
            calibration = found.pop()
        training += found
    return Corpus(training, "".join(evaluation), calibration)


def read(database: Path) -> Corpus:
    """The corpus out of the package's ``Rdata.rdb``."""
    novels = {}
    for record in records(database.read_bytes()):
        lines = character_vector(record)
        novels[lines[0].strip()] = lines
    missing = [title for title in TITLES if title not in novels]
    if missing:
        raise FormatError(f"{database}: novels missing: {', '.join(missing)}", hint=f"is it {PACKAGE} 1.0.0?")
    return split(novels)
