"""Who builds the emulated board's image: its files belong to several users, which only some root can write.

Root itself; else root of a user namespace; else, where there are none (a container, a chroot), root through sudo, as
``./inv`` installs packages.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolFailed, ToolMissing
from pipelines.boards import rootfs

ROOT = Path(__file__).parents[2]
PROBE_S = 30.0

# What reaches a mirror and an index from here; sudo starts with an environment of its own.
KEPT = ("PATH", "HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
KEPT_PREFIX = "PIP_"
KEPT_SUFFIX = "_PROXY"

CODE = """
import sys
from pathlib import Path
from pipelines.base.deadline import Deadline
from pipelines.boards import rootfs
out, seconds, log, disk_gib, mirror = sys.argv[1:]
rootfs.build(Path(out), Deadline.after(float(seconds)), Path(log), disk_gib=int(disk_gib), mirror=mirror)
"""


def build_image(out: Path, deadline: Deadline, log: Path, *, disk_gib: int, mirror: str) -> None:
    """:func:`rootfs.build` by whoever may. Raises ToolFailed when nobody may."""
    if os.geteuid() == 0 or _works("unshare", "--user", "--map-auto", "--map-root-user", "true"):
        rootfs.build(out, deadline, log, disk_gib=disk_gib, mirror=mirror)
        return
    if not _works("sudo", "-n", "true"):
        raise ToolFailed(
            "the emulated board's image must be built by root, and there is neither a user namespace nor sudo without a"
            " password",
            hint="allow user namespaces (sysctl kernel.unprivileged_userns_clone=1), or sudo without a password",
            log=log,
        )
    # No byte code: root's would lie in this user's folders.
    kept = ["PYTHONDONTWRITEBYTECODE=1", f"PYTHONPATH={ROOT}"]
    kept += [f"{name}={value}" for name, value in sorted(os.environ.items()) if _kept(name)]
    sudo = ["sudo", "-n", "env", *kept]
    try:
        run_tool(
            [*sudo, sys.executable, "-c", CODE, out, str(deadline.remaining()), log, str(disk_gib), mirror],
            deadline=deadline, log=log, cwd=ROOT,
        )  # fmt: skip
    finally:
        # Also what is left of a failed build, so that this user can remove it.
        owner = f"{os.getuid()}:{os.getgid()}"
        run_tool(["sudo", "-n", "chown", "-R", owner, out], deadline=Deadline.after(PROBE_S), log=log)


def _kept(name: str) -> bool:
    return name in KEPT or name.startswith(KEPT_PREFIX) or name.upper().endswith(KEPT_SUFFIX)


def _works(*argv: str) -> bool:
    try:
        return run_tool(argv, deadline=Deadline.after(PROBE_S), check=False).status == 0
    except (ToolMissing, ToolFailed):
        return False
