"""``repro``: builds everything twice, from two copies of this checkout in different folders, and compares.

Each copy has a store of its own, so nothing is taken from an earlier build. Both sign with this checkout's key: then
the releases must be equal to the last byte, signature included.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import CheckFailed, MismatchError, ToolFailed
from pipelines.base.files import HashCache, read_json
from pipelines.base.lock import held
from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.engine.compare import Compared, compare_folders
from pipelines.engine.signing import signer
from pipelines.engine.stage import Stage
from pipelines.engine.store import Artefact, Store, remove_tree
from pipelines.vivado import repro as vivado_repro

FOLDERS = ("first", "second/in/a/deeper/folder")
"""Of different lengths: a path in an output moves everything behind it."""

GIT_S = 60.0


def run(context: Context, board: str = "", model: str = "") -> dict[str, Any]:
    """Key ``artefacts``: list of {name, identical, first_difference}. Raises MismatchError when one differs."""
    stage = builds.release(context, board, model)
    base = context.state / "repro"
    with held(context.state / "locks" / "repro.lock", "repro"):
        remove_tree(base)
        stores = [_build_copy(context, base / folder, board, model, stage) for folder in FOLDERS]
        artefacts: list[dict[str, Any]] = []
        for part in [*stage.upstream, stage]:
            first, second = (_artefact(store, part) for store in stores)
            artefacts += [
                {**entry.json(), "name": f"{part.name}/{entry.name}"} for entry in compare_artefacts(first, second)
            ]
        remove_tree(base)
    result = {"artefacts": artefacts}
    different = [entry for entry in artefacts if not entry["identical"]]
    if different:
        raise MismatchError(
            f"{len(different)} of {len(artefacts)} files differ; the first is {different[0]['name']}:"
            f" {different[0]['first_difference']}",
            hint="something of a build's place or time is in what it makes",
            result=result,
        )
    return result


def plan(context: Context, board: str = "", model: str = "") -> dict[str, Any]:
    stage = builds.release(context, board, model)
    names = ", ".join(part.name for part in [*stage.upstream, stage])
    return {"stages": [], "steps": [f"build {names} in {context.state / 'repro' / folder}" for folder in FOLDERS]}


def show(result: dict[str, Any]) -> None:
    for entry in result["artefacts"]:
        print(f"{entry['name']}: " + ("identical" if entry["identical"] else entry["first_difference"]))
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


def _build_copy(context: Context, folder: Path, board: str, model: str, stage: Stage) -> Store:
    checkout = folder / "checkout"
    copy_checkout(context.root, checkout)
    answer = folder / "answer.json"
    log = context.log(f"repro-{FOLDERS.index(folder.relative_to(context.state / 'repro').as_posix()) + 1}")
    log.unlink(missing_ok=True)
    key = signer(context.settings, context.state).key
    argv: list[str | os.PathLike[str]] = [sys.executable, checkout / "tasks.py", "release", f"--json={answer}"]
    argv += [f"--{name}={value}" for name, value in (("board", board), ("model", model)) if value]
    argv += [f"--set={text}" for text in (*context.overrides, f"signing.key_file={key}")]
    with context.console.activity(f"build in {folder.relative_to(context.root)}"):
        deadline = Deadline.after(sum(part.deadline_s for part in [*stage.upstream, stage]))
        status = run_tool(argv, cwd=checkout, deadline=deadline, log=log, check=False).status
    if status:
        story = read_json(answer).get("error", {}) if answer.exists() else {}
        raise ToolFailed(
            f"the build in {folder} failed: {story.get('message', f'status {status}')}",
            hint=story.get("hint", ""),
            log=log,
        )
    state = checkout / ".tritforge"
    return Store(state, HashCache(state / "hashes.json"))


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


def _artefact(store: Store, stage: Stage) -> Artefact:
    record = store.latest(stage.name)
    artefact = store.find(str(record["key"])) if record is not None else None
    if artefact is None:
        raise CheckFailed(f"the build left no artefact of stage '{stage.name}'")
    return artefact
