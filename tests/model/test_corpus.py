"""Out of R's lazy-load database into running text."""

from __future__ import annotations

import struct
import zlib

import pytest

from pipelines.base.errors import FormatError
from pipelines.model.tiny import corpus, vocabulary


def record(lines: list[str | None], kind: int = 0x10) -> bytes:
    body = b"X\n" + struct.pack(">III", 3, 0x40201, 0x30500) + struct.pack(">I", 5) + b"UTF-8"
    body += struct.pack(">II", kind, len(lines))
    for line in lines:
        raw = b"" if line is None else line.encode()
        body += struct.pack(">Ii", 0x40009, -1 if line is None else len(raw)) + raw
    return struct.pack(">I", len(body)) + zlib.compress(body)


def test_records_and_strings() -> None:
    database = record(["one", "", "ü"]) + record([None, "two"])
    found = [corpus.character_vector(r) for r in corpus.records(database)]
    assert found == [["one", "", "ü"], ["", "two"]]


@pytest.mark.parametrize(
    ("database", "message"),
    [
        (record(["a"])[:-3], "record at offset 0"),
        (b"\0\0\0\x09" + zlib.compress(b"x"), "header says 9"),
        (record(["a"]) + b"\0\0", "truncated record header"),
        (b"\0\0\0\x01no zlib", "record at offset 0"),
    ],
)
def test_damaged_databases_are_refused(database: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        corpus.records(database)


def test_other_objects_are_refused() -> None:
    (other,) = corpus.records(record(["a"], kind=0x0D))
    with pytest.raises(FormatError, match="not a character vector"):
        corpus.character_vector(other)
    with pytest.raises(FormatError, match="truncated object"):
        corpus.character_vector(b"X\n\x00\x00\x00\x03" + bytes(8) + b"\0\0\0\0\0\0\0\x10\0\0\0\x05")


NOVEL = ["TITLE", "", "by", "", "VOLUME I", "", "CHAPTER I", "", "It is _so_", "wrapped.", "", '  "Yes,"  he said.', "",
         "* * * * *", "", "Chapter 2", "", "The end*", "of it.", "", "FINIS", "", "A note."]  # fmt: skip


def test_chapters_are_running_text() -> None:
    assert corpus.chapters(NOVEL) == ['It is so wrapped.\n\n"Yes," he said.\n\n', "The end of it.\n\n"]


def test_split_holds_out_last_chapters() -> None:
    def novel(name: str) -> list[str]:
        return [line for n in range(4) for line in (f"CHAPTER {n + 1}", "", f"{name} {n}.", "")]

    found = corpus.split({title: novel(title) for title in corpus.TITLES})
    assert found.evaluation == "".join(f"{title} 3.\n\n" for title in corpus.TITLES)
    assert found.calibration == "EMMA 2.\n\n"
    assert len(found.training) == 6 * 3 - 1
    assert not any(text in found.evaluation + found.calibration for text in found.training)


def test_tokenizer_round_trips_what_it_was_not_trained_on() -> None:
    tokenizer = vocabulary.train(['He said, "I shall not go."\n\n' * 3])
    for text in ('"Ünknown"\n\n', "don't stop", "--'tis\t"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert [tokenizer.token_to_id(t) for t in (vocabulary.UNKNOWN, vocabulary.BEGIN, vocabulary.END)] == [0, 1, 2]
