"""The shipped model: its tokenizer, its calibration, and the claims about its perplexity on a short sample.

The whole table is ``./inv evaluate``; here are two windows of it in the settings that the model runs with, with bounds
that the whole text holds with room to spare.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from pipelines.base.deadline import Deadline
from pipelines.config.settings import Settings
from pipelines.golden.formats import M_MAX
from pipelines.golden.forward import Forward, GoldenModel
from pipelines.golden.sampling import SamplingOptions, SplitMix64, sample
from pipelines.model import convert, evaluate, inspection
from pipelines.model.bigram import BigramTable
from pipelines.model.checkpoint import Checkpoint
from pipelines.model.image import PACKED_FILES, Image
from pipelines.model.rounding import rounding_cost

TINY = Path(__file__).parents[2] / "models" / "tiny"
SHIPPED = Settings(environment={}).model("tiny")
CONTEXT, PLANES, WINDOWS = SHIPPED.context, SHIPPED.head_planes, 2


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("tiny")
    settings = convert.Settings(
        model="tiny", context=CONTEXT, head_planes=PLANES, calibration_text=TINY / "calibration.txt"
    )
    convert.convert(TINY, folder, settings=settings, deadline=Deadline.after(300))
    return Image.open(folder)


@pytest.fixture(scope="module")
def golden(opened: Image) -> GoldenModel:
    return opened.golden()


@pytest.fixture(scope="module")
def subject(golden: GoldenModel) -> evaluate.Subject:
    checkpoint = Checkpoint.open(TINY)
    ids = evaluate.windows(checkpoint.tokenizer(), (TINY / "evaluation.txt").read_text(), CONTEXT, 1)[:WINDOWS]
    return evaluate.Subject(checkpoint, checkpoint.tokenizer(), golden, ids, PLANES)


@pytest.fixture(scope="module")
def perplexities(subject: evaluate.Subject) -> dict[str, float]:
    """Rows that the claims need, computed in this process."""
    kinds = {
        "softmax": "softmax", "shift": "shift", "m": "m_window", "m calibrated": "m_fixed", "exact": "int8_softmax",
    }  # fmt: skip
    found = [evaluate._heads(subject), evaluate._integers(subject)]
    found += [evaluate._attention(subject, name, kind) for name, kind in kinds.items()]  # type: ignore[arg-type]
    rows = [row for part in found for row in part.rows]
    return {row.name: float(np.exp(row.losses.mean())) for row in rows}


def test_held_out_perplexity(perplexities: dict[str, float]) -> None:
    assert perplexities["ternary, head fp16"] < 40
    assert perplexities["integer path of the board"] < 40


def test_integer_path_against_float_simulation(perplexities: dict[str, float]) -> None:
    for simulation in ("m calibrated", "exact"):
        assert perplexities["integer path of the board"] == pytest.approx(perplexities[simulation], rel=0.005)


def test_attention_by_m_against_softmax(perplexities: dict[str, float]) -> None:
    for name in ("m", "m calibrated"):
        assert perplexities[name] == pytest.approx(perplexities["softmax"], rel=0.03)
    assert perplexities["shift"] > 1.04 * perplexities["softmax"]  # 7.4 % on the whole text; see docs/model.md


def test_more_planes_are_better(perplexities: dict[str, float]) -> None:
    planes = [perplexities[f"ternary, head {name}"] for name in ("1 plane", "2 planes", "3 planes")]
    assert planes[0] > planes[1] > planes[2] > perplexities["ternary, head fp16"]
    assert perplexities["ternary, head int8"] == pytest.approx(perplexities["ternary, head fp16"], rel=0.002)


def test_greedy_tokens_agree(subject: evaluate.Subject) -> None:
    """With the simulation whose perplexity the integer path is held against: the same attention in floating point."""
    circuits, exact = evaluate._agreement(subject).figures["agreement"]
    assert circuits["steps"] == len(evaluate.BATTERY) * evaluate.BATTERY_TOKENS
    assert circuits["differ"] <= 0.05 * circuits["steps"]
    assert circuits["differ_although_not_close"] == 0
    # An exact exponential is another computation: as many tokens agree, but the table's step moves the gap between
    # two logits further than 0.02 (docs/model.md).
    assert exact["differ"] <= 0.05 * exact["steps"]
    assert exact["gap_deviation"] > 2 * circuits["gap_deviation"]


def test_gaps_are_those_of_the_two_best() -> None:
    own = np.array([[0, 3, 1, 2.5], [5, 0, 4, 1]], dtype=np.float32)
    other = np.array([[0, 3, 1, 2], [4, 0, 4.5, 1]], dtype=np.float32)
    found = evaluate._gaps(own, other)
    assert [list(part) for part in found] == [[0.5, 1], [1, -0.5], [np.inf, 0.5]]
    assert evaluate._agreed("x", [found]) == {
        "with": "x", "close_below": 0.02, "steps": 2, "differ": 1, "differ_although_not_close": 1,
        "widest_gap_that_differs": 0.5, "gap_deviation": 1.0,
    }  # fmt: skip


def test_the_samples_of_the_card_are_what_it_writes(opened: Image) -> None:
    """Every word of them, from prompt and seed, with the sampling that the card's command names."""
    card = (TINY / "README.md").read_text(encoding="utf-8")
    command = re.search(
        r"--seed 1 --tokens (\d+) .*?--temperature (\S+) --top-k (\d+) --top-p (\S+) --rep\S+ (\S+)", card, re.S
    )
    assert command
    tokens, temperature, top_k, top_p, penalty = (float(value) for value in command.groups())
    samples = re.findall(r"^Seed (\d+), prompt `(.*)`:\n\n((?:>.*\n?)+)", card, re.M)
    assert len(samples) == 5
    tokenizer, forward = Tokenizer.from_file(str(TINY / "tokenizer.json")), Forward(opened.golden())
    for seed, prompt, quoted in samples:
        options = SamplingOptions(temperature, int(top_k), top_p, penalty, int(seed))
        random, ids = SplitMix64(options.seed), tokenizer.encode(prompt).ids
        forward.reset()
        logits = forward(ids)
        for _ in range(int(tokens)):
            ids.append(sample(logits[-1], ids, options, random))
            logits = forward(ids[-1:])
        assert tokenizer.decode(ids).split() == re.sub(r"^> ?", "", quoted, flags=re.M).split()


def test_bigrams_are_worse(subject: evaluate.Subject, perplexities: dict[str, float]) -> None:
    table = BigramTable.load(TINY / "bigrams.npz")
    assert np.exp(table.losses(subject.ids).mean()) > 1.5 * perplexities["ternary, head fp16"]


def test_bigrams_of_texts_that_all_begin_alike() -> None:
    """The shipped table is what ``train-tiny`` makes: a chapter's first token is one behind ``<s>``."""
    table = BigramTable.of([np.array([1, 2]), np.array([1]), np.array([2, 2])], 3, begin=0)
    assert table.keys.tolist() == [0 * 3 + 1, 0 * 3 + 2, 1 * 3 + 2, 2 * 3 + 2]
    assert table.counts.tolist() == [2, 1, 1, 1]
    shipped = BigramTable.load(TINY / "bigrams.npz")
    assert shipped.counts.sum() == 1_097_709  # tokens that the model card says are trained on
    assert shipped.counts[shipped.keys // shipped.vocab == 1].sum() == 262  # its chapters


def test_bigram_probabilities_sum_to_one() -> None:
    table = BigramTable.of([np.array([1, 2, 1, 2, 3, 1, 1])], 5, begin=0)
    for first in range(5):
        windows = np.array([[first, second] for second in range(5)])
        assert np.exp(-table.losses(windows)).sum() == pytest.approx(1)


def test_a_twin_does_not_survive_rounding(subject: evaluate.Subject) -> None:
    parts = evaluate._float_parts(Checkpoint.open(TINY / "twin"), subject.ids, "")
    rows = [row for part in parts for row in part().rows]
    described = evaluate.describe(rows, {})
    assert described[1]["ratio"] > 2
    assert "not trained ternary" in evaluate.warning(described)


def test_conversion_judges_whether_a_model_was_trained_ternary(tmp_path: Path) -> None:
    cost = rounding_cost(Checkpoint.open(TINY / "twin"), _ids(144), Deadline.after(60))
    assert "not trained ternary" in cost.warning
    settings = convert.Settings(model="tiny", context=CONTEXT, calibration_text=TINY / "calibration.txt")
    result = convert.convert(TINY, tmp_path, settings=settings, deadline=Deadline.after(60))
    assert result["warning"] == ""
    assert result["perplexity"]["ternary"] < result["perplexity"]["plain"]


def _ids(count: int) -> np.ndarray:
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    return np.array(tokenizer.encode((TINY / "calibration.txt").read_text()).ids[:count])


def test_a_ternary_model_is_not_warned_about(subject: evaluate.Subject) -> None:
    rows = evaluate._not_rounded(subject).rows + evaluate._heads(subject).rows
    assert evaluate.warning(evaluate.describe(rows, {})) == ""


def test_m_fits_its_eighteen_bits(opened: Image) -> None:
    calibration = opened.description["calibration"]
    assert calibration["tokens"] == 144
    assert 0 < calibration["m"]["smallest"] < calibration["m"]["largest"] <= M_MAX
    assert calibration["m_saturations"] == 0


def test_calibrated_scales_hold_the_calibration_text(opened: Image, golden: GoldenModel) -> None:
    """No K or V of the calibration tokens is clipped, and each head's largest is met exactly."""
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    ids = tokenizer.encode((TINY / "calibration.txt").read_text()).ids[:144]
    forward = Forward(golden)
    forward(ids)
    for keys, values in zip(forward.keys, forward.values, strict=True):
        for codes in (keys, values):
            assert np.abs(codes.astype(int)).max(axis=(1, 2)).tolist() == [127] * golden.shape.heads


def test_conversion_does_not_depend_on_blas_or_threads(opened: Image, tmp_path: Path) -> None:
    """With numpy's loops, one worker and another order of work: the same files."""
    import unittest.mock

    from pipelines.model.kernel import NumpyKernel

    settings = convert.Settings(
        model="tiny", context=CONTEXT, head_planes=PLANES, calibration_text=TINY / "calibration.txt"
    )
    with (
        unittest.mock.patch("pipelines.model.kernel.best", return_value=NumpyKernel()),
        unittest.mock.patch("pipelines.model.convert.WORKERS", 1),
    ):
        convert.convert(TINY, tmp_path, settings=settings, deadline=Deadline.after(300))
    for name in (*PACKED_FILES, "image.json"):
        assert (tmp_path / name).read_bytes() == (opened.folder / name).read_bytes()


@pytest.mark.parametrize("name", ["evaluation.txt", "calibration.txt"])
def test_tokenizer_round_trips(name: str) -> None:
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    text = (TINY / name).read_text()
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("text", ["", " ", "naïve “quotes” — ‘single’", "a\r\n\tb\n\n\nc  d", "日本 🙂", "\x00\x7f"])
def test_tokenizer_round_trips_anything(text: str) -> None:
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    encoded = tokenizer.encode(text)
    assert encoded.ids[0] == 1
    assert tokenizer.decode(encoded.ids) == text


def test_no_token_joins_a_letter_to_a_quote() -> None:
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 2048
    for token in tokenizer.get_vocab():
        if token[0] not in "'’" or len(token) < 2:
            assert not ({'"', "'"} & set(token) and any(c.isalpha() and c != "Ġ" for c in token)), token
        else:
            assert token[1:] in ("s", "t", "d", "m", "l", "r", "v", "ll", "re", "ve"), token


def test_texts_do_not_overlap() -> None:
    paragraphs = [set((TINY / name).read_text().split("\n\n")) - {""} for name in ("evaluation.txt", "calibration.txt")]
    assert not paragraphs[0] & paragraphs[1]


def test_inspection_names_every_byte(opened: Image) -> None:
    sizes = {name: (opened.folder / name).stat().st_size for name in PACKED_FILES}
    for name, size in sizes.items():
        at = 0
        for region in inspection.regions(opened, name):
            assert region.offset == at
            at += region.size_bytes
        assert at == size
        for offset in np.random.default_rng(1).integers(0, size, 25).tolist():
            assert inspection.explain(opened, name, offset)[0].startswith(f"{name} + {offset}: ")
        with pytest.raises(inspection.UsageError, match="there is no byte"):
            inspection.explain(opened, name, size)


def test_inspection_tells_a_weight(opened: Image, golden: GoldenModel) -> None:
    entry = next(e for e in opened.entries if (e.layer, e.group, e.port) == (2, 3, 1))  # down, second half
    row, byte = 5, 40
    offset = entry.offset + entry.x_offset + 512 + row * 104 + byte
    line = inspection.explain(opened, "weights.tfs", offset)[-1]
    trits = golden.layers[2].codes["down"][entry.first_row + row, byte * 5 : byte * 5 + 5].tolist()
    assert line.endswith(f"trits 200 to 204 = {trits}")


def test_confidence_intervals_cover() -> None:
    """Nineteen of twenty intervals hold the true mean; the windows of a row are what varies."""
    random = np.random.default_rng(2)
    inside = 0
    for _ in range(400):
        losses = random.normal(3.0, 0.2, size=(30, 1)) + random.normal(0, 1.0, size=(30, 20))
        row = evaluate.describe([evaluate.Row("r", losses)], {})[0]
        inside += row["low"] <= np.exp(3.0) <= row["high"]
    assert 0.9 < inside / 400 < 0.98


def test_rows_are_compared_window_by_window() -> None:
    random = np.random.default_rng(3)
    base = random.normal(3.0, 1.0, size=(12, 40))
    rows = [evaluate.Row("base", base), evaluate.Row("worse", base + 0.01, "base")]
    described = evaluate.describe(rows, {"worse": 17.9})
    assert described[1]["ratio"] == pytest.approx(np.exp(0.01), abs=1e-5)
    assert described[1]["ratio_low"] == pytest.approx(described[1]["ratio_high"], abs=2e-5)
    assert described[1]["reference"] == 17.9


def test_the_whole_table_runs_in_processes(subject: evaluate.Subject) -> None:
    short = dataclasses.replace(subject, ids=subject.ids[:2, :33])
    table = evaluate.evaluate(short, deadline=Deadline.after(300))
    names = [row["name"] for row in table["rows"]]
    assert len(names) == len(set(names)) == 15
    assert {"shortlist", "agreement", "saturations", "warning"} <= set(table)
    assert all(row["tokens"] == 64 for row in table["rows"])
