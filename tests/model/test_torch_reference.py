"""The float twin and its int8 codes against PyTorch's, out of fixtures (see fixtures/make_torch_reference.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.golden.ternary import ternarise
from pipelines.model import twin
from pipelines.model.checkpoint import Checkpoint
from pipelines.model.twin import Twin

TINY = Path(__file__).parents[2] / "models" / "tiny"
EVERY = 6  # the fixture keeps the logits of every sixth position


@pytest.fixture(scope="module")
def torch_reference() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parent / "fixtures" / "torch_reference.npz") as stored:
        return dict(stored)


def logits(model: Twin, ids: np.ndarray) -> np.ndarray:
    return model.hidden(ids[None])[0] @ model.head.T


@pytest.mark.parametrize(("folder", "name"), [(TINY / "twin", "twin_logits"), (TINY, "latent_logits")])
def test_without_quantisation_logits_agree(torch_reference: dict[str, np.ndarray], folder: Path, name: str) -> None:
    model = Twin.load(Checkpoint.open(folder), rounding=None, int8_activations=False)
    found = logits(model, torch_reference["ids"])[::EVERY]
    assert np.abs(found - torch_reference[name]).max() < 1e-4


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The codes of every quantisation of activations, as they are computed."""
    seen: list[np.ndarray] = []
    int8_codes = twin.int8_codes

    def recorder(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, scales = int8_codes(x)
        seen.append(codes[0].astype(np.int8))
        return codes, scales

    monkeypatch.setattr(twin, "int8_codes", recorder)
    return seen


def compare(seen: list[np.ndarray], reference: dict[str, np.ndarray], layers: int) -> tuple[float, int]:
    """Share of equal codes, and the largest difference."""
    assert len(seen) == 4 * layers
    expected = [reference[f"codes{i}"] for i in range(len(seen))]
    equal = sum(int((a == b).sum()) for a, b in zip(seen, expected, strict=True))
    largest = max(int(np.abs(a.astype(int) - b).max()) for a, b in zip(seen, expected, strict=True))
    return equal / sum(a.size for a in expected), largest


def test_with_quantisation_codes_agree(torch_reference: dict[str, np.ndarray], recorded: list[np.ndarray]) -> None:
    """From the tokens to the last layer, both in double precision; the fixture's script says why."""
    model = Twin.load(Checkpoint.open(TINY), rounding=ternarise, int8_activations=True).in_float64()
    found = logits(model, torch_reference["ids"])
    assert found.dtype == np.float64
    share, largest = compare(recorded, torch_reference, model.architecture.layers)
    assert share >= 0.999
    assert largest <= 1
    assert np.abs(found[::EVERY] - torch_reference["ternary_logits"]).max() < 1e-4


def test_in_float32_each_layer_has_the_same_codes(
    torch_reference: dict[str, np.ndarray], recorded: list[np.ndarray]
) -> None:
    """Each layer from PyTorch's input of it, so that a code on an edge does not spread."""
    model = Twin.load(Checkpoint.open(TINY), rounding=ternarise, int8_activations=True)
    for number, layer in enumerate(model.layers):
        found = model.layer(number, layer, torch_reference["states"][number][None])
        assert found.dtype == np.float32
    share, largest = compare(recorded, torch_reference, model.architecture.layers)
    assert share >= 0.999
    assert largest <= 1
