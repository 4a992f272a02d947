"""The functional engines take many cycles at once: nothing that can be seen may tell them from single cycles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.golden import formats
from pipelines.hardware.checks import AttentionBuild, random_group, random_head
from pipelines.hardware.library import ADDRESS, CURDESC, DMACR, DMASR, LENGTH, RUN, TAILDESC, Pl
from pipelines.hardware.streams import U64, attention_transfer, matvec_transfer
from tests.hardware.conftest import CONTENT_ID

MEMORY = 1 << 20
SOURCES, TARGETS, RINGS = 0, 0xA_0000, 0xF_0000  # of port p: + p * a third of what lies between
HEAD = AttentionBuild(head_dim=formats.HEAD_DIM, positions=formats.MAX_CONTEXT_BOARD)
SOF, EOF = 1 << 27, 1 << 26
FAULTS = ("halt", "slave_error", "decode_error", "sg_error", "short_s2mm", "never_idle", "wrong_word", "wrong_input")
SAMPLE, CAMPAIGN = 60, 2000


@dataclass(frozen=True)
class Job:
    """What one engine is given."""

    engine: int
    words: U64
    cuts: tuple[int, ...]  # of the words, into descriptors; the first is 0, the last the end
    rooms: tuple[int, ...]  # result words that each S2MM descriptor takes
    source: int
    target: int
    late: int  # cycles between the MM2S channel's start and the S2MM channel's, or the other way round if negative


@dataclass(frozen=True)
class Program:
    scatter_gather: bool
    faults: str
    shadow: bool
    jobs: tuple[Job, ...]
    gaps: tuple[int, ...]  # cycles after each job's start
    looks: tuple[tuple[str, int], ...]  # at what, after how many cycles


def in_pieces(random: np.random.Generator, total: int, most: int) -> list[int]:
    inner = random.integers(1, max(2, total), int(random.integers(0, most)))
    return sorted({0, total, *(int(cut) for cut in inner if cut < total)})


def matrix(random: np.random.Generator) -> tuple[U64, int]:
    """A stream of some groups of one to many rows, now and then with a mistake; and its result words."""
    groups, held = [], 0
    for _ in range(int(random.integers(1, 5))):
        load = not groups or random.random() < 0.6
        n = int(random.choice([40, 41, 81, 320, 1024, *random.integers(1, 4097, 3)]))
        n = n if load else min(n, held)
        held = n if load else held
        rows = int(random.choice([1, 2, 3, int(random.integers(4, 60)), int(random.integers(60, 600))]))
        groups.append(random_group(random, min(rows, 240_000 // n), n, load))
    words, answer = matvec_transfer(groups)
    if random.random() < 0.2:  # a byte that is no code, mostly
        words.view(np.uint8)[int(random.integers(8, words.nbytes))] = int(random.integers(200, 256))
    if random.random() < 0.1:  # TLAST too early
        words = words[: int(random.integers(1, words.size + 1))]
    return words, int(answer.size)


def program(seed: int) -> Program:
    random = np.random.default_rng(seed)
    scatter_gather = bool(random.random() < 0.6)
    jobs = []
    for port in random.permutation(3):
        engine = int(port)
        if engine < 2:
            if random.random() < 0.15:
                continue
            words, results = matrix(random)
        else:
            if random.random() < 0.8:
                continue
            words, answer = attention_transfer([random_head(random, HEAD, int(random.integers(1, 9)))], 15)
            results = answer.size
        words = words[: 0x3_5000 // 8]
        if random.random() < 0.12:
            results = max(1, results - int(random.integers(1, results + 1)))  # too short a buffer
        rooms = np.diff(in_pieces(random, results, 9)).tolist() if scatter_gather else [results]
        rooms[-1] += int(random.integers(0, 3))
        source, target = SOURCES + engine * 0x3_5000, TARGETS + engine * 0x1_A000
        if random.random() < 0.1:  # results over the words that are still to come
            target = source + 8 * int(random.integers(0, words.size))
        late = int(random.choice([*[-20] * 8, 0, 3, 70, 400]))
        cuts = in_pieces(random, words.size, 7) if scatter_gather else [0, words.size]
        jobs.append(Job(engine, words, tuple(cuts), tuple(rooms), source, target, late))
    faults = ""
    if random.random() < 0.25:
        engine = random.choice(["", "@matvec0", "@matvec1"])
        faults = f"{random.choice(FAULTS)}{engine}:{int(random.integers(1, 3))}"
    looks = []
    for _ in range(40):
        cycles = int(10 ** random.uniform(0, 3.4))
        looks.append((str(random.choice(["advance", "wait", "status", "counters", "cycles", "clear"])), cycles))
    gaps = tuple(int(random.choice([0, 0, 1, 17, 300])) for _ in jobs)
    return Program(scatter_gather, faults, bool(random.random() < 0.8), tuple(jobs), gaps, tuple(looks))


def start_channel(pl: Pl, job: Job, *, to_memory: bool, scatter_gather: bool) -> None:
    if to_memory:
        lengths, base = [8 * room for room in job.rooms], job.target
    else:
        lengths, base = (8 * np.diff(job.cuts)).tolist(), job.source

    def register(name: int) -> int:
        return pl.dma(job.engine, name, to_memory=to_memory)

    if not scatter_gather:
        pl.write32(register(ADDRESS), pl.physical(base))
        pl.write32(register(LENGTH), lengths[0])
        return
    ring = RINGS + 0x2000 * job.engine + 0x1000 * to_memory
    raw = np.zeros((len(lengths), 16), dtype=np.uint32)
    for index, length in enumerate(lengths):
        flags = (SOF if index == 0 else 0) | (EOF if index == len(lengths) - 1 else 0)
        raw[index, [0, 2, 6]] = pl.physical(ring + 64 * index + 64), pl.physical(base), length | flags
        base += length
    pl.put(ring, raw.view(np.uint8))
    pl.write32(register(CURDESC), pl.physical(ring))
    pl.write32(register(DMACR), RUN | 1 << 16)
    pl.advance(12)
    pl.write32(register(TAILDESC), pl.physical(ring + 64 * (len(lengths) - 1)))


def run(library: Path, what: Program, *, single_steps: bool) -> tuple[list[Any], int]:
    """All that a board shows while a program runs, and how many cycles were evaluated."""
    seen: list[Any] = []
    options = {"scatter_gather": int(what.scatter_gather), "shadow": int(what.shadow), "poll_cycles": 500}
    options["single_steps"] = int(single_steps)
    with Pl(library, memory_bytes=MEMORY, content_id=CONTENT_ID, **options) as pl:
        for engine in range(len(formats.ENGINES)):
            if what.scatter_gather:
                pl.write_control("CONTROL", 1 << engine)
            else:
                pl.reset(engine)
        pl.fault(what.faults)
        for job in what.jobs:
            pl.put(job.source, job.words)
        for job, gap in zip(what.jobs, what.gaps, strict=True):
            for to_memory in (job.late < 0, job.late >= 0):
                start_channel(pl, job, to_memory=to_memory, scatter_gather=what.scatter_gather)
                pl.advance(abs(job.late))
            pl.advance(gap)
        evaluated = before = 0
        for look, cycles in what.looks:
            if look == "wait":
                seen.append(pl.wait(cycles))
            else:
                pl.advance(cycles)
            if look == "status":
                seen += [pl.read32(pl.dma(e, name, to_memory=bool(m))) for e in range(3) for m in (0, 1)
                         for name in (DMASR, CURDESC, LENGTH)]  # fmt: skip
            elif look == "counters":
                seen += [pl.counters(engine) for engine in range(4)]
            elif look == "cycles":
                seen.append(pl.control("CYCLES_LO"))
            statistics = pl.statistics()
            evaluated += statistics.clocked_cycles - before
            before = statistics.clocked_cycles
            statistics.clocked_cycles = 0
            seen += [bytes(statistics), pl.time_ns(), pl.complaint()]
            if look == "clear":
                pl.clear_statistics()
                before = 0
            pl.invalidate(0, MEMORY)
            seen.append(pl.memory.tobytes())
        seen += [pl.counters(engine) for engine in range(4)]
    return seen, evaluated


def test_leaps_and_single_cycles_cannot_be_told_apart(model_library: Path, full_campaigns: bool) -> None:
    saved = 0
    for seed in range(CAMPAIGN if full_campaigns else SAMPLE):
        what = program(seed)
        leaping, evaluated = run(model_library, what, single_steps=False)
        single, all_cycles = run(model_library, what, single_steps=True)
        assert len(leaping) == len(single)
        for index, (one, other) in enumerate(zip(leaping, single, strict=True)):
            assert one == other, f"seed {seed}, look {index}"
        saved += evaluated < all_cycles
    assert saved > SAMPLE // 3, "hardly anything was taken at once: the comparison says nothing"
