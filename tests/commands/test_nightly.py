"""The night: what is cached, what runs, what one failure leaves of the rest, and how it goes on after a kill."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, get_args

import pytest

from pipelines.base.console import Console
from pipelines.base.errors import BoardOffline, LockHeld, MismatchError, TritforgeError, UsageError
from pipelines.base.lock import held
from pipelines.commands import builds, nightly
from pipelines.commands.context import Context
from pipelines.commands.lock import nightly_lock
from pipelines.config.pipeline import TAKES, TaskName
from pipelines.engine import graph
from pipelines.engine.stage import Build, Stage
from pipelines.report.night import read

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "config" / "sample"
STAGES = ["build-bitstream", "build-runtime", "convert-weights", "release", "deploy", "generate", "verify", "report"]

# Stands where the real tasks.py stands: notes that it ran, and answers as ``answers.json`` says.
TASKS = """
import json, pathlib, sys, time
here = pathlib.Path(__file__).parent
task, flags = sys.argv[1], dict(flag[2:].partition("=")[::2] for flag in sys.argv[2:])
with (here / "ran").open("a") as note:
    note.write(task + "\\n")
answers = json.loads((here / "answers.json").read_text()) if (here / "answers.json").exists() else {}
answer = answers.get(task, {})
time.sleep(answer.get("sleep_s", 0))
if task in ("build-bitstream", "build-runtime", "convert-weights", "release"):
    sys.path.insert(0, %(root)r)
    from tests.commands.test_nightly import build_fake
    build_fake(here, task)
document = {"task": task, "status": answer.get("status", "passed"), "elapsed_s": 0.0, "flags": flags}
if task == "generate":
    document["text"] = "text for " + flags["prompt"]
if answer.get("silent"):
    sys.exit(answer["exit"])
if "error" in answer:
    document["error"] = answer["error"]
pathlib.Path(flags["json"]).write_text(json.dumps(document))
sys.exit(answer.get("exit", 0))
"""


def fake_release(root: Path) -> Stage:
    """A release of three stages, each of one source file, that costs nothing to build."""

    def stage(name: str, source: str, upstream: tuple[Stage, ...] = ()) -> Stage:
        def build(job: Build) -> None:
            (job.out / ("manifest.json" if upstream else "made")).write_text((root / source).read_text())

        return Stage(name, build, files={source: root / source}, upstream=upstream)

    below = (
        stage("bitstream-fake", "rtl.sv"),
        stage("runtime", "runtime.c"),
        stage("weights-fake", "weights"),
    )
    return stage("release-fake", "agent.py", below)


def build_fake(root: Path, task: str) -> None:
    release = fake_release(root)
    prefix = {"build-bitstream": "bitstream", "build-runtime": "runtime", "convert-weights": "weights"}.get(task)
    stages = [stage for stage in release.upstream if prefix and stage.name.startswith(prefix)] or [release]
    graph.run(stages, Context(root=root).store, Console(quiet=True), root=root)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(SAMPLE / "config", tmp_path / "config")
    for name in ("rtl.sv", "runtime.c", "weights", "agent.py"):
        (tmp_path / name).write_text(name)
    (tmp_path / "tasks.py").write_text(TASKS % {"root": str(ROOT)})
    monkeypatch.setattr(builds, "release", lambda context, board, model: fake_release(context.root))
    return tmp_path


def context_of(checkout: Path) -> Context:
    return Context(root=checkout, console=Console(quiet=True))


def answers(checkout: Path, **by_task: dict[str, Any]) -> None:
    named = {name.replace("_", "-"): value for name, value in by_task.items()}
    (checkout / "answers.json").write_text(json.dumps(named))


def ran(checkout: Path) -> list[str]:
    """Tasks that ran since this was asked last."""
    note = checkout / "ran"
    text = note.read_text() if note.exists() else ""
    note.unlink(missing_ok=True)
    return text.split()


def night(checkout: Path) -> dict[str, Any]:
    return nightly.run(context_of(checkout))


def failed_night(checkout: Path, kind: type[TritforgeError]) -> TritforgeError:
    with pytest.raises(kind) as caught:
        night(checkout)
    return caught.value


def states(result: dict[str, Any]) -> dict[str, str]:
    return {stage["name"]: "cached" if stage["cached"] else stage["status"] for stage in result["stages"]}


def test_all_run_once_and_then_none(checkout: Path) -> None:
    result = night(checkout)
    assert states(result) == dict.fromkeys(STAGES, "passed")
    assert sorted(ran(checkout)) == sorted(STAGES)
    assert result["texts"] == [{"prompt": "Once upon a time", "text": "text for Once upon a time"}]
    assert len(result["release"]) == 64
    plan = nightly.plan(context_of(checkout))
    assert all(stage["cached"] for stage in plan["stages"]), plan
    again = night(checkout)
    assert states(again) == dict.fromkeys(STAGES, "cached")
    assert ran(checkout) == []
    assert (again["release"], again["texts"]) == (result["release"], result["texts"])


def test_a_machine_may_be_named(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITFORGE_MACHINE", "farm")
    assert night(checkout)["machine"].startswith("farm (")


def test_a_changed_source_runs_what_depends_on_it(checkout: Path) -> None:
    night(checkout)
    ran(checkout)
    (checkout / "runtime.c").write_text("changed")
    plan = {stage["name"]: stage for stage in nightly.plan(context_of(checkout))["stages"]}
    assert [name for name in STAGES if plan[name]["cached"]] == ["build-bitstream", "convert-weights"]
    assert plan["build-runtime"]["reason"].startswith("runtime.c changed from ")
    assert plan["deploy"]["reason"] == "it stands on 'release', which would run"
    night(checkout)
    assert sorted(ran(checkout)) == sorted(set(STAGES) - {"build-bitstream", "convert-weights"})


def test_a_mismatch_fails_the_night_and_hides_nothing(checkout: Path) -> None:
    story = {"class": "MismatchError", "message": "step 3 differs", "hint": "look there", "log": None}
    answers(checkout, verify={"status": "failed", "exit": 1, "error": story})
    error = failed_night(checkout, MismatchError)
    assert error.message == "stage 'verify': step 3 differs" and error.hint == "look there" and error.status == 1
    assert states(error.result) == {**dict.fromkeys(STAGES, "passed"), "verify": "failed"}
    assert (checkout / ".tritforge" / "nights").is_dir()
    ran(checkout)
    answers(checkout)
    night(checkout)
    # What passed is kept; the board is brought to the release again before it is asked.
    assert sorted(ran(checkout)) == ["deploy", "report", "verify"]


def test_an_optional_stage_fails_and_the_night_passes(checkout: Path) -> None:
    path = checkout / "config" / "pipelines" / "nightly.yaml"
    line = "  - {name: figures, task: simulate, needs: [release], optional: true}\n"
    path.write_text(path.read_text().replace("  - {name: report,", line + "  - {name: report,"))
    error = {"class": "ToolFailed", "message": "no simulator", "hint": "", "log": None}
    answers(checkout, simulate={"status": "error", "exit": 3, "error": error})
    result = night(checkout)
    assert states(result) == {**dict.fromkeys(STAGES, "passed"), "figures": "error"}
    assert result["optional"] == ["figures"]
    kept = sorted((checkout / ".tritforge" / "nights").glob("*.json"))[-1]
    assert read(kept).status == "passed"


def test_what_ran_is_told_in_the_past(checkout: Path) -> None:
    reasons = {stage["name"]: stage["reason"] for stage in night(checkout)["stages"]}
    assert reasons["deploy"] == "it stands on 'release', which had to run"


def test_the_program_s_own_code_counts(checkout: Path) -> None:
    night(checkout)
    ran(checkout)
    (checkout / "pipelines").mkdir()
    (checkout / "pipelines" / "verify.py").write_text("changed")
    plan = {stage["name"]: stage for stage in nightly.plan(context_of(checkout))["stages"]}
    assert plan["release"]["cached"] and plan["deploy"]["reason"] == "pipelines/verify.py is new"


def test_what_asks_the_weights_alone_is_kept_when_another_part_of_the_release_changes(checkout: Path) -> None:
    """And what only comes after another stage, and takes nothing from it."""
    pipeline = checkout / "config" / "pipelines" / "nightly.yaml"
    evaluate = "  - {name: evaluate, task: evaluate, needs: [convert-weights], after: [verify]}\n"
    pipeline.write_text(pipeline.read_text().replace("  - {name: report", evaluate + "  - {name: report"))
    night(checkout)
    (checkout / "rtl.sv").write_text("changed")
    plan = {stage["name"]: stage for stage in nightly.plan(context_of(checkout))["stages"]}
    assert not plan["verify"]["cached"] and plan["evaluate"]["cached"]
    (checkout / "weights").write_text("changed")
    plan = {stage["name"]: stage for stage in nightly.plan(context_of(checkout))["stages"]}
    assert plan["evaluate"]["reason"] == "it stands on 'convert-weights', which would run"


def test_a_changed_option_of_a_stage_is_the_reason_why_it_runs(checkout: Path) -> None:
    night(checkout)
    overrides = ["pipelines.nightly.stages.5.options.seed=7"]
    context = Context(root=checkout, console=Console(quiet=True), overrides=overrides)
    plan = {stage["name"]: stage for stage in nightly.plan(context)["stages"]}
    assert plan["generate"]["reason"] == "value options.seed is new"
    assert plan["verify"]["cached"], "it comes after generate, and takes nothing from it"


def test_an_offline_board_is_offline(checkout: Path) -> None:
    story = {"class": "BoardOffline", "message": "nobody answers", "hint": "", "log": None}
    answers(checkout, deploy={"status": "offline", "exit": 4, "error": story})
    error = failed_night(checkout, BoardOffline)
    assert error.status == 4
    assert states(error.result)["deploy"] == "offline"
    assert states(error.result)["generate"] == states(error.result)["verify"] == "skipped"
    assert states(error.result)["report"] == "passed", "it comes after the others, whatever became of them"


def test_of_several_failures_the_worst_decides(checkout: Path) -> None:
    tool = {"class": "ToolFailed", "message": "the compiler broke", "hint": "", "log": None}
    gate = {"class": "GateError", "message": "too large", "hint": "", "log": None}
    answers(
        checkout,
        build_runtime={"status": "error", "exit": 3, "error": tool},
        build_bitstream={"status": "failed", "exit": 1, "error": gate},
    )
    error = failed_night(checkout, TritforgeError)
    assert error.status == 1
    assert error.message == "stage 'build-bitstream': too large\nwent wrong as well: build-runtime"
    assert states(error.result)["convert-weights"] == "passed"


def test_a_stage_that_hangs_ends_at_its_deadline(checkout: Path) -> None:
    path = checkout / "config" / "pipelines" / "nightly.yaml"
    path.write_text(
        path.read_text().replace("after: [generate], deadline_minutes: 40", "after: [generate], deadline_minutes: 0.02")
    )
    answers(checkout, verify={"sleep_s": 60})
    started = time.monotonic()
    error = failed_night(checkout, TritforgeError)
    assert "did not end within 1 s" in error.message and error.status == 3
    assert time.monotonic() - started < 45


def test_old_answers_of_a_board_are_asked_for_again(checkout: Path) -> None:
    night(checkout)
    ran(checkout)
    for path in (checkout / ".tritforge" / "results").rglob("*.json"):
        kept = json.loads(path.read_text())
        kept["finished"] -= 13 * 3600
        path.write_text(json.dumps(kept))
    plan = {stage["name"]: stage for stage in nightly.plan(context_of(checkout))["stages"]}
    assert plan["release"]["cached"]
    assert plan["verify"]["reason"] == "it stands on 'deploy', which would run"
    assert plan["deploy"]["reason"] == "its last result is 13.0 hours old"


def test_two_nights_do_not_meet(checkout: Path) -> None:
    context = context_of(checkout)
    with held(nightly_lock(context), "nightly"), pytest.raises(LockHeld, match="held by process") as caught:
        night(checkout)
    assert caught.value.status == 4
    assert ran(checkout) == []


def test_killed_and_resumed(checkout: Path) -> None:
    """kill -9 while a stage runs: that stage's process ends too, and the next night goes on from there."""
    answers(checkout, verify={"sleep_s": 30})
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "from pipelines.commands import builds, nightly\n"
        "from tests.commands.test_nightly import context_of, fake_release\n"
        "builds.release = lambda context, board, model: fake_release(context.root)\n"
        "nightly.run(context_of(Path(sys.argv[1])))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(checkout)], cwd=ROOT)
    end = time.monotonic() + 60
    note = checkout / "ran"
    while time.monotonic() < end and not (note.exists() and "verify" in note.read_text()):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert "verify" in ran(checkout)
    answers(checkout)
    result = night(checkout)
    assert {name for name, state in states(result).items() if state == "cached"} >= {"release", "generate"}
    assert sorted(ran(checkout)) == ["deploy", "report", "verify"]


@pytest.mark.parametrize("task", sorted(TAKES))
def test_the_table_of_flags_is_right(task: str) -> None:
    module = importlib.import_module(f"pipelines.commands.{task.replace('-', '_')}")
    parameters = set(inspect.signature(module.run).parameters) - {"context"}
    assert {"context" if name == "context_length" else name.replace("_", "-") for name in parameters} == set(
        TAKES[task]
    )


def test_the_table_of_flags_is_whole() -> None:
    assert set(TAKES) == set(get_args(TaskName))


def test_a_stage_whose_option_is_no_number_is_a_mistake_of_the_configuration(checkout: Path) -> None:
    answers(checkout, generate={"silent": True, "exit": 2})
    error = failed_night(checkout, UsageError)
    assert "stage 'generate': the task ended with status 2" in error.message


def test_in_the_shipped_pipeline_nothing_needs_an_optional_stage_and_the_report_waits_for_all() -> None:
    stages = Context(root=ROOT).settings.pipeline().stages
    optional = {stage.name for stage in stages if stage.optional}
    assert optional == {"simulate", "evaluate", "benchmark"}
    assert not [stage.name for stage in stages if optional & set(stage.needs) and not stage.optional]
    assert stages[-1].task == "report" and optional | {"generate", "verify"} == set(stages[-1].after)
