"""Other strategies when timing is missed, as Dask tasks."""

from __future__ import annotations

import json
import threading

import pytest

from pipelines.base.errors import GateError, ToolFailed, ToolMissing
from pipelines.vivado import sweep
from pipelines.vivado.design import Cluster
from pipelines.vivado.sweep import Candidate, winner
from tests.vivado.conftest import Builder, design_with


class Console:
    """Something that listens and, like a console, cannot be sent to another process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.said: list[str] = []

    def say(self, text: str) -> None:
        with self.lock:
            self.said.append(text)


def test_the_best_is_found_and_built_again_alone(run_build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_VIVADO_FAULT", "negative_slack:ExtraTimingOpt")
    console = Console()
    out = run_build(sweep=3, say=console.say)
    said = console.said
    about = json.loads((out / "bitstream.json").read_text())
    assert about["strategy"]["place"] == "ExtraTimingOpt"
    assert json.loads((out / "gates.json").read_text())["passed"]
    # The attempt that missed timing, three strategies, and the winner once more.
    attempts = sorted(path.name for path in (out.parent / "work").iterdir())
    assert attempts == [f"combined-{i:04d}" for i in range(1, 6)]
    assert any("strategy 'timing_opt' meets timing" in text for text in said)


def test_none_meets_timing(run_build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_VIVADO_FAULT", "negative_slack")
    with pytest.raises(GateError, match=r"none of 2 strategies meets timing:\n  explore_post_route: setup_slack: -0"):
        run_build(sweep=2)


@pytest.mark.parametrize("fault", ["too_many_luts", "negative_slack,drc_error", "empty_slack"])
def test_no_sweep_when_no_strategy_could_help(fault: str, run_build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_VIVADO_FAULT", fault)
    with pytest.raises(GateError, match="gates failed"):
        run_build(sweep=3)


def test_a_strategy_that_fails_does_not_end_the_others(run_build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    """One candidate dies for want of a licence; the other is still found."""
    monkeypatch.setenv("STANDIN_VIVADO_FAULT", "negative_slack:ExtraTimingOpt")
    chosen = design_with("sweep.candidates={broken: {place: Quick}, works: {place: ExtraTimingOpt}}")
    original = sweep.run_candidate

    def sometimes(builder: object, name: str, seconds: float) -> Candidate:
        if name == "broken":
            return Candidate(name, float("-inf"), False, "", "OutOfMemory: killed")
        return original(builder, name, seconds)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep, "run_candidate", sometimes)
    out = run_build(chosen=chosen, sweep=2)
    assert json.loads((out / "bitstream.json").read_text())["strategy"]["place"] == "ExtraTimingOpt"


def test_winner_does_not_depend_on_the_order() -> None:
    def candidate(name: str, slack: float, passed: bool = True) -> Candidate:
        return Candidate(name, slack, passed, "")

    three = [candidate("b", 0.2), candidate("a", 0.2), candidate("c", 0.9, passed=False)]
    assert winner(three) == winner(three[::-1]) == three[1]
    assert winner([candidate("a", 0.1), candidate("z", 0.3)]) == candidate("z", 0.3)
    assert winner([candidate("a", -0.1, passed=False)]) is None


def test_a_scheduler_by_address(run_build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real scheduler on a TCP port and a worker that is another process, as on a cluster."""
    import distributed

    monkeypatch.setenv("STANDIN_VIVADO_FAULT", "negative_slack:ExtraTimingOpt")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=True,
        protocol="tcp",
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
    ) as cluster:
        assert cluster.scheduler_address.startswith("tcp://")
        chosen = design_with(f"sweep.cluster={{kind: address, address: '{cluster.scheduler_address}'}}")
        out = run_build(chosen=chosen, sweep=3, say=Console().say)
    assert (out / "bitstream.json").exists()


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "CONNECT_S", 1)
    cluster = Cluster(kind="address", address="tcp://127.0.0.1:9")
    with pytest.raises(ToolFailed, match="does not answer"), sweep.client(cluster):
        pass


def test_batch_system_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with (
        pytest.raises(ToolMissing, match="needs the Python package 'dask-jobqueue'"),
        sweep.client(Cluster(kind="slurm")),
    ):
        pass


@pytest.mark.parametrize(("kind", "name"), [("slurm", "SLURMCluster"), ("lsf", "LSFCluster")])
def test_batch_system_gets_its_job_description(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of dask-jobqueue; the batch system itself is not here."""
    import sys
    import types

    import distributed

    asked: dict[str, object] = {}

    class Pool(distributed.LocalCluster):  # type: ignore[misc]
        def __init__(self, **options: object) -> None:
            asked.update(options)
            super().__init__(n_workers=0, processes=False, dashboard_address="127.0.0.1:0")

        def scale(self, jobs: int) -> None:  # type: ignore[override]
            asked.setdefault("jobs", jobs)  # closing scales to none

    monkeypatch.setitem(sys.modules, "dask_jobqueue", types.SimpleNamespace(**{name: Pool}))
    chosen = Cluster.model_validate(
        {"kind": kind, "workers": 5, "cores": 8, "memory_gib": 24, "queue": "fpga", "walltime": "2:30"}
    )
    with sweep.client(chosen):
        pass
    assert {k: asked[k] for k in ("queue", "cores", "memory", "walltime", "jobs")} == {
        "queue": "fpga", "cores": 8, "memory": "24GiB", "walltime": "2:30", "jobs": 5,
    }  # fmt: skip
