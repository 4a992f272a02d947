"""``repro``: builds parts or all twice, from two copies of this checkout in different folders, and compares.

Each copy has a store of its own, so nothing is taken from an earlier build. Both sign with this checkout's key: then
the releases must be equal to the last byte, signature included.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import CheckFailed, MismatchError, ToolFailed, UsageError
from pipelines.base.files import HashCache, read_json
from pipelines.base.lock import held
from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.engine.compare import Compared, compare_folders
from pipelines.engine.signing import signer
from pipelines.engine.stage import Stage
from pipelines.engine.store import Artefact, Store, remove_tree
from pipelines.vivado import repro as vivado_repro
from pipelines.vivado.shipping import STAND_IN

FOLDERS = ("first", "second/in/a/deeper/folder")
"""Of different lengths: a path in an output moves everything behind it."""

GIT_S = 60.0

PARTS = {
    "bitstream": ("build-bitstream", True, False),
    "runtime": ("build-runtime", True, False),
    "weights": ("convert-weights", False, True),
    "release": ("release", True, True),
}
"""Part -> its task, and whether that takes --board and --model; in the order in which a release stands on them."""


def run(context: Context, board: str = "", model: str = "", part: Sequence[str] = ()) -> dict[str, Any]:
    """Keys ``artefacts``: list of {name, identical, first_difference}; ``left_out``: {part: why}.

    ``part``: some of PARTS, all of them when empty. Raises MismatchError when one differs.
    """
    stages = _stages(context, board, model, part)
    base = context.state / "repro"
    with held(context.state / "locks" / "repro.lock", "repro"):
        remove_tree(base)
        first, left_out = _build_copy(context, base / FOLDERS[0], board, model, stages)
        second, _ = _build_copy(context, base / FOLDERS[1], board, model, stages)
        artefacts: list[dict[str, Any]] = []
        for name, stage in stages.items():
            if name not in left_out:
                compared = compare_artefacts(_artefact(first, stage), _artefact(second, stage))
                artefacts += [{**entry.json(), "name": f"{stage.name}/{entry.name}"} for entry in compared]
        different = [entry for entry in artefacts if not entry["identical"]]
        if not different:
            remove_tree(base)
    result = {"artefacts": artefacts, "left_out": left_out}
    if different:
        raise MismatchError(
            f"{len(different)} of {len(artefacts)} files differ; the first is {different[0]['name']}:"
            f" {different[0]['first_difference']}",
            hint=f"something of a build's place or time is in what it makes; both builds are kept in {base}",
            result=result,
        )
    return result


def plan(context: Context, board: str = "", model: str = "", part: Sequence[str] = ()) -> dict[str, Any]:
    names = ", ".join(stage.name for stage in _stages(context, board, model, part).values())
    return {"stages": [], "steps": [f"build {names} in {context.state / 'repro' / folder}" for folder in FOLDERS]}


def _stages(context: Context, board: str, model: str, wanted: Sequence[str]) -> dict[str, Stage]:
    """Part name to stage, in the order of PARTS."""
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        raise UsageError(f"there is no part '{unknown[0]}'", hint=f"parts are {', '.join(PARTS)}")
    release = builds.release(context, board, model)
    stages = dict(zip(PARTS, (*release.upstream, release), strict=True))
    return {name: stage for name, stage in stages.items() if name in (wanted or PARTS)}


def show(result: dict[str, Any]) -> None:
    for entry in result["artefacts"]:
        print(f"{entry['name']}: " + ("identical" if entry["identical"] else entry["first_difference"]))
    for name, why in result["left_out"].items():
        print(f"{name}: left out, {why}")
    same = sum(1 for entry in result["artefacts"] if entry["identical"])
    print(f"{same} of {len(result['artefacts'])} files are identical")


def compare_artefacts(first: Artefact, second: Artefact) -> list[Compared]:
    """Byte by byte; a bitstream of Vivado by what has to be equal of it (its files carry dates)."""
    if "tritforge.bit" in first.files and "tritforge.bit" in second.files:
        return [
            Compared(entry.name, "" if entry.identical else entry.first_difference or "they differ")
            for entry in vivado_repro.compare(first.folder, second.folder)
        ]
    return compare_folders(first.folder, second.folder)


def _build_copy(
    context: Context, folder: Path, board: str, model: str, stages: Mapping[str, Stage]
) -> tuple[Store, dict[str, str]]:
    """Builds the parts in a copy of the checkout. Returns its store, and what was left out and why."""
    checkout = folder / "checkout"
    copy_checkout(context.root, checkout)
    state = checkout / ".tritforge"
    store = Store(state, HashCache(state / "hashes.json"))
    chosen = context.settings.board(board or None)
    left_out: dict[str, str] = {}
    with context.console.activity(f"build in {folder.relative_to(context.root)}"):
        for part, stage in stages.items():
            if part == "release" and not chosen.takes_stand_ins and STAND_IN in _toolchains(store, stage):
                left_out[part] = "because what a stand-in made is not signed"
                continue
            _build_part(context, checkout, folder, part, stage, board=chosen.name, model=model)
    return store, left_out


def _build_part(
    context: Context, checkout: Path, folder: Path, part: str, stage: Stage, *, board: str, model: str
) -> None:
    answer = folder / f"{part}.json"
    log = context.log(f"repro-{FOLDERS.index(folder.relative_to(context.state / 'repro').as_posix()) + 1}-{part}")
    log.unlink(missing_ok=True)
    task, takes_board, takes_model = PARTS[part]
    argv: list[str | os.PathLike[str]] = [sys.executable, checkout / "tasks.py", task, f"--json={answer}"]
    argv += [f"--board={board}"] if takes_board else []
    argv += [f"--model={model}"] if takes_model and model else []
    key = signer(context.settings, context.state).key
    argv += [f"--set={text}" for text in (*context.overrides, f"signing.key_file={key}")]
    deadline = Deadline.after(sum(below.deadline_s for below in [*stage.upstream, stage]))
    # The weights are cut for a board's DMAs, and their task has no flag for it.
    status = run_tool(
        argv, cwd=checkout, deadline=deadline, log=log, check=False, env={"TRITFORGE_BOARD": board}
    ).status
    if status:
        story = read_json(answer).get("error", {}) if answer.exists() else {}
        raise ToolFailed(
            f"the build of {part} in {folder} failed: {story.get('message', f'status {status}')}",
            hint=story.get("hint", ""),
            log=log,
        )


def copy_checkout(root: Path, target: Path) -> None:
    """Copies the files that belong to the checkout as they are now, changed and new ones too, and nothing ignored."""
    # -z, and never through text: a file name may hold anything.
    argv = ["git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    try:
        listed = subprocess.run(argv, check=True, capture_output=True, timeout=GIT_S).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolFailed(f"git cannot list the files of {root}: {error}", hint="repro needs a git checkout") from None
    for name in sorted(os.fsdecode(entry) for entry in listed.split(b"\0") if entry):
        source = root / name
        if not source.is_file():  # deleted, but not yet committed
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target / name)


def _toolchains(store: Store, release: Stage) -> set[str]:
    """What made the parts of a release, as far as they are there."""
    return {_artefact(store, below).toolchain for below in release.upstream if store.latest(below.name) is not None}


def _artefact(store: Store, stage: Stage) -> Artefact:
    record = store.latest(stage.name)
    artefact = store.find(str(record["key"])) if record is not None else None
    if artefact is None:
        raise CheckFailed(f"the build left no artefact of stage '{stage.name}'")
    return artefact
