"""Builds the simulated logic: ``libtritforge_rtl.so`` from the RTL by Verilator, ``libtritforge_model.so`` from C++.

Both have the interface of ``native/include/tritforge_rtl.h``. Bit-reproducible: sources are copied into a scratch
folder and named by relative paths, compilers get no debug information, and the pinned zig is the only compiler.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError, ToolFailed, ToolMissing
from pipelines.base.files import write_json
from pipelines.golden import formats
from pipelines.runtime.build import TARGETS

ROOT = Path(__file__).resolve().parents[2]
RTL = ROOT / "hw" / "rtl"
SIM = ROOT / "hw" / "sim"
NATIVE = ROOT / "native"
SHARED = tuple(
    NATIVE / name
    for name in (
        "include/tf_formats.h", "include/tritforge.h", "include/tritforge_rtl.h", "src/image.h", "src/pool.c",
        "src/pool.h", "src/ternary.c", "src/ternary.h",
    )
)  # fmt: skip
"""Of the runtime: the formats, the interface that it loads, and the rows of the functional engines, which need not be
written twice."""

TOP = "tritforge_shell"
RTL_LIBRARY = "libtritforge_rtl.so"
MODEL_LIBRARY = "libtritforge_model.so"

RTL_SOURCES = (
    "tritforge_pkg.sv",
    "tritforge_result_fifo.sv",
    "tritforge_ternary_dot.sv",
    "tritforge_matvec.sv",
    "tritforge_attention.sv",
    "tritforge_control.sv",
    "tritforge_top.sv",
    "tritforge_shell.v",
)
"""In the order in which tools read them: the package first."""

VERILATOR_CPP = ("verilated.cpp", "verilated_threads.cpp")
COMPILE_FLAGS = ("-fPIC", "-pthread", "-fvisibility=hidden", "-g0")
OUR_WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Werror")
LANGUAGES = {".cpp": ("c++", "-std=c++20"), ".c": ("cc", "-std=gnu11")}
"""Compiler and standard by the suffix of a unit's sources."""


@dataclass(frozen=True)
class Unit:
    """Sources that are compiled as one: most of a compiler's time goes into the headers that they share."""

    name: str
    sources: tuple[str, ...]
    flags: tuple[str, ...]


BOARD_UNIT = Unit(
    "board",
    ("board.cpp", "dma.cpp", "faults.cpp", "memory.cpp", "tritforge_rtl.cpp"),
    ("-O2", *OUR_WARNINGS),
)
RTL_UNIT = Unit("fabric_rtl", ("fabric_rtl.cpp",), ("-O2", *OUR_WARNINGS))
MODEL_UNITS = (
    Unit("fabric_model", ("fabric_model.cpp",), ("-O2", *OUR_WARNINGS)),
    Unit("ternary", ("pool.c", "ternary.c"), ("-O2", *OUR_WARNINGS)),
)

CLOCK_MHZ = 125
LENGTH_WIDTH = 23
HP_PORTS = {"matvec0": "HP0", "matvec1": "HP2", "attention0": "HP1", "attention1": "HP3"}
MAX_TRANSFER_BYTES = (1 << LENGTH_WIDTH) - formats.WORD_BYTES


def verilator_version() -> str:
    """As ``verilator --version`` prints it. Raises ToolMissing."""
    found = run_tool([find_tool("verilator"), "--version"], deadline=Deadline.after(20))
    return found.stdout.strip()


def compiler_version() -> str:
    """Of the pinned zig. Raises ToolMissing."""
    if importlib.util.find_spec("ziglang") is None:
        raise ToolMissing("the package 'ziglang' is not installed", hint="./inv installs what is missing")
    return f"zig {importlib.metadata.version('ziglang')}"


def source_files() -> list[Path]:
    """Every file that the libraries are made of; a stage hashes these."""
    return [
        *(RTL / name for name in RTL_SOURCES),
        RTL / "waivers.vlt",
        *sorted(SIM.glob("*.cpp")),
        *sorted(SIM.glob("*.h")),
        *SHARED,
    ]


def build(
    out: Path, *, targets: Sequence[str], content_id: int, deadline: Deadline, log: Path, scatter_gather: bool = True
) -> None:
    """An emulated board's bitstream: ``<target>/lib*.so`` for each target and one ``bitstream.json``."""
    for target in targets:
        _build_both(target, out / target, content_id=content_id, deadline=deadline, log=log)
    write_json(out / "bitstream.json", description(content_id, targets, scatter_gather=scatter_gather))


def build_library(
    target: str, out: Path, *, content_id: int, deadline: Deadline, log: Path, scatter_gather: bool = True
) -> None:
    """Both libraries of one target and ``bitstream.json``, side by side in ``out``."""
    _build_both(target, out, content_id=content_id, deadline=deadline, log=log)
    write_json(out / "bitstream.json", description(content_id, [target], scatter_gather=scatter_gather))


def description(content_id: int, targets: Sequence[str], *, scatter_gather: bool) -> dict[str, Any]:
    """``bitstream.json`` of an emulated board; the keys that a real one has too mean the same."""
    return {
        "toolchain": "verilator",
        "toolchain_version": verilator_version(),
        "compiler": compiler_version(),
        "design": TOP,
        "targets": list(targets),
        "clock_mhz": CLOCK_MHZ,
        "content_id": f"0x{content_id:08X}",
        "formats_version": formats.FORMATS_VERSION,
        "control_base": f"0x{formats.CONTROL_BASE:08X}",
        "max_transfer_bytes": MAX_TRANSFER_BYTES,
        "interrupts": False,
        "results_padded_to_bytes": formats.WORD_BYTES,
        "head_dim": formats.HEAD_DIM,
        "max_positions": formats.MAX_CONTEXT_BOARD,
        "dmas": [
            {
                "engine": engine,
                "base": f"0x{formats.DMA_BASE + formats.DMA_STRIDE * index:08X}",
                "scatter_gather": scatter_gather,
                "hp_port": HP_PORTS[engine],
                "length_width": LENGTH_WIDTH,
                "stream_bits": 8 * formats.WORD_BYTES,
                "results_coherent": False,
                "descriptors_coherent": False,
            }
            for index, engine in enumerate(formats.ENGINES)
        ],
    }


def _build_both(target: str, out: Path, *, content_id: int, deadline: Deadline, log: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tritforge-verilate-") as scratch:
        work = Path(scratch)
        _verilate(work, content_id=content_id, deadline=deadline, log=log)
        _copy_sim(work)
        verilated, includes = _verilated_units(work, deadline=deadline)
        libraries = {RTL_LIBRARY: [*verilated, BOARD_UNIT, RTL_UNIT], MODEL_LIBRARY: [BOARD_UNIT, *MODEL_UNITS]}
        _compile(target, work, libraries, includes, out, deadline=deadline, log=log)


def build_rtl(
    target: str,
    library: Path,
    *,
    content_id: int,
    deadline: Deadline,
    log: Path,
    assertions: bool = False,
    waves: bool = False,
    parameters: Mapping[str, int] | None = None,
    rtl: Path = RTL,
) -> None:
    """Verilates the sources in ``rtl`` and compiles them with the DMA model.

    ``parameters`` are of the shell (HEAD_DIM, MAX_POSITIONS); ``assertions`` stop the process where one fails, so they
    are for tests only; ``waves`` makes ``tritforge_rtl_waves`` work. Raises ToolFailed with the tool's words.
    """
    with tempfile.TemporaryDirectory(prefix="tritforge-verilate-") as scratch:
        work = Path(scratch)
        _verilate(
            work, content_id=content_id, deadline=deadline, log=log, assertions=assertions, waves=waves,
            parameters=parameters or {}, rtl=rtl,
        )  # fmt: skip
        _copy_sim(work)
        compile_verilated(target, work, [BOARD_UNIT, RTL_UNIT], library, deadline=deadline, log=log, waves=waves)


def build_model(target: str, library: Path, *, deadline: Deadline, log: Path) -> None:
    """Compiles the functional engines with the same DMA model."""
    with tempfile.TemporaryDirectory(prefix="tritforge-model-") as scratch:
        work = Path(scratch)
        _copy_sim(work)
        units = {library.name: [BOARD_UNIT, *MODEL_UNITS]}
        _compile(target, work, units, [], library.parent, deadline=deadline, log=log)


def compile_verilated(
    target: str,
    work: Path,
    units: Sequence[Unit],
    library: Path,
    *,
    deadline: Deadline,
    log: Path,
    waves: bool = False,
    optimise: str = "-O2",
) -> None:
    """Compiles what Verilator wrote into ``work/verilated`` with units of ours into one library."""
    verilated, includes = _verilated_units(work, deadline=deadline, waves=waves, optimise=optimise)
    libraries = {library.name: [*verilated, *units]}
    _compile(target, work, libraries, includes, library.parent, deadline=deadline, log=log)


def _verilate(
    work: Path,
    *,
    content_id: int,
    deadline: Deadline,
    log: Path,
    assertions: bool = False,
    waves: bool = False,
    parameters: Mapping[str, int] | None = None,
    rtl: Path = RTL,
) -> None:
    """Writes the design as C++ into ``work/verilated``."""
    if not 0 <= content_id < 1 << 32:
        raise ConfigError(f"content id {content_id:#x} is not a 32-bit number")
    for name in (*RTL_SOURCES, "waivers.vlt"):
        shutil.copyfile(rtl / name, work / name)
    arguments = [
        find_tool("verilator"), "--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "-Wall",
        *(("--assert", "-DTRITFORGE_SVA") if assertions else ("--noassert",)),
        *(("--trace",) if waves else ()),
        "--top-module", TOP, "--prefix", f"V{TOP}", "--Mdir", "verilated",
        f"-GCONTENT_ID=32'h{content_id:08x}",
        *(f"-G{name}={value}" for name, value in (parameters or {}).items()),
        "waivers.vlt", *RTL_SOURCES,
    ]  # fmt: skip
    run_tool(arguments, cwd=work, deadline=deadline, log=log)


def _verilated_units(
    work: Path, *, deadline: Deadline, waves: bool = False, optimise: str = "-O2"
) -> tuple[list[Unit], list[str]]:
    """Verilator's run time and the design in ``work/verilated``, and the flags that every unit then needs."""
    runtime = _verilator_include(deadline)
    extra = [*VERILATOR_CPP, *(("verilated_vcd_c.cpp",) if waves else ())]
    generated = sorted(f"verilated/{path.name}" for path in (work / "verilated").glob("*.cpp"))
    units = [
        # Starting up and complaining is all that it does; the design's cycles never enter it.
        Unit("runtime", tuple(str(runtime / name) for name in extra), ("-O2" if waves else "-O0",)),
        Unit("design", tuple(generated), (optimise,)),
    ]
    # Verilator's own files are system headers: their warnings are not ours.
    system = [f"-isystem{folder}" for folder in ("verilated", runtime, runtime / "vltstd")]
    return units, [*system, f"-DVM_TRACE={int(waves)}"]


def _copy_sim(work: Path) -> None:
    for source in (*SIM.glob("*.h"), *SIM.glob("*.cpp"), *SHARED):
        shutil.copyfile(source, work / source.name)


def _verilator_include(deadline: Deadline) -> Path:
    printed = run_tool([find_tool("verilator"), "-V"], deadline=deadline).stdout
    root = re.search(r"VERILATOR_ROOT\s*=\s*(/\S+)", printed)
    include = Path(root.group(1)) / "include" if root else Path("/usr/share/verilator/include")
    if not (include / "verilated.cpp").is_file():
        raise ToolMissing(f"Verilator's run-time sources are not in {include}", hint="apt-get install verilator")
    return include


def _compile(
    target: str,
    work: Path,
    libraries: Mapping[str, Sequence[Unit]],
    includes: Sequence[str],
    out: Path,
    *,
    deadline: Deadline,
    log: Path,
) -> None:
    """Compiles each unit once, two at a time, and links the libraries. Paths are relative to ``work``."""
    if target not in TARGETS or "linux" not in target:
        raise ConfigError(
            f"the simulated logic is not built for '{target}'",
            hint=f"known are {', '.join(name for name in TARGETS if 'linux' in name)}",
        )
    compiler_version()
    zig = [sys.executable, "-m", "ziglang"]
    flags = [*TARGETS[target].zig, *COMPILE_FLAGS]
    link = [*zig, "c++", *flags, "-shared", "-s"]
    env = {"ZIG_LOCAL_CACHE_DIR": str(work / "zig-cache")}

    def one(unit: Unit) -> None:
        suffix = Path(unit.sources[0]).suffix
        source = f"unit_{unit.name}{suffix}"
        (work / source).write_text("".join(f'#include "{name}"\n' for name in unit.sources))
        run_tool(
            [
                *zig, LANGUAGES[suffix][0], *flags, LANGUAGES[suffix][1], *unit.flags, *includes, "-I.",
                "-c", source, "-o", f"{unit.name}.o",
            ],
            cwd=work, env=env, deadline=deadline, log=log,
        )  # fmt: skip

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(one, dict.fromkeys(unit for units in libraries.values() for unit in units)))
    out.mkdir(parents=True, exist_ok=True)
    for name, units in libraries.items():
        objects = [f"{unit.name}.o" for unit in units]
        run_tool([*link, *objects, "-o", name], cwd=work, env=env, deadline=deadline, log=log)
        if not (work / name).is_file():
            raise ToolFailed(f"no {name} came out of linking", log=log)
        shutil.copyfile(work / name, out / name)
