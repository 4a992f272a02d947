"""The emulated board itself: its initrd, its start by two at once, a boot that hangs, power cuts."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.base import errors
from pipelines.base.deadline import Deadline
from pipelines.boards import emulator as emulator_module
from pipelines.boards import initrd
from pipelines.boards.access import Address
from pipelines.boards.connection import Connection
from pipelines.boards.emulator import Emulator, Endpoint, high_memory
from pipelines.config.settings import ROOT

IMAGES = ROOT / ".tritforge" / "images"  # shared with the checkout's own board: built once


def test_an_archive_is_the_same_bytes_each_time_and_laid_out_as_newc() -> None:
    entries = {"b": initrd.file(b"two"), "a": initrd.folder(), "a/c": initrd.file(b"", 0o600)}
    data = initrd.archive(entries)
    assert data == initrd.archive(dict(reversed(entries.items())))
    assert len(data) % 512 == 0
    names, at = [], 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        name = data[at + 110 : at + 110 + fields[11] - 1].decode()
        if name == "TRAILER!!!":
            break
        names.append((name, fields[1], fields[6]))
        at += -(-(110 + fields[11]) // 4) * 4
        at += -(-fields[6] // 4) * 4
    assert names == [("a", stat.S_IFDIR | 0o755, 0), ("a/c", stat.S_IFREG | 0o600, 0), ("b", stat.S_IFREG | 0o644, 3)]


def test_modules_come_after_what_they_depend_on(tmp_path: Path) -> None:
    for name, depends in (("ext4", "mbcache,jbd2"), ("jbd2", ""), ("mbcache", "built-in"), ("virtio-rng", "")):
        (tmp_path / f"{name}.ko").write_bytes(b"ELF\0depends=" + depends.encode() + b"\0license=GPL\0")
    (tmp_path / "modules.builtin").write_text("kernel/lib/built-in.ko\n")
    order = [path.stem for path in initrd.module_order(tmp_path, ["ext4", "virtio_rng", "built_in"])]
    assert order == ["mbcache", "jbd2", "ext4", "virtio-rng"]
    with pytest.raises(errors.ToolFailed, match="no module 'nosuch'"):
        initrd.module_order(tmp_path, ["nosuch"])


def test_an_interrupted_start_leaves_a_board_that_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """QEMU outlives whoever started it; one that nobody knows of would hold the disk for ever."""
    program = tmp_path / "qemu-system-arm"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(emulator_module, "find_tool", lambda _: program)
    image = tmp_path / "image"
    image.mkdir()
    (image / "initrd.cpio").write_bytes(b"")
    started = Emulator("emu-cut", tmp_path / "board", tmp_path)
    started.folder.mkdir()
    started._make_keys()
    monkeypatch.setattr(Emulator, "_make_disk", lambda *_: None)

    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            started._launch(image)
    found = started.running()
    assert found is not None
    assert started.stop() and started.running() is None


def test_a_board_in_use_is_not_started_again_for_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = Emulator("emu-busy", tmp_path, tmp_path)
    ended: list[str] = []

    class Ended(Exception):
        pass

    def kill(_: Emulator) -> None:
        ended.append("")
        raise Ended

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        endpoint = Endpoint("127.0.0.1", port, "tritforge", tmp_path / "key", "ssh-ed25519 A", 1)
        monkeypatch.setattr(Emulator, "running", lambda _: endpoint)
        monkeypatch.setattr(Emulator, "_kill", kill)
        with socket.create_connection(("127.0.0.1", port)):
            with pytest.raises(errors.BoardBusy, match="somebody is connected"):
                emulator.start()
        assert ended == []
        with pytest.raises(Ended):
            emulator.start()


@pytest.mark.parametrize(
    ("memory_mib", "cma_mib", "argument"),
    [
        (512, 192, "vmalloc=624M"),  # 384 low and 624: 1008
        (512, 256, "vmalloc=624M"),
        (512, 257, ""),  # contiguous memory would not fit below
        (256, 64, ""),
        (896, 192, "vmalloc=240M"),
        (1024, 192, ""),  # the kernel's own way leaves more than that
    ],
)
def test_some_memory_is_high_where_the_machine_has_room(memory_mib: int, cma_mib: int, argument: str) -> None:
    assert high_memory(memory_mib, cma_mib) == argument


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """A board of its own: these tests switch it off without asking."""
    made = Emulator("emu-test", tmp_path_factory.mktemp("emu"), IMAGES, signers="nobody\n", idle_minutes=10)
    yield made
    made.stop()


def run(endpoint: Endpoint, tmp_path: Path, *argv: str) -> str:
    address = Address("emu-test", endpoint.host, endpoint.port, endpoint.user, endpoint.key_file, endpoint.host_key)
    connection = Connection(address, tmp_path / "known_hosts", Deadline.after(60))
    try:
        status, out, words = connection.run(list(argv), Deadline.after(60))
    finally:
        connection.close()
    assert status == 0, words
    return out.decode()


def test_two_that_start_it_at_once_get_the_same_board(board: Emulator, tmp_path: Path) -> None:
    found: list[Endpoint] = []
    threads = [threading.Thread(target=lambda: found.append(board.start())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and found[0] == found[1]
    assert run(found[0], tmp_path, "uname", "-m").strip() == "armv7l"
    cma = run(found[0], tmp_path, "cat", "/proc/cmdline")
    assert "cma=192M" in cma
    assert "HighTotal:        131072 kB" in run(found[0], tmp_path, "cat", "/proc/meminfo")  # HIGH_MIB
    hostile = 'it\'s "a" $(touch /tmp/pwned) `x` ;&\n'
    assert run(found[0], tmp_path, "printf", "%s", hostile) == hostile
    assert run(found[0], tmp_path, "sh", "-c", "test ! -e /tmp/pwned && echo clean").strip() == "clean"


@pytest.mark.campaign
def test_its_user_has_one_right(board: Emulator, tmp_path: Path) -> None:
    endpoint = board.start()
    assert run(endpoint, tmp_path, "id", "-un").strip() == "tritforge"
    script = (
        "sudo -n id && exit 1; sudo -n /bin/busybox reboot && exit 1; "
        "sudo -n /usr/lib/tritforge/power nonsense && exit 1; "
        "cat /etc/tritforge/ssh_host_ed25519_key && exit 1; echo x > /usr/lib/tritforge/power && exit 1; "
        "echo refused"
    )
    assert run(endpoint, tmp_path, "sh", "-c", script).strip() == "refused"
    boots = "cat /proc/sys/kernel/random/boot_id"
    before = run(endpoint, tmp_path, *boots.split())
    run(endpoint, tmp_path, "sh", "-c", "(sleep 1; sudo -n /usr/lib/tritforge/power restart) >/dev/null 2>&1 &")
    end = time.monotonic() + 300
    while True:
        assert time.monotonic() < end, board.console_tail()
        try:
            if run(endpoint, tmp_path, *boots.split()) != before:
                return
        except (errors.BoardOffline, AssertionError):  # the latter: no status, for the board went down in the middle
            pass
        time.sleep(1)


@pytest.mark.campaign
def test_it_powers_itself_off_when_nobody_comes(tmp_path: Path) -> None:
    quiet = Emulator("emu-quiet", tmp_path, IMAGES, idle_minutes=1)
    try:
        quiet.start()
        end = time.monotonic() + 240
        while quiet.running() is not None:
            assert time.monotonic() < end, "it still runs"
            time.sleep(1)
        assert "idle for 1 minutes, powering off" in quiet.console.read_text(errors="replace")
    finally:
        quiet.stop()


def test_a_power_cut_keeps_what_was_synced(board: Emulator, tmp_path: Path) -> None:
    endpoint = board.start()
    run(endpoint, tmp_path, "sh", "-c", "echo kept > /var/lib/tritforge/note; sync")
    os.kill(endpoint.pid, signal.SIGKILL)
    while board.running() is not None:
        try:
            os.waitpid(endpoint.pid, os.WNOHANG)
        except ChildProcessError:
            pass
        time.sleep(0.05)
    endpoint = board.start()
    assert run(endpoint, tmp_path, "cat", "/var/lib/tritforge/note").strip() == "kept"
    assert board.stop() and board.running() is None and not board.stop()


def test_a_boot_that_hangs_ends_with_the_console(
    board: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator_module, "BOOT_DEADLINE_S", 12.0)
    broken = Emulator("emu-broken", tmp_path, IMAGES, kernel_arguments="rdinit=/nothing panic=0")
    try:
        with pytest.raises(errors.BoardOffline, match="did not answer on ssh within 12 s") as caught:
            broken.start()
        assert caught.value.log == broken.console and "console:" in caught.value.message
    finally:
        broken.stop()
