"""The shipped model's real weights and activations through the circuits, by the runtime's own driver."""
# ruff: noqa: F811  (shipped_image is a fixture of another folder)

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import MismatchError, UsageError
from pipelines.golden import formats
from pipelines.hardware import simulate
from pipelines.hardware.simulate import Check, Token, check_token
from pipelines.model import convert
from pipelines.model.image import Image
from pipelines.runtime.host import HostRuntime
from tests.native.conftest import ROOT, shipped_image  # noqa: F401  (a fixture)

MATVEC_RESULTS, ATTENTION_RESULTS = 239_232, 37_248
"""Result words of the reference's own checks: the least that real data must cover here."""
TOKENS = 48
BUILD_S = 300.0


@pytest.fixture(scope="module")
def token_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("token")
    return simulate.build_token_library(folder / "libtoken.so", deadline=Deadline.after(BUILD_S), log=folder / "log")


def said(token_library: Path, pl_library: Path, weights: Path, count: int, backend: str = "rtl") -> Check:
    """Says ``count`` tokens, each the likeliest after the last, and checks every word of every one."""
    image = Image.open(weights)
    shape = image.shape
    check = Check()
    keys = np.zeros((shape.layers, shape.heads, 0, shape.head_dim), dtype=np.int8)
    values = keys
    token = shape.bos
    with HostRuntime(token_library, weights, backend, pl_library=pl_library, context=count) as runtime:
        for _ in range(count):
            traced: dict[tuple[str, int], npt.NDArray[np.generic]] = {}
            runtime.trace(lambda point, layer, array, into=traced: into.__setitem__((point, layer), array.copy()))
            token = int(np.argmax(runtime.forward(token)))
            check_token(Token(traced, (), {}, 0.0, ""), image, keys, values, check)
            per_layer = (shape.layers, shape.heads, 1, shape.head_dim)
            new_k, new_v = (
                np.stack([traced[name, layer] for layer in range(shape.layers)]).astype(np.int8).reshape(per_layer)
                for name in ("k_code", "v_code")
            )
            keys, values = np.concatenate([keys, new_k], axis=2), np.concatenate([values, new_v], axis=2)
        assert runtime.native.complaint() == ""
    return check


def test_as_many_results_as_the_reference_checked(token_library: Path, rtl_library: Path, shipped_image: Path) -> None:
    check = said(token_library, rtl_library, shipped_image, TOKENS)
    assert check.first == ""
    assert check.mismatches == {"matvec": 0, "attention": 0}
    assert check.words["matvec"] >= MATVEC_RESULTS
    assert check.words["attention"] >= ATTENTION_RESULTS


def test_transfers_cut_into_pieces(token_library: Path, rtl_library: Path, tmp_path: Path) -> None:
    """The largest real transfer, 5 MB a port, is never cut and this model's, 41 KB, even less: so a limit of 16 KiB."""
    checkpoint = ROOT / "models" / "tiny"
    settings = convert.Settings(
        "tiny", context=64, calibration_text=checkpoint / "calibration.txt", max_transfer_bytes=1 << 14
    )
    convert.convert(checkpoint, tmp_path, settings=settings, deadline=Deadline.after(BUILD_S))
    entries = Image.open(tmp_path).entries
    assert any(entry.piece > 0 and not entry.flags & formats.TRANSFER_LOADS_X for entry in entries)
    assert max(entry.size_bytes for entry in entries) <= 1 << 14
    check = said(token_library, rtl_library, tmp_path, 2)
    assert check.first == "" and check.words["matvec"] > 0


class TestSimulate:
    def test_the_functional_engines_answer_the_same(
        self,
        token_library: Path,
        rtl_library: Path,
        model_library: Path,
        shipped_image: Path,
    ) -> None:
        """Equal words and equal counters but for stalls, on the same driver and the same program."""
        keys, values = simulate.history(Image.open(shipped_image).shape, 9)
        one, other = (
            simulate.run_token(token_library, library, shipped_image, keys, values, backend=kind, memory_wall=False)
            for library, kind in ((rtl_library, "rtl"), (model_library, "model"))
        )
        assert one.traced.keys() == other.traced.keys()
        for name, array in one.traced.items():
            assert np.array_equal(array, other.traced[name]), name
        for a, b in zip(one.counters, other.counters, strict=True):
            assert replace(a, stall_in=0, stall_out=0, stall_turn=0) == replace(
                b, stall_in=0, stall_out=0, stall_turn=0
            )

    def test_a_token_with_and_without_the_memory_wall(
        self,
        token_library: Path,
        rtl_library: Path,
        shipped_image: Path,
    ) -> None:
        result = simulate.simulate(token_library, rtl_library, shipped_image, 64)
        for circuit in ("matvec", "attention"):
            part = result[circuit]
            assert part["mismatches"] == 0 and part["results_compared"] > 0
            assert part["words_per_cycle"] >= (0.999 if circuit == "matvec" else 0.97)
            assert part["ms"]["memory_wall"]["value"] > part["ms"]["none"]["value"] > 0
        assert result["pl_ms_at_clock"]["value"] > result["floor_ms"]["value"]
        shape = Image.open(shipped_image).shape
        # Both ports get header and x of each group and half of its rows; heads are not split.
        head_words = 1 + shape.head_dim // 8 * (1 + 2 * 64)
        assert result["attention"]["words"] == shape.layers * shape.heads * head_words

    def test_a_wrong_word_is_told_with_its_place(
        self,
        token_library: Path,
        model_library: Path,
        shipped_image: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("TRITFORGE_FAULT", "wrong_word@matvec1:3")
        image = Image.open(shipped_image)
        keys, values = simulate.history(image.shape, 3)
        token = simulate.run_token(
            token_library, model_library, shipped_image, keys, values, backend="model", memory_wall=False
        )
        check = check_token(token, image, keys, values)
        assert check.mismatches["matvec"] == 1
        half = (image.shape.group_rows("gate_up") + 1) // 2
        assert check.first.startswith(f"layer 0, gate_up, word {half}:")

    def test_a_context_that_cannot_be(self, token_library: Path, model_library: Path, shipped_image: Path) -> None:
        for positions in (0, 100_000):
            with pytest.raises(UsageError, match="positions"):
                simulate.simulate(token_library, model_library, shipped_image, positions)

    def test_mismatches_fail_the_command(
        self,
        token_library: Path,
        rtl_library: Path,
        shipped_image: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("TRITFORGE_FAULT", "wrong_word@attention0:2")
        with pytest.raises(MismatchError, match="layer 1, attention") as raised:
            simulate.simulate(token_library, rtl_library, shipped_image, 4)
        assert raised.value.result["attention"]["mismatches"] > 0
