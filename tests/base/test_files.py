"""Files that are there whole or not at all, and are known by their contents."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from pipelines.base import files
from pipelines.base.errors import DiskFull
from pipelines.base.files import HashCache, atomic_file, canonical_json, disk_errors, sha256_bytes, sha256_file


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    files.write_json(path, {"a": 1})
    with pytest.raises(RuntimeError), atomic_file(path) as stream:
        stream.write(b"half of it")
        raise RuntimeError("in the middle")
    assert files.read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull, match="value") as caught:
        files.write_text(tmp_path / "value", "text")
    assert caught.value.status == 3
    assert not list(tmp_path.iterdir())
    with pytest.raises(PermissionError), disk_errors("a file"):
        raise PermissionError(errno.EACCES, "no")


def test_mode_and_line_ends(tmp_path: Path) -> None:
    files.write_text(tmp_path / "key", "a\nb\n", mode=0o600)
    assert (tmp_path / "key").read_bytes() == b"a\nb\n"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_canonical_json_has_one_form() -> None:
    assert canonical_json({"b": 1, "a": [True, None, "ü"]}) == '{"a":[true,null,"ü"],"b":1}'.encode()


def age(path: Path, seconds: float) -> None:
    then = time.time_ns() - int(seconds * 1e9)
    os.utime(path, ns=(then, then))


def test_hashes_are_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "large"
    source.write_bytes(b"contents")
    age(source, 60)
    cache = HashCache(tmp_path / "state" / "hashes.json")
    assert cache.sha256(source) == sha256_bytes(b"contents")
    cache.save()
    reads: list[Path] = []
    monkeypatch.setattr(files, "sha256_file", lambda path: reads.append(path) or "read again")
    later = HashCache(tmp_path / "state" / "hashes.json")
    assert later.sha256(source) == sha256_bytes(b"contents")
    assert reads == []
    age(source, 30)  # another mtime, the same size
    assert later.sha256(source) == "read again"


def test_a_file_that_may_still_change_is_not_remembered(tmp_path: Path) -> None:
    source = tmp_path / "fresh"
    source.write_bytes(b"one")
    cache = HashCache(tmp_path / "hashes.json")
    stamp = source.stat()
    assert cache.sha256(source) == sha256_bytes(b"one")
    source.write_bytes(b"two")
    os.utime(source, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # the same size, mtime and inode
    assert cache.sha256(source) == sha256_bytes(b"two")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 3}', '{"/etc/hostname": [1, 2]}'])
def test_a_damaged_cache_is_started_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / "hashes.json").write_text(content)
    source = tmp_path / "source"
    source.write_bytes(b"x")
    assert HashCache(tmp_path / "hashes.json").sha256(source) == sha256_file(source)
