"""Headers refuse what an engine would refuse; sizes and generated files are what the definition says."""

from __future__ import annotations

import pytest

from pipelines.base.errors import FormatError
from pipelines.golden import codegen, formats


def test_generated_headers_are_up_to_date() -> None:
    assert codegen.main(["--check"]) == 0


def test_structures_have_the_documented_sizes() -> None:
    assert formats.PARAMS_HEADER.size == formats.PARAMS_HEADER_BYTES
    assert formats.TRANSFER_ENTRY.size == formats.TRANSFER_ENTRY_BYTES


@pytest.mark.parametrize("rows", [1, 2, 4608, formats.MAX_ROWS])
@pytest.mark.parametrize("length", [1, 40, 1536, 4096])
@pytest.mark.parametrize("load_x", [False, True])
def test_matvec_header_round_trip(rows: int, length: int, load_x: bool) -> None:
    header = formats.MatvecHeader(rows, length, load_x)
    assert formats.MatvecHeader.decode(header.encode()) == header


@pytest.mark.parametrize("positions", [1, 512, 2048])
@pytest.mark.parametrize("m", [0, 10818, formats.M_MAX])
def test_attention_header_round_trip(positions: int, m: int) -> None:
    header = formats.AttentionHeader(positions, m)
    assert formats.AttentionHeader.decode(header.encode()) == header


@pytest.mark.parametrize("kind", [formats.MatvecHeader(384, 192, True), formats.AttentionHeader(17, 30000)])
def test_every_flipped_header_bit_is_refused(kind: formats.MatvecHeader | formats.AttentionHeader) -> None:
    for bit in range(64):
        with pytest.raises(FormatError):
            type(kind).decode(kind.encode() ^ 1 << bit)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: formats.MatvecHeader(0, 40, True).encode(), "matvec header: rows is 0; allowed are 1 to 16777215"),
        (lambda: formats.MatvecHeader(1, 4097, True).encode(), "matvec header: row length is 4097"),
        (lambda: formats.AttentionHeader(0, 1).encode(), "attention header: T is 0"),
        (lambda: formats.AttentionHeader(1, 131072).encode(), "attention header: m is 131072"),
        (lambda: formats.AttentionHeader(1, 1, 92).encode(), "attention header: head_dim is 92"),
        (lambda: formats.probability_bits(2049), "context is 2049"),
    ],
)
def test_a_field_out_of_range_is_named(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(FormatError, match=message):
        make()


def test_packed_image_of_the_large_model_has_the_derived_word_count() -> None:
    """18,463,566 row words and 141.27 MiB with headers and x on both ports."""
    hidden, ffn, layers, vocab = 1536, 4096, 24, 32002
    groups = [(3 * hidden, hidden), (hidden, hidden), (2 * ffn, hidden), (hidden, ffn)] * layers + [(vocab, hidden)]
    rows = sum(count * formats.words_for_row(length) for count, length in groups)
    overhead = sum(formats.PORTS * (1 + formats.words_for_x(length)) for _, length in groups)
    assert rows == 18_463_566
    assert round((rows + overhead) * formats.WORD_BYTES / 2**20, 2) == 141.27


def test_ports_share_all_rows() -> None:
    for rows in range(2, 50):
        (first0, count0), (first1, count1) = formats.port_rows(rows)
        assert (first0, first1, count0 + count1) == (0, count0, rows)
        assert count0 - count1 in (0, 1)
