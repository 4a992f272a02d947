from __future__ import annotations

import pytest

from pipelines.base.figure import Figure


def test_a_figure_says_how_it_was_obtained() -> None:
    assert Figure(7.35, "tok/s", "reference").json() == {"value": 7.35, "unit": "tok/s", "evidence": "reference"}
    assert str(Figure(239232, "words", "rtl")) == "239,232 words [rtl]"


@pytest.mark.parametrize(("value", "evidence"), [(1, "guess"), (1, ""), ("1", "rtl"), (True, "rtl"), (None, "rtl")])
def test_no_figure_without_a_number_and_evidence(value: object, evidence: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        Figure(value, "words", evidence)  # type: ignore[arg-type]
