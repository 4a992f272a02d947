"""The bitstream of a real board: Vivado, through ``pipelines/vivado/build.py``."""

from __future__ import annotations

from pipelines.base.files import HashCache, canonical_json, sha256_bytes
from pipelines.engine.stage import Build, Stage
from pipelines.stages.sources import sources
from pipelines.stages.workshop import Workshop
from pipelines.vivado import build as vivado_build
from pipelines.vivado import toolchain
from pipelines.vivado.design import BitstreamDesign

# Synthesis and implementation may take their minutes each, and a licence may be waited for.
SPARE_S = 1800.0


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
    content_id = content_id_of({name: hashes.sha256(path) for name, path in files.items()}, values)

    def build(job: Build) -> None:
        vivado_build.build(
            design,
            job.out,
            deadline=job.deadline,
            log=job.log,
            sources=shop.root / "hw" / "rtl",
            content_id=content_id,
            release=not development,
            sweep=sweep,
            work=shop.state / "vivado",
            say=job.activity.say,
        )

    return Stage(
        name=f"bitstream-{design.name}-vivado",
        build=build,
        files=files,
        values=values,
        deadline_s=design.vivado.run_minutes * 60 * 2 * (1 + sweep) + design.vivado.licence_wait_s + SPARE_S,
        tools={"vivado": _vivado_version(shop)},
        toolchain="vivado",
        toolchain_file="bitstream.json",
        evidence_files=("gates.json",),
    )


def _vivado_version(shop: Workshop) -> str:
    """Which Vivado would be taken: another one, or the stand-in of the tests, never gets this one's artefact."""
    places = toolchain.candidates()
    if not places:
        return "missing"
    place = places[0]
    # A settings64.sh lies in a folder that is named like its version.
    return place.parent.name if place.suffix == ".sh" else shop.versions.of(str(place), "-version")


def content_id_of(files: dict[str, str], values: object) -> int:
    """32 bits of the hash of everything that decides the bits: what the board's register says it was built from."""
    return int(sha256_bytes(canonical_json({"files": files, "values": values}))[:8], 16)
