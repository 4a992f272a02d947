"""Builds the bitstream of a design: find Vivado, run an attempt, judge it, leave the outputs.

``build`` writes into ``out``, an empty folder, and either leaves everything there or raises. Attempts live in
``work``, each in a folder of its own that nobody changes afterwards; the newest few are kept, so that the log an error
names can be read. ``out`` holds:

========================  ==============================================================================================
``tritforge.bit``         the bitstream; ``tritforge.bin`` the same, byte-swapped, for Linux' fpga_manager
``tritforge.hwh``         hardware handoff, which pynq wants beside the bitstream
``tritforge.xsa``         hardware platform
``bitstream.json``        what it is: toolchain, version, content id, clock, addresses, DMAs, hashes
``gates.json``            each gate with value, limit and margin; ``figures.json`` the parsed reports
``block_design.svg``      a picture of the block design, drawn from the handoff
``reports/``, ``logs/``   the reports as Vivado wrote them; the logs of its runs, whose checksums ``repro`` compares
========================  ==============================================================================================
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.base.deadline import Deadline
from pipelines.base.errors import GateError, ToolFailed
from pipelines.base.files import sha256_bytes, write_bytes, write_json, write_text
from pipelines.golden import formats
from pipelines.vivado import allowed as allow_list
from pipelines.vivado import attempt as attempts
from pipelines.vivado import bitfile, handoff, picture, toolchain
from pipelines.vivado.builder import Builder, Built, LocalVivado, Vivado, remove_old
from pipelines.vivado.design import BitstreamDesign
from pipelines.vivado.failure import VersionMismatch
from pipelines.vivado.gates import REPORTS
from pipelines.vivado.settings import PROJECT
from pipelines.vivado.sweep import best_strategy

WORK = Path(__file__).resolve().parents[2] / ".tritforge" / "vivado"
ALLOWED_MESSAGES = attempts.SCRIPTS / "allowed_messages.yaml"


def build(
    design: BitstreamDesign,
    out: Path,
    *,
    deadline: Deadline,
    log: Path,
    sources: Path,
    content_id: int,
    release: bool = False,
    sweep: int = 0,
    vivado: Vivado | None = None,
    expected: str = "",
    work: Path = WORK,
    scripts: Path = attempts.SCRIPTS,
    allowed_messages: Path = ALLOWED_MESSAGES,
    today: datetime.date | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Builds ``design`` with the RTL in ``sources`` into ``out``.

    ``content_id``: 32 bits, readable from a register and from USR_ACCESS. ``release``: take exactly the version of
    Vivado that releases are made with. ``sweep``: how many other strategies to try when timing is missed. ``vivado``:
    a build host; without it, what TRITFORGE_VIVADO names, or the Vivado of this machine. ``expected``: the identity
    that the caller's key says; another one is refused, so that no artefact lies under a key that is not its own.

    Raises GateError (exit status 1); ToolMissing, VersionMismatch, LicenceError, OutOfMemory, ToolTimeout and other
    ToolFailed (3).
    """
    if out.exists() and any(out.iterdir()):
        raise ToolFailed(f"{out} is not empty")
    out.mkdir(parents=True, exist_ok=True)
    permitted = allow_list.read(allowed_messages)
    chosen = vivado or find_vivado(design, release=release, deadline=deadline, log=log, say=say)
    if expected and identity(chosen) != expected:
        raise VersionMismatch(
            f"{chosen.place} is {identity(chosen)}; this build was planned with {expected}", hint="run it again"
        )
    if release and chosen.name == "stand-in":
        say("this Vivado is the stand-in: what it builds can be tested, not released to a board")
    remove_old(work, design.name)
    one = Builder(
        design,
        content_id,
        sources,
        scripts,
        permitted,
        today or datetime.date.today(),
        chosen,
        work,
        deadline,
        log,
        say,
    )
    built = one.attempt(design)
    if not built.verdict.passed and built.verdict.only_timing_missed and sweep > 0:
        candidate = best_strategy(one, sweep)
        say(f"strategy '{candidate.name}' meets timing by {candidate.slack_ns:.3f} ns; building it again, alone")
        one.design = design.with_strategy(candidate.name)
        built = one.attempt(one.design)
        if built.payload_sha256 != candidate.payload_sha256:
            raise GateError(
                f"strategy '{candidate.name}' gave other bits when built again alone: this Vivado is not reproducible",
                hint="compare the runme.log of both attempts: the first phase with another checksum is where it begins",
                log=log,
            )
    built.verdict.require(log=log)
    _collect(built, one.design, out, content_id, chosen)


def find_vivado(
    design: BitstreamDesign,
    *,
    release: bool,
    deadline: Deadline,
    log: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Vivado:
    """The build host that TRITFORGE_VIVADO names by an ssh:// address, else the first fitting Vivado of this machine.

    What a build, its key and ``doctor`` use alike. Raises ToolMissing, VersionMismatch, and for a build host what
    ``RemoteVivado.connect`` raises.
    """
    address = toolchain.build_host()
    if not address:
        return LocalVivado(toolchain.find(design, release=release, deadline=deadline, log=log))
    from pipelines.vivado import remote  # Fabric takes a second to import

    there = remote.RemoteVivado.connect(remote.host_of(address), deadline=deadline, say=say)
    if not design.vivado.allows(there.version, release=release):
        raise VersionMismatch(
            f"the build host may not build '{design.name}': wanted {toolchain.wanted(design, release=release)}, but"
            f" {there.place} is {there.version}",
            hint=f"name the settings64.sh of another version in {toolchain.VARIABLE}",
        )
    return there


def identity(vivado: Vivado) -> str:
    """What the key of a build says of its tool: ``vivado 2024.1``."""
    return f"{vivado.name} {vivado.version}"


def _collect(built: Built, design: BitstreamDesign, out: Path, content_id: int, vivado: Vivado) -> None:
    """The outputs of a build that passed; ``bitstream.json`` comes last."""
    folder = built.attempt.folder
    for suffix in ("bit", "hwh", "xsa"):
        shutil.copyfile(folder / "out" / f"{PROJECT}.{suffix}", out / f"{PROJECT}.{suffix}")
    bit = bitfile.parse((out / f"{PROJECT}.bit").read_bytes())
    swapped = bitfile.byte_swapped(bit.payload)
    write_bytes(out / f"{PROJECT}.bin", swapped)
    (out / "reports").mkdir()
    for report in REPORTS:
        shutil.copyfile(folder / "reports" / f"{report}.rpt", out / "reports" / f"{report}.rpt")
    (out / "logs").mkdir()
    for path in sorted(folder.rglob("runme.log")):
        shutil.copyfile(path, out / "logs" / f"{path.parent.name}.log")
    built.verdict.write(out)
    hwh = (out / f"{PROJECT}.hwh").read_bytes()
    write_text(out / "block_design.svg", picture.svg(handoff.parse(hwh.decode("utf-8")), design))
    write_json(
        out / "bitstream.json",
        description(
            design,
            content_id=content_id,
            toolchain_name=vivado.name,
            version=vivado.version,
            hashes={
                "payload_sha256": bit.payload_sha256,
                "bin_sha256": sha256_bytes(swapped),
                "hwh_sha256": sha256_bytes(handoff.without_timestamp(hwh)),  # without its TIMESTAMP
            },
        ),
    )


def description(
    design: BitstreamDesign, *, content_id: int, toolchain_name: str, version: str, hashes: dict[str, str]
) -> dict[str, Any]:
    """``bitstream.json``: what a release is checked against before it is signed."""
    acp = set(design.acp_masters())
    return {
        "toolchain": toolchain_name,
        "toolchain_version": version,
        "design": design.name,
        "part": design.part,
        "clock_mhz": design.clock_mhz,
        "content_id": f"0x{content_id:08X}",
        "formats_version": formats.FORMATS_VERSION,
        "control_base": f"0x{design.control.base:08X}",
        "max_transfer_bytes": design.dma.max_transfer_bytes,
        "interrupts": design.dma.interrupts,
        # Results are filled to this many bytes by the fabric: a receiving buffer must have the room.
        "results_padded_to_bytes": 32 if design.dma.results_port == "acp" else formats.WORD_BYTES,
        "dmas": [
            {
                "engine": engine,
                "base": f"0x{dma.base:08X}",
                "scatter_gather": dma.scatter_gather,
                "hp_port": dma.hp_port,
                "length_width": design.dma.length_width,
                "stream_bits": 64,
                "results_coherent": f"dma_{engine}/M_AXI_S2MM" in acp,
                "descriptors_coherent": f"dma_{engine}/M_AXI_SG" in acp,
            }
            for engine, dma in design.dma.engines.items()
        ],
        "strategy": design.strategy.model_dump(),
        "vivado": {"threads": design.vivado.threads},
        "gates": "gates.json",
        **hashes,
    }
