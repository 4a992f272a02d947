"""The block design as the Tcl builds it, and the rules it is judged by.

Objects are handed to Tcl as ``kind:/path``. The real tool shows only the path, but a Tcl script must not depend on how
an object prints, and with the kind in front a string where an object is needed is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from . import catalogue, ps7
from .catalogue import Interface, Pin, Shape
from .tcl import TclError
from .verilog import Module

PORT_KINDS = {
    "xilinx.com:interface:ddrx_rtl:1.0": "ddr",
    "xilinx.com:display_processing_system7:fixedio_rtl:1.0": "fixedio",
}
PADDING_MODULES = {"axis_pad32"}
"""Modules known to fill packets to whole cache lines (tests/vivado/test_pad.py simulates ours)."""

GP_APERTURE = (0x4000_0000, 0x7FFF_FFFF)


@dataclass
class Cell:
    name: str
    vlnv: str = ""
    module: Module | None = None
    config: dict[str, str] = field(default_factory=dict)

    def shape(self) -> Shape:
        if self.module:
            return catalogue.module_shape(self.module)
        return catalogue.shape(self.vlnv, self.config)

    def configure(self, name: str, value: str) -> None:
        if self.module:
            catalogue.check_module_parameter(self.module, "/" + self.name, name, value)
        else:
            catalogue.check_config(self.vlnv, "/" + self.name, name, value)
        self.config[name] = value


@dataclass
class Assignment:
    space: str  # cell/space
    segment: str  # cell/interface/segment
    base: int
    bytes: int


@dataclass
class BlockDesign:
    name: str
    cells: dict[str, Cell] = field(default_factory=dict)
    ports: dict[str, str] = field(default_factory=dict)  # external interface -> kind
    interface_nets: list[tuple[str, str]] = field(default_factory=list)  # (master, slave), cell/interface or port
    nets: list[tuple[str, list[str]]] = field(default_factory=list)  # (driver, loads), cell/pin
    assignments: list[Assignment] = field(default_factory=list)
    exclusions: list[tuple[str, str]] = field(default_factory=list)  # (space, segment)
    validated: bool = False
    saved: bool = False
    open: bool = True
    _shapes: dict[str, Shape] = field(default_factory=dict)

    # ------------------------------------------------------------------------------------------------ building

    def changed(self) -> None:
        self.validated = self.saved = False
        self._shapes.clear()

    def shape(self, cell: str) -> Shape:
        if cell not in self._shapes:
            self._shapes[cell] = self.cells[cell].shape()
        return self._shapes[cell]

    def add_cell(self, cell: Cell) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", cell.name):
            raise TclError(f"[BD 41-171] '{cell.name}' is not a valid cell name")
        if cell.name in self.cells:
            raise TclError(f"[BD 5-216] The cell name '{cell.name}' is already in use")
        cell.shape()  # a module whose interfaces cannot be inferred is refused here
        self.cells[cell.name] = cell
        self.changed()

    def add_port(self, name: str, mode: str, vlnv: str) -> None:
        if vlnv not in PORT_KINDS:
            raise TclError(f"[BD 41-70] Interface definition '{vlnv}' not found")
        if mode != "Master":
            raise TclError(f"[BD 41-164] {name}: the processing system drives this interface; mode must be Master")
        if name in self.ports:
            raise TclError(f"[BD 5-216] The port name '{name}' is already in use")
        self.ports[name] = PORT_KINDS[vlnv]
        self.changed()

    def interface(self, path: str) -> Interface:
        cell, _, name = path.partition("/")
        found = self.shape(cell).interface(name) if cell in self.cells else None
        if found is None:
            raise TclError(f"[BD 41-1664] interface pin '/{path}' does not exist (any more)")
        return found

    def pin(self, path: str) -> Pin:
        cell, _, name = path.partition("/")
        found = self.shape(cell).pin(name) if cell in self.cells else None
        if found is None:
            raise TclError(f"[BD 41-1664] pin '/{path}' does not exist (any more)")
        return found

    def connect_interfaces(self, one: str, other: str) -> None:
        for side in (one, other):
            if any(side in net for net in self.interface_nets):
                raise TclError(f"[BD 41-171] The interface pin '/{side}' is already connected")
        if one in self.ports or other in self.ports:
            port, inner = (one, other) if one in self.ports else (other, one)
            if inner in self.ports:
                raise TclError("[BD 41-171] Two interface ports cannot be connected with each other")
            if self.interface(inner).kind != self.ports[port]:
                raise TclError(f"[BD 41-172] The interface types of '/{inner}' and '{port}' do not match")
            self.interface_nets.append((inner, port))
            self.changed()
            return
        a, b = self.interface(one), self.interface(other)
        if a.kind != b.kind:
            raise TclError(
                f"[BD 41-172] The interface types of '/{one}' and '/{other}' do not match: {a.kind}, {b.kind}"
            )
        if a.mode == b.mode:
            raise TclError(f"[BD 41-173] '/{one}' and '/{other}' are both {a.mode}s")
        self.interface_nets.append((one, other) if a.mode == "master" else (other, one))
        self.changed()

    def connect_pins(self, paths: list[str]) -> None:
        if len(paths) < 2:
            raise TclError("[BD 41-1690] connect_bd_net needs at least two pins")
        if len(set(paths)) != len(paths):
            raise TclError("[BD 41-1691] connect_bd_net got the same pin twice")
        drivers = [p for p in paths if self.pin(p).direction == "out"]
        loads = [p for p in paths if self.pin(p).direction == "in"]
        for driver, driven in self.nets:
            for path in loads:
                if path in driven:
                    raise TclError(f"[BD 41-1731] '/{path}' is already driven by '/{driver}'")
        if len(drivers) != 1:
            raise TclError(f"[BD 41-1732] a net needs exactly one driver, got {len(drivers)}: {', '.join(drivers)}")
        existing = next((net for net in self.nets if net[0] == drivers[0]), None)
        if existing:
            existing[1].extend(loads)
        else:
            self.nets.append((drivers[0], loads))
        self.changed()

    # ------------------------------------------------------------------------------------------------ addresses

    def spaces(self) -> Iterator[tuple[str, str, int, int]]:
        """(cell/space, cell/master interface, low, high)."""
        for name in self.cells:
            for space in self.shape(name).spaces:
                yield f"{name}/{space.name}", f"{name}/{space.interface}", space.low, space.high

    def segments(self) -> dict[str, catalogue.Segment]:
        return {
            f"{name}/{segment.interface}/{segment.name}": segment
            for name in self.cells
            for segment in self.shape(name).segments
        }

    def assign(self, space: str, segment: str, base: int, size: int) -> None:
        if any(a.space == space and a.segment == segment for a in self.assignments):
            raise TclError(f"[BD 41-1376] '/{segment}' is already assigned in '/{space}'")
        if size < 4096 or size & (size - 1):
            raise TclError(f"[BD 41-1051] a range of 0x{size:X} is not a power of two of at least 4K")
        if base % size:
            raise TclError(f"[BD 41-1052] offset 0x{base:08X} is not aligned to its range 0x{size:X}")
        known = self.segments()[segment]
        if size > known.max_bytes:
            raise TclError(f"[BD 41-1053] range 0x{size:X} is larger than the segment '/{segment}'")
        if base < known.low or base + size - 1 > known.high:
            raise TclError(f"[BD 41-1054] 0x{base:08X} to 0x{base + size - 1:08X} is outside '/{segment}'")
        low, high = next((lo, hi) for name, _, lo, hi in self.spaces() if name == space)
        if base < low or base + size - 1 > high:
            raise TclError(
                f"[BD 41-1055] 0x{base:08X} to 0x{base + size - 1:08X} is outside the address space '/{space}'"
            )
        if segment not in self.reachable(space):
            raise TclError(f"[BD 41-1056] '/{segment}' cannot be reached from '/{space}'")
        for other in self.assignments:
            if other.space == space and base < other.base + other.bytes and other.base < base + size:
                raise TclError(f"[BD 41-1057] '/{segment}' overlaps '/{other.segment}' in '/{space}'")
        self.assignments.append(Assignment(space, segment, base, size))
        self.validated = self.saved = False

    def reachable(self, space: str) -> set[str]:
        """Segments a space's master gets to, through interconnects."""
        start = next(interface for name, interface, _, _ in self.spaces() if name == space)
        slaves = dict(self.interface_nets)
        found: set[str] = set()
        seen: set[str] = set()
        todo = [start]
        while todo:
            master = todo.pop()
            slave = slaves.get(master)
            if slave is None or slave in seen or slave in self.ports:
                continue
            seen.add(slave)
            cell, _, interface = slave.partition("/")
            if self.cells[cell].vlnv == catalogue.INTERCONNECT:
                todo += [f"{cell}/{i.name}" for i in self.shape(cell).interfaces if i.mode == "master"]
            for segment in self.shape(cell).segments:
                if segment.interface == interface:
                    found.add(f"{cell}/{interface}/{segment.name}")
        return found

    # ------------------------------------------------------------------------------------------------ rules

    def validate(self) -> list[str]:
        """Everything that is wrong with the design; empty when it may be built."""
        self._shapes.clear()
        problems: list[str] = []
        for check in (
            self._check_existing, self._check_clocks, self._check_resets, self._check_connected, self._check_interfaces,
            self._check_addresses, self._check_ps7, self._check_dma, self._check_acp,
        ):  # fmt: skip
            problems += check()
            if problems and check == self._check_existing:
                break  # the rest would stumble over what is gone
        return problems

    def clock_of(self, pin: str) -> str:
        """The clock that drives a clock pin, as cell/pin; empty when none does."""
        return next((driver for driver, loads in self.nets if pin in loads), "")

    def frequency_mhz(self, clock: str) -> float:
        match = re.fullmatch(r"(\w+)/FCLK_CLK(\d)", clock)
        if not match:
            return 0.0
        config = self.cells[match[1]].config
        return float(config.get(f"PCW_FPGA{match[2]}_PERIPHERAL_FREQMHZ", "50"))

    def _check_existing(self) -> list[str]:
        wrong = []
        for master, slave in self.interface_nets:
            for path in (master, slave):
                if path not in self.ports:
                    try:
                        self.interface(path)
                    except TclError as error:
                        wrong.append(str(error))
        for driver, loads in self.nets:
            for path in (driver, *loads):
                try:
                    self.pin(path)
                except TclError as error:
                    wrong.append(str(error))
        return wrong

    def _check_clocks(self) -> list[str]:
        wrong = []
        for name in self.cells:
            for pin in self.shape(name).pins:
                path = f"{name}/{pin.name}"
                if pin.kind != "clk" or pin.direction != "in":
                    continue
                clock = self.clock_of(path)
                if not clock:
                    wrong.append(
                        f"[BD 41-758] The following clock pins are not connected to a valid clock source: /{path}"
                    )
                elif self.pin(clock).kind != "clk":
                    wrong.append(f"[BD 41-759] /{path} is driven by /{clock}, which is no clock")
        return wrong

    def _check_resets(self) -> list[str]:
        wrong = []
        for name in self.cells:
            shape = self.shape(name)
            for pin in shape.pins:
                path = f"{name}/{pin.name}"
                if pin.kind != "rst" or pin.direction != "in":
                    continue
                source = self.clock_of(path)
                if not source:
                    if not pin.optional:
                        wrong.append(f"[BD 41-760] The reset pin /{path} is not connected")
                    continue
                driver = self.pin(source)
                if driver.kind != "rst":
                    wrong.append(f"[BD 41-761] /{path} is driven by /{source}, which is no reset")
                elif driver.active_low != pin.active_low:
                    wrong.append(f"[BD 41-1344] Reset pin /{path} and its source /{source} have opposite polarities")
                elif self.cells[name].vlnv != catalogue.RESET:
                    # A reset that is not synchronised to the cell's own clock.
                    maker = source.partition("/")[0]
                    made_for = (
                        self.clock_of(f"{maker}/slowest_sync_clk") if self.cells[maker].vlnv == catalogue.RESET else ""
                    )
                    mine = {
                        self.clock_of(f"{name}/{p.name}") for p in shape.pins if p.kind == "clk" and p.direction == "in"
                    }
                    if made_for not in mine:
                        wrong.append(f"[BD 41-1348] Reset pin /{path} is connected to an asynchronous source /{source}")
        return wrong

    def _check_connected(self) -> list[str]:
        wrong = []
        connected = {side for net in self.interface_nets for side in net}
        for name in self.cells:
            for interface in self.shape(name).interfaces:
                if f"{name}/{interface.name}" not in connected and not interface.optional:
                    wrong.append(f"[standin] interface /{name}/{interface.name} is not connected")
            for pin in self.shape(name).pins:
                path = f"{name}/{pin.name}"
                if (
                    pin.direction == "in"
                    and pin.kind in ("data", "intr")
                    and not pin.optional
                    and not self.clock_of(path)
                ):
                    wrong.append(f"[standin] input /{path} is not connected")
        for port in self.ports:
            if port not in connected:
                wrong.append(f"[standin] interface port {port} is not connected")
        for driver, loads in self.nets:
            for load in loads:
                source, sink = self.pin(driver), self.pin(load)
                if sink.kind == "intr" and sink.width == 0:
                    if source.width > 16:
                        wrong.append(f"[BD 41-1700] /{load} takes at most 16 interrupts, got {source.width}")
                elif source.width != sink.width:
                    wrong.append(f"[BD 41-1701] /{driver} has {source.width} bits, /{load} has {sink.width}")
        # A PS7 whose interrupts are on, with nothing attached, has been configured for another design.
        for name, cell in self.cells.items():
            if cell.vlnv == catalogue.PS7 and self.shape(name).pin("IRQ_F2P") and not self.clock_of(f"{name}/IRQ_F2P"):
                wrong.append(f"[standin] interrupts of /{name} are enabled, but nothing is connected to IRQ_F2P")
            if cell.vlnv == catalogue.CONCAT and not any(d == f"{name}/dout" for d, _ in self.nets):
                wrong.append(f"[standin] /{name}/dout drives nothing")
            if cell.vlnv == catalogue.DMA and any(c.vlnv == catalogue.CONCAT for c in self.cells.values()):
                for line in ("mm2s_introut", "s2mm_introut"):
                    if sum(len(loads) for driver, loads in self.nets if driver == f"{name}/{line}") != 1:
                        wrong.append(
                            f"[standin] interrupts are collected, but /{name}/{line} does not go to exactly one input"
                        )
        return wrong

    def _check_interfaces(self) -> list[str]:
        wrong = []
        for master, slave in self.interface_nets:
            if slave in self.ports:
                continue
            a, b = self.interface(master), self.interface(slave)
            clocks = [
                self.clock_of(f"{path.partition('/')[0]}/{side.clock}") for path, side in ((master, a), (slave, b))
            ]
            # ASSUMPTION A12: FREQ_HZ of a module reference's interfaces follows the clock that its aclk is connected
            # to, so that equal clocks are equal frequencies.
            if clocks[0] != clocks[1]:
                wrong.append(
                    f"[BD 41-237] FREQ_HZ or clock of /{slave}({clocks[1]}) and /{master}({clocks[0]}) do not match"
                )
            if a.kind == "axis":
                if a.width and b.width and a.width != b.width:
                    wrong.append(
                        f"[BD 41-237] Bus Interface property TDATA_NUM_BYTES does not match between "
                        f"/{slave}({b.width // 8}) and /{master}({a.width // 8})"
                    )
                if b.tlast and not a.tlast:
                    wrong.append(f"[BD 41-237] /{slave} needs TLAST, /{master} has none: a transfer would never end")
                # ASSUMPTION A08: a slave without TKEEP may be connected to a master with TKEEP.
            elif "any" not in (a.protocol, b.protocol):
                if a.protocol != b.protocol:
                    wrong.append(
                        f"[BD 41-237] PROTOCOL of /{slave}({b.protocol}) and /{master}({a.protocol}) do not match"
                    )
                elif a.width != b.width:
                    wrong.append(f"[BD 41-237] DATA_WIDTH of /{slave}({b.width}) and /{master}({a.width}) do not match")
        return wrong

    def _check_addresses(self) -> list[str]:
        wrong = []
        segments = self.segments()
        excluded = set(self.exclusions)
        for space, _, low, high in self.spaces():
            mine = [a for a in self.assignments if a.space == space]
            reachable = self.reachable(space)
            for segment in sorted(reachable):
                if not any(a.segment == segment for a in mine) and (space, segment) not in excluded:
                    wrong.append(
                        f"[BD 41-1356] Slave segment </{segment}> is not assigned into address space </{space}>. "
                        "Please use Address Editor to either assign or exclude it."
                    )
            for a in mine:
                if a.segment not in reachable or a.segment not in segments:
                    wrong.append(f"[BD 41-1358] /{a.segment} is assigned in /{space} but cannot be reached from it")
                elif a.base < low or a.base + a.bytes - 1 > high:
                    wrong.append(f"[BD 41-1055] /{a.segment} lies outside the address space /{space}")
        assigned = {a.segment for a in self.assignments}
        for segment in segments:
            if segment not in assigned and not any(segment == s for _, s in self.exclusions):
                wrong.append(f"[standin] segment /{segment} has no address anywhere")
        # What a DMA may reach is the board's memory, from address 0 on, and all of it.
        for a in self.assignments:
            if segments.get(a.segment) is not None and segments[a.segment].name.endswith("DDR_LOWOCM"):
                if (a.base, a.base + a.bytes - 1) != (0, segments[a.segment].high):
                    wrong.append(f"[standin] /{a.space} sees only a part of the memory (0x{a.base:08X}, 0x{a.bytes:X})")
        return wrong

    def _check_ps7(self) -> list[str]:
        wrong = []
        systems = [cell for cell in self.cells.values() if cell.vlnv == catalogue.PS7]
        if len(systems) != 1:
            return [f"[standin] the design has {len(systems)} processing systems"]
        wrong += [f"[PS7] {text}" for text in ps7.check_whole(systems[0].config)]
        if sorted(self.ports.values()) != ["ddr", "fixedio"]:
            wrong.append("[standin] the design needs the external interfaces DDR and FIXED_IO")
        return wrong

    def _check_dma(self) -> list[str]:
        wrong = []
        masters = {slave: master for master, slave in self.interface_nets}
        slaves = dict(self.interface_nets)
        for name, cell in self.cells.items():
            if cell.vlnv != catalogue.DMA:
                continue
            # The core's default of 14 bits silently ends transfers at 16 KiB.
            if "c_sg_length_width" not in cell.config:
                wrong.append(f"[standin] c_sg_length_width of /{name} is left at its default of 14 bits")
            value = catalogue.effective(cell.vlnv, cell.config)
            if value["c_addr_width"] != "32":
                wrong.append(
                    f"[standin] /{name} has addresses of {value['c_addr_width']} bits; those of a Zynq-7000 have 32"
                )
            for side in ("mm2s", "s2mm"):
                if value[f"c_include_{side}_dre"] == "1":
                    wrong.append(
                        f"[standin] /{name} has a data realignment engine for {side}; all our buffers are aligned"
                    )
            if int(value["c_m_axis_mm2s_tdata_width"]) > int(value["c_m_axi_mm2s_data_width"]):
                wrong.append(f"[IP_Flow 19-3478] the stream of /{name} is wider than its memory side")
            incoming = masters.get(f"{name}/S_AXIS_S2MM")
            if incoming:
                width = self.interface(incoming).width
                if width > int(value["c_m_axi_s2mm_data_width"]):
                    wrong.append(f"[IP_Flow 19-3478] the stream into /{name} is wider than its memory side")
            # Both streams of a DMA belong to the same circuit of the shell.
            outgoing = slaves.get(f"{name}/M_AXIS_MM2S", "")
            source = self._behind_padding(incoming or "")
            engine_in = re.fullmatch(r"(\w+)/s_axis_(\w+)", outgoing)
            engine_out = re.fullmatch(r"(\w+)/m_axis_(\w+)", source)
            if engine_in and engine_out and engine_in[2] != engine_out[2]:
                wrong.append(f"[standin] /{name} feeds {engine_in[2]} but takes the results of {engine_out[2]}")
            for interface in ("M_AXI_MM2S", "M_AXI_S2MM"):
                wrong += self._check_memory_path(name, interface)
        return wrong

    def _behind_padding(self, path: str) -> str:
        masters = {slave: master for master, slave in self.interface_nets}
        cell = self.cells.get(path.partition("/")[0])
        if cell and cell.module and cell.module.name in PADDING_MODULES:
            return masters.get(f"{cell.name}/s_axis", "")
        return path

    def _memory_end(self, cell: str, interface: str) -> tuple[str, list[str]]:
        """The slave at the far end of a master with one way out, and the cells passed."""
        slaves = dict(self.interface_nets)
        passed: list[str] = []
        at = slaves.get(f"{cell}/{interface}", "")
        while at:
            name = at.partition("/")[0]
            if name not in self.cells:
                break
            if self.cells[name].vlnv == catalogue.INTERCONNECT:
                onward = f"{name}/M00_AXI"
            elif self.cells[name].module:
                onward = next(
                    (
                        f"{name}/{i.name}"
                        for i in self.shape(name).interfaces
                        if i.mode == "master" and i.kind == "aximm"
                    ),
                    "",
                )
            else:
                break
            if name in passed or not onward:
                break
            passed.append(name)
            at = slaves.get(onward, "")
        return at, passed

    def _check_memory_path(self, cell: str, interface: str) -> list[str]:
        wrong = []
        end, _ = self._memory_end(cell, interface)
        if not end or end in self.ports:
            return []
        master, slave = self.interface(f"{cell}/{interface}"), self.interface(end)
        if slave.width and master.width != slave.width:
            wrong.append(
                f"[standin] /{cell}/{interface} is {master.width} bits wide, /{end} {slave.width}: the rest is lost"
            )
        if master.burst > slave.burst:
            wrong.append(
                f"[standin] bursts of {master.burst} from /{cell}/{interface}; /{end} takes at most {slave.burst}"
            )
        return wrong

    def _check_acp(self) -> list[str]:
        """The coherent port: enabled, driven through a shim with the right constants, and only whole lines written."""
        wrong: list[str] = []
        masters = {slave: master for master, slave in self.interface_nets}
        for name, cell in self.cells.items():
            if cell.vlnv != catalogue.PS7 or not self.shape(name).interface("S_AXI_ACP"):
                continue
            if cell.config.get("PCW_USE_DEFAULT_ACP_USER_VAL", "0") != "0":
                wrong.append("[standin] PS7 ties AxUSER of the coherent port itself; the shim's would be ignored")
            driver = masters.get(f"{name}/S_AXI_ACP", "")
            if not driver:
                continue  # reported as not connected
            shim = self.cells[driver.partition("/")[0]]
            if not shim.module:
                wrong.append(f"[standin] S_AXI_ACP is driven by /{driver}, which sets neither AxCACHE nor AxUSER")
                continue
            prefix = driver.partition("/")[2]
            for channel in ("aw", "ar"):
                cache = catalogue.module_constant(shim.module, f"{prefix}_{channel}cache")
                user = catalogue.module_constant(shim.module, f"{prefix}_{channel}user")
                if cache != 0b1111:
                    wrong.append(f"[standin] {shim.module.name} does not drive {channel.upper()}CACHE with 1111")
                if user is None or not user & 1:
                    wrong.append(f"[standin] {shim.module.name} does not drive {channel.upper()}USER[0] with 1")
            if self.interface(driver).id_width > 3:
                wrong.append("[standin] S_AXI_ACP takes ids of 3 bits")
        for name, cell in self.cells.items():
            if cell.vlnv != catalogue.DMA:
                continue
            end, _ = self._memory_end(name, "M_AXI_S2MM")
            if not end.endswith("/S_AXI_ACP"):
                continue
            source = self.cells.get(masters.get(f"{name}/S_AXIS_S2MM", "").partition("/")[0])
            if not source or not source.module or source.module.name not in PADDING_MODULES:
                wrong.append(f"[standin] results of /{name} go to the coherent port without being filled to 32 bytes")
        return wrong

    # ------------------------------------------------------------------------------------------------ dump

    def dump(self) -> dict[str, Any]:
        """The design as plain data, sorted: what is compared with the reviewed golden file."""
        return {
            "design": self.name,
            "cells": {
                name: {
                    "type": cell.vlnv or f"module {cell.module.name if cell.module else ''}",
                    "config": {k: v for k, v in sorted(cell.config.items()) if k != "CONTENT_ID"},
                }
                for name, cell in sorted(self.cells.items())
            },
            "ports": dict(sorted(self.ports.items())),
            "interfaces": sorted(f"{master} -> {slave}" for master, slave in self.interface_nets),
            "nets": {driver: sorted(loads) for driver, loads in sorted(self.nets)},
            "addresses": [
                f"{a.space}: 0x{a.base:08X} 0x{a.bytes:X} {a.segment}"
                for a in sorted(self.assignments, key=lambda a: (a.space, a.base, a.segment))
            ],
            "excluded": sorted(f"{space}: {segment}" for space, segment in self.exclusions),
            "clocks_mhz": {
                driver: self.frequency_mhz(driver) for driver, _ in sorted(self.nets) if self.pin(driver).kind == "clk"
            },
        }
