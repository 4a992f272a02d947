"""Several strategies at once, as Dask tasks, when the configured one misses timing.

The winner is the strategy with the best setup slack among those that pass every gate; equal slack, the first name. It
does not depend on which task ends first, and the caller builds it once more, alone.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.base.deadline import Deadline
from pipelines.base.errors import GateError, ToolFailed, ToolMissing, UsageError
from pipelines.vivado.builder import Builder
from pipelines.vivado.design import Cluster

CONNECT_S = 30


@dataclass(frozen=True)
class Candidate:
    """What a strategy reached; ``slack_ns`` is the setup slack, ``problem`` why it does not count."""

    name: str
    slack_ns: float
    passed: bool
    payload_sha256: str
    problem: str = ""


def winner(candidates: list[Candidate]) -> Candidate | None:
    """Best setup slack, then name; None when none passes."""
    good = [c for c in candidates if c.passed]
    return min(good, key=lambda c: (-c.slack_ns, c.name)) if good else None


def best_strategy(builder: Builder, count: int) -> Candidate:
    """Runs the first ``count`` candidates of the design. Raises GateError, with what each reached, when none passes."""
    names = list(builder.design.sweep.candidates)[:count]
    if not names:
        raise UsageError(
            f"--sweep {count}: '{builder.design.name}' lists no candidates",
            hint="add some under sweep.candidates in its YAML",
        )
    builder.say(f"timing is missed; trying {len(names)} other strategies: {', '.join(names)}")
    # What goes to a worker, perhaps on another machine: no console, no open connection, and no point in this machine's
    # monotonic time, but the seconds that are left of it.
    task = replace(builder, say=silent, vivado=builder.vivado.for_task())
    seconds = builder.deadline.remaining()
    with client(builder.design.sweep.cluster) as dask:
        futures = [
            dask.submit(run_candidate, task, name, seconds, pure=False, key=f"vivado-{name}-{os.getpid()}")
            for name in names
        ]
        try:
            results: list[Candidate] = dask.gather(futures, errors="raise")
        except BaseException:
            dask.cancel(futures, force=True)
            raise
    for result in results:
        builder.say(f"  {result.name}: " + (result.problem or f"setup slack {result.slack_ns:.3f} ns"))
    best = winner(results)
    if best is None:
        lines = "".join(f"\n  {c.name}: {c.problem}" for c in results)
        raise GateError(
            f"none of {len(results)} strategies meets timing:{lines}",
            hint="lower clock_mhz, or change the RTL on the worst path",
        )
    return best


def silent(text: str) -> None:
    """For a task that nobody listens to."""


def run_candidate(builder: Builder, name: str, seconds: float) -> Candidate:
    """One task: a whole attempt with one strategy, within ``seconds``. A failure is a result: the others go on."""
    builder = replace(builder, vivado=builder.vivado.for_task(), deadline=Deadline.after(seconds))
    log = builder.log.with_name(f"{builder.log.stem}-{name}{builder.log.suffix}")
    try:
        built = builder.attempt(builder.design.with_strategy(name), log=log)
    except (ToolFailed, ToolMissing) as error:
        return Candidate(name, float("-inf"), False, "", f"{type(error).__name__}: {error.message.splitlines()[0]}")
    slack = next((g.value for g in built.verdict.gates if g.name == "setup_slack"), None)
    problem = "" if built.verdict.passed else "; ".join(str(g) for g in built.verdict.failed[:2])
    return Candidate(
        name,
        float(slack) if isinstance(slack, (int, float)) else float("-inf"),
        built.verdict.passed,
        built.payload_sha256,
        problem,
    )


@contextlib.contextmanager
def client(cluster: Cluster) -> Iterator[Any]:
    """A Dask client for the configured cluster.

    Workers elsewhere need this checkout and the work folder under the same paths, on a shared disk.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise ToolMissing(
            "a sweep needs the Python package 'distributed'", hint="pip install dask distributed"
        ) from None
    for name in ("distributed", "distributed.worker", "distributed.scheduler", "distributed.nanny"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with contextlib.ExitStack() as stack:
        if cluster.kind == "local":
            # Threads are enough: a task waits for Vivado, which is a process of its own.
            pool = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=cluster.workers,
                    threads_per_worker=1,
                    processes=False,
                    dashboard_address="127.0.0.1:0",
                    memory_limit=0,
                )
            )
        elif cluster.kind == "address":
            pool = cluster.address
        else:
            pool = stack.enter_context(_batch_cluster(cluster))
        try:
            yield stack.enter_context(distributed.Client(pool, timeout=CONNECT_S))
        except OSError as error:
            raise ToolFailed(
                f"the Dask scheduler at {cluster.address} does not answer: {error}", hint="sweep.cluster in the YAML"
            ) from None


def _batch_cluster(cluster: Cluster) -> Any:
    """A cluster whose workers are jobs of SLURM or LSF."""
    try:
        dask_jobqueue: Any = importlib.import_module("dask_jobqueue")
    except ImportError:
        raise ToolMissing(
            f"sweep.cluster.kind is {cluster.kind}, which needs the Python package 'dask-jobqueue'",
            hint="pip install dask-jobqueue",
        ) from None
    kind = dask_jobqueue.SLURMCluster if cluster.kind == "slurm" else dask_jobqueue.LSFCluster
    pool = kind(
        queue=cluster.queue or None,
        cores=cluster.cores,
        processes=1,
        memory=f"{cluster.memory_gib}GiB",
        walltime=cluster.walltime,
        local_directory=str(Path.cwd() / ".tritforge" / "dask"),
    )
    pool.scale(jobs=cluster.workers)
    return pool
