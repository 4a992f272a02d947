"""Stages: what is cached, what would run and why, and what becomes of failures and damage."""

from __future__ import annotations

import os
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

from pipelines.base.console import Console
from pipelines.base.errors import GateError, StoreError, ToolFailed, TritforgeError
from pipelines.engine import graph
from pipelines.engine.stage import Build, Stage
from pipelines.engine.store import Store
from tests.engine import workshop


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "left.txt").write_text("left")
    (tmp_path / "right.txt").write_text("right")
    return tmp_path


def planned(folder: Path) -> dict[str, graph.Outcome]:
    return {outcome.name: outcome for outcome in graph.plan(workshop.stages_in(folder), workshop.store_in(folder))}


def test_everything_is_cached_afterwards(folder: Path) -> None:
    assert [outcome.reason for outcome in planned(folder).values()] == [
        "it was never built here",
        "it was never built here",
        "it stands on 'expand-left' and 'expand-right', which would run",
    ]
    built = workshop.build(folder)
    assert [outcome.cached for outcome in built] == [False] * 3
    join = built[-1].artefact
    assert join is not None and (join.folder / "sum").read_text() == workshop.expected_sum(folder)
    assert all(outcome.cached for outcome in planned(folder).values())
    assert [outcome.cached for outcome in workshop.build(folder)] == [True] * 3


def test_touching_a_file_changes_nothing(folder: Path) -> None:
    workshop.build(folder)
    os.utime(folder / "left.txt")
    assert all(outcome.cached for outcome in planned(folder).values())


def test_one_character_runs_exactly_what_depends_on_it(folder: Path) -> None:
    workshop.build(folder)
    (folder / "left.txt").write_text("Left")
    plan = planned(folder)
    assert not plan["expand-left"].cached
    assert plan["expand-left"].reason.startswith("left.txt changed from 360f84035942 to ")
    assert plan["expand-right"].cached and plan["expand-right"].reason == ""
    assert plan["join"].reason == "it stands on 'expand-left', which would run"
    assert [outcome.cached for outcome in workshop.build(folder)] == [False, True, False]
    (folder / "left.txt").write_text("left")
    assert all(outcome.cached for outcome in planned(folder).values()), "the earlier artefacts are still there"


def test_values_and_tools_are_named_in_the_reason(folder: Path) -> None:
    store = workshop.store_in(folder)

    def stage(clock: int, tool: str, **more: object) -> Stage:
        def build(job: Build) -> None:
            (job.out / "x").write_text("x")

        return Stage("s", build, values={"design": {"clock_mhz": clock, **more}}, tools={"verilator": tool})

    graph.run([stage(125, "5.006")], store, Console(quiet=True), root=folder)
    (outcome,) = graph.plan([stage(100, "5.006")], store)
    assert outcome.reason == "value design.clock_mhz changed from 125 to 100"
    (outcome,) = graph.plan([stage(125, "5.020", part="x")], store)
    assert outcome.reason == "tool verilator changed from 5.006 to 5.020; value design.part is new"


def test_the_same_output_stops_the_chain(folder: Path) -> None:
    """A change that makes no difference below makes none above."""
    store = workshop.store_in(folder)

    def stages(comment: str) -> list[Stage]:
        def lower(job: Build) -> None:
            (job.out / "x").write_text("the same")

        def upper(job: Build) -> None:
            (job.out / "y").write_text("above")

        below = Stage("below", lower, values={"comment": comment})
        return [Stage("above", upper, upstream=(below,))]

    graph.run(stages("one"), store, Console(quiet=True), root=folder)
    outcomes = graph.run(stages("two"), store, Console(quiet=True), root=folder)
    assert [(outcome.name, outcome.cached) for outcome in outcomes] == [("below", False), ("above", True)]


@pytest.mark.parametrize("how", ["flipped", "truncated", "removed"])
def test_damage_is_found_and_repaired(folder: Path, how: str) -> None:
    join = workshop.build(folder)[-1].artefact
    assert join is not None
    target = join.folder / "sum"
    target.chmod(0o644)
    text = target.read_text()
    if how == "flipped":
        target.write_text("0" + text[1:] if text[0] != "0" else "1" + text[1:])
    elif how == "truncated":
        target.write_text(text[:-1])
    else:
        target.unlink()
    plan = planned(folder)
    assert not plan["join"].cached
    assert plan["join"].reason == f"its artefact is not whole: sum is {'missing' if how == 'removed' else 'damaged'}"
    again = workshop.build(folder)[-1].artefact
    assert again is not None and (again.folder / "sum").read_text() == workshop.expected_sum(folder)


def test_a_failure_hides_no_other_result(folder: Path) -> None:
    def fail(job: Build) -> None:
        (job.out / "half").write_text("half")
        raise GateError("timing is missed")

    def work(job: Build) -> None:
        (job.out / "x").write_text("x")

    bad = Stage("bad", fail)
    stages = [bad, Stage("good", work), Stage("above", work, upstream=(bad,))]
    store = workshop.store_in(folder)
    outcomes = {outcome.name: outcome for outcome in graph.run(stages, store, Console(quiet=True), root=folder)}
    assert [outcomes[name].status for name in ("bad", "good", "above")] == ["failed", "passed", "skipped"]
    assert outcomes["above"].reason == "'bad' did not pass"
    assert outcomes["bad"].error is not None and outcomes["bad"].error.log is not None
    with pytest.raises(GateError, match="^stage 'bad': timing is missed$"):
        graph.raise_worst(list(outcomes.values()))
    assert not list((store.state / "work").iterdir())
    assert {artefact.name for artefact in store.artefacts()} == {"good"}


def test_a_fault_of_ours_in_a_builder_is_reported(folder: Path) -> None:
    def broken(job: Build) -> None:
        raise KeyError("x")

    (outcome,) = graph.run([Stage("s", broken)], workshop.store_in(folder), Console(quiet=True), root=folder)
    assert isinstance(outcome.error, ToolFailed) and "KeyError" in outcome.error.message


def test_a_file_changed_during_the_build_gives_no_artefact(folder: Path) -> None:
    def slow(job: Build) -> None:
        (job.out / "x").write_text((folder / "left.txt").read_text())
        (folder / "left.txt").write_text("edited meanwhile")

    store = workshop.store_in(folder)
    (outcome,) = graph.run(
        [Stage("s", slow, files={"left.txt": folder / "left.txt"})], store, Console(quiet=True), root=folder
    )
    assert outcome.error is not None and "left.txt was changed while it was being built" in outcome.error.message
    assert not list(store.artefacts())


@pytest.mark.parametrize("what", ["nothing", "a link"])
def test_what_is_no_artefact(folder: Path, what: str) -> None:
    def build(job: Build) -> None:
        if what == "a link":
            (job.out / "link").symlink_to("/etc/hostname")

    (outcome,) = graph.run([Stage("s", build)], workshop.store_in(folder), Console(quiet=True), root=folder)
    assert isinstance(outcome.error, StoreError)


def test_independent_stages_run_at_once(folder: Path) -> None:
    both = threading.Barrier(2, timeout=20)

    def build(job: Build) -> None:
        both.wait()
        (job.out / "x").write_text("x")

    stages = [Stage("one", build), Stage("two", build)]
    outcomes = graph.run(stages, workshop.store_in(folder), Console(quiet=True), root=folder)
    assert [outcome.status for outcome in outcomes] == ["passed", "passed"]


def test_a_missing_input_is_the_users_mistake(folder: Path) -> None:
    stage = Stage("s", lambda job: None, files={"gone.sv": folder / "gone.sv"})
    with pytest.raises(TritforgeError, match="stage 's' needs gone.sv: No such file") as caught:
        graph.plan([stage], workshop.store_in(folder))
    assert caught.value.status == 2


def test_a_stand_in_is_inherited(folder: Path) -> None:
    def build(job: Build) -> None:
        (job.out / "about.json").write_text('{"toolchain": "stand-in"}')

    below = Stage("below", build, toolchain="vivado", toolchain_file="about.json")
    above = Stage("above", build, upstream=(below,), toolchain="tritforge")
    for outcome in graph.run([above], workshop.store_in(folder), Console(quiet=True), root=folder):
        assert outcome.artefact is not None and outcome.artefact.toolchain == "stand-in"


def test_provenance_names_everything_that_went_in(folder: Path) -> None:
    join = workshop.build(folder)[-1].artefact
    left = workshop.build(folder)[0].artefact
    assert join is not None and left is not None
    statement = join.record["provenance"]
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [{"name": "sum", "digest": {"sha256": join.files["sum"][0]}}]
    definition = statement["predicate"]["buildDefinition"]
    names = {entry["name"]: entry["digest"].get("sha256") for entry in definition["resolvedDependencies"]}
    assert names["expand-left"] == left.digest
    assert definition["externalParameters"]["values"] == {"join.order": '"left first"'}
    expand = left.record["provenance"]["predicate"]["buildDefinition"]
    assert expand["internalParameters"]["tools"] == {"expander": "1.0"}
    assert "left.txt" in {entry["name"] for entry in expand["resolvedDependencies"]}


def test_provenance_has_the_fields_of_slsa_and_no_other(folder: Path) -> None:
    """As https://slsa.dev/spec/v1.0/provenance lists them; ours are inside of the two that may hold anything."""
    left = workshop.build(folder)[0].artefact
    assert left is not None
    statement = left.record["provenance"]
    assert set(statement) == {"_type", "subject", "predicateType", "predicate"}
    predicate = statement["predicate"]
    assert set(predicate) == {"buildDefinition", "runDetails"}
    definition, details = predicate["buildDefinition"], predicate["runDetails"]
    assert set(definition) == {"buildType", "externalParameters", "internalParameters", "resolvedDependencies"}
    assert definition["internalParameters"]["command"] and definition["internalParameters"]["machine"]
    assert set(details) == {"builder", "metadata", "byproducts"}
    assert set(details["builder"]) <= {"id", "version", "builderDependencies"} and ":" in details["builder"]["id"]
    assert set(details["metadata"]) == {"invocationId", "startedOn", "finishedOn"}
    assert all(datetime.fromisoformat(details["metadata"][name]).tzinfo for name in ("startedOn", "finishedOn"))
    resource = {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}
    for entry in [*statement["subject"], *definition["resolvedDependencies"], *details["byproducts"]]:
        assert set(entry) <= resource
        assert entry.get("digest") or entry.get("annotations")
    assert ":" in definition["buildType"]


def test_artefacts_are_read_only_and_stay(folder: Path) -> None:
    join = workshop.build(folder)[-1].artefact
    assert join is not None
    assert (join.folder / "sum").stat().st_mode & 0o222 == 0


def test_sweep_takes_only_what_nothing_needs(folder: Path) -> None:
    workshop.build(folder)
    store: Store = workshop.store_in(folder)
    (store.state / "store" / ("0" * 64)).mkdir()
    (store.state / "store" / ("0" * 64) / "orphan").write_text("x" * 100)
    (store.state / "work" / "abc-999999999-left").mkdir()
    assert store.sweep() == 100
    assert all(outcome.cached for outcome in planned(folder).values())
    for artefact in list(store.artefacts()):
        store.remove(artefact)
    store.sweep()
    assert not list((store.state / "store").iterdir())
    assert planned(folder)["expand-left"].reason == "it was never built here"


def test_waiting_ends_at_its_deadline(folder: Path) -> None:
    from pipelines.base.deadline import Deadline
    from pipelines.base.errors import LockHeld

    store = workshop.store_in(folder)
    with store.building("k" * 64, "one", Deadline.after(5)):
        started = time.monotonic()
        with pytest.raises(LockHeld), store.building("k" * 64, "two", Deadline.after(0.2)):
            pass
        assert time.monotonic() - started < 5
