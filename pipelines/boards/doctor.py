"""Everything that can be wrong before it goes wrong: read-only checks of this machine and of a board."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from pipelines.base.command import PACKAGE_OF, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import BoardBusy, BoardOffline, TritforgeError
from pipelines.boards import preflight
from pipelines.boards.deploy import needs_root
from pipelines.boards.emulator import free_port
from pipelines.boards.preflight import Check
from pipelines.boards.session import Session
from pipelines.config.board import Board
from pipelines.vivado import build as vivado_build
from pipelines.vivado import toolchain
from pipelines.vivado.design import BitstreamDesign
from pipelines.vivado.failure import VersionMismatch

HOST_DISK_BYTES = 4 << 30  # images, artefacts of a full-size model, an emulated board's disk
PROBE_S = 120.0
VERSION_S = 20.0
VIVADO_S = 150.0  # a first start from a cold disk
BUILD_HOST_S = 30.0

# Program: (how it says its version, who needs it)
HOST_TOOLS = {
    "verilator": (["--version"], "build-bitstream for an emulated board"),
    "ssh-keygen": (None, "signing releases"),
}
EMULATED_TOOLS = {
    "qemu-system-arm": (["--version"], "an emulated board"),
    "qemu-img": (["--version"], "an emulated board's disk"),
    "mmdebstrap": (["--version"], "an emulated board's image"),
    "mke2fs": (None, "an emulated board's image"),
}
HOST_PACKAGES = ("invoke", "fabric", "paramiko", "numpy", "pydantic", "ziglang", "tokenizers", "safetensors")


def host_checks(board: Board, design: BitstreamDesign, state: Path) -> list[Check]:
    """This machine: Python, packages, tools, disk; for a real board the Vivado that a build would take."""
    checks = [
        Check(
            "host python", "passed" if sys.version_info[:2] >= (3, 11) else "failed", platform.python_version(),
            "3.11 or newer", "use ./inv, which prepares it",
        ),
        Check("host kernel", "passed", f"{platform.system()} {platform.release()} on {platform.machine()}", "any"),
        preflight.load_check({"load_1min": os.getloadavg()[0], "cpus": os.cpu_count() or 1}, "host load"),
    ]  # fmt: skip
    for name in HOST_PACKAGES:
        try:
            found = metadata.version(name)
            checks.append(Check(f"host package {name}", "passed", found, "installed"))
        except metadata.PackageNotFoundError:
            checks.append(Check(f"host package {name}", "failed", "not installed", "installed", "./inv installs it"))
    for name, (arguments, purpose) in {**HOST_TOOLS, **(EMULATED_TOOLS if board.emulated else {})}.items():
        checks.append(_tool(name, arguments, purpose))
    if board.emulator is not None:
        checks.append(_port())
    if not board.emulated:
        checks.append(vivado_check(design))
    state.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(state).free
    checks.append(
        Check(
            "host disk", "passed" if free >= HOST_DISK_BYTES else "failed", f"{free / 2**30:.1f} GiB free",
            f"{HOST_DISK_BYTES / 2**30:.0f} GiB", "'./inv clean' removes artefacts that no release needs",
        )
    )  # fmt: skip
    return checks


def _port() -> Check:
    try:
        found = f"{free_port()} is free"
    except OSError as error:
        return Check("host port", "failed", str(error), "a free port on 127.0.0.1", "end what listens on them all")
    return Check("host port", "passed", found, "a free port on 127.0.0.1")


def _tool(name: str, arguments: list[str] | None, purpose: str) -> Check:
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if path is None:
        package = PACKAGE_OF.get(name)
        hint = f"apt-get install {package}" if package else "install it, or put its folder on the PATH"
        return Check(f"host {name}", "failed", "not on the PATH", f"needed for {purpose}", hint)
    found = path
    if arguments is not None:
        try:
            result = run_tool([path, *arguments], deadline=Deadline.after(VERSION_S), check=False)
            lines = (result.stdout or result.stderr).strip().splitlines()
            found = lines[0] if lines else path
        except TritforgeError as error:
            return Check(f"host {name}", "failed", error.message.splitlines()[0], f"needed for {purpose}", error.hint)
    return Check(f"host {name}", "passed", found, f"needed for {purpose}")


def vivado_check(design: BitstreamDesign) -> Check:
    """The Vivado that ``build-bitstream`` would take, on this machine or on the build host; in its own words."""
    name, wanted = "host vivado", toolchain.wanted(design, release=True)
    seconds = BUILD_HOST_S if toolchain.build_host() else VIVADO_S
    try:
        found = vivado_build.find_vivado(design, release=True, deadline=Deadline.after(seconds))
    except VersionMismatch as error:
        with contextlib.suppress(TritforgeError):
            found = vivado_build.find_vivado(design, release=False, deadline=Deadline.after(seconds))
            hint = f"enough for 'build-bitstream --development'; a release needs {wanted}"
            return Check(name, "warning", f"{found.version} ({found.place})", wanted, hint)
        return Check(name, "failed", error.message, wanted, error.hint, type(error))
    except TritforgeError as error:
        return Check(name, "failed", error.message, wanted, error.hint, type(error))
    if found.name == "stand-in":
        hint = "what it builds is for tests: it is neither signed nor deployed for a board that is not emulated"
        return Check(name, "warning", f"the stand-in for {found.version} ({found.place})", wanted, hint)
    return Check(name, "passed", f"{found.version} ({found.place})", wanted)


def board_checks(session: Session, board: Board) -> Iterator[Check]:
    """A board that answers: system, memory, disk, load, what is current, and its circuits.

    One by one: what is known when the connection is lost stays known.
    """
    facts = session.request("facts")
    yield Check("board kernel", "passed", f"{facts['kernel']} on {facts['machine']}", "any")
    yield from preflight.system_checks(board, facts)
    # While somebody's job runs, what the release needs is taken by just that.
    need = _contiguous_bytes(session) if facts["current"] and facts["lease"] is None else 0
    yield from preflight.memory_checks(board, facts, need)
    yield preflight.disk_check(facts, 0)
    yield preflight.load_check(facts)
    yield _current(facts)
    yield _lease(facts)
    if facts["current"] and facts["lease"] is None:
        yield from circuit_checks(session, board)
    else:
        why = "held by somebody" if facts["lease"] else "no release on the board"
        yield Check("circuits", "skipped", why, "content id and clock of the release")


def _contiguous_bytes(session: Session) -> int:
    """What the current release takes of the CMA area; 0 when its manifest cannot be read, which another check says."""
    try:
        return int(session.request("manifest")["manifest"]["predicate"]["memory"]["contiguous_bytes"])
    except BoardOffline:
        raise
    except (TritforgeError, KeyError, TypeError, ValueError):
        return 0


def _current(facts: Mapping[str, Any]) -> Check:
    if facts["current"] is None:
        return Check("current release", "warning", "none", "a release", "./inv deploy")
    if facts["current_by_hand"]:
        return Check(
            "current release", "failed", f"{facts['current'][:12]}, made current by hand", "what was deployed last",
            "./inv deploy puts it right",
        )  # fmt: skip
    return Check("current release", "passed", facts["current"][:12], "what was deployed last")


def _lease(facts: Mapping[str, Any]) -> Check:
    lease = facts["lease"]
    if lease is None:
        return Check("lease", "passed", "free", "free")
    return Check("lease", "warning", f"held by {lease['owner']} ({lease['what']})", "free", "wait until it has ended")


def circuit_checks(session: Session, board: Board) -> Iterator[Check]:
    """Hashes of the current release, content id and clock by the counter block. Takes the lease for a moment."""
    from pipelines.boards.session import owner

    try:
        session.request("acquire", {"owner": owner(), "what": "doctor", "lease_s": board.lease_s}, phase="lease")
    except BoardBusy as error:  # somebody was faster, a moment after it was free
        yield Check("circuits", "skipped", error.message, "content id and clock of the release")
        return
    try:
        try:
            current = session.request("manifest")["release"]
            found = session.request(
                "check", {"release": current, "staged": False, "again": True}, deadline=Deadline.after(PROBE_S)
            )
            yield Check(
                "parts of the release", "passed", f"{found['files']} files, {found['bytes']} bytes",
                "as the manifest says",
            )  # fmt: skip
        except BoardOffline:
            raise
        except TritforgeError as error:
            yield Check("parts of the release", "failed", error.message, "as the manifest says", error.hint)
            yield Check(
                "circuits", "skipped", "parts of the release are damaged", "content id and clock of the release"
            )
            return
        try:
            probe = session.job("probe", {}, seconds=PROBE_S, sudo=needs_root(board))
            yield Check("content id", "passed", f"0x{probe['content_id']:08x}", "that of the release")
            yield Check("clock", "passed", f"{probe['clock_mhz']:.2f} MHz", "that of the release")
        except BoardOffline:
            raise
        except TritforgeError as error:
            yield Check("circuits", "failed", error.message, "content id and clock of the release", error.hint)
    finally:
        with contextlib.suppress(BoardOffline):  # then the lease is free as well
            session.request("release_lease")
