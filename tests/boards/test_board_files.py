"""The board's files where they cannot be written, and its lease between threads; no ssh in here."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from board_rt import lease as lease_module
from board_rt import releases as releases_module
from board_rt.lease import Lease
from board_rt.releases import Releases


def full(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_rollback_that_has_switched_does_not_say_that_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Releases(str(tmp_path))
    board.prepare()
    for name in ("a" * 64, "b" * 64):
        (tmp_path / "releases" / name).mkdir()
        board.activate(name)
    write = releases_module.write_json

    def write_json(path: str, value: object) -> None:
        if path == board.history_path:
            full()
        write(path, value)

    monkeypatch.setattr(releases_module, "write_json", write_json)
    assert board.go_back() == ("a" * 64, "b" * 64)
    assert board.current() == "a" * 64 and not board.by_hand()
    with pytest.raises(Exception, match="no earlier release"):
        board.before()


def test_a_part_that_was_sent_again_is_whole_in_every_release_that_has_it(tmp_path: Path) -> None:
    board = Releases(str(tmp_path))
    board.prepare()
    weights = b"the same in both"
    digest = hashlib.sha256(weights).hexdigest()
    names = []
    for other in (b"one", b"two"):
        parts = {"weights/a b.tfw": weights, "runtime": other}
        for content in parts.values():
            found = hashlib.sha256(content).hexdigest()
            if board.objects.missing([found]):
                board.objects.receive(found, len(content), 0, [content])
        subject = [
            {"name": name, "digest": {"sha256": hashlib.sha256(part).hexdigest()}} for name, part in parts.items()
        ]
        manifest = json.dumps({"subject": subject})
        name = hashlib.sha256(manifest.encode()).hexdigest()
        board.assemble(name, manifest, "")
        board.install(name)
        names.append(name)
    os.chmod(board.objects.path(digest), 0o644)
    Path(board.objects.path(digest)).write_bytes(weights[::-1])
    for name in names:
        with pytest.raises(Exception, match="is not what the manifest says"):
            board.check(board.path(name), again=True)
    assert board.objects.missing([digest])
    board.objects.drop(digest)
    board.objects.receive(digest, len(weights), 0, [weights])
    board.assemble(names[1], Path(board.path(names[1]), "manifest.json").read_text(), "")
    board.install(names[1])
    for name in names:
        assert board.check(board.path(name), again=True)[0] == 2
    assert os.listdir(board.staging) == []


def test_a_lease_on_a_full_card_holds_and_is_nobody_else_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lease.json").write_text(json.dumps({"owner": "gone", "pid": 1}))
    with monkeypatch.context() as patch:
        patch.setattr(lease_module, "write_json", full)
        held = Lease(str(tmp_path))
        held.acquire("me", "work", 10)
    assert not (tmp_path / "lease.json").exists()
    with pytest.raises(Exception, match="another session"):
        Lease(str(tmp_path)).acquire("you", "work", 10)
    held.beat()
    assert json.loads((tmp_path / "lease.json").read_text())["owner"] == "me", "it says so once there is room"
    held.release()
    assert os.listdir(tmp_path) == ["lease.lock"]


def test_a_heart_that_beats_while_the_lease_is_given_back_leaves_nothing(tmp_path: Path) -> None:
    for _ in range(200):
        held = Lease(str(tmp_path))
        held.acquire("me", "work", 10)
        failed: list[BaseException] = []

        def beats(held: Lease = held, failed: list[BaseException] = failed) -> None:
            try:
                for _ in range(5):
                    held.beat()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=beats)
        thread.start()
        held.release()
        thread.join()
        assert failed == [] and os.listdir(tmp_path) == ["lease.lock"]


def test_a_heartbeat_does_not_wait_for_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow card is busy for longer than a lease holds when a release was written to it."""
    held = Lease(str(tmp_path))
    held.acquire("me", "work", 10)
    monkeypatch.setattr(os, "fsync", full)
    held.beat()
    held.release()
