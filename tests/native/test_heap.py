"""Nothing is allocated and nothing freed between opening and closing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipelines.runtime.build import runtime_sources
from tests.native.conftest import pl_library, test_program

HERE = Path(__file__).parent
WRAPPED = ("malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "free")


@pytest.mark.parametrize("backend", ["host", "model"])
def test_no_heap_in_the_token_loop(backend: str, small_image: Path) -> None:
    program = test_program(
        "heap", "x86_64-linux", "gcc", [HERE / "heap.c", *runtime_sources()],
        "-fno-builtin", *(f"-Wl,--wrap={name}" for name in WRAPPED),
    )  # fmt: skip
    found = subprocess.run([program, small_image, backend, pl_library("model")], capture_output=True, timeout=60)
    assert found.returncode == 0, found.stderr.decode()
    in_tokens, deliberate = map(int, found.stdout.split())
    assert in_tokens == 0
    assert deliberate == 2  # the counter does count
