"""What people type, with the stand-in as `vivado` and without any: tasks as processes, in a copy of this checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.commands.repro import copy_checkout
from pipelines.vivado import toolchain
from tests.vivado.conftest import STANDIN
from tests.vivado.standin.reports import PHASES

ROOT = Path(__file__).resolve().parents[2]
NO_VIVADO = "/usr/bin:/bin:/usr/sbin:/sbin"

no_other_vivado = pytest.mark.skipif(
    any(Path(place).exists() for place in toolchain.USUAL_PLACES), reason="a real Vivado would be found in its folder"
)


@dataclass
class Typed:
    """A task that came to its end. ``answer`` is what it wrote as JSON."""

    status: int
    out: str
    err: str
    answer: dict[str, Any]


@dataclass
class Checkout:
    folder: Path

    def type_it(self, *arguments: str, vivado: Path | None = None, **environment: str) -> Typed:
        answer = self.folder.parent / "answer.json"
        answer.unlink(missing_ok=True)
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("TRITFORGE_", "STANDIN_"))}
        path = f"{vivado}:{NO_VIVADO}" if vivado else NO_VIVADO
        done = subprocess.run(
            [sys.executable, "tasks.py", *arguments, f"--json={answer}"], cwd=self.folder, timeout=300,
            env={**inherited, "PATH": path, **environment}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Typed(done.returncode, done.stdout, done.stderr, json.loads(answer.read_text()))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    folder = tmp_path / "checkout"
    copy_checkout(ROOT, folder)
    # `repro` lists the files that belong to a checkout by git.
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return Checkout(folder)


def test_build_bitstream(checkout: Checkout) -> None:
    built = checkout.type_it("build-bitstream", "--board=zynq1", vivado=STANDIN)
    assert built.status == 0, built.err
    assert built.answer["status"] == "passed" and built.answer["toolchain"] == "stand-in"
    folder = Path(built.answer["bitstream"])
    assert {"tritforge.bit", "tritforge.bin", "tritforge.hwh", "tritforge.xsa"} <= {p.name for p in folder.iterdir()}
    assert "the stand-in" in built.err and f"bitstream (stand-in): {folder}" in built.out
    again = checkout.type_it("build-bitstream", "--board=zynq1", vivado=STANDIN)
    assert again.answer["stages"][0]["cached"] and again.answer["digest"] == built.answer["digest"]
    # What this Vivado built is not what another one would have built.
    other = checkout.type_it("build-bitstream", "--board=zynq1", "--plan", vivado=None)
    assert not other.answer["stages"][0]["cached"]
    # And a failed gate is a failed check, with its cause, and nothing in the store.
    missed = checkout.type_it(
        "build-bitstream", "--board=zynq1", "--set=bitstreams.combined.limits.lut=1000", vivado=STANDIN
    )
    assert missed.status == 1 and missed.answer["status"] == "failed"
    assert missed.answer["error"]["class"] == "GateError" and "lut: " in missed.answer["error"]["message"]


def test_build_bitstream_tries_other_strategies(checkout: Checkout) -> None:
    fault = "negative_slack:ExtraTimingOpt"
    done = checkout.type_it("build-bitstream", "--board=zynq1", "--sweep=3", vivado=STANDIN, STANDIN_VIVADO_FAULT=fault)
    assert done.status == 0, done.err
    assert "timing is missed; trying 3 other strategies" in done.err and "'timing_opt' meets timing" in done.err
    about = json.loads((Path(done.answer["bitstream"]) / "bitstream.json").read_text())
    assert about["strategy"]["place"] == "ExtraTimingOpt"


def test_the_same_path_with_another_version_behind_it(checkout: Checkout) -> None:
    """The program did not change, so its version is remembered; what it builds is not taken for that version's."""
    arguments = ("build-bitstream", "--board=zynq1", "--development")
    assert checkout.type_it(*arguments, vivado=STANDIN).status == 0
    (checkout.folder / "hw" / "vivado" / "facts.tcl").open("a").write("# changed\n")
    other = checkout.type_it(*arguments, vivado=STANDIN, STANDIN_VIVADO_VERSION="2022.2")
    assert other.status == 3
    assert "is stand-in 2022.2; this build was planned with stand-in 2024.1" in other.answer["error"]["message"]
    again = checkout.type_it(*arguments, vivado=STANDIN, STANDIN_VIVADO_VERSION="2022.2")
    assert again.status == 0 and not again.answer["stages"][0]["cached"]


@no_other_vivado
def test_without_any_vivado(checkout: Checkout) -> None:
    """The build and doctor look in the same way, so they say the same."""
    built = checkout.type_it("build-bitstream", "--board=zynq1")
    assert built.status == 3
    error = built.answer["error"]
    assert error["class"] == "ToolMissing"
    words = "Vivado is not here: looked for version 2024.1: 'vivado' on the PATH and in /opt/Xilinx/Vivado"
    assert words in error["message"] and "install AMD Vivado" in error["hint"]
    assert words in built.err and "install AMD Vivado" in built.err
    asked = checkout.type_it("doctor", "--board=zynq1")
    assert asked.status == 4, "the board is not there either, and that comes later"
    (check,) = [c for c in asked.answer["checks"] if c["name"] == "host vivado"]
    assert check["status"] == "failed" and error["message"].endswith(check["found"]) and words in check["found"]
    assert check["hint"] == error["hint"] and check["expected"] == "version 2024.1"
    assert words in asked.out and "install AMD Vivado" in asked.out


@no_other_vivado
@pytest.mark.parametrize(
    ("environment", "status", "found", "hint"),
    [
        ({}, "warning", "the stand-in for 2024.1 ", "neither signed nor deployed"),
        ({"STANDIN_VIVADO_VERSION": "2022.2"}, "warning", "2022.2 ", "a release needs version 2024.1"),
        ({"STANDIN_VIVADO_VERSION": "2019.2"}, "failed", "no Vivado here may build 'combined'", "allowed version"),
        ({"TRITFORGE_VIVADO": "/nowhere"}, "failed", "TRITFORGE_VIVADO=/nowhere, which does not exist", "install"),
        ({"TRITFORGE_VIVADO": "ssh://"}, "failed", "'ssh://' names no build host", "ssh://user@host"),
    ],
    ids=lambda value: next(iter(value.values()), "as it is") if isinstance(value, dict) else None,
)
def test_doctor_with_another_vivado(
    checkout: Checkout, environment: dict[str, str], status: str, found: str, hint: str
) -> None:
    asked = checkout.type_it("doctor", "--board=zynq1", vivado=STANDIN, **environment)
    (check,) = [c for c in asked.answer["checks"] if c["name"] == "host vivado"]
    assert check["status"] == status and found in check["found"] and hint in check["hint"]


def vivado_that_differs(folder: Path, second: str) -> Path:
    """A folder with a `vivado` that has another clock and host in each build, and ``second`` set in the second."""
    folder.mkdir()
    program = folder / "vivado"
    program.write_text(
        "#!/bin/sh\n"
        "case $PWD in\n"
        "*/second/*) export STANDIN_VIVADO_CLOCK=1893456000 STANDIN_VIVADO_HOST=elsewhere" + f" {second};;\n"
        "*) export STANDIN_VIVADO_CLOCK=1764000000 STANDIN_VIVADO_HOST=here ;;\n"
        "esac\n"
        f'exec "{STANDIN}/vivado" "$@"\n'
    )
    program.chmod(0o755)
    return folder


def test_repro_says_identical(checkout: Checkout, tmp_path: Path) -> None:
    """Other clock, other host, other folder: the files differ, and what has to be equal of them is."""
    vivado = vivado_that_differs(tmp_path / "bin", "")
    done = checkout.type_it("repro", "--board=zynq1", "--part=bitstream", vivado=vivado)
    assert done.status == 0, done.err
    names = [entry["name"].rpartition("/")[2] for entry in done.answer["artefacts"]]
    assert names == ["tritforge.bit", "tritforge.bin", "tritforge.hwh", "tritforge.xsa", "bitstream.json"]
    assert all(entry["identical"] for entry in done.answer["artefacts"])
    assert "5 of 5 files are identical" in done.out
    assert not (checkout.folder / ".tritforge" / "repro").exists()


@pytest.mark.parametrize("step", ["place_design", "route_design"])
def test_repro_names_the_phase(checkout: Checkout, tmp_path: Path, step: str) -> None:
    phase = PHASES[step][2].partition(" ")[2]
    vivado = vivado_that_differs(tmp_path / "bin", f"STANDIN_VIVADO_FAULT='phase_differs:{phase}'")
    done = checkout.type_it("repro", "--board=zynq1", "--part=bitstream", vivado=vivado)
    assert done.status == 1 and done.answer["error"]["class"] == "MismatchError"
    words = f"tritforge.bit: implementation phase {step}: {phase} ("
    assert words in done.answer["error"]["message"] and words in done.err
    different = {entry["name"].rpartition("/")[2] for entry in done.answer["artefacts"] if not entry["identical"]}
    assert different == {"tritforge.bit", "tritforge.bin", "tritforge.xsa", "bitstream.json"}
    # Both builds are there to be looked at, under names that differ in length.
    folders = sorted(checkout.folder.joinpath(".tritforge", "repro").rglob("work/../tritforge.bit"))
    assert len({len(str(path)) for path in folders}) == len(folders)
    shutil.rmtree(checkout.folder)
