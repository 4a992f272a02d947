"""The C runtime for the boards and for this machine, through ``pipelines/runtime/build.py``."""

from __future__ import annotations

from pipelines.base.files import write_json
from pipelines.engine.stage import Build, Stage
from pipelines.golden import formats
from pipelines.runtime.build import TARGETS
from pipelines.runtime.build import build as build_runtime
from pipelines.stages.sources import sources
from pipelines.stages.versions import package
from pipelines.stages.workshop import Workshop

BOARD_TARGET = "armv7-linux"


def runtime_stage(shop: Workshop) -> Stage:
    """One folder a target: ``armv7-linux/libtritforge.so`` and so on, and ``runtime.json``.

    Always all targets, so that ``runtime.json``, a part of the release, does not tell the machine that built it.
    """
    targets = sorted(TARGETS)

    def build(job: Build) -> None:
        for i, target in enumerate(targets):
            job.activity.update(i, len(targets), "targets")
            folder = job.out / target
            folder.mkdir()
            build_runtime(target, folder, deadline=job.deadline, log=job.log)
        write_json(
            job.out / "runtime.json",
            {"toolchain": "zig", "formats_version": formats.FORMATS_VERSION, "targets": targets},
        )

    return Stage(
        name="runtime",
        build=build,
        files=sources(shop.root, "native/src/*", "native/include/*.h", "pipelines/runtime/build.py"),
        values={"targets": targets},
        tools={"ziglang": package("ziglang")},
        deadline_s=1200.0,
        toolchain="zig",
    )
