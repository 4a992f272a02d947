"""The simulated programmable logic (``native/include/tritforge_rtl.h``) from Python, and a small driver for its DMAs.

The driver here is for tests and measurements of the circuits alone; the product's driver is the C runtime's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from pipelines.base.errors import PlTimeout, ToolFailed, UsageError
from pipelines.golden import formats

U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]

INTERFACE = 2
ERROR_TEXT_BYTES = 512

# AXI DMA registers (PG021); S2MM at S2MM_BASE + the same offsets
DMACR, DMASR, CURDESC, TAILDESC, ADDRESS, LENGTH = 0x00, 0x04, 0x08, 0x10, 0x18, 0x28
S2MM_BASE = 0x30
RUN, RESET = 1 << 0, 1 << 2
HALTED, IDLE, IOC = 1 << 0, 1 << 1, 1 << 12
ERRORS = 0x770  # DMAIntErr, DMASlvErr, DMADecErr, SGIntErr, SGSlvErr, SGDecErr


class Options(ctypes.Structure):
    """``tritforge_rtl_options``; the C header says what each field means."""

    _fields_ = [
        ("interface", ctypes.c_uint32),
        ("physical_base", ctypes.c_uint32),
        ("memory_bytes", ctypes.c_uint64),
        ("scatter_gather", ctypes.c_uint32),
        ("length_width", ctypes.c_uint32),
        ("clock_khz", ctypes.c_uint32),
        ("access_cycles", ctypes.c_uint32),
        ("poll_cycles", ctypes.c_uint32),
        ("shadow", ctypes.c_uint32),
        ("content_id", ctypes.c_uint32),
        ("attention_positions", ctypes.c_uint32),
        ("attention_head_dim", ctypes.c_uint32),
        ("ddr", ctypes.c_uint32),
        ("ddr_bytes_per_kilocycle", ctypes.c_uint32),
        ("ddr_burst_beats", ctypes.c_uint32),
        ("ddr_burst_gap_cycles", ctypes.c_uint32),
        ("ddr_latency_cycles", ctypes.c_uint32),
        ("ddr_pair_bytes_per_kilocycle", ctypes.c_uint32),
        ("ddr_port_of_engine", ctypes.c_uint32 * 4),
        ("single_steps", ctypes.c_uint32),
    ]


class ChannelStatistics(ctypes.Structure):
    """``tritforge_rtl_channel_statistics``."""

    _fields_ = [
        (name, ctypes.c_uint64) for name in ("transfers", "descriptors", "beats", "busy_cycles", "memory_cycles")
    ]


class Statistics(ctypes.Structure):
    """``tritforge_rtl_statistics``."""

    _fields_ = [
        *(
            (name, ctypes.c_uint64)
            for name in (
                "cycles", "clocked_cycles", "register_reads", "register_writes", "barriers", "cleaned_bytes",
                "invalidated_bytes",
            )
        ),
        ("mm2s", ChannelStatistics * 4),
        ("s2mm", ChannelStatistics * 4),
    ]  # fmt: skip


@dataclass(frozen=True)
class EngineCounters:
    """An engine's registers in the control block."""

    words_in: int
    words_out: int
    stall_in: int
    stall_out: int
    stall_turn: int
    transfers: int
    errors: int
    error_word: int

    @property
    def error_names(self) -> tuple[str, ...]:
        return tuple(name for name, bit in formats.ERROR_BITS.items() if self.errors >> bit & 1)


def _bind(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path.resolve()))
    except OSError as error:
        raise ToolFailed(f"{path} cannot be loaded: {error}", hint="build it with './inv build-bitstream'") from error
    handle, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    text, size = ctypes.c_char_p, ctypes.c_size_t
    for name, result, arguments in (
        ("kind", text, []),
        ("default_options", None, [ctypes.POINTER(Options)]),
        ("create", handle, [ctypes.POINTER(Options), text, size]),
        ("destroy", None, [handle]),
        ("read32", u32, [handle, u32]),
        ("write32", None, [handle, u32, u32]),
        ("memory", handle, [handle]),
        ("clean", None, [handle, u64, u64]),
        ("invalidate", None, [handle, u64, u64]),
        ("barrier", None, [handle]),
        ("advance", None, [handle, u64]),
        ("wait", u64, [handle, u64]),
        ("time_ns", u64, [handle]),
        ("read_statistics", None, [handle, ctypes.POINTER(Statistics)]),
        ("clear_statistics", None, [handle]),
        ("complaint", text, [handle]),
        ("fault", ctypes.c_int, [handle, text, text, size]),
        ("waves", ctypes.c_int, [handle, text]),
    ):
        function = getattr(library, f"tritforge_rtl_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Pl:
    """One simulated board. Use as a context manager; options are fields of ``Options``."""

    def __init__(self, library: Path, **options: int | Sequence[int]) -> None:
        self._lib = _bind(library)
        self.kind = self._lib.tritforge_rtl_kind().decode()
        self.options = Options()
        self._lib.tritforge_rtl_default_options(ctypes.byref(self.options))
        for name, value in options.items():
            setattr(self.options, name, value if isinstance(value, int) else (ctypes.c_uint32 * 4)(*value))
        error = ctypes.create_string_buffer(ERROR_TEXT_BYTES)
        self._handle = self._lib.tritforge_rtl_create(ctypes.byref(self.options), error, len(error))
        if not self._handle:
            raise UsageError(f"the simulated logic was not created: {error.value.decode()}")
        pointer = self._lib.tritforge_rtl_memory(self._handle)
        buffer = (ctypes.c_uint8 * self.options.memory_bytes).from_address(pointer)
        self.memory: U8 = np.frombuffer(buffer, dtype=np.uint8)

    def __enter__(self) -> Pl:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._handle:
            self.memory = np.empty(0, dtype=np.uint8)
            self._lib.tritforge_rtl_destroy(self._handle)
            self._handle = None

    # ------------------------------------------------------------ the C interface
    def read32(self, address: int) -> int:
        return int(self._lib.tritforge_rtl_read32(self._handle, address))

    def write32(self, address: int, value: int) -> None:
        self._lib.tritforge_rtl_write32(self._handle, address, value)

    def clean(self, offset: int, size: int) -> None:
        self._lib.tritforge_rtl_clean(self._handle, offset, size)

    def invalidate(self, offset: int, size: int) -> None:
        self._lib.tritforge_rtl_invalidate(self._handle, offset, size)

    def barrier(self) -> None:
        self._lib.tritforge_rtl_barrier(self._handle)

    def advance(self, cycles: int) -> None:
        self._lib.tritforge_rtl_advance(self._handle, cycles)

    def wait(self, most_cycles: int) -> int:
        return int(self._lib.tritforge_rtl_wait(self._handle, most_cycles))

    def time_ns(self) -> int:
        return int(self._lib.tritforge_rtl_time_ns(self._handle))

    def statistics(self) -> Statistics:
        out = Statistics()
        self._lib.tritforge_rtl_read_statistics(self._handle, ctypes.byref(out))
        return out

    def clear_statistics(self) -> None:
        self._lib.tritforge_rtl_clear_statistics(self._handle)

    def complaint(self) -> str:
        return str(self._lib.tritforge_rtl_complaint(self._handle).decode())

    def fault(self, faults: str) -> None:
        error = ctypes.create_string_buffer(ERROR_TEXT_BYTES)
        if self._lib.tritforge_rtl_fault(self._handle, faults.encode(), error, len(error)) != 0:
            raise UsageError(error.value.decode())

    def waves(self, path: Path | None) -> None:
        if self._lib.tritforge_rtl_waves(self._handle, str(path).encode() if path else None) != 0:
            raise UsageError("this library was built without waveforms", hint="build it with waves=True")

    # ------------------------------------------------------------ registers by name
    @staticmethod
    def dma(engine: int, register: int, *, to_memory: bool = False) -> int:
        """Physical address of a DMA register."""
        return formats.DMA_BASE + formats.DMA_STRIDE * engine + (S2MM_BASE if to_memory else 0) + register

    def control(self, name: str) -> int:
        """Value of a register of the control block."""
        return self.read32(formats.CONTROL_BASE + formats.REGISTERS[name])

    def write_control(self, name: str, value: int) -> None:
        self.write32(formats.CONTROL_BASE + formats.REGISTERS[name], value)

    def counters(self, engine: int) -> EngineCounters:
        base = formats.CONTROL_BASE + formats.ENGINE_BASE + formats.ENGINE_STRIDE * engine
        return EngineCounters(
            **{name.lower(): self.read32(base + offset) for name, offset in formats.ENGINE_REGISTERS.items()}
        )

    # ------------------------------------------------------------ a small driver, simple mode
    def physical(self, offset: int) -> int:
        return int(self.options.physical_base) + offset

    def put(self, offset: int, data: U8 | U64) -> int:
        """Copies data into the buffer and makes the logic see it. Returns its bytes."""
        raw = data.view(np.uint8).reshape(-1)
        self.memory[offset : offset + raw.size] = raw
        self.clean(offset, raw.size)
        self.barrier()
        return int(raw.size)

    def words(self, offset: int, count: int) -> U64:
        """uint64[count] of the buffer as the processor sees it after invalidation."""
        self.invalidate(offset, 8 * count)
        return self.memory[offset : offset + 8 * count].view(np.uint64).copy()

    def reset(self, engine: int) -> None:
        """Both channels of an engine's DMA, then the engine; then both channels run."""
        self.write32(self.dma(engine, DMACR), RESET)
        for _ in range(16):
            if not self.read32(self.dma(engine, DMACR)) & RESET:
                break
        self.write_control("CONTROL", 1 << engine)
        for to_memory in (False, True):
            self.write32(self.dma(engine, DMACR, to_memory=to_memory), RUN)
            for _ in range(16):
                if not self.read32(self.dma(engine, DMASR, to_memory=to_memory)) & HALTED:
                    break

    def start(self, engine: int, source: int, source_bytes: int, target: int, target_bytes: int) -> None:
        """Arms S2MM, then starts MM2S; offsets in the buffer."""
        self.write32(self.dma(engine, ADDRESS, to_memory=True), self.physical(target))
        self.write32(self.dma(engine, LENGTH, to_memory=True), target_bytes)
        self.write32(self.dma(engine, ADDRESS), self.physical(source))
        self.write32(self.dma(engine, LENGTH), source_bytes)

    def finish(self, engine: int, *, polls: int = 10_000) -> int:
        """Waits for the engine's S2MM channel; bytes received. Raises PlTimeout with both status registers."""
        address = self.dma(engine, DMASR, to_memory=True)
        for _ in range(polls):
            status = self.read32(address)
            if status & (IDLE | ERRORS):
                break
        if status & ERRORS or not status & IDLE:
            source = self.read32(self.dma(engine, DMASR))
            counters = self.counters(engine)
            raise PlTimeout(
                f"engine {formats.ENGINES[engine]} did not finish: MM2S status 0x{source:08x}, S2MM 0x{status:08x}, "
                f"errors {counters.error_names} at word {counters.error_word}; {self.complaint()}"
            )
        self.write32(address, IOC)
        self.write32(self.dma(engine, DMASR), IOC)
        return self.read32(self.dma(engine, LENGTH, to_memory=True))

    def transfer(self, engine: int, stream: U64, result_words: int, *, polls: int = 10_000) -> U64:
        """One transfer through an engine: stream uint64[n] → results uint64[result_words]."""
        size = self.put(0, stream)
        target = -(-size // 64) * 64
        self.start(engine, 0, size, target, 8 * result_words)
        received = self.finish(engine, polls=polls)
        if received != 8 * result_words:
            raise PlTimeout(f"engine {formats.ENGINES[engine]} sent {received} bytes, expected {8 * result_words}")
        return self.words(target, result_words)
