"""The matrix engine under Icarus, with random pauses on both streams."""

from __future__ import annotations

import cocotb
import icarus_stream
import numpy as np

from pipelines.hardware.checks import random_groups
from pipelines.hardware.streams import matvec_transfer


@cocotb.test()  # type: ignore[misc]
async def groups(dut):  # type: ignore[no-untyped-def]
    random = np.random.default_rng(51)
    x = None
    engine = await icarus_stream.Engine.start(dut)
    for pause in (0.0, 0.4):
        groups = random_groups(random, 5, rows=6, length=130)
        stream, answer = matvec_transfer(groups, x)
        x = next(group.x for group in reversed(groups) if group.x is not None)
        assert await engine.transfer(stream, answer.size, pause) == answer.tolist()
    wrong = stream.copy()
    wrong[0] ^= np.uint64(1)
    await engine.send(wrong)
    assert int(dut.errors_o.value) == 1 and int(dut.error_word_o.value) == 0
