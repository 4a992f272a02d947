"""An emulated board that plays a PYNQ-Z1: the card's files as docs/sd-card.md lays them, a strict fake pynq.

What a real board has from its card is written into a copy of the emulated board's image. Loading a bitstream through
the fake pynq starts a process that is the logic behind its registers (tests/native/pl_server.c).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.deadline import Deadline
from pipelines.boards.emulator import Emulator
from pipelines.boards.rootfs import SUDOERS
from pipelines.config.settings import ROOT
from pipelines.runtime.build import compile_c

NATIVE = ROOT / "tests" / "native"
CARD = ROOT / "pipelines" / "boards" / "card"
TARGET = "armv7-linux"
CMA_BYTES = 32 << 20  # what the fake pynq has to give
PACKAGES = "/usr/lib/python3/dist-packages"
PLACE = "/var/lib/fake-pynq"
SUDO_RULE = "tritforge ALL=(root) NOPASSWD: /usr/local/sbin/tritforge-job\n"


@dataclass(frozen=True)
class PlaysZynq(Emulator):
    """``prepared`` is the image that :func:`prepare` made."""

    prepared: Path = Path()

    def image(self, **_: object) -> Path:
        return self.prepared


def prepare(image: Path, library: Path, out: Path) -> Path:
    """A copy of ``image`` in ``out`` with the card's files, and ``library`` (ARMv7) as the logic."""
    out.mkdir()
    for name in ("vmlinuz", "board.dtb", "initrd.cpio", "image.json"):
        shutil.copyfile(image / name, out / name)
    subprocess.run(["cp", "--sparse=always", str(image / "disk.img"), str(out / "disk.img")], check=True)
    built = out / "built"
    built.mkdir()
    compile_for_board(built / "pl_server", NATIVE / "pl_server.c", f"-I{ROOT / 'hw' / 'sim'}",
                      f"-I{ROOT / 'native' / 'include'}")  # fmt: skip
    compile_for_board(built / "libxrt_core.so", NATIVE / "fake_xrt.c", "-shared")
    facts = {
        "base": 0x1800_0000, "cma_bytes": CMA_BYTES, "pynq": "3.0.1",
        "server": [f"{PLACE}/pl_server", f"{PLACE}/{library.name}"],
    }  # fmt: skip
    texts = {
        "/etc/sudoers": SUDOERS + SUDO_RULE,
        "/etc/environment": "XILINX_XRT=/usr\n",
        f"{PACKAGES}/pynq-3.0.1.dist-info/METADATA": "Name: pynq\nVersion: 3.0.1\n",
        f"{PLACE}/facts.json": json.dumps(facts),
        "/etc/tritforge/takes-stand-ins": "",
    }
    for number, text in enumerate(texts.values()):
        (built / f"text-{number}").write_text(text)
    files = {target: (built / f"text-{number}", 0o644) for number, target in enumerate(texts)} | {
        "/usr/local/sbin/tritforge-job": (CARD / "tritforge-job", 0o755),
        "/usr/lib/libxrt_core.so": (built / "libxrt_core.so", 0o644),
        f"{PACKAGES}/pynq/__init__.py": (NATIVE / "fake_pynq" / "pynq" / "__init__.py", 0o644),
        f"{PLACE}/pl_server": (built / "pl_server", 0o755),
        f"{PLACE}/{library.name}": (library, 0o644),
    }
    files["/etc/sudoers"] = (files["/etc/sudoers"][0], 0o440)
    put(out / "disk.img", files)
    return out


def compile_for_board(output: Path, source: Path, *flags: str) -> None:
    compile_c(TARGET, [source], output, deadline=Deadline.after(300), log=output.with_suffix(".log"), flags=list(flags))


def put(disk: Path, files: dict[str, tuple[Path, int]]) -> None:
    """Writes files into an ext4 image as root's, without mounting it."""
    lines = []
    folders = sorted({str(parent) for target in files for parent in Path(target).parents if str(parent) != "/"})
    lines += [f"mkdir {folder}" for folder in folders]  # one that is there already is no harm
    for target, (source, mode) in files.items():
        lines += [f"rm {target}", f"write {source} {target}", f"sif {target} mode 0{0o100000 | mode:o}"]
        lines += [f"sif {target} uid 0", f"sif {target} gid 0"]
    done = subprocess.run(
        ["debugfs", "-w", "-f", "-", str(disk)], input="\n".join(lines) + "\n", capture_output=True, text=True,
        check=True, env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"},
    )  # fmt: skip
    problems = [line for line in done.stderr.splitlines() if "exists" not in line and "not found" not in line]
    assert problems[1:] == [], problems  # the first is its version
