"""The DMA driver against the register model: traces, faults, and what happens without each cache or barrier call."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

from board_rt.runtime import PlFault, PlTimeout, PlUnfit, Runtime, RuntimeFailure
from pipelines.runtime.build import runtime_sources
from tests.native import images
from tests.native.conftest import ROOT, test_program
from tests.native.test_machines import assert_same_bits

HERE = Path(__file__).parent
DRIVER = ROOT / "native" / "src" / "driver.c"


def logits_of(runtime: Runtime, tokens: list[int]) -> np.ndarray:
    return np.stack([np.frombuffer(runtime.forward(token), dtype=np.float32).copy() for token in tokens])


@pytest.fixture(scope="module")
def shim() -> Path:
    return test_program("pl_shim.so", "x86_64-linux", "gcc", [HERE / "pl_shim.c"], "-shared")


def register_trace(
    library: Path, shim: Path, behind: Path, kind: str, image: Path, tokens: list[int], log: Path, *,
    simple: bool, monkeypatch: pytest.MonkeyPatch,
) -> tuple[np.ndarray, list[str]]:  # fmt: skip
    monkeypatch.setenv("PL_SHIM_LIBRARY", str(behind))
    monkeypatch.setenv("PL_SHIM_LOG", str(log))
    # a copy has a state of its own: the loader keeps one library per file
    copy = log.with_suffix(".so")
    copy.write_bytes(shim.read_bytes())
    with Runtime(library, image, kind, pl_library=copy, simple_dma=simple) as runtime:
        logits = logits_of(runtime, tokens)
        assert runtime.complaint() == ""
    return logits, log.read_text().splitlines()


@pytest.mark.parametrize("simple", [False, True], ids=["scatter-gather", "simple"])
def test_rtl_and_model_see_the_same_program(
    simple: bool, host_library: Path, rtl_library: Path, model_library: Path, shim: Path, small_image: Path,
    small_run: tuple[list[int], np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    tokens, wanted = small_run
    found = {
        kind: register_trace(
            host_library, shim, behind, kind, small_image, tokens, tmp_path / kind, simple=simple,
            monkeypatch=monkeypatch,
        )
        for kind, behind in (("rtl", rtl_library), ("model", model_library))
    }  # fmt: skip
    for logits, _ in found.values():
        assert_same_bits(logits, wanted)
    rtl, model = ([line for line in found[kind][1] if not content_id(line)] for kind in ("rtl", "model"))
    assert len(rtl) > 100 * len(tokens) / 4
    assert rtl == model


def content_id(line: str) -> bool:
    return line.startswith("R 43c00008")


def test_few_register_writes(host_library: Path, model_library: Path, small_image: Path) -> None:
    """With scatter-gather: one tail write a channel and nothing else, descriptors stay where they are."""
    with Runtime(host_library, small_image, "model", pl_library=model_library) as runtime:
        before = runtime.profile()["register_writes"]
        runtime.forward(1)
        layers = images.SMALL_SHAPE.layers
        groups = 4 * layers + 1
        # two channels; two ports for matrices, one for the only head
        assert runtime.profile()["register_writes"] - before == 2 * 2 * groups + 2 * layers


def test_memory_plan_is_what_is_used(host_library: Path, model_library: Path, small_image: Path) -> None:
    with Runtime(host_library, small_image, "model", pl_library=model_library) as runtime:
        plan = runtime.plan().as_dict()
    parts = ("weights", "keys_values", "head_slots", "descriptors", "staging")
    assert 0 <= plan["streams"] - sum(plan[part] for part in parts) < 4096
    assert plan["total"] == plan["streams"] + plan["results"]
    assert plan["weights"] == -(-(small_image / "weights.tfs").stat().st_size // 64) * 64
    with Runtime(host_library, small_image, "host", context=8) as runtime:
        assert runtime.plan().keys_values < plan["keys_values"]


# ---------------------------------------------------------------- faults

FAULTS = [
    ("halt@matvec0:3", PlFault, "errors internal"),
    ("slave_error@matvec1:2", PlFault, "errors slave"),
    ("decode_error@attention0", PlFault, "errors decode"),
    ("sg_error@matvec0:2", PlFault, "errors SG"),
    ("short_s2mm@matvec0", (PlFault, PlTimeout), "matvec0"),
    ("never_idle@attention0:2", PlTimeout, "not finished within 300 ms"),
    ("never_idle@matvec1", PlTimeout, "CURDESC"),
]


@pytest.mark.parametrize("kind", ["rtl", "model"])
@pytest.mark.parametrize(("fault", "failure", "words"), FAULTS, ids=[fault for fault, _, _ in FAULTS])
def test_fault(
    kind: str, fault: str, failure: type[RuntimeFailure], words: str, host_library: Path, small_image: Path,
    small_run: tuple[list[int], np.ndarray], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """The right error within the deadline, with what a person needs in it; afterwards a reset leads back."""
    tokens, _ = small_run
    behind = request.getfixturevalue(f"{kind}_library")
    monkeypatch.setenv("TRITFORGE_FAULT", fault)
    with Runtime(host_library, small_image, kind, pl_library=behind, deadline_ms=300) as runtime:
        started = time.monotonic()
        with pytest.raises(failure) as caught:
            logits_of(runtime, tokens[:2])
        assert time.monotonic() - started < 10
        message = str(caught.value)
        assert words in message
        for part in ("DMASR", "CURDESC", "words in", "stalls in", "layer"):
            assert part in message
        with pytest.raises(RuntimeFailure, match="reset"):
            runtime.forward(1)


@pytest.mark.parametrize("simple", [False, True], ids=["scatter-gather", "simple"])
def test_after_a_wrong_stream_a_reset_leads_back(
    simple: bool, host_library: Path, model_library: Path, small_image: Path, shim: Path,
    small_run: tuple[list[int], np.ndarray], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A header that is damaged on its way stops the engine by name; when it is whole again, reset brings all back."""
    tokens, wanted = small_run
    monkeypatch.setenv("PL_SHIM_LIBRARY", str(model_library))
    monkeypatch.delenv("PL_SHIM_LOG", raising=False)
    with Runtime(host_library, small_image, "model", pl_library=shim, deadline_ms=200, simple_dma=simple) as runtime:
        logits_of(runtime, tokens[:2])
        monkeypatch.setenv("PL_SHIM_CORRUPT", "0")
        with pytest.raises(PlTimeout, match="matvec0: errors bad_magic .word 0."):
            runtime.forward(tokens[2])
        monkeypatch.delenv("PL_SHIM_CORRUPT")
        runtime.reset()
        assert_same_bits(logits_of(runtime, tokens), wanted)
        assert runtime.complaint() == ""


def test_narrow_length_register(
    host_library: Path, model_library: Path, shim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vivado's default of 14 bits cuts transfers at 16 KiB: refused by name, never a wrong result."""
    image = images.write_image(images.random_model(images.TINY_SHAPE, 1), tmp_path / "image")
    monkeypatch.setenv("PL_SHIM_LIBRARY", str(model_library))
    monkeypatch.setenv("PL_SHIM_OPTIONS", "length_width=14")
    monkeypatch.delenv("PL_SHIM_LOG", raising=False)
    with Runtime(host_library, image, "model", pl_library=shim, deadline_ms=300, simple_dma=True) as runtime:
        with pytest.raises(PlUnfit, match="length register is too narrow"):
            runtime.forward(1)
    with Runtime(host_library, image, "model", pl_library=shim, deadline_ms=300) as runtime:
        with pytest.raises(PlTimeout, match="early_tlast"):
            runtime.forward(1)


def test_another_bitstream_is_refused(
    host_library: Path, rtl_library: Path, model_library: Path, shim: Path, small_image: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PL_SHIM_LIBRARY", str(model_library))
    monkeypatch.setenv("PL_SHIM_OPTIONS", "attention_head_dim=64")
    monkeypatch.delenv("PL_SHIM_LOG", raising=False)
    with pytest.raises(PlUnfit, match="heads of 64, the model has 96"):
        Runtime(host_library, small_image, "model", pl_library=shim)
    with pytest.raises(PlUnfit, match="is a 'model', wanted is 'rtl'"):
        Runtime(host_library, small_image, "rtl", pl_library=model_library)
    with pytest.raises(PlUnfit, match="cannot be loaded"):
        Runtime(host_library, small_image, "rtl", pl_library=small_image / "nowhere.so")
    with pytest.raises(PlUnfit, match="no function tritforge_rtl_kind"):
        Runtime(host_library, small_image, "rtl", pl_library=host_library)


# ---------------------------------------------------------------- every cache and barrier call is needed


def omittable_calls() -> list[str]:
    """The enumeration in driver.c. Nothing but the three functions that take a name from it reaches the seam."""
    text = DRIVER.read_text()
    for source in runtime_sources():
        for call in ("clean", "invalidate", "barrier"):
            reached = len(re.findall(rf"pl->{call}\(", source.read_text()))
            assert reached == (source == DRIVER), f"{source.name} calls {call} {reached} times"
    names = re.findall(r"^    (CALL_\w+),$", text, re.MULTILINE)
    assert len(names) > 12
    for name in names:
        assert len(re.findall(rf"\b{name}\b", text)) == 2, f"{name} must stand at exactly one call"
    return names


@pytest.fixture(scope="module")
def omitting_library() -> Path:
    """The runtime with the omitted call chosen by the environment, so that one build serves all."""
    omitted = 'atoi(getenv("TF_OMITTED_CALL"))'
    return test_program("omit.so", "x86_64-linux", "gcc", runtime_sources(), "-shared", f"-DTF_OMIT={omitted}")


@pytest.mark.parametrize("call", omittable_calls())
def test_no_cache_call_is_idle(
    call: str, omitting_library: Path, model_library: Path, small_run: tuple[list[int], np.ndarray],
    small_image: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Without any one of them the logits are wrong or the driver fails."""
    tokens, wanted = small_run
    monkeypatch.setenv("TF_OMITTED_CALL", str(omittable_calls().index(call)))
    simple = "STAGING" in call or "SIMPLE" in call
    try:
        with Runtime(
            omitting_library, small_image, "model", pl_library=model_library, deadline_ms=500, simple_dma=simple
        ) as runtime:
            found = logits_of(runtime, tokens)
    except RuntimeFailure:
        return
    assert (found.view(np.int32) != wanted.view(np.int32)).any(), f"{call} can be left out unnoticed"


@pytest.mark.parametrize("simple", [False, True], ids=["scatter-gather", "simple"])
def test_with_all_calls_the_same_build_is_right(
    simple: bool, omitting_library: Path, model_library: Path, small_run: tuple[list[int], np.ndarray],
    small_image: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    tokens, wanted = small_run
    monkeypatch.setenv("TF_OMITTED_CALL", "-1")
    with Runtime(
        omitting_library, small_image, "model", pl_library=model_library, deadline_ms=2000, simple_dma=simple
    ) as runtime:
        assert_same_bits(logits_of(runtime, tokens), wanted)
