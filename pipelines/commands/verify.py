"""``verify``: circuits, token ids and logits of a board, bit for bit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.base.deadline import Deadline
from pipelines.base.errors import MismatchError, UsageError
from pipelines.base.files import write_json
from pipelines.boards import verify as boards_verify
from pipelines.boards.battery import Battery, battery
from pipelines.boards.compare import Answers
from pipelines.boards.connection import Connection
from pipelines.boards.deploy import deploy
from pipelines.boards.machines import QEMU, Machine, on_this_machine, this_machine, under_qemu
from pipelines.boards.reference import golden_from_checkpoint
from pipelines.boards.release import LocalRelease
from pipelines.boards.session import exclusive
from pipelines.boards.site import CONNECT_S, Site
from pipelines.boards.verify import Other
from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.config.board import Board
from pipelines.config.model import ModelConfig
from pipelines.engine.store import Artefact
from pipelines.model import convert
from pipelines.runtime.build import host_target

QEMU_S = 900.0
AGAINST = ("numpy", "host", *QEMU)


def run(
    context: Context, board: str = "", model: str = "", against: str = "", full: bool = False, steps: int = 0
) -> dict[str, Any]:
    """Keys: ``circuits``, ``tokens``, ``logits``, ``machines``, ``release``, ``evidence`` (a file with all hashes).

    Brings the board to the release of the working tree first (nothing is sent when it has it), so that a change of any
    source counts; what no deploy has made so (a link made by hand, a damaged file) is a mismatch, and left as it is.
    ``against`` names one more machine: numpy, host, armv7, aarch64, board:NAME; several with commas. ``steps`` cuts the
    battery. Raises MismatchError (status 1) with the same keys.
    """
    if steps < 0:
        raise UsageError(f"--steps {steps}: 0 for the whole battery, or how many")
    chosen = [name.strip() for name in against.split(",") if name.strip()]
    for name in chosen:
        if name not in AGAINST and not name.startswith("board:"):
            raise UsageError(f"--against {name}: known are {', '.join(AGAINST)} and board:NAME")
    configured = context.settings.board(board or None)
    further = [context.settings.board(name.removeprefix("board:")) for name in chosen if name.startswith("board:")]
    if configured in further:
        raise UsageError(f"--against board:{configured.name} is the board itself", hint="name another board")
    choice = context.settings.choose(configured.name, model or None)
    made, outcomes = builds.made_release(context, configured.name, model)
    artefacts = {outcome.name.split("-")[0]: outcome.artefact for outcome in outcomes if outcome.artefact is not None}
    release = LocalRelease.read(made.artefact.folder)
    site = Site(context.settings, context.state, context.console.say)
    with context.console.activity("golden model from the checkpoint"):
        golden = golden_from_checkpoint(*checkpoint_of(context, choice.model, choice.bitstream.dma.max_transfer_bytes))
    tests = battery(release.folder / "tokenizer.json", golden.shape.bos, golden.shape.context, steps=steps or None)
    # numpy is the golden model, which every word is compared with in any case
    named = [name for name in ("host", *chosen) if name != "numpy" and not name.startswith("board:")]
    others = [_other(context, name, tests, release, artefacts) for name in dict.fromkeys(named)]
    with contextlib.ExitStack() as stack:
        others += [_other_board(context, site, other, model, tests) for other in further]
        address = stack.enter_context(site.address(configured))
        deploy(configured, address, release, site.known_hosts, repair=False)
        deadline = Deadline.after(CONNECT_S)
        connection = stack.enter_context(contextlib.closing(Connection(address, site.known_hosts, deadline)))
        session = stack.enter_context(exclusive(connection, configured.root, "verify", configured.lease_s, deadline))
        activity = stack.enter_context(context.console.activity(f"verify {configured.name}"))
        evidence = context.state / "verify" / f"{configured.name}-{time.strftime('%Y%m%dT%H%M%S')}.json"
        try:
            result = boards_verify.verify(
                session, configured, release.id, golden, tests,
                image=release.folder / "weights", toolchain=artefacts["runtime"].toolchain, others=others,
                here=_here(tests, release, artefacts), full=full,
                on_step=lambda done, total: activity.update(done, total, "steps"),
            ).json()  # fmt: skip
        except MismatchError as error:
            if error.result:
                write_json(evidence, error.result)
                error.result["evidence"] = str(evidence)
            raise
    write_json(evidence, result)
    return {**result, "evidence": str(evidence), "stages": [outcome.json() for outcome in outcomes]}


def checkpoint_of(context: Context, model: ModelConfig, max_transfer_bytes: int) -> tuple[Path, convert.Settings]:
    """The checkpoint behind a model and the settings that its image was made with."""
    from pipelines.boards import checkpoints

    folder = checkpoints.folder_of(context.workshop, model, context.state / "checkpoints")
    text = model.calibration
    return folder, convert.Settings(
        model=model.name,
        context=model.context,
        head_planes=model.head_planes,
        max_transfer_bytes=max_transfer_bytes,
        calibration_text=context.settings.path(text.text) if text is not None else None,
        calibration_tokens=text.tokens if text is not None else model.context,
    )


def _here(tests: Battery, release: LocalRelease, artefacts: Mapping[str, Artefact]) -> Any:
    """This machine's runtime on the same image, without circuits: what the bisector compares with."""
    library = artefacts["runtime"].folder / host_target() / "libtritforge.so"
    return lambda options: on_this_machine(library, release.folder / "weights", tests, options, backend="host", pl=None)


def _other(
    context: Context, name: str, tests: Battery, release: LocalRelease, artefacts: Mapping[str, Artefact]
) -> Other:
    weights = release.folder / "weights"
    toolchain = artefacts["runtime"].toolchain
    if name == "host":
        target = host_target()
        library = artefacts["runtime"].folder / target / "libtritforge.so"
        pl = artefacts["bitstream"].folder / target / "libtritforge_model.so"
        backend = "model" if pl.exists() else "host"

        def run_here(tokens: list[list[int]]) -> Answers:
            return on_this_machine(library, weights, tests, {}, backend=backend, pl=pl)

        return Other(this_machine(toolchain, backend), run_here)

    def run_qemu(tokens: list[list[int]]) -> Answers:
        folder = artefacts["runtime"].folder / QEMU[name][3]
        return under_qemu(name, folder, weights, tests, tokens, Deadline.after(QEMU_S), context.log("verify"))

    return Other(Machine(f"{name} under qemu-user (host)", name, toolchain), run_qemu)


def _other_board(context: Context, site: Site, board: Board, model: str, tests: Battery) -> Other:
    """Another board as the third machine: brought to its own release of the same model first."""
    made, _ = builds.made_release(context, board.name, model)
    release = LocalRelease.read(made.artefact.folder)

    def run_board(tokens: list[list[int]]) -> Answers:
        with site.address(board) as address:
            deploy(board, address, release, site.known_hosts, repair=False)
        with site.session(board, what="verify") as session:
            return boards_verify.board_runner(session, board, tests)({})

    return Other(Machine(f"board {board.name}", board.kind, "zig"), run_board)


def plan(context: Context, board: str = "", model: str = "", **_: Any) -> dict[str, Any]:
    name = context.settings.board(board or None).name
    return builds.plan(context, [builds.release(context, name, model)], f"deploy to {name}", f"verify {name}")


def show(result: dict[str, Any]) -> None:
    if "logits" not in result:
        return
    circuits, tokens, logits = result["circuits"], result["tokens"], result["logits"]
    print(
        f"circuits: {circuits['matvec_words']:,} matrix words, {circuits['attention_words']:,} attention words, "
        f"{circuits['mismatches']:,} mismatches"
    )
    print(f"tokens: {tokens['prompt']} of prompts, {tokens['generated']} generated, {tokens['mismatches']} mismatches")
    print(f"logits: {logits['steps']} steps, {logits['compared']:,} compared, {logits['mismatches']:,} mismatches")
    for machine in result["machines"]:
        print(f"  {machine['name']}: {machine['isa']}, {machine['toolchain']}")
