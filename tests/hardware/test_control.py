"""The control block and the memory between processor and logic, on both kinds of board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.base.errors import PlTimeout, UsageError
from pipelines.golden import formats
from pipelines.hardware.checks import random_groups
from pipelines.hardware.library import DMASR, ERRORS, IDLE, Pl
from pipelines.hardware.streams import U64, matvec_transfer
from tests.hardware.conftest import CONTENT_ID

ENGINE = 1
TARGET = 0x8_0000


@pytest.fixture
def stream() -> tuple[U64, U64]:
    return matvec_transfer(random_groups(np.random.default_rng(41), 4))


class TestRegisters:
    def test_identity(self, pl: Pl) -> None:
        assert pl.control("ID").to_bytes(4, "little") == b"TRIT"
        assert pl.control("VERSION") == formats.FORMATS_VERSION
        assert pl.control("CONTENT_ID") == CONTENT_ID
        assert pl.control("CONFIG") == 512 << 16 | 12 << 8 | 4

    def test_scratch_holds_every_bit(self, pl: Pl) -> None:
        for value in (0xFFFFFFFF, 0, 0xA5A5A5A5, *(1 << bit for bit in range(32))):
            pl.write_control("SCRATCH", value)
            assert pl.control("SCRATCH") == value

    def test_registers_that_are_not_there_read_zero_and_ignore_writes(self, pl: Pl) -> None:
        known = {formats.REGISTERS[name] for name in formats.REGISTERS}
        for offset in (*range(0x20, 0x100, 0x10), 0x120, 0x13C, 0x200, 0xFFC):
            assert offset not in known
            pl.write32(formats.CONTROL_BASE + offset, 0xFFFFFFFF)
            assert pl.read32(formats.CONTROL_BASE + offset) == 0
        assert pl.control("SCRATCH") == 0

    def test_identity_cannot_be_written(self, pl: Pl) -> None:
        for name in ("ID", "VERSION", "CONTENT_ID", "CONFIG"):
            before = pl.control(name)
            pl.write_control(name, ~before & 0xFFFFFFFF)
            assert pl.control(name) == before

    def test_the_high_half_of_the_clock_is_latched_by_the_low_half(self, pl: Pl) -> None:
        pl.advance((1 << 32) - pl.control("CYCLES_LO") - 400)
        low, high = pl.control("CYCLES_LO"), pl.control("CYCLES_HI")
        assert low > 0xFFFF0000 and high == 0
        pl.advance(2000)
        assert pl.control("CYCLES_HI") == 0, "as it was when the low half was read"
        assert pl.control("CYCLES_LO") < 0x10000 and pl.control("CYCLES_HI") == 1

    def test_an_engine_is_reset_with_its_counters_and_no_other(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        for engine in (0, 1):
            pl.transfer(engine, stream[0], stream[1].size)
        assert pl.counters(0).words_in == pl.counters(1).words_in == stream[0].size
        assert pl.counters(0).words_out == stream[1].size
        pl.write_control("CONTROL", 1 << 0)
        assert pl.counters(0).words_in == pl.counters(0).words_out == pl.counters(0).transfers == 0
        assert pl.counters(1).words_in == stream[0].size
        assert pl.control("CONTROL") == 0

    def test_all_counters_are_cleared_at_once_and_x_is_kept(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        pl.transfer(ENGINE, stream[0], stream[1].size)
        before = pl.control("CYCLES_LO")
        pl.write_control("CONTROL", 1 << 8)
        assert pl.counters(ENGINE).words_in == 0
        assert pl.control("CYCLES_LO") > before, "the clock is not one of them"
        kept = matvec_transfer(random_groups(np.random.default_rng(42), 1))
        pl.transfer(ENGINE, kept[0], kept[1].size)
        assert pl.counters(ENGINE).errors == 0

    def test_an_error_survives_clearing_the_counters_and_not_a_reset(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        wrong = stream[0].copy()
        wrong[0] = 0
        with pytest.raises(PlTimeout, match="bad_magic"):
            pl.transfer(ENGINE, wrong, stream[1].size, polls=20)
        pl.write_control("CONTROL", 1 << 8)
        assert pl.counters(ENGINE).error_names == ("bad_magic",)
        pl.write_control("CONTROL", 1 << ENGINE)
        assert pl.counters(ENGINE).error_names == ()

    def test_an_address_where_nothing_answers(self, pl: Pl) -> None:
        assert pl.read32(0x4444_0000) == 0xFFFFFFFF
        assert "nothing answers" in pl.complaint()


class TestMemory:
    """What a driver forgets is seen."""

    def run(self, pl: Pl, stream: tuple[U64, U64]) -> U64:
        size = stream[0].nbytes
        pl.start(ENGINE, 0, size, TARGET, stream[1].nbytes)
        for _ in range(50):
            if pl.read32(pl.dma(ENGINE, DMASR, to_memory=True)) & (IDLE | ERRORS):
                break
        return pl.memory[TARGET : TARGET + stream[1].nbytes].view(np.uint64)

    def put(self, pl: Pl, stream: U64) -> None:
        pl.memory[: stream.nbytes] = stream.view(np.uint8)

    def test_with_all_calls(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        self.put(pl, stream[0])
        pl.clean(0, stream[0].nbytes)
        pl.barrier()
        self.run(pl, stream)
        pl.invalidate(TARGET, stream[1].nbytes)
        assert (pl.memory[TARGET : TARGET + stream[1].nbytes].view(np.uint64) == stream[1]).all()

    @pytest.mark.parametrize("forgotten", ["clean", "barrier"])
    def test_without_clean_or_barrier_the_logic_reads_old_data(
        self, pl: Pl, stream: tuple[U64, U64], forgotten: str
    ) -> None:
        self.put(pl, stream[0])
        if forgotten == "barrier":
            pl.clean(0, stream[0].nbytes)
        else:
            pl.barrier()
        self.run(pl, stream)
        assert pl.counters(ENGINE).error_names == ("bad_magic",), "it read the zeros that were there before"

    def test_a_clean_that_is_too_short_misses_the_last_lines(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        self.put(pl, stream[0])
        pl.clean(0, stream[0].nbytes - 64)
        pl.barrier()
        self.run(pl, stream)
        pl.invalidate(TARGET, stream[1].nbytes)
        assert (pl.memory[TARGET : TARGET + stream[1].nbytes].view(np.uint64) != stream[1]).any()

    def test_without_invalidate_the_processor_reads_old_data(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        self.put(pl, stream[0])
        pl.clean(0, stream[0].nbytes)
        pl.barrier()
        assert not self.run(pl, stream).any()

    def test_an_invalidate_before_the_end_is_too_early(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        pl.put(0, stream[0])
        pl.start(ENGINE, 0, stream[0].nbytes, TARGET, stream[1].nbytes)
        pl.invalidate(TARGET, stream[1].nbytes)
        pl.advance(100_000)
        assert (pl.memory[TARGET : TARGET + stream[1].nbytes].view(np.uint64) != stream[1]).any()

    def test_what_is_written_between_clean_and_barrier_is_not_seen(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        self.put(pl, stream[0])
        pl.clean(0, stream[0].nbytes)
        pl.memory[:8] = 0
        pl.barrier()
        self.run(pl, stream)
        assert pl.counters(ENGINE).errors == 0

    def test_lines_are_moved_whole(self, pl: Pl) -> None:
        pl.memory[:96] = 7
        pl.clean(40, 1)
        pl.barrier()
        pl.memory[:96] = 9
        pl.invalidate(0, 96)
        assert pl.memory[:96].tolist() == [0] * 32 + [7] * 32 + [0] * 32


class TestFaults:
    """Each fault that can be ordered has its mark, and does not act when it was not ordered."""

    @pytest.mark.parametrize(("fault", "bit"), [("halt", 4), ("slave_error", 5), ("decode_error", 6), ("sg_error", 4)])
    def test_bus_errors(self, pl: Pl, stream: tuple[U64, U64], fault: str, bit: int) -> None:
        pl.fault(f"{fault}@matvec1:2")
        pl.transfer(ENGINE, stream[0], stream[1].size)
        pl.start(ENGINE, 0, stream[0].nbytes, TARGET, stream[1].nbytes)
        pl.advance(20_000)
        assert pl.read32(pl.dma(ENGINE, DMASR)) & (ERRORS | 1) == 1 << bit | 1
        pl.reset(ENGINE)
        assert (pl.transfer(ENGINE, stream[0], stream[1].size) == stream[1]).all(), "it acts once"

    def test_never_idle(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        pl.fault("never_idle")
        with pytest.raises(PlTimeout):
            pl.transfer(ENGINE, stream[0], stream[1].size, polls=20)
        assert not pl.read32(pl.dma(ENGINE, DMASR)) & (IDLE | ERRORS)

    def test_short_buffer(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        pl.fault("short_s2mm@matvec1")
        with pytest.raises(PlTimeout, match="longer than its buffer"):
            pl.transfer(ENGINE, stream[0], stream[1].size, polls=20)

    def test_wrong_word_and_wrong_input(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        pl.fault("wrong_word@matvec1:1+")
        wrong = pl.transfer(ENGINE, stream[0], stream[1].size)
        assert (wrong != stream[1]).nonzero()[0].tolist() == [0] and wrong[0] ^ stream[1][0] == 1
        assert (pl.transfer(ENGINE, stream[0], stream[1].size) == wrong).all(), "with + it acts again"
        pl.fault("wrong_input@matvec1")
        assert (pl.transfer(ENGINE, stream[0], stream[1].size) != stream[1]).any()
        assert pl.counters(ENGINE).errors == 0
        pl.fault("")
        assert (pl.transfer(ENGINE, stream[0], stream[1].size) == stream[1]).all()

    def test_bad_header(self, pl: Pl, stream: tuple[U64, U64]) -> None:
        pl.fault("bad_header")
        with pytest.raises(PlTimeout, match="bad_magic"):
            pl.transfer(ENGINE, stream[0], stream[1].size, polls=20)

    def test_identity_and_clock(self, pl: Pl) -> None:
        pl.fault("stale_content_id;wrong_clock")
        assert pl.control("CONTENT_ID") == CONTENT_ID ^ 0xFFFFFFFF
        start, start_ns = pl.control("CYCLES_LO"), pl.time_ns()
        pl.advance(1_000_000)
        rate = (pl.control("CYCLES_LO") - start) / (pl.time_ns() - start_ns) * 1e3
        assert abs(rate - 100) < 0.1, "MHz"

    def test_from_the_environment(self, model_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRITFORGE_FAULT", "stale_content_id")
        with Pl(model_library, content_id=5) as pl:
            assert pl.control("CONTENT_ID") == 5 ^ 0xFFFFFFFF
        monkeypatch.setenv("TRITFORGE_FAULT", "nonsense")
        with pytest.raises(UsageError, match="nonsense.*never_idle"):
            Pl(model_library)

    @pytest.mark.parametrize("text", ["halt:0", "halt:x", "halt@gpu", "halt:-1"])
    def test_a_wrong_list_is_refused(self, pl: Pl, text: str) -> None:
        with pytest.raises(UsageError, match="is not"):
            pl.fault(text)
