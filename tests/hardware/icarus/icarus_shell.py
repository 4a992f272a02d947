"""The whole design under Icarus: its control block on cocotbext-axi's AXI4-Lite master, gaps on every channel."""

from __future__ import annotations

import itertools

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from pipelines.golden import formats

STREAMS = ("mv0", "mv1", "at0", "at1")
WORDS_IN, ERRORS = formats.ENGINE_REGISTERS["WORDS_IN"], formats.ENGINE_REGISTERS["ERRORS"]


@cocotb.test()  # type: ignore[misc]
async def registers(dut):  # type: ignore[no-untyped-def]
    cocotb.start_soon(Clock(dut.aclk, 8, units="step").start())
    for stream in STREAMS:
        for signal in ("tdata", "tvalid", "tlast"):
            getattr(dut, f"s_axis_{stream}_{signal}").value = 0
        getattr(dut, f"m_axis_{stream}_tready").value = 0
    dut.aresetn.value = 0
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), dut.aclk, dut.aresetn, reset_active_level=False)
    for _ in range(4):
        await RisingEdge(dut.aclk)
    dut.aresetn.value = 1
    await RisingEdge(dut.aclk)
    for pause in ([0], [1, 0, 0], [0, 1, 1, 0, 1]):
        for channel in (
            master.write_if.aw_channel, master.write_if.w_channel, master.write_if.b_channel,
            master.read_if.ar_channel, master.read_if.r_channel,
        ):  # fmt: skip
            channel.set_pause_generator(itertools.cycle(pause))
        assert await master.read_dword(formats.REGISTERS["ID"]) == formats.CONTROL_ID
        assert await master.read_dword(formats.REGISTERS["VERSION"]) == formats.FORMATS_VERSION
        await master.write_dword(formats.REGISTERS["SCRATCH"], 0x12345678)
        await master.write(formats.REGISTERS["SCRATCH"] + 1, b"\xab")  # one byte strobe
        assert await master.read_dword(formats.REGISTERS["SCRATCH"]) == 0x1234AB78
    engine = formats.ENGINE_BASE + 2 * formats.ENGINE_STRIDE
    dut.s_axis_at0_tvalid.value = 1  # a header of zeros: wrong, and ten words swallowed
    for _ in range(10):
        await RisingEdge(dut.aclk)
    dut.s_axis_at0_tvalid.value = 0
    assert await master.read_dword(engine + WORDS_IN) == 10
    assert await master.read_dword(engine + ERRORS) == 1 << formats.ERROR_BITS["bad_magic"]
    assert await master.read_dword(formats.ENGINE_BASE + WORDS_IN) == 0
    await master.write_dword(formats.REGISTERS["CONTROL"], 1 << 2)
    assert await master.read_dword(engine + WORDS_IN) == 0
    assert await master.read_dword(engine + ERRORS) == 0
