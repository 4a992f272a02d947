"""The hardware handoff (``.hwh``): what Vivado built, held against the YAML it was meant to build.

Works on the real tool's file as on the stand-in's. pynq reads the same file on the board, so what is checked here is
also what the board will believe.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field

from pipelines.base.errors import ToolFailed
from pipelines.golden import formats
from pipelines.vivado.design import STREAM_OF, BitstreamDesign


@dataclass(frozen=True)
class Module:
    """A cell of the block design."""

    name: str
    vlnv: str
    parameters: dict[str, str]  # names in capitals, whatever the file has
    clocks_mhz: dict[str, float]  # clock pin -> frequency


@dataclass(frozen=True)
class Range:
    """Addresses of a slave as one master sees them."""

    master: str  # cell/interface
    slave: str  # cell/interface
    base: int
    high: int


@dataclass(frozen=True)
class Handoff:
    """The design as the file tells it."""

    vivado_version: str
    device: str
    modules: dict[str, Module]
    buses: list[tuple[str, str]] = field(default_factory=list)  # (master, slave) as cell/interface
    ranges: list[Range] = field(default_factory=list)


def parse(text: str) -> Handoff:
    """Reads the file. Two interfaces are connected when they carry the same BUSNAME::

    <EDKSYSTEM EDWVERSION="1.2" TIMESTAMP="…" VIVADOVERSION="2024.1">
      <MODULE FULLNAME="/dma_matvec0" INSTANCE="dma_matvec0" VLNV="xilinx.com:ip:axi_dma:7.1">
        <PARAMETER NAME="C_SG_LENGTH_WIDTH" VALUE="23"/>
        <PORT CLKFREQUENCY="125000000" NAME="m_axi_mm2s_aclk" SIGIS="clk" …/>
        <BUSINTERFACE BUSNAME="dma_matvec0_M_AXIS_MM2S" NAME="M_AXIS_MM2S" TYPE="INITIATOR" …/>
        <MEMRANGE BASEVALUE="0x40400000" HIGHVALUE="0x4040FFFF" INSTANCE="dma_matvec0" MASTERBUSINTERFACE="M_AXI_GP0"
                  SLAVEBUSINTERFACE="S_AXI_LITE"/>
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ToolFailed(f"the hardware handoff is not XML: {error}") from None
    if root.tag != "EDKSYSTEM":
        raise ToolFailed(f"the hardware handoff begins with <{root.tag}>, not <EDKSYSTEM>")
    system = root.find("SYSTEMINFO")
    modules: dict[str, Module] = {}
    masters: dict[str, str] = {}
    slaves: dict[str, list[str]] = {}
    ranges: list[Range] = []
    for element in root.iter("MODULE"):
        name = element.get("FULLNAME", "").lstrip("/") or element.get("INSTANCE", "")
        modules[name] = Module(
            name,
            element.get("VLNV", ""),
            {p.get("NAME", "").upper(): p.get("VALUE", "") for p in element.iterfind("PARAMETERS/PARAMETER")},
            {
                p.get("NAME", ""): int(p.get("CLKFREQUENCY", "0")) / 1e6
                for p in element.iterfind("PORTS/PORT")
                if p.get("CLKFREQUENCY") and p.get("SIGIS") == "clk"
            },
        )
        for bus in element.iterfind("BUSINTERFACES/BUSINTERFACE"):
            path, net = f"{name}/{bus.get('NAME')}", bus.get("BUSNAME", "")
            if net in ("", "__NOC__"):
                continue
            if bus.get("TYPE") in ("MASTER", "INITIATOR"):
                masters[net] = path
            else:
                slaves.setdefault(net, []).append(path)
        for memory in element.iterfind("MEMORYMAP/MEMRANGE"):
            ranges.append(
                Range(
                    f"{name}/{memory.get('MASTERBUSINTERFACE')}",
                    f"{memory.get('INSTANCE')}/{memory.get('SLAVEBUSINTERFACE')}",
                    int(memory.get("BASEVALUE", "0"), 16),
                    int(memory.get("HIGHVALUE", "0"), 16),
                )
            )
    buses = [(masters[net], slave) for net, paths in slaves.items() if net in masters for slave in paths]
    return Handoff(
        root.get("VIVADOVERSION", ""),
        "" if system is None else "".join(system.get(k, "") for k in ("DEVICE", "PACKAGE", "SPEEDGRADE")),
        modules,
        sorted(buses),
        ranges,
    )


def without_timestamp(data: bytes) -> bytes:
    """The file as it would be at any other time: what two builds are compared by."""
    return re.sub(rb'\bTIMESTAMP="[^"]*"', b'TIMESTAMP=""', data, count=1)


def differences(handoff: Handoff, design: BitstreamDesign, content_id: int) -> list[str]:
    """Where the design that was built is not the one in the YAML; one sentence each, empty when there is none."""
    wrong: list[str] = []

    def expect(what: str, found: object, wanted: object) -> None:
        if found != wanted:
            wrong.append(f"{what} is {found}, must be {wanted}")

    def module(name: str, vlnv: str) -> Module:
        found = handoff.modules.get(name)
        if found is None:
            wrong.append(f"there is no {name}")
            return Module(name, "", {}, {})
        if not found.vlnv.startswith(vlnv):
            wrong.append(f"{name} is {found.vlnv}, must be {vlnv}")
        return found

    expect("the device", handoff.device.replace("-", ""), design.part.removeprefix("xc").replace("-", ""))
    ps7 = module("ps7", "xilinx.com:ip:processing_system7:5.5")
    _expect_ps7(ps7, design, wrong)
    for cell in handoff.modules.values():
        for pin, mhz in cell.clocks_mhz.items():
            # Vivado gives the clock it really makes, in Hz; PS7 rounds to the hertz.
            if abs(mhz - design.clock_mhz) > 1e-6 * design.clock_mhz:
                wrong.append(f"the clock at {cell.name}/{pin} is {mhz:g} MHz, must be {design.clock_mhz:g}")
    shell = module("shell", f"xilinx.com:module_ref:{design.shell.module}")
    try:
        found_id = int(shell.parameters.get("CONTENT_ID", ""), 0)
    except ValueError:
        found_id = -1
    expect("CONTENT_ID of the shell", hex(found_id), hex(content_id))
    for name, value in design.shell.parameters.items():
        expect(f"{name} of the shell", shell.parameters.get(name.upper()), str(value))

    wanted_ranges = {("ps7/M_AXI_GP0", "shell/s_axi"): (design.control.base, design.control.bytes)}
    ddr = (design.ddr.base, design.ddr.bytes)
    acp = set(design.acp_masters())
    for engine in formats.ENGINES:
        dma = design.dma.engines[engine]  # type: ignore[index]
        name = f"dma_{engine}"
        parameters = module(name, "xilinx.com:ip:axi_dma:7.1").parameters
        for parameter, value in {
            "C_INCLUDE_SG": int(dma.scatter_gather),
            "C_SG_LENGTH_WIDTH": design.dma.length_width,
            "C_M_AXI_MM2S_DATA_WIDTH": 64,
            "C_M_AXIS_MM2S_TDATA_WIDTH": 64,
            "C_M_AXI_S2MM_DATA_WIDTH": 64,
            "C_MM2S_BURST_SIZE": design.dma.burst_beats,
            "C_S2MM_BURST_SIZE": design.dma.burst_beats,
            "C_INCLUDE_MM2S_DRE": 0,
            "C_INCLUDE_S2MM_DRE": 0,
        }.items():
            expect(f"{parameter.lower()} of {name}", parameters.get(parameter), str(value))
        stream = STREAM_OF[engine]
        _expect_bus(handoff, f"{name}/M_AXIS_MM2S", f"shell/s_axis_{stream}", wrong)
        if f"{name}/M_AXI_S2MM" in acp:
            _expect_bus(handoff, f"shell/m_axis_{stream}", f"pad_{engine}/s_axis", wrong)
            _expect_bus(handoff, f"pad_{engine}/m_axis", f"{name}/S_AXIS_S2MM", wrong)
        else:
            _expect_bus(handoff, f"shell/m_axis_{stream}", f"{name}/S_AXIS_S2MM", wrong)
        wanted_ranges["ps7/M_AXI_GP0", f"{name}/S_AXI_LITE"] = (dma.base, dma.bytes)
        for master in design.masters(engine):
            path = f"{name}/{master}"
            if path in acp:
                wanted_ranges[path, "acp_port/s_axi"] = ddr
            else:
                wanted_ranges[path, f"ps7/S_AXI_{dma.hp_port}"] = ddr
    if acp:
        wanted_ranges["acp_port/m_axi", "ps7/S_AXI_ACP"] = ddr
        _expect_bus(handoff, "acp_port/m_axi", "ps7/S_AXI_ACP", wrong)
    found_ranges = {(r.master, r.slave): (r.base, r.high - r.base + 1) for r in handoff.ranges}
    for key in sorted(set(wanted_ranges) | set(found_ranges)):
        expect(
            f"the range of {key[1]} seen from {key[0]}", _shown(found_ranges.get(key)), _shown(wanted_ranges.get(key))
        )
    return wrong


def _shown(value: tuple[int, int] | None) -> str:
    return "nothing" if value is None else f"0x{value[0]:08X} + 0x{value[1]:X}"


def _expect_bus(handoff: Handoff, master: str, slave: str, wrong: list[str]) -> None:
    if (master, slave) not in handoff.buses:
        found = next((s for m, s in handoff.buses if m == master), "nothing")
        wrong.append(f"{master} goes to {found}, must go to {slave}")


def _expect_ps7(ps7: Module, design: BitstreamDesign, wrong: list[str]) -> None:
    """What of the processing system would be found out late, or never, on the board."""
    wanted = {
        "PCW_UIPARAM_DDR_PARTNO": design.ddr.part,
        "PCW_UIPARAM_DDR_BUS_WIDTH": f"{design.ddr.bus_bits} Bit",
        "PCW_DDR_RAM_HIGHADDR": f"0x{design.ddr.base + design.ddr.bytes - 1:08X}",
    }
    numbers = {"PCW_UIPARAM_DDR_FREQ_MHZ": design.ddr.clock_mhz, "PCW_FPGA0_PERIPHERAL_FREQMHZ": design.clock_mhz}
    used = {dma.hp_port for dma in design.dma.engines.values()}
    for port in ("HP0", "HP1", "HP2", "HP3"):
        numbers[f"PCW_USE_S_AXI_{port}"] = int(port in used)
        if port in used:
            numbers[f"PCW_S_AXI_{port}_DATA_WIDTH"] = 64
    numbers["PCW_USE_S_AXI_ACP"] = int(bool(design.acp_masters()))
    for name, value in wanted.items():
        found = ps7.parameters.get(name)
        if found is None or found.upper() != value.upper():
            wrong.append(f"{name} is {found}, must be {value}")
    for name, number in numbers.items():
        found = ps7.parameters.get(name)
        if found is None and number == 0:
            continue
        try:
            same = abs(float(found or "nan") - number) <= 1e-6 * max(1.0, abs(number))
        except ValueError:
            same = False
        if not same:
            wrong.append(f"{name} is {found}, must be {number:g}")
