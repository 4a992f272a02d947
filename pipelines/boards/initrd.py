"""The emulated board's initrd: a newc cpio archive with busybox, the few drivers the disk needs, and an init."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.base.errors import ToolFailed

DRIVERS = ("virtio_mmio", "virtio_blk", "virtio_net", "virtio_rng", "crc32c_generic", "ext4")
"""Modules of Debian's armmp kernel without which QEMU's virtio disk, network and entropy are not seen."""

_DEPENDS = re.compile(rb"(?:^|\0)depends=([^\0]*)\0")


def archive(entries: Mapping[str, tuple[int, bytes]]) -> bytes:
    """A newc cpio archive of ``{name: (mode with file type, contents)}``; the same bytes for the same entries.

    The kernel unpacks archives laid one behind the other, which is how a board adds its own files to a shared initrd.
    """
    out = bytearray()
    for number, (name, (mode, data)) in enumerate([*sorted(entries.items()), ("TRAILER!!!", (0, b""))], start=1):
        raw = name.encode() + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        fields = (number, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(raw), 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + raw
        out += bytes(-len(out) % 4)
        out += data
        out += bytes(-len(out) % 4)
    out += bytes(-len(out) % 512)
    return bytes(out)


def folder() -> tuple[int, bytes]:
    return stat.S_IFDIR | 0o755, b""


def file(data: bytes, mode: int = 0o644) -> tuple[int, bytes]:
    return stat.S_IFREG | mode, data


def link(target: str) -> tuple[int, bytes]:
    return stat.S_IFLNK | 0o777, target.encode()


def module_order(modules: Path, wanted: Sequence[str]) -> list[Path]:
    """``wanted`` kernel modules and what they depend on, each after its dependencies.

    ``modules`` is ``lib/modules/<version>``. A name that is neither a file nor built in raises ToolFailed.
    """
    files = {path.stem.replace("-", "_"): path for path in sorted(modules.rglob("*.ko"))}
    built_in = {
        Path(line).stem.replace("-", "_") for line in (modules / "modules.builtin").read_text().splitlines() if line
    }
    order: list[Path] = []

    def add(name: str) -> None:
        name = name.replace("-", "_")
        if name in built_in:
            return
        path = files.get(name)
        if path is None:
            raise ToolFailed(
                f"the kernel in {modules.name} has no module '{name}'",
                hint="the kernel package changed; see DRIVERS in pipelines/boards/initrd.py",
            )
        if path in order:
            return
        found = _DEPENDS.search(path.read_bytes())
        for dependency in found.group(1).decode().split(",") if found else []:
            if dependency:
                add(dependency)
        order.append(path)

    for name in wanted:
        add(name)
    return order


def base_initrd(modules: Path, busybox: bytes, init: bytes) -> bytes:
    """The part that all boards of an image share."""
    order = module_order(modules, DRIVERS)
    entries = {name: folder() for name in ("bin", "dev", "proc", "root", "modules", "board")}
    entries["bin/busybox"] = file(busybox, 0o755)
    entries["init"] = file(init, 0o755)
    entries["modules/order"] = file("".join(f"{path.name}\n" for path in order).encode())
    for path in order:
        entries[f"modules/{path.name}"] = file(path.read_bytes())
    return archive(entries)


def board_initrd(files: Mapping[str, bytes]) -> bytes:
    """A board's own part: name, host key, authorised keys, idle time. The init copies it to /etc/tritforge."""
    return archive(
        {
            f"board/{name}": file(data, 0o600 if name == "ssh_host_ed25519_key" else 0o644)
            for name, data in files.items()
        }
    )
