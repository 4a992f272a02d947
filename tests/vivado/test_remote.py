"""A build host over ssh: a real sshd on a port of this machine, and a wire in between that can be cut."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.base.console import Console
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError, HostKeyChanged, ToolFailed, ToolMissing, ToolTimeout
from pipelines.commands import build_bitstream
from pipelines.commands.context import Context
from pipelines.commands.repro import copy_checkout
from pipelines.stages import vivado as stages_vivado
from pipelines.stages.vivado import vivado_stage
from pipelines.vivado import remote
from pipelines.vivado.failure import RunKilled, VersionMismatch
from pipelines.vivado.leftovers import working_in
from pipelines.vivado.remote import BuildHost, RemoteVivado
from tests.vivado.conftest import STANDIN, Builder

SSHD = shutil.which("sshd", path="/usr/sbin:/sbin:" + os.environ["PATH"])

pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd on this machine: apt-get install openssh-server")


class Wire:
    """A TCP forwarder to the host: connections can be cut, and new ones refused for a while."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.cuts = 0
        self._open: list[socket.socket] = []
        self._refuse_until = 0.0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            if time.monotonic() < self._refuse_until:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.target))
            self._open += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self, refuse_s: float = 0.0) -> None:
        self._refuse_until = time.monotonic() + refuse_s
        self.cuts += 1
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        self._server.close()
        self.cut()


class Host:
    """The build host: its sshd, its home, its settings64.sh; ``fault`` plays on it from the next build on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = folder / "user_key"
        for key in (self.key, folder / "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=30)
        shutil.copyfile(folder / "user_key.pub", folder / "authorized_keys")
        self.host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile {folder}/pid\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "Subsystem sftp internal-sftp\nPermitRootLogin prohibit-password\nMaxStartups 50\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where sshd locks itself in before a login
        assert SSHD is not None
        self.sshd = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
        self.fault("")
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.05)
        raise RuntimeError("sshd did not start")

    def fault(self, text: str) -> None:
        (self.folder / "settings64.sh").write_text(
            f'export PATH="{STANDIN}:$PATH"\nexport STANDIN_VIVADO_HOST=buildhost\n'
            f'export STANDIN_VIVADO_FAULT="{text}"\n'
        )

    def stop(self) -> None:
        self.sshd.terminate()
        self.sshd.wait(10)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = Host(tmp_path_factory.mktemp("host"))
    yield running
    running.stop()


@pytest.fixture
def wire(host: Host) -> Iterator[Wire]:
    host.fault("")
    forwarder = Wire(host.port)
    yield forwarder
    forwarder.close()


@pytest.fixture
def jobs() -> Iterator[Path]:
    """The folder of builds on the host, of this test alone."""
    folder = Path.home() / f".tritforge-test-{os.getpid()}-{time.monotonic_ns()}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "POLL_S", 0.1)
    monkeypatch.setattr(remote, "RECONNECT_S", (0.1, 0.2, 0.4))


Connect = Callable[..., RemoteVivado]


@pytest.fixture
def connect(host: Host, wire: Wire, jobs: Path) -> Connect:
    def make(say: Callable[[str], None] = lambda text: None, **changes: object) -> RemoteVivado:
        site = {
            "host": "127.0.0.1", "port": wire.port, "user": getpass.getuser(), "key_file": str(host.key),
            "host_key": host.host_key, "folder": jobs.name, "settings64": f"{host.folder}/settings64.sh",
        } | changes  # fmt: skip
        return RemoteVivado.connect(BuildHost.model_validate(site), deadline=Deadline.after(20), say=say)

    return make


def test_build_on_the_host(connect: Connect, run_build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no Vivado here
    vivado = connect()
    assert (vivado.version, vivado.name) == ("2024.1", "stand-in")
    out = run_build(vivado=vivado)
    assert json.loads((out / "bitstream.json").read_text())["toolchain"] == "stand-in"
    assert "| Host         : buildhost " in (out / "reports" / "drc.rpt").read_text()
    log = (out.parent / "vivado.log").read_text()
    assert log.count("Exiting Vivado") == 1 and "source scripts/build.tcl -notrace" in log


@pytest.fixture
def address(host: Host, wire: Wire, jobs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """TRITFORGE_VIVADO=ssh://…, with the user's own key and known_hosts, and no Vivado here."""
    ssh = tmp_path / ".ssh"
    ssh.mkdir(mode=0o700)
    shutil.copyfile(host.key, ssh / "id_ed25519")
    (ssh / "id_ed25519").chmod(0o600)
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{wire.port} {host.host_key}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    url = f"ssh://{getpass.getuser()}@127.0.0.1:{wire.port}{host.folder}/settings64.sh"
    monkeypatch.setenv("TRITFORGE_VIVADO", url)
    named = remote.host_of
    monkeypatch.setattr(remote, "host_of", lambda url: named(url).model_copy(update={"folder": jobs.name}))
    yield url


def test_host_named_by_address(address: str, run_build: Builder) -> None:
    out = run_build()
    assert "| Host         : buildhost " in (out / "reports" / "drc.rpt").read_text()


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """What `build-bitstream` is given, in a copy of this checkout."""
    root = tmp_path / "checkout"
    copy_checkout(Path(__file__).resolve().parents[2], root)
    return Context(root=root, console=Console(quiet=True))


def again(context: Context) -> Context:
    """The next task in the same checkout."""
    return Context(root=context.root, console=Console(quiet=True))


def test_the_key_says_which_vivado_the_host_has(
    address: str, host: Host, wire: Wire, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tool(of: Context) -> str:
        board = of.settings.board("zynq1")
        stage = vivado_stage(of.workshop, of.settings.bitstream_of(board), of.hashes)
        return stage.tools["vivado"]

    assert tool(context) == "stand-in 2024.1"
    # The host need not be there for a plan, nor for what was built before.
    built = build_bitstream.run(again(context), "zynq1")
    assert built["toolchain"] == "stand-in" and not built["stages"][0]["cached"]
    wire.close()
    assert tool(again(context)) == "stand-in 2024.1"
    assert build_bitstream.run(again(context), "zynq1")["stages"][0]["cached"]
    # A host that was never asked and does not answer: no guess, and the build says what is wrong.
    monkeypatch.setenv("TRITFORGE_VIVADO", address.replace("settings64", "other64"))
    monkeypatch.setattr(stages_vivado, "ASK_HOST_S", 0.5)
    assert tool(again(context)) == "unknown"


def test_another_vivado_on_the_host_is_not_taken_for_the_one_before(address: str, host: Host, context: Context) -> None:
    build_bitstream.run(context, "zynq1", development=True)
    settings = host.folder / "settings64.sh"
    settings.write_text(settings.read_text() + "export STANDIN_VIVADO_VERSION=2023.2\n")
    (context.root / "hw" / "vivado" / "facts.tcl").open("a").write("# changed\n")
    with pytest.raises(VersionMismatch, match=r"on 127\.0\.0\.1 is stand-in 2023\.2; this build was planned with"):
        build_bitstream.run(again(context), "zynq1", development=True)
    done = build_bitstream.run(again(context), "zynq1", development=True)
    about = json.loads((Path(done["bitstream"]) / "bitstream.json").read_text())
    assert about["toolchain_version"] == "2023.2"
    with pytest.raises(VersionMismatch, match=r"wanted version 2024\.1, but .*settings64\.sh on 127\.0\.0\.1 is 2023"):
        build_bitstream.run(again(context), "zynq1")


def test_build_bitstream_goes_on_after_a_dropped_connection(
    address: str, host: Host, wire: Wire, context: Context, jobs: Path
) -> None:
    """The task, the wire cut while Vivado runs: it ends as if nothing had happened, and Vivado ran once."""
    host.fault("slow:2")

    def cut_while_it_runs() -> None:
        while not list(jobs.glob("*/pid")):
            time.sleep(0.05)
        for _ in range(3):
            time.sleep(0.5)
            wire.cut(refuse_s=0.3)

    cutter = threading.Thread(target=cut_while_it_runs)
    cutter.start()
    done = build_bitstream.run(context, "zynq1")
    cutter.join()
    assert wire.cuts == 3 and done["stages"][0]["status"] == "passed"
    log = (context.state / "logs" / "bitstream-combined-vivado.log").read_text()
    assert log.count("Exiting Vivado") == log.count("source scripts/build.tcl") == 1
    assert len([path for path in jobs.iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize(
    "url", ["ssh://", "ssh://-oProxyCommand=x/", "ssh://me@host/not/absolute.txt", "ssh://a b@host"]
)
def test_address_that_names_no_host(url: str) -> None:
    with pytest.raises(ConfigError, match="names no build host"):
        remote.host_of(url)


def test_same_bits_as_here(connect: Connect, run_build: Builder, finished: Path) -> None:
    from pipelines.vivado import repro

    assert all(c.identical for c in repro.compare(finished, run_build(vivado=connect())))


def test_connection_drops_and_the_build_goes_on(host: Host, wire: Wire, connect: Connect, run_build: Builder) -> None:
    """Cut again and again, from the upload on; the build ends as if nothing had happened, and ran once."""
    said: list[str] = []
    vivado = connect(said.append)
    host.fault("slow:3")
    stop = threading.Event()

    def cut_often() -> None:
        # Eight times, then no more: on a slow machine a connection could else never live long enough for anything.
        for _ in range(8):
            if stop.wait(0.8):
                return
            wire.cut(refuse_s=0.2)

    cutter = threading.Thread(target=cut_often)
    cutter.start()
    try:
        out = run_build(vivado=vivado)
    finally:
        stop.set()
        cutter.join()
    assert (out / "bitstream.json").exists()
    assert wire.cuts >= 3 and sum("trying again" in text for text in said) >= 3
    log = (out.parent / "vivado.log").read_text()
    assert log.count("Exiting Vivado") == log.count("source scripts/build.tcl") == 1


def test_a_build_whose_starter_died_is_attached_to(
    host: Host, connect: Connect, run_build: Builder, jobs: Path, tmp_path: Path
) -> None:
    """The process here is gone in the middle; the next one finds the build by its key instead of starting another."""
    vivado = connect()
    host.fault("slow:3")

    class Died(Exception):
        pass

    original, calls = vivado._poll, 0

    def dies(*arguments: object) -> tuple[str, bytes]:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise Died
        return original(*arguments)  # type: ignore[arg-type]

    vivado._poll = dies  # type: ignore[method-assign, assignment]
    with pytest.raises(Died):
        run_build("first", vivado=vivado)
    said: list[str] = []
    out = run_build("second", vivado=connect(said.append))
    assert (out / "bitstream.json").exists()
    assert any("attaching to the build that was begun" in text for text in said)
    assert len([p for p in jobs.iterdir() if p.is_dir()]) == 1


def test_failure_on_the_host_is_told_as_here(host: Host, connect: Connect, run_build: Builder) -> None:
    vivado = connect()
    host.fault("killed_run")
    with pytest.raises(RunKilled, match=r"impl_1/runme\.log: .*Terminated"):
        run_build(vivado=vivado)
    # What failed and was collected is not attached to: the next build is a new one, and passes.
    host.fault("")
    assert (run_build("again", vivado=connect()) / "bitstream.json").exists()


def test_deadline_stops_the_build_there(host: Host, connect: Connect, run_build: Builder, jobs: Path) -> None:
    vivado = connect()
    host.fault("hang")
    with pytest.raises(ToolTimeout, match="it was stopped"):
        run_build(vivado=vivado, deadline=Deadline.after(5))
    pid = int(next(jobs.glob("*/pid")).read_text())
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.killpg(pid, signal.SIGKILL)
    pytest.fail("the build is still running on the host")


def test_nothing_goes_on_there_after_a_build(host: Host, connect: Connect, run_build: Builder, jobs: Path) -> None:
    vivado = connect()
    host.fault("run_overtime")
    with pytest.raises(ToolTimeout, match="was still running after 180 minutes"):
        run_build(vivado=vivado)
    assert working_in(jobs) == []


def test_lost_build(host: Host, connect: Connect, run_build: Builder, jobs: Path) -> None:
    """The host was restarted: no process, no exit status."""
    vivado = connect()
    host.fault("slow:30")

    def end_it() -> None:
        while not (found := list(jobs.glob("*/pid"))):
            time.sleep(0.05)
        time.sleep(0.5)
        os.killpg(int(found[0].read_text()), signal.SIGKILL)

    killer = threading.Thread(target=end_it)
    killer.start()
    with pytest.raises(ToolFailed, match="vanished without an exit status"):
        run_build(vivado=vivado)
    killer.join()


def test_host_key_must_be_the_known_one(host: Host, connect: Connect) -> None:
    other = (host.folder / "user_key.pub").read_text().split()
    with pytest.raises(HostKeyChanged):
        connect(host_key=f"{other[0]} {other[1]}")


def test_unknown_host_is_not_trusted(connect: Connect) -> None:
    with pytest.raises(HostKeyChanged, match="not known"):
        connect(host_key=None)


def test_no_vivado_on_the_host(host: Host, connect: Connect) -> None:
    (host.folder / "empty.sh").write_text("export PATH=/usr/bin:/bin\n")
    with pytest.raises(ToolMissing, match="no Vivado on the build host"):
        connect(settings64=f"{host.folder}/empty.sh")


def test_wrong_user_key(connect: Connect, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True, timeout=30)
    with pytest.raises(ToolFailed, match="does not let us in"):
        connect(key_file=str(tmp_path / "k"))


def test_host_that_does_not_answer(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    site = BuildHost(host="127.0.0.1", port=port, user="nobody")
    with pytest.raises(ToolTimeout, match="does not answer"):
        RemoteVivado.connect(site, deadline=Deadline.after(1))
