"""Where Vivado is on this machine, and which version it is.

Looked for in this order: what ``TRITFORGE_VIVADO`` names (the program, a ``settings64.sh``, or ``ssh://user@host/…``
for a build host, see ``remote.py``), the PATH, the usual folders of an installation.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolFailed, ToolMissing
from pipelines.vivado.design import BitstreamDesign
from pipelines.vivado.failure import VersionMismatch

VARIABLE = "TRITFORGE_VIVADO"
USUAL_PLACES = ("/opt/Xilinx/Vivado", "/tools/Xilinx/Vivado", "/opt/xilinx/Vivado")
STAND_IN_MARK = "tritforge stand-in"
VERSION_QUESTION_S = 120.0
"""`vivado -version` takes seconds on a cold disk of an installation of 50 GB."""

INSTALL_HINT = (
    "install AMD Vivado (the free edition builds for the Zynq-7020) in an allowed version and put it on the PATH, or "
    f"set {VARIABLE} to its settings64.sh or to ssh://user@host/…/settings64.sh; the emulated board needs no Vivado: "
    "--board emu1"
)


@dataclass(frozen=True)
class Toolchain:
    """A Vivado that answered. ``argv`` runs it, arguments to be appended."""

    argv: tuple[str, ...]
    version: str  # 2024.1
    banner: str
    place: str  # the program or its settings64.sh, for people

    @property
    def name(self) -> str:
        return name_in(self.banner)


def command_for(place: Path) -> tuple[str, ...]:
    """The command that runs the Vivado at ``place``, which is the program or its ``settings64.sh``."""
    if place.name.endswith(".sh"):
        # The settings file is a shell script made to be sourced; its path and Vivado's arguments stay arguments.
        return ("bash", "-c", 'settings=$1; shift; . "$settings" >/dev/null && exec vivado "$@"', "vivado", str(place))
    return (str(place),)


def build_host(environment: Mapping[str, str] | None = None) -> str:
    """The ssh:// address that TRITFORGE_VIVADO gives, or nothing."""
    named = (os.environ if environment is None else environment).get(VARIABLE, "")
    return named if named.startswith("ssh://") else ""


def candidates(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Places to look at, the wanted one first; only what exists."""
    environment = os.environ if environment is None else environment
    named = environment.get(VARIABLE)
    if named:
        path = Path(named).expanduser()
        if path.is_dir():  # the folder of an installation
            inside = (path / "settings64.sh", path / "bin" / "vivado")
            return [place for place in inside if place.is_file()][:1]
        return [path] if path.exists() else []
    on_path = shutil.which("vivado", path=environment.get("PATH"))
    found = [Path(on_path)] if on_path else []
    for place in USUAL_PLACES:
        found += sorted(Path(place).glob("20*/settings64.sh"), reverse=True)
    return found


def ask_version(argv: Sequence[str], deadline: Deadline, log: Path | None = None) -> tuple[str, str]:
    """Version and whole banner of ``vivado -version``. The first line, of any version, is one of::

    Vivado v2022.1 (64-bit)
    vivado v2024.1 (64-bit)
    """
    result = run_tool([*argv, "-version"], deadline=deadline.at_most(VERSION_QUESTION_S), log=log)
    version = version_in(result.stdout)
    if not version:
        raise ToolFailed(f"'{argv[0]} -version' does not answer like Vivado: {result.stdout[:200]!r}", log=log)
    return version, result.stdout


def version_in(banner: str) -> str:
    """The version that the answer to ``-version`` gives, wherever its line breaks went; empty when it gives none.

    >>> version_in("vivado v2024.1 (64-bit)")
    '2024.1'
    """
    match = re.search(r"\bvivado v(\d{4}\.\d(?:\.\d)?)\b", banner, re.I)
    return match[1] if match else ""


def name_in(banner: str) -> str:
    """``stand-in`` for the test tool of this repository, whose builds are never released or loaded; else ``vivado``."""
    return "stand-in" if STAND_IN_MARK in banner else "vivado"


def identity_in(banner: str) -> str:
    """What the key of a build says of its tool, ``vivado 2024.1``; empty when this is no answer of a Vivado."""
    version = version_in(banner)
    return f"{name_in(banner)} {version}" if version else ""


def wanted(design: BitstreamDesign, *, release: bool) -> str:
    """The versions that may build this design, in words."""
    policy = design.vivado
    if release:
        return f"version {policy.release}"
    return f"a version from {policy.development_from} to {policy.development_to}"


def find(design: BitstreamDesign, *, release: bool, deadline: Deadline, log: Path | None = None) -> Toolchain:
    """The first Vivado whose version may build this design.

    Raises ToolMissing when there is none at all and VersionMismatch when none has an allowed version; both say what was
    looked for. Exit status 3.
    """
    places = candidates()
    if not places:
        looked = os.environ.get(VARIABLE)
        where = (
            f"{VARIABLE}={looked}, which {'holds no settings64.sh' if Path(looked).is_dir() else 'does not exist'}"
            if looked
            else f"'vivado' on the PATH and in {', '.join(USUAL_PLACES)}"
        )
        raise ToolMissing(
            f"Vivado is not here: looked for {wanted(design, release=release)}: {where}", hint=INSTALL_HINT
        )
    refused = []
    for place in places:
        argv = command_for(place)
        version, banner = ask_version(argv, deadline, log)
        if design.vivado.allows(version, release=release):
            return Toolchain(argv, version, banner, str(place))
        refused.append(f"{place} is {version}")
    raise VersionMismatch(
        f"no Vivado here may build '{design.name}': wanted {wanted(design, release=release)}, but {'; '.join(refused)}",
        hint=f"install an allowed version, or change the versions in config/bitstreams/{design.name}.yaml",
    )
