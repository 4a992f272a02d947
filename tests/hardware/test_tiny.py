"""The shipped model's real weights and activations through the circuits, by the runtime's own driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import MismatchError, UsageError
from pipelines.base.files import files_below
from pipelines.config.settings import Settings
from pipelines.golden import formats
from pipelines.hardware import simulate
from pipelines.hardware.simulate import Check, Token, check_token
from pipelines.model import convert
from pipelines.model.image import Image
from pipelines.runtime.host import HostRuntime
from tests.native.conftest import kept

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINT = ROOT / "models" / "tiny"
MATVEC_RESULTS, ATTENTION_RESULTS = 239_232, 37_248
"""Result words of the reference's own checks: the least that real data must cover here."""
TOKENS = 48
BUILD_S = 300.0


@pytest.fixture(scope="module")
def settings() -> convert.Settings:
    """As ``config/models/tiny.yaml`` has it."""
    model = Settings(environment={}).model("tiny")
    assert model.calibration is not None
    return convert.Settings(
        model.name,
        context=model.context,
        head_planes=model.head_planes,
        calibration_text=CHECKPOINT / "calibration.txt",
        calibration_tokens=model.calibration.tokens,
    )


@pytest.fixture(scope="module")
def shipped_image(settings: convert.Settings) -> Path:
    """The image of the shipped model, as the product converts it."""
    inputs = [path for path in files_below(CHECKPOINT) if path.name != "README.md"]
    code = [path for folder in ("model", "golden") for path in (ROOT / "pipelines" / folder).glob("*.py")]
    return kept(
        f"hardware-tiny-{settings.context}-{settings.head_planes}",
        [*inputs, *code],
        lambda folder: _convert(settings, folder),
    )


def _convert(settings: convert.Settings, folder: Path) -> None:
    convert.convert(CHECKPOINT, folder, settings=settings, deadline=Deadline.after(BUILD_S))


def per_token(image: Image) -> int:
    """Result words of the matrix circuit."""
    shape = image.shape
    layer = sum(shape.group_rows(group) for group in formats.GROUPS if group != "head")
    return shape.layers * layer + shape.group_rows("head")


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
    assert check.words["matvec"] == TOKENS * per_token(Image.open(shipped_image)) >= MATVEC_RESULTS
    assert check.words["attention"] == ATTENTION_RESULTS


@pytest.mark.parametrize("limit", [1 << 16, 1 << 14])
def test_transfers_cut_into_pieces(
    token_library: Path, rtl_library: Path, settings: convert.Settings, tmp_path: Path, limit: int
) -> None:
    """The largest real transfer, 5 MB a port, is never cut. 64 KiB cuts this model's head, 16 KiB its layers too."""
    _convert(replace(settings, context=64, max_transfer_bytes=limit), tmp_path)
    entries = Image.open(tmp_path).entries
    pieces = [entry for entry in entries if entry.piece > 0]
    assert pieces and not any(entry.flags & formats.TRANSFER_LOADS_X for entry in pieces)
    groups = {formats.GROUPS[entry.group] for entry in pieces}
    assert groups == ({"head"} if limit == 1 << 16 else {"head", "gate_up"})
    assert limit // 2 < max(entry.size_bytes for entry in entries) <= limit
    check = said(token_library, rtl_library, tmp_path, 2)
    assert check.first == "" and check.mismatches == {"matvec": 0, "attention": 0}
    assert check.words["matvec"] == 2 * per_token(Image.open(tmp_path))


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
