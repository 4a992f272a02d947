"""The same logits, all bits, on every machine, with every compiler, thread count and flush-to-zero setting."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipelines.golden import formats
from pipelines.golden.forward import Forward, GoldenModel, ModelShape
from pipelines.golden.sampling import TOP_P_ONE, SamplingOptions, SplitMix64, sample
from pipelines.model.image import Image
from pipelines.runtime.host import HostRuntime
from tests.native import images
from tests.native.conftest import MACHINES, QEMU, QEMU_CPU, pl_library, runtime_library, test_program

HERE = Path(__file__).parent

# Rows of full width: here the work is really divided between threads.
WIDE_SHAPE = ModelShape(hidden=1536, ffn=4096, layers=1, heads=16, head_dim=96, vocab=4001, context=8)


def run_logits(
    target: str, compiler: str, image: Path, tokens: list[int], *,
    backend: str = "host", pl: Path | None = None, threads: int = 1, flush: bool = False, plain: bool = False,
    simple: bool = False, timeout_s: float = 300.0,
) -> np.ndarray:  # fmt: skip
    """Logits float32[tokens, vocab] of a built library on a machine."""
    program = test_program("logits", target, compiler, [HERE / "logits.c"])
    library = runtime_library(target, compiler)
    found = subprocess.run(
        [*QEMU[target], program, library, image, backend, pl or "-", str(threads), str(int(flush)), str(int(plain)),
         str(int(simple)), *map(str, tokens)],
        capture_output=True, timeout=timeout_s, env={**os.environ, "QEMU_CPU": QEMU_CPU[target]},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr.decode()
    assert found.stderr == b""
    return np.frombuffer(found.stdout, dtype=np.float32).reshape(len(tokens), -1)


def assert_same_bits(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    different = np.argwhere(found.view(np.int32) != np.ascontiguousarray(wanted).view(np.int32))
    assert different.size == 0, f"{len(different)} of {wanted.size} differ, first at {different[0]}"


@pytest.mark.parametrize(("target", "compiler"), MACHINES)
@pytest.mark.parametrize("flush", [False, True], ids=["", "flush-to-zero"])
def test_shipped_model(
    target: str, compiler: str, flush: bool, shipped_image: Path, shipped_run: tuple[list[int], np.ndarray]
) -> None:
    tokens, wanted = shipped_run
    assert len(tokens) >= 64
    assert_same_bits(run_logits(target, compiler, shipped_image, tokens, flush=flush), wanted)


@pytest.mark.parametrize(("target", "compiler"), MACHINES)
@pytest.mark.parametrize("plain", [False, True], ids=["", "plain"])
def test_small_model_with_planes_and_pieces(
    target: str, compiler: str, plain: bool, small_image: Path, small_run: tuple[list[int], np.ndarray]
) -> None:
    tokens, wanted = small_run
    assert_same_bits(run_logits(target, compiler, small_image, tokens, plain=plain), wanted)


def model_at_the_bounds(end: int, *, matrix_exponent: int | None = None) -> GoldenModel:
    """The small model with every float of the image at its smallest (``end`` 0) or largest (1) magnitude.

    Only norm weights are not at their smallest, which would make all codes zero, but where the scale of the codes is.
    """
    matrix, kv, norm = (formats.FLOAT_BOUNDS[name][end] for name in ("MATRIX_SCALE", "KV_SCALE", "NORM_WEIGHT"))
    matrix = matrix if matrix_exponent is None else matrix_exponent
    norm = norm if end else -17
    model = images.random_model(images.SMALL_SHAPE, 3)

    def at_bound(x: np.ndarray, exponent: int) -> np.ndarray:
        return np.copysign(np.float32(2.0**exponent), x)

    layers = tuple(
        dataclasses.replace(
            layer,
            scales=dict.fromkeys(layer.scales, np.float32(2.0**matrix)),
            k_scale=at_bound(layer.k_scale, kv),
            v_scale=at_bound(layer.v_scale, kv),
            **{name: at_bound(getattr(layer, name), norm)
               for name in ("input_norm", "post_norm", "inner_attn_norm", "ffn_norm")},
        )
        for layer in model.layers
    )  # fmt: skip
    return dataclasses.replace(
        model, layers=layers, final_norm=at_bound(model.final_norm, norm),
        head_scales=np.full_like(model.head_scales, 2.0**matrix),
    )  # fmt: skip


@pytest.fixture(scope="module", params=[0, 1], ids=["smallest", "largest"])
def bounds_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[int], np.ndarray]:
    """numpy raises where a number leaves the normal range: no denormal, infinity or NaN can arise."""
    model = model_at_the_bounds(request.param)
    tokens = [1, 300, 5, 5]
    with np.errstate(all="raise"):
        logits = Forward(model)(tokens)
    assert np.isfinite(logits).all() and logits.any()
    return images.write_image(model, tmp_path_factory.mktemp("bounds"), 4096), tokens, logits


@pytest.mark.parametrize(("target", "compiler"), MACHINES)
@pytest.mark.parametrize("flush", [False, True], ids=["", "flush-to-zero"])
def test_floats_at_their_bounds(
    target: str, compiler: str, flush: bool, bounds_run: tuple[Path, list[int], np.ndarray]
) -> None:
    image, tokens, wanted = bounds_run
    assert_same_bits(run_logits(target, compiler, image, tokens, flush=flush), wanted)


@pytest.mark.parametrize(("end", "exponent", "words"), [(0, -50, "underflow"), (1, 20, "overflow")])
def test_the_bounds_are_needed(end: int, exponent: int, words: str) -> None:
    """Scales well beyond them do leave the range, so the run at the bounds could have failed."""
    model = model_at_the_bounds(end, matrix_exponent=exponent)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError, match=words):
        Forward(model)([1, 300, 5, 5])


SAMPLING = SamplingOptions(temperature=0.8, top_k=40, top_p=0.95, repetition_penalty=1.1, seed=3)
DRAWN = 40


@pytest.fixture(scope="module")
def drawn(shipped_image: Path) -> tuple[list[int], list[int]]:
    """A prompt's tokens, and what the golden model draws after them."""
    golden = Image.open(shipped_image).golden()
    forward, random = Forward(golden), SplitMix64(SAMPLING.seed)
    prompt = [golden.shape.bos, 300, 17, 1024]
    said = list(prompt)
    logits = forward(said)
    for _ in range(DRAWN):
        said.append(sample(logits[-1], said, SAMPLING, random))
        logits = forward(said[-1:])
    return prompt, said[len(prompt) :]


@pytest.mark.parametrize(("target", "compiler"), MACHINES)
def test_the_same_text_for_the_same_seed(
    target: str, compiler: str, shipped_image: Path, drawn: tuple[list[int], list[int]]
) -> None:
    prompt, wanted = drawn
    assert len(set(wanted)) > DRAWN // 2  # text, and not one token again and again
    options = [DRAWN, SAMPLING.seed, SAMPLING.temperature, SAMPLING.top_k, round(SAMPLING.top_p * TOP_P_ONE)]
    found = subprocess.run(
        [*QEMU[target], test_program("text", target, compiler, [HERE / "text.c"]), runtime_library(target, compiler),
         shipped_image, *map(str, options), str(SAMPLING.repetition_penalty), *map(str, prompt)],
        capture_output=True, text=True, timeout=300, env={**os.environ, "QEMU_CPU": QEMU_CPU[target]},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert [int(line) for line in found.stdout.split()] == wanted


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int], np.ndarray]:
    model = images.random_model(WIDE_SHAPE, 7)
    tokens = [1, 4000, 17, 5]
    return images.write_image(model, tmp_path_factory.mktemp("wide")), tokens, Forward(model)(tokens)


@pytest.mark.parametrize(("target", "compiler"), MACHINES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(target: str, compiler: str, threads: int, wide: tuple[Path, list[int], np.ndarray]) -> None:
    image, tokens, wanted = wide
    assert_same_bits(run_logits(target, compiler, image, tokens, threads=threads), wanted)
    assert_same_bits(run_logits(target, compiler, image, tokens, threads=threads, plain=True), wanted)


@pytest.mark.parametrize("kind", ["rtl", "model"])
@pytest.mark.parametrize("simple", [False, True], ids=["scatter-gather", "simple"])
def test_circuits_of_the_shipped_model(
    kind: str, simple: bool, shipped_image: Path, shipped_run: tuple[list[int], np.ndarray]
) -> None:
    tokens, wanted = shipped_run
    found = run_logits(
        "x86_64-linux", "gcc", shipped_image, tokens[:64], backend=kind, pl=pl_library(kind), simple=simple, threads=2
    )
    assert_same_bits(found, wanted[:64])


@pytest.mark.parametrize("kind", ["rtl", "model"])
@pytest.mark.parametrize("simple", [False, True], ids=["scatter-gather", "simple"])
def test_circuits_of_the_small_model(
    kind: str, simple: bool, small_image: Path, small_run: tuple[list[int], np.ndarray]
) -> None:
    tokens, wanted = small_run
    found = run_logits("x86_64-linux", "zig", small_image, tokens, backend=kind, pl=pl_library(kind), simple=simple)
    assert_same_bits(found, wanted)


@pytest.mark.parametrize("kind", ["rtl", "model"])
def test_circuits_inside_the_emulated_instruction_set(
    kind: str, shipped_image: Path, shipped_run: tuple[list[int], np.ndarray]
) -> None:
    """What runs on the emulated board: the ARM runtime with the RTL compiled for ARM; and the model's plain C there."""
    tokens, wanted = shipped_run
    pl = pl_library(kind, "armv7-linux")
    assert_same_bits(run_logits("armv7-linux", "zig", shipped_image, tokens[:8], backend=kind, pl=pl), wanted[:8])


def test_every_trace_point(host_library: Path, small_image: Path) -> None:
    model = images.random_model(images.SMALL_SHAPE, 3)
    golden = Forward(model)
    wanted: list[tuple[str, int, np.ndarray]] = []
    golden.trace = lambda name, layer, value: wanted.append((name, layer, np.array(value[0])))
    found: list[tuple[str, int, np.ndarray]] = []
    with HostRuntime(host_library, small_image) as runtime:
        runtime.trace(lambda name, layer, value: found.append((name, layer, value)))
        for token in (1, 5, 300):
            wanted.clear()
            found.clear()
            golden([token])
            runtime.forward(token)
            assert [point[:2] for point in found] == [point[:2] for point in wanted]
            for (name, layer, have), (_, _, want) in zip(found, wanted, strict=True):
                assert have.tobytes() == np.ascontiguousarray(want).tobytes(), (name, layer)
        runtime.trace(None)
        runtime.forward(2)
        assert len(found) == len(wanted)
