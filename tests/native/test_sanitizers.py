"""No undefined behaviour, no bad access, no race: ASan, UBSan and TSan, and a fuzzer on the loader."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipelines.golden.forward import Forward
from pipelines.runtime.build import runtime_sources
from tests.native import images
from tests.native.conftest import pl_library, test_program
from tests.native.test_machines import WIDE_SHAPE, assert_same_bits

HERE = Path(__file__).parent
ADDRESS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
THREAD = ("-fsanitize=thread", "-g", "-O1")


def run(flags: tuple[str, ...], name: str, image: Path, tokens: list[int], backend: str, threads: int, plain: bool,
        simple: bool = False) -> np.ndarray:  # fmt: skip
    program = test_program(f"logits-{name}", "x86_64-linux", "gcc", [HERE / "logits.c"], *flags)
    library = test_program(f"{name}.so", "x86_64-linux", "gcc", runtime_sources(), "-shared", *flags)
    pl = "-" if backend == "host" else pl_library(backend)
    found = subprocess.run(
        [program, library, image, backend, pl, str(threads), "0", str(int(plain)), str(int(simple)),
         *map(str, tokens)],
        capture_output=True, timeout=300,
        env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1", "ASAN_OPTIONS": "detect_leaks=1"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr.decode()[-4000:]
    return np.frombuffer(found.stdout, dtype=np.float32).reshape(len(tokens), -1)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int], np.ndarray]:
    model = images.random_model(WIDE_SHAPE, 8)
    tokens = [3, 4000]
    return images.write_image(model, tmp_path_factory.mktemp("wide")), tokens, Forward(model)(tokens)


@pytest.mark.parametrize("plain", [False, True], ids=["", "plain"])
def test_addresses_and_undefined_behaviour(
    plain: bool, small_image: Path, small_run: tuple[list[int], np.ndarray],
    wide: tuple[Path, list[int], np.ndarray],
) -> None:  # fmt: skip
    tokens, wanted = small_run
    assert_same_bits(run(ADDRESS, "asan", small_image, tokens, "host", 1, plain), wanted)
    assert_same_bits(run(ADDRESS, "asan", wide[0], wide[1], "host", 2, plain), wide[2])


@pytest.mark.parametrize("simple", [False, True], ids=["scatter-gather", "simple"])
def test_addresses_in_the_driver(simple: bool, small_image: Path, small_run: tuple[list[int], np.ndarray]) -> None:
    tokens, wanted = small_run
    assert_same_bits(run(ADDRESS, "asan", small_image, tokens, "model", 2, False, simple), wanted)


@pytest.mark.parametrize("backend", ["host", "model"])
@pytest.mark.parametrize("plain", [False, True], ids=["", "plain"])
def test_races(backend: str, plain: bool, wide: tuple[Path, list[int], np.ndarray]) -> None:
    image, tokens, wanted = wide
    assert_same_bits(run(THREAD, "tsan", image, tokens, backend, 3, plain), wanted)


def test_tsan_sees_a_race(tmp_path: Path) -> None:
    """The check itself: a race that is really there is reported by this compiler on this machine."""
    source = tmp_path / "race.c"
    source.write_text(
        "#include <pthread.h>\nint x;\nstatic void *f(void *a) { x++; return a; }\n"
        "int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); x++; pthread_join(t, 0); return 0; }\n"
    )
    program = test_program("race", "x86_64-linux", "gcc", [source], *THREAD)
    found = subprocess.run([program], capture_output=True, timeout=60)
    assert b"data race" in found.stderr and found.returncode != 0


def test_loader_fuzzed_from_a_seed(small_image: Path, full_campaigns: bool) -> None:
    program = test_program("fuzz_loader", "x86_64-linux", "gcc", [HERE / "fuzz_loader.c", *runtime_sources()], *ADDRESS)
    runs = 200_000 if full_campaigns else 3_000
    found = subprocess.run([program, small_image, "20261130", str(runs)], capture_output=True, text=True, timeout=3600)
    assert found.returncode == 0, found.stderr[-4000:]
    counts = re.fullmatch(r"opened (\d+) refused (\d+)\n", found.stdout)
    assert counts is not None
    opened, refused = int(counts[1]), int(counts[2])
    assert opened + refused == runs
    assert opened > runs // 100 and refused > runs // 10  # both ways are really taken


@pytest.mark.campaign
def test_loader_under_libfuzzer(small_image: Path, tmp_path: Path) -> None:
    """Coverage-guided, ten minutes; needs clang with its runtime (libclang-rt-dev)."""
    clang = shutil.which("clang")
    if clang is None:
        pytest.skip("clang is not installed: apt-get install clang libclang-rt-dev")
    include = [f"-I{HERE.parents[1] / folder}" for folder in ("native/include", "native/src")]
    subprocess.run(
        [clang, "-std=c11", "-D_GNU_SOURCE", "-DFUZZ_ENGINE", "-g", "-O1", "-fsanitize=fuzzer,address,undefined",
         *include, HERE / "fuzz_loader.c", *runtime_sources(), "-o", tmp_path / "fuzz", "-ldl", "-lpthread"],
        check=True, timeout=300,
    )  # fmt: skip
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "small").write_bytes(
        (small_image / "params.tfp").read_bytes() + (small_image / "weights.tfs").read_bytes()
    )
    seconds = int(os.environ.get("FUZZ_SECONDS", "600"))
    found = subprocess.run(
        [tmp_path / "fuzz", f"-max_total_time={seconds}", "-max_len=1048576", "-print_final_stats=1", corpus],
        capture_output=True, text=True, timeout=seconds + 300, cwd=tmp_path,
        env={**os.environ, "FUZZ_EMBEDDING": str(small_image / "embedding.f16")},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-4000:]
