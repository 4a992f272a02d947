"""Builds the C runtime for every machine it runs on: with the pinned zig, and with gcc as a second opinion."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError, GateError, ToolMissing
from pipelines.runtime.elf import fused_instructions, read_elf

NATIVE = Path(__file__).resolve().parents[2] / "native"

Compiler = Literal["zig", "gcc"]

# The board's image is Ubuntu 22.04.
NEWEST_GLIBC = (2, 35)

# One IEEE operation at a time, nothing fused, nothing from libm. Position-independent, no debug information and no
# paths, so that two builds in different folders are the same bytes. -fno-fast-math stands first: in clang it undoes
# -fno-math-errno before it, and a square root then is a call of libm.
FLAGS = (
    "-std=c11", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-O2", "-fno-fast-math", "-ffp-contract=off",
    "-fno-math-errno", "-fvisibility=hidden", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Wshadow", "-Werror",
)  # fmt: skip
# clang made vmla.f32, which flushes denormals, out of scalar C by vectorising straight-line code.
CLANG_FLAGS = ("-fno-slp-vectorize",)
RELEASE_FLAGS = ("-g0", "-s")

LIBM = frozenset(
    name + suffix
    for name in (
        "acos asin atan atan2 cos sin tan acosh asinh atanh cosh sinh tanh exp exp2 exp10 expm1 frexp ilogb "
        "ldexp log log10 log1p log2 logb modf scalbn scalbln cbrt fabs hypot pow sqrt erf erfc lgamma tgamma "
        "ceil floor nearbyint rint lrint llrint round lround llround trunc fmod remainder remquo copysign nan "
        "nextafter nexttoward fdim fmax fmin fma sincos"
    ).split()
    for suffix in ("", "f", "l")
)
"""Functions of libm (C11, 7.12, and glibc's own). zig links some of them from its own library, gcc leaves them open."""


@dataclass(frozen=True)
class Target:
    """A machine: how the two compilers are told about it, and the file name of its library."""

    name: str
    zig: tuple[str, ...]
    gcc: tuple[str, ...]  # () where Debian has no cross compiler
    library: str = "libtritforge.so"


TARGETS = {
    target.name: target
    for target in (
        Target(
            "armv7-linux",
            ("-target", "arm-linux-gnueabihf.2.35", "-mcpu=cortex_a9"),
            ("arm-linux-gnueabihf-gcc", "-mcpu=cortex-a9", "-mfpu=neon-fp16", "-mfloat-abi=hard"),
        ),
        Target("aarch64-linux", ("-target", "aarch64-linux-gnu.2.35"), ("aarch64-linux-gnu-gcc",)),
        Target("x86_64-linux", ("-target", "x86_64-linux-gnu.2.35", "-mcpu=x86_64"), ("gcc", "-march=x86-64")),
        Target("aarch64-macos", ("-target", "aarch64-macos"), (), "libtritforge.dylib"),
    )
}


def host_target() -> str:
    """The target of the machine that this runs on."""
    machine = {"arm64": "aarch64", "amd64": "x86_64", "armv7l": "armv7"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    name = f"{machine}-{'macos' if sys.platform == 'darwin' else 'linux'}"
    if name not in TARGETS:
        raise ConfigError(f"the runtime is not built for this machine ({name})", hint=f"known: {', '.join(TARGETS)}")
    return name


def _target(name: str) -> Target:
    if name not in TARGETS:
        raise ConfigError(f"no target '{name}'", hint=f"known are {', '.join(TARGETS)}")
    return TARGETS[name]


def compile_c(
    target: str,
    sources: Sequence[Path],
    output: Path,
    *,
    deadline: Deadline,
    log: Path,
    compiler: Compiler = "zig",
    flags: Sequence[str] = (),
) -> Path:
    """Compiles C sources into one file. ``flags`` come last, so they can add to or undo the common ones."""
    machine = _target(target)
    command: list[str]
    # zig's local cache would otherwise appear in the current folder
    cache = output.parent.resolve() / f".{output.name}.zig"
    if compiler == "zig":
        if importlib.util.find_spec("ziglang") is None:
            raise ToolMissing("the package 'ziglang' is not installed", hint="./inv installs what is missing")
        command = [sys.executable, "-m", "ziglang", "cc", *machine.zig, *CLANG_FLAGS]
    else:
        if not machine.gcc:
            raise ConfigError(f"there is no gcc for {target}; it is built with zig only")
        command = [str(find_tool(machine.gcc[0])), *machine.gcc[1:]]
    command += [*FLAGS, f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"]
    output.parent.mkdir(parents=True, exist_ok=True)
    libraries = () if "macos" in target or "-r" in flags else ("-ldl",)
    run_tool(
        [*command, *map(str, sources), "-o", str(output), *libraries, *flags],
        deadline=deadline,
        log=log,
        env={"ZIG_LOCAL_CACHE_DIR": str(cache)} if compiler == "zig" else None,
    )
    shutil.rmtree(cache, ignore_errors=True)
    return output


def runtime_sources() -> list[Path]:
    """All C files of the runtime, sorted."""
    return sorted((NATIVE / "src").glob("*.c"))


def build(target: str, out: Path, *, deadline: Deadline, log: Path, compiler: Compiler = "zig") -> Path:
    """Builds the runtime into ``out`` and holds it to its gates. Returns the library's path.

    Bit-reproducible: the same sources and compiler give the same bytes in any folder.
    Raises ToolFailed with the compiler's words, or GateError.
    """
    machine = _target(target)
    library = out / machine.library
    shared = ["-shared", *RELEASE_FLAGS]
    if "macos" in target:
        # the linker's own name of the library must not be the folder it was built in
        shared.append(f"-Wl,-install_name,@rpath/{machine.library}")
        return compile_c(
            target, runtime_sources(), library, deadline=deadline, log=log, compiler=compiler, flags=shared
        )
    whole = out / "runtime.o"
    compile_c(target, runtime_sources(), whole, deadline=deadline, log=log, compiler=compiler, flags=["-r", "-g0"])
    check_no_libm(whole, target)
    compile_c(target, [whole], library, deadline=deadline, log=log, compiler=compiler, flags=shared)
    whole.unlink()
    check_library(library, target)
    return library


def check_no_libm(path: Path, target: str) -> None:
    """GateError if a library needs libm, or calls a function of it. In a library that is linked, a function that the
    linker took from elsewhere is not seen any more; in the object file before it is."""
    elf = read_elf(path)
    found = [name for name in elf.needed if name.startswith("libm.")] + sorted(LIBM.intersection(elf.undefined))
    if found:
        raise GateError(
            f"{path.name} for {target} needs {', '.join(found[:4])}: libm's results differ between machines",
            hint="use the exponential and square root of native/src/kernels.h",
        )


def _on_the_board(version: str) -> bool:
    """Names without a number, such as GLIBC_ABI_DT_RELR of 2.36, are newer than the board's or not for programs."""
    found = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
    return found is not None and (int(found[1]), int(found[2])) <= NEWEST_GLIBC


def check_library(library: Path, target: str) -> None:
    """The gates: no fused multiply-add, no libm, no glibc newer than the board's, nothing exported but the API."""
    elf = read_elf(library)
    if target.startswith("aarch64") and (fused := fused_instructions(elf.code)):
        raise GateError(
            f"{library.name} for {target} has fused multiply-adds, whose rounding differs: {', '.join(fused[:4])}",
            hint="-ffp-contract=off must reach every file; write a * b + c as two statements",
        )
    check_no_libm(library, target)
    newer = sorted(
        f"{version} of {name}"
        for name, version in elf.versions
        if version.startswith("GLIBC_") and not _on_the_board(version)
    )
    if newer:
        raise GateError(f"{library.name} for {target} needs {', '.join(newer)}; the board has glibc 2.35")
    foreign = sorted(name for name in elf.exported if not name.startswith("tf_") and not name.startswith("_"))
    if foreign:
        raise GateError(f"{library.name} for {target} exports {', '.join(foreign[:4])}: only tf_* belongs to the API")
