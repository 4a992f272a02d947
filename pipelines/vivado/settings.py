"""The one generated Tcl file: what the constant Tcl in ``hw/vivado`` has to know of a design."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.errors import ConfigError
from pipelines.golden import formats
from pipelines.vivado.design import STREAM_OF, BitstreamDesign

PROJECT = "tritforge"
BLOCK_DESIGN = "tritforge_system"

ACP_SOURCES = ("acp_port.v", "axis_pad32.v")
"""Verilog of ours, beside the Tcl, that only a design with the coherent port uses."""

_PLAIN = re.compile(r"^[A-Za-z0-9_.:/+,@%=-]+$")


@dataclass(frozen=True)
class BuildInputs:
    """What a build adds to the design: the sources, the content id, and names of this attempt."""

    sources: tuple[Path, ...]  # Verilog and SystemVerilog, in a fixed order
    content_id: int  # 32 bits
    attempt: str  # a name nobody used before, recorded in the facts so that files of two attempts are told apart
    vivado_version: str  # the version found before; the build stops if another one answers


def word(value: str | int | float | Path) -> str:
    """One word of Tcl whose value is exactly this text, whatever it holds.

    >>> word("MT41J256M16 RE-125")
    '{MT41J256M16 RE-125}'
    """
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if _PLAIN.match(text):
        return text
    if "\n" in text or "\0" in text:
        raise ConfigError(f"{text!r} cannot be written into a Tcl file: it has a line break or a null")
    if not re.search(r"[{}\\]", text):
        return "{" + text + "}"
    return re.sub(r'([\\{}\[\]$";\s#])', r"\\\1", text)


def words(values: Sequence[str | int | float | Path]) -> str:
    """A Tcl list as one word."""
    return "[list" + "".join(f" {word(value)}" for value in values) + "]"


def settings_tcl(design: BitstreamDesign, inputs: BuildInputs) -> str:
    """The settings file. The same design and inputs give the same text, byte for byte."""
    if not 0 <= inputs.content_id < 1 << 32:
        raise ConfigError(f"content id {inputs.content_id} is not a number of 32 bits")
    lines = [
        f"# Generated from the bitstream design '{design.name}'; a change made here is lost at the next build.",
        "# Sizes in bytes, slack in ns, clocks in MHz.",
        "",
    ]

    def put(name: str, text: str) -> None:
        lines.append(f"set tf({name}) {text}")

    put("project", PROJECT)
    put("design", BLOCK_DESIGN)
    put("attempt", word(inputs.attempt))
    put("vivado_version", word(inputs.vivado_version))
    put("part", word(design.part))
    put("clock_mhz", word(design.clock_mhz))
    put("threads", word(design.vivado.threads))
    put("jobs", word(design.vivado.jobs))
    put("run_minutes", word(design.vivado.run_minutes))
    put("sources", words(inputs.sources))
    lines.append("")
    put("content_id", f"0x{inputs.content_id:08X}")
    put("shell", word(design.shell.module))
    parameters: list[str | int] = ["CONTENT_ID", f"0x{inputs.content_id:08X}"]
    for name, value in sorted(design.shell.parameters.items()):
        parameters += [name, value]
    put("shell_parameters", words(parameters))
    lines.append("")
    put("control.base", f"0x{design.control.base:08X}")
    put("control.bytes", f"0x{design.control.bytes:X}")
    put("ddr.base", f"0x{design.ddr.base:08X}")
    put("ddr.bytes", f"0x{design.ddr.bytes:X}")
    put("length_width", word(design.dma.length_width))
    put("burst_beats", word(design.dma.burst_beats))
    put("interrupts", word(int(design.dma.interrupts)))
    put("hp_ports", words(sorted(dma.hp_port for dma in design.dma.engines.values())))
    put("acp_masters", words(design.acp_masters()))
    put("dmas", words(formats.ENGINES))
    for engine in formats.ENGINES:
        dma = design.dma.engines[engine]  # type: ignore[index]
        lines.append("")
        put(f"dma.{engine}.stream", word(STREAM_OF[engine]))
        put(f"dma.{engine}.scatter_gather", word(int(dma.scatter_gather)))
        put(f"dma.{engine}.masters", words(design.masters(engine)))
        put(f"dma.{engine}.port", word(dma.hp_port))
        put(f"dma.{engine}.base", f"0x{dma.base:08X}")
        put(f"dma.{engine}.bytes", f"0x{dma.bytes:X}")
    lines.append("")
    for step, directive in design.strategy.model_dump().items():
        put(f"strategy.{step}", word(directive))
    return "\n".join(lines) + "\n"
