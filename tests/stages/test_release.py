"""A release from made-up artefacts: what it holds, when its parts do not fit, who may sign for which board."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.base.console import Console
from pipelines.base.errors import ConfigError, FormatError, GateError, SignatureError, TritforgeError, Unshippable
from pipelines.base.files import HashCache, sha256_file
from pipelines.boards.release import LocalRelease
from pipelines.commands import clean
from pipelines.commands.context import Context
from pipelines.config.settings import Settings
from pipelines.engine import graph, signing
from pipelines.engine.stage import Build, Stage
from pipelines.engine.store import Artefact, Store
from pipelines.golden import formats
from pipelines.stages.release import MANIFEST, SIGNATURE, release_stage
from pipelines.stages.versions import Versions
from pipelines.stages.workshop import Workshop

SAMPLE = Path(__file__).resolve().parents[1] / "config" / "sample"
ENGINES = [{"engine": name, "length_width": 23} for name in formats.ENGINES]
FACTS: dict[str, dict[str, Any]] = {
    "bitstream": {
        "formats_version": 1,
        "clock_mhz": 125,
        "content_id": "0x00000001",
        "dmas": ENGINES,
        "toolchain": "verilator",
    },
    "runtime": {"formats_version": 1},
    "weights": {"formats_version": 1, "max_transfer_bytes": 8388600},
}
FABRIC = {"toolchain": "vivado"}  # and GATES: a bitstream that may go to a real board
GATES = {"passed": True, "gates": [{"name": "setup_slack", "passed": True}]}
FILES = {
    "bitstream": ["armv7-linux/libtritforge_rtl.so", "x86_64-linux/libtritforge_rtl.so"],
    "runtime": ["armv7-linux/libtritforge.so", "x86_64-linux/libtritforge.so"],
    "weights": ["weights.tfs", "params.tfp", "embedding.f16", "tokenizer.json"],
}
DESCRIPTION = {"bitstream": "bitstream.json", "runtime": "runtime.json", "weights": "image.json"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    import shutil

    shutil.copytree(SAMPLE / "config", tmp_path / "config")
    (tmp_path / "board_rt").mkdir()
    (tmp_path / "board_rt" / "__main__.py").write_text("print('agent')\n")
    return tmp_path


Make = Callable[..., Any]


@pytest.fixture
def make(root: Path) -> Make:
    """Builds a release; ``changed`` maps bitstream, runtime or weights to facts that differ from good ones.

    With ``planned`` the parts alone are built, and the release is planned.
    """

    def build(
        board: str = "emu1",
        model: str = "tiny",
        overrides: tuple[str, ...] = (),
        state: str = ".tritforge",
        gates: dict[str, Any] | None = GATES,
        planned: bool = False,
        **changed: dict[str, Any],
    ) -> Artefact | None:
        settings = Settings(root, overrides, environment={})
        folder = root / state
        store = Store(folder, HashCache(folder / "hashes.json"))
        shop = Workshop(root, settings, folder, Versions(folder / "versions.json"))

        def part(kind: str) -> Stage:
            facts = {**FACTS[kind], **changed.get(kind, {})}

            def fill(job: Build) -> None:
                for name in FILES[kind]:
                    (job.out / name).parent.mkdir(exist_ok=True)
                    (job.out / name).write_text(f"{kind} {name}")
                (job.out / DESCRIPTION[kind]).write_text(json.dumps(facts))
                if facts.get("toolchain") in ("vivado", "stand-in") and gates is not None:
                    (job.out / "gates.json").write_text(json.dumps(gates))

            return Stage(f"{kind}-x", fill, values={"facts": facts}, toolchain="test", toolchain_file=DESCRIPTION[kind])

        stage = release_stage(
            shop,
            settings.choose(board, model),
            signing.signer(settings, folder, {}),
            bitstream=part("bitstream"),
            runtime=part("runtime"),
            weights=part("weights"),
        )
        outcomes = graph.run(stage.upstream if planned else [stage], store, Console(quiet=True), root=root)
        graph.raise_worst(outcomes)
        if planned:
            graph.plan([stage], store, check=True)
            return None
        return graph.artefact_of(outcomes, stage.name)

    return build


def test_the_manifest_names_every_file_by_its_hash(make: Make) -> None:
    release = make()
    manifest = json.loads((release.folder / MANIFEST).read_text())
    parts = {subject["name"]: subject["digest"]["sha256"] for subject in manifest["subject"]}
    assert set(parts) == {
        "bitstream/libtritforge_rtl.so", "bitstream/bitstream.json", "runtime/libtritforge.so", "runtime/runtime.json",
        "weights/weights.tfs", "weights/params.tfp", "weights/embedding.f16", "weights/image.json", "tokenizer.json",
        "board_rt/__main__.py",
    }  # fmt: skip
    assert set(release.files) == {*parts, MANIFEST, SIGNATURE}
    for name, digest in parts.items():
        assert sha256_file(release.folder / name) == digest
    assert (release.folder / "runtime/libtritforge.so").read_text() == "runtime armv7-linux/libtritforge.so"
    predicate = manifest["predicate"]
    assert predicate["memory"]["cma_mib"] == 192 and predicate["memory"]["contiguous_bytes"] > 459_720
    assert {part["name"]: part["sha256"] for part in predicate["parts"]} == parts


def test_the_same_parts_give_the_same_release(make: Make, root: Path) -> None:
    first = make()
    key = root / ".tritforge" / "signing" / "key"
    again = make(state="elsewhere", overrides=(f"signing.key_file={key}",))
    assert again.files == first.files, "signature included: one key, the same bytes"


def test_the_signature_is_of_the_manifest(make: Make, root: Path) -> None:
    release = make()
    signer = signing.signer(Settings(root, environment={}), root / ".tritforge", {})
    signing.check(release.folder / MANIFEST, release.folder / SIGNATURE, signer.identity, signer.allowed_signers)
    forged = root / MANIFEST
    forged.write_text((release.folder / MANIFEST).read_text().replace("emulated", "pynq-z1"))
    with pytest.raises(SignatureError) as caught:
        signing.check(forged, release.folder / SIGNATURE, signer.identity, signer.allowed_signers)
    assert caught.value.status == 4
    other = signing.signer(Settings(root, environment={}), root / "another checkout", {})
    with pytest.raises(SignatureError):
        signing.check(release.folder / MANIFEST, release.folder / SIGNATURE, signer.identity, other.allowed_signers)
    with pytest.raises(SignatureError, match="is not by 'somebody'"):
        signing.check(release.folder / MANIFEST, release.folder / SIGNATURE, "somebody", signer.allowed_signers)


@pytest.mark.parametrize("part", ["bitstream", "runtime", "weights"])
def test_a_stand_in_is_signed_for_emulated_boards_only(make: Make, part: str) -> None:
    make("emu1", **{part: {"toolchain": "stand-in"}})
    with pytest.raises(Unshippable, match=f"{part}-x was made by a stand-in tool") as caught:
        make("zynq1", **{"bitstream": FABRIC, part: {"toolchain": "stand-in"}})
    assert caught.value.status == 4
    make("zynq1", bitstream=FABRIC)


def test_what_a_board_in_disguise_may_have_is_not_cached_for_a_real_one(make: Make, root: Path) -> None:
    bitstream = {**FABRIC, "toolchain": "stand-in"}
    path = root / "config" / "boards" / "zynq1.yaml"
    real = path.read_text()
    path.write_text(real.replace("host: zynq1", "host: 127.0.0.1") + "stand_in: true\n")
    disguised = LocalRelease.read(make("zynq1", bitstream=bitstream).folder)
    assert disguised.stand_in and disguised.predicate["board"] == {"kind": "pynq-z1", "pl": "pynq", "stand_in": True}
    path.write_text(real)
    with pytest.raises(Unshippable):
        make("zynq1", bitstream=bitstream)


def test_a_board_that_plays_one_takes_a_gated_stand_in_only(make: Make) -> None:
    plays = ("boards.zynq1.stand_in=true", "boards.zynq1.ssh.host=127.0.0.1")
    make("zynq1", overrides=plays, bitstream={"toolchain": "stand-in"})
    with pytest.raises(GateError, match="was never gated"):
        make("zynq1", overrides=plays, gates=None, bitstream={"toolchain": "stand-in"}, state="other")


def test_a_simulation_is_signed_for_emulated_boards_only(make: Make) -> None:
    with pytest.raises(Unshippable, match="is a simulation of the circuits"):
        make("zynq1")


@pytest.mark.parametrize("board", ["emu1", "zynq1"])
@pytest.mark.parametrize(
    ("gates", "message"),
    [
        (None, "was never gated"),
        ({"passed": True, "gates": []}, "failed its gates: none passed"),
        ({**GATES, "passed": False}, "failed its gates: none passed"),
        ({"passed": True, "gates": [{"name": "hold_slack", "passed": False}]}, "failed its gates: hold_slack"),
    ],
)
def test_what_was_not_gated_is_not_signed(make: Make, board: str, gates: dict[str, Any] | None, message: str) -> None:
    with pytest.raises(GateError, match=message) as caught:
        make(board, gates=gates, bitstream=FABRIC if board == "zynq1" else {"toolchain": "stand-in"})
    assert caught.value.status == 1


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({"bitstream": {"formats_version": 2}}, FormatError, "the bitstream has formats version 2"),
        ({"runtime": {"formats_version": 0}}, FormatError, "the runtime has formats version 0"),
        ({"weights": {"formats_version": 9}}, FormatError, "the weights has formats version 9"),
        ({"bitstream": {"clock_mhz": None}}, FormatError, "does not say its clock_mhz"),
        ({"bitstream": {"content_id": None}}, FormatError, "does not say its content_id"),
        ({"bitstream": {"clock_mhz": 100}}, ConfigError, "runs at 100 MHz, its configuration says 125"),
        ({"bitstream": {"dmas": ENGINES[:2]}}, ConfigError, "DMAs serve matvec0, matvec1, not"),
        (
            {"bitstream": {"dmas": [{**ENGINES[0], "length_width": 14}, *ENGINES[1:]]}},
            ConfigError,
            "the DMA of matvec0 has 14 bits of length, too few for transfers of 8388600 bytes",
        ),
        (
            {"bitstream": {"dmas": [{**ENGINES[0], "scatter_gather": True}, *ENGINES[1:]]}},
            ConfigError,
            "some DMAs of the bitstream have scatter-gather and some have not",
        ),
        ({"weights": {"max_transfer_bytes": 1 << 24}}, ConfigError, "the image has transfers of up to 16777216 bytes"),
    ],
)
def test_parts_that_do_not_fit(make: Make, changed: dict[str, Any], kind: type[TritforgeError], message: str) -> None:
    with pytest.raises(kind, match=message):
        make(**changed)
    with pytest.raises(kind, match="^stage 'release-emulated-tiny': .*" + message):
        make(planned=True, **changed)


def test_parts_that_fit_are_planned_without_a_word(make: Make) -> None:
    make(planned=True)


def test_a_named_key_must_be_there(root: Path) -> None:
    settings = Settings(root, ["signing.key_env=RELEASE_KEY"], environment={})
    with pytest.raises(ConfigError, match="the variable RELEASE_KEY is not set"):
        signing.signer(settings, root / ".tritforge", {})
    with pytest.raises(ConfigError, match="^--set signing.key_env: the signing key /nowhere does not exist"):
        signing.signer(settings, root / ".tritforge", {"RELEASE_KEY": "/nowhere"})


def test_the_own_key_is_made_once_and_is_private(root: Path) -> None:
    first = signing.own_key(root / "state")
    text = first.read_text()
    assert signing.own_key(root / "state").read_text() == text
    assert first.stat().st_mode & 0o077 == 0


def test_clean_keeps_the_newest_releases_and_what_they_are_made_of(make: Make, root: Path) -> None:
    releases = [make(bitstream={"turn": turn}) for turn in range(4)]
    context = Context(root=root, console=Console(quiet=True))
    before = {artefact.name: 0 for artefact in context.store.artefacts()}
    assert set(before) == {"bitstream-x", "runtime-x", "weights-x", "release-emulated-tiny"}
    planned = clean.plan(context, keep=2)
    result = clean.run(context, keep=2)
    assert len(planned["steps"]) == len(result["removed"]) == 4
    kept = {artefact.digest for artefact in context.store.artefacts() if artefact.name.startswith("release")}
    assert kept == {release.digest for release in releases[2:]}
    for artefact in context.store.artefacts():
        assert context.store.damage(artefact) is None
    assert sum(1 for artefact in context.store.artefacts() if artefact.name == "bitstream-x") == 2
    folders = {path.name for path in (root / ".tritforge" / "store").iterdir()}
    assert folders == {artefact.digest for artefact in context.store.artefacts()}
    with pytest.raises(ConfigError, match="at least one release must stay"):
        clean.run(context, keep=0)


def test_clean_keeps_the_release_that_is_current(make: Make, root: Path) -> None:
    """A source was taken back: the release in use is an old one, and it stays whole with all that it is made of."""
    first = make()
    for turn in range(3):
        make(bitstream={"turn": turn})
    make()
    context = Context(root=root, console=Console(quiet=True))
    result = clean.run(context, keep=1)
    assert first.digest in result["kept_releases"] and len(result["kept_releases"]) == 2
    store = Context(root=root, console=Console(quiet=True)).store
    assert store.find(first.key) is not None
    made_of = {value for name, value in first.record["inputs"].items() if name.startswith("artefact ")}
    assert made_of <= {artefact.digest for artefact in store.artefacts() if store.damage(artefact) is None}


def test_a_plan_makes_no_key(root: Path) -> None:
    state = root / "new"
    who = signing.signer(Settings(root, environment={}), state, {}, make=False)
    assert signing.public_key(who.key) == signing.NO_KEY
    assert not state.exists()
