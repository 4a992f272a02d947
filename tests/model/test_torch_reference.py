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
    """Each layer from PyTorch's input of it: what is compared is the arithmetic, not how rounding spreads."""
    model = Twin.load(Checkpoint.open(TINY), rounding=ternarise, int8_activations=True)
    for number, layer in enumerate(model.layers):
        model.layer(number, layer, torch_reference["states"][number][None])
    share, largest = compare(recorded, torch_reference, model.architecture.layers)
    assert share >= 0.999
    assert largest <= 1


def test_rounding_spreads_no_further_than_known(
    torch_reference: dict[str, np.ndarray], recorded: list[np.ndarray]
) -> None:
    """From the tokens on: one code that rounds the other way moves some of all that follow, through attention."""
    model = Twin.load(Checkpoint.open(TINY), rounding=ternarise, int8_activations=True)
    found = logits(model, torch_reference["ids"])
    share, largest = compare(recorded, torch_reference, model.architecture.layers)
    assert share >= 0.97
    assert largest <= 3
    assert np.abs(found[::EVERY] - torch_reference["ternary_logits"]).max() < 0.25
