"""Libraries of the circuits for these tests: built once, kept by the contents of their sources."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.lock import held
from pipelines.hardware import bench as bench_module
from pipelines.hardware import verilate
from pipelines.hardware.bench import Bench, build_bench
from pipelines.hardware.checks import AttentionBuild
from pipelines.hardware.library import Pl
from pipelines.runtime.build import host_target

CONTENT_ID = 0x5EED1234
BUILD_S = 1800.0  # also to wait for who builds; the compiler makes its C++ library at its first start
SMALL = AttentionBuild(head_dim=8, positions=2048)
"""The narrowest head and the largest T: every hazard of short rows, and 13-bit probabilities."""


def _kept(name: str, make: Callable[[Path, Path], None]) -> Path:
    """A library under the temporary folder, named by everything that it is made of."""
    digest = hashlib.sha256(name.encode())
    sources = [*verilate.source_files(), Path(verilate.__file__), Path(bench_module.__file__)]
    for source in sources:
        digest.update(source.read_bytes())
    digest.update(verilate.verilator_version().encode() + verilate.compiler_version().encode())
    folder = Path(tempfile.gettempdir()) / f"tritforge-hardware-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"{name}-{digest.hexdigest()[:20]}.so"
    with held(folder / f"{name}.lock", f"building {name} for the tests", deadline=Deadline.after(BUILD_S)):
        if not library.is_file():
            fresh = folder / f"{library.name}.new"
            make(fresh, folder / f"{name}.log")
            fresh.replace(library)
    return library


@pytest.fixture(scope="session")
def rtl_library() -> Path:
    """The whole design behind the DMA model, with its assertions on."""

    def make(out: Path, log: Path) -> None:
        verilate.build_rtl(
            host_target(), out, content_id=CONTENT_ID, deadline=Deadline.after(BUILD_S), log=log, assertions=True
        )

    return _kept("rtl", make)


@pytest.fixture(scope="session")
def model_library() -> Path:
    """The functional engines behind the same DMA model."""

    def make(out: Path, log: Path) -> None:
        verilate.build_model(host_target(), out, deadline=Deadline.after(BUILD_S), log=log)

    return _kept("model", make)


@pytest.fixture(params=["rtl", "model"])
def pl(request: pytest.FixtureRequest) -> Iterator[Pl]:
    """A fresh board of either kind, simple mode, all four engines running."""
    library = request.getfixturevalue(f"{request.param}_library")
    with Pl(library, memory_bytes=1 << 20, content_id=CONTENT_ID) as board:
        for engine in range(4):
            board.reset(engine)
        yield board


def _bench(name: str, engine: str, parameters: dict[str, int]) -> Path:
    def make(out: Path, log: Path) -> None:
        build_bench(engine, out, deadline=Deadline.after(BUILD_S), log=log, parameters=parameters)

    return _kept(name, make)


@pytest.fixture(scope="session")
def matvec_bench() -> Iterator[Bench]:
    with Bench(_bench("matvec", "matvec", {})) as engine:
        yield engine


@pytest.fixture(scope="session")
def attention_bench() -> Iterator[Bench]:
    with Bench(_bench("attention", "attention", {})) as engine:
        yield engine


@pytest.fixture(scope="session")
def small_attention_bench() -> Iterator[Bench]:
    parameters = {"HeadDim": SMALL.head_dim, "MaxPositions": SMALL.positions}
    with Bench(_bench("attention-small", "attention", parameters)) as engine:
        yield engine
