"""A release: everything a board needs for one model, under one signed manifest.

The folder of the artefact is the release as it will lie on the board: ``manifest.json``, its signature, and the parts
under their names. The release id is the SHA-256 of ``manifest.json``; the same parts and facts give the same id.

The manifest is an in-toto statement: its subjects are the parts. ``predicate`` says what they need of each other and of
the board, and ``check_fit`` holds them against each other before anything is signed:

    formats_version   of streams, registers and images
    board             {kind, pl}: the kind of board that this release is for; stand_in for a test's board in disguise
    bitstream         the facts of the build (``bitstream.json``): toolchain, content id, clock, addresses, DMAs
    runtime           the facts of the build (``runtime.json``)
    model             name, shape, context, and the facts of the image (``image.json``)
    memory            {contiguous_bytes, cma_mib}: what it takes, and what the board's configuration says is there
    toolchains        what made each part; ``stand-in`` keeps it from boards that are not emulated
    artefacts         digest of each artefact that parts came from
    parts             [{name, sha256, bytes}]
    signed_by         the identity that allowed signers are searched for
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.base.errors import ConfigError, FormatError, Unshippable
from pipelines.base.files import read_json, sha256_file, write_json
from pipelines.config.board import Board
from pipelines.config.settings import Choice
from pipelines.engine.provenance import STATEMENT_TYPE
from pipelines.engine.signing import Signer, check, public_key, sign
from pipelines.engine.stage import Build, Stage
from pipelines.engine.store import Artefact
from pipelines.golden import formats
from pipelines.hardware.verilate import RTL_LIBRARY
from pipelines.runtime.build import host_target
from pipelines.stages.sources import sources
from pipelines.stages.workshop import Workshop
from pipelines.vivado.shipping import require_shippable

RELEASE_TYPE = "urn:tritforge:release:1"
MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"


def release_stage(
    shop: Workshop, choice: Choice, signer: Signer, *, bitstream: Stage, runtime: Stage, weights: Stage
) -> Stage:
    """The stage that joins three artefacts and ``board_rt`` for one board and one model."""
    plan = shop.settings.plan_of(choice)
    board = choice.board
    values: dict[str, Any] = {
        "board": {"cma_mib": board.cma_mib, **board_of(board)},
        "model": {"name": choice.model.name, "context": choice.model.context},
        "contiguous_bytes": plan.total_bytes if plan is not None else None,
        "signer": {"identity": signer.identity, "key": public_key(signer.key)},
    }
    files = sources(shop.root, "board_rt/**/*")

    def by_kind(artefacts: Mapping[str, Artefact]) -> dict[str, Artefact]:
        return {
            "bitstream": artefacts[bitstream.name],
            "runtime": artefacts[runtime.name],
            "weights": artefacts[weights.name],
        }

    def build(job: Build) -> None:
        make_release(job, choice, signer, by_kind(job.upstream), files, values)

    def check(artefacts: Mapping[str, Artefact]) -> None:
        check_fit(choice, facts_of(by_kind(artefacts)), values["contiguous_bytes"])

    return Stage(
        name=f"release-{board.kind}-{choice.model.name}" + ("" if board.pl == "rtl-library" else f"-{board.bitstream}"),
        build=build,
        files=files,
        values=values,
        upstream=(bitstream, runtime, weights),
        check=check,
        deadline_s=300.0,
        toolchain="tritforge",
    )


def make_release(
    job: Build,
    choice: Choice,
    signer: Signer,
    below: Mapping[str, Artefact],
    agent_files: Mapping[str, Path],
    values: Mapping[str, Any],
) -> None:
    """Fills ``job.out``. Raises ConfigError, FormatError, GateError or Unshippable when parts may not go together."""
    check_shippable(below, allowed=choice.board.takes_stand_ins)
    require_shippable(below["bitstream"].folder, stand_ins=choice.board.takes_stand_ins)
    facts = facts_of(below)
    check_fit(choice, facts, values["contiguous_bytes"])
    parts = {**parts_of(below), **agent_files}
    if choice.board.emulated and choice.board.pl != "rtl-library":
        # Its fabric is beside the emulator: the board is given a bitstream that names the circuits to load there.
        parts["bitstream/tritforge.bin"] = job.out / "bitstream/tritforge.bin"
        parts["bitstream/tritforge.bin"].parent.mkdir()
        parts["bitstream/tritforge.bin"].write_bytes(emulated_bitstream(below["bitstream"]))
        del parts["bitstream/libtritforge_rtl.so"]
    subjects = []
    listing = []
    for name, source in sorted(parts.items()):
        target = job.out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source != target:
            place(source, target)
        digest = sha256_file(target)
        subjects.append({"name": name, "digest": {"sha256": digest}})
        listing.append({"name": name, "sha256": digest, "bytes": target.stat().st_size})
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": RELEASE_TYPE,
        "predicate": {
            "formats_version": formats.FORMATS_VERSION,
            "board": board_of(choice.board),
            "bitstream": facts["bitstream"],
            "runtime": facts["runtime"],
            "model": {
                "name": choice.model.name,
                "context": choice.model.context,
                "image": facts["weights"],
            },
            "memory": {"contiguous_bytes": values["contiguous_bytes"], "cma_mib": choice.board.cma_mib},
            "toolchains": {name: artefact.toolchain for name, artefact in below.items()},
            "artefacts": {artefact.name: artefact.digest for artefact in below.values()},
            "parts": listing,
            "signed_by": signer.identity,
        },
    }
    write_json(job.out / MANIFEST, statement)
    signature = sign(signer, job.out / MANIFEST, job.log)
    # What was signed is checked the way a board will, so that a wrong list of signers is found here and not there.
    check(job.out / MANIFEST, signature, signer.identity, signer.allowed_signers)


def board_of(board: Board) -> dict[str, Any]:
    """What a manifest says of its board. A release for one in disguise is another than one for the real board, so that
    what may go to the one is never found in the store for the other."""
    return {"kind": board.kind, "pl": board.pl, **({"stand_in": True} if board.stand_in else {})}


def parts_of(below: Mapping[str, Artefact]) -> dict[str, Path]:
    """Part name to file: what of each artefact goes to the board, under the names of ``docs/architecture.md``."""
    parts: dict[str, Path] = {}
    for prefix, key, wanted in (
        ("bitstream/", "bitstream", BITSTREAM_PARTS),
        ("runtime/", "runtime", RUNTIME_PARTS),
        ("weights/", "weights", WEIGHT_PARTS),
    ):
        artefact = below[key]
        for name, source in wanted.items():
            if source in artefact.files:
                parts[prefix + name] = artefact.folder / source
    weights = below["weights"]
    if "tokenizer.json" in weights.files:
        parts["tokenizer.json"] = weights.folder / "tokenizer.json"
    if not any(name.startswith("bitstream/") and not name.endswith(".json") for name in parts):
        raise ConfigError("the bitstream's artefact holds neither a library nor a .bit")
    missing = [name for name in REQUIRED_PARTS if name not in parts]
    if missing:
        raise ConfigError(f"a release needs {', '.join(missing)}, which no artefact holds")
    return parts


def emulated_bitstream(artefact: Artefact) -> bytes:
    """The ``.bin`` for the fabric of an emulated Zynq, which runs on this machine."""
    from pipelines.hardware import fabric  # with numpy, which a plan does not load

    circuits = artefact.folder / host_target() / RTL_LIBRARY
    return fabric.bitstream(sha256_file(circuits), read_json(artefact.folder / "bitstream.json")["content_id"])


BITSTREAM_PARTS = {
    "libtritforge_rtl.so": "armv7-linux/libtritforge_rtl.so",
    "libtritforge_model.so": "armv7-linux/libtritforge_model.so",
    "tritforge.bit": "tritforge.bit",
    "tritforge.hwh": "tritforge.hwh",
    "tritforge.bin": "tritforge.bin",
    "bitstream.json": "bitstream.json",
    "gates.json": "gates.json",
}
RUNTIME_PARTS = {"libtritforge.so": "armv7-linux/libtritforge.so", "runtime.json": "runtime.json"}
WEIGHT_PARTS = {name: name for name in ("weights.tfs", "params.tfp", "embedding.f16", "image.json")}
REQUIRED_PARTS = (
    "bitstream/bitstream.json",
    "runtime/libtritforge.so",
    "weights/weights.tfs",
    "weights/params.tfp",
    "weights/embedding.f16",
    "weights/image.json",
    "tokenizer.json",
)


def facts_of(below: Mapping[str, Artefact]) -> dict[str, Any]:
    """What each builder wrote about what it made; empty where it wrote nothing."""
    names = {"bitstream": "bitstream.json", "runtime": "runtime.json", "weights": "image.json"}
    return {key: read_json(below[key].folder / name) if name in below[key].files else {} for key, name in names.items()}


def check_shippable(below: Mapping[str, Artefact], *, allowed: bool) -> None:
    """What a stand-in made is for tests. Raises Unshippable."""
    if allowed:
        return
    made = [artefact.name for artefact in below.values() if artefact.toolchain == "stand-in"]
    if made:
        raise Unshippable(
            f"{', '.join(made)} was made by a stand-in tool and may not be signed for a real board",
            hint="build it with the real tool: './inv doctor' says what is missing",
        )


def check_fit(choice: Choice, facts: Mapping[str, Any], contiguous_bytes: int | None) -> None:
    """The parts against each other and against the board. Raises FormatError or ConfigError naming both sides."""
    bitstream, image = facts["bitstream"], facts["weights"]
    for name, fact in (("bitstream", bitstream), ("runtime", facts["runtime"]), ("weights", image)):
        version = fact.get("formats_version")
        if version is not None and version != formats.FORMATS_VERSION:
            raise FormatError(
                f"the {name} has formats version {version}, this release is of version {formats.FORMATS_VERSION}",
                hint="build it again",
            )
    design = choice.bitstream
    for key in ("content_id", "clock_mhz"):
        if bitstream.get(key) is None:
            raise FormatError(
                f"bitstream.json does not say its {key}, which the board holds its circuits against",
                hint="build the bitstream again",
            )
    if float(bitstream["clock_mhz"]) != design.clock_mhz:
        raise ConfigError(
            f"the bitstream runs at {bitstream['clock_mhz']:g} MHz, its configuration says {design.clock_mhz:g}",
            hint="build it again",
        )
    dmas = bitstream.get("dmas")
    if dmas is not None:
        engines = [dma["engine"] for dma in dmas]
        if engines != list(formats.ENGINES):
            raise ConfigError(f"the bitstream's DMAs serve {', '.join(engines)}, not {', '.join(formats.ENGINES)}")
        if len({bool(dma.get("scatter_gather")) for dma in dmas}) > 1:
            raise ConfigError(
                "some DMAs of the bitstream have scatter-gather and some have not; the runtime drives all alike",
                hint="set dma.engines.*.scatter_gather alike, and build the bitstream again",
            )
        for dma in dmas:
            if (1 << int(dma["length_width"])) <= design.dma.max_transfer_bytes:
                raise ConfigError(
                    f"the DMA of {dma['engine']} has {dma['length_width']} bits of length, too few for transfers of"
                    f" {design.dma.max_transfer_bytes} bytes"
                )
    largest = image.get("max_transfer_bytes")
    if largest is not None and int(largest) > design.dma.max_transfer_bytes:
        raise ConfigError(
            f"the image has transfers of up to {largest} bytes, the DMAs take {design.dma.max_transfer_bytes}",
            hint="convert the weights again for this board",
        )
    if contiguous_bytes is not None and contiguous_bytes > choice.board.cma_mib << 20:
        raise ConfigError(
            f"model '{choice.model.name}' needs {contiguous_bytes / 2**20:.1f} MiB of contiguous memory,"
            f" board '{choice.board.name}' has cma_mib {choice.board.cma_mib}"
        )


def place(source: Path, target: Path) -> None:
    """A second name for a file of the store, or a copy where that cannot be (another file system, a source file)."""
    if source.stat().st_mode & 0o222 == 0:  # sealed, so it is the store's
        try:
            os.link(source, target)
            return
        except OSError:
            pass
    shutil.copyfile(source, target)
