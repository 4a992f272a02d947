"""The builder: the same bytes from different folders, and gates that really close."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError, FormatError, GateError, ToolFailed
from pipelines.base.files import sha256_file
from pipelines.runtime import build as runtime_build
from pipelines.runtime.build import TARGETS, Compiler, build, check_library, compile_c, host_target
from pipelines.runtime.elf import fused_instructions, read_elf
from tests.native.conftest import MACHINES, runtime_library

DEADLINE = 300.0
API = '__attribute__((visibility("default"))) '


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
        "#include <arm_neon.h>\n"
        + API
        + "float tf_f(float a, float b, float32x4_t c) { return vfmas_laneq_f32(a, b, c, 2); }",
    ],
)
def test_gate_against_fused_multiply_add(text: str, tmp_path: Path) -> None:
    library = compiled(tmp_path, "aarch64-linux", text, "-ffp-contract=fast")
    assert fused_instructions(read_elf(library).code)
    with pytest.raises(GateError, match="fused"):
        check_library(library, "aarch64-linux")


FUSED = """
fmadd s0,s1,s2,s3 | fmadd d0,d1,d2,d3 | fmsub s0,s1,s2,s3 | fnmadd s0,s1,s2,s3 | fnmsub d0,d1,d2,d3
fmla v0.2s,v1.2s,v2.2s | fmla v0.4s,v1.4s,v2.4s | fmla v0.2d,v1.2d,v2.2d | fmls v0.4s,v1.4s,v2.4s
fmla v0.4s,v1.4s,v31.s[3] | fmla v0.2d,v1.2d,v2.d[1] | fmla s0,s1,v2.s[3] | fmla d0,d1,v2.d[1]
fmls v0.2s,v1.2s,v2.s[0] | fmls s31,s30,v29.s[1]
"""
NOT_FUSED = """
fmul s0,s1,s2 | fadd v0.4s,v1.4s,v2.4s | fmul v0.4s,v1.4s,v2.s[3] | fmul s0,s1,v2.s[3] | mla v0.4s,v1.4s,v2.4s
mla v0.4s,v1.4s,v2.s[1] | madd x0,x1,x2,x3 | smlal v0.4s,v1.4h,v2.4h | fmulx s0,s1,v2.s[1]
fsqrt s0,s1 | fnmul s0,s1,s2
"""


@pytest.mark.parametrize(("text", "fused"), [(FUSED, True), (NOT_FUSED, False)], ids=["fused", "not fused"])
def test_every_form_of_an_instruction_is_known(text: str, fused: bool, tmp_path: Path) -> None:
    forms = [form.strip() for line in text.strip().splitlines() for form in line.split("|")]
    library = compiled(tmp_path, "aarch64-linux", "".join(f'__asm__("{form}");\n' for form in forms))
    found = fused_instructions(read_elf(library).code)
    assert len(found) == (len(forms) if fused else 0), found


CALLS_LIBM = "float expf(float);\n" + API + "float tf_f(float a) { return expf(a); }"


def test_gate_against_libm(tmp_path: Path) -> None:
    """Whether libm is named or the function left open, to be found in whatever the process has loaded."""
    for flags in (["-lm"], ["-Wl,--no-as-needed", "-lm"], []):
        with pytest.raises(GateError, match="libm"):
            check_library(compiled(tmp_path, "x86_64-linux", CALLS_LIBM, *flags), "x86_64-linux")


@pytest.mark.parametrize(("target", "compiler"), MACHINES)
def test_no_build_with_a_call_of_libm(
    target: str, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the compiler brings the function along, as zig does for ARMv7."""
    source = tmp_path / "source.c"
    source.write_text(CALLS_LIBM)
    monkeypatch.setattr(runtime_build, "runtime_sources", lambda: [source])
    with pytest.raises(GateError, match="needs expf: libm's results differ"):
        build(target, tmp_path / "out", deadline=Deadline.after(DEADLINE), log=tmp_path / "log", compiler=compiler)


def test_gate_against_newer_glibc(tmp_path: Path) -> None:
    """arc4random came with glibc 2.36."""
    text = "unsigned arc4random(void);\n" + API + "unsigned tf_f(void) { return arc4random(); }"
    with pytest.raises(GateError, match="GLIBC_2.36"):
        check_library(compiled(tmp_path, "armv7-linux", text), "armv7-linux")


def test_gate_against_newer_loaders(tmp_path: Path) -> None:
    """Packed relocations are read by glibc 2.36 and newer; the version that says so has no number."""
    text = "int rand(void);\nstatic int x;\n" + API + "int *tf_p = &x;\n" + API + "int tf_f(void) { return rand(); }"
    with pytest.raises(GateError, match="GLIBC_ABI_DT_RELR"):
        check_library(compiled(tmp_path, "x86_64-linux", text, "-Wl,-z,pack-relative-relocs"), "x86_64-linux")


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
