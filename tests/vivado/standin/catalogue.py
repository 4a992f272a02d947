"""The IP cores this project uses: CONFIG names and ranges, and the pins, interfaces and address segments they give.

Only what the design needs is known. An IP, a name or a value that is not here is refused: it has to be looked up, and
added here with the reason, before the design may use it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from . import ps7
from .tcl import TclError
from .verilog import Module, number

DMA = "xilinx.com:ip:axi_dma:7.1"
INTERCONNECT = "xilinx.com:ip:axi_interconnect:2.1"
RESET = "xilinx.com:ip:proc_sys_reset:5.0"
PS7 = "xilinx.com:ip:processing_system7:5.5"
CONCAT = "xilinx.com:ip:xlconcat:2.1"

# ASSUMPTION A01: these versions of the cores exist in every Vivado from 2022.1 to 2024.2.
VERSIONS_WITH_THESE_CORES = ("2022.1", "2024.2")


@dataclass
class Interface:
    name: str
    mode: str  # master | slave
    kind: str  # aximm | axis | ddr | fixedio
    clock: str = ""  # pin of the same cell
    protocol: str = ""  # AXI4 | AXI3 | AXI4LITE
    width: int = 0  # data bits; 0 takes that of the other side
    burst: int = 16  # longest burst, beats
    id_width: int = 0
    tlast: bool = True
    tkeep: bool = False
    optional: bool = False  # may stay unconnected


@dataclass
class Pin:
    name: str
    direction: str  # in | out
    kind: str  # clk | rst | intr | data
    width: int = 1
    active_low: bool = True  # of a reset
    optional: bool = False


@dataclass
class Segment:
    interface: str
    name: str
    max_bytes: int
    usage: str = "register"  # register | memory
    low: int = 0  # the lowest and highest address the segment can lie at
    high: int = 0xFFFF_FFFF


@dataclass
class Space:
    name: str
    interface: str  # the master it leaves through
    low: int = 0
    high: int = 0xFFFF_FFFF


@dataclass
class Shape:
    interfaces: list[Interface] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    spaces: list[Space] = field(default_factory=list)

    def interface(self, name: str) -> Interface | None:
        return next((i for i in self.interfaces if i.name == name), None)

    def pin(self, name: str) -> Pin | None:
        return next((p for p in self.pins if p.name == name), None)


@cache
def config_names() -> dict[str, frozenset[str]]:
    """CONFIG names of each core, from ``config_names.json`` (``X<0-3>Y`` stands for X0Y .. X3Y)."""
    raw = json.loads((Path(__file__).parent / "config_names.json").read_text())
    return {
        vlnv: frozenset(name for pattern in patterns for name in _expand(pattern)) for vlnv, patterns in raw.items()
    }


def _expand(pattern: str) -> list[str]:
    match = re.search(r"<(\d+)-(\d+)>", pattern)
    if not match:
        return [pattern]
    width = len(match[1]) if match[1].startswith("0") else 0
    head, tail = pattern[: match.start()], pattern[match.end() :]
    return [f"{head}{i:0{width}d}{tail}" for i in range(int(match[1]), int(match[2]) + 1)]


FLAG = ("0", "1")
AXI_WIDTHS = ("32", "64", "128", "256", "512", "1024")
STREAM_WIDTHS = ("8", "16", *AXI_WIDTHS)
BURSTS = ("2", "4", "8", "16", "32", "64", "128", "256")


def _numbers(low: int, high: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(low, high + 1))


# name -> (allowed values, default). A name that is known but not here has no use in this project and is refused too.
DMA_PARAMETERS: dict[str, tuple[tuple[str, ...], str]] = {
    "c_include_sg": (FLAG, "1"),
    "c_sg_include_stscntrl_strm": (FLAG, "1"),
    "c_sg_length_width": (_numbers(8, 26), "14"),
    "c_addr_width": (_numbers(32, 64), "32"),
    "c_micro_dma": (FLAG, "0"),
    "c_include_mm2s": (FLAG, "1"),
    "c_include_mm2s_dre": (FLAG, "0"),
    "c_include_mm2s_sf": (FLAG, "1"),
    "c_m_axi_mm2s_data_width": (AXI_WIDTHS, "32"),
    "c_m_axis_mm2s_tdata_width": (STREAM_WIDTHS, "32"),
    "c_mm2s_burst_size": (BURSTS, "16"),
    "c_include_s2mm": (FLAG, "1"),
    "c_include_s2mm_dre": (FLAG, "0"),
    "c_include_s2mm_sf": (FLAG, "1"),
    "c_m_axi_s2mm_data_width": (AXI_WIDTHS, "32"),
    "c_s2mm_burst_size": (BURSTS, "16"),
}
INTERCONNECT_PARAMETERS: dict[str, tuple[tuple[str, ...], str]] = {
    "NUM_SI": (_numbers(1, 16), "1"),
    "NUM_MI": (_numbers(1, 64), "2"),
}
RESET_PARAMETERS: dict[str, tuple[tuple[str, ...], str]] = {
    "C_EXT_RESET_HIGH": (FLAG, "0"),
    "C_AUX_RESET_HIGH": (FLAG, "0"),
    "C_NUM_PERP_ARESETN": (_numbers(1, 16), "1"),
    "C_NUM_INTERCONNECT_ARESETN": (_numbers(1, 16), "1"),
}
CONCAT_PARAMETERS: dict[str, tuple[tuple[str, ...], str]] = {"NUM_PORTS": (_numbers(1, 32), "2")}
PARAMETERS = {
    DMA: DMA_PARAMETERS,
    INTERCONNECT: INTERCONNECT_PARAMETERS,
    RESET: RESET_PARAMETERS,
    CONCAT: CONCAT_PARAMETERS,
}


def known(vlnv: str) -> bool:
    return vlnv in config_names()


def check_config(vlnv: str, cell: str, name: str, value: str) -> None:
    """Refuses an unknown CONFIG name or a value out of range, in Vivado's words."""
    if name not in config_names()[vlnv]:
        raise TclError(
            f"[BD 41-1273] Error running set_property on {cell}: Parameter 'CONFIG.{name}' does not exist on {vlnv}"
        )
    if vlnv == PS7:
        ps7.check_value(cell, name, value)
        return
    parameters = PARAMETERS[vlnv]
    if name not in parameters:
        raise TclError(
            f"[standin] CONFIG.{name} of {vlnv} is real, but not described in catalogue.py: look it up and add it there"
        )
    allowed, _ = parameters[name]
    if value not in allowed:
        shown = ", ".join(allowed) if len(allowed) <= 12 else f"{allowed[0]} to {allowed[-1]}"
        raise TclError(
            f"[IP_Flow 19-3461] Value '{value}' is out of the range for parameter '{name}' for BD Cell '{cell}'. "
            f"Valid values are - {shown}"
        )


def effective(vlnv: str, config: dict[str, str]) -> dict[str, str]:
    """The settings with their defaults."""
    if vlnv == PS7:
        return {**ps7.DEFAULTS, **config}
    return {**{name: default for name, (_, default) in PARAMETERS[vlnv].items()}, **config}


def shape(vlnv: str, config: dict[str, str]) -> Shape:
    """What the core looks like with these settings."""
    value = effective(vlnv, config)
    if vlnv == DMA:
        return _dma(value)
    if vlnv == INTERCONNECT:
        return _interconnect(value)
    if vlnv == RESET:
        return _reset(value)
    if vlnv == CONCAT:
        return _concat(value)
    return _ps7(value)


def _dma(value: dict[str, str]) -> Shape:
    shape = Shape(
        interfaces=[Interface("S_AXI_LITE", "slave", "aximm", "s_axi_lite_aclk", "AXI4LITE", 32)],
        pins=[Pin("s_axi_lite_aclk", "in", "clk"), Pin("axi_resetn", "in", "rst")],
        segments=[Segment("S_AXI_LITE", "Reg", 0x1_0000_0000)],
    )
    addresses = (1 << int(value["c_addr_width"])) - 1
    if value["c_include_sg"] == "1":
        # The descriptor port is always 32 bits wide and reads eight words of a descriptor at a time.
        shape.interfaces.append(Interface("M_AXI_SG", "master", "aximm", "m_axi_sg_aclk", "AXI4", 32, 16))
        shape.pins.append(Pin("m_axi_sg_aclk", "in", "clk"))
        shape.spaces.append(Space("Data_SG", "M_AXI_SG", high=addresses))
        if value["c_sg_include_stscntrl_strm"] == "1":
            shape.interfaces += [
                Interface("M_AXIS_CNTRL", "master", "axis", "m_axi_mm2s_aclk", width=32),
                Interface("S_AXIS_STS", "slave", "axis", "m_axi_s2mm_aclk", width=32),
            ]
    if value["c_include_mm2s"] == "1":
        width, stream = int(value["c_m_axi_mm2s_data_width"]), int(value["c_m_axis_mm2s_tdata_width"])
        burst = int(value["c_mm2s_burst_size"])
        shape.interfaces += [
            Interface("M_AXI_MM2S", "master", "aximm", "m_axi_mm2s_aclk", "AXI4", width, burst),
            Interface("M_AXIS_MM2S", "master", "axis", "m_axi_mm2s_aclk", width=stream, tkeep=True),
        ]
        shape.pins += [Pin("m_axi_mm2s_aclk", "in", "clk"), Pin("mm2s_introut", "out", "intr", optional=True)]
        shape.pins.append(Pin("mm2s_prmry_reset_out_n", "out", "rst", optional=True))
        shape.spaces.append(Space("Data_MM2S", "M_AXI_MM2S", high=addresses))
    if value["c_include_s2mm"] == "1":
        width, burst = int(value["c_m_axi_s2mm_data_width"]), int(value["c_s2mm_burst_size"])
        # ASSUMPTION A02: c_s_axis_s2mm_tdata_width follows the connected stream and need not be set.
        shape.interfaces += [
            Interface("M_AXI_S2MM", "master", "aximm", "m_axi_s2mm_aclk", "AXI4", width, burst),
            Interface("S_AXIS_S2MM", "slave", "axis", "m_axi_s2mm_aclk", width=0, tkeep=True),
        ]
        shape.pins += [Pin("m_axi_s2mm_aclk", "in", "clk"), Pin("s2mm_introut", "out", "intr", optional=True)]
        shape.pins.append(Pin("s2mm_prmry_reset_out_n", "out", "rst", optional=True))
        shape.spaces.append(Space("Data_S2MM", "M_AXI_S2MM", high=addresses))
    return shape


def _interconnect(value: dict[str, str]) -> Shape:
    shape = Shape(pins=[Pin("ACLK", "in", "clk"), Pin("ARESETN", "in", "rst")])
    for letter, mode, count in (("S", "slave", value["NUM_SI"]), ("M", "master", value["NUM_MI"])):
        for i in range(int(count)):
            side = f"{letter}{i:02d}"
            # Protocol, width and clock are converted between the sides as needed.
            shape.interfaces.append(Interface(f"{side}_AXI", mode, "aximm", f"{side}_ACLK", "any"))
            shape.pins += [Pin(f"{side}_ACLK", "in", "clk"), Pin(f"{side}_ARESETN", "in", "rst")]
    return shape


def _reset(value: dict[str, str]) -> Shape:
    return Shape(
        pins=[
            Pin("slowest_sync_clk", "in", "clk"),
            # ASSUMPTION A03: the polarity of ext_reset_in follows its active-low source, FCLK_RESET0_N.
            Pin("ext_reset_in", "in", "rst", active_low=value["C_EXT_RESET_HIGH"] == "0"),
            Pin("aux_reset_in", "in", "rst", active_low=value["C_AUX_RESET_HIGH"] == "0", optional=True),
            Pin("mb_debug_sys_rst", "in", "rst", active_low=False, optional=True),
            Pin("dcm_locked", "in", "data", optional=True),
            Pin("mb_reset", "out", "rst", active_low=False, optional=True),
            Pin("bus_struct_reset", "out", "rst", active_low=False, optional=True),
            Pin("peripheral_reset", "out", "rst", active_low=False, optional=True),
            Pin("interconnect_aresetn", "out", "rst", optional=True),
            Pin("peripheral_aresetn", "out", "rst", optional=True),
        ]
    )


def _concat(value: dict[str, str]) -> Shape:
    count = int(value["NUM_PORTS"])
    return Shape(pins=[Pin(f"In{i}", "in", "data") for i in range(count)] + [Pin("dout", "out", "data", width=count)])


def _ps7(value: dict[str, str]) -> Shape:
    shape = Shape(
        interfaces=[Interface("DDR", "master", "ddr"), Interface("FIXED_IO", "master", "fixedio")],
    )
    for i in range(4):
        if value.get(f"PCW_EN_CLK{i}_PORT") == "1":
            shape.pins.append(Pin(f"FCLK_CLK{i}", "out", "clk"))
        if value.get(f"PCW_EN_RST{i}_PORT") == "1":
            shape.pins.append(Pin(f"FCLK_RESET{i}_N", "out", "rst"))
    for i in range(2):
        if value.get(f"PCW_USE_M_AXI_GP{i}") == "1":
            shape.interfaces.append(
                Interface(f"M_AXI_GP{i}", "master", "aximm", f"M_AXI_GP{i}_ACLK", "AXI3", 32, 16, id_width=12)
            )
            shape.pins.append(Pin(f"M_AXI_GP{i}_ACLK", "in", "clk"))
            low = 0x4000_0000 * (i + 1)
            shape.spaces.append(Space("Data", f"M_AXI_GP{i}", low, low + 0x3FFF_FFFF))
    ddr_high = int(value["PCW_DDR_RAM_HIGHADDR"], 16)
    for i in range(4):
        if value.get(f"PCW_USE_S_AXI_HP{i}") == "1":
            width = int(value.get(f"PCW_S_AXI_HP{i}_DATA_WIDTH", "64"))
            shape.interfaces.append(
                Interface(f"S_AXI_HP{i}", "slave", "aximm", f"S_AXI_HP{i}_ACLK", "AXI3", width, 16, id_width=6)
            )
            shape.pins.append(Pin(f"S_AXI_HP{i}_ACLK", "in", "clk"))
            shape.segments.append(Segment(f"S_AXI_HP{i}", f"HP{i}_DDR_LOWOCM", ddr_high + 1, "memory", high=ddr_high))
    if value.get("PCW_USE_S_AXI_ACP") == "1":
        shape.interfaces.append(Interface("S_AXI_ACP", "slave", "aximm", "S_AXI_ACP_ACLK", "AXI3", 64, 16, id_width=3))
        shape.pins.append(Pin("S_AXI_ACP_ACLK", "in", "clk"))
        shape.segments += [
            Segment("S_AXI_ACP", "ACP_DDR_LOWOCM", ddr_high + 1, "memory", high=ddr_high),
            # ASSUMPTION A04: these three exist beside memory and have to be excluded by name.
            Segment("S_AXI_ACP", "ACP_IOP", 0x0040_0000, "register", 0xE000_0000, 0xE03F_FFFF),
            Segment("S_AXI_ACP", "ACP_QSPI_LINEAR", 0x0100_0000, "memory", 0xFC00_0000, 0xFCFF_FFFF),
            Segment("S_AXI_ACP", "ACP_M_AXI_GP0", 0x4000_0000, "register", 0x4000_0000, 0x7FFF_FFFF),
        ]
    if value.get("PCW_USE_FABRIC_INTERRUPT") == "1" and value.get("PCW_IRQ_F2P_INTR") == "1":
        shape.pins.append(Pin("IRQ_F2P", "in", "intr", width=0, optional=True))
    return shape


# ------------------------------------------------------------------------------------------------ module references

_AXIS = {"tdata", "tkeep", "tstrb", "tvalid", "tready", "tlast", "tuser", "tid", "tdest"}
_AXI = re.compile(
    r"(aw|ar|w|r|b)(id|addr|len|size|burst|lock|cache|prot|qos|region|user|valid|ready|data|strb|last|resp)$"
)


def module_shape(module: Module) -> Shape:
    """Interfaces as Vivado infers them from the port names of a Verilog module.

    ASSUMPTION A05: ports named ``<name>_tdata`` … or ``<name>_awaddr`` … are taken together as the interface
    ``<name>``; ``*aclk`` is a clock, ``*aresetn`` an active-low reset, and with a single clock every interface belongs
    to it unless ASSOCIATED_BUSIF says otherwise.
    """
    groups: dict[str, dict[str, str]] = {}
    pins: list[Pin] = []
    clocks: list[str] = []
    for port in module.ports.values():
        prefix, _, suffix = port.name.rpartition("_")
        if prefix and (suffix in _AXIS or _AXI.match(suffix)):
            groups.setdefault(prefix, {})[suffix] = port.name
            continue
        direction = {"input": "in", "output": "out"}.get(port.direction)
        if direction is None:
            raise TclError(f"port '{port.name}' of {module.name} is inout; not possible inside a block design")
        kind = (
            "clk"
            if port.name.endswith("clk")
            else "rst"
            if re.search(r"(aresetn|rst_n|resetn)$", port.name)
            else "data"
        )
        if kind == "clk":
            clocks.append(port.name)
        pins.append(Pin(port.name, direction, kind, port.width))
    shape = Shape(pins=pins)
    associated: dict[str, str] = {}
    for clock in clocks:
        match = re.search(r"ASSOCIATED_BUSIF\s+([\w:]+)", module.ports[clock].interface_parameter)
        if match:
            associated.update({name: clock for name in match[1].split(":")})
    unknown = set(associated) - set(groups)
    if unknown:
        raise TclError(
            f"ASSOCIATED_BUSIF of {module.name} names {', '.join(sorted(unknown))}, which is no interface of it"
        )
    for name, members in groups.items():
        shape.interfaces.append(_module_interface(module, name, members))
        interface = shape.interfaces[-1]
        if name in associated:
            interface.clock = associated[name]
        elif len(clocks) == 1 and not associated:
            interface.clock = clocks[0]
        else:
            raise TclError(
                f"[BD 41-967] AXI interface pin /{name} of {module.name} is not associated to any clock pin. "
                "It may not work correctly."
            )
        if interface.kind == "aximm":
            if interface.mode == "slave":
                # ASSUMPTION A06: the register segment of a module reference may be given a range larger than its
                # address bits (64 KiB for 12 bits): the upper bits are simply not looked at.
                shape.segments.append(Segment(name, "reg0", 0x1_0000_0000))
            else:
                bits = module.ports[members["awaddr"]].width
                shape.spaces.append(Space(name, name, high=(1 << bits) - 1))
    return shape


def _module_interface(module: Module, name: str, members: dict[str, str]) -> Interface:
    ports = module.ports
    parameter = " ".join(ports[p].interface_parameter for p in members.values())
    if "tdata" in members:
        for needed in ("tvalid", "tready"):
            if needed not in members:
                raise TclError(f"stream {name} of {module.name} has no {name}_{needed}")
        mode = "master" if ports[members["tdata"]].direction == "output" else "slave"
        for member, port in members.items():
            expected = (mode == "master") != (member == "tready")
            if (ports[port].direction == "output") != expected:
                raise TclError(f"port {port} of {module.name} has the wrong direction for a {mode} stream")
        width = ports[members["tdata"]].width
        if width % 8:
            raise TclError(f"stream {name} of {module.name} is {width} bits wide, not whole bytes")
        if "tkeep" in members and ports[members["tkeep"]].width != width // 8:
            raise TclError(f"{members['tkeep']} of {module.name} must have {width // 8} bits")
        return Interface(name, mode, "axis", width=width, tlast="tlast" in members, tkeep="tkeep" in members)
    missing = {"awaddr", "awvalid", "awready", "wdata", "wvalid", "wready", "bvalid", "bready"} - set(members)
    if missing:
        raise TclError(f"interface {name} of {module.name} lacks {', '.join(sorted(missing))}")
    mode = "master" if ports[members["awaddr"]].direction == "output" else "slave"
    for member, port in members.items():
        # Address and write data go from the master, answers and read data to it; each channel's ready the other way.
        from_master = member.startswith(("aw", "w", "ar")) != member.endswith("ready")
        if (ports[port].direction == "output") != (from_master == (mode == "master")):
            raise TclError(f"port {port} of {module.name} has the wrong direction for a {mode} interface")
    protocol = "AXI4LITE"
    if "awlen" in members:
        protocol = "AXI3" if ports[members["awlen"]].width == 4 else "AXI4"
        stated = re.search(r"PROTOCOL\s+(\w+)", parameter)
        if stated and stated[1] != protocol:
            raise TclError(f"interface {name} of {module.name} says {stated[1]}, its awlen says {protocol}")
    return Interface(
        name, mode, "aximm", protocol=protocol, width=ports[members["wdata"]].width,
        id_width=ports[members["awid"]].width if "awid" in members else 0,
    )  # fmt: skip


def check_module_parameter(module: Module, cell: str, name: str, value: str) -> None:
    """ASSUMPTION A13: a parameter with a range, ``[31:0]``, takes a hexadecimal number as ``0x…``."""
    if name not in module.parameters:
        raise TclError(
            f"[BD 41-1273] Error running set_property on {cell}: Parameter 'CONFIG.{name}' does not exist on "
            f"module reference {module.name}"
        )
    try:
        numeric = int(value, 0)
    except ValueError:
        raise TclError(
            f"[IP_Flow 19-3461] Value '{value}' of parameter '{name}' for BD Cell '{cell}' is no number"
        ) from None
    bits = module.parameter_widths.get(name, 32)
    if not 0 <= numeric < 1 << bits:
        raise TclError(f"[IP_Flow 19-3461] Value '{value}' of '{name}' for BD Cell '{cell}' does not fit {bits} bits")


def module_constant(module: Module, port: str) -> int | None:
    """The constant an output of the module is always driven with, if it is."""
    text = module.constants.get(port)
    return number(text, {}) if text is not None else None
