"""The registers of the AXI DMA model against PG021's rules, on both kinds of board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.base.errors import PlTimeout, UsageError
from pipelines.golden.float32 import I8
from pipelines.hardware.checks import random_group, random_groups
from pipelines.hardware.library import (
    ADDRESS,
    CURDESC,
    DMACR,
    DMASR,
    ERRORS,
    HALTED,
    IDLE,
    IOC,
    LENGTH,
    RESET,
    RUN,
    TAILDESC,
    Pl,
)
from pipelines.hardware.streams import U64, Group, matvec_transfer
from tests.hardware.conftest import CONTENT_ID

ENGINE = 0
COMPLETE = 1 << 31
SOF, EOF = 1 << 27, 1 << 26
TARGET = 0x8_0000
DESCRIPTORS = 0xF_0000


@pytest.fixture
def stream() -> tuple[U64, U64]:
    return matvec_transfer(random_groups(np.random.default_rng(31), 4))


def status(pl: Pl, *, to_memory: bool = False) -> int:
    return pl.read32(pl.dma(ENGINE, DMASR, to_memory=to_memory))


def fresh(library: Path, **options: int) -> Pl:
    return Pl(library, memory_bytes=1 << 20, content_id=CONTENT_ID, **options)


class TestSimpleMode:
    def test_after_reset_both_channels_are_halted_and_not_idle(self, pl: Pl) -> None:
        pl.write32(pl.dma(ENGINE, DMACR), RESET)
        assert pl.read32(pl.dma(ENGINE, DMACR)) & RESET, "reset takes some cycles"
        while pl.read32(pl.dma(ENGINE, DMACR)) & RESET:
            pass
        for to_memory in (False, True):
            assert pl.read32(pl.dma(ENGINE, DMACR, to_memory=to_memory)) == 0x10002
            assert status(pl, to_memory=to_memory) == HALTED

    def test_idle_is_zero_before_the_first_transfer_and_one_after_it(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        assert not status(pl) & (HALTED | IDLE)
        assert (pl.transfer(ENGINE, *_sized(stream)) == stream[1]).all()
        assert status(pl) & IDLE and status(pl, to_memory=True) & IDLE
        assert pl.complaint() == ""

    def test_interrupt_bits_are_cleared_by_writing_one(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        size = pl.put(0, stream[0])
        pl.start(ENGINE, 0, size, TARGET, 8 * stream[1].size)
        while not status(pl, to_memory=True) & IDLE:
            pass
        assert status(pl, to_memory=True) & IOC
        pl.write32(pl.dma(ENGINE, DMASR, to_memory=True), 0)
        assert status(pl, to_memory=True) & IOC
        pl.write32(pl.dma(ENGINE, DMASR, to_memory=True), IOC)
        assert not status(pl, to_memory=True) & IOC
        assert status(pl, to_memory=True) & IDLE, "only the interrupt bits can be cleared"

    def test_a_length_written_while_halted_starts_nothing(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        pl.write32(pl.dma(ENGINE, DMACR), 0)
        assert status(pl) & HALTED
        pl.write32(pl.dma(ENGINE, LENGTH), pl.put(0, stream[0]))
        pl.advance(10_000)
        assert pl.counters(ENGINE).words_in == 0
        assert "halted" in pl.complaint()

    def test_the_length_register_shows_what_came(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        size = pl.put(0, stream[0])
        pl.start(ENGINE, 0, size, TARGET, 0x1000)
        assert pl.finish(ENGINE) == 8 * stream[1].size

    def test_a_packet_longer_than_its_buffer_is_an_internal_error(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        size = pl.put(0, stream[0])
        pl.start(ENGINE, 0, size, TARGET, 8 * stream[1].size - 8)
        with pytest.raises(PlTimeout, match="longer than its buffer"):
            pl.finish(ENGINE)
        assert status(pl, to_memory=True) & 1 << 4 and status(pl, to_memory=True) & HALTED
        pl.write32(pl.dma(ENGINE, DMACR, to_memory=True), RUN)
        assert status(pl, to_memory=True) & HALTED, "an error stays until reset"
        pl.reset(ENGINE)
        assert (pl.transfer(ENGINE, *_sized(stream)) == stream[1]).all()

    def test_addresses_outside_the_buffer_are_a_decode_error(self, pl: Pl) -> None:
        pl.write32(pl.dma(ENGINE, ADDRESS), pl.physical(pl.options.memory_bytes - 64))
        pl.write32(pl.dma(ENGINE, LENGTH), 128)
        pl.advance(100)
        assert status(pl) & 1 << 6 and status(pl) & HALTED
        assert "leaves the buffer" in pl.complaint()

    @pytest.mark.parametrize(("address", "length"), [(4, 64), (0, 60)])
    def test_there_is_no_realignment_engine(self, pl: Pl, address: int, length: int) -> None:
        pl.write32(pl.dma(ENGINE, ADDRESS), pl.physical(address))
        pl.write32(pl.dma(ENGINE, LENGTH), length)
        pl.advance(100)
        assert status(pl) & 1 << 4
        assert "whole words" in pl.complaint()

    def test_reset_of_one_channel_resets_both(self, pl: Pl) -> None:
        pl.write32(pl.dma(ENGINE, DMACR, to_memory=True), RESET)
        pl.advance(100)
        assert status(pl) & HALTED and status(pl, to_memory=True) & HALTED

    def test_results_wait_four_beats_deep_until_the_channel_is_armed(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        answer = stream[1]
        assert answer.size > 8
        size = pl.put(0, stream[0])
        pl.write32(pl.dma(ENGINE, ADDRESS), pl.physical(0))
        pl.write32(pl.dma(ENGINE, LENGTH), size)
        pl.advance(20_000)
        assert pl.counters(ENGINE).words_out == 4
        pl.write32(pl.dma(ENGINE, ADDRESS, to_memory=True), pl.physical(TARGET))
        pl.write32(pl.dma(ENGINE, LENGTH, to_memory=True), 8 * answer.size)
        assert pl.finish(ENGINE) == 8 * answer.size
        assert (pl.words(TARGET, answer.size) == answer).all()

    def test_a_wrong_stream_is_a_time_out_with_a_name(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        wrong = stream[0].copy()
        wrong[0] ^= np.uint64(0x100)
        with pytest.raises(PlTimeout, match=r"bad_version.*word 0"):
            pl.transfer(ENGINE, wrong, stream[1].size, polls=50)
        counters = pl.counters(ENGINE)
        assert counters.words_in == wrong.size and counters.words_out == 0 and counters.transfers == 1
        pl.reset(ENGINE)
        assert (pl.transfer(ENGINE, *_sized(stream)) == stream[1]).all()

    def test_a_poll_that_cannot_change_returns(self, pl: Pl) -> None:
        before = pl.statistics().cycles
        for _ in range(100):
            status(pl, to_memory=True)
        assert pl.statistics().cycles - before < 100 * 100


def test_the_length_register_is_as_wide_as_built(rtl_library: Path, stream: tuple[U64, U64]) -> None:
    with fresh(rtl_library, length_width=8) as pl:
        pl.reset(ENGINE)
        pl.write32(pl.dma(ENGINE, LENGTH), 0x100)
        pl.advance(1000)
        assert pl.counters(ENGINE).words_in == 0, "a length of 256 is 0 in eight bits"
        assert "width" in pl.complaint()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"interface": 99}, "interface"),
        ({"physical_base": 100}, "physical_base"),
        ({"memory_bytes": 0}, "buffer"),
        ({"length_width": 27}, "length_width"),
        ({"access_cycles": 1}, "access_cycles"),
        ({"ddr": 1, "ddr_bytes_per_kilocycle": 0}, "ddr_bytes_per_kilocycle"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(model_library: Path, options: dict[str, int], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        Pl(model_library, **options)


def _sized(stream: tuple[U64, U64]) -> tuple[U64, int]:
    return stream[0], stream[1].size


# ---------------------------------------------------------------- scatter-gather


class Ring:
    """Descriptors one after the other, each pointing to the next."""

    def __init__(self, pl: Pl, offset: int) -> None:
        self.pl, self.offset = pl, offset

    def address(self, index: int) -> int:
        return self.pl.physical(self.offset + 64 * index)

    def write(self, index: int, buffer: int, length: int, flags: int = 0) -> None:
        raw = np.zeros(16, dtype=np.uint32)
        raw[0], raw[2], raw[6] = self.address(index + 1), self.pl.physical(buffer), length | flags
        self.pl.put(self.offset + 64 * index, raw.view(np.uint8))

    def status(self, index: int) -> int:
        at = self.offset + 64 * index
        self.pl.invalidate(at, 64)
        return int(self.pl.memory[at + 0x1C : at + 0x20].view(np.uint32)[0])


@pytest.fixture(params=["rtl", "model"])
def sg(request: pytest.FixtureRequest) -> Pl:
    return fresh(request.getfixturevalue(f"{request.param}_library"), scatter_gather=1)


def start(pl: Pl, ring: Ring, tail: int, *, to_memory: bool = False, head: int = 0) -> None:
    pl.write32(pl.dma(ENGINE, CURDESC, to_memory=to_memory), ring.address(head))
    pl.write32(pl.dma(ENGINE, DMACR, to_memory=to_memory), RUN | 1 << 16)
    while status(pl, to_memory=to_memory) & HALTED:
        pass
    pl.write32(pl.dma(ENGINE, TAILDESC, to_memory=to_memory), ring.address(tail))


def run_to_idle(pl: Pl, *, to_memory: bool = False) -> int:
    for _ in range(1000):
        value = status(pl, to_memory=to_memory)
        if value & (IDLE | ERRORS):
            return value
    raise AssertionError(f"not idle: {value:#x}")


class TestScatterGather:
    def chain(self, pl: Pl, stream: tuple[U64, U64], pieces: int) -> tuple[Ring, Ring]:
        """MM2S in pieces at scattered places, S2MM in two descriptors."""
        source, target = Ring(pl, DESCRIPTORS), Ring(pl, DESCRIPTORS + 0x4000)
        words, answer = stream
        cuts = np.linspace(0, words.size, pieces + 1).astype(int)
        for i in range(pieces):
            part = words[cuts[i] : cuts[i + 1]]
            place = 0x1000 * i
            pl.put(place, part)
            source.write(i, place, 8 * part.size, (SOF if i == 0 else 0) | (EOF if i == pieces - 1 else 0))
        first = 8 * (answer.size // 2)
        target.write(0, TARGET, first)
        target.write(1, TARGET + first, 8 * answer.size - first + 64)
        return source, target

    @pytest.mark.parametrize("pieces", [1, 2, 7])
    def test_a_packet_in_pieces(self, sg: Pl, stream: tuple[U64, U64], pieces: int) -> None:
        source, target = self.chain(sg, stream, pieces)
        start(sg, target, 1, to_memory=True)
        start(sg, source, pieces - 1)
        assert not run_to_idle(sg, to_memory=True) & ERRORS
        answer = stream[1]
        assert (sg.words(TARGET, answer.size) == answer).all()
        for i in range(pieces):
            assert source.status(i) & COMPLETE
        assert target.status(0) >> 26 == 0b100010, "complete, begins the packet, does not end it"
        assert target.status(1) >> 26 == 0b100001
        assert (target.status(0) & 0x3FFFFFF) + (target.status(1) & 0x3FFFFFF) == 8 * answer.size
        assert status(sg, to_memory=True) & IOC
        assert sg.counters(ENGINE).transfers == 1
        assert sg.complaint() == ""

    def test_the_tail_may_be_moved_while_running_and_after(self, sg: Pl, stream: tuple[U64, U64]) -> None:
        source, target = Ring(sg, DESCRIPTORS), Ring(sg, DESCRIPTORS + 0x4000)
        words, answer = stream
        size = sg.put(0, words)
        for i in range(3):
            source.write(i, 0, size, SOF | EOF)
            target.write(i, TARGET + 0x1000 * i, 8 * answer.size)
        start(sg, target, 0, to_memory=True)
        start(sg, source, 0)
        for tail in (1, 2):
            sg.write32(sg.dma(ENGINE, TAILDESC, to_memory=True), target.address(tail))
            sg.write32(sg.dma(ENGINE, TAILDESC), source.address(tail))
            if tail == 1:
                run_to_idle(sg, to_memory=True)
        run_to_idle(sg, to_memory=True)
        for i in range(3):
            assert (sg.words(TARGET + 0x1000 * i, answer.size) == answer).all()

    def test_a_stale_complete_bit_is_an_error(self, sg: Pl, stream: tuple[U64, U64]) -> None:
        source, target = self.chain(sg, stream, 2)
        start(sg, target, 1, to_memory=True)
        start(sg, source, 1)
        run_to_idle(sg, to_memory=True)
        sg.write32(sg.dma(ENGINE, TAILDESC), source.address(0))
        sg.write32(sg.dma(ENGINE, DMACR), RESET)
        sg.advance(100)
        start(sg, source, 1)
        value = run_to_idle(sg)
        assert value & 1 << 8 and value & HALTED
        assert "Cmplt" in sg.complaint()

    def test_curdesc_is_written_only_while_halted(self, sg: Pl, stream: tuple[U64, U64]) -> None:
        source, target = self.chain(sg, stream, 1)
        start(sg, target, 1, to_memory=True)
        start(sg, source, 0)
        run_to_idle(sg, to_memory=True)
        before = sg.read32(sg.dma(ENGINE, CURDESC))
        sg.write32(sg.dma(ENGINE, CURDESC), source.address(5))
        assert sg.read32(sg.dma(ENGINE, CURDESC)) == before
        assert "while not halted" in sg.complaint()

    def test_a_tail_written_while_halted_starts_nothing(self, sg: Pl, stream: tuple[U64, U64]) -> None:
        source, _ = self.chain(sg, stream, 1)
        sg.write32(sg.dma(ENGINE, CURDESC), source.address(0))
        sg.write32(sg.dma(ENGINE, TAILDESC), source.address(0))
        sg.advance(1000)
        assert sg.counters(ENGINE).words_in == 0
        assert "halted" in sg.complaint()

    def test_a_descriptor_outside_the_buffer_is_a_fetch_error(self, sg: Pl) -> None:
        ring = Ring(sg, (1 << 20) - 64)
        ring.write(0, 0, 64, SOF)  # points behind the buffer
        start(sg, ring, 1)
        assert run_to_idle(sg) & 1 << 10

    def test_the_interrupt_comes_when_as_many_packets_are_done(self, sg: Pl, stream: tuple[U64, U64]) -> None:
        source, target = Ring(sg, DESCRIPTORS), Ring(sg, DESCRIPTORS + 0x4000)
        words, answer = stream
        size = sg.put(0, words)
        for i in range(3):
            source.write(i, 0, size, SOF | EOF)
            target.write(i, TARGET + 0x1000 * i, 8 * answer.size)
        sg.write32(sg.dma(ENGINE, CURDESC, to_memory=True), target.address(0))
        sg.write32(sg.dma(ENGINE, DMACR, to_memory=True), RUN | 3 << 16)
        sg.advance(50)
        sg.write32(sg.dma(ENGINE, TAILDESC, to_memory=True), target.address(2))
        start(sg, source, 1)
        while not target.status(1) & COMPLETE:
            sg.wait(10_000)
        assert not status(sg, to_memory=True) & IOC
        sg.write32(sg.dma(ENGINE, TAILDESC), source.address(2))
        assert run_to_idle(sg, to_memory=True) & IOC

    def test_simple_registers_do_not_exist(self, sg: Pl) -> None:
        sg.write32(sg.dma(ENGINE, ADDRESS), 0x1000)
        assert sg.read32(sg.dma(ENGINE, ADDRESS)) == 0
        assert "scatter-gather" in sg.complaint()


# ---------------------------------------------------------------- time


def test_the_memory_wall_slows_and_changes_nothing(rtl_library: Path) -> None:
    """Two ports against half of their width together: twice the cycles, the same words."""
    random = np.random.default_rng(32)
    codes: I8 = random_group(random, 600, 1536).codes
    x = random.integers(-128, 128, 1536).astype(np.int8)
    words, answer = matvec_transfer([Group(codes, x)])
    cycles = {}
    for budget in (0, 8000, 16072):
        options = {"ddr": int(budget != 0), "ddr_bytes_per_kilocycle": max(1, budget)}
        with Pl(rtl_library, memory_bytes=4 << 20, **options) as pl:
            for engine in (0, 1):
                pl.reset(engine)
                pl.put(engine << 20, words)
            before = pl.statistics().cycles
            for engine in (0, 1):
                pl.start(engine, engine << 20, words.nbytes, (2 + engine) << 20, answer.nbytes)
            for engine in (0, 1):
                pl.finish(engine)
            cycles[budget] = pl.statistics().cycles - before
            for engine in (0, 1):
                assert (pl.words((2 + engine) << 20, answer.size) == answer).all()
    assert words.size <= cycles[0] < 1.02 * words.size
    moved = 2 * (words.size + answer.size) * 8
    assert moved / 8.0 <= cycles[8000] < 1.03 * moved / 8.0
    assert moved / 16.072 <= cycles[16072] < 1.03 * moved / 16.072


def test_skipping_idle_time_reads_as_if_it_had_been_clocked(rtl_library: Path, stream: tuple[U64, U64]) -> None:
    """The clock counter after an idle wait, which is skipped, fits the time that the library says has passed."""
    with fresh(rtl_library) as pl:
        pl.reset(ENGINE)
        pl.transfer(ENGINE, *_sized(stream))
        pl.advance(1000)
        first, first_ns = pl.control("CYCLES_LO"), pl.time_ns()
        counters = pl.counters(ENGINE)
        pl.advance(10_000_000)
        clocked = pl.statistics().clocked_cycles
        assert pl.control("CYCLES_LO") - first == (pl.time_ns() - first_ns) // 8
        assert pl.counters(ENGINE) == counters
        assert pl.statistics().cycles > 10_000_000 > clocked
