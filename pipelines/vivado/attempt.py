"""One attempt at a build: a new folder with everything in it, run once, never changed afterwards."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.errors import ConfigError, ToolFailed
from pipelines.base.files import sha256_bytes, write_text
from pipelines.vivado.design import BitstreamDesign
from pipelines.vivado.settings import ACP_SOURCES, BuildInputs, settings_tcl

SCRIPTS = Path(__file__).resolve().parents[2] / "hw" / "vivado"
"""The constant Tcl."""

SOURCE_SUFFIXES = (".v", ".sv", ".vh", ".svh", ".mem")

ARGUMENTS = (
    "-mode", "batch", "-nojournal", "-notrace", "-log", "vivado.log",
    "-source", "scripts/build.tcl", "-tclargs", "settings.tcl",
)  # fmt: skip


@dataclass(frozen=True)
class Attempt:
    """A prepared folder: ``rtl/``, ``scripts/``, ``settings.tcl``; Vivado is run in it with ``ARGUMENTS``."""

    folder: Path
    key: str  # SHA-256 of everything that goes in; the same for two attempts at the same thing


def rtl_files(sources: Path) -> list[Path]:
    """Verilog and SystemVerilog of the circuits, in the order of their names; packages are found by Vivado itself."""
    files = sorted(path for path in sources.iterdir() if path.suffix in SOURCE_SUFFIXES)
    if not files:
        raise ConfigError(f"no Verilog in {sources}")
    return files


def prepare(
    folder: Path,
    design: BitstreamDesign,
    *,
    sources: Path,
    content_id: int,
    vivado_version: str,
    scripts: Path = SCRIPTS,
) -> Attempt:
    """Fills a new folder. Everything is copied, so that the attempt is complete in itself and has no outside paths."""
    if folder.exists() and any(folder.iterdir()):
        raise ToolFailed(f"{folder} is not empty; an attempt needs a folder of its own")
    files = rtl_files(sources)
    if design.acp_masters():
        files += [scripts / name for name in ACP_SOURCES]
    check_parameters(design, files)
    names = [path.name for path in files]
    if len(set(names)) != len(names):
        raise ConfigError(f"two sources have the same name: {', '.join(sorted(names))}")
    (folder / "rtl").mkdir(parents=True)
    (folder / "scripts").mkdir()
    for path in files:
        shutil.copyfile(path, folder / "rtl" / path.name)
    for path in sorted(scripts.glob("*.tcl")):
        shutil.copyfile(path, folder / "scripts" / path.name)
    # Only relative paths go in: where the folder lies must not reach the result.
    relative = tuple(Path("rtl") / name for name in names)
    key = _key(folder, design, content_id, vivado_version, relative)
    inputs = BuildInputs(relative, content_id, key[:16], vivado_version)
    write_text(folder / "settings.tcl", settings_tcl(design, inputs))
    return Attempt(folder, key)


def check_parameters(design: BitstreamDesign, files: Sequence[Path]) -> None:
    """The shell is among the files, and has the parameters that the design sets. Raises ConfigError.

    Vivado would say so too, after it has started and made half a block design.
    """
    found = shell_parameters(design.shell.module, files)
    if found is None:
        raise ConfigError(f"no Verilog file (.v) has the module '{design.shell.module}', which '{design.name}' names")
    for name in ("CONTENT_ID", *design.shell.parameters):
        if name not in found:
            raise ConfigError(
                f"shell.parameters of '{design.name}': {design.shell.module} has no parameter '{name}'",
                hint=f"it has {', '.join(found)}",
            )


def shell_parameters(module: str, files: Sequence[Path]) -> list[str] | None:
    """Names of the parameters in the module's head, in order; None when no file defines it."""
    for path in files:
        if path.suffix != ".v":
            continue
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
        head = re.search(rf"\bmodule\s+{re.escape(module)}\b(.*?);", text, re.S)
        if head:
            return re.findall(r"\bparameter\b[^=,()]*?(\w+)\s*=", head[1])
    return None


def _key(folder: Path, design: BitstreamDesign, content_id: int, version: str, sources: Sequence[Path]) -> str:
    files = [*sources, *sorted(p.relative_to(folder) for p in (folder / "scripts").iterdir())]
    content = "\n".join(f"{path} {sha256_bytes((folder / path).read_bytes())}" for path in files)
    settings = settings_tcl(design, BuildInputs(tuple(sources), content_id, "", version))
    return sha256_bytes(f"{content}\n{settings}".encode())
