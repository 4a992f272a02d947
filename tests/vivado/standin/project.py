"""The project: files, runs and their order, and what each step leaves on disk."""

# ruff: noqa: E501  lines are as long as the tool prints them

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from . import bitfile, catalogue, handoff, reports, verilog
from .design import BlockDesign
from .tcl import TclError

PARTS = {"xc7z020clg400-1"}

# UG835, for 7-series parts.
DIRECTIVES = {
    "SYNTH_DESIGN": "Default RuntimeOptimized AreaOptimized_high AreaOptimized_medium AlternateRoutability "
    "AreaMapLargeShiftRegToBRAM AreaMultThreshold_DSP FewerCarryChains PerformanceOptimized",
    "OPT_DESIGN": "Default Explore ExploreArea ExploreSequentialArea ExploreWithRemap AddRemap NoBramPowerOpt RuntimeOptimized",
    "PLACE_DESIGN": "Default Explore WLDrivenBlockPlacement EarlyBlockPlacement ExtraNetDelay_high ExtraNetDelay_low "
    "AltSpreadLogic_high AltSpreadLogic_medium AltSpreadLogic_low ExtraPostPlacementOpt ExtraTimingOpt RuntimeOptimized Quick",
    "PHYS_OPT_DESIGN": "Default Explore ExploreWithHoldFix ExploreWithAggressiveHoldFix AggressiveExplore "
    "AlternateReplication AggressiveFanoutOpt AddRetime AlternateFlowWithRetiming RuntimeOptimized",
    "ROUTE_DESIGN": "Default Explore AggressiveExplore NoTimingRelaxation MoreGlobalIterations HigherDelayCost "
    "AlternateCLBRouting RuntimeOptimized Quick",
}
DIRECTIVES["POST_ROUTE_PHYS_OPT_DESIGN"] = DIRECTIVES["PHYS_OPT_DESIGN"]
OPTIONAL_STEPS = ("OPT_DESIGN", "PHYS_OPT_DESIGN", "POST_ROUTE_PHYS_OPT_DESIGN")

# Resources of the cells, roughly what such cores take; only so that reports have something to say.
TYPICAL = {
    catalogue.DMA: {"lut": 1900, "ff": 2700, "bram36": 3, "dsp": 0},
    catalogue.INTERCONNECT: {"lut": 700, "ff": 900, "bram36": 0, "dsp": 0},
    catalogue.RESET: {"lut": 18, "ff": 33, "bram36": 0, "dsp": 0},
    catalogue.PS7: {"lut": 30, "ff": 0, "bram36": 0, "dsp": 0},
    catalogue.CONCAT: {"lut": 0, "ff": 0, "bram36": 0, "dsp": 0},
    "module": {"lut": 5200, "ff": 4100, "bram36": 14.5, "dsp": 34},
}


@dataclass
class Run:
    name: str
    kind: str  # synthesis | implementation
    properties: dict[str, str] = field(default_factory=dict)
    launched_to: str = ""
    status: str = "Not started"
    progress: str = "0%"


@dataclass
class Project:
    name: str
    folder: Path
    part: str
    version: str
    faults: dict[str, str]
    sources: list[Path] = field(default_factory=list)
    constraints: list[Path] = field(default_factory=list)
    order_known: bool = False
    parameters: dict[str, str] = field(default_factory=dict)
    ip_cache: bool = True
    properties: dict[str, str] = field(default_factory=dict)
    design: BlockDesign | None = None
    design_properties: dict[str, str] = field(default_factory=dict)
    generated: bool = False
    wrapper: Path | None = None
    top: str = ""
    runs: dict[str, Run] = field(default_factory=dict)
    opened_run: str = ""
    done: set[str] = field(default_factory=set)  # reports and outputs written, for `left_out`
    says: list[str] = field(default_factory=list)  # lines for the tool's own output

    # ------------------------------------------------------------------------------------------------ time and place

    def now(self) -> time.struct_time:
        return time.localtime(float(os.environ.get("STANDIN_VIVADO_CLOCK") or time.time()))

    def date(self, days: float = 0) -> str:
        return time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(time.mktime(self.now()) + days * 86_400))

    def heading(self) -> reports.Heading:
        host = os.environ.get("STANDIN_VIVADO_HOST") or socket.gethostname()
        return reports.Heading(self.version, self.date(), host, self.name, "xc7z020clg400-1", self.top)

    def runs_folder(self) -> Path:
        return self.folder / f"{self.name}.runs"

    # ------------------------------------------------------------------------------------------------ sources

    def module(self, name: str) -> verilog.Module:
        if not self.order_known:
            raise TclError(
                f"[filemgmt 56-195] Reference '{name}' contains no module: the compile order was not updated after add_files"
            )
        for path in self.sources:
            if path.suffix in (".v", ".sv") and name in verilog.modules(path):
                if path.suffix != ".v":
                    raise TclError(
                        f"[filemgmt 56-195] the top of reference '{name}' is SystemVerilog ({path.name}); it must be Verilog"
                    )
                return verilog.parse(path, name)
        raise TclError(f"[filemgmt 56-181] Reference '{name}' was not found among the sources of the project")

    def need_design(self) -> BlockDesign:
        if self.design is None or not self.design.open:
            raise TclError("[BD 5-4] No open block design")
        return self.design

    # ------------------------------------------------------------------------------------------------ identity

    def digest(self, *, with_implementation: bool = True) -> bytes:
        """Everything that decides the bits: the design, the sources' contents, the constraints, the strategy."""
        assert self.design is not None
        content: dict[str, object] = {
            "design": self.design.dump(),
            "content_id": [c.config.get("CONTENT_ID", "") for c in self.design.cells.values()],
            "part": self.part,
            "version": self.version,
            "sources": [(p.name, hashlib.sha256(p.read_bytes()).hexdigest()) for p in self.sources],
            "constraints": [p.read_text() for p in self.constraints],
            "synthesis": self.runs["synth_1"].properties,
        }
        if with_implementation:
            content["implementation"] = self.runs["impl_1"].properties
            content["phase"] = self.faults.get("phase_differs", "")
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()

    # ------------------------------------------------------------------------------------------------ runs

    def launch(self, name: str, to_step: str) -> None:
        run = self.runs[name]
        if run.launched_to:
            raise TclError(f"[Common 17-70] Run '{name}' was launched already; it needs reset_run first")
        if not self.top or self.wrapper is None or not self.generated:
            raise TclError("[Project 1-40] there is no top module with a generated block design")
        if self.wrapper.resolve() not in self.sources:
            raise TclError(f"[filemgmt 20-741] the wrapper {self.wrapper.name} is not among the sources of the project")
        if not self.order_known:
            raise TclError("[filemgmt 20-730] the compile order was not updated after the wrapper was added")
        if self.top != self.wrapper.stem:
            raise TclError(f"[filemgmt 20-742] top '{self.top}' is not the wrapper '{self.wrapper.stem}'")
        if "general.maxThreads" not in self.parameters:
            raise TclError("[standin] general.maxThreads is not fixed, so two machines could differ")
        if self.ip_cache:
            raise TclError("[standin] the cache of synthesised IP is on, so a result could come from another build")
        if run.properties.get("AUTO_INCREMENTAL_CHECKPOINT", "1") != "0":
            raise TclError(
                f"[standin] AUTO_INCREMENTAL_CHECKPOINT of {name} is on: the result would depend on an earlier one"
            )
        if run.kind == "synthesis":
            self._check_sources()
        if run.kind == "implementation":
            if self.runs["synth_1"].status != "synth_design Complete!":
                raise TclError("[Common 17-70] synth_1 has not completed")
            if to_step != "write_bitstream":
                raise TclError("[standin] the implementation run must be launched to write_bitstream")
            self._check_constraints()
        for step in DIRECTIVES:
            if (step == "SYNTH_DESIGN") != (run.kind == "synthesis"):
                continue
            stated = run.properties.get(f"STEPS.{step}.IS_ENABLED")
            if step in ("PHYS_OPT_DESIGN", "POST_ROUTE_PHYS_OPT_DESIGN") and stated is None:
                raise TclError(
                    f"[standin] whether {step} of {name} runs is left at its default, which depends on the version"
                )
            off = stated in ("false", "0")
            if not off and f"STEPS.{step}.ARGS.DIRECTIVE" not in run.properties:
                raise TclError(f"[standin] {step} of {name} is left at its default, which can change with the version")
        self.dump()
        run.launched_to = to_step or "synth_design"
        run.status = "Running..."
        run.progress = "5%"

    def _check_sources(self) -> None:
        """Every module and package of ours that the sources use is among them."""
        texts = {p: verilog.strip_comments(p.read_text()) for p in self.sources if p.suffix in (".v", ".sv")}
        there = {name for text in texts.values() for name in re.findall(r"^\s*(?:module|package)\s+(\w+)", text, re.M)}
        for path, text in texts.items():
            if path == self.wrapper:
                continue
            # An instance has parameters or a name of the form u_…; a package is named with ::. What is called u_error is
            # missing on purpose: it stands where parameters are wrong, and is elaborated only then.
            used = re.findall(r"^\s*(\w+)\s*#\s*\(|^\s*(\w+)\s+u_(?!error\b)\w+\s*\(|\b(\w+)::", text, re.M)
            for name in sorted({name for names in used for name in names if name} - there - {"module"}):
                raise TclError(f"[Synth 8-439] module '{name}' not found, which {path.name} uses")

    def dump(self) -> None:
        """What is built, as the stand-in understood it: compared with a reviewed golden file by the tests."""
        assert self.design is not None
        content = {
            "part": self.part,
            "parameters": self.parameters,
            "project": self.properties,
            "top": self.top,
            "runs": {name: dict(sorted(run.properties.items())) for name, run in sorted(self.runs.items())},
            **self.design.dump(),
        }
        (self.folder / f"{self.name}.design.json").write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")

    def _check_constraints(self) -> None:
        found = []
        for path in self.constraints:
            for line in path.read_text().splitlines():
                if not line.strip() or line.lstrip().startswith("#"):
                    continue
                match = re.fullmatch(
                    r"set_property BITSTREAM\.CONFIG\.USR_ACCESS 0x([0-9A-Fa-f]{8}) \[current_design\]", line.strip()
                )
                if not match:
                    raise TclError(
                        f"[Designutils 20-1307] Command '{line.strip()}' in {path.name} is not known to the stand-in"
                    )
                found.append(int(match[1], 16))
        assert self.design is not None
        content = [int(c.config["CONTENT_ID"], 0) for c in self.design.cells.values() if "CONTENT_ID" in c.config]
        if len(found) != 1 or content != found:
            raise TclError(
                "[standin] USR_ACCESS and the CONTENT_ID of the shell must be one and the same, each set once"
            )

    def wait(self, name: str) -> None:
        run = self.runs[name]
        if not run.launched_to:
            raise TclError(f"[Common 17-70] Run '{name}' was not launched")
        if "slow" in self.faults:
            time.sleep(float(self.faults["slow"] or 1))
        if "hang" in self.faults:
            time.sleep(100_000)
        folder = self.runs_folder() / name
        folder.mkdir(parents=True)
        if "run_overtime" in self.faults and run.kind == "implementation":
            # ASSUMPTION A15: an expired wait_on_run is no error, the run's status still begins with Running, and its
            # processes, in sessions of their own, work in the run's folder.
            subprocess.Popen(
                ["sleep", "600"], cwd=folder, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            run.status, run.progress = "Running route_design...", "80%"
            return
        log = reports.run_banner(self.version, name, self.top)
        log += self._synthesis(run) if run.kind == "synthesis" else self._implementation(run, folder)
        (folder / "runme.log").write_text(log)
        if run.progress != "100%" and "crash" not in self.faults:
            self.says.append(f"WARNING: [Vivado 12-8222] Failed run(s) : '{name}'")

    def _synthesis(self, run: Run) -> str:
        log = f"Command: synth_design -top {self.top} -part {self.part}\nStarting synth_design\n"
        licence = "Attempting to get a license for feature 'Synthesis' and/or device 'xc7z020'\n"
        log += licence
        if "licence_missing" in self.faults and not self._licence_arrived():
            run.status, run.progress = "synth_design ERROR", "20%"
            return log + (
                "ERROR: [Common 17-345] A valid license was not found for feature 'Synthesis' and/or device 'xc7z020'. "
                "Please run the Vivado License Manager for assistance in determining\nwhich features and devices are licensed "
                "for your system.\nINFO: [Common 17-206] Exiting Vivado\n"
            )
        log += "INFO: [Common 17-349] Got license for feature 'Synthesis' and/or device 'xc7z020'\n"
        if "critical_warning_synthesis" in self.faults:
            log += "CRITICAL WARNING: [Synth 8-3352] multi-driven net Q with 1st driver pin 'shell/inst/x_reg/Q'\n"
        if "exit_0_after_failure" in self.faults:
            run.status, run.progress = "synth_design ERROR", "40%"
            return log + (
                "ERROR: [Synth 8-439] module 'attention_core' not found [rtl/tritforge_shell.v:211]\n"
                "ERROR: [Synth 8-6156] failed synthesizing module 'tritforge_shell' [rtl/tritforge_shell.v:20]\n"
                "ERROR: [Common 17-69] Command failed: Synthesis failed - please see the console or run log file for details\n"
            )
        if "cancelled_run" in self.faults:
            run.status, run.progress = "synth_design Cancelled", "30%"
            return log + "INFO: [Common 17-344] 'synth_design' was cancelled\n"
        log += "Finished Writing Synthesis Report : Time (s): cpu = 00:02:10 ; elapsed = 00:02:20 . Memory (MB): peak = 2310.1\n"
        log += "Synthesis finished with 0 errors, 0 critical warnings and 41 warnings.\nsynth_design completed successfully\n"
        run.status, run.progress = "synth_design Complete!", "100%"
        return log

    def _licence_arrived(self) -> bool:
        """With an argument N, the N+1st try of one test gets a licence; tries are counted in a file."""
        after = self.faults["licence_missing"]
        if not after:
            return False
        counter = Path(os.environ["STANDIN_VIVADO_STATE"])
        tries = int(counter.read_text()) if counter.exists() else 0
        counter.write_text(str(tries + 1))
        return tries >= int(after)

    def _implementation(self, run: Run, folder: Path) -> str:
        log = f"Command: link_design -top {self.top} -part {self.part}\nDesign is defaulting to srcset: sources_1\n"
        log += "INFO: [Common 17-349] Got license for feature 'Implementation' and/or device 'xc7z020'\n"
        if "critical_warning" in self.faults:
            log += (
                "CRITICAL WARNING: [Timing 38-282] The design failed to meet the timing requirements. Please see the timing "
                "summary report for details on the timing violations.\n"
            )
        base = self.digest(with_implementation=False) + json.dumps(run.properties, sort_keys=True).encode()
        differing = self.faults.get("phase_differs", "")
        chain = hashlib.sha256(base)
        stop = {"killed_run": "place_design", "out_of_memory": "place_design", "run_not_complete": "route_design"}
        for step, phases in reports.PHASES.items():
            if run.properties.get(f"STEPS.{step.upper()}.IS_ENABLED", "true") == "false":
                continue
            directive = run.properties.get(f"STEPS.{step.upper()}.ARGS.DIRECTIVE", "Default")
            log += f"Command: {step} -directive {directive}\nRunning DRC as a precondition to command {step}\n\nStarting {reports.TASKS[step]} Task\n"
            for i, phase in enumerate(phases):
                fault = next((f for f, at in stop.items() if f in self.faults and at == step and i == 2), "")
                if fault:
                    run.status, run.progress = f"{step} ERROR", "50%"
                    if fault == "killed_run":
                        return log + "/opt/Vivado/bin/loader: line 312: 48211 Terminated\n"
                    return log + (
                        '/opt/Vivado/bin/loader: line 312: 48211 Killed                  "$RDI_PROG" "$@"\n'
                        if fault == "out_of_memory"
                        else ""
                    )
                chain.update(phase.encode())
                if phase.partition(" ")[2] == differing:
                    chain.update(b"something that is not the same everywhere")
                log += f"\nPhase {phase}\nPhase {phase} | Checksum: {chain.hexdigest()[:8]}\n\nTime (s): cpu = 00:00:12 ; elapsed = 00:00:09 . Memory (MB): peak = 2611.4 ; gain = 0.000\n"
            log += f"Ending {reports.TASKS[step]} Task | Checksum: {chain.hexdigest()[:8]}\n\n{step} completed successfully\n"
        log += "Command: write_bitstream -force " + self.top + ".bit\n"
        access = int(re.findall(r"0x([0-9A-Fa-f]{8})", self.constraints[-1].read_text())[0], 16)
        if "wrong_content_id" in self.faults:
            access ^= 1
        data = bitfile.payload(chain.digest(), access)
        if "truncated_bit" in self.faults:
            data = data[: len(data) // 3]
        now = self.now()
        name = f"{self.top};UserID=0XFFFFFFFF;Version={self.version}"
        content = bitfile.bitfile(
            name, "7z020clg400", time.strftime("%Y/%m/%d", now), time.strftime("%H:%M:%S", now), data
        )
        if "truncated_bit" in self.faults:
            # The header promises more than there is.
            at = content.index(b"e", content.index(b"d\x00\x09")) + 1
            content = content[:at] + bitfile.PAYLOAD_BYTES.to_bytes(4, "big") + content[at + 4 :]
        (folder / f"{self.top}.bit").write_bytes(content)
        log += (
            "Creating bitstream...\nWriting bitstream ./"
            + self.top
            + ".bit...\nINFO: [Vivado 12-1842] Bitgen Completed Successfully.\n"
        )
        missed = any(s is not None and s < 0 for s in (self.figures().wns, self.figures().whs, self.figures().wpws))
        # ASSUMPTION A11: a run that misses timing still completes; its status and two critical warnings say so.
        if missed:
            log += (
                "CRITICAL WARNING: [Route 35-39] The design did not meet timing requirements. Please run report_timing_summary "
                "for detailed reports.\nCRITICAL WARNING: [Timing 38-282] The design failed to meet the timing requirements.\n"
            )
        run.status = "write_bitstream Complete, Failed Timing!" if missed else "write_bitstream Complete!"
        run.progress = "100%"
        return log

    # ------------------------------------------------------------------------------------------------ figures

    def figures(self) -> reports.Figures:
        """Slack and resources: plausible, deterministic, without meaning."""
        assert self.design is not None
        place = self.runs["impl_1"].properties.get("STEPS.PLACE_DESIGN.ARGS.DIRECTIVE", "Default")
        seed = self.digest()
        mhz = max((v for v in self.design.dump()["clocks_mhz"].values()), default=100.0)
        wns: float | None = round(0.05 + seed[0] / 1000, 3)
        whs: float | None = round(0.02 + seed[1] / 10_000, 3)
        wpws: float | None = round(500 / mhz - 1.25, 3)
        if "negative_slack" in self.faults and place != (self.faults["negative_slack"] or "none"):
            wns = -round(0.1 + seed[0] / 1000, 3)
        if "hold_violation" in self.faults:
            whs = -0.031
        if "pulse_width_violation" in self.faults:
            wpws = -0.667
        if "empty_slack" in self.faults:
            wns = whs = wpws = None
        hierarchy = []
        total = {"lut": 0.0, "ff": 0.0, "bram36": 0.0, "dsp": 0.0}
        for name, cell in self.design.cells.items():
            used = dict(TYPICAL["module" if cell.module else cell.vlnv])
            if cell.module and cell.module.name != "tritforge_shell":
                used = {"lut": 40, "ff": 3, "bram36": 0, "dsp": 0}
            if "too_many_luts" in self.faults and cell.module:
                used["lut"] = 41_000
            hierarchy.append((2, name, f"{self.design.name}_{name}_0", used))
            total = {k: total[k] + used[k] for k in total}
        hierarchy.insert(0, (1, f"{self.design.name}_i", self.design.name, total))
        hierarchy.insert(0, (0, self.top, "(top)", total))
        return reports.Figures(
            wns=wns, whs=whs, wpws=wpws, clock="clk_fpga_0", period_ns=1000 / mhz,
            no_clock=12 if "unclocked_registers" in self.faults else 0, unsafe="unsafe_crossing" in self.faults,
            unrouted=7 if "unrouted" in self.faults else 0,
            drc=[("RTSTAT-10", "Warning", "No routable loads", 1)]
            + ([("UCIO-1", "Error", "Unconstrained Logical Port", 2)] if "drc_error" in self.faults else []),
            hierarchy=hierarchy, watts={"dynamic": 1.412, "static": 0.151},
        )  # fmt: skip

    REPORTS = {
        "report_timing_summary": reports.timing_summary,
        "report_clocks": reports.clocks,
        "report_clock_interaction": reports.clock_interaction,
        "report_cdc": reports.cdc,
        "report_utilization": reports.utilization,
        "report_power": reports.power,
        "report_drc": reports.drc,
        "report_route_status": reports.route_status,
    }

    def report(self, command: str, options: dict[str, str], file: str) -> None:
        if not self.opened_run:
            raise TclError(
                "[Common 17-53] User Exception: No open design. Please open an elaborated, synthesized or implemented design."
            )
        self.done.add(command + (" -hierarchical" if "-hierarchical" in options else ""))
        line = " ".join([command, *(f"{k} {v}".strip() for k, v in options.items())])
        heading, figures = self.heading(), self.figures()
        if command == "report_utilization" and "-hierarchical" in options:
            text = reports.utilization_hierarchical(heading, figures, line)
        elif command == "report_methodology":
            figures.drc = []
            text = reports.drc(heading, figures, line, "Report Methodology")
        else:
            text = self.REPORTS[command](heading, figures, line)
        if command == "report_timing_summary":
            if "missing_report" in self.faults:
                return
            if "stale_report" in self.faults:
                heading.date = self.date(days=-9)
                text = reports.timing_summary(heading, figures, line)
            if "report_disagrees" in self.faults:
                figures.wns = (figures.wns or 0) + 0.25
                text = reports.timing_summary(heading, figures, line)
        Path(file).write_text(text)

    def left_out(self) -> str:
        """What a script that ended well has not done of a complete build."""
        wanted = {*self.REPORTS, "report_methodology", "report_utilization -hierarchical", "write_hw_platform"}
        return ", ".join(sorted(wanted - self.done))

    # ------------------------------------------------------------------------------------------------ outputs

    def generate(self) -> None:
        design = self.design
        assert design is not None
        if design.open:
            raise TclError(
                "[standin] close the block design before generating it: what is generated is the file, not the window"
            )
        if not design.validated:
            raise TclError(f"[BD 41-1029] block design {design.name} has not been validated since its last change")
        if not design.saved:
            raise TclError(f"[BD 41-1030] block design {design.name} has not been saved since its last change")
        if self.design_properties.get("synth_checkpoint_mode") != "None":
            raise TclError("[standin] synth_checkpoint_mode must be None: out-of-context runs are not modelled")
        folder = self.folder / f"{self.name}.gen" / "sources_1" / "bd" / design.name / "hw_handoff"
        folder.mkdir(parents=True)
        factor = 0.8 if "wrong_handoff" in self.faults else 1.0
        (folder / f"{design.name}.hwh").write_text(handoff.hwh(design, self.version, self.date(), factor))
        self.generated = True

    def make_wrapper(self) -> Path:
        if not self.generated:
            raise TclError("[BD 41-1031] generate the block design's targets before making its wrapper")
        assert self.design is not None
        path = (
            self.folder
            / f"{self.name}.gen"
            / "sources_1"
            / "bd"
            / self.design.name
            / "hdl"
            / f"{self.design.name}_wrapper.v"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"module {self.design.name}_wrapper (inout wire [14:0] DDR_addr);\nendmodule\n")
        return path

    def write_platform(self, path: Path) -> None:
        run = self.runs.get("impl_1")
        bit = self.runs_folder() / "impl_1" / f"{self.top}.bit"
        if run is None or not bit.exists():
            raise TclError(
                "[Vivado 12-3404] write_hw_platform -include_bit: there is no bitstream in the implementation run"
            )
        self.done.add("write_hw_platform")
        if path.exists():
            raise TclError(f"[Vivado 12-3405] {path} exists; use -force to overwrite it")
        assert self.design is not None
        hwh = (
            self.folder
            / f"{self.name}.gen"
            / "sources_1"
            / "bd"
            / self.design.name
            / "hw_handoff"
            / f"{self.design.name}.hwh"
        )
        now = self.now()[:6]
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            members = {
                f"{self.design.name}.hwh": hwh.read_bytes(),
                f"{self.top}.bit": bit.read_bytes(),
                "sysdef.xml": f'<?xml version="1.0"?>\n<Project Version="1" Name="{self.name}" Date="{self.date()}"/>\n'.encode(),
                "ps7_init.c": b"/* written by the stand-in */\n",
                "xsa.json": json.dumps({"version": self.version, "generatedOn": self.date()}).encode(),
            }
            for name, data in members.items():
                archive.writestr(zipfile.ZipInfo(name, date_time=(max(1980, now[0]), *now[1:])), data)


def die_abnormally() -> None:
    """What a crash of the tool looks like from outside."""
    os.kill(os.getpid(), signal.SIGSEGV)
