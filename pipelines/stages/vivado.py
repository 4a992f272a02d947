"""The bitstream of a real board: Vivado, through ``pipelines/vivado/build.py``."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from pipelines.base.deadline import Deadline
from pipelines.base.files import HashCache, canonical_json, sha256_bytes
from pipelines.engine.stage import Build, Stage
from pipelines.stages.sources import sources
from pipelines.stages.versions import stamp_of
from pipelines.stages.workshop import Workshop
from pipelines.vivado import toolchain
from pipelines.vivado.design import BitstreamDesign
from pipelines.vivado.failure import VersionMismatch

# Synthesis and implementation may take their minutes each, and a licence may be waited for.
SPARE_S = 1800.0
ASK_HOST_S = 20.0
ASK_PROGRAM_S = 120.0
UNDECIDED = ("missing", "unknown", "none that fits")
"""In place of an identity: no Vivado, or none that answered. Then the build fails by itself, with its own words."""


def vivado_stage(
    shop: Workshop, design: BitstreamDesign, hashes: HashCache, *, development: bool = False, sweep: int = 0
) -> Stage:
    """The stage for one design. ``development`` takes any version of Vivado in the policy's range."""
    files = sources(shop.root, "hw/rtl/*.sv", "hw/rtl/*.v", "hw/vivado/*")
    values = {
        "design": design.key(),
        "vivado": design.vivado.release if not development else f"{design.vivado.development_from} or newer",
        "sweep": sweep,
    }
    which = _which_vivado(shop, design, release=not development)
    content_id = content_id_of({name: hashes.sha256(path) for name, path in files.items()}, values)

    def build(job: Build) -> None:
        from pipelines.vivado import build as vivado_build  # and all its parsers, which a plan has no use for

        try:
            vivado_build.build(
                design,
                job.out,
                deadline=job.deadline,
                log=job.log,
                sources=shop.root / "hw" / "rtl",
                content_id=content_id,
                release=not development,
                expected="" if which in UNDECIDED else which,
                sweep=sweep,
                work=shop.state / "vivado",
                say=job.activity.say,
            )
        except VersionMismatch:
            _forget_vivado(shop)  # so that the next plan asks again
            raise

    return Stage(
        name=f"bitstream-{design.name}-vivado",
        build=build,
        files=files,
        values=values,
        deadline_s=design.vivado.run_minutes * 60 * 2 * (1 + sweep) + design.vivado.licence_wait_s + SPARE_S,
        tools={"vivado": which},
        toolchain="vivado",
        toolchain_file="bitstream.json",
        evidence_files=("gates.json",),
    )


def _which_vivado(shop: Workshop, design: BitstreamDesign, *, release: bool) -> str:
    """Identity of the Vivado that a build would take: what another one, or the stand-in, built is never taken for its.

    Answers from memory where it can, since a plan must not wait for Vivado to start: of a program as long as its file
    is unchanged, of a build host as long as it is named by the same address. A build asks again, and refuses another.
    """
    address = toolchain.build_host()
    if address:

        def ask() -> str:
            from pipelines.vivado import build as vivado_build

            there = vivado_build.find_vivado(design, release=release, deadline=Deadline.after(ASK_HOST_S))
            return vivado_build.identity(there)

        return shop.versions.remembered(address, [release], ask)
    places = toolchain.candidates()
    for place in places:
        found = shop.versions.remembered(_name_of(place), stamp_of(os.fspath(place)), partial(_ask, place))
        if found not in UNDECIDED and design.vivado.allows(found.split()[-1], release=release):
            return found
    return "none that fits" if places else "missing"


def _name_of(place: Path) -> str:
    return f"identity of {place.resolve()}"


def _ask(place: Path) -> str:
    banner = toolchain.ask_version(toolchain.command_for(place), Deadline.after(ASK_PROGRAM_S))[1]
    return toolchain.identity_in(banner)


def _forget_vivado(shop: Workshop) -> None:
    for name in (toolchain.build_host(), *map(_name_of, toolchain.candidates())):
        shop.versions.forget(name)


def content_id_of(files: dict[str, str], values: object) -> int:
    """32 bits of the hash of everything that decides the bits: what the board's register says it was built from."""
    return int(sha256_bytes(canonical_json({"files": files, "values": values}))[:8], 16)
