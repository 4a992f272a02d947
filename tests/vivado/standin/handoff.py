"""Writes the hardware handoff (``.hwh``) of a block design, in the layout of real ones.

ASSUMPTION A10: attribute, element and parameter names as in handoffs of 2019.2 to 2024.1, and the
settings of PS7 under their PCW names.
"""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from . import catalogue
from .design import BlockDesign

_KIND_VLNV = {"aximm": "xilinx.com:interface:aximm:1.0", "axis": "xilinx.com:interface:axis:1.0"}


def hwh(design: BlockDesign, version: str, timestamp: str, clock_factor: float = 1.0) -> str:
    """The text of the handoff. ``clock_factor`` other than 1 plays a handoff that belongs to another design."""
    out = ['<?xml version="1.0" encoding="UTF-8" standalone="no" ?>']
    out.append(f'<EDKSYSTEM EDWVERSION="1.2" TIMESTAMP={quoteattr(timestamp)} VIVADOVERSION={quoteattr(version)}>')
    out.append("")
    out.append(
        f'  <SYSTEMINFO ARCH="zynq" DEVICE="7z020" NAME={quoteattr(design.name)} PACKAGE="clg400" SPEEDGRADE="-1"/>'
    )
    out.append("  <EXTERNALPORTS/>\n  <EXTERNALINTERFACES>")
    for inner, port in design.interface_nets:
        if port in design.ports:
            out.append(
                f"    <BUSINTERFACE BUSNAME={quoteattr(inner.replace('/', '_'))} NAME={quoteattr(port)} "
                'TYPE="INITIATOR"/>'
            )
    out.append("  </EXTERNALINTERFACES>\n\n  <MODULES>")
    for name in design.cells:
        out += _module(design, name, clock_factor)
    out.append("  </MODULES>\n\n</EDKSYSTEM>\n")
    return "\n".join(out)


def _module(design: BlockDesign, name: str, clock_factor: float) -> list[str]:
    cell = design.cells[name]
    vlnv = cell.vlnv or f"xilinx.com:module_ref:{cell.module.name if cell.module else ''}:1.0"
    kind = vlnv.split(":")[2]
    out = [
        f'    <MODULE COREREVISION="1" FULLNAME={quoteattr("/" + name)} HWVERSION={quoteattr(vlnv.split(":")[3])} '
        f'INSTANCE={quoteattr(name)} IPTYPE="PERIPHERAL" IS_ENABLE="1" MODCLASS="PERIPHERAL" MODTYPE={quoteattr(kind)} '
        f"VLNV={quoteattr(vlnv)}>"
    ]
    out.append("      <PARAMETERS>")
    settings = cell.config if cell.module else catalogue.effective(cell.vlnv, cell.config)
    for parameter, value in sorted(settings.items()):
        out.append(f"        <PARAMETER NAME={quoteattr(parameter)} VALUE={quoteattr(value)}/>")
    out.append("      </PARAMETERS>\n      <PORTS>")
    shape = design.shape(name)
    for pin in shape.pins:
        path = f"{name}/{pin.name}"
        driver = path if pin.direction == "out" else design.clock_of(path)
        attributes = f'DIR="{"O" if pin.direction == "out" else "I"}" NAME={quoteattr(pin.name)} SIGIS="{pin.kind}"'
        if pin.kind == "clk" and driver:
            attributes = f'CLKFREQUENCY="{round(design.frequency_mhz(driver) * clock_factor * 1e6)}" ' + attributes
        if driver:
            attributes += f" SIGNAME={quoteattr(driver.replace('/', '_'))}"
        out.append(f"        <PORT {attributes}/>")
    out.append("      </PORTS>\n      <BUSINTERFACES>")
    for interface in shape.interfaces:
        path = f"{name}/{interface.name}"
        net = next((n for n in design.interface_nets if path in n), None)
        if net is None or interface.kind not in _KIND_VLNV:
            continue
        types = ("INITIATOR", "TARGET") if interface.kind == "axis" else ("MASTER", "SLAVE")
        out.append(
            f"        <BUSINTERFACE BUSNAME={quoteattr(net[0].replace('/', '_'))} NAME={quoteattr(interface.name)} "
            f'TYPE="{types[0 if interface.mode == "master" else 1]}" VLNV={quoteattr(_KIND_VLNV[interface.kind])}/>'
        )
    out.append("      </BUSINTERFACES>")
    ranges = []
    segments = design.segments()
    for space in shape.spaces:
        for a in design.assignments:
            if a.space != f"{name}/{space.name}":
                continue
            instance, interface, _ = a.segment.split("/")
            memory = segments[a.segment].usage == "memory"
            ranges.append(
                f'        <MEMRANGE ADDRESSBLOCK={quoteattr(segments[a.segment].name)} BASENAME="C_BASEADDR" '
                f'BASEVALUE="0x{a.base:08X}" HIGHNAME="C_HIGHADDR" HIGHVALUE="0x{a.base + a.bytes - 1:08X}" '
                f'INSTANCE={quoteattr(instance)} IS_DATA="TRUE" IS_INSTRUCTION="TRUE" '
                f'MASTERBUSINTERFACE={quoteattr(space.interface)} MEMTYPE="{"MEMORY" if memory else "REGISTER"}" '
                f"SLAVEBUSINTERFACE={quoteattr(interface)}/>"
            )
    out += ["      <MEMORYMAP>", *ranges, "      </MEMORYMAP>"] if ranges else []
    out.append("    </MODULE>")
    return out
