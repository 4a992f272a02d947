"""Each kernel against its plain-C twin and numpy, on every machine, over ordinary and extreme inputs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipelines.golden import float32, rope
from pipelines.runtime.build import runtime_sources
from tests.native.conftest import MACHINES, QEMU, QEMU_CPU, test_program

HERE = Path(__file__).parent
COUNT = 4096


def inputs(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x, y float32; a, b int32; half uint16 (never NaN or infinite)."""
    random = np.random.default_rng([ord(letter) for letter in kind])
    x = random.standard_normal(COUNT).astype(np.float32)
    y = random.standard_normal(COUNT).astype(np.float32)
    a = random.integers(-524_288, 524_289, COUNT, dtype=np.int32)
    b = random.integers(-524_288, 524_289, COUNT, dtype=np.int32)
    half = random.standard_normal(COUNT).astype(np.float16).view(np.uint16)
    if kind == "tiny":  # around the threshold of 2**-30, and below it
        x = np.ldexp(x, random.integers(-36, -24, COUNT)).astype(np.float32)
        x[::5] = np.copysign(np.float32(2.0**-30), x[::5])
        x[1::5] = np.copysign(np.nextafter(np.float32(2.0**-30), np.float32(0)), x[1::5])
        a, b = a % 3 - 1, b % 5 - 2
        half = random.integers(0, 0x400, COUNT).astype(np.uint16) | (random.integers(0, 2, COUNT) << 15).astype(
            np.uint16
        )
    elif kind == "huge":  # beyond every clamp; squares stay finite
        x = np.ldexp(x, random.integers(10, 50, COUNT)).astype(np.float32)
        a, b = (random.integers(-(2**31), 2**31, COUNT).astype(np.int32) for _ in range(2))
        half = (random.integers(0x7000, 0x7C00, COUNT) | random.integers(0, 2, COUNT) << 15).astype(np.uint16)
    elif kind == "halves":  # ties of the rounding, and numbers just beside them
        x = ((random.integers(-300, 300, COUNT) + 0.5) / 41.25).astype(np.float32)
        x[::3] = np.nextafter(x[::3], np.float32(np.inf))
    elif kind == "signed-zero":
        x = np.copysign(np.float32(0), x)
        a[:] = 0
        half = (half & 0x8000).astype(np.uint16)
    elif kind == "zero":
        x[:], y[:], a[:], b[:], half[:] = 0, 0, 0, 0, 0
    return x, y, a, b, half


def golden(
    x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, half: np.ndarray
) -> list[tuple[str, np.ndarray]]:
    """What kernels.c prints, by numpy."""
    odd = COUNT - 3
    f = np.float32
    kept = np.where(np.abs(x) < float32.TINY, f(0), x)
    normalised = (kept * f(0.37)) * y
    return [
        ("tf_widen", half[:odd].view(np.float16).astype(np.float32)),
        (
            "tf_add_squares",
            float32.sum16(kept * kept)[None] if kept.ndim > 1 else np.array([float32.sum16(kept * kept)]),
        ),
        ("tf_normalise", normalised),
        ("tf_normalise's largest", np.abs(normalised).max(keepdims=True)),
        ("tf_largest", np.abs(x[:odd]).max(keepdims=True)),
        ("tf_quantise", float32.quantise_fixed(x[:odd], f(41.25))),
        ("tf_dequantise", float32.dequantise(a[:odd], f(0.0123))),
        ("tf_dequantise_add", x[:odd] + float32.dequantise(a[:odd], f(0.0123))),
        ("tf_rotate", rope.rotate(x, y[: COUNT // 2], y[COUNT // 2 :])),
        ("tf_exp", float32.exp(x[:odd])),
        ("tf_gate", float32.silu_gate(float32.dequantise(a[:odd], f(0.0017)), float32.dequantise(b[:odd], f(0.0213)))),
    ]


@pytest.mark.parametrize(("target", "compiler"), MACHINES)
@pytest.mark.parametrize("flush", [0, 1], ids=["", "flush-to-zero"])
@pytest.mark.parametrize("kind", ["random", "tiny", "huge", "halves", "signed-zero", "zero"])
def test_kernels(target: str, compiler: str, flush: int, kind: str) -> None:
    program = test_program("kernels", target, compiler, [HERE / "kernels.c", *runtime_sources()])
    arrays = inputs(kind)
    found = subprocess.run(
        [*QEMU[target], program, str(flush)],
        input=np.uint32(COUNT).tobytes() + b"".join(array.tobytes() for array in arrays),
        capture_output=True, timeout=60, env={**os.environ, "QEMU_CPU": QEMU_CPU[target]},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr.decode()
    at = 0
    for name, wanted in golden(*arrays):
        raw = np.ascontiguousarray(wanted).tobytes()
        have = np.frombuffer(found.stdout[at : at + len(raw)], dtype=wanted.dtype)
        if name == "tf_add_squares" or wanted.dtype != np.float32:
            assert have.tobytes() == raw, name
        else:
            different = np.flatnonzero(have.view(np.int32) != np.frombuffer(raw, dtype=np.int32))
            assert different.size == 0, (
                f"{name}: {different.size} differ, first {have[different[0]]!r} at {different[0]}"
            )
        at += len(raw)
    assert at == len(found.stdout)
