"""What must hold on a board before anything is sent: facts in, checks out. No connection in here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipelines.base.errors import BoardDiskFull, BoardUnfit, TritforgeError
from pipelines.base.files import sha256_file
from pipelines.config.board import Board

PYTHON_MINIMUM = (3, 8)
GLIBC_MINIMUM = (2, 35)  # what the runtime for a real board is linked against
DISK_MARGIN_BYTES = 16 << 20  # logs, byte code, the file system's own needs
HIGH_LOAD_PER_CPU = 1.5
CARD_JOB = Path(__file__).parent / "card" / "tritforge-job"

Status = Literal["passed", "failed", "warning", "skipped"]


@dataclass(frozen=True)
class Check:
    """One line of doctor, or one reason not to deploy."""

    name: str
    status: Status
    found: str
    expected: str
    hint: str = ""
    kind: type[TritforgeError] = BoardUnfit

    def json(self) -> dict[str, str]:
        return {
            "name": self.name,
            "status": self.status,
            "found": self.found,
            "expected": self.expected,
            "hint": self.hint if self.status != "passed" else "",
        }


def _check(name: str, good: bool, found: object, expected: object, hint: str = "", **more: Any) -> Check:
    return Check(name, "passed" if good else "failed", str(found), str(expected), hint, **more)


def _version(text: object) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", str(text))[:3])


def system_checks(board: Board, facts: Mapping[str, Any]) -> list[Check]:
    """The board's system, whatever the release."""
    checks = [
        _check(
            "python", _version(facts["python"]) >= PYTHON_MINIMUM, facts["python"],
            ".".join(map(str, PYTHON_MINIMUM)) + " or newer", "use the image that docs/sd-card.md names",
        ),
        _check(
            "glibc", _version(facts["glibc"]) >= GLIBC_MINIMUM, facts["glibc"],
            ".".join(map(str, GLIBC_MINIMUM)) + " or newer", "use the image that docs/sd-card.md names",
        ),
        _check("image", *_image(board, facts)),
        _check(
            "tokenizers", bool(facts["tokenizers"]), "installed" if facts["tokenizers"] else "not installed",
            "installed", "pip install --require-hashes -r pipelines/boards/board-requirements.txt, on the board",
        ),
    ]  # fmt: skip
    if board.pl == "pynq":
        checks.append(_check("pynq", facts["pynq"].startswith("3."), facts["pynq"] or "not installed", "3.x",
                             "4.0 dropped the PYNQ-Z1; use image 3.0.1 or 3.1"))  # fmt: skip
        checks.append(_check("xrt", bool(facts["xrt"]), facts["xrt"] or "XILINX_XRT is not set",
                             board.image.xrt if board.image else "set",
                             "without it pynq finds no device; set XILINX_XRT in /etc/environment"))  # fmt: skip
    if board.pl != "rtl-library" and not board.stand_in:
        missing = [name for name, there in facts["drivers"].items() if not there]
        checks.append(_check("drivers", not missing, f"{', '.join(missing)} missing" if missing else "all",
                             ", ".join(facts["drivers"]), "use the image that docs/sd-card.md names"))  # fmt: skip
    if board.pl != "rtl-library":
        checks.append(_card_job(str(facts["card_job"])))
    return checks


def _card_job(found: str) -> Check:
    """The program that runs jobs as root is no part of a release: its owner copies it onto the card."""
    expected = sha256_file(CARD_JOB)
    status: Status = "passed" if found == expected else "warning" if found else "failed"
    return Check(
        "card job", status, found[:12] or "not installed", expected[:12],
        "copy pipelines/boards/card/tritforge-job to /usr/local/sbin on the board (docs/sd-card.md)",
    )  # fmt: skip


def _image(board: Board, facts: Mapping[str, Any]) -> tuple[bool, str, str, str]:
    found = str(facts["image"])
    if board.emulated:
        return (bool(found), found or "unknown", "an image of this program",
                f"./inv boards --start {board.name} --fresh")  # fmt: skip
    wanted = board.image.versions if board.image else []
    version = str(facts["pynq"]) or found
    good = not wanted or any(version.startswith(entry) for entry in wanted)
    return good, version or found or "unknown", " or ".join(wanted) or "any", "docs/sd-card.md"


def memory_checks(board: Board, facts: Mapping[str, Any], contiguous_bytes: int) -> list[Check]:
    """The contiguous memory that the circuits read. ``contiguous_bytes`` is the manifest's need, 0 if not known."""
    need_kib = -(-contiguous_bytes // 1024)
    wanted_mib = max(-(-need_kib // 1024), board.cma_mib)
    hint = f"set cma={wanted_mib}M on the kernel's command line (docs/sd-card.md) and restart the board"
    return [
        _check(
            "cma", facts["cma_total_kib"] >= wanted_mib * 1024,
            f"{facts['cma_total_kib'] // 1024} MiB (cma={facts['cma_argument'] or 'not given'})",
            f"{wanted_mib} MiB", hint,
        ),
        _check(
            "cma free", facts["cma_free_kib"] >= need_kib, f"{facts['cma_free_kib'] / 1024:.1f} MiB",
            f"{need_kib / 1024:.1f} MiB", "another program holds contiguous memory: restart the board",
        ),
    ]  # fmt: skip


def disk_check(facts: Mapping[str, Any], needed_bytes: int) -> Check:
    """Room for what has to be sent."""
    return _check(
        "disk", facts["disk_free_bytes"] >= needed_bytes + DISK_MARGIN_BYTES,
        f"{facts['disk_free_bytes'] / 2**20:.0f} MiB free",
        f"{(needed_bytes + DISK_MARGIN_BYTES) / 2**20:.0f} MiB",
        "keep fewer releases (keep_releases in the board's YAML), or free space on its card", kind=BoardDiskFull,
    )  # fmt: skip


def load_check(facts: Mapping[str, Any], name: str = "load") -> Check:
    """Work besides ours: it changes no result, but every figure."""
    limit = HIGH_LOAD_PER_CPU * max(1, int(facts["cpus"]))
    busy = float(facts["load_1min"]) > limit
    return Check(
        name, "warning" if busy else "passed", f"{facts['load_1min']:.2f}", f"at most {limit:.1f}",
        "something else runs there; figures of time will be wrong",
    )  # fmt: skip


def refuse(checks: Sequence[Check], board: str) -> None:
    """Raises the first failed check as its error, naming all that failed."""
    failed = [check for check in checks if check.status == "failed"]
    if failed:
        first = failed[0]
        others = f"; also failed: {', '.join(check.name for check in failed[1:])}" if failed[1:] else ""
        raise first.kind(
            f"{board} is not fit: {first.name} is {first.found}, expected {first.expected}{others}", hint=first.hint
        )
