"""Tcl lists as text, there and back."""

from __future__ import annotations

import re
from collections.abc import Iterable


class TclError(Exception):
    """What a command of Vivado answers when it refuses; becomes a Tcl error."""


_SIMPLE = re.compile(r"^[^\s{}\[\]$\"\\;#]+$")


def join(items: Iterable[str]) -> str:
    """A Tcl list."""
    out = []
    for item in items:
        if _SIMPLE.match(item):
            out.append(item)
        elif not re.search(r"[{}\\]", item):
            out.append("{" + item + "}")
        else:
            out.append(re.sub(r'([\\{}\[\]$";\s#])', r"\\\1", item))
    return " ".join(out)


def split(text: str) -> list[str]:
    """The elements of a Tcl list; braces, quotes and backslashes as in Tcl."""
    items: list[str] = []
    i, n = 0, len(text)
    while True:
        while i < n and text[i].isspace():
            i += 1
        if i >= n:
            return items
        if text[i] == "{":
            depth, start = 1, i + 1
            i += 1
            while i < n and depth:
                if text[i] == "\\":
                    i += 1
                elif text[i] == "{":
                    depth += 1
                elif text[i] == "}":
                    depth -= 1
                i += 1
            if depth:
                raise TclError("unmatched open brace in list")
            items.append(text[start : i - 1])
            if i < n and not text[i].isspace():
                raise TclError("list element in braces followed by characters instead of space")
        else:
            quoted = text[i] == '"'
            i += quoted
            word = []
            while i < n and (text[i] != '"' if quoted else not text[i].isspace()):
                if text[i] == "\\" and i + 1 < n:
                    i += 1
                    word.append({"n": "\n", "t": "\t"}.get(text[i], text[i]))
                else:
                    word.append(text[i])
                i += 1
            if quoted:
                if i >= n:
                    raise TclError("unmatched open quote in list")
                i += 1
            items.append("".join(word))
