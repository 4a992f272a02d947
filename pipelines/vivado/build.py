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

import contextlib
import datetime
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import GateError, LicenceError, ToolFailed, ToolTimeout
from pipelines.base.files import sha256_bytes, write_bytes, write_json, write_text
from pipelines.golden import formats
from pipelines.vivado import allowed as allow_list
from pipelines.vivado import attempt as attempts
from pipelines.vivado import bitfile, handoff, leftovers, picture, toolchain
from pipelines.vivado.design import BitstreamDesign
from pipelines.vivado.facts import Facts
from pipelines.vivado.failure import VersionMismatch, diagnose
from pipelines.vivado.gates import REPORTS, Verdict, measure
from pipelines.vivado.settings import PROJECT

WORK = Path(__file__).resolve().parents[2] / ".tritforge" / "vivado"
ALLOWED_MESSAGES = attempts.SCRIPTS / "allowed_messages.yaml"
KEEP_ATTEMPTS = 6
KEEP_S = 48 * 3600.0
"""Longer than the longest run (vivado.run_minutes is at most a day)."""
LICENCE_POLL_S = 30.0


class Vivado(Protocol):
    """A Vivado that can run attempts: on this machine, or on a build host (``remote.RemoteVivado``)."""

    @property
    def version(self) -> str: ...

    @property
    def name(self) -> str:
        """``vivado`` or ``stand-in``."""
        ...

    @property
    def place(self) -> str:
        """Where it is, for people."""
        ...

    def run(self, attempt: attempts.Attempt, *, deadline: Deadline, log: Path) -> int:
        """Runs it to its end in its folder; returns the exit status of the tool (negative for a signal)."""
        ...

    def for_task(self) -> Vivado:
        """The same, to be used beside this one by another thread or process."""
        ...


@dataclass(frozen=True)
class LocalVivado:
    """Vivado on this machine."""

    tool: toolchain.Toolchain

    @property
    def version(self) -> str:
        return self.tool.version

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def place(self) -> str:
        return self.tool.place

    def for_task(self) -> LocalVivado:
        return self

    def run(self, attempt: attempts.Attempt, *, deadline: Deadline, log: Path) -> int:
        try:
            return run_tool(
                [*self.tool.argv, *attempts.ARGUMENTS], cwd=attempt.folder, deadline=deadline, log=log, check=False
            ).status
        except ToolTimeout as error:
            facts = Facts.read(attempt.folder / "facts.tsv")
            at = next(
                (
                    f"{run} was {facts.get(run + '.status')}"
                    for run in ("impl_1", "synth_1")
                    if facts.get(run + ".status")
                ),
                "synthesis had not ended",
            )
            raise ToolTimeout(f"{error.message}\n  {at}", hint=error.hint, log=log) from None
        finally:
            # Nothing is left after a build that came to its end, by its own word or by ours.
            leftovers.end_processes_in(attempt.folder)


@dataclass(frozen=True)
class Built:
    """A finished attempt and its verdict."""

    attempt: attempts.Attempt
    verdict: Verdict
    payload_sha256: str


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
    one = _Builder(
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
        from pipelines.vivado.sweep import best_strategy  # Dask takes a second to import

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


@dataclass
class _Builder:
    """What all attempts of one build have in common."""

    design: BitstreamDesign
    content_id: int
    sources: Path
    scripts: Path
    allowed: list[allow_list.Allowed]
    today: datetime.date
    vivado: Vivado
    work: Path
    deadline: Deadline
    log: Path
    say: Callable[[str], None]

    def attempt(self, design: BitstreamDesign, *, log: Path | None = None) -> Built:
        """One attempt, or several when there is no licence yet; judged but not enforced."""
        until = time.monotonic() + design.vivado.licence_wait_s
        while True:
            try:
                return self._once(design, log or self.log)
            except LicenceError as error:
                left = min(until - time.monotonic(), self.deadline.remaining())
                if left <= 0:
                    raise LicenceError(
                        f"{error.message}\n  waited {design.vivado.licence_wait_s:g} s", hint=error.hint, log=error.log
                    ) from None
                self.say(f"no licence yet; trying again, at most {left:.0f} s longer")
                time.sleep(min(LICENCE_POLL_S, left, max(0.05, design.vivado.licence_wait_s / 8)))

    def _once(self, design: BitstreamDesign, log: Path) -> Built:
        folder = new_folder(self.work, design.name)
        attempt = attempts.prepare(
            folder,
            design,
            sources=self.sources,
            content_id=self.content_id,
            vivado_version=self.vivado.version,
            scripts=self.scripts,
        )
        status = self.vivado.run(attempt, deadline=self.deadline, log=log)
        if status != 0 or not Facts.read(folder / "facts.tsv").finished:
            raise diagnose(folder, status=status, log=log)
        verdict = measure(folder, design, content_id=self.content_id, allowed=self.allowed, today=self.today)
        verdict.write(folder)
        bit = folder / "out" / f"{PROJECT}.bit"
        digest = ""
        with contextlib.suppress(bitfile.BitfileError, OSError):
            digest = bitfile.parse(bit.read_bytes()).payload_sha256
        if not verdict.passed and bit.exists():
            # Nobody shall find a bitstream that failed under a name that looks like one.
            bit.rename(bit.with_name(f"{PROJECT}.bit.rejected"))
        return Built(attempt, verdict, digest)


def new_folder(work: Path, name: str) -> Path:
    """A folder nobody used before."""
    work.mkdir(parents=True, exist_ok=True)
    number = max((n for n, _ in _attempts(work, name)), default=0) + 1
    while True:
        folder = work / f"{name}-{number:04d}"
        try:
            folder.mkdir()
            return folder
        except FileExistsError:  # another process, or another strategy of a sweep, was faster
            number += 1


def remove_old(work: Path, name: str) -> None:
    """Removes attempts that are neither among the newest nor young enough to be still running."""
    known = sorted(_attempts(work, name))
    for _, folder in known[: max(0, len(known) - KEEP_ATTEMPTS)]:
        with contextlib.suppress(OSError):
            if time.time() - max(p.stat().st_mtime for p in (folder, *folder.iterdir())) > KEEP_S:
                shutil.rmtree(folder, ignore_errors=True)


def _attempts(work: Path, name: str) -> list[tuple[int, Path]]:
    return [(int(p.name.rpartition("-")[2]), p) for p in work.glob(f"{name}-*") if p.name.rpartition("-")[2].isdigit()]


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
