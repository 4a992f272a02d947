"""The builder: the same bytes from different folders, and gates that really close."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError, FormatError, GateError, ToolFailed
from pipelines.base.files import sha256_file
from pipelines.runtime.build import TARGETS, build, check_library, compile_c, host_target
from pipelines.runtime.elf import fused_instructions, read_elf
from tests.native.conftest import MACHINES, runtime_library

DEADLINE = 300.0


@pytest.mark.parametrize("target", TARGETS)
def test_reproducible(target: str, tmp_path: Path) -> None:
    hashes = set()
    for folder in ("one", "another/and/deeper"):
        library = build(target, tmp_path / folder, deadline=Deadline.after(DEADLINE), log=tmp_path / "log")
        assert [path.name for path in library.parent.iterdir()] == [library.name]
        assert str(tmp_path).encode() not in library.read_bytes()
        hashes.add(sha256_file(library))
    assert len(hashes) == 1


@pytest.mark.parametrize(("target", "compiler"), MACHINES)
def test_every_library_passes_its_gates(target: str, compiler: str) -> None:
    library = runtime_library(target, compiler)  # type: ignore[arg-type]
    check_library(library, target)
    elf = read_elf(library)
    assert elf.bits == (32 if target.startswith("armv7") else 64)
    assert "tf_forward" in elf.exported and len(elf.code) > 10_000


def compiled(tmp_path: Path, target: str, text: str, *flags: str) -> Path:
    source = tmp_path / "source.c"
    source.write_text(text)
    return compile_c(
        target, [source], tmp_path / "lib.so", deadline=Deadline.after(DEADLINE), log=tmp_path / "log", compiler="gcc",
        flags=["-shared", *flags],
    )  # fmt: skip


API = '__attribute__((visibility("default"))) '


@pytest.mark.parametrize(
    "text",
    [
        API + "float tf_f(float a, float b, float c) { return a * b + c; }",
        API + "double tf_f(double a, double b, double c) { return c - a * b; }",
        "#include <arm_neon.h>\n"
        + API
        + "float32x4_t tf_f(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmaq_f32(a, b, c); }",
        "#include <arm_neon.h>\n"
        + API
        + "float32x4_t tf_f(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmsq_laneq_f32(a, b, c, 2); }",
    ],
)
def test_gate_against_fused_multiply_add(text: str, tmp_path: Path) -> None:
    library = compiled(tmp_path, "aarch64-linux", text, "-ffp-contract=fast")
    assert fused_instructions(read_elf(library).code)
    with pytest.raises(GateError, match="fused"):
        check_library(library, "aarch64-linux")


def test_gate_against_libm(tmp_path: Path) -> None:
    text = "#include <math.h>\n" + API + "float tf_f(float a) { return expf(a); }"
    with pytest.raises(GateError, match="libm"):
        check_library(compiled(tmp_path, "x86_64-linux", text, "-lm"), "x86_64-linux")


def test_gate_against_newer_glibc(tmp_path: Path) -> None:
    """arc4random came with glibc 2.36."""
    text = "unsigned arc4random(void);\n" + API + "unsigned tf_f(void) { return arc4random(); }"
    with pytest.raises(GateError, match="GLIBC_2.36"):
        check_library(compiled(tmp_path, "armv7-linux", text), "armv7-linux")


def test_gate_against_other_exports(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="exports helper"):
        check_library(compiled(tmp_path, "x86_64-linux", API + "int helper(void) { return 1; }"), "x86_64-linux")


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="error"):
        compiled(tmp_path, "x86_64-linux", "int broken(void) { return }")
    with pytest.raises(ConfigError, match="no target 'riscv'"):
        build("riscv", tmp_path, deadline=Deadline.after(1), log=tmp_path / "log")
    with pytest.raises(ConfigError, match="no gcc"):
        build("aarch64-macos", tmp_path, deadline=Deadline.after(1), log=tmp_path / "log", compiler="gcc")
    (tmp_path / "not.so").write_bytes(b"\x7fELF\x02\x01" + bytes(70))
    (tmp_path / "neither.so").write_bytes(b"MZ")
    with pytest.raises(FormatError, match="not a little-endian ELF"):
        read_elf(tmp_path / "neither.so")
    assert read_elf(tmp_path / "not.so").exported == ()
    assert host_target() in TARGETS
