"""The artefacts of a checkout: content-addressed, immutable, and complete whenever they can be seen.

    .tritforge/store/<digest>/          the files of an artefact; the digest is of their names and contents
    .tritforge/records/<key>.json       inputs, digest, file list, times and provenance of the build with that key
    .tritforge/latest/<stage>.json      the key that a stage was last built or used with
    .tritforge/work/<key>-…/            where builders write; nobody's once the lock of its key is free
    .tritforge/locks/<key>.lock         one process builds, others wait

Order of a build: files into ``work``, fsync, rename into ``store``, then the record (atomic). An artefact exists only
once its record does, so a process killed at any instant leaves either nothing or all of it.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.base.deadline import Deadline
from pipelines.base.errors import StoreError
from pipelines.base.files import (
    HashCache,
    canonical_json,
    disk_errors,
    files_below,
    fsync_folder,
    read_json,
    sha256_bytes,
    sha256_file,
    write_json,
)
from pipelines.base.lock import held

SETTLE_S = 300.0  # a rename and a small file, or the removal of some gigabytes


@dataclass(frozen=True)
class Artefact:
    """A finished artefact. ``files`` maps relative paths to SHA-256 and size in bytes."""

    name: str
    key: str
    digest: str
    folder: Path
    files: dict[str, tuple[str, int]]
    record: dict[str, Any]

    @property
    def toolchain(self) -> str:
        return str(self.record.get("toolchain", ""))

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.files.values())


class Store:
    """The store below one state folder (``.tritforge``)."""

    def __init__(self, state: Path, hashes: HashCache) -> None:
        self.state = state
        self.hashes = hashes

    # ------------------------------------------------------------------------------------------------- reading

    def record(self, key: str) -> dict[str, Any] | None:
        """The record of a build, whether or not its files are still there."""
        try:
            loaded = read_json(self._record_path(key))
        except (OSError, ValueError):
            return None
        return loaded if isinstance(loaded, dict) and loaded.get("key") == key else None

    def find(self, key: str) -> Artefact | None:
        """The artefact of a key, if it is complete and undamaged."""
        record = self.record(key)
        if record is None:
            return None
        artefact = self._artefact(record)
        return artefact if self.damage(artefact) is None else None

    def damage(self, artefact: Artefact) -> str | None:
        """What is wrong with an artefact's files, or None. Unchanged files are not read again."""
        for name, (digest, size) in artefact.files.items():
            path = artefact.folder / name
            try:
                if path.stat().st_size != size or self.hashes.sha256(path) != digest:
                    return f"{name} is damaged"
            except OSError:
                return f"{name} is missing"
        return None

    def damage_of(self, key: str) -> str | None:
        """What is wrong with the artefact that was built under a key; None when none was, or nothing is wrong."""
        record = self.record(key)
        return self.damage(self._artefact(record)) if record is not None else None

    def latest(self, stage: str) -> dict[str, Any] | None:
        """The record that a stage was last built or used with: what its inputs are compared to."""
        try:
            key = read_json(self._latest_path(stage))["key"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return self.record(str(key))

    def artefacts(self) -> Iterator[Artefact]:
        """All recorded artefacts, undamaged or not."""
        for path in sorted((self.state / "records").glob("*.json")):
            record = self.record(path.stem)
            if record is not None:
                yield self._artefact(record)

    # ------------------------------------------------------------------------------------------------- writing

    @contextmanager
    def building(self, key: str, what: str, deadline: Deadline, on_wait: Any = None) -> Iterator[None]:
        """The right to build a key: held by one process at a time, freed by the kernel if that process dies."""
        with held(self.state / "locks" / f"{key}.lock", what, deadline=deadline, on_wait=on_wait):
            # Whoever left a folder here is dead: the lock is ours.
            for leftover in (self.state / "work").glob(f"{key[:16]}-*"):
                remove_tree(leftover)
            yield

    def work_folder(self, key: str) -> Path:
        """An empty folder for a builder, on the same file system as the store."""
        work = self.state / "work"
        with disk_errors(str(work)):
            work.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=f"{key[:16]}-{os.getpid()}-", dir=work))

    def add(self, folder: Path, record: dict[str, Any]) -> Artefact:
        """Takes a finished folder as the artefact of ``record`` (name, key, …), which gets digest and file list.

        The caller holds the key's lock. The folder is gone afterwards.
        """
        for path in folder.rglob("*"):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise StoreError(
                    f"stage '{record['name']}' made '{path.relative_to(folder)}', which is no file and no folder"
                )
        listing: dict[str, tuple[str, int]] = {}
        with disk_errors(str(self.state / "store")):
            for path in files_below(folder):
                seal(path)
                listing[path.relative_to(folder).as_posix()] = (sha256_file(path), path.stat().st_size)
            if not listing:
                raise StoreError(f"stage '{record['name']}' made no file")
            for inner in [path for path in folder.rglob("*") if path.is_dir()] + [folder]:
                fsync_folder(inner)
            digest = tree_digest(listing)
            target = self.state / "store" / digest
            target.parent.mkdir(parents=True, exist_ok=True)
            complete = dict(record, digest=digest, files={name: list(entry) for name, entry in listing.items()})
            artefact = self._artefact(complete)
            # Files without a record are what `sweep` removes: it must not come in between.
            with self._settled():
                self._place(folder, artefact)
                write_json(self._record_path(record["key"]), complete)
        self.use(artefact)
        return artefact

    def use(self, artefact: Artefact) -> None:
        """Notes that a stage stands at this key now."""
        if (self.latest(artefact.name) or {}).get("key") != artefact.key:
            write_json(self._latest_path(artefact.name), {"key": artefact.key})

    def remove(self, artefact: Artefact) -> None:
        """Forgets one build. Its files go with :meth:`sweep`, since another build may have made the same."""
        self._record_path(artefact.key).unlink(missing_ok=True)

    def sweep(self) -> int:
        """Removes files that no record names, and work folders of the dead. Returns bytes freed."""
        freed = 0
        with self._settled():
            needed = {artefact.digest for artefact in self.artefacts()}
            for folder in _folders(self.state / "store"):
                if folder.name not in needed:
                    freed += remove_tree(folder)
        for folder in _folders(self.state / "work"):
            pid = folder.name.split("-")[1] if folder.name.count("-") >= 2 else ""
            if not (pid.isdecimal() and Path(f"/proc/{pid}").exists()):
                freed += remove_tree(folder)
        return freed

    # ------------------------------------------------------------------------------------------------- private

    def _settled(self) -> AbstractContextManager[None]:
        return held(self.state / "locks" / "store.lock", "change the store", deadline=Deadline.after(SETTLE_S))

    def _place(self, folder: Path, artefact: Artefact) -> None:
        """Renames a finished folder to its digest. What is there already is the same, unless it was damaged."""
        target = artefact.folder
        for _ in range(3):
            try:
                folder.rename(target)
                fsync_folder(target.parent)
                return
            except OSError:
                if not target.is_dir():
                    raise
            if self.damage(artefact) is None:
                remove_tree(folder)
                return
            # Out of the way in one step, so that no reader meets half of it.
            broken = Path(tempfile.mkdtemp(prefix="damaged-", dir=self.state / "work"))
            target.rename(broken / "tree")
            remove_tree(broken)
        raise StoreError(f"the artefact of stage '{artefact.name}' could not be put into the store")

    def _artefact(self, record: dict[str, Any]) -> Artefact:
        digest = str(record["digest"])
        files = {str(name): (str(entry[0]), int(entry[1])) for name, entry in record["files"].items()}
        return Artefact(str(record["name"]), str(record["key"]), digest, self.state / "store" / digest, files, record)

    def _record_path(self, key: str) -> Path:
        return self.state / "records" / f"{key}.json"

    def _latest_path(self, stage: str) -> Path:
        return self.state / "latest" / f"{stage}.json"


def tree_digest(files: dict[str, tuple[str, int]]) -> str:
    """The content id of a folder: of its relative paths and their contents, of nothing else."""
    return sha256_bytes(canonical_json({name: digest for name, (digest, _) in files.items()}))


def seal(path: Path) -> None:
    """Makes a finished file read-only and safe on the disk."""
    executable = path.stat().st_mode & stat.S_IXUSR
    path.chmod(0o555 if executable else 0o444)
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_tree(folder: Path) -> int:
    """Removes a folder, also a read-only one. Returns the bytes that no other hard link still holds."""
    freed = 0
    for path in folder.rglob("*"):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            freed += status.st_size
    shutil.rmtree(folder, ignore_errors=True)
    return freed


def _folders(parent: Path) -> Iterable[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []
