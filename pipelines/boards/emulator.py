"""An emulated board: QEMU's vexpress-a9 with a persistent disk of its own, reached over ssh like any other.

A board lives in one folder: its disk (copy-on-write over the shared image), its host key, the key a user logs in
with, the console log, and ``state.json`` while it runs. QEMU is started in a session of its own, so it outlives the
command that started it; the guest powers itself off when nobody was connected for a while.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import BoardBusy, BoardOffline, ToolFailed
from pipelines.base.files import read_json, sha256_bytes, write_bytes, write_json
from pipelines.base.lock import held
from pipelines.boards import privilege, rootfs
from pipelines.boards.initrd import board_initrd

USER = "tritforge"
MACHINE = "vexpress-a9"
CPUS = 2
BOOT_DEADLINE_S = 420.0  # 25 s on a quiet 2-core machine; 160 s were seen at a load of 15
IMAGE_DEADLINE_S = 900.0
POLL_S = 0.25
PROBE_S = 3.0
GREETING_S = 60.0
LOG_TAIL_LINES = 15
SAME_ADDRESSES = "norandmaps"
"""Kernel argument: every process at the same addresses, where QEMU finds what it has translated; a program starts in
three quarters of the time."""
ADDRESSES_MIB = 1008  # low memory and vmalloc area of an ARM kernel: 0xC0000000 to 0xFF800000, less 8 MiB between them
VMALLOC_MIB = 240  # of which the kernel takes this much of its own accord
HIGH_MIB = 128


@dataclass(frozen=True)
class Endpoint:
    """Where a running emulated board answers, and how it proves that it is the one."""

    host: str
    port: int
    user: str
    key_file: Path
    host_key: str  # "ssh-ed25519 AAAA…"
    pid: int


@dataclass(frozen=True)
class Emulator:
    """One emulated board. ``folder`` is its own; ``images`` is shared by all boards of this machine."""

    name: str
    folder: Path
    images: Path
    signers: str = ""
    """What the board's ``/etc/tritforge/allowed_signers`` says; a real board has that from its card."""
    cma_mib: int = 192
    memory_mib: int = 512
    idle_minutes: int = 30
    disk_gib: int = 4
    kernel_arguments: str = ""

    @property
    def console(self) -> Path:
        return self.folder / "console.log"

    def image(self, *, deadline: Deadline | None = None, on_build: Callable[[str], None] | None = None) -> Path:
        """The image's folder, built when it is not there. Two processes at once: one builds, the other waits."""
        target = self.images / rootfs.recipe_key(self.disk_gib)
        if (target / "image.json").exists():
            return target
        deadline = deadline or Deadline.after(IMAGE_DEADLINE_S)
        self.images.mkdir(parents=True, exist_ok=True)
        with held(self.images / "build.lock", "build the emulated board's image", deadline=deadline, on_wait=on_build):
            if (target / "image.json").exists():
                return target
            if on_build is not None:
                on_build("building the emulated board's image (once; about half a minute)")
            partial = self.images / f"{target.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            mirror = os.environ.get("TRITFORGE_MIRROR", rootfs.MIRROR)
            privilege.build_image(partial, deadline, self.images / "build.log", disk_gib=self.disk_gib, mirror=mirror)
            partial.rename(target)
        return target

    def running(self) -> Endpoint | None:
        """The board as it runs now, or None."""
        state = self._state()
        try:
            pid, port = int(state["pid"]), int(state["port"])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        # The process id may be another program's by now; this board's disk in the arguments says that it is ours.
        if str(self._disk()).encode() not in command:
            return None
        return self._endpoint(pid, port)

    def start(
        self,
        *,
        fresh: bool = False,
        deadline: Deadline | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> Endpoint:
        """Starts the board unless it runs, and waits until ssh answers. ``fresh`` begins with an empty disk.

        Raises BoardOffline with the console's last lines when the boot does not end in time, and BoardBusy when it runs
        with other settings and is in use.
        """
        patience = deadline or Deadline.after(BOOT_DEADLINE_S + IMAGE_DEADLINE_S)
        self.folder.mkdir(parents=True, exist_ok=True)
        with held(self.folder / "start.lock", f"start {self.name}", deadline=patience, on_wait=say):
            if fresh:
                self._kill()
                self._disk().unlink(missing_ok=True)
            endpoint = self.running()
            if endpoint is not None and self._state().get("wanted") != self._wanted():
                if connected(endpoint.port):  # a night's run, say, which would lose its board in the middle
                    raise BoardBusy(
                        f"{self.name} runs with other settings or another image, and somebody is connected to it",
                        hint=f"wait until that has ended, or end it: './inv boards --stop {self.name}'",
                    )
                say(f"{self.name} runs with other settings, starting it again")
                self._kill()
                endpoint = None
            if endpoint is None:
                image = self.image(deadline=deadline, on_build=say)
                say(f"starting {self.name}")
                endpoint = self._launch(image)
            boot = Deadline.after(BOOT_DEADLINE_S)
            self._wait_for_ssh(endpoint, deadline.at_most(BOOT_DEADLINE_S) if deadline else boot)
        return endpoint

    def stop(self) -> bool:
        """Ends the board as a power cut would, after QEMU closed its disk; False when it did not run.

        Releases on the board are synced when they are written, so there is nothing to lose.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with held(self.folder / "start.lock", f"stop {self.name}", deadline=Deadline.after(BOOT_DEADLINE_S)):
            return self._kill()

    def console_tail(self) -> str:
        try:
            lines = self.console.read_text(errors="replace").splitlines()
        except OSError:
            return "(no console output)"
        return "\n".join(f"    {line}" for line in lines[-LOG_TAIL_LINES:]) or "(no console output)"

    def _listens(self) -> bool:
        """Whether the guest's ssh server has said on the console that it listens."""
        try:
            return b"Server listening on" in self.console.read_bytes()
        except OSError:
            return False

    def _state(self) -> dict[str, Any]:
        try:
            state = read_json(self.folder / "state.json")
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def _wanted(self) -> str:
        """What a running board must have been started with to be this one."""
        return sha256_bytes(
            repr((self.signers, self.memory_mib, self.idle_minutes, self._kernel_line(),
                  rootfs.recipe_key(self.disk_gib))).encode()
        )[:16]  # fmt: skip

    def _disk(self) -> Path:
        return (self.folder / "disk.qcow2").resolve()

    def _endpoint(self, pid: int, port: int) -> Endpoint:
        host_key = (self.folder / "host_key.pub").read_text().split()
        return Endpoint("127.0.0.1", port, USER, self.folder / "user_key", " ".join(host_key[:2]), pid)

    def _launch(self, image: Path) -> Endpoint:
        qemu = find_tool("qemu-system-arm")
        self._make_keys()
        self._make_disk(image)
        initrd = self.folder / "initrd.cpio"
        write_bytes(initrd, self._initrd(image))
        if self.console.exists():
            self.console.replace(self.console.with_suffix(".log.1"))
        for _ in range(5):  # another program may take the free port between our look and QEMU's
            port = free_port()
            process = self._qemu(qemu, image, initrd, port)
            # At once: whoever is interrupted here leaves a board that runs, and that the next command must find.
            write_json(
                self.folder / "state.json",
                {"pid": process.pid, "port": port, "started": time.time(), "wanted": self._wanted()},
            )
            # QEMU ends within milliseconds when a port or the disk is taken.
            try:
                process.wait(timeout=0.7)
            except subprocess.TimeoutExpired:
                return self._endpoint(process.pid, port)
            (self.folder / "state.json").unlink(missing_ok=True)
            message = (self.folder / "qemu.log").read_text(errors="replace").strip()
            if "Could not set up host forwarding" not in message:
                raise ToolFailed(
                    f"QEMU did not start {self.name}: {message.splitlines()[-1] if message else 'no message'}",
                    log=self.folder / "qemu.log",
                )
        raise ToolFailed(f"no free port on 127.0.0.1 for {self.name}", log=self.folder / "qemu.log")

    def _initrd(self, image: Path) -> bytes:
        """What the machine starts from: the image's part, then this board's own."""
        own = {
            "name": self.name.encode(),
            "ssh_host_ed25519_key": (self.folder / "host_key").read_bytes(),
            "authorized_keys": (self.folder / "user_key.pub").read_bytes(),
            "allowed_signers": self.signers.encode(),
            "idle_minutes": str(self.idle_minutes).encode(),
        }
        return (image / "initrd.cpio").read_bytes() + board_initrd(own)

    def _kernel_line(self) -> str:
        common = f"rw cma={self.cma_mib}M panic=5 {SAME_ADDRESSES} {self.kernel_arguments}"
        return f"{self._machine_words()} {common}".strip()

    def _machine_words(self) -> str:
        """What of the kernel line only this kind of machine has."""
        return f"console=ttyAMA0 root=/dev/vda maxcpus={CPUS} {high_memory(self.memory_mib, self.cma_mib)}".strip()

    def _qemu(self, qemu: Path, image: Path, initrd: Path, port: int) -> subprocess.Popen[bytes]:
        argv = [
            str(qemu), "-M", MACHINE, "-smp", str(CPUS), "-m", str(self.memory_mib), "-accel", "tcg,thread=multi",
            "-kernel", str(image / "vmlinuz"), "-dtb", str(image / "board.dtb"), "-initrd", str(initrd),
            "-append", self._kernel_line(),
            "-display", "none", "-audiodev", "none,id=a0", "-monitor", "none", "-serial", f"file:{self.console}",
            "-drive", f"if=none,id=disk,format=qcow2,file={self._disk()}", "-device", "virtio-blk-device,drive=disk",
            # restrict: the guest reaches nothing, only the forwarded port reaches it
            "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22",
            "-device", "virtio-net-device,netdev=net", "-device", "virtio-rng-device",
            "-name", self.name,
        ]  # fmt: skip
        with (self.folder / "qemu.log").open("wb") as output:
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _make_keys(self) -> None:
        for name in ("host_key", "user_key"):
            path = self.folder / name
            if not path.exists():
                run_tool(
                    ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{self.name} {name}", "-f", path],
                    deadline=Deadline.after(30),
                )

    def _make_disk(self, image: Path) -> None:
        """The board's disk over the image; begun anew when the image is another one (its blocks would not fit)."""
        based_on = self.folder / "disk.image"
        if self._disk().exists() and based_on.exists() and based_on.read_text() == image.name:
            return
        self._disk().unlink(missing_ok=True)
        run_tool(
            ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", (image / "disk.img").resolve(),
             self._disk()],
            deadline=Deadline.after(30), hint="apt-get install qemu-utils",
        )  # fmt: skip
        based_on.write_text(image.name)

    def _kill(self) -> bool:
        endpoint = self.running()
        if endpoint is not None:
            end = time.monotonic() + 10
            number = signal.SIGTERM  # QEMU closes its disk and ends
            while self.running() is not None:
                try:
                    os.kill(endpoint.pid, number)
                    os.waitpid(endpoint.pid, os.WNOHANG)  # when it is our own child
                except (ProcessLookupError, ChildProcessError):
                    pass
                if time.monotonic() > end:
                    number = signal.SIGKILL
                time.sleep(0.05)
        (self.folder / "state.json").unlink(missing_ok=True)
        return endpoint is not None

    def _wait_for_ssh(self, endpoint: Endpoint, deadline: Deadline) -> None:
        while True:
            # QEMU accepts a connection long before the guest listens, so such a one is given up soon. One that the ssh
            # server has is waited for: on a crowded machine it takes its time, and each new one would make it longer.
            patience = GREETING_S if self._listens() else PROBE_S
            if ssh_answers(endpoint.host, endpoint.port, deadline.at_most(patience)):
                return
            if self.running() is None:
                raise BoardOffline(
                    f"{self.name} ended while it booted; console:\n{self.console_tail()}", log=self.console
                )
            if deadline.expired():
                raise BoardOffline(
                    f"{self.name} did not answer on ssh within {deadline.seconds:.0f} s; console:\n"
                    f"{self.console_tail()}",
                    hint=f"'./inv boards --stop {self.name}', then try again; "
                    f"'./inv boards --start {self.name} --fresh' begins with an empty disk",
                    log=self.console,
                )
            time.sleep(POLL_S)


def high_memory(memory_mib: int, cma_mib: int) -> str:
    """The kernel argument that leaves ``HIGH_MIB`` of the memory without a kernel address; empty on a small machine.

    Each ssh connection frees a seccomp filter. Had its pages an address in low memory, Linux 6.1 would flush every page
    from there to the last freed one of the vmalloc area: 120,000 flushes were counted, each of which stops both of
    QEMU's processors, for up to a second after each login.
    """
    low = memory_mib - HIGH_MIB
    return f"vmalloc={ADDRESSES_MIB - low}M" if cma_mib + HIGH_MIB <= low <= ADDRESSES_MIB - VMALLOC_MIB else ""


def ssh_answers(host: str, port: int, deadline: Deadline) -> bool:
    """Whether an ssh server sends its greeting. (QEMU accepts connections long before the guest listens.)"""
    try:
        with socket.create_connection((host, port), timeout=max(0.1, deadline.remaining())) as link:
            link.settimeout(max(0.1, deadline.remaining()))
            return link.recv(4) == b"SSH-"
    except OSError:
        return False


def connected(port: int) -> bool:
    """Whether somebody has a connection to this port of 127.0.0.1."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    # column 2 is the local address, column 4 the state (01: established)
    return any(words[1] == f"0100007F:{port:04X}" and words[3] == "01" for words in map(str.split, lines))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
