"""A board in two processes: registers and memory served by one, the runtime on a strict fake pynq in the other."""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from board_rt import zocl
from board_rt.faults import Fault
from board_rt.pl import Pl
from board_rt.pl_kernel import KernelSide, clock_divisors
from board_rt.pl_pynq import PynqSide
from board_rt.runtime import PlTimeout, PlUnfit, Runtime, UsageFailure, memory_plan
from pipelines.golden import formats
from pipelines.runtime.build import Compiler, runtime_sources
from pipelines.runtime.elf import read_elf
from tests.native.conftest import MACHINES, ROOT, runtime_library, test_program
from tests.native.images import SMALL_SHAPE
from tests.native.test_machines import assert_same_bits

HERE = Path(__file__).parent
BASE = 0x1800_0000


CONTENT_ID = 0x7E57_7E57


class Board:
    """A release folder, and the folder of what pl_server.c serves once the bitstream is loaded."""

    def __init__(self, folder: Path, library: Path, image: Path, pl: Path, **facts: object) -> None:
        self.release, self.served = folder / "release", folder / "served"
        self.served.mkdir(parents=True)
        for part in ("bitstream", "runtime"):
            (self.release / part).mkdir(parents=True)
        shutil.copytree(image, self.release / "weights")
        shutil.copy(library, self.release / "runtime" / "libtritforge.so")
        (self.release / "bitstream" / "combined.bit").write_bytes(b"not read by the fake")
        (self.release / "bitstream" / "combined.hwh").write_text(
            f'<PARAMETER NAME="CONTENT_ID" VALUE="0x{CONTENT_ID:08X}"/>'
        )
        dma = {
            "results_coherent": facts.pop("told_coherent", False),
            "descriptors_coherent": facts.pop("told_descriptors_coherent", False),
        }
        about = {"clock_mhz": 125.0, "dmas": [dma] * 4, "results_padded_to_bytes": facts.pop("padded", 8)}
        (self.release / "bitstream" / "bitstream.json").write_text(json.dumps(about))
        server = test_program(
            "pl_server", "x86_64-linux", "gcc", [HERE / "pl_server.c"], f"-I{ROOT / 'native' / 'include'}"
        )
        plan = memory_plan(library, image / "params.tfp")
        self.facts = {
            "base": BASE, "cma_bytes": plan.total, "pynq": "3.0.1", "server": [str(server), str(pl)], **facts
        }  # fmt: skip
        (self.served / "facts.json").write_text(json.dumps(self.facts))

    def close(self) -> None:
        """Ends the logic; its registers keep what they last read as."""
        logic = sys.modules["pynq"]._state.get("logic") if "pynq" in sys.modules else None
        if logic is not None:
            logic.kill()
            logic.wait(timeout=20)


@pytest.fixture
def xrt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = test_program("libxrt_core.so", "x86_64-linux", "gcc", [HERE / "fake_xrt.c"], "-shared")
    (tmp_path / "xrt" / "lib").mkdir(parents=True)
    shutil.copy(library, tmp_path / "xrt" / "lib" / "libxrt_core.so")
    monkeypatch.setenv("XILINX_XRT", str(tmp_path / "xrt"))


def fake_pynq(board_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PYNQ_FOLDER", str(board_folder))
    monkeypatch.syspath_prepend(str(HERE / "fake_pynq"))
    monkeypatch.delitem(sys.modules, "pynq", raising=False)


MakeBoard = Callable[..., Board]
"""Makes a board of the facts given, which ends with the test."""


@pytest.fixture
def make_board(
    tmp_path: Path, host_library: Path, small_image: Path, model_library: Path, xrt: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[MakeBoard]:  # fmt: skip
    boards: list[Board] = []

    def make(**facts: object) -> Board:
        boards.append(Board(tmp_path / "board", host_library, small_image, model_library, **facts))
        fake_pynq(boards[-1].served, monkeypatch)
        return boards[-1]

    yield make
    for board in boards:
        board.close()
    sys.modules.pop("pynq", None)


def say(board: Board, pl: Pl, tokens: list[int]) -> tuple[np.ndarray, dict[str, object]]:
    """Logits after each token, and the profile."""
    library = board.release / "runtime" / "libtritforge.so"
    with Runtime(library, board.release, "mmio", mmio=pl.mmio, deadline_ms=20_000) as runtime:
        found = np.stack([np.frombuffer(runtime.forward(t), dtype=np.float32).copy() for t in tokens])
        assert abs(runtime.measure_clock(1000) - 125e6) < 5e6
        assert runtime.read_control(formats.REGISTERS["CONTENT_ID"]) == CONTENT_ID
        return found, runtime.profile()


@pytest.mark.parametrize("streams_cached", [False, True], ids=["streams uncached", "all cached"])
def test_tokens_through_two_processes(
    streams_cached: bool,
    make_board: MakeBoard,
    small_run: tuple[list[int], np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Pl asks for it, streams uncached; and the driver's own cleaning of ranges where they are not."""
    tokens, wanted = small_run
    board = make_board()
    if streams_cached:
        as_asked = PynqSide.allocate
        monkeypatch.setattr(PynqSide, "allocate", lambda side, size, cached: as_asked(side, size, True))
    pl = Pl(str(board.release))
    try:
        assert pl.mmio.streams.cached == streams_cached and pl.mmio.results.cached
        found, profile = say(board, pl, tokens[:6])
        assert_same_bits(found, wanted[:6])
        # Uncached writes are flushed out of the level 2 cache once a group, by a clean of results.
        xrt = ctypes.CDLL(str(Path(os.environ["XILINX_XRT"]) / "lib" / "libxrt_core.so"))
        streams, results = (xrt.fake_cleans(buffer.bo_handle) for buffer in (pl.mmio.streams, pl.mmio.results))
        groups = 6 * (5 * SMALL_SHAPE.layers + 1)
        assert streams > groups if streams_cached else streams == 0
        assert results == (0 if streams_cached else groups)
    finally:
        pl.close()


def test_pynq_3_1_gives_no_handles(
    make_board: MakeBoard,
    small_image: Path,
    small_run: tuple[list[int], np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its buffers are objects that C cannot sync: they come from the kernel's driver, and C syncs through that."""
    tokens, wanted = small_run
    library = test_program(
        "zocl_runtime.so", "x86_64-linux", "gcc", [*runtime_sources(), HERE / "fake_zocl.c"], "-shared"
    )
    total = memory_plan(library, small_image / "params.tfp").total
    board = make_board(pynq="3.1.1", memory_file_bytes=2 * total)
    runtime = board.release / "runtime" / "libtritforge.so"
    shutil.copy(library, runtime)
    driver = ctypes.CDLL(str(runtime))

    def ioctl(node: int, request: int, data: bytes) -> bytes:
        text = ctypes.create_string_buffer(data, len(data))
        error = driver.fake_zocl(node, ctypes.c_ulong(request), text)
        if error:
            raise OSError(error, os.strerror(error))
        return text.raw

    monkeypatch.setattr(zocl.fcntl, "ioctl", ioctl)
    monkeypatch.setattr(zocl, "RENDER_NODE", str(board.served / "memory"))
    monkeypatch.setenv("FAKE_ZOCL_BASE", str(BASE))
    monkeypatch.chdir(tmp_path)
    pl = Pl(str(board.release))
    try:
        assert not (tmp_path / "loaded.xclbin").exists()
        assert not pl.mmio.streams.cached and pl.mmio.results.cached and not pl.mmio.sync
        found, _ = say(board, pl, tokens[:6])
        assert_same_bits(found, wanted[:6])
        assert driver.fake_cleans(pl.mmio.results.bo_handle) == 6 * (5 * SMALL_SHAPE.layers + 1)
    finally:
        pl.close()


DSB = {"armv7-linux": (b"\x4f\xf0\x7f\xf5", b"\xbf\xf3\x4f\x8f"), "aarch64-linux": (b"\x9f\x3f\x03\xd5",)}
"""``dsb sy`` as A32 and T32, and as A64."""


@pytest.mark.parametrize(("target", "compiler"), [machine for machine in MACHINES if machine[0] in DSB])
def test_the_barriers_of_a_board_are_in_its_library(target: str, compiler: Compiler) -> None:
    """One behind what the CPU wrote, one before what it reads. No machine that runs here would miss them."""
    code = read_elf(runtime_library(target, compiler)).code
    assert sum(code.count(word) for word in DSB[target]) == 2


def test_the_fake_has_the_real_signatures(make_board: MakeBoard) -> None:
    """As in the source distributions of pynq 3.0.1 and 3.1.1."""
    make_board()
    import pynq

    assert str(inspect.signature(pynq.Overlay)) == (
        "(bitfile_name, dtbo=None, download=True, ignore_version=False, device=None, gen_cache=False)"
    )
    assert str(inspect.signature(pynq.allocate)) == "(shape, dtype='u4', target=None, **kwargs)"
    assert str(inspect.signature(pynq.MMIO)) == "(base_addr, length=4, device=None, **kwargs)"


def result_descriptors(board: Board, pl: Pl) -> list[tuple[int, int]]:
    """(offset in the results buffer, bytes) of each descriptor that takes results, from memory as the PL sees it."""
    plan = memory_plan(board.release / "runtime" / "libtritforge.so", board.release / "weights" / "params.tfp")
    at = pl.mmio.streams.physical - BASE + plan.weights + plan.keys_values + plan.head_slots
    words = np.fromfile(board.served / "memory", dtype="<u4")[at // 4 : (at + plan.descriptors) // 4].reshape(-1, 16)
    results, size = pl.mmio.results.physical, pl.mmio.results.bytes
    taking = words[(words[:, 2] >= results) & (words[:, 2] < results + size)]
    return [(int(row[2]) - results, int(row[6]) & 0x3FF_FFFF) for row in taking]


@pytest.mark.parametrize("padded", [8, 32])
def test_results_have_room_for_what_the_bitstream_fills_up(
    padded: int,
    make_board: MakeBoard,
    small_run: tuple[list[int], np.ndarray],
) -> None:
    """Through the coherent port only whole cache lines may be written: `results_padded_to_bytes` of bitstream.json."""
    tokens, wanted = small_run
    board = make_board(padded=padded)
    pl = Pl(str(board.release))
    try:
        with Runtime(
            board.release / "runtime" / "libtritforge.so", board.release, "mmio", mmio=pl.mmio, deadline_ms=20_000
        ) as runtime:
            found = np.stack([np.frombuffer(runtime.forward(t), dtype=np.float32).copy() for t in tokens[:3]])
        assert_same_bits(found, wanted[:3])
        descriptors = result_descriptors(board, pl)
        assert len(descriptors) > 10 and all(offset % 32 == 0 for offset, _ in descriptors)
        assert all(size % padded == 0 and offset + size <= pl.mmio.results.bytes for offset, size in descriptors)
        # Without the filling the engines' words end where they end, so the sizes above are a choice.
        assert any(size % 32 for _, size in descriptors) == (padded == 8)
    finally:
        pl.close()


def test_a_filling_that_no_bitstream_makes_is_refused(make_board: MakeBoard) -> None:
    board = make_board(padded=12)
    pl = Pl(str(board.release))
    try:
        with pytest.raises(UsageFailure, match="results filled to 12 bytes"):
            Runtime(board.release / "runtime" / "libtritforge.so", board.release, "mmio", mmio=pl.mmio)
    finally:
        pl.close()


@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
def test_results_through_the_coherent_port(
    told: bool,
    make_board: MakeBoard,
    small_run: tuple[list[int], np.ndarray],
) -> None:
    """As bitstream.json says: then nothing of the results is invalidated, which here would have been an error."""
    tokens, wanted = small_run
    board = make_board(results_coherent=True, told_coherent=told)
    pl = Pl(str(board.release))
    library = board.release / "runtime" / "libtritforge.so"
    try:
        assert pl.mmio.results.cached == (not told)
        with Runtime(library, board.release, "mmio", mmio=pl.mmio, deadline_ms=20_000) as runtime:
            if told:
                found = np.stack([np.frombuffer(runtime.forward(t), dtype=np.float32).copy() for t in tokens[:3]])
                assert_same_bits(found, wanted[:3])
            else:
                with pytest.raises(PlUnfit, match="of the cache failed"):
                    runtime.forward(tokens[0])
    finally:
        pl.close()


@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
def test_descriptors_through_the_coherent_port(
    told: bool,
    make_board: MakeBoard,
    small_run: tuple[list[int], np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then streams are cached, weights, K, V, x and q are cleaned, and no status word is invalidated."""
    tokens, wanted = small_run
    board = make_board(descriptors_coherent=True, told_descriptors_coherent=told)
    as_asked = PynqSide.allocate
    if not told:
        monkeypatch.setattr(PynqSide, "allocate", lambda side, size, cached: as_asked(side, size, True))
    pl = Pl(str(board.release))
    try:
        assert pl.mmio.streams.cached and pl.mmio.results.cached
        if told:
            assert_same_bits(say(board, pl, tokens[:3])[0], wanted[:3])
            pl.mmio.streams.cached = 0
            with pytest.raises(UsageFailure, match="need a cached buffer"):
                say(board, pl, tokens[:1])
        else:
            with pytest.raises(PlUnfit, match="invalidation of the cache failed"):
                say(board, pl, tokens[:1])
    finally:
        pl.close()


def test_a_dead_logic_is_a_timeout(make_board: MakeBoard, small_run: tuple[list[int], np.ndarray]) -> None:
    tokens, _ = small_run
    board = make_board()
    pl = Pl(str(board.release))
    try:
        with Runtime(
            board.release / "runtime" / "libtritforge.so", board.release, "mmio", mmio=pl.mmio, deadline_ms=300
        ) as runtime:
            board.close()
            with pytest.raises(PlTimeout, match="not finished within 300 ms"):
                runtime.forward(tokens[0])
    finally:
        pl.close()


def test_contiguous_memory_that_does_not_suffice(make_board: MakeBoard) -> None:
    board = make_board(cma_bytes=4096)
    with pytest.raises(Fault, match="contiguous memory") as caught:
        Pl(str(board.release))
    assert caught.value.kind == "BoardUnfit" and "cma=" in caught.value.hint


def test_clock_that_reads_back_wrong(make_board: MakeBoard) -> None:
    board = make_board(clock_error=0.8)
    with pytest.raises(Fault, match="reads back as 100.000 MHz after 125.000"):
        Pl(str(board.release))


def test_missing_files_and_environment(make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    board = make_board()
    (board.release / "bitstream" / "combined.hwh").unlink()
    with pytest.raises(Fault, match="no .hwh beside it"):
        Pl(str(board.release))
    (board.release / "bitstream" / "combined.bit").unlink()
    with pytest.raises(Fault, match="has 0 files"):
        Pl(str(board.release))
    (board.release / "bitstream" / "combined.bit").touch()
    monkeypatch.delenv("XILINX_XRT")
    with pytest.raises(Fault, match="XILINX_XRT is not set"):
        Pl(str(board.release))


# ---------------------------------------------------------------- without pynq


def test_clock_divisors() -> None:
    assert 1000.0 / np.prod(clock_divisors(1000.0, 125.0)) == 125.0
    assert abs(1000.0 / np.prod(clock_divisors(1000.0, 142.86)) - 142.857) < 0.01


def test_fpga_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in the kernel's place: the bitstream goes into the firmware folder, its name to the manager."""
    manager, firmware = tmp_path / "fpga0", tmp_path / "firmware"
    manager.mkdir(), firmware.mkdir()
    (manager / "state").write_text("operating\n")
    binfile = tmp_path / "combined.bin"
    binfile.write_bytes(b"\x66\x55\x99\xaa" * 4)
    monkeypatch.setattr(zocl, "RENDER_NODE", "/dev/null")
    side = KernelSide(str(binfile), str(manager), str(firmware))
    side.close()
    assert (manager / "firmware").read_text() == "tritforge-combined.bin"
    assert (manager / "flags").read_text() == "0"
    assert (firmware / "tritforge-combined.bin").read_bytes() == binfile.read_bytes()
    monkeypatch.setattr(zocl, "RENDER_NODE", str(tmp_path / "none"))
    with pytest.raises(Fault, match="no zocl driver"):
        KernelSide(str(binfile), str(manager), str(firmware))
    with pytest.raises(Fault, match="not loaded"):
        KernelSide(str(tmp_path / "none.bin"), str(manager), str(firmware))


def test_kernel_clock_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page in the place of the SLCR: IO PLL at 50 MHz * 20, clock 0 asked to give 125 MHz."""
    from board_rt import pl_kernel

    page = np.zeros(1024, dtype=np.uint32)
    page[0x108 // 4] = 20 << 12
    page[0x170 // 4] = 0x00400500
    side = KernelSide.__new__(KernelSide)
    monkeypatch.setattr(side, "registers", lambda physical, size: page.ctypes.data, raising=False)
    assert side.set_clock(125.0) == 125.0
    assert page[0x008 // 4] == 0xDF0D and pl_kernel.SLCR == 0xF8000000
    first, second = int(page[0x170 // 4]) >> 8 & 63, int(page[0x170 // 4]) >> 20 & 63
    assert first * second == 8
