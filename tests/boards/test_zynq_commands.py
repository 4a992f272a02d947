"""The commands for a real board, by its name and through its code path: Vivado's stand-in, a fake pynq, a fabric.

Behind ``zynq1`` stands an emulated board that is set up as docs/sd-card.md says. All that is made is unshippable. Its
fabric is the functional model of the circuits: the driver's deadline is a real board's 2 s a group of transfers, which
the RTL in an emulator on a busy machine does not keep. ``emu-zynq1`` has the RTL.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipelines.boards.emulator import Emulator
from pipelines.config.settings import Settings
from pipelines.engine.signing import signer
from tests.boards.conftest import Built
from tests.boards.plays_zynq import TARGET, PlaysZynq, prepare
from tests.checkout import ROOT, Copy

STANDIN = ROOT / "tests" / "vivado" / "standin" / "bin"
STEPS = 6


@pytest.fixture(scope="module")
def copy(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """A checkout whose ``zynq1`` is an emulated board, with the stand-in as its Vivado."""
    import os

    folder = tmp_path_factory.mktemp("zynq")
    copied = Copy.make(folder / "checkout", {"PATH": f"{STANDIN}:{os.environ['PATH']}"})
    state = copied.root / ".tritforge"
    image = Emulator("zynq1", folder / "board", state / "images").image()
    prepared = prepare(image, built.bitstream / TARGET / "libtritforge_model.so", folder / "image")
    signers = signer(Settings(copied.root, environment={}), state).allowed_signers.read_text()
    board = PlaysZynq("zynq1", folder / "board", state / "images", signers, idle_minutes=20, prepared=prepared)
    try:
        endpoint = board.start()
        path = copied.root / "config" / "boards" / "zynq1.yaml"
        configured = yaml.safe_load(path.read_text()) | {
            "stand_in": True,
            "ssh": {
                "host": endpoint.host, "port": endpoint.port, "user": endpoint.user,
                "key_file": str(endpoint.key_file), "host_key": endpoint.host_key,
            },
        }  # fmt: skip
        path.write_text(yaml.safe_dump(configured))
        yield copied
    finally:
        board.stop()


@pytest.mark.emulator
@pytest.mark.campaign
def test_bitstream_deploy_generate_verify(copy: Copy) -> None:
    status, made, said = copy.type_it("build-bitstream", "--board=zynq1")
    assert status == 0, said
    assert made["toolchain"] == "stand-in"
    bitstream = Path(made["bitstream"])
    assert (bitstream / "tritforge.bit").exists() and (bitstream / "tritforge.hwh").exists()

    status, put, said = copy.type_it("deploy", "--board=zynq1")
    assert status == 0, said
    assert put["unshippable"] is True
    assert put["smoke"]["backend"] == "mmio" and put["smoke"]["circuit_words"] > 10_000

    status, text, said = copy.type_it("generate", "--board=zynq1", "--prompt=The dog", "--tokens=3")
    assert status == 0, said
    assert text["tokens"] == 3 and text["tokens_per_s"]["evidence"] == "model", "nothing of it is silicon"

    status, proof, said = copy.type_it("verify", "--board=zynq1", f"--steps={STEPS}")
    assert status == 0, said
    assert proof["release"] == put["release"]
    assert proof["logits"]["steps"] == STEPS and proof["logits"]["mismatches"] == 0
    assert proof["circuits"]["matvec_words"] > 10_000 and proof["circuits"]["mismatches"] == 0
    assert proof["machines"][0]["name"] == "zynq1 (mmio of a stand-in)" and proof["machines"][0]["isa"] == "armv7l"

    status, checks, said = copy.type_it("doctor", "--board=zynq1")
    by_name = {check["name"]: check for check in checks["checks"]}
    for name in ("pynq", "xrt", "cma", "content id", "clock", "parts of the release"):
        assert by_name[name]["status"] == "passed", said


@pytest.mark.emulator
@pytest.mark.campaign
def test_a_real_board_gets_nothing_of_it(copy: Copy) -> None:
    for task in ("release", "deploy", "verify"):
        status, answer, said = copy.type_it(task, "--board=zynq1", "--set=boards.zynq1.stand_in=false")
        assert status == 4, said
        assert answer["error"]["class"] == "Unshippable"
