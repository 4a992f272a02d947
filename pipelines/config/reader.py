"""YAML text to values that know where they stand: ``file:line:column`` of every key and value.

Plain scalars follow YAML 1.2's core schema, not PyYAML's 1.1: ``no`` is a word and not false, ``4:00`` a text and
not 240, ``010`` a text and not 8. Anchors and tags are refused: a configuration of this size is read better without.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pipelines.base.errors import ConfigError

KeyPath = tuple[str | int, ...]
"""Where a value stands in a document: ``("dma", "engines", "matvec0", "base")``, list indices as numbers."""


@dataclass(frozen=True)
class Position:
    """A place that a person can go to. ``where`` is a file, or the flag or variable that a value came from."""

    where: str
    line: int = 0  # from 1; 0 for a flag or a variable
    column: int = 0

    def __str__(self) -> str:
        return f"{self.where}:{self.line}:{self.column}" if self.line else self.where


@dataclass
class Document:
    """A file's values (plain dicts, lists and scalars) and the positions of its keys and values."""

    path: Path
    shown: str  # the file's name in messages: relative to the repository
    values: dict[str, Any]
    value_at: dict[KeyPath, Position] = field(default_factory=dict)
    key_at: dict[KeyPath, Position] = field(default_factory=dict)

    def position(self, path: KeyPath, *, of_key: bool = False) -> Position:
        """Position of a key or value, or of the nearest thing around it that exists."""
        for end in range(len(path), -1, -1):
            found = (self.key_at.get(path[:end]) if of_key and end == len(path) else None) or self.value_at.get(
                path[:end]
            )
            if found is not None:
                return found
        return Position(self.shown, 1, 1)

    def override(self, path: KeyPath, value: Any, where: Position) -> None:
        """Sets one value as if it stood in the file; its position becomes the flag or variable it came from."""
        holder: Any = self.values
        place: KeyPath = ()
        for i, step in enumerate(path):
            last = i == len(path) - 1
            if isinstance(holder, dict):
                place = (*place, str(step))
                if last:
                    holder[str(step)] = value
                elif str(step) not in holder:
                    holder[str(step)] = {}
                    self.value_at[place] = where
                holder = holder[str(step)]
            elif isinstance(holder, list) and str(step).isdecimal() and int(step) < len(holder):
                place = (*place, int(step))
                if last:
                    holder[int(step)] = value
                holder = holder[int(step)]
            else:
                raise ConfigError(f"{where}: '{'.'.join(map(str, path[:i]))}' has nothing inside that could be set")
        # What stood inside of the old value stands nowhere any more.
        for positions in (self.value_at, self.key_at):
            for inner in [known for known in positions if known[: len(place)] == place]:
                del positions[inner]
        self.value_at[place] = self.key_at[place] = where


def read_yaml(path: Path, shown: str) -> Document:
    """Reads one file. Raises ConfigError for a missing file, a syntax error, a duplicate key, an anchor or a tag."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{shown}: no such file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: byte {error.start} is not UTF-8") from None
    document = Document(path, shown, {})
    try:
        try:
            node = _composed(text, shown, _FastLoader)
        except yaml.YAMLError:
            # libyaml words and places its complaints otherwise: what a person reads is the same with and without it.
            node = _composed(text, shown, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = str(_at(shown, mark)) if mark is not None else shown
        context = f" {error.context}" if error.context else ""
        raise ConfigError(f"{place}: not YAML: {error.problem}{context}") from None
    except yaml.YAMLError as error:  # characters that YAML does not allow
        raise ConfigError(f"{shown}: not YAML: {' '.join(str(error).split())}") from None
    if node is None:
        return document
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{_at(shown, node.start_mark)}: found a {_kind(node)}; a configuration file is a mapping")
    document.values = _build(node, (), document)
    return document


def _composed(text: str, shown: str, loader: type[Any]) -> yaml.Node | None:
    """The tree of a text without anchors and tags; raises ConfigError where there is one, YAMLError for no YAML."""
    for event in yaml.parse(text, Loader=loader):
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            raise ConfigError(f"{_at(shown, event.start_mark)}: anchors and aliases ('{anchor}') are not supported")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise ConfigError(f"{_at(shown, event.start_mark)}: the tag '{tag}' is not supported")
    node: yaml.Node | None = yaml.compose(text, Loader=loader)
    return node


def scalar(text: str, shown: str = "") -> Any:
    """A value given on the command line, read as in a file: ``8`` is a number, ``[a, b]`` a list, ``no`` a word.

    Raises ConfigError as :func:`read_yaml` does, placed in ``shown``; what is no YAML is a text.
    """
    try:
        node = _composed(text, shown, _Loader)
    except yaml.YAMLError:
        return text
    if node is None:
        return None
    return _build(node, (), Document(Path(), shown, {}))


class _Loader(yaml.SafeLoader):
    """PyYAML's reader with YAML 1.2's core schema for plain scalars."""


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # a class found at run time
    """The same on libyaml where PyYAML was built with it: ten times as fast, and every task's start reads YAML."""


# One table for both: `add_implicit_resolver` below fills it.
_Loader.yaml_implicit_resolvers = _FastLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"^(?:true|false|True|False|TRUE|FALSE)$", "tTfF"),
    ("int", r"^(?:[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+|0o[0-7]+)$", "-+0123456789"),
    ("float", r"^[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$", "-+.0123456789"),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


def _at(shown: str, mark: Any) -> Position:
    return Position(shown, mark.line + 1, mark.column + 1)


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "mapping"
    return "list" if isinstance(node, yaml.SequenceNode) else "single value"


def _build(node: yaml.Node, path: KeyPath, document: Document) -> Any:
    position = _at(document.shown, node.start_mark)
    document.value_at[path] = position
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key_position = _at(document.shown, key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{key_position}: a key is a single word, not a {_kind(key_node)}")
            key = key_node.value
            if key in values:
                first = document.key_at[(*path, key)]
                raise ConfigError(
                    f"{key_position}: key '{key}' stands here a second time; the first is in line {first.line}"
                )
            document.key_at[(*path, key)] = key_position
            values[key] = _build(value_node, (*path, key), document)
        return values
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, i), document) for i, item in enumerate(node.value)]
    assert isinstance(node, yaml.ScalarNode)
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    text = node.value
    if kind == "str":
        return text
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        try:
            return int(text.replace("_", ""), 0)
        except ValueError:  # 0x and no digit, or more digits than Python reads
            raise ConfigError(f"{position}: '{text[:20]}' is no number") from None
    assert kind == "float", kind  # explicit tags were refused before
    return float(text)
