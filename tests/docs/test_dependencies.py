"""Every package that is imported stands in pyproject.toml, and everything that stands there is in the lock."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OWN = {"pipelines", "board_rt", "tests", "tasks", "icarus_stream"}
# Imported where they are used and only then, with a message that says what to do when they are not there.
OPTIONAL = {"torch", "huggingface_hub", "pynq"}


def imported() -> dict[str, str]:
    """First name of each import that is neither the standard library's nor ours, and a file that has it."""
    found: dict[str, str] = {}
    folders = [ROOT / name for name in ("pipelines", "board_rt", "tests")]
    for path in [ROOT / "tasks.py", *(path for folder in folders for path in sorted(folder.rglob("*.py")))]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                found.setdefault(name.partition(".")[0], str(path.relative_to(ROOT)))
    return {name: where for name, where in found.items() if name not in sys.stdlib_module_names | OWN | OPTIONAL}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def listed() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {normal(re.split(r"[<>=!~ ;\[]", line)[0]) for line in project["dependencies"]}


def test_what_is_imported_is_listed() -> None:
    provided_by = packages_distributions()
    wanted = {
        name: where
        for name, where in imported().items()
        if not {normal(d) for d in provided_by.get(name, [name])} & listed()
    }
    assert not wanted, f"imported, and not in pyproject.toml: {wanted}"


def test_what_is_listed_is_locked() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = {normal(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)}
    assert listed() <= locked, listed() - locked
