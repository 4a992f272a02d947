"""``benchmark``: the figures of performance, each with its evidence, its limit and the reference beside it."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import FormatError, ToolMissing
from pipelines.base.figure import Figure
from pipelines.base.files import canonical_json, read_json, sha256_bytes, write_json
from pipelines.boards import push as boards_push
from pipelines.boards.site import Site
from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.config.board import Board
from pipelines.config.model import CheckpointSource
from pipelines.config.settings import Choice
from pipelines.engine import graph
from pipelines.engine.store import Artefact
from pipelines.hardware import synth
from pipelines.hardware.verilate import MODEL_LIBRARY, RTL, RTL_LIBRARY
from pipelines.model import pace
from pipelines.report import benchmark, circuits, processor
from pipelines.report.benchmark import Entry
from pipelines.report.html import number
from pipelines.report.night import nights, read
from pipelines.report.reference import reference
from pipelines.report.timemodel import POSITIONS
from pipelines.runtime import build, cost
from pipelines.runtime.build import NATIVE, host_target

PLAN_S = 120.0
SYNTH_S = 1800.0
COST_S = 1800.0
FULL_SIZE = "large-random"  # sizes and times of the real model, where its checkpoint is not at hand
PACE_S = 600.0
EMULATED = "emu1"
LIBRARY = "libtritforge.so"


def run(context: Context, board: str = "", model: str = "", push: bool = False) -> dict[str, Any]:
    """Keys: ``figures``: list of {name, figure, limit, reference, how}; ``table``, ``waterfall``, ``time_model``,
    ``own_model``.

    ``push`` also pushes a file of a full-size model's size to the board, in turn with scp, which takes minutes.
    """
    given = reference()
    choice = context.settings.choose(board or None, model or None)
    circuits_board = choice.board if choice.board.emulated else context.settings.board(EMULATED)
    bitstream = builds.bitstream(context, circuits_board)
    runtime, weights = builds.runtime(context), builds.weights(context, choice.model, choice.board)
    outcomes = builds.make(context, [bitstream, runtime, weights])
    made: dict[str, Artefact] = {o.name: o.artefact for o in outcomes if o.artefact is not None}
    library = made[bitstream.name].folder / host_target() / RTL_LIBRARY
    with context.console.activity("full-size transfers through the RTL"):
        cycles = circuits.measure(library, given.model, POSITIONS)
    cpu = cpu_cost(context)
    entries = benchmark.circuit_entries(cycles, given) + benchmark.time_entries(cycles, cpu, given)
    entries += synthesis(context)
    with context.console.activity("decoding on this machine"):
        entries += benchmark.host_entries(
            made[runtime.name].folder / host_target() / LIBRARY, made[weights.name].folder
        )
    entries += full_size(context, choice, made[runtime.name], made[bitstream.name])
    entries += processor_cost(context, choice.board, made[bitstream.name].folder / cost.TARGET / MODEL_LIBRARY)
    measured = made[weights.name].record.get("measured", {})
    entries += benchmark.rate_entries(measured, _checkpoint(context, choice.model.source), _last(context, "deploy"))
    entries.append(packing(context))
    if push:
        entries += pushes(context, choice.board)
    latest = [record for stage in (bitstream, runtime, weights) if (record := made[stage.name].record)]
    entries += benchmark.stage_entries(latest)
    entries.append(plan_time(context))
    return {
        "figures": [entry.json() for entry in entries],
        "table": benchmark.table(cycles, cpu, given),
        "waterfall": benchmark.waterfall(cycles, cpu, given),
        "time_model": benchmark.model_against_reference(given),
        "own_model": benchmark.model_against_rtl(cycles, cpu, given),
        "cpu": cpu.json(),
        "stages": [outcome.json() for outcome in outcomes],
    }


def cpu_cost(context: Context) -> Figure:
    """The processor's part of a token at full size: from a real board's last night when there is one.

    An emulated processor's time says nothing of a board's; then it is the reference's.
    """
    given = reference()
    profile = _last(context, "generate").get("profile", {})
    if _last(context, "generate").get("backend") == "mmio" and profile.get("tokens"):
        cpu_ns = sum(value for name, value in profile["ns"].items() if not name.startswith("wait"))
        return Figure(round(cpu_ns / profile["tokens"] / 1e6, 3), "ms", "silicon")
    return Figure(given.row(max(POSITIONS)).cpu, "ms", "reference")


def full_size(context: Context, choice: Choice, runtime: Artefact, bitstream: Artefact) -> list[Entry]:
    """A token of the full size on this machine, where its image is at hand: making it takes 3 GB for a while."""
    stage = builds.weights(context, context.settings.model(FULL_SIZE), choice.board)
    if choice.model.name != FULL_SIZE and not graph.plan([stage], context.store)[0].cached:
        context.console.say(
            f"the full size on this machine is left out; './inv convert-weights --model {FULL_SIZE}' makes its image"
        )
        return []
    folder = graph.artefact_of(builds.make(context, [stage]), stage.name).folder
    library, circuits = (runtime.folder / host_target() / LIBRARY, bitstream.folder / host_target() / MODEL_LIBRARY)
    with context.console.activity("a token of the full size on this machine"):
        return benchmark.pass_entries(library, circuits, folder)


def processor_cost(context: Context, board: Board, circuits: Path) -> list[Entry]:
    """Instructions and cycles of the full size, kept until a source changes; none where a tool is missing."""
    given = reference()
    full_size = context.settings.model(FULL_SIZE)
    files = [*sorted(NATIVE.rglob("*.[ch]")), Path(cost.__file__), Path(build.__file__), circuits]
    sources = {path.name: context.hashes.sha256(path) for path in files}
    kept = context.state / "benchmark" / f"processor-{sha256_bytes(canonical_json(sources))[:16]}.json"
    try:
        return processor.entries(processor.Counts(**read_json(kept)), given)
    except (OSError, ValueError, TypeError):
        pass
    folders = []
    for layers in processor.MODEL_LAYERS:
        assert full_size.shape is not None
        shape = full_size.shape.model_copy(update={"layers": layers})
        name = f"{full_size.name}-layers-{layers}"
        stage = builds.weights(context, full_size.model_copy(update={"name": name, "shape": shape}), board)
        folders.append(graph.artefact_of(builds.make(context, [stage]), stage.name).folder)
    deadline, log = Deadline.after(COST_S), context.log("processor")
    try:
        with context.console.activity("counting the processor's instructions"):
            one, two = (
                [cost.token_cost(folder, circuits, threads=threads, deadline=deadline, log=log) for folder in folders]
                for threads in (1, processor.THREADS)
            )
            cycles = cost.kernel_cycles(deadline=deadline, log=log)
    except ToolMissing as missing:
        context.console.say(f"the processor's cost is left out: {missing.message}")
        return []
    counts = processor.Counts.of(one, two, cycles, given.model.layers)
    write_json(kept, counts.json())
    return processor.entries(counts, given)


def synthesis(context: Context) -> list[Entry]:
    """LUT, DSP and logic delay by yosys, kept until a source changes."""
    sources = {path.name: context.hashes.sha256(path) for path in sorted(RTL.glob("*.*v"))}
    sources["synth.py"] = context.hashes.sha256(Path(synth.__file__))
    kept = context.state / "benchmark" / f"synthesis-{sha256_bytes(canonical_json(sources))[:16]}.json"
    try:
        usages = {module: synth.Usage(**values) for module, values in read_json(kept).items()}
    except (OSError, ValueError, TypeError):
        usages = {}
        work, log = context.state / "work" / "synthesis", context.log("synthesis")
        with context.console.activity("synthesis of the circuits"):
            for module in synth.BUDGETS:
                usages[module] = synth.synthesise(module, work, deadline=Deadline.after(SYNTH_S), log=log)
        write_json(kept, {module: vars(usage) for module, usage in usages.items()})
    limits: dict[str, Figure] = {}
    for module, budget in synth.BUDGETS.items():
        short = module.removeprefix("tritforge_")
        limits[f"{short}_luts"] = Figure(budget.luts, "LUT", "model")
        limits[f"{short}_dsps"] = Figure(budget.dsps, "DSP", "model")
        limits[f"{short}_bram36"] = Figure(budget.bram36, "BRAM36", "model")
        limits[f"{short}_logic_delay"] = Figure(synth.LOGIC_DELAY_NS, "ns", "model")
    limits["circuits_share"] = Figure(100 * synth.TOGETHER_SHARE, "% of LUTs", "model")
    share = Figure(reference().lut_percent, "% of LUTs", "reference")
    return [
        Entry(
            name, figure, "yosys synth_xilinx and sta: no place and route", limits.get(name),
            share if name == "design_share_estimate" else None,
        )
        for name, figure in synth.figures(usages).items()
        if figure.evidence != "reference"
    ]  # fmt: skip


def packing(context: Context) -> Entry:
    with context.console.activity("packing against reading"):
        found = pace.pairs(context.state / "work", Deadline.after(PACE_S))
    return benchmark.packing_entry(pace.WORDS, found)


def pushes(context: Context, board: Board) -> list[Entry]:
    """The rate of an upload to the board beside scp's; its address is asked for once, so both go the same way."""
    site = Site(context.settings, context.state, context.console.say)
    with (
        site.address(board) as address,
        tempfile.TemporaryDirectory(prefix="tritforge-push-") as scratch,
        context.console.activity(f"push to {board.name}") as activity,
    ):
        found = boards_push.against_scp(
            address, board.root, site.known_hosts, Path(scratch), lease_s=board.lease_s, say=activity.say
        )
    return benchmark.push_entries(board.name, boards_push.FILE_BYTES, [(pair.ours_s, pair.scp_s) for pair in found])


def plan_time(context: Context) -> Entry:
    """How long it takes to find out that there is nothing to do."""
    started = time.perf_counter()
    run_tool(
        [sys.executable, context.root / "tasks.py", "nightly", "--plan"],
        cwd=context.root, deadline=Deadline.after(PLAN_S), log=context.log("benchmark"),
    )  # fmt: skip
    took = Figure(round(time.perf_counter() - started, 3), "s", "model")
    return Entry("plan.nightly_s", took, "clock of this machine: './inv nightly --plan' as a process of its own")


def _last(context: Context, task: str) -> dict[str, Any]:
    """The newest night's result of a task; empty when there is none."""
    for path in reversed(nights(context.state / "nights")):
        try:
            found = read(path).of_task(task)
        except FormatError:
            continue
        if found.get("status") == "passed":
            return dict(found)
    return {}


def _checkpoint(context: Context, source: object) -> Path:
    if isinstance(source, CheckpointSource) and source.path:
        return context.settings.path(source.path) / "model.safetensors"
    return Path("/nonexistent")


def plan(context: Context, board: str = "", model: str = "", push: bool = False) -> dict[str, Any]:
    choice = context.settings.choose(board or None, model or None)
    circuits_board = choice.board if choice.board.emulated else context.settings.board(EMULATED)
    stages = [
        builds.bitstream(context, circuits_board),
        builds.runtime(context),
        builds.weights(context, choice.model, choice.board),
    ]
    more = [f"push to {choice.board.name}, in turn with scp"] if push else []
    return builds.plan(
        context, stages, *more, "full-size transfers through the RTL", "synthesis", "decode on this machine"
    )


def show(result: dict[str, Any]) -> None:
    if "figures" not in result:
        return
    width = max(len(entry["name"]) for entry in result["figures"])
    print(f"{'figure':<{width}}  {'value':>24}  {'limit':>16}  {'reference':>16}")
    for entry in result["figures"]:
        figure = Figure(**entry["figure"])
        beside = [number(entry[key]["value"]) if entry[key] else "" for key in ("limit", "reference")]
        print(f"{entry['name']:<{width}}  {figure!s:>24}  {beside[0]:>16}  {beside[1]:>16}")
    print("\nMilliseconds a token, 0.7 B model [model: RTL cycles, CPU, and the reference's hand-over]")
    print(f"{'T':>5} {'matrices':>9} {'attention':>9} {'CPU':>7} {'total':>8} {'+hand-over':>10} {'reference':>9}")
    for row in result["table"]:
        total = reference().row(row["t"]).total
        print(
            f"{row['t']:>5} {row['matrices']:>9.1f} {row['attention']:>9.1f} {row['cpu']:>7.1f} {row['total']:>8.1f}"
            f" {row['total_with_hand_over']:>10.1f} {total:>9.1f}"
        )
    _show_time_model("the reference's parameters", result["time_model"], "reference", "reference_total")
    _show_time_model("this project's own parameters", result["own_model"], "RTL cycles + CPU", "counted_total")
    print("\nBudget at T = 512")
    for step in result["waterfall"]:
        print(f"  {step['name']:<22} {step['ms']:>7.2f} ms [{step['evidence']}]")
    total = sum(step["ms"] for step in result["waterfall"])
    given = result["time_model"]
    print(f"  {'together':<22} {total:>7.2f} ms [model]")
    print(f"  {'reference, forecast':<22} {given['forecast_ms']:>7.2f} ms [reference]")
    print(f"  {'reference, the rest':<22} {given['rest_ms']:>7.2f} ms [reference]")


def _show_time_model(given: str, model: Mapping[str, Any], beside: str, total: str) -> None:
    """A model of time with its parameters, and each total beside the one that it is measured by."""
    print(f"\nThe time model, given {given} [model]")
    print("  " + ", ".join(f"{name} {number(value)}" for name, value in model["parameters"].items()))
    for row in model["rows"]:
        print(
            f"  T = {row['t']:>3}: {row['total']:>6.1f} ms, {beside} {row[total]:>6.1f} ms,"
            f" error {row['error_percent']:+.2f} %"
        )
