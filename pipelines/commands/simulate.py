"""``simulate``: one token through the RTL of both circuits, with the runtime's own list of transfers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.base.deadline import Deadline
from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.engine.stage import Stage
from pipelines.hardware import simulate, verilate
from pipelines.runtime.build import host_target

BUILD_S = 600.0
DEFAULT_CONTEXT = 64


def _stages(context: Context, board: str, model: str) -> tuple[Stage, Stage]:
    """The emulated bitstream (its library for this machine) and the packed weights."""
    emulated = board or context.settings.board(None).name
    choice = context.settings.choose(emulated, model or None)
    return builds.bitstream(context, choice.board), builds.weights(context, choice.model, choice.board)


def run(
    context: Context, model: str = "", context_length: int = DEFAULT_CONTEXT, waves: str = "", board: str = ""
) -> dict[str, Any]:
    """Keys: ``matvec``, ``attention``: {words, cycles, words_per_cycle, mismatches, …}; ``pl_ms_at_clock``; ``cpu_s``.

    ``waves`` names a VCD file that the run against the memory wall is written to (the key ``waves`` has its whole
    path); a library with waveforms is built for it. Raises MismatchError (status 1) with the same keys.
    """
    bitstream, weights = _stages(context, board, model)
    outcomes = builds.make(context, [bitstream, weights])
    made = {outcome.name: outcome.artefact for outcome in outcomes}
    logic, image = made[bitstream.name], made[weights.name]
    assert logic is not None and image is not None
    log = context.log("simulate")
    work = context.state / "simulate"
    with context.console.activity("runtime for the simulation"):
        token = simulate.build_token_library(work / "libtoken.so", deadline=Deadline.after(BUILD_S), log=log)
        library = logic.folder / host_target() / verilate.RTL_LIBRARY
        if waves:
            library = work / f"waves-{verilate.RTL_LIBRARY}"
            verilate.build_rtl(
                host_target(), library, content_id=0, deadline=Deadline.after(BUILD_S), log=log, waves=True
            )
    with context.console.activity(f"one token at T = {context_length} through the RTL"):
        result = simulate.simulate(
            token, library, image.folder, context_length, waves=Path(waves).resolve() if waves else None
        )
    written = {"waves": str(Path(waves).resolve())} if waves else {}
    return {**result, **written, "stages": [outcome.json() for outcome in outcomes]}


def plan(
    context: Context, model: str = "", context_length: int = DEFAULT_CONTEXT, waves: str = "", board: str = ""
) -> dict[str, Any]:
    return builds.plan(
        context, [*_stages(context, board, model)], f"one token at T = {context_length} through the RTL, twice"
    )


def show(result: dict[str, Any]) -> None:
    if "matvec" not in result:
        builds.show(result.get("stages", []))
        return
    for circuit in ("matvec", "attention"):
        part = result[circuit]
        ms = part["ms"]
        print(
            f"{circuit}: {part['words']:,} words in {part['cycles']:,} cycles, {part['words_per_cycle']} words a cycle"
            f" a port; {part['results_compared']:,} results compared, {part['mismatches']} differ [rtl]"
        )
        print(
            f"  {ms['memory_wall']['value']:.2f} ms against the memory wall, {ms['none']['value']:.2f} ms without"
            f" [rtl]; reference board {ms['reference']['value']} ms, 0.7 B model at T = 512 [reference]"
        )
        for name, stalls in part["stalls"].items():
            said = ", ".join(f"{cause} {count:,}" for cause, count in stalls.items())
            print(f"  stall cycles, {'memory wall' if name == 'memory_wall' else 'no wall'}: {said}")
    print(
        f"T = {result['context']}: {result['pl_ms_at_clock']['value']:.2f} ms of logic and driver a token at 125 MHz"
        f" [rtl], of it {result['driver_ms']['value']:.2f} ms between groups; floor"
        f" {result['floor_ms']['value']:.2f} ms [model]; {result['cpu_s']:.1f} s of CPU for both runs and the check"
    )
    if "waves" in result:
        print(f"waveforms of the run against the memory wall: {result['waves']} (VCD; gtkwave opens it)")
