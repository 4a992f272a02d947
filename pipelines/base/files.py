"""The one way to write a file so that nobody ever sees half of it, and to know a file by its contents."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pipelines.base.errors import DiskFull

CHUNK_BYTES = 1 << 20

RECENT_NS = 2_000_000_000
"""A file changed less than this before it was hashed may change again without a new timestamp: not remembered."""


@contextlib.contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Turns 'no space left' on this machine into DiskFull, saying what was being written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"no space left on this machine while writing {what}",
                hint="'./inv clean' removes artefacts that no release needs",
            ) from error
        raise


def fsync_folder(folder: Path) -> None:
    """Makes a rename or a new name inside ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def atomic_file(path: Path, *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """A binary file that appears at ``path`` whole (temp, fsync, rename, fsync of the folder), or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors(str(path)):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
                stream.flush()
                os.fchmod(stream.fileno(), mode)
                os.fsync(stream.fileno())
            temporary.replace(path)
            fsync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_bytes(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Atomic write of bytes."""
    with atomic_file(path, mode=mode) as stream:
        stream.write(data)


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Atomic write of UTF-8 text with ``\\n`` line ends."""
    write_bytes(path, text.encode("utf-8"), mode=mode)


def write_json(path: Path, value: Any, *, mode: int = 0o644) -> None:
    """Atomic write of readable JSON (indented, keys in the order given, final newline)."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n", mode=mode)


def canonical_json(value: Any) -> bytes:
    """The one byte string for a JSON value: sorted keys, no spaces. What is hashed and signed is this."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's contents, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


class HashCache:
    """SHA-256 of files, not computed again while size, mtime and inode are unchanged.

    The file at ``path`` is a cache and nothing more: it may be deleted, and one that cannot be read is started anew.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, list[Any]] | None = None
        self._dirty = False

    def sha256(self, path: Path) -> str:
        status = path.stat()
        stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
        known = self._load()
        key = os.path.abspath(path)  # not resolved: that asks for every folder on the way, of hundreds of files
        entry = known.get(key)
        if entry is not None and entry[:-1] == stamp:
            return str(entry[-1])
        digest = sha256_file(path)
        if time.time_ns() - status.st_mtime_ns > RECENT_NS:
            known[key] = [*stamp, digest]
            self._dirty = True
        return digest

    def save(self) -> None:
        """Keeps what was learned. Two processes saving at once lose at most some entries, never the file."""
        if self._dirty and self._known is not None:
            write_bytes(self.path, canonical_json(self._known))
            self._dirty = False

    def _load(self) -> dict[str, list[Any]]:
        if self._known is None:
            try:
                loaded = read_json(self.path)
                self._known = {
                    key: entry for key, entry in loaded.items() if isinstance(entry, list) and len(entry) == 4
                }
            except (OSError, ValueError, AttributeError):
                self._known = {}
        return self._known


def files_below(folder: Path) -> list[Path]:
    """All regular files below a folder, sorted by their path; links are not followed."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())
