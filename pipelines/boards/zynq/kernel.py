"""The emulated Zynq's kernel: Debian's own source package, configured by ``kernel.config``, with ``fabric.c`` added."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolFailed, ToolMissing
from pipelines.base.files import sha256_file, write_json
from pipelines.base.lock import held

HERE = Path(__file__).parent
PACKAGE = "linux-source-6.1"  # bookworm's
SOURCE = Path("/usr/src") / f"{PACKAGE}.tar.xz"
PREFIX = "arm-linux-gnueabihf-"
DEVICE_TREE = "tritforge-zynq"
PACKAGES = f"{PACKAGE} make bc bison flex gcc gcc-arm-linux-gnueabihf"
KERNEL_DEADLINE_S = 7200.0  # minutes of processor time, on a machine that may be busy
PINNED = {"KBUILD_BUILD_TIMESTAMP": "2024-01-01", "KBUILD_BUILD_USER": "tritforge", "KBUILD_BUILD_HOST": "tritforge"}


def recipe_key() -> str:
    """Hash of what decides the kernel: this recipe, its configuration, its driver, and the package's version.

    Raises ToolMissing when the source package is not installed.
    """
    if not SOURCE.exists():
        raise ToolMissing(
            f"the source of the emulated Zynq's kernel is not there ({SOURCE})",
            hint=f"apt-get install --no-install-recommends {PACKAGES}",
        )
    version = run_tool(["dpkg-query", "-W", "-f", "${Version}", PACKAGE], deadline=Deadline.after(30)).stdout.strip()
    digest = hashlib.sha256(f"{version}\n".encode())
    for name in ("kernel.py", "kernel.config", "fabric.c", "board.dts"):
        digest.update(f"{name} {sha256_file(HERE / name)}\n".encode())
    return digest.hexdigest()[:16]


def cached(images: Path, *, deadline: Deadline | None = None, say: Callable[[str], None] = lambda _: None) -> Path:
    """The folder with ``vmlinuz`` and ``board.dtb``, built when it is not there. Two at once: one builds, one waits."""
    target = images / f"zynq-kernel-{recipe_key()}"
    if (target / "kernel.json").exists():
        return target
    deadline = deadline or Deadline.after(KERNEL_DEADLINE_S)
    images.mkdir(parents=True, exist_ok=True)
    with held(images / "kernel.lock", "build the emulated Zynq's kernel", deadline=deadline, on_wait=say):
        if not (target / "kernel.json").exists():
            say("building the emulated Zynq's kernel (once; some minutes of every core)")
            partial = images / f"{target.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            build(partial, deadline, images / "kernel.log")
            partial.rename(target)
    return target


def build(out: Path, deadline: Deadline, log: Path) -> None:
    """Makes ``vmlinuz``, ``board.dtb`` and ``kernel.json`` in ``out``. Raises ToolMissing or ToolFailed."""
    for tool in ("make", "bc", "bison", "flex", "gcc", f"{PREFIX}gcc"):
        find_tool(tool, hint=f"apt-get install --no-install-recommends {PACKAGES}")
    with tempfile.TemporaryDirectory(prefix="tritforge-kernel-", dir=out) as scratch:
        run_tool(["tar", "-x", "-f", SOURCE, "-C", scratch, "--strip-components=1"], deadline=deadline, log=log)
        tree = Path(scratch)
        shutil.copyfile(HERE / "fabric.c", tree / "drivers/fpga/tritforge_fabric.c")
        shutil.copyfile(HERE / "board.dts", tree / f"arch/arm/boot/dts/{DEVICE_TREE}.dts")
        with (tree / "drivers/fpga/Makefile").open("a") as makefile:
            makefile.write("obj-y += tritforge_fabric.o\n")
        make = ["make", f"-j{os.cpu_count() or 1}", "ARCH=arm", f"CROSS_COMPILE={PREFIX}"]
        run_tool([*make, "allnoconfig"], deadline=deadline, log=log, cwd=tree,
                 env={"KCONFIG_ALLCONFIG": str(HERE / "kernel.config")})  # fmt: skip
        refuse_lost_options((HERE / "kernel.config").read_text(), (tree / ".config").read_text())
        run_tool([*make, "zImage", f"{DEVICE_TREE}.dtb"], deadline=deadline, log=log, cwd=tree, env=PINNED)
        shutil.copyfile(tree / "arch/arm/boot/zImage", out / "vmlinuz")
        shutil.copyfile(tree / f"arch/arm/boot/dts/{DEVICE_TREE}.dtb", out / "board.dtb")
    write_json(
        out / "kernel.json",
        {
            "recipe": recipe_key(),
            "package": PACKAGE,
            "files": {name: sha256_file(out / name) for name in ("vmlinuz", "board.dtb")},
        },
    )


def refuse_lost_options(wanted: str, found: str) -> None:
    """Raises ToolFailed when an option of ours is not in the finished configuration: kconfig drops it silently."""
    have = set(found.splitlines())
    lost = [
        line
        for line in wanted.splitlines()
        if line.startswith("CONFIG_") and (line not in have if not line.endswith("=n") else line[:-2] + "=y" in have)
    ]
    if lost:
        raise ToolFailed(
            f"the kernel's configuration has not taken {', '.join(lost)}",
            hint="an option it depends on is missing in pipelines/boards/zynq/kernel.config",
        )
