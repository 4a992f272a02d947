"""Figures over the nights, in SQLite. The nights' own files are the source; this is their index, and can be made again.

A night is added in one transaction, keyed by its name: adding it twice changes nothing, and a process that is killed in
the middle leaves nothing of it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.errors import FormatError, StoreError, TritforgeError
from pipelines.base.figure import Evidence, Figure
from pipelines.base.files import disk_errors
from pipelines.report.figures import Named, of_night
from pipelines.report.night import Night, nights, read

SCHEMA_VERSION = 1
BUSY_S = 30.0  # another process may be adding its night
SCHEMA = (
    """CREATE TABLE night (
        name TEXT PRIMARY KEY, started TEXT NOT NULL, pipeline TEXT NOT NULL, board TEXT NOT NULL,
        model TEXT NOT NULL, machine TEXT NOT NULL, commit_name TEXT NOT NULL, release TEXT NOT NULL,
        status TEXT NOT NULL) STRICT""",
    """CREATE TABLE figure (
        night TEXT NOT NULL REFERENCES night (name) ON DELETE CASCADE, name TEXT NOT NULL, value REAL NOT NULL,
        unit TEXT NOT NULL, evidence TEXT NOT NULL CHECK (evidence IN ('silicon', 'rtl', 'model', 'reference')),
        how TEXT NOT NULL, PRIMARY KEY (night, name)) STRICT""",
    "CREATE INDEX figure_by_name ON figure (name)",
)


@dataclass(frozen=True)
class Point:
    """A figure of one night, and what decides which others it may be compared with."""

    night: str
    figure: Figure
    board: str
    model: str
    machine: str
    commit: str
    release: str

    @property
    def kind(self) -> tuple[str, ...]:
        """Points of the same kind are comparable: same board, model, build host, unit and evidence."""
        return (self.board, self.model, self.machine, self.figure.unit, self.figure.evidence)


class History:
    """The database. Use as a context manager; raises StoreError for a file that is none, or is of a newer schema."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._errors():
            # Autocommit: transactions are begun where they are needed, and seen there.
            self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
            self._db.execute("PRAGMA foreign_keys = ON")
            self._db.execute("PRAGMA synchronous = FULL")
            self._upgrade()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def add(self, night: Night) -> bool:
        """Adds or replaces a night. False when it was there as it is."""
        with self._errors(), self._transaction():
            return self._add(night)

    def take_in(self, folder: Path) -> list[TritforgeError]:
        """Adds all records of a folder that are not in yet. Returns the faults of those that cannot be read."""
        faults: list[TritforgeError] = []
        paths = nights(folder)
        newest = paths[-1].stem if paths else ""
        with self._errors(), self._transaction():
            known = {row[0] for row in self._db.execute("SELECT name FROM night")}
            for path in paths:
                if path.stem in known and path.stem != newest:  # the newest may have been written again
                    continue
                try:
                    self._add(read(path))
                except FormatError as error:
                    faults.append(error)
        return faults

    def _add(self, night: Night) -> bool:
        row = (
            night.name, night.started.isoformat(), night.pipeline, night.board, night.model, night.machine,
            night.commit, night.release, night.status,
        )  # fmt: skip
        rows = _rows(night.name, of_night(night))
        if self._db.execute("SELECT * FROM night WHERE name = ?", (night.name,)).fetchone() == row:
            there = self._db.execute("SELECT * FROM figure WHERE night = ? ORDER BY name", (night.name,)).fetchall()
            if there == sorted(rows, key=lambda figure: figure[1]):
                return False
        self._db.execute("DELETE FROM night WHERE name = ?", (night.name,))
        self._db.execute(f"INSERT INTO night VALUES ({','.join('?' * len(row))})", row)
        self._db.executemany("INSERT OR REPLACE INTO figure VALUES (?, ?, ?, ?, ?, ?)", rows)
        return True

    def names(self) -> list[str]:
        with self._errors():
            return [str(row[0]) for row in self._db.execute("SELECT DISTINCT name FROM figure ORDER BY name")]

    def points(self, name: str) -> list[Point]:
        """All points of a figure, oldest night first."""
        query = """SELECT night.name, value, unit, evidence, board, model, machine, commit_name, release
            FROM figure JOIN night ON night.name = figure.night WHERE figure.name = ? ORDER BY night.name"""
        with self._errors():
            rows = self._db.execute(query, (name,)).fetchall()
        return [_point(row) for row in rows]

    def nights(self) -> list[str]:
        with self._errors():
            return [str(row[0]) for row in self._db.execute("SELECT name FROM night ORDER BY name")]

    def check(self) -> None:
        """Raises StoreError when SQLite, a reference or a night without a figure it must have says that rows broke."""
        with self._errors():
            said = [row[0] for row in self._db.execute("PRAGMA integrity_check")]
            orphans = self._db.execute("PRAGMA foreign_key_check").fetchall()
        if said != ["ok"] or orphans:
            raise StoreError(f"{self.path} is damaged: {said}, {len(orphans)} rows without a night", hint=REMAKE)

    def _upgrade(self) -> None:
        with self._transaction():
            version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path} has schema {version}, this tritforge knows up to {SCHEMA_VERSION}",
                    hint="use the newer tritforge, or move the file away: it is made again from the nights' records",
                )
            if version == 0:
                for statement in SCHEMA:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with disk_errors(str(self.path)):
                yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}", hint=REMAKE) from error


REMAKE = "move the file away: it is made again from the nights' records"


def _rows(night: str, figures: Sequence[Named]) -> list[tuple[str, str, float, str, str, str]]:
    return [
        (night, named.name, float(named.figure.value), named.figure.unit, named.figure.evidence, named.how)
        for named in figures
    ]


def _point(row: tuple[str, float, str, Evidence, str, str, str, str, str]) -> Point:
    night, value, unit, evidence, board, model, machine, commit, release = row
    return Point(night, Figure(value, unit, evidence), board, model, machine, commit, release)
