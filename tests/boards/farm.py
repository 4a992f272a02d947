"""A real labgrid farm on this machine: coordinator and exporter on 127.0.0.1, in an environment of their own.

labgrid is a program that a farm brings, not a library of ours, and it registers a plugin with pytest; so it is kept out
of the environment that the tests run in. ``requirements-labgrid.lock`` has its packages with hashes.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pipelines.base.deadline import Deadline
from pipelines.base.files import sha256_file, write_json
from pipelines.base.lock import held
from pipelines.boards.emulator import free_port
from pipelines.config.settings import ROOT

LOCK = ROOT / "requirements-labgrid.lock"
INSTALL_S = 600.0
START_S = 90.0


def programs() -> Path:
    """The folder with labgrid's programs; installed on first use, kept until the lock changes."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = ROOT / ".tritforge" / "labgrid" / f"{sha256_file(LOCK)[:16]}-{version}"
    with held(folder.with_name("install.lock"), "install labgrid for its tests", deadline=Deadline.after(INSTALL_S)):
        if not (folder / "installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=INSTALL_S)
            subprocess.run(
                [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                 "--no-input", "--no-deps", "--require-hashes", "-r", str(LOCK)],
                check=True, timeout=INSTALL_S,
            )  # fmt: skip
            (folder / "installed").touch()
    return folder / "bin"


class Farm:
    """A coordinator and one exporter in ``folder``. ``services`` are the NetworkServices it exports: {group: port}."""

    def __init__(self, folder: Path, services: Mapping[str, int]) -> None:
        self.folder = folder
        self.bin = programs()
        self.coordinator = f"127.0.0.1:{free_port()}"
        folder.mkdir(parents=True)
        write_json(  # JSON is YAML
            folder / "exports.yaml",
            {
                group: {"NetworkService": {"address": "127.0.0.1", "port": port, "username": "tritforge"}}
                for group, port in services.items()
            },
        )
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            end = time.monotonic() + START_S
            self._start("coordinator", "--listen", self.coordinator)
            while not answers(self.coordinator):  # an exporter that finds none gives up
                assert time.monotonic() < end, (folder / "coordinator.log").read_text()
                time.sleep(0.1)
            self._start("exporter", "--coordinator", self.coordinator, "--name", "farm", str(folder / "exports.yaml"))
            wanted = {f"farm/{group}/NetworkService" for group in services}
            while not wanted <= set(self.client("resources", check=False).split()):
                assert time.monotonic() < end, (folder / "exporter.log").read_text()
                time.sleep(0.2)
        except BaseException:
            self.stop()
            raise

    def _start(self, program: str, *arguments: str) -> None:
        process = subprocess.Popen(
            [str(self.bin / f"labgrid-{program}"), *arguments], cwd=self.folder,  # where it keeps its list of places
            stdin=subprocess.DEVNULL, stdout=(self.folder / f"{program}.log").open("wb"), stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.processes.append(process)

    def client(self, *arguments: str, check: bool = True, user: str = "keeper") -> str:
        """What ``labgrid-client`` prints, as another person of the farm."""
        done = subprocess.run(
            [str(self.bin / "labgrid-client"), "-x", self.coordinator, *arguments],
            env={**os.environ, "LG_USERNAME": user}, capture_output=True, text=True, check=False, timeout=START_S,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def place(self, name: str, group: str = "") -> None:
        """A new place; of ``group``'s NetworkService, or of nothing."""
        self.client("-p", name, "create")
        if group:
            self.client("-p", name, "add-match", f"farm/{group}/NetworkService")

    def holder(self, name: str) -> str | None:
        """``host/user`` who has it, or None."""
        shown = self.client("-p", name, "show")
        found = next(line.split()[1] for line in shown.splitlines() if line.startswith("  acquired: "))
        return None if found == "None" else found

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGKILL)
            process.wait()


def answers(address: str) -> bool:
    """Whether somebody accepts connections at ``host:port``."""
    host, _, port = address.partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False
