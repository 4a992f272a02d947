"""The attention engine under Icarus, with random pauses on both streams."""

from __future__ import annotations

import cocotb
import icarus_stream
import numpy as np

from pipelines.hardware.checks import AttentionBuild, random_head
from pipelines.hardware.streams import attention_transfer


@cocotb.test()  # type: ignore[misc]
async def heads(dut):  # type: ignore[no-untyped-def]
    random = np.random.default_rng(52)
    build = AttentionBuild()
    engine = await icarus_stream.Engine.start(dut)
    for pause in (0.0, 0.4):
        stream, answer = attention_transfer([random_head(random, build, t) for t in (1, 5, 12)], build.bits)
        assert await engine.transfer(stream, answer.size, pause) == answer.tolist()
    wrong = stream.copy()
    wrong[0] ^= np.uint64(1)
    await engine.send(wrong)
    assert int(dut.errors_o.value) == 1 and int(dut.error_word_o.value) == 0
