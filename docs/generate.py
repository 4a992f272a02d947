"""Writes ``docs/reference/`` from the code: ``python docs/generate.py``. A test holds the pages equal to it."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pydantic import BaseModel  # noqa: E402

import tasks  # noqa: E402
from pipelines.base import errors  # noqa: E402
from pipelines.base.files import write_text  # noqa: E402
from pipelines.config.schema import MODELS  # noqa: E402
from pipelines.golden import formats  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
HEAD = "<!-- written by docs/generate.py: change the code it comes from, then run it again -->\n\n"


def pages() -> dict[str, str]:
    """Text of each page by file name."""
    made = {
        "tasks.md": _tasks(),
        "results.md": _results(),
        "statuses.md": _statuses(),
        "configuration.md": _configuration(),
        "registers.md": _registers(),
    }
    return {name: HEAD + text for name, text in made.items()}


def _tasks() -> str:
    lines = ["# Tasks", "", "`./inv TASK --flags`. Every task also takes:", ""]
    lines += [f"- `--{name.replace('_', '-')}`: {text}" for name, text in tasks.COMMON_HELP.items()]
    for group, members in tasks.GROUPS.items():
        lines += ["", f"## {group}"]
        for task in members:
            lines += ["", f"### {task.name}", "", str(task.__doc__), ""]
            for argument in task.get_arguments():
                name = argument.name.replace("_", "-")
                if name in tasks.COMMON_HELP:
                    continue
                default = argument.default
                shown = "" if default in ("", [], False, (), None) else f" (default {default})"
                form = f"--{name}" if argument.kind is bool else f"--{name}=…"
                more = ", repeatable" if argument.kind is list else ""
                lines.append(f"- `{form}`{more}: {argument.help or ''}{shown}")
    return "\n".join(lines) + "\n"


def _results() -> str:
    lines = [
        "# What `--json FILE` holds",
        "",
        "Every task: `task`, `status` (`passed`, `failed`, `error`, `offline`), `elapsed_s`, and when it did not pass",
        "`error` with `class`, `message`, `hint` and `log`. A figure is",
        '`{"value": …, "unit": …, "evidence": "silicon|rtl|model|reference"}`. Further keys, in the words of the code:',
        "",
    ]
    for members in tasks.GROUPS.values():
        for task in members:
            module = importlib.import_module(f"pipelines.commands.{task.name.replace('-', '_')}")
            text = inspect.getdoc(module.run) or "No further keys."
            lines += [f"## {task.name}", "", text.replace("``", "`"), ""]
    return "\n".join(lines)


def _statuses() -> str:
    lines = [
        "# Exit statuses and error classes",
        "",
        "| status | class | meaning |",
        "|---|---|---|",
        "| 0 | | passed |",
    ]
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.TritforgeError)]
    order = {name: i for i, name in enumerate(vars(errors))}
    for kind in sorted(found, key=lambda kind: (kind.status, order[kind.__name__])):
        if kind is not errors.TritforgeError:
            meaning = (inspect.getdoc(kind) or "").splitlines()[0]
            lines.append(f"| {kind.status} | `{kind.__name__}` | {meaning} |")
    lines += [
        "",
        "Of several results the worst counts: 130 before 1 before the largest. These hold under `./inv`; bare `invoke`",
        "returns its own status for a mistyped task or flag.",
        "",
    ]
    return "\n".join(lines)


def _configuration() -> str:
    places = {
        "board": "config/boards/NAME.yaml",
        "bitstream": "config/bitstreams/NAME.yaml",
        "model": "config/models/NAME.yaml",
        "pipeline": "config/pipelines/NAME.yaml",
        "tritforge": "config/tritforge.yaml",
    }
    lines = [
        "# Configuration",
        "",
        "Units stand in the names. A wrong value is refused with its file, line and column, and the nearest valid",
        "name. `--set boards.emu1.cma_mib=256` overrides one value for one run. `config/schema/` has the same as",
        "JSON Schema, for editors.",
    ]
    comments = _comments()
    for name, model in MODELS.items():
        schema = model.model_json_schema()
        lines += ["", f"## `{places.get(name, name)}`", "", (schema.get("description") or "").replace("\n", " ")]
        lines += _table(model.__name__, schema, comments)
        for part, definition in sorted(schema.get("$defs", {}).items()):
            lines += ["", f"### {name}: {part}", "", (definition.get("description") or "").split("\n\n")[0]]
            lines += _table(part, definition, comments)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _comments() -> dict[tuple[str, str], str]:
    """(class, field) to what the code says of it: the comment behind a field, or else the one above it."""
    found: dict[tuple[str, str], str] = {}
    seen: set[type] = set()
    todo: list[type] = list(MODELS.values())
    while todo:
        kind = todo.pop()
        if kind in seen:
            continue
        seen.add(kind)
        todo += [other for other in vars(sys.modules[kind.__module__]).values() if _is_model(other)]
        above: list[str] = []
        for line in inspect.getsource(kind).splitlines():
            text = line.strip()
            field = re.match(r"(\w+):.*?(?:#\s+(.*))?$", text)
            if text.startswith("#"):
                above.append(text.lstrip("# "))
                continue
            if field and line.startswith("    ") and not line.startswith("     "):
                found[kind.__name__, field[1]] = field[2] or " ".join(above)
            above = []
    return found


def _is_model(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel) and value.__module__.startswith("pipelines.")


def _table(kind: str, schema: dict[str, Any], comments: dict[tuple[str, str], str]) -> list[str]:
    if "properties" not in schema:
        return []
    lines = ["", "| key | type | default | meaning |", "|---|---|---|---|"]
    for key, value in schema["properties"].items():
        required = key in schema.get("required", [])
        default = "needed" if required else f"`{json.dumps(value['default'])}`" if "default" in value else ""
        meaning = (value.get("description") or comments.get((kind, key), "")).replace("\n", " ")
        cells = (f"`{key}`", _type(value), default, meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "allOf" in value:
        return _type(value["allOf"][0])
    if "anyOf" in value:
        return " or ".join(_type(part) for part in value["anyOf"])
    if "enum" in value:
        return " or ".join(f"`{one}`" for one in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("type") == "array":
        return f"list of {_type(value.get('items', {}))}"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"names to {_type(value['additionalProperties'])}"
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    said = [f"{sign} {value[key]:g}" for key, sign in bounds.items() if key in value]
    return " ".join([str(value.get("type", "any")), *said])


def _registers() -> str:
    lines = [
        "# Registers of the control block",
        "",
        f"AXI4-Lite at `{formats.CONTROL_BASE:#010x}`. The streams are in [formats](../formats.md).",
        "",
        "| offset | register |",
        "|---|---|",
        *(f"| `{offset:#05x}` | {name} |" for name, offset in formats.REGISTERS.items()),
        "",
        f"Each engine ({', '.join(formats.ENGINES)}) has these from `{formats.ENGINE_BASE:#05x}` on,"
        f" `{formats.ENGINE_STRIDE:#04x}` apart:",
        "",
        "| offset | register |",
        "|---|---|",
        *(f"| `{offset:#04x}` | {name} |" for name, offset in formats.ENGINE_REGISTERS.items()),
        "",
        "Bits of ERRORS:",
        "",
        "| bit | error |",
        "|---|---|",
        *(f"| {bit} | {name} |" for name, bit in formats.ERROR_BITS.items()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    for name, text in pages().items():
        write_text(FOLDER / name, text)
        print(FOLDER / name)
