"""The figures of performance, each beside its limit and what the earlier work reached.

Nothing here passes or fails by a time: a loaded machine is no fault. What is compared by time is measured side by side
in one run, round by round in turn, so that both sides meet the same load.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.figure import Figure
from pipelines.golden.forward import Forward
from pipelines.model.image import WEIGHTS, Image
from pipelines.report.circuits import Cycles
from pipelines.report.reference import Reference
from pipelines.report.timemodel import (
    POSITIONS,
    Parameters,
    Time,
    errors_percent,
    floor_ms,
    predict,
    reference_parameters,
)
from pipelines.runtime.host import HostRuntime

ROUNDS = 5
TOKENS = 24  # a round of one side
LARGEST_PASSES = 8  # over the packed image, that a token may take on a host
PACKING_OVER_READING = 4  # what packing may take, as a multiple of reading the same file
GIGABIT_MB_PER_S = 125.0  # the board's Ethernet, and so the most that a push can reach


@dataclass(frozen=True)
class Entry:
    """A figure with what it could be at best, what the earlier work had, and how it was obtained."""

    name: str
    figure: Figure
    how: str
    limit: Figure | None = None
    reference: Figure | None = None

    def json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "figure": self.figure.json(),
            "limit": self.limit.json() if self.limit else None,
            "reference": self.reference.json() if self.reference else None,
            "how": self.how,
        }


# ------------------------------------------------------------------------------------------------------ the circuits


def circuit_entries(cycles: Cycles, reference: Reference) -> list[Entry]:
    """Words a cycle and stalls by cause, from the RTL behind the model of the memory."""
    layers, clock = reference.model.layers, reference.clock_mhz
    whole = Figure(1.0, "words/cycle", "model")
    counted = "full-size transfers through the RTL at the board's memory wall"
    wall = reference.ddr_gb_per_s * 1e3 / 8 / clock / 2  # words a cycle that the memory gives each of two ports
    memory = Figure(round(min(1.0, wall), 4), "words/cycle", "model")
    matrices = cycles.matrices(layers)
    rate = cycles.matrix_words(layers) / 2 / matrices
    at_wall = Figure(round(rate, 4), "words/cycle", "rtl")
    found = [
        Entry("matvec.words_per_cycle", at_wall, counted, memory, Figure(1.0, "words/cycle", "reference")),
        *(
            Entry(f"matvec.{cause}", Figure(count, "cycles", "rtl"), f"{counted}; both ports, a token")
            for cause, count in cycles.matrix_stalls(layers).items()
        ),
    ]
    longest = cycles.attention[max(cycles.attention)]
    share = reference.attention_alone["share_of_wall_percent"] / 100
    found += [
        Entry(
            "attention.words_per_cycle",
            Figure(round(longest.words_per_cycle, 4), "words/cycle", "rtl"),
            f"{counted}, T = {max(cycles.attention)}",
            whole if wall >= 1 else memory,
            Figure(round(share * wall, 4), "words/cycle", "reference"),
        ),
        *(
            Entry(f"attention.{cause}", Figure(layers * count, "cycles", "rtl"), f"{counted}; both ports, a token")
            for cause, count in longest.stalls.items()
        ),
    ]
    return found


def own_parameters(cycles: Cycles, cpu: Figure, reference: Reference) -> Parameters:
    """The time model's parameters as this project's figures give them.

    Bytes are counted in the transfers; what a group and a layer cost beyond their bytes is read off the RTL's cycles at
    T = 64, so it holds the circuits' starts and ends and no driver.
    """
    given, layers, per_ms = reference_parameters(reference), reference.model.layers, reference.clock_mhz * 1e3
    bytes_per_ms = given.wall_gb_per_s * 1e6
    packed = cycles.matrix_words(layers) * 8.0
    shortest = min(cycles.attention)
    return replace(
        given,
        packed_bytes=packed,
        group_ms=(cycles.matrices(layers) / per_ms - packed / bytes_per_ms) / given.groups,
        layer_ms=cycles.attention[shortest].cycles / per_ms
        - given.kv_bytes_a_position * shortest / bytes_per_ms / layers,
        cpu_ms=float(cpu.value),
    )


def model_against_rtl(cycles: Cycles, cpu: Figure, reference: Reference) -> dict[str, Any]:
    """The model given this project's own parameters, beside RTL cycles + CPU, of which it was told those at T = 64."""
    parameters = own_parameters(cycles, cpu, reference)
    counted = {row["t"]: row["total"] for row in table(cycles, cpu, reference)}
    rows = [
        {
            **time.json(),
            "counted_total": counted[time.t],
            "error_percent": round(100 * (time.total - counted[time.t]) / counted[time.t], 2) + 0.0,
        }
        for time in predict(parameters)
    ]
    return {
        "parameters": parameters.json(),
        "rows": rows,
        "largest_error_percent": round(max(abs(row["error_percent"]) for row in rows), 2),
    }


def table(cycles: Cycles, cpu: Figure, reference: Reference) -> list[dict[str, Any]]:
    """Milliseconds a token by part and T: RTL cycles, this CPU cost, and beside them the reference's hand-over.

    ``total`` leaves the hand-over out: nothing here has measured it. ``total_with_hand_over`` is with the reference's,
    less what the RTL's own starts and ends take of it.
    """
    layers, per_ms = reference.model.layers, reference.clock_mhz * 1e3
    given = predict(reference_parameters(reference), POSITIONS)
    rows = []
    for theirs in given:
        own = Time(
            theirs.t,
            cycles.matrices(layers) / per_ms,
            layers * cycles.attention[theirs.t].cycles / per_ms,
            float(cpu.value),
        )
        hand_over = max(0.0, theirs.matrices - own.matrices) + max(0.0, theirs.attention - own.attention)
        rows.append(
            {
                **own.json(),
                "hand_over_reference": round(hand_over, 2),
                "total_with_hand_over": round(own.total + hand_over, 2),
            }
        )
    return rows


def time_entries(cycles: Cycles, cpu: Figure, reference: Reference) -> list[Entry]:
    """Total, tokens per second and share of the memory's floor, at each T."""
    given = reference_parameters(reference)
    found = _part_entries(table(cycles, cpu, reference), cpu, given, reference)
    how = "model: RTL cycles + CPU, hand-over not counted"
    for row in table(cycles, cpu, reference):
        t = row["t"]
        theirs = reference.row(t)
        floor = floor_ms(given, t)
        found += [
            Entry(
                f"token_ms.t{t}", Figure(row["total"], "ms", "model"), how,
                Figure(round(floor, 1), "ms", "model"), Figure(theirs.total, "ms", "reference"),
            ),
            Entry(
                f"token_ms_with_hand_over.t{t}", Figure(row["total_with_hand_over"], "ms", "model"),
                "model: RTL cycles + CPU + the reference's hand-over",
                Figure(round(floor, 1), "ms", "model"), Figure(theirs.total, "ms", "reference"),
            ),
            Entry(
                f"floor_share.t{t}", Figure(round(100 * floor / row["total"], 1), "%", "model"), how,
                Figure(100, "%", "model"), Figure(round(100 * floor / theirs.total, 1), "%", "reference"),
            ),
        ]  # fmt: skip
    return found


def _part_entries(
    rows: Sequence[Mapping[str, Any]], cpu: Figure, given: Parameters, reference: Reference
) -> list[Entry]:
    """Each part of a token, beside what its bytes take at the memory's wall and what the reference took."""
    per_ms = given.wall_gb_per_s * 1e6
    last = reference.row(max(POSITIONS))
    counted = "RTL cycles of full-size transfers at 125 MHz, behind the memory's wall"
    found = [
        Entry(
            "part_ms.matrices", Figure(rows[-1]["matrices"], "ms", "rtl"), counted,
            Figure(round(given.packed_bytes / per_ms, 1), "ms", "model"), Figure(last.matrices, "ms", "reference"),
        )
    ]  # fmt: skip
    for row in rows:
        t = row["t"]
        floor = Figure(round(given.kv_bytes_a_position * t / per_ms, 2), "ms", "model")
        theirs = Figure(reference.row(t).attention, "ms", "reference")
        found.append(Entry(f"part_ms.attention.t{t}", Figure(row["attention"], "ms", "rtl"), counted, floor, theirs))
    how = "profile of the last night on a board" if cpu.evidence == "silicon" else "taken from the reference's table"
    found.append(Entry("part_ms.cpu", cpu, how, None, Figure(last.cpu, "ms", "reference")))
    return found


def waterfall(cycles: Cycles, cpu: Figure, reference: Reference) -> list[dict[str, Any]]:
    """The budget at the largest T, in ms: from the bytes to the reference's token. Each step adds to those before."""
    t = max(POSITIONS)
    p = reference_parameters(reference)
    row = next(row for row in table(cycles, cpu, reference) if row["t"] == t)
    per_ms = p.wall_gb_per_s * 1e6
    weights, kv = p.packed_bytes / per_ms, p.kv_bytes_a_position * t / per_ms
    steps: list[tuple[str, float, str]] = [
        ("weights at the wall", weights, "model"),
        ("K and V at the wall", kv, "model"),
        ("starts, ends, stalls", row["matrices"] + row["attention"] - weights - kv, "rtl"),
        ("CPU", float(cpu.value), cpu.evidence),
        ("hand-over", row["hand_over_reference"], "reference"),
    ]
    return [{"name": name, "ms": round(ms, 2), "evidence": evidence} for name, ms, evidence in steps]


def model_against_reference(reference: Reference) -> dict[str, Any]:
    """The model given the reference's parameters, beside the reference's table: parameters, rows, errors in percent."""
    parameters = reference_parameters(reference)
    times = predict(parameters)
    errors = errors_percent(times, reference.table)
    return {
        "parameters": parameters.json(),
        "rows": [
            {
                **time.json(),
                "reference_total": reference.row(time.t).total,
                "error_percent": round(errors[time.t], 2) + 0.0,
            }
            for time in times
        ],
        "largest_error_percent": round(max(abs(error) for error in errors.values()), 2),
        "forecast_ms": reference.forecast_ms,
        "rest_ms": reference.rest_ms,
    }


# ----------------------------------------------------------------------------------------------------- this machine


def interleaved(sides: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each side, run in turn ``rounds`` times after one round that is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, work in sides.items():
            started = time.perf_counter()
            work()
            if number:
                taken[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in taken.items()}


def host_entries(library: Path, weights: Path) -> list[Entry]:
    """Decoding of the model on this machine: the C runtime with one and two threads, and the golden model in numpy."""
    golden = Image.open(weights).golden()
    tokens = [1 + i % (golden.shape.vocab - 1) for i in range(TOKENS)]
    with HostRuntime(library, weights, threads=1) as one, HostRuntime(library, weights, threads=2) as two:

        def run(runtime: HostRuntime) -> None:
            runtime.reset()
            for token in tokens:
                runtime.forward(token)

        def numpy_run() -> None:
            forward = Forward(golden)
            for token in tokens:
                forward([token])

        took = interleaved({"c": lambda: run(one), "c2": lambda: run(two), "numpy": numpy_run})
    how = f"this machine, {TOKENS} tokens, median of {ROUNDS} rounds in turn"
    rates = {name: TOKENS / seconds for name, seconds in took.items()}
    return [
        Entry("host.decode", Figure(round(rates["c"], 1), "tok/s", "model"), f"{how}; C, one thread"),
        Entry("host.decode_two_threads", Figure(round(rates["c2"], 1), "tok/s", "model"), f"{how}; C, two threads"),
        Entry("host.decode_numpy", Figure(round(rates["numpy"], 1), "tok/s", "model"), f"{how}; golden model"),
        Entry(
            "host.c_over_numpy", Figure(round(rates["c"] / rates["numpy"], 2), "×", "model"), f"{how}; the same tokens",
            None, Figure(round(305 / 55, 2), "×", "reference"),
        ),
        Entry("host.two_threads_over_one", Figure(round(rates["c2"] / rates["c"], 2), "×", "model"), how,
              Figure(2, "×", "model")),
    ]  # fmt: skip


def pass_entries(library: Path, circuits: Path, weights: Path) -> list[Entry]:
    """A token through the driver and the functional circuits, beside one pass over the packed image in memory.

    ``circuits`` is ``libtritforge_model.so`` for this machine. Both are measured in turn in one run.
    """
    image = np.fromfile(weights / WEIGHTS, dtype=np.uint8)
    copy = np.empty_like(image)
    with HostRuntime(library, weights, "model", pl_library=circuits, threads=2) as runtime:
        token = iter(range(1, runtime.vocab))
        took = interleaved(
            {"token": lambda: runtime.forward(next(token)), "pass": lambda: np.copyto(copy, image)}, rounds=2 * ROUNDS
        )
    how = f"this machine, median of {2 * ROUNDS} rounds in turn"
    ratio = took["token"] / took["pass"]
    return [
        Entry(
            "host.full_size_token_ms", Figure(round(1e3 * took["token"], 2), "ms", "model"),
            f"{how}; backend model, two threads", Figure(round(1e3 * LARGEST_PASSES * took["pass"], 2), "ms", "model"),
        ),
        Entry(
            "host.full_size_pass_ms", Figure(round(1e3 * took["pass"], 2), "ms", "model"),
            f"{how}; one copy of the {image.size:,} bytes of its packed image from memory to memory",
        ),
        Entry(
            "host.full_size_passes", Figure(round(ratio, 2), "passes", "model"), f"{how}; the token over the pass",
            Figure(LARGEST_PASSES, "passes", "model"),
        ),
    ]  # fmt: skip


def rate_entries(measured: Mapping[str, Any], checkpoint: Path, deployed: Mapping[str, Any]) -> list[Entry]:
    """Conversion against reading the checkpoint, push against the board's Ethernet.

    ``measured`` is what the weights' build noted, ``deployed`` the last deploy's result; either may be empty.
    """
    found = []
    size = checkpoint.stat().st_size if checkpoint.is_file() else 0
    seconds = float(measured.get("read_s", 0)) + float(measured.get("pack_s", 0))
    if size and seconds:
        started = time.perf_counter()
        with checkpoint.open("rb") as stream:
            while stream.read(1 << 20):
                pass
        limit = size / max(time.perf_counter() - started, 1e-9) / 1e6
        found.append(
            Entry(
                "convert.rate", Figure(round(size / seconds / 1e6, 1), "MB/s", "model"),
                "checkpoint bytes over reading and packing, when it was built on this machine",
                Figure(round(limit, 1), "MB/s", "model"),
            )
        )  # fmt: skip
    if deployed.get("bytes_sent", 0) > 1 << 20 and deployed.get("seconds"):
        rate = deployed["bytes_sent"] / deployed["seconds"] / 1e6
        found.append(
            Entry(
                "deploy.push_rate", Figure(round(rate, 2), "MB/s", "model"), "the last night's deploy",
                Figure(GIGABIT_MB_PER_S, "MB/s", "model"),
            )
        )  # fmt: skip
    return found


def packing_entry(what: str, seconds: Sequence[tuple[float, float]]) -> Entry:
    """``seconds`` of reading a checkpoint and of packing it, in pairs that were taken one after the other."""
    ratios = sorted(packing / reading for reading, packing in seconds)
    return Entry(
        "convert.packing_over_reading", Figure(round(statistics.median(ratios), 2), "×", "model"),
        f"{what}; median of {len(ratios)} pairs in turn, {ratios[0]:.2f} to {ratios[-1]:.2f}",
        Figure(PACKING_OVER_READING, "×", "model"),
    )  # fmt: skip


def push_entries(board: str, size: int, seconds: Sequence[tuple[float, float]]) -> list[Entry]:
    """``seconds`` for ``size`` bytes to a board, ours and scp's, in pairs that were taken one after the other."""
    how = f"{size / 2**20:.0f} MiB to {board}, median of {len(seconds)} pairs in turn"
    ours, scp = (statistics.median(pair[side] for pair in seconds) for side in (0, 1))
    ratio = statistics.median(scp / ours for ours, scp in seconds)
    return [
        Entry(
            "push.rate", Figure(round(size / ours / 1e6, 2), "MB/s", "model"), f"{how}; hashed on the board",
            Figure(round(size / scp / 1e6, 2), "MB/s", "model"),
        ),
        Entry("push.over_scp", Figure(round(ratio, 3), "×", "model"), f"{how}; the limit is scp's rate",
              Figure(1, "×", "model")),
    ]  # fmt: skip


def stage_entries(records: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Time of each stage when it was last built here."""
    return [
        Entry(f"stage.{r['name']}_s", Figure(float(r["elapsed_s"]), "s", "model"), "clock of this machine, last build")
        for r in records
    ]
