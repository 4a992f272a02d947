"""The model of time against the earlier work's table."""

from __future__ import annotations

import pytest

from pipelines.report.benchmark import model_against_reference
from pipelines.report.reference import reference
from pipelines.report.timemodel import CALIBRATED_AT, POSITIONS, errors_percent, floor_ms, predict, reference_parameters


def test_totals_within_ten_percent_at_all_five_positions() -> None:
    given = reference()
    errors = errors_percent(predict(reference_parameters(given)), given.table)
    assert sorted(errors) == sorted(POSITIONS) == [64, 128, 256, 384, 512]
    assert all(abs(error) <= 10 for error in errors.values()), errors
    # Four of them are predictions: only one row was used.
    assert [t for t, error in errors.items() if abs(error) < 1e-9] == [CALIBRATED_AT]


def test_parts_too() -> None:
    given = reference()
    for time in predict(reference_parameters(given)):
        row = given.row(time.t)
        assert time.matrices == pytest.approx(row.matrices, rel=0.01)
        assert time.attention == pytest.approx(row.attention, rel=0.05)


def test_floor_is_that_of_the_bytes() -> None:
    p = reference_parameters(reference())
    assert [round(floor_ms(p, t), 1) for t in (64, 512)] == [76.1, 92.5]


def test_table_adds_up() -> None:
    for row in reference().table:
        assert row.matrices + row.attention + row.cpu == pytest.approx(row.total, abs=0.15)
        assert 1000 / row.total == pytest.approx(row.tok_per_s, rel=0.005)


def test_it_says_its_parameters_and_errors() -> None:
    said = model_against_reference(reference())
    assert {"wall_gb_per_s", "group_ms", "layer_ms", "cpu_ms", "packed_bytes"} <= set(said["parameters"])
    assert 0 < said["largest_error_percent"] < 10
