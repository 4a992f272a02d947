"""Builds that many tests share: the runtime for each machine, the simulated logic, the shipped model's image.

Kept under ``.tritforge/tests``, named by a hash of what they are made from, so that an unchanged build is made once.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from pipelines.base.deadline import Deadline
from pipelines.base.files import files_below
from pipelines.config.settings import Settings
from pipelines.golden.forward import Forward
from pipelines.hardware import verilate
from pipelines.model import convert
from pipelines.model.image import Image
from pipelines.runtime import build as runtime_build
from tests.native import images

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".tritforge" / "tests"
BUILD_SECONDS = 1800.0  # the compiler makes its C++ library at its first start, slowly on a crowded machine

MACHINES = [
    (target, compiler) for target in ("x86_64-linux", "aarch64-linux", "armv7-linux") for compiler in ("zig", "gcc")
]
"""What runs here, natively or under qemu."""

QEMU = {
    "x86_64-linux": [],
    "aarch64-linux": ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
    "armv7-linux": ["qemu-arm", "-L", "/usr/arm-linux-gnueabihf"],
}
QEMU_CPU = {"armv7-linux": "cortex-a9", "aarch64-linux": "cortex-a57", "x86_64-linux": ""}
"""A Cortex-A9, so that code which is illegal on one traps."""


def kept(name: str, inputs: Iterable[Path], make: Callable[[Path], None]) -> Path:
    """The folder that ``make`` fills, made again when one of the input files has changed."""
    digest = hashlib.sha256(name.encode())
    for path in sorted(inputs):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    folder = KEPT / f"{name}-{digest.hexdigest()[:16]}"
    KEPT.mkdir(parents=True, exist_ok=True)
    with FileLock(KEPT / f"{name}.lock"):
        if not folder.is_dir():
            for old in KEPT.glob(f"{name}-*"):
                shutil.rmtree(old)
            work = KEPT / f"{name}.new"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            make(work)
            work.rename(folder)
    return folder


def native_sources() -> list[Path]:
    return [*files_below(ROOT / "native"), Path(runtime_build.__file__)]


def runtime_library(target: str, compiler: runtime_build.Compiler) -> Path:
    """libtritforge.so of a machine."""

    def make(folder: Path) -> None:
        runtime_build.build(
            target, folder, deadline=Deadline.after(BUILD_SECONDS), log=folder / "log", compiler=compiler
        )

    return kept(f"runtime-{target}-{compiler}", native_sources(), make) / "libtritforge.so"


def test_program(name: str, target: str, compiler: runtime_build.Compiler, sources: list[Path], *flags: str) -> Path:
    """A program of this folder's C files for a machine."""
    headers = Path(__file__).parent.glob("*.h")

    def make(folder: Path) -> None:
        runtime_build.compile_c(
            target, sources, folder / name, deadline=Deadline.after(BUILD_SECONDS), log=folder / "log",
            compiler=compiler, flags=flags,
        )  # fmt: skip

    return kept(f"{name}-{target}-{compiler}", [*native_sources(), *headers, *sources], make) / name


test_program.__test__ = False  # type: ignore[attr-defined]


def pl_library(kind: str, target: str = "x86_64-linux") -> Path:
    """The simulated logic: kind rtl or model."""

    def make(folder: Path) -> None:
        deadline, log = Deadline.after(BUILD_SECONDS), folder / "log"
        if kind == "rtl":
            verilate.build_rtl(target, folder / "pl.so", content_id=0x7E577E57, deadline=deadline, log=log)
        else:
            verilate.build_model(target, folder / "pl.so", deadline=deadline, log=log)

    return kept(f"pl-{kind}-{target}", [*verilate.source_files(), Path(verilate.__file__)], make) / "pl.so"


@pytest.fixture(scope="session")
def host_library() -> Path:
    return runtime_library("x86_64-linux", "zig")


@pytest.fixture(scope="session")
def rtl_library() -> Path:
    return pl_library("rtl")


@pytest.fixture(scope="session")
def model_library() -> Path:
    return pl_library("model")


@pytest.fixture(scope="session")
def shipped_image() -> Path:
    """The image of the shipped model, as the product converts it."""
    checkpoint = ROOT / "models" / "tiny"
    shipped = Settings(environment={}).model("tiny")
    settings = convert.Settings(
        "tiny", shipped.context, shipped.head_planes, calibration_text=checkpoint / "calibration.txt"
    )
    inputs = [
        ROOT / "config" / "models" / "tiny.yaml",
        *files_below(checkpoint),
        *files_below(ROOT / "pipelines" / "model"),
        ROOT / "pipelines/golden/formats.py",
    ]
    return kept(
        "image-tiny",
        [path for path in inputs if "__pycache__" not in path.parts],
        lambda folder: convert.convert(checkpoint, folder, settings=settings, deadline=Deadline.after(BUILD_SECONDS)),  # type: ignore[func-returns-value,arg-type]
    )


@pytest.fixture(scope="session")
def shipped_run(shipped_image: Path) -> tuple[list[int], np.ndarray]:
    """72 tokens and the golden model's logits after each, float32[72, vocab]."""
    golden = Image.open(shipped_image).golden()
    tokens = np.random.default_rng(20261130).integers(0, golden.shape.vocab, 72)
    tokens[0] = golden.shape.bos
    return [int(token) for token in tokens], Forward(golden)(tokens)


@pytest.fixture(scope="session")
def small_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One head, two head planes, transfers cut at 4 KiB: everything odd at once."""
    return images.write_image(images.random_model(images.SMALL_SHAPE, 3), tmp_path_factory.mktemp("small"), 4096)


@pytest.fixture(scope="session")
def small_run() -> tuple[list[int], np.ndarray]:
    model = images.random_model(images.SMALL_SHAPE, 3)
    tokens = np.random.default_rng(4).integers(0, model.shape.vocab, model.shape.context)
    return [int(token) for token in tokens], Forward(model)(tokens)
