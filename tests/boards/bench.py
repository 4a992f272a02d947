"""A board for tests without an emulator: a real sshd on 127.0.0.1 with a folder of its own, and small releases for it.

Most faults of a deploy are about ssh, files and leases, not about the instruction set; this board has the same agent,
the same Fabric, the same files, and answers in tenths of a second. It runs as the user who runs the tests.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.base.deadline import Deadline
from pipelines.base.files import sha256_file, write_json
from pipelines.boards.access import Address
from pipelines.boards.emulator import free_port, ssh_answers
from pipelines.boards.release import LocalRelease
from pipelines.config.board import Board

IDENTITY = "tests@tritforge"


class BenchBoard:
    """One sshd in ``folder``; ``root`` is what a board's ``/var/lib/tritforge`` would be."""

    def __init__(self, folder: Path, name: str = "bench") -> None:
        self.folder = folder
        self.name = name
        self.root = folder / "root"
        self.root.mkdir(parents=True)
        for key in ("host_key", "user_key", "signing_key", "other_key"):
            make_key(folder / key)
        shutil.copyfile(folder / "user_key.pub", folder / "authorized_keys")
        (folder / "authorized_keys").chmod(0o600)
        self.signers = folder / "allowed_signers"
        self.signers.write_text(f'{IDENTITY} namespaces="tritforge-release" {(folder / "signing_key.pub").read_text()}')
        self.system = folder / "system"
        self.describe(cma_mib=192, cma_free_mib=190)
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Starts sshd; ``environment`` is what every session of it gets (``SetEnv``)."""
        self.port = self.port or free_port()
        config = self.folder / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self.folder}/authorized_keys\nStrictModes no\nPasswordAuthentication no\n"
            f"PermitRootLogin prohibit-password\nMaxStartups 64\nUseDNS no\nAcceptEnv TRITFORGE_*\n"
            "Subsystem sftp internal-sftp\n"
            + "SetEnv "
            + " ".join(
                f'{name}="{value}"' for name, value in {"TRITFORGE_SYSROOT": self.system, **(environment or {})}.items()
            )
            + "\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # sshd's privilege separation, when its package never started it
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        self.process = subprocess.Popen(
            [sshd, "-D", "-e", "-f", str(config)], stderr=(self.folder / "sshd.log").open("ab"), start_new_session=True
        )
        end = time.monotonic() + 20
        while not ssh_answers("127.0.0.1", self.port, Deadline.after(1)):
            assert time.monotonic() < end and self.process.poll() is None, (self.folder / "sshd.log").read_text()
            time.sleep(0.05)

    def describe(self, *, cma_mib: int, cma_free_mib: int) -> None:
        """What the agent reads of this board's system: see SYSTEM in board_rt/facts.py."""
        (self.system / "usr/lib/python3/dist-packages/tokenizers").mkdir(parents=True, exist_ok=True)
        for name, text in {
            "proc/meminfo": f"MemTotal: 512000 kB\nMemAvailable: 400000 kB\nCmaTotal: {cma_mib * 1024} kB\n"
            f"CmaFree: {cma_free_mib * 1024} kB\n",
            "proc/cmdline": f"console=ttyPS0 cma={cma_mib}M\n",
            "proc/loadavg": "0.10 0.10 0.10 1/100 1000\n",
            "etc/tritforge-image": "bench\n",
        }.items():
            path = self.system / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def stop(self) -> None:
        """Ends sshd and every session of it, as a board that loses power would."""
        if self.process is not None:
            for pid in [*descendants(self.process.pid), self.process.pid]:
                with_suppress(os.kill, pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def address(self, *, port: int | None = None, host_key: str | None = None, **more: Any) -> Address:
        key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        return Address(
            self.name, "127.0.0.1", port or self.port, getpass.getuser(), self.folder / "user_key",
            key if host_key is None else host_key, python=sys.executable, signers=str(self.signers), **more,
        )  # fmt: skip

    def board(self, **values: Any) -> Board:
        """Its configuration: an emulated board's, so that no fabric is asked for."""
        return Board.model_validate(
            {
                "name": self.name, "kind": "emulated", "bitstream": "combined", "pl": "rtl-library", "cma_mib": 16,
                "root": str(self.root), "keep_releases": 3, "lease_s": 10, "emulator": {}, **values,
            }
        )  # fmt: skip

    def current(self) -> str | None:
        link = self.root / "current"
        return os.path.basename(os.readlink(link)) if link.is_symlink() else None

    def release(self, folder: Path, files: Mapping[str, bytes | Path], *, key: str = "signing_key") -> LocalRelease:
        return make_release(folder, files, self.folder / key)


def with_suppress(call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except OSError:
        pass


def descendants(pid: int) -> list[int]:
    """Processes below ``pid``, children before their own children's end can hide them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, look = [], [pid]
    while look:
        below = children.get(look.pop(), [])
        found += below
        look += below
    return found


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def make_release(folder: Path, files: Mapping[str, bytes | Path], key: Path, **predicate: Any) -> LocalRelease:
    """A signed release of these files."""
    folder.mkdir(parents=True)
    subjects, parts = [], []
    for name, content in sorted(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            shutil.copyfile(content, path)
        digest = sha256_file(path)
        subjects.append({"name": name, "digest": {"sha256": digest}})
        parts.append({"name": name, "sha256": digest, "bytes": path.stat().st_size})
    write_json(
        folder / "manifest.json",
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": subjects,
            "predicateType": "urn:tritforge:release:1",
            "predicate": {
                "board": {"kind": "emulated", "pl": "rtl-library"},
                "memory": {"contiguous_bytes": 1 << 20},
                "toolchains": {},
                "parts": parts,
                "signed_by": IDENTITY,
                **predicate,
            },
        },
    )
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-n", "tritforge-release", "-f", str(key), str(folder / "manifest.json")],
        check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return LocalRelease.read(folder)


PLAIN_JOBS = b'''"""Jobs of a release without circuits: what a test of the transaction needs."""
import json, os, sys
def main(name):
    options = json.loads(sys.stdin.readline())
    behaviour = open("behaviour", encoding="utf-8").read().split()
    if behaviour[0] == "fault":
        print(json.dumps({"fault": {"class": behaviour[1], "message": "as told", "hint": ""}}), flush=True)
    elif behaviour[0] == "hang":
        sys.stdin.read()
    elif behaviour[0] == "crash":
        os._exit(9)
    else:
        print(json.dumps({"result": {"ran": name, "release": options["release"]}}), flush=True)
main(sys.argv[2])
'''


def plain_files(seed: int, size: int = 200_000, behaviour: str = "pass") -> dict[str, bytes | Path]:
    """Parts of a release of plain files; another ``seed`` is another release. Names are as hostile as names get."""
    import random

    source = random.Random(seed)
    return {
        "board_rt/__init__.py": b"",
        "board_rt/__main__.py": PLAIN_JOBS,
        "behaviour": behaviour.encode(),
        "weights/weights.tfs": source.randbytes(size),
        "weights/params.tfp": source.randbytes(500),
        "common": b"the same in every release",
        'weird/it\'s a "name" with $(touch pwned) `x`; & \\ \u00e4 \n end': source.randbytes(100),
        "weird/-rf": b"a name like an option %d" % seed,
    }


class Proxy:
    """A TCP proxy in front of a board, whose cable can be cut: now, or after so many bytes towards the board."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.cut_after: int | None = None
        self.delay_cut = False
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.sent = 0
        self.silent = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Resets every connection."""
        for pair in self.pairs:
            for end in pair:
                with_suppress(end.setsockopt, socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                with_suppress(end.shutdown, socket.SHUT_RDWR)
                with_suppress(end.close)
        self.pairs.clear()

    def close(self) -> None:
        self.cut()
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
                board = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            except OSError:
                return
            board.settimeout(None)
            self.pairs.append((client, board))
            threading.Thread(target=self._pump, args=(client, board, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(board, client, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if self.silent:
                    continue  # a cable that is pulled: no end is told
                sink.sendall(data)
                if counted:
                    self.sent += len(data)
                    if self.cut_after is not None and self.sent >= self.cut_after:
                        self.cut_after = None
                        self.cut()
                        return
        except OSError:
            pass
        for end in (source, sink):
            with_suppress(end.shutdown, socket.SHUT_RDWR)
