"""The bitstream of an emulated board: the RTL compiled to libraries, through ``pipelines/hardware/verilate.py``."""

from __future__ import annotations

from pipelines.base.files import HashCache
from pipelines.engine.stage import Build, Stage
from pipelines.hardware import verilate
from pipelines.runtime.build import host_target
from pipelines.stages.runtime import BOARD_TARGET
from pipelines.stages.sources import relative
from pipelines.stages.versions import package
from pipelines.stages.vivado import content_id_of
from pipelines.stages.workshop import Workshop
from pipelines.vivado.design import BitstreamDesign


def verilator_stage(shop: Workshop, design: BitstreamDesign, hashes: HashCache) -> Stage:
    """``<target>/libtritforge_rtl.so`` and ``libtritforge_model.so`` for the board and this machine; bitstream.json."""
    targets = sorted({BOARD_TARGET, host_target()})
    scatter_gather = all(dma.scatter_gather for dma in design.dma.engines.values())
    files = relative(shop.root, verilate.source_files())
    # Only what the simulated logic takes from the design: its strategy for Vivado changes nothing here.
    values = {"targets": targets, "scatter_gather": scatter_gather, "design": design.name}
    content_id = content_id_of({name: hashes.sha256(path) for name, path in files.items()}, values)
    code = {name: shop.root / name for name in ("pipelines/hardware/verilate.py", "pipelines/runtime/build.py")}

    def build(job: Build) -> None:
        verilate.build(
            job.out,
            targets=targets,
            content_id=content_id,
            deadline=job.deadline,
            log=job.log,
            scatter_gather=scatter_gather,
        )

    return Stage(
        name=f"bitstream-{design.name}-verilator",
        build=build,
        files=files | code,
        values=values,
        tools={"verilator": shop.versions.of("verilator"), "ziglang": package("ziglang")},
        deadline_s=3600.0,  # 5 CPU minutes and a compiler's first start; a crowded machine takes ten times that
        toolchain="verilator",
        toolchain_file="bitstream.json",
    )
