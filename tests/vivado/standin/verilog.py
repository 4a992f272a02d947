"""Ports and parameters of a Verilog module, as far as a module reference in a block design sees them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from .tcl import TclError


@dataclass
class Port:
    name: str
    direction: str  # input | output | inout
    width: int
    interface_info: str = ""  # text of X_INTERFACE_INFO
    interface_parameter: str = ""  # text of X_INTERFACE_PARAMETER


@dataclass
class Module:
    name: str
    path: Path
    ports: dict[str, Port]
    parameters: dict[str, str]  # name -> default, as written
    parameter_widths: dict[str, int] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)  # output -> constant it is always driven with

    def parameter_number(self, name: str) -> int:
        return number(self.parameters[name], {})


def strip_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"//[^\n]*", " ", text)


def number(text: str, names: dict[str, int]) -> int:
    """A constant expression of numbers, names, + - * / and parentheses."""
    expression = re.sub(r"\$clog2", "clog2", text.replace("_", "") if "'" in text and not names else text)
    expression = re.sub(
        r"(\d*)\s*'\s*s?([hdbo])\s*([0-9A-Fa-f_]+)",
        lambda m: str(int(m[3].replace("_", ""), {"h": 16, "d": 10, "b": 2, "o": 8}[m[2]])),
        expression,
    )
    if not re.fullmatch(r"[\w\s()+\-*/]+", expression):
        raise TclError(f"cannot evaluate the Verilog expression '{text}'")

    def value(match: re.Match[str]) -> str:
        name = match[0]
        if name == "clog2":
            return name
        if name not in names:
            raise TclError(f"unknown name '{name}' in the Verilog expression '{text}'")
        return str(names[name])

    expression = re.sub(r"[A-Za-z_]\w*", value, expression).replace("/", "//")
    return int(eval(expression, {"__builtins__": {}, "clog2": lambda v: max(0, (v - 1).bit_length())}))  # noqa: S307


def _attributes(text: str) -> tuple[str, str]:
    info = " ".join(re.findall(r'X_INTERFACE_INFO\s*=\s*"([^"]*)"', text))
    parameter = ", ".join(re.findall(r'X_INTERFACE_PARAMETER\s*=\s*"([^"]*)"', text))
    return info, parameter


def modules(path: Path) -> list[str]:
    """Names of the modules defined in a file."""
    return re.findall(r"^\s*module\s+(\w+)", strip_comments(path.read_text(encoding="utf-8")), re.M)


def parse(path: Path, name: str, overrides: dict[str, str] | None = None) -> Module:
    """The module ``name`` in ``path``; ``overrides`` are parameter values that widths depend on."""
    text = strip_comments(path.read_text(encoding="utf-8"))
    start = re.search(rf"^\s*module\s+{re.escape(name)}\b", text, re.M)
    if not start:
        raise TclError(f"module '{name}' not found in {path.name}")
    end = re.search(r"\bendmodule\b", text[start.end() :])
    if not end:
        raise TclError(f"module '{name}' in {path.name} has no endmodule")
    body = text[start.end() : start.end() + end.start()]
    position = 0
    parameters: dict[str, str] = {}
    widths: dict[str, int] = {}
    head = re.match(r"\s*(?:import\s[^;]*;\s*)*#\s*\(", body)
    if head:
        inner, position = _parenthesis(body, head.end() - 1)
        for item in _commas(inner):
            match = re.match(
                r"\s*(?:parameter\s+)?(?:(?:integer|int|unsigned|signed|logic|bit|wire)\s+)*(\[[^\]]*\])?\s*(\w+)\s*=\s*(.+)$",
                item.strip(),
                re.S,
            )
            if not match:
                raise TclError(f"cannot read the parameter '{item.strip()}' of {name}")
            parameters[match[2]] = match[3].strip()
            if match[1]:
                left, right = match[1].strip("[]").split(":")
                widths[match[2]] = number(left, {}) - number(right, {}) + 1
    numbers: dict[str, int] = {}
    for key, default in parameters.items():
        try:
            numbers[key] = int((overrides or {}).get(key, ""), 0)
        except ValueError:
            try:
                numbers[key] = number(default, numbers)
            except TclError:
                continue
    opening = body.index("(", position)
    inner, after = _parenthesis(body, opening)
    ports: dict[str, Port] = {}
    direction, rng = "", ""
    for item in _commas(inner):
        attributes = "".join(re.findall(r"\(\*.*?\*\)", item, re.S))
        plain = re.sub(r"\(\*.*?\*\)", " ", item, flags=re.S).strip()
        match = re.match(
            r"(input|output|inout)\s+(?:(?:wire|reg|logic|var)\s+)?(?:signed\s+)?(\[[^\]]*\])?\s*(\w+)$", plain
        )
        if match:
            direction, rng, port = match[1], match[2] or "", match[3]
        elif re.match(r"\w+$", plain) and direction:
            port = plain
        else:
            raise TclError(f"cannot read the port '{plain}' of {name}; a module reference needs a plain Verilog header")
        width = 1
        if rng:
            left, right = rng.strip("[]").split(":")
            width = number(left, numbers) - number(right, numbers) + 1
        info, parameter = _attributes(attributes)
        ports[port] = Port(port, direction, width, info, parameter)
    rest = body[after:]
    local = dict(re.findall(r"localparam\s*(?:\[[^\]]*\])?\s*(\w+)\s*=\s*([^;]+);", rest))
    constants = {}
    for target, value in re.findall(r"assign\s+(\w+)\s*=\s*([^;]+);", rest):
        value = local.get(value.strip(), value).strip()
        if target in ports and re.fullmatch(r"\d*'[hdbo][0-9A-Fa-f_]+|\d+", value):
            constants[target] = value
    return Module(name, path, ports, parameters, widths, constants)


def _parenthesis(text: str, opening: int) -> tuple[str, int]:
    depth = 0
    for i in range(opening, len(text)):
        if text[i] == "(":
            depth += 1
        elif text[i] == ")":
            depth -= 1
            if depth == 0:
                return text[opening + 1 : i], i + 1
    raise TclError("unbalanced parentheses in a Verilog header")


def _commas(text: str) -> list[str]:
    items, depth, quote, current = [], 0, False, ""
    for character in text:
        if character == '"':
            quote = not quote
        if not quote:
            depth += character in "([{"
            depth -= character in ")]}"
        if character == "," and depth == 0 and not quote:
            items.append(current)
            current = ""
        else:
            current += character
    if current.strip():
        items.append(current)
    return items
