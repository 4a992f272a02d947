"""All of ``config/`` at once: read, validated, and checked across files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from pipelines.base.errors import ConfigError
from pipelines.base.names import unknown
from pipelines.config.board import Board
from pipelines.config.memory import MemoryPlan, memory_plan
from pipelines.config.model import ModelConfig
from pipelines.config.pipeline import Pipeline
from pipelines.config.reader import Document, KeyPath, Position, read_yaml, scalar
from pipelines.config.tritforge import Tritforge
from pipelines.config.validation import validate
from pipelines.golden import formats
from pipelines.vivado.design import BitstreamDesign

ROOT = Path(__file__).resolve().parents[2]
"""The repository: where relative paths of the configuration start."""

FOLDERS = ("boards", "bitstreams", "models", "pipelines")

Model = TypeVar("Model", bound=BaseModel)


class Entry(Generic[Model]):
    """One file: its document and, once asked for, its model."""

    def __init__(self, document: Document, kind: type[Model]) -> None:
        self.document = document
        self.kind = kind

    @cached_property
    def model(self) -> Model:
        return validate(self.document, self.kind)

    def fault(self, path: KeyPath, message: str, *, hint: str = "") -> ConfigError:
        return ConfigError(f"{self.document.position(path)}: {message}", hint=hint)


@dataclass(frozen=True)
class Choice:
    """What a command works on: a board with its bitstream, and a model, that fit each other."""

    board: Board
    bitstream: BitstreamDesign
    model: ModelConfig


class Settings:
    """The configuration of a checkout.

    ``overrides`` are ``--set key=value`` texts, such as ``boards.emu1.cma_mib=256`` or ``model=tiny``. ``environment``
    may hold TRITFORGE_BOARD and TRITFORGE_MODEL. Raises ConfigError.
    """

    def __init__(
        self, root: Path = ROOT, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.root = root
        self._overrides = [_parsed_override(text) for text in overrides]
        self.main = Entry(self._document(root / "config" / "tritforge.yaml"), Tritforge)
        self.boards = self._folder("boards", Board)
        self.bitstreams = self._folder("bitstreams", BitstreamDesign)
        self.models = self._folder("models", ModelConfig)
        self.pipelines = self._folder("pipelines", Pipeline)
        self._apply_overrides()
        environment = os.environ if environment is None else environment
        for variable, key in (("TRITFORGE_BOARD", "board"), ("TRITFORGE_MODEL", "model")):
            if environment.get(variable) and not any(path == (key,) for path, _, _ in self._overrides):
                self.main.document.override((key,), environment[variable], Position(variable))

    # --------------------------------------------------------------------------------------------- one by name

    def board(self, name: str | None = None) -> Board:
        return self._named("board", name, self.boards)

    def model(self, name: str | None = None) -> ModelConfig:
        return self._named("model", name, self.models)

    def pipeline(self, name: str | None = None) -> Pipeline:
        return self._named("pipeline", name, self.pipelines)

    def bitstream_of(self, board: Board) -> BitstreamDesign:
        if board.bitstream not in self.bitstreams:
            raise self.boards[board.name].fault(("bitstream",), unknown("bitstream", board.bitstream, self.bitstreams))
        return self.bitstreams[board.bitstream].model

    def board_names(self, names: Sequence[str]) -> list[str]:
        """Boards for ``--board`` values, each a board or a group; the default board when there are none."""
        if not names:
            return [self.board().name]
        chosen: list[str] = []
        for name in names:
            if name in self.boards:
                members = [name]
            else:
                members = [other for other in self.boards if name in self.boards[other].model.groups]
                if not members:
                    groups = {group for entry in self.boards.values() for group in entry.model.groups}
                    raise ConfigError(unknown("board", name, {*self.boards, *groups}))
            chosen += [member for member in members if member not in chosen]
        return chosen

    # ----------------------------------------------------------------------------------------- across the files

    def choose(self, board_name: str | None = None, model_name: str | None = None) -> Choice:
        """A board and a model that fit each other. Raises ConfigError, placed at the value to change."""
        board = self.board(board_name)
        bitstream = self.bitstream_of(board)
        model = self.model(model_name)
        choice = Choice(board, bitstream, model)
        self._check_context(choice)
        self._check_memory(choice)
        return choice

    def check(self) -> None:
        """Every file, every reference, and the defaults against each other: what ``doctor`` and the tests ask for."""
        entries = [self.main, *self.boards.values(), *self.bitstreams.values()]
        for entry in [*entries, *self.models.values(), *self.pipelines.values()]:
            assert isinstance(entry, Entry)
            entry.model  # noqa: B018  validation is the access
        for board_entry in self.boards.values():
            self.bitstream_of(board_entry.model)
        self.pipeline()
        self.choose()

    def plan_of(self, choice: Choice) -> MemoryPlan | None:
        """The memory plan, or None while the shape is known only to the checkpoint."""
        shape = choice.model.shape
        if shape is None:
            return None
        return memory_plan(
            shape,
            context=choice.model.context,
            head_planes=choice.model.head_planes,
            max_transfer_bytes=choice.bitstream.dma.max_transfer_bytes,
        )

    def path(self, text: str) -> Path:
        """A path of the configuration, absolute."""
        path = Path(text).expanduser()
        return path if path.is_absolute() else self.root / path

    def _check_context(self, choice: Choice) -> None:
        largest = choice.bitstream.shell.parameters.get("MAX_POSITIONS", formats.MAX_CONTEXT_BOARD)
        if choice.model.context > largest:
            raise self.models[choice.model.name].fault(
                ("context",),
                f"context is {choice.model.context}, but bitstream '{choice.bitstream.name}' is built for {largest}",
                hint="lower the context, or raise shell.parameters.MAX_POSITIONS of the bitstream",
            )

    def _check_memory(self, choice: Choice) -> None:
        try:
            plan = self.plan_of(choice)
        except ValueError as error:
            raise self.bitstreams[choice.bitstream.name].fault(("dma", "max_transfer_bytes"), str(error)) from None
        if plan is None:
            return
        # K or V of one head is one descriptor of a scatter-gather transfer.
        rows_bytes = choice.model.context * formats.HEAD_DIM
        if rows_bytes > choice.bitstream.dma.max_transfer_bytes:
            raise self.bitstreams[choice.bitstream.name].fault(
                ("dma", "max_transfer_bytes"),
                f"max_transfer_bytes is {choice.bitstream.dma.max_transfer_bytes}"
                f" ({choice.bitstream.dma.length_width} bits), but K of a head of model '{choice.model.name}' takes"
                f" {rows_bytes} bytes at T = {choice.model.context}",
            )
        needed_mib = -(-plan.total_bytes // (1 << 20))
        if needed_mib > choice.board.cma_mib:
            raise self.boards[choice.board.name].fault(
                ("cma_mib",),
                f"cma_mib is {choice.board.cma_mib}, but model '{choice.model.name}' needs {needed_mib} MiB of"
                f" contiguous memory (weights {plan.weights_bytes / 2**20:.1f}, K and V {plan.kv_bytes / 2**20:.1f})",
                hint=f"raise cma= on the board's kernel line and cma_mib here to {needed_mib} or more",
            )

    # ------------------------------------------------------------------------------------------------- reading

    def _named(self, what: str, name: str | None, entries: Mapping[str, Entry[Model]]) -> Model:
        if name is None:
            default = str(getattr(self.main.model, what))
            if default not in entries:
                raise self.main.fault((what,), unknown(what, default, entries))
            return entries[default].model
        if name not in entries:
            raise ConfigError(unknown(what, name, entries))
        return entries[name].model

    def _folder(self, folder: str, kind: type[Model]) -> dict[str, Entry[Model]]:
        entries = {}
        for path in sorted((self.root / "config" / folder).glob("*.yaml")):
            document = self._document(path)
            stated = document.values.get("name")
            if stated is None:
                document.values["name"] = path.stem
            elif stated != path.stem:
                raise ConfigError(
                    f"{document.position(('name',))}: the name is '{stated}', but the file is '{path.stem}'"
                )
            entries[path.stem] = Entry(document, kind)
        return entries

    def _document(self, path: Path) -> Document:
        return read_yaml(path, path.relative_to(self.root).as_posix())

    def _apply_overrides(self) -> None:
        groups: dict[str, Mapping[str, Entry[Any]]] = {folder: getattr(self, folder) for folder in FOLDERS}
        for path, value, where in self._overrides:
            if path[0] not in groups:
                self.main.document.override(path, value, where)
                continue
            entries = groups[str(path[0])]
            if len(path) < 3:
                raise ConfigError(
                    f"{where}: name a file and a key, as in {path[0]}.{next(iter(entries), 'NAME')}.KEY=VALUE"
                )
            if path[1] not in entries:
                raise ConfigError(f"{where}: {unknown(str(path[0])[:-1], str(path[1]), entries)}")
            if path[2] == "name":
                raise ConfigError(f"{where}: the name is that of the file and cannot be set")
            entries[str(path[1])].document.override(path[2:], value, where)


def _parsed_override(text: str) -> tuple[KeyPath, Any, Position]:
    key, separator, value = text.partition("=")
    if not separator or not key or any(not part for part in key.split(".")):
        raise ConfigError(f"--set {text}: it must look like key=value, such as boards.emu1.cma_mib=256")
    where = Position(f"--set {key}")
    return tuple(key.split(".")), scalar(value, str(where)), where
