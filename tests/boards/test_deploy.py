"""Deploy as a transaction, over real ssh: what goes wrong at any point leaves the old release current and working."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.base import errors
from pipelines.base.deadline import Deadline
from pipelines.base.files import HashCache
from pipelines.boards import push
from pipelines.boards.connection import Connection, accept_key, fingerprint
from pipelines.boards.deploy import PHASES, Deployed, deploy, many
from pipelines.boards.release import LocalRelease
from pipelines.boards.session import exclusive
from pipelines.report.benchmark import push_entries
from tests.boards.bench import BenchBoard, Proxy, descendants, make_release, plain_files

Releases = tuple[LocalRelease, LocalRelease]


def put(bench: BenchBoard, release: LocalRelease, **more: Any) -> Deployed:
    board = more.pop("board", None) or bench.board()
    address = more.pop("address", None) or bench.address()
    return deploy(board, address, release, bench.folder / "known_hosts", **more)


def works(bench: BenchBoard, release: LocalRelease) -> None:
    """The old release is current, whole, and runs a job; nothing else is half there."""
    assert bench.current() == release.id
    with_session = Connection(bench.address(), bench.folder / "known_hosts", Deadline.after(20))
    try:
        with exclusive(with_session, str(bench.root), "test", 10, Deadline.after(20)) as session:
            assert session.request("check", {"release": release.id, "staged": False, "again": True})["files"] > 0
            assert session.job("smoke", {}, seconds=20)["release"] == release.id
            facts = session.request("facts")
    finally:
        with_session.close()
    assert not facts["current_by_hand"]
    for entry in (bench.root / "releases").iterdir():  # whole, each of them
        manifest = json.loads((entry / "manifest.json").read_text())
        assert all((entry / part["name"]).exists() for part in manifest["subject"]), entry
    left = [name for name in os.listdir(bench.root / "staging") if not name.endswith(".part")]
    assert left == [], "the session above cleans what a cut left in staging"


def test_first_deploy_then_nothing_to_send(bench: BenchBoard, two_releases: Releases) -> None:
    old, _ = two_releases
    first = put(bench, old)
    assert (first.bytes_sent, first.previous) == (old.bytes, None)
    again = put(bench, old)
    assert (again.bytes_sent, again.previous) == (0, old.id)
    works(bench, old)


def test_only_what_is_new_is_sent(bench: BenchBoard, two_releases: Releases) -> None:
    old, new = two_releases
    put(bench, old)
    done = put(bench, new)
    known = {part.sha256 for part in old.parts}
    assert done.bytes_sent == sum(part.bytes for part in new.parts if part.sha256 not in known)
    assert done.previous == old.id
    assert not Path("pwned").exists() and not (bench.root / "pwned").exists()


def test_keeps_n_and_their_objects_only(bench: BenchBoard, tmp_path: Path) -> None:
    releases = [bench.release(tmp_path / f"r{i}", plain_files(i, size=1000)) for i in range(5)]
    board = bench.board(keep_releases=2)
    for release in releases:
        put(bench, release, board=board)
    assert {entry.name for entry in (bench.root / "releases").iterdir()} == {release.id for release in releases[-2:]}
    wanted = {part.sha256 for release in releases[-2:] for part in release.parts}
    assert {entry.name for entry in (bench.root / "objects").iterdir()} == wanted
    kept = [path for path in (bench.root / "pycache").rglob("*.pyc") if any(old.id in str(path) for old in releases)]
    assert kept == [], "byte code of what is gone would fill the card in a year of nights"


def test_what_cannot_be_removed_fails_no_deploy(bench: BenchBoard, two_releases: Releases) -> None:
    """The switch comes before the clearing: a deploy that has made its release current must not say that it failed."""
    old, new = two_releases
    put(bench, old)
    in_the_way = bench.root / "staging" / f"old-{old.id}"

    def on_phase(entered: str) -> None:
        if entered == "activate":
            (in_the_way / "something").mkdir(parents=True)

    one = bench.board(keep_releases=1)
    assert put(bench, new, board=one, on_phase=on_phase).release == new.id
    assert (bench.root / "releases" / old.id).exists(), "it could not be removed"
    works(bench, new)
    third = bench.release(bench.folder / "third", plain_files(3))
    (bench.root / "objects" / "a folder").mkdir()
    (bench.root / "objects" / "a link").symlink_to("nowhere")
    put(bench, third, board=one)
    assert [entry.name for entry in (bench.root / "releases").iterdir()] == [third.id]
    wanted = {part.sha256 for part in third.parts}
    assert {entry.name for entry in (bench.root / "objects").iterdir()} - {"a folder"} == wanted


def test_agents_of_other_hosts_are_removed_but_for_the_newest_and_those_in_use(
    bench: BenchBoard, two_releases: Releases
) -> None:
    """Each version of this program brings its own agent; a board must not fill up with them."""
    home = bench.root / "agent"
    for number in range(7):
        (home / f"{number:016x}" / "board_rt").mkdir(parents=True)
        os.utime(home / f"{number:016x}", (1000 + number, 1000 + number))
    (home / "00000000000000aa.4711").mkdir()  # one whose host was cut off while it was sent
    (home / "00000000000000bb.4712").mkdir()  # one that is being sent
    busy = [
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", str(home / name)])
        for name in ("0000000000000001", "00000000000000bb")
    ]
    try:
        put(bench, two_releases[0])
        left = {entry.name for entry in home.iterdir()}
    finally:
        for process in busy:
            process.kill()
            process.wait()
    (own,) = [name for name in left if not name.startswith("0000000000")]
    newest = {own, f"{4:016x}", f"{5:016x}", f"{6:016x}"}
    assert left == newest | {f"{1:016x}", "00000000000000bb.4712"}
    put(bench, two_releases[1])
    assert {entry.name for entry in home.iterdir()} == newest
    works(bench, two_releases[1])


def test_rollback(bench: BenchBoard, two_releases: Releases) -> None:
    old, new = two_releases
    put(bench, old)
    put(bench, new)
    connection = Connection(bench.address(), bench.folder / "known_hosts", Deadline.after(20))
    with exclusive(connection, str(bench.root), "rollback", 10, Deadline.after(20)) as session:
        assert session.request("before")["release"] == old.id
        session.request("rollback", {"release": old.id})
        with pytest.raises(errors.BoardUnfit, match="no earlier release"):
            session.request("before")
    connection.close()
    works(bench, old)


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase not in ("connect", "done")])
def test_connection_cut_at_every_phase(bench: BenchBoard, two_releases: Releases, phase: str) -> None:
    old, new = two_releases
    put(bench, old)
    proxy = Proxy(bench.port)

    def on_phase(entered: str) -> None:
        if entered == phase:
            proxy.cut()

    with pytest.raises((errors.BoardOffline, errors.TransferError)) as caught:
        put(bench, new, address=bench.address(port=proxy.port), on_phase=on_phase)
    proxy.close()
    assert caught.value.status == (5 if phase == "upload" else 4)
    works_soon(bench, old)
    assert put(bench, new).release == new.id
    works(bench, new)


@pytest.mark.parametrize("after", [2_000, 150_000, 400_000])
def test_connection_cut_in_the_middle_of_a_file_goes_on_there(
    bench: BenchBoard, two_releases: Releases, after: int
) -> None:
    old, new = two_releases
    put(bench, old)
    proxy = Proxy(bench.port)

    def on_phase(entered: str) -> None:
        if entered == "upload":
            proxy.cut_after = proxy.sent + after

    with pytest.raises(errors.TransferError) as caught:
        put(bench, new, address=bench.address(port=proxy.port), on_phase=on_phase)
    proxy.close()
    assert caught.value.status == 5
    works_soon(bench, old)
    done = put(bench, new)
    known = {part.sha256 for part in old.parts}
    whole = sum(part.bytes for part in new.parts if part.sha256 not in known)
    # A chunk may have been on its way; what had arrived is not sent again.
    assert done.bytes_sent <= whole - max(0, after - 2 * (1 << 18))
    works(bench, new)


def test_more_than_a_file_in_staging_is_begun_anew(bench: BenchBoard, two_releases: Releases) -> None:
    """What no upload of ours leaves, such as a file system that was repaired, must not stop every later deploy."""
    old, new = two_releases
    put(bench, old)
    part = new.parts[0]
    (bench.root / "staging" / f"{part.sha256}.part").write_bytes(bytes(part.bytes + 1))
    put(bench, new)
    works(bench, new)


@pytest.mark.parametrize(
    ("phase", "kind", "status"), [("upload", errors.TransferError, 5), ("smoke", errors.BoardOffline, 4)]
)
def test_a_cable_that_is_pulled_is_noticed(
    bench: BenchBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, kind: type[Exception], status: int
) -> None:
    """No end is told, and a phase may last for minutes: the board is gone when it answers no ping any more."""
    monkeypatch.setattr("pipelines.boards.session.SILENT_S", 3.0)
    monkeypatch.setattr("pipelines.boards.session.PING_EVERY_S", 0.5)
    old = bench.release(tmp_path / "old", plain_files(1))
    new = bench.release(tmp_path / "new", plain_files(2, size=6_000_000, behaviour="hang"))
    put(bench, old)
    proxy = Proxy(bench.port)
    pulled: list[float] = []

    def on_phase(entered: str) -> None:
        if entered == phase:
            proxy.silent = True
            pulled.append(time.monotonic())

    with pytest.raises(kind) as caught:
        put(bench, new, address=bench.address(port=proxy.port), on_phase=on_phase)
    assert isinstance(caught.value, errors.TritforgeError) and caught.value.status == status
    assert time.monotonic() - pulled[0] < 30
    proxy.close()
    end = time.monotonic() + 25  # the board hears nothing for its lease of 10 s, then frees itself
    while True:
        try:
            works(bench, old)
            return
        except errors.BoardBusy:
            assert time.monotonic() < end
            time.sleep(0.5)


def test_a_board_that_works_in_silence_is_not_given_up(
    bench: BenchBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.boards.session.SILENT_S", 2.0)
    monkeypatch.setattr("pipelines.boards.session.PING_EVERY_S", 0.5)
    monkeypatch.setattr("pipelines.boards.deploy.SMOKE_S", 6.0)
    with pytest.raises(errors.PlTimeout, match="did not end within 6 s"):
        put(bench, bench.release(tmp_path / "hangs", plain_files(3, behaviour="hang")))


def spec(bench: BenchBoard, release: LocalRelease, tmp_path: Path) -> Path:
    path = tmp_path / "spec.pickle"
    path.write_bytes(pickle.dumps((bench.board(), bench.address(), release.folder, bench.folder / "known_hosts")))
    return path


def deploy_process(spec_path: Path, phase: str, action: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.boards.deploy_once", str(spec_path), phase, action],
        cwd=root, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "done"])
def test_host_killed_at_every_phase(bench: BenchBoard, two_releases: Releases, tmp_path: Path, phase: str) -> None:
    old, new = two_releases
    put(bench, old)
    process = deploy_process(spec(bench, new, tmp_path), phase, "kill")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    works_soon(bench, old)
    put(bench, new)
    works(bench, new)


def works_soon(bench: BenchBoard, release: LocalRelease) -> None:
    """``works`` once the board noticed that its last host is gone, which takes it a moment."""
    end = time.monotonic() + 10
    while True:
        try:
            works(bench, release)
            return
        except errors.BoardBusy:
            assert time.monotonic() < end, "the lease of a dead host was not freed"
            time.sleep(0.1)


@pytest.fixture
def small_card(tmp_path: Path) -> Iterator[BenchBoard]:
    """A board whose card has 40 MB. Only root can mount one: itself, or through sudo."""
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if as_root and (shutil.which("sudo") is None or subprocess.run([*as_root, "true"], check=False).returncode != 0):
        pytest.skip("mounts a small file system: needs root, or sudo without a password")
    bench = BenchBoard(tmp_path / "small")
    options = f"size=40m,uid={os.getuid()},gid={os.getgid()},mode=755"
    subprocess.run([*as_root, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(bench.root)], check=True)
    yield bench
    bench.stop()
    subprocess.run([*as_root, "umount", "-l", str(bench.root)], check=True)


def fill(bench: BenchBoard, but: int = 0) -> Path:
    """Takes all that is free on a board's card, ``but`` so many bytes."""
    left = os.statvfs(bench.root)
    path = bench.root / "log"
    path.write_bytes(bytes(left.f_bavail * left.f_frsize - but))
    return path


def test_board_disk_full(small_card: BenchBoard, tmp_path: Path) -> None:
    bench = small_card
    old = bench.release(tmp_path / "old", plain_files(1))
    new = bench.release(tmp_path / "new", plain_files(2, size=6_000_000))
    put(bench, old)

    def on_phase(entered: str) -> None:
        if entered == "upload":  # after the preflight found room enough: somebody else takes it
            fill(bench, but=3_000_000)

    with pytest.raises(errors.BoardDiskFull) as caught:
        put(bench, new, on_phase=on_phase)
    assert caught.value.status == 4
    works(bench, old)
    # now the preflight itself refuses, before anything is sent
    with pytest.raises(errors.BoardDiskFull, match="disk"):
        put(bench, new)
    works(bench, old)
    (bench.root / "log").unlink()
    put(bench, new)
    works(bench, new)


def test_a_board_without_a_free_byte_runs_its_release(small_card: BenchBoard, tmp_path: Path) -> None:
    """Neither the lease nor a job needs room on the card."""
    old = small_card.release(tmp_path / "old", plain_files(1))
    new = small_card.release(tmp_path / "new", plain_files(2))
    put(small_card, old)
    fill(small_card)
    assert put(small_card, old).bytes_sent == 0
    with pytest.raises(errors.BoardDiskFull):
        put(small_card, new)
    works(small_card, old)
    assert not (small_card.root / "lease.json").exists(), "no note rather than somebody else's"


def test_an_agent_that_finds_no_room_says_so_and_leaves_nothing(small_card: BenchBoard, tmp_path: Path) -> None:
    fill(small_card)
    with pytest.raises(errors.BoardDiskFull, match="agent cannot be put") as caught:
        put(small_card, small_card.release(tmp_path / "r", plain_files(1)))
    assert "free space" in caught.value.hint
    (small_card.root / "log").unlink()
    fill(small_card, but=40_000)  # enough to begin, not to end
    with pytest.raises(errors.BoardDiskFull, match="agent cannot be put"):
        put(small_card, small_card.release(tmp_path / "s", plain_files(1)))
    assert list((small_card.root / "agent").iterdir()) == []


def test_a_full_board_is_cleared_of_what_failed_deploys_left(small_card: BenchBoard, tmp_path: Path) -> None:
    """What no release links to is removed when one is activated, which on a full card would never happen again."""
    bench = small_card
    size = 5_000_000
    keep = bench.board(keep_releases=2)
    kept = [bench.release(tmp_path / f"r{number}", plain_files(number, size=size)) for number in range(3)]
    for release in kept:
        put(bench, release, board=bench.board(keep_releases=3))
    bad = bench.release(tmp_path / "bad", plain_files(8, size=size, behaviour="fault PlTimeout"))
    with pytest.raises(errors.PlTimeout):
        put(bench, bad)
    works(bench, kept[-1])
    part = bench.root / "staging" / ("a" * 64 + ".part")
    part.write_bytes(bytes(1_000_000))
    good = bench.release(tmp_path / "good", plain_files(9, size=size))
    assert put(bench, good, board=keep).previous == kept[-1].id
    works(bench, good)
    assert {entry.name for entry in (bench.root / "releases").iterdir()} == {kept[-1].id, good.id}
    assert not part.exists()


def test_what_a_cut_left_of_a_small_file_is_removed(bench: BenchBoard, two_releases: Releases) -> None:
    put(bench, two_releases[0])
    for name in ("activated.json.4711.tmp", "lease.json.4712.tmp"):
        (bench.root / name).write_text("{")
    (bench.root / "current.4713.tmp").symlink_to("releases/ffffffff")
    works(bench, two_releases[0])
    assert list(bench.root.glob("*.tmp")) == []


def flip_a_byte(path: Path, *, keep_time: bool) -> None:
    stamp = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as stream:
        stream.seek(1000)
        byte = stream.read(1)[0]
        stream.seek(1000)
        stream.write(bytes([byte ^ 0x10]))
    path.chmod(0o444)
    if keep_time:
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def weights_of(release: LocalRelease) -> str:
    return next(part.sha256 for part in release.parts if part.name == "weights/weights.tfs")


def test_a_byte_that_was_changed_on_the_board_is_sent_again(bench: BenchBoard, two_releases: Releases) -> None:
    old, _ = two_releases
    put(bench, old)
    flip_a_byte(bench.root / "objects" / weights_of(old), keep_time=False)
    done = put(bench, old)
    assert done.bytes_sent == next(part.bytes for part in old.parts if part.name == "weights/weights.tfs")
    works(bench, old)


def test_a_byte_that_rotted_on_the_card_is_found_by_reading(bench: BenchBoard, two_releases: Releases) -> None:
    old, _ = two_releases
    put(bench, old)
    flip_a_byte(bench.root / "objects" / weights_of(old), keep_time=True)
    connection = Connection(bench.address(), bench.folder / "known_hosts", Deadline.after(20))
    with exclusive(connection, str(bench.root), "check", 10, Deadline.after(20)) as session:
        with pytest.raises(errors.TransferError, match="weights/weights.tfs.*not what the manifest says") as caught:
            session.request("check", {"release": old.id, "staged": False, "again": True})
    connection.close()
    assert caught.value.status == 5
    put(bench, old)
    works(bench, old)


def test_a_byte_that_rotted_on_this_machine_is_not_blamed_on_the_board(
    bench: BenchBoard, two_releases: Releases
) -> None:
    old, new = two_releases
    put(bench, old)
    file = new.folder / "weights/weights.tfs"
    hashes = HashCache(bench.folder / "hashes.json")
    os.utime(file, (1000, 1000))
    assert hashes.sha256(file) == weights_of(new)
    flip_a_byte(file, keep_time=True)
    assert hashes.sha256(file) == weights_of(new), "as the store sees it, nothing has changed"
    with pytest.raises(errors.TransferError, match="damaged on this machine") as caught:
        put(bench, new)
    assert caught.value.status == 5 and "card" not in caught.value.hint
    assert hashes.sha256(file) != weights_of(new), "the next run builds it again"
    works(bench, old)


def test_a_byte_that_changes_between_arrival_and_check(bench: BenchBoard, two_releases: Releases) -> None:
    old, new = two_releases
    put(bench, old)

    def on_phase(entered: str) -> None:
        if entered == "hashes":
            flip_a_byte(bench.root / "objects" / weights_of(new), keep_time=False)

    with pytest.raises(errors.TransferError, match="not what the manifest says"):
        put(bench, new, on_phase=on_phase)
    works(bench, old)
    put(bench, new)
    works(bench, new)


def test_a_manifest_that_was_changed_on_the_board(bench: BenchBoard, two_releases: Releases) -> None:
    old, _ = two_releases
    put(bench, old)
    manifest = bench.root / "releases" / old.id / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"contiguous_bytes": 1048576', '"contiguous_bytes": 1'))
    connection = Connection(bench.address(), bench.folder / "known_hosts", Deadline.after(20))
    with exclusive(connection, str(bench.root), "check", 10, Deadline.after(20)) as session:
        with pytest.raises(errors.TransferError, match="is not the one of that name"):
            session.request("check", {"release": old.id, "staged": False})
        with pytest.raises(errors.SignatureError):
            session.request("signature", {"release": old.id, "identity": old.identity, "staged": False})
    connection.close()
    assert put(bench, old).bytes_sent == 0
    works(bench, old)


def test_wrong_release_made_current_by_hand(bench: BenchBoard, two_releases: Releases) -> None:
    old, new = two_releases
    put(bench, old)
    put(bench, new)
    (bench.root / "current").unlink()
    (bench.root / "current").symlink_to(f"releases/{old.id}")
    connection = Connection(bench.address(), bench.folder / "known_hosts", Deadline.after(20))
    with exclusive(connection, str(bench.root), "generate", 10, Deadline.after(20)) as session:
        with pytest.raises(errors.MismatchError, match="made current by hand") as caught:
            session.job("generate", {}, seconds=10)
    connection.close()
    assert caught.value.status == 1
    with pytest.raises(errors.MismatchError, match="made current by hand"):
        put(bench, new, repair=False)
    put(bench, new)
    works(bench, new)
    (bench.root / "current").unlink()
    (bench.root / "current").symlink_to("releases/ffffffff")
    with pytest.raises(errors.MismatchError, match="what is no release was made current by hand"):
        put(bench, new, repair=False)
    put(bench, new, repair=True)
    works(bench, new)


def test_who_asks_what_runs_there_has_nothing_put_right(bench: BenchBoard, two_releases: Releases) -> None:
    """A verify that repaired a damaged board first would call it right."""
    old, new = two_releases
    put(bench, old, repair=False)  # nothing there yet
    put(bench, new, repair=False)  # another release, as a deploy left it
    path = bench.root / "objects" / weights_of(new)
    flip_a_byte(path, keep_time=False)
    damaged = path.read_bytes()
    with pytest.raises(errors.MismatchError, match="weights/weights.tfs' on the board is not what") as caught:
        put(bench, new, repair=False)
    assert caught.value.status == 1 and path.read_bytes() == damaged
    put(bench, new)
    works(bench, new)


def test_an_agent_that_lost_its_files_is_sent_again(bench: BenchBoard, two_releases: Releases) -> None:
    """As after a power cut on a card; and what is wrong with Python itself is said once more."""
    put(bench, two_releases[0])
    (folder,) = (bench.root / "agent").iterdir()
    shutil.rmtree(folder / "board_rt" / "__pycache__", ignore_errors=True)
    for name in ("agent.py", "files.py"):
        (folder / "board_rt" / name).write_bytes(b"")
    works(bench, two_releases[0])
    with pytest.raises(errors.BoardUnfit, match="ended with status"):
        put(bench, two_releases[0], address=dataclasses.replace(bench.address(), python="false"))


@pytest.mark.parametrize("greeting", ["welcome", "7"])
def test_a_login_that_prints_is_named(bench: BenchBoard, two_releases: Releases, greeting: str) -> None:
    keys = bench.folder / "authorized_keys"
    keys.write_text(f'command="echo {greeting}; eval \\"$SSH_ORIGINAL_COMMAND\\"" ' + keys.read_text())
    with pytest.raises(errors.BoardUnfit, match=f"no answer of the agent: b'{greeting}'") as caught:
        put(bench, two_releases[0])
    assert "print anything" in caught.value.hint


@pytest.mark.parametrize("text", ["[1]", "null", "{", "7"])
def test_notes_that_are_none_stop_nothing(bench: BenchBoard, two_releases: Releases, text: str) -> None:
    put(bench, two_releases[0])
    for name in ("lease.json", "checked.json", "history.json", "activated.json"):
        (bench.root / name).write_text(text)
    put(bench, two_releases[0])  # without activated.json nobody knows who made the link
    works(bench, two_releases[0])
    put(bench, two_releases[1])
    works(bench, two_releases[1])


def test_cma_too_small(bench: BenchBoard, two_releases: Releases, tmp_path: Path) -> None:
    old, new = two_releases
    put(bench, old)
    bench.describe(cma_mib=8, cma_free_mib=7)
    with pytest.raises(errors.BoardUnfit, match="cma is 8 MiB") as caught:
        put(bench, new)
    assert caught.value.status == 4 and "kernel's command line" in caught.value.hint
    works(bench, old)
    bench.describe(cma_mib=192, cma_free_mib=0)
    with pytest.raises(errors.BoardUnfit, match="cma free"):
        put(bench, new)
    works(bench, old)


def test_second_deploy_at_the_same_time(bench: BenchBoard, two_releases: Releases, tmp_path: Path) -> None:
    old, new = two_releases
    put(bench, old)
    process = deploy_process(spec(bench, new, tmp_path), "assemble", "wait")
    assert process.stdout is not None
    while process.stdout.readline().strip() != "assemble":
        pass
    with pytest.raises(errors.BoardBusy, match="deploy") as caught:
        put(bench, old)
    assert caught.value.status == 4
    assert f"process {process.pid}" in caught.value.message, "it says who holds the board"
    process.kill()
    process.communicate()
    works_soon(bench, old)


def test_lease_left_by_a_dead_process(bench: BenchBoard, two_releases: Releases) -> None:
    old, new = two_releases
    put(bench, old)
    (bench.root / "lease.json").write_text(
        json.dumps({"owner": "gone@elsewhere", "what": "deploy", "pid": 1, "boot_id": "x", "heartbeat": 1e9})
    )
    put(bench, new)
    works(bench, new)


def test_a_silent_holder_loses_the_board(bench: BenchBoard, two_releases: Releases) -> None:
    old, new = two_releases
    put(bench, old)
    connection = Connection(bench.address(), bench.folder / "known_hosts", Deadline.after(20))
    with exclusive(connection, str(bench.root), "long work", 1, Deadline.after(20)):
        pid = int(json.loads((bench.root / "lease.json").read_text())["pid"])
        os.kill(pid, signal.SIGSTOP)  # an agent that hangs: its lock holds, its heart does not beat
        with pytest.raises(errors.BoardBusy, match="long work"):
            put(bench, new)
        time.sleep(1.5)
        put(bench, new)
    connection.close()
    works(bench, new)


def test_host_key_changed(bench: BenchBoard, two_releases: Releases) -> None:
    old, new = two_releases
    put(bench, old)
    other = " ".join((bench.folder / "other_key.pub").read_text().split()[:2])
    with pytest.raises(errors.HostKeyChanged, match="not the pinned one") as caught:
        put(bench, new, address=bench.address(host_key=other))
    assert caught.value.status == 4
    works(bench, old)


@pytest.mark.parametrize("how", ["missing", "passphrase", "no key", "public half"])
def test_a_key_file_that_cannot_be_used_is_named(bench: BenchBoard, how: str) -> None:
    """To ssh it looks as if the board refused us or did not answer, and the hint would send people there."""
    file = bench.folder / "mine"
    if how == "passphrase":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", file], check=True)
    elif how == "no key":
        file.write_text("hello")
    elif how == "public half":
        file.write_text((bench.folder / "user_key.pub").read_text())
    address = dataclasses.replace(bench.address(), key_file=file)
    with pytest.raises(errors.ConfigError, match="key_file of bench") as caught:
        Connection(address, bench.folder / "known_hosts", Deadline.after(20))
    assert caught.value.status == 2 and ("ssh-add" in caught.value.hint) == (how == "passphrase")


@pytest.mark.parametrize(
    "key", ["ssh-ed25519 AAAA", "ssh-ed25519", "nonsense AAAAC3NzaC1lZDI1NTE5", "ssh-rsa ====", "x"]
)
def test_a_host_key_that_is_none_is_named(bench: BenchBoard, key: str) -> None:
    with pytest.raises(errors.ConfigError, match="host key of bench is no ssh key"):
        Connection(bench.address(host_key=key), bench.folder / "known_hosts", Deadline.after(20))


def test_a_host_name_that_none_can_have(bench: BenchBoard) -> None:
    for host in ("a" * 70, "..", "no such host"):
        with pytest.raises(errors.BoardOffline, match="does not answer"):
            Connection(
                dataclasses.replace(bench.address(), host=host), bench.folder / "known_hosts", Deadline.after(20)
            )


@pytest.mark.parametrize("after", [1, 300, 1500, 2500, 3200])
def test_connection_cut_while_it_is_made(bench: BenchBoard, two_releases: Releases, after: int) -> None:
    """In the greeting, in the key exchange, in the authentication, as the session starts."""
    old, new = two_releases
    put(bench, old)
    proxy = Proxy(bench.port)
    proxy.cut_after = after
    with pytest.raises(errors.BoardOffline) as caught:
        put(bench, new, address=bench.address(port=proxy.port))
    proxy.close()
    assert caught.value.status == 4
    works_soon(bench, old)


def test_a_fingerprint_is_what_ssh_keygen_prints(bench: BenchBoard) -> None:
    file = bench.folder / "host_key.pub"
    shown = subprocess.run(["ssh-keygen", "-lf", file], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert shown.split()[1] == fingerprint(file.read_text())


def test_unknown_host_key_is_accepted_once_and_explicitly(bench: BenchBoard, two_releases: Releases) -> None:
    old, _ = two_releases
    pinned = bench.address()
    address = type(pinned)(**{**vars(pinned), "host_key": None})
    with pytest.raises(errors.HostKeyChanged, match="not known"):
        put(bench, old, address=address)
    assert pinned.host_key is not None
    accept_key(bench.folder / "known_hosts", address, pinned.host_key)
    put(bench, old, address=address)
    works(bench, old)


@pytest.mark.parametrize("how", ["other key", "changed manifest", "no signature", "no text", "no signers"])
def test_signature_wrong(bench: BenchBoard, two_releases: Releases, tmp_path: Path, how: str) -> None:
    old, _ = two_releases
    put(bench, old)
    key = "other_key" if how == "other key" else "signing_key"
    new = bench.release(tmp_path / "bad", plain_files(7), key=key)
    if how == "changed manifest":
        text = (new.folder / "manifest.json").read_text()
        (new.folder / "manifest.json").write_text(text.replace('"contiguous_bytes": 1048576', '"contiguous_bytes": 1'))
        new = LocalRelease.read(new.folder)
    if how == "no signature":
        (new.folder / "manifest.json.sig").unlink()
    if how == "no text":
        (new.folder / "manifest.json.sig").write_bytes(b"\xff\xfe\x00")
    if how == "no signers":
        bench.signers.write_text("")
    with pytest.raises(errors.SignatureError) as caught:
        put(bench, new)
    assert caught.value.status == 4
    works(bench, old)


def test_board_rebooted_in_the_middle(bench: BenchBoard, two_releases: Releases) -> None:
    old, new = two_releases
    put(bench, old)
    sent: list[int] = []

    def on_bytes(done: int, total: int) -> None:
        if not sent and done > 300_000:
            sent.append(done)
            bench.stop()

    with pytest.raises((errors.TransferError, errors.BoardOffline)) as caught:
        put(bench, new, on_bytes=on_bytes)
    assert caught.value.status in (4, 5) and sent
    with pytest.raises(errors.BoardOffline):
        put(bench, new)
    bench.start()
    works(bench, old)
    put(bench, new)
    works(bench, new)


@pytest.mark.parametrize(
    ("behaviour", "kind", "status"),
    [
        ("fault PlTimeout", errors.PlTimeout, 4),
        ("fault MismatchError", errors.MismatchError, 1),
        ("fault BoardUnfit", errors.BoardUnfit, 4),
        ("crash", errors.BoardUnfit, 4),
    ],
)
def test_smoke_run_that_fails(
    bench: BenchBoard, two_releases: Releases, tmp_path: Path, behaviour: str, kind: type[Exception], status: int
) -> None:
    old, _ = two_releases
    put(bench, old)
    bad = bench.release(tmp_path / "bad", plain_files(9, behaviour=behaviour))
    with pytest.raises(kind) as caught:
        put(bench, bad)
    assert isinstance(caught.value, errors.TritforgeError) and caught.value.status == status
    works(bench, old)
    assert not (bench.root / "releases" / bad.id).exists()


def test_a_job_that_hangs_ends_at_its_deadline_and_with_its_host(
    bench: BenchBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.boards.deploy.SMOKE_S", 1.0)
    hangs = bench.release(tmp_path / "hangs", plain_files(3, behaviour="hang"))
    with pytest.raises(errors.PlTimeout, match="did not end within 1 s") as caught:
        put(bench, hangs)
    assert caught.value.status == 4
    assert bench.current() is None
    assert jobs_running(bench) == []


def jobs_running(bench: BenchBoard) -> list[int]:
    assert bench.process is not None
    found = []
    for pid in descendants(bench.process.pid):
        try:
            if b"\0job\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def test_a_job_ends_when_its_host_is_killed(bench: BenchBoard, tmp_path: Path) -> None:
    hangs = bench.release(tmp_path / "hangs", plain_files(3, behaviour="hang"))
    process = deploy_process(spec(bench, hangs, tmp_path), "nowhere", "none")
    end = time.monotonic() + 30
    while not jobs_running(bench):
        assert time.monotonic() < end
        time.sleep(0.05)
    process.kill()
    process.communicate()
    while jobs_running(bench):
        assert time.monotonic() < end + 10
        time.sleep(0.05)


def test_ctrl_c_ends_the_board_s_process_before_the_task(bench: BenchBoard, tmp_path: Path) -> None:
    hangs = bench.release(tmp_path / "hangs", plain_files(3))
    put(bench, hangs)
    (bench.root / "releases" / hangs.id / "behaviour").unlink()
    (bench.root / "releases" / hangs.id / "behaviour").write_text("hang")

    def interrupt() -> None:
        end = time.monotonic() + 60
        while not jobs_running(bench) and time.monotonic() < end:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    connection = Connection(bench.address(), bench.folder / "known_hosts", Deadline.after(20))
    with exclusive(connection, str(bench.root), "generate", 10, Deadline.after(20)) as session:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            session.job("generate", {}, seconds=300)
        assert jobs_running(bench) == []
    connection.close()


def test_stand_in_and_other_kinds_are_refused(bench: BenchBoard, tmp_path: Path) -> None:
    key = bench.folder / "signing_key"
    stand_in = make_release(tmp_path / "standin", plain_files(1), key, toolchains={"bitstream": "stand-in"},
                            board={"kind": "pynq-z1", "pl": "pynq"})  # fmt: skip
    real = bench.board().model_copy(update={"kind": "pynq-z1"})
    with pytest.raises(errors.Unshippable):
        put(bench, stand_in, board=real)
    with pytest.raises(errors.TransferError, match="kind pynq-z1"):
        put(bench, stand_in)
    assert bench.current() is None


@pytest.mark.parametrize(
    ("toolchain", "gates", "error"),
    [
        ("stand-in", {"passed": True, "gates": [{"name": "setup_slack", "passed": True}]}, errors.Unshippable),
        ("verilator", None, errors.Unshippable),
        ("vivado", None, errors.GateError),
        ("vivado", {"passed": False, "gates": [{"name": "setup_slack", "passed": False}]}, errors.GateError),
    ],
)
def test_what_is_no_gated_bitstream_is_not_sent_to_a_real_board(
    bench: BenchBoard, tmp_path: Path, toolchain: str, gates: object, error: type[errors.TritforgeError]
) -> None:
    """By what the bitstream says of itself, whatever the manifest says of it; nothing is asked of the board before."""
    files = {**plain_files(1), "bitstream/bitstream.json": json.dumps({"toolchain": toolchain}).encode()}
    if gates is not None:
        files["bitstream/gates.json"] = json.dumps(gates).encode()
    key = bench.folder / "signing_key"
    release = make_release(tmp_path / "release", files, key, board={"kind": "pynq-z1", "pl": "pynq"})
    phases: list[str] = []
    with pytest.raises(error):
        put(bench, release, board=bench.board().model_copy(update={"kind": "pynq-z1"}), on_phase=phases.append)
    assert phases == [] and bench.current() is None


def test_a_push_is_measured_beside_scp(bench: BenchBoard, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    size = 3 << 20
    pairs = push.against_scp(
        bench.address(), str(bench.root), bench.folder / "known_hosts", scratch, lease_s=10, size=size, pairs=2
    )
    assert [pair.scp_first for pair in pairs] == [False, True]
    assert all(pair.ours_s > 0 and pair.scp_s > 0 for pair in pairs)
    assert os.listdir(bench.root / "objects") == os.listdir(bench.root / "staging") == [], "nothing is left there"
    rate, ratio = push_entries("bench", size, [(2.0, 1.5), (1.0, 1.0), (1.0, 1.2)])
    assert (rate.figure.value, ratio.figure.value) == (round(size / 1e6, 2), 1.0)


def test_many_boards_with_a_canary() -> None:
    asked: list[str] = []
    lock = threading.Lock()

    def one(name: str) -> dict[str, Any]:
        with lock:
            asked.append(name)
        if name == "bad":
            raise errors.BoardOffline("no answer")
        return {"release": "r"}

    results = many(["a", "bad", "c"], one)
    assert asked[0] == "a" and sorted(asked) == ["a", "bad", "c"]
    assert [entry["status"] for entry in results] == ["passed", "failed", "passed"]
    asked.clear()
    results = many(["bad", "b", "c"], one)
    assert asked == ["bad"]
    assert [entry["status"] for entry in results] == ["failed", "skipped", "skipped"]


def test_a_fault_of_ours_hides_no_other_board_s_result() -> None:
    def one(name: str) -> dict[str, Any]:
        if name == "b":
            raise ValueError("never thought of")
        return {"release": "r"}

    results = many(["a", "b", "c"], one)
    assert [entry["exit_status"] for entry in results] == [0, 3, 0]
    assert "never thought of" in results[1]["error"]["message"]


def test_ctrl_c_ends_the_deploys_to_all_boards(
    bench: BenchBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python waits for its threads, and one that waits for a board would go on for minutes."""
    monkeypatch.setattr("pipelines.boards.deploy.stop_all_tools", lambda: None)  # it is for good
    hangs = bench.release(tmp_path / "hangs", plain_files(3, behaviour="hang"))

    def one(name: str) -> dict[str, Any]:
        if name == "b":
            put(bench, hangs)
        if name == "c":
            end = time.monotonic() + 60
            while not jobs_running(bench):
                assert time.monotonic() < end
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)
        return {}

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        many(["a", "b", "c"], one)
    assert time.monotonic() - started < 60, "the job alone has 300 s"
    while jobs_running(bench):
        assert time.monotonic() - started < 90
        time.sleep(0.05)
