"""Drives an engine's two streams under cocotb, a beat at a time."""

from __future__ import annotations

import random

import cocotb
import numpy as np
import numpy.typing as npt
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

MOST_CYCLES = 20_000


class Engine:
    """An engine after reset. ``pause`` is the chance that a side rests in a cycle."""

    def __init__(self, dut):  # type: ignore[no-untyped-def]
        self.dut = dut
        self.random = random.Random(7)

    @classmethod
    async def start(cls, dut):  # type: ignore[no-untyped-def]
        cocotb.start_soon(Clock(dut.clk_i, 8, units="step").start())
        dut.rst_ni.value = 0
        dut.s_axis_tvalid_i.value = 0
        dut.s_axis_tdata_i.value = 0
        dut.s_axis_tlast_i.value = 0
        dut.m_axis_tready_i.value = 0
        for _ in range(4):
            await RisingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        await RisingEdge(dut.clk_i)
        return cls(dut)

    async def send(self, words: npt.NDArray[np.uint64], pause: float = 0.0) -> None:
        for index, word in enumerate(words.tolist()):
            while self.random.random() < pause:
                self.dut.s_axis_tvalid_i.value = 0
                await RisingEdge(self.dut.clk_i)
            self.dut.s_axis_tvalid_i.value = 1
            self.dut.s_axis_tdata_i.value = word
            self.dut.s_axis_tlast_i.value = int(index == len(words) - 1)
            for _ in range(MOST_CYCLES):
                await ReadOnly()
                taken = int(self.dut.s_axis_tready_o.value)
                await RisingEdge(self.dut.clk_i)
                if taken:
                    break
            else:
                raise AssertionError(f"word {index} was never taken")
        self.dut.s_axis_tvalid_i.value = 0
        await RisingEdge(self.dut.clk_i)

    async def transfer(self, words: npt.NDArray[np.uint64], count: int, pause: float) -> list[int]:
        """Sends a transfer while taking results; its ``count`` result words, TLAST on the last and only there."""
        sender = cocotb.start_soon(self.send(words, pause))
        results: list[int] = []
        for _ in range(MOST_CYCLES):
            self.dut.m_axis_tready_i.value = int(self.random.random() >= pause)
            await ReadOnly()
            if int(self.dut.m_axis_tvalid_o.value) and int(self.dut.m_axis_tready_i.value):
                results.append(int(self.dut.m_axis_tdata_o.value))
                assert int(self.dut.m_axis_tlast_o.value) == int(len(results) == count)
            await RisingEdge(self.dut.clk_i)
            if len(results) == count:
                break
        await sender
        return results
