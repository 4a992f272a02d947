"""Both engines at their pins, bit for bit against the golden model; the checks are in pipelines/hardware/checks.py."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.base.errors import MismatchError
from pipelines.hardware.bench import Bench
from pipelines.hardware.checks import (
    ATTENTION_CHECKS,
    MATVEC_CHECKS,
    AttentionBuild,
    expect,
    matvec_shapes,
    random_group,
)
from pipelines.hardware.streams import matvec_transfer
from tests.hardware.conftest import SMALL


@pytest.mark.parametrize("name", MATVEC_CHECKS)
def test_matvec(matvec_bench: Bench, name: str) -> None:
    MATVEC_CHECKS[name](matvec_bench)


@pytest.mark.parametrize("name", ATTENTION_CHECKS)
def test_attention(attention_bench: Bench, name: str) -> None:
    ATTENTION_CHECKS[name](attention_bench, AttentionBuild())


@pytest.mark.parametrize("name", ATTENTION_CHECKS)
def test_attention_with_short_rows_and_thirteen_bits(small_attention_bench: Bench, name: str) -> None:
    ATTENTION_CHECKS[name](small_attention_bench, SMALL)


def test_matvec_rows_of_every_length(matvec_bench: Bench) -> None:
    matvec_shapes(matvec_bench, range(1, 4097))


def test_a_wrong_answer_is_told(matvec_bench: Bench) -> None:
    """The comparison itself: one flipped bit, one word too few, TLAST elsewhere."""
    stream, answer = matvec_transfer([random_group(np.random.default_rng(1), 6, 50)])
    outcome = matvec_bench.run([stream])
    expect(outcome, [answer], "right")
    flipped = answer.copy()
    flipped[1] ^= np.uint64(1)
    for wrong in ([flipped], [answer[:-1]], [answer[:1], answer[1:]]):
        with pytest.raises(MismatchError):
            expect(outcome, wrong, "wrong")
