"""The emulated board's image: Debian's armhf packages unpacked, laid out by hand, and made into a disk.

No target code runs: packages are only extracted, and what their scripts would have done (users, the ssh server's
folders, byte-compiled Python) is done here. The result holds no key and no name; those come with the board's initrd.
"""

from __future__ import annotations

import compileall
import hashlib
import os
import py_compile
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolFailed
from pipelines.base.files import sha256_file, write_bytes, write_json
from pipelines.boards.initrd import base_initrd

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    "openssh-server",
    "python3",
    "busybox-static",  # init, mount, ip, poweroff
    "sudo",
    "libpam-modules",  # sudo asks PAM
    "linux-image-armmp",
    "libstdc++6",  # the Verilated circuits are C++
)
KERNEL_PACKAGE_GLOB = "vmlinuz-*-armmp"
DEVICE_TREE = "vexpress-v2p-ca9.dtb"
PYTHON_VERSION = "3.11"  # bookworm's; byte code is made by this process, which must be the same version

BUSYBOX_TOOLS = tuple("sh cat ls mkdir rm mv cp ln df ps kill sync sleep dd cmp chmod env uname tar head id".split())

# Debian's ids where Debian has them; 1000 is the first user of a Debian installation.
PASSWD = """\
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
sshd:x:100:65534::/run/sshd:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
tritforge:x:1000:1000:tritforge:/home/tritforge:/bin/sh
"""
GROUP = """\
root:x:0:
daemon:x:1:
tty:x:5:
disk:x:6:
tritforge:x:1000:
nogroup:x:65534:
"""
# '*' is no password that could be typed and, unlike '!', does not lock the account for keys.
SHADOW = "root:*:19700:0:99999:7:::\nsshd:*:19700:0:99999:7:::\ntritforge:*:19700:0:99999:7:::\n"
SUDOERS = """\
# The one right of the unprivileged user: switch the board off or restart it.
tritforge ALL=(root) NOPASSWD: /usr/lib/tritforge/power
"""
# sudo asks PAM, whose configuration Debian writes when packages are configured; this is all that it needs.
PAM_SUDO = "auth required pam_deny.so\naccount required pam_permit.so\nsession required pam_permit.so\n"
PAM_OTHER = "auth required pam_deny.so\naccount required pam_deny.so\nsession required pam_deny.so\n"

# Not needed on the board, and most of the unpacked size.
DROPPED = (
    "boot",
    "usr/lib/modules",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/bug",
    "var/cache/apt",
    "var/lib/apt/lists",
)

GUEST = Path(__file__).parent / "guest"
REQUIREMENTS = Path(__file__).parent / "board-requirements.txt"


def recipe_key(disk_gib: int) -> str:
    """Hash of everything that decides the image: this recipe, the guest's files, the wheel's hash, the disk's size.

    The packages' versions are Debian's of the day; ``image.json`` lists them.
    """
    here = Path(__file__).parent
    parts = [here / "rootfs.py", here / "initrd.py", REQUIREMENTS, *sorted(GUEST.iterdir())]
    digest = hashlib.sha256(f"{disk_gib}\n".encode())
    for part in parts:
        digest.update(f"{part.name} {sha256_file(part)}\n".encode())
    return digest.hexdigest()[:16]


def build(out: Path, deadline: Deadline, log: Path, *, disk_gib: int, mirror: str = MIRROR) -> None:
    """Makes ``disk.img`` (sparse ext4), ``vmlinuz``, ``board.dtb``, ``initrd.cpio`` and ``image.json`` in ``out``.

    The disk is sparse: it holds ``disk_gib`` GiB and takes a quarter of one.
    Needs root or a user with subordinate ids (``newuidmap``), since files on the disk belong to several users.
    """
    if os.geteuid() != 0:
        _build_in_namespace(out, deadline, log, disk_gib, mirror)
        return
    if f"{sys.version_info.major}.{sys.version_info.minor}" != PYTHON_VERSION:
        raise ToolFailed(
            f"the board's Python is {PYTHON_VERSION}, this one is {sys.version_info.major}.{sys.version_info.minor}",
            hint=f"byte code must be made by the same version: run with Python {PYTHON_VERSION}",
        )
    for tool in ("mmdebstrap", "mke2fs"):
        find_tool(tool)
    with tempfile.TemporaryDirectory(prefix="tritforge-rootfs-", dir=out) as scratch:
        root = Path(scratch) / "root"
        _unpack(root, mirror, deadline, log)
        packages = _installed(root)
        _kernel(root, out)
        _lay_out(root, disk_gib)
        _install_wheel(root, Path(scratch) / "wheel", deadline, log)
        _byte_compile(root)
        disk = out / "disk.img"
        # A journal, because this board is also switched off without asking.
        run_tool(
            ["mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum", "-L", "tritforge", "-E", "root_owner=0:0",
             "-d", root, disk, f"{disk_gib}G"],
            deadline=deadline, log=log,
        )  # fmt: skip
    write_json(
        out / "image.json",
        {
            "recipe": recipe_key(disk_gib),
            "suite": SUITE,
            "tokenizers": _requirement()[0],
            "packages": packages,
            "disk_gib": disk_gib,
            "files": {name: sha256_file(out / name) for name in ("vmlinuz", "board.dtb", "initrd.cpio")},
        },
    )


def _build_in_namespace(out: Path, deadline: Deadline, log: Path, disk_gib: int, mirror: str) -> None:
    """The same build for an ordinary user: as root of a user namespace with mapped subordinate ids."""
    find_tool("newuidmap", hint="apt-get install uidmap, or build the image as root")
    code = (
        "import sys; from pathlib import Path; from pipelines.base.deadline import Deadline; "
        "from pipelines.boards import rootfs; "
        "rootfs.build(Path(sys.argv[1]), Deadline.after(float(sys.argv[2])), Path(sys.argv[3]), "
        "disk_gib=int(sys.argv[4]), mirror=sys.argv[5])"
    )
    run_tool(
        ["unshare", "--user", "--map-auto", "--map-root-user", "--mount", sys.executable, "-c", code,
         out, str(deadline.remaining()), log, str(disk_gib), mirror],
        deadline=deadline, log=log, cwd=Path(__file__).parents[2],
        hint="or build the image as root",
    )  # fmt: skip


def _unpack(root: Path, mirror: str, deadline: Deadline, log: Path) -> None:
    run_tool(
        ["mmdebstrap", "--mode=root", "--architectures=armhf", "--variant=extract", "--skip=check/qemu",
         "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
         # which packages, for image.json: dpkg is never run, so it has no list
         '--extract-hook=ls "$1/var/cache/apt/archives" > "$1/packages.txt"',
         f"--include={','.join(PACKAGES)}", SUITE, root, mirror],
        deadline=deadline, log=log,
        hint="is the Debian mirror reachable? TRITFORGE_MIRROR names another one",
    )  # fmt: skip


def _installed(root: Path) -> list[str]:
    """``name_version_architecture`` of every package that was unpacked."""
    listing = root / "packages.txt"
    names = sorted(line[:-4] for line in listing.read_text().splitlines() if line.endswith(".deb"))
    listing.unlink()
    return names


def _kernel(root: Path, out: Path) -> None:
    kernels = sorted((root / "boot").glob(KERNEL_PACKAGE_GLOB))
    if len(kernels) != 1:
        raise ToolFailed(f"expected one kernel in the image, found {[path.name for path in kernels]}")
    version = kernels[0].name.removeprefix("vmlinuz-")
    shutil.copyfile(kernels[0], out / "vmlinuz")
    shutil.copyfile(root / f"usr/lib/linux-image-{version}" / DEVICE_TREE, out / "board.dtb")
    busybox = (root / "usr/bin/busybox").read_bytes()
    write_bytes(
        out / "initrd.cpio",
        base_initrd(root / "usr/lib/modules" / version, busybox, (GUEST / "init").read_bytes()),
    )
    shutil.rmtree(root / f"usr/lib/linux-image-{version}")


def _lay_out(root: Path, disk_gib: int) -> None:
    """What the packages' own scripts would do when they are configured, as far as this board needs it."""
    for name in DROPPED:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("proc", "sys", "dev", "run", "root", "etc/tritforge", "home/tritforge", "var/lib/tritforge"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, text, mode in (
        ("etc/passwd", PASSWD, 0o644),
        ("etc/group", GROUP, 0o644),
        ("etc/shadow", SHADOW, 0o640),
        ("etc/sudoers", SUDOERS, 0o440),
        ("etc/pam.d/sudo", PAM_SUDO, 0o644),
        ("etc/pam.d/other", PAM_OTHER, 0o644),
        ("etc/hosts", "127.0.0.1 localhost\n", 0o644),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n", 0o644),
        ("etc/os-release", 'PRETTY_NAME="tritforge emulated board"\nID=debian\nVERSION_ID="12"\n', 0o644),
        # What the preflight reads as the image's version, as REVISION on a PYNQ image.
        ("etc/tritforge-image", f"tritforge-emulated {recipe_key(disk_gib)}\n", 0o644),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(mode)
    for name, place, mode in (
        ("inittab", "etc/inittab", 0o644),
        ("sshd_config", "etc/ssh/sshd_config", 0o644),
        ("boot", "usr/lib/tritforge/boot", 0o755),
        ("idle", "usr/lib/tritforge/idle", 0o755),
        ("power", "usr/lib/tritforge/power", 0o755),
    ):
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(GUEST / name, path)
        path.chmod(mode)
    for name in ("home/tritforge", "var/lib/tritforge"):
        os.chown(root / name, 1000, 1000)
    (root / "root").chmod(0o700)
    # No dash or coreutils here: busybox is the shell and the handful of tools an ssh command or scp may want.
    for name in BUSYBOX_TOOLS:
        if not (root / "usr/bin" / name).exists():
            (root / "usr/bin" / name).symlink_to("busybox")


def _requirement() -> tuple[str, str]:
    """(``tokenizers==…``, sha256) from the requirements file."""
    line = next(line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#"))
    name, _, digest = line.partition(" --hash=sha256:")
    return name.strip(), digest.strip()


def _install_wheel(root: Path, scratch: Path, deadline: Deadline, log: Path) -> None:
    """Fetches the armv7 wheel with pip, against its hash, and unpacks it: a pure unzip, as wheels are."""
    run_tool(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--require-hashes",
         "--platform", "manylinux2014_armv7l", "--python-version", "3.10", "--implementation", "cp", "--abi", "abi3",
         "-r", REQUIREMENTS, "-d", scratch],
        deadline=deadline, log=log,
    )  # fmt: skip
    wheels = sorted(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise ToolFailed(f"expected one wheel for {_requirement()[0]}, found {len(wheels)}", log=log)
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(root / "usr/lib/python3/dist-packages")


def _byte_compile(root: Path) -> None:
    """.pyc files, made here: compiling them in the emulator would take minutes at the first import."""
    for place in ("usr/lib/python3.11", "usr/lib/python3/dist-packages"):
        compileall.compile_dir(
            root / place,
            quiet=2,
            stripdir=str(root),
            prependdir="/",
            workers=2,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
