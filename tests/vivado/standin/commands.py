"""The Tcl commands of Vivado that our scripts use: their options, and what they do to the project.

Anything else, a command or an option, is an error: it has to be looked up in UG835 and added here before use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import catalogue, ps7
from . import project as projects
from .design import BlockDesign, Cell
from .project import Project, Run
from .tcl import TclError, join, split


@dataclass
class Call:
    """One call, parsed: flags are options without a value."""

    name: str
    options: dict[str, str]
    words: list[str]

    def flag(self, name: str) -> bool:
        return name in self.options

    def need(self, name: str) -> str:
        if name not in self.options:
            raise TclError(f"[Common 17-69] {self.name}: option '{name}' is required here")
        return self.options[name]

    def only(self) -> str:
        if len(self.words) != 1:
            raise TclError(f"[Common 17-165] Too many or too few positional arguments for {self.name}: {self.words}")
        return self.words[0]


@dataclass
class Spec:
    """What a command takes: options with a value, flags, and how many words."""

    valued: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    words: tuple[int, int] = (0, 0)


MANY = 10_000
SPECS: dict[str, Spec] = {
    "version": Spec(flags=("-short",)),
    "create_project": Spec(("-part",), ("-in_memory", "-force"), (1, 2)),
    "current_project": Spec(),
    "set_param": Spec(words=(2, 2)),
    "config_ip_cache": Spec(flags=("-disable_cache",)),
    "set_property": Spec(("-dict",), (), (1, MANY)),
    "get_property": Spec(words=(2, 2)),
    "add_files": Spec(("-fileset",), ("-norecurse",), (1, 1)),
    "update_compile_order": Spec(("-fileset",)),
    "get_files": Spec(words=(1, 1)),
    "get_filesets": Spec(words=(1, 1)),
    "get_runs": Spec(words=(1, 1)),
    "create_bd_design": Spec(words=(1, 1)),
    "current_bd_design": Spec(),
    "create_bd_cell": Spec(("-type", "-vlnv", "-reference"), (), (1, 1)),
    "create_bd_intf_port": Spec(("-mode", "-vlnv"), (), (1, 1)),
    "get_bd_cells": Spec(words=(1, 1)),
    "get_bd_pins": Spec(words=(1, 1)),
    "get_bd_intf_pins": Spec(words=(1, 1)),
    "get_bd_intf_ports": Spec(words=(1, 1)),
    "get_bd_addr_spaces": Spec(words=(1, 1)),
    "get_bd_addr_segs": Spec(words=(1, 1)),
    "connect_bd_net": Spec(("-net",), (), (2, MANY)),
    "connect_bd_intf_net": Spec(("-intf_net",), (), (2, 2)),
    "assign_bd_address": Spec(("-offset", "-range", "-target_address_space"), (), (1, 1)),
    "exclude_bd_addr_seg": Spec(("-target_address_space",), (), (1, 1)),
    "validate_bd_design": Spec(),
    "save_bd_design": Spec(),
    "close_bd_design": Spec(words=(1, 1)),
    "generate_target": Spec(words=(2, 2)),
    "make_wrapper": Spec(("-files",), ("-top",)),
    "launch_runs": Spec(("-jobs", "-to_step"), (), (1, 1)),
    "wait_on_run": Spec(("-timeout",), (), (1, 1)),
    "open_run": Spec(("-name",), (), (1, 1)),
    "report_timing_summary": Spec(("-delay_type", "-max_paths", "-file"), ("-report_unconstrained",)),
    "report_clocks": Spec(("-file",)),
    "report_clock_interaction": Spec(("-delay_type", "-file")),
    "report_cdc": Spec(("-file",)),
    "report_utilization": Spec(("-hierarchical_depth", "-file"), ("-hierarchical",)),
    "report_power": Spec(("-file",)),
    "report_drc": Spec(("-file",)),
    "report_methodology": Spec(("-file",)),
    "report_route_status": Spec(("-file",)),
    "get_timing_paths": Spec(("-delay_type", "-max_paths", "-nworst")),
    "write_hw_platform": Spec(("-file",), ("-fixed", "-include_bit", "-force")),
}

PARAMETERS = {"general.maxThreads": r"[1-9]|[12]\d|3[0-2]"}
PROJECT_PROPERTIES = {"target_language": ("Verilog", "VHDL")}


def parse(name: str, arguments: list[str]) -> Call:
    """Sorts the arguments of a call into options and words; strict, no abbreviations."""
    spec = SPECS[name]
    options: dict[str, str] = {}
    words: list[str] = []
    i = 0
    while i < len(arguments):
        argument = arguments[i]
        if re.match(r"-[A-Za-z]", argument):
            if argument in options:
                raise TclError(f"[Common 17-168] {name}: option '{argument}' given twice")
            if argument in spec.flags:
                options[argument] = ""
            elif argument in spec.valued:
                i += 1
                if i >= len(arguments):
                    raise TclError(f"[Common 17-157] {name}: option '{argument}' has no value")
                options[argument] = arguments[i]
            else:
                raise TclError(
                    f"[Common 17-170] Unknown option '{argument}', please type '{name} -help' for usage info."
                )
        else:
            words.append(argument)
        i += 1
    if not spec.words[0] <= len(words) <= spec.words[1]:
        raise TclError(
            f"[Common 17-165] {name} takes {spec.words[0]} to {spec.words[1]} positional arguments, got {len(words)}"
        )
    return Call(name, options, words)


def handle(text: str, *kinds: str) -> str:
    """The path of an object of one of these kinds; refuses strings and objects of another kind."""
    kind, separator, path = text.partition(":")
    if not separator or kind not in kinds:
        what = " or ".join(kinds)
        raise TclError(
            f"[Common 17-161] Invalid argument '{text}': an object is needed here ({what}), from a get_ command"
        )
    return path


@dataclass
class Vivado:
    """One session: at most one project."""

    version: str
    faults: dict[str, str]
    project: Project | None = None
    warnings: list[str] = field(default_factory=list)

    def call(self, name: str, arguments: list[str]) -> str:
        method: Callable[[Call], str] | None = getattr(self, "do_" + name, None)
        call = parse(name, arguments)
        if method is None and name.startswith("report_"):
            method = self._report
        assert method is not None, name
        return method(call)

    def need(self) -> Project:
        if self.project is None:
            raise TclError("[Common 17-53] User Exception: No open project. Please create or open a project.")
        return self.project

    def none_found(self, what: str, pattern: str) -> str:
        """The real tool answers an empty list and a warning, and goes on."""
        self.warnings.append(f"WARNING: [BD 5-234] No {what} matched '{pattern}'")
        return ""

    # ------------------------------------------------------------------------------------------------ project

    def do_version(self, call: Call) -> str:
        return self.version if call.flag("-short") else f"Vivado v{self.version} (64-bit)"

    def do_create_project(self, call: Call) -> str:
        if self.project is not None:
            raise TclError("[Common 17-69] a project is open already")
        name, folder = (call.words + ["."])[:2]
        if call.need("-part") not in projects.PARTS:
            raise TclError(f"[Coretcl 2-106] Specified part could not be found: {call.options['-part']}")
        if Path(folder).exists() and any(Path(folder).iterdir()):
            raise TclError(f"[Coretcl 2-107] the folder '{folder}' is not empty; use -force to overwrite a project")
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.project = Project(name, Path(folder).resolve(), call.options["-part"], self.version, self.faults)
        self.project.runs = {"synth_1": Run("synth_1", "synthesis"), "impl_1": Run("impl_1", "implementation")}
        (self.project.folder / f"{name}.xpr").write_text("<Project/>\n")
        return f"project:{name}"

    def do_current_project(self, call: Call) -> str:
        return f"project:{self.need().name}"

    def do_set_param(self, call: Call) -> str:
        name, value = call.words
        if name not in PARAMETERS:
            raise TclError(f"[Common 17-162] Parameter '{name}' is not known")
        if not re.fullmatch(PARAMETERS[name], value):
            raise TclError(f"[Common 17-163] Value '{value}' of parameter '{name}' is not valid")
        self.need().parameters[name] = value
        return ""

    def do_config_ip_cache(self, call: Call) -> str:
        if not call.flag("-disable_cache"):
            raise TclError("[Common 17-69] config_ip_cache without an option does nothing")
        self.need().ip_cache = False
        return ""

    def do_add_files(self, call: Call) -> str:
        project = self.need()
        fileset = call.need("-fileset")
        added = []
        for name in split(call.only()):
            path = Path(name)
            if not path.is_file():
                raise TclError(f"[Vivado 12-172] File or Directory '{name}' does not exist")
            target = {"sources_1": project.sources, "constrs_1": project.constraints}.get(fileset)
            if target is None:
                raise TclError(f"[Vivado 12-173] there is no fileset '{fileset}'")
            expected = (".v", ".sv", ".vh", ".mem") if fileset == "sources_1" else (".xdc",)
            if path.suffix not in expected:
                raise TclError(f"[Vivado 12-174] '{name}' is no file for the fileset {fileset}")
            if path.resolve() in target:
                raise TclError(f"[Vivado 12-175] '{name}' is in the project already")
            target.append(path.resolve())
            added.append(f"file:{path.name}")
        if fileset == "sources_1":
            project.order_known = False
        return join(added)

    def do_update_compile_order(self, call: Call) -> str:
        if call.need("-fileset") != "sources_1":
            raise TclError(f"[Vivado 12-173] there is no fileset '{call.options['-fileset']}' of sources")
        self.need().order_known = True
        return ""

    def do_get_filesets(self, call: Call) -> str:
        name = call.only()
        return f"fileset:{name}" if name in ("sources_1", "constrs_1", "sim_1") else self.none_found("filesets", name)

    def do_get_files(self, call: Call) -> str:
        project, name = self.need(), call.only()
        if project.design and name == f"{project.design.name}.bd" and project.design.saved:
            return f"file:{name}"
        if any(p.name == name for p in project.sources + project.constraints):
            return f"file:{name}"
        return self.none_found("files", name)

    def do_get_runs(self, call: Call) -> str:
        name = call.only()
        return f"run:{name}" if name in self.need().runs else self.none_found("runs", name)

    # ------------------------------------------------------------------------------------------------ properties

    def do_set_property(self, call: Call) -> str:
        if "-dict" in call.options:
            pairs = split(call.options["-dict"])
            if len(pairs) % 2 or len(call.words) != 1:
                raise TclError("[Common 17-69] set_property -dict needs pairs and one object")
            settings = list(zip(pairs[::2], pairs[1::2], strict=True))
            target = call.words[0]
        else:
            if len(call.words) != 3:
                raise TclError(f"[Common 17-165] set_property takes name, value and object, got {call.words}")
            settings, target = [(call.words[0], call.words[1])], call.words[2]
        kind, separator, path = target.partition(":")
        if not separator:
            raise TclError(f"[Common 17-161] set_property: '{target}' is no object")
        seen: set[str] = set()
        for name, value in settings:
            if name in seen:
                raise TclError(f"[standin] property {name} is set twice in one call")
            seen.add(name)
            self._set(kind, path, name, value)
        if kind == "bd_cell":
            cell = self.need().need_design().cells[path.lstrip("/")]
            self.warnings += ps7.warnings_of(cell.config) if cell.vlnv == catalogue.PS7 else []
        return ""

    def _set(self, kind: str, path: str, name: str, value: str) -> None:
        project = self.need()
        if kind == "bd_cell":
            if not name.startswith("CONFIG."):
                raise TclError(f"[Common 17-164] Property '{name}' of a cell is not known or read-only")
            design = project.need_design()
            design.cells[path.lstrip("/")].configure(name.removeprefix("CONFIG."), value)
            design.changed()
        elif kind == "run":
            self._set_run(project.runs[path], name, value)
        elif kind == "project":
            if name not in PROJECT_PROPERTIES:
                raise TclError(f"[Common 17-164] Property '{name}' of a project is not known to the stand-in")
            if value not in PROJECT_PROPERTIES[name]:
                raise TclError(f"[Common 17-163] Value '{value}' of '{name}' is not valid")
            project.properties[name] = value
        elif kind == "fileset" and name == "top":
            project.top = value
            project.order_known = False  # the order of files starts from the top
        elif kind == "file" and name == "synth_checkpoint_mode":
            if value not in ("None", "Singular", "Hierarchical"):
                raise TclError(f"[Common 17-163] Value '{value}' of '{name}' is not valid")
            project.design_properties[name] = value
        else:
            raise TclError(f"[Common 17-164] Property '{name}' of a {kind} is not known to the stand-in")

    def _set_run(self, run: Run, name: str, value: str) -> None:
        if run.launched_to:
            raise TclError(f"[Common 17-70] {run.name} was launched already; '{name}' would have no effect")
        match = re.fullmatch(r"STEPS\.(\w+)\.(ARGS\.DIRECTIVE|IS_ENABLED)", name)
        if name == "AUTO_INCREMENTAL_CHECKPOINT":
            if value not in ("0", "1"):
                raise TclError(f"[Common 17-163] Value '{value}' of '{name}' is not valid")
        elif match and match[1] in projects.DIRECTIVES:
            if (match[1] == "SYNTH_DESIGN") != (run.kind == "synthesis"):
                raise TclError(f"[Common 17-164] {run.name} has no step {match[1]}")
            if match[2] == "ARGS.DIRECTIVE":
                if value not in projects.DIRECTIVES[match[1]].split():
                    raise TclError(f"[Common 17-163] '{value}' is no directive of {match[1].lower()}")
            elif value not in ("true", "false", "1", "0") or match[1] not in projects.OPTIONAL_STEPS:
                raise TclError(f"[Common 17-163] '{name}' cannot be '{value}'")
        else:
            raise TclError(f"[Common 17-164] Property '{name}' of a run is not known to the stand-in")
        run.properties[name] = value

    def do_get_property(self, call: Call) -> str:
        name, target = call.words
        kind, separator, path = target.partition(":")
        if not separator:
            raise TclError(f"[Common 17-161] get_property: '{target}' is no object")
        project = self.need()
        if kind == "run":
            run = project.runs[path]
            if name in ("STATUS", "PROGRESS"):
                return run.status if name == "STATUS" else run.progress
            if name == "NEEDS_REFRESH":
                return "0"
            if name == "DIRECTORY":
                return str(project.runs_folder() / run.name)
            if name.startswith("STATS."):
                return self._statistic(project, run, name.removeprefix("STATS."))
        elif kind == "project" and name == "PART":
            return project.part
        elif kind == "timing_path" and name == "SLACK":
            return path
        raise TclError(f"[Common 17-164] Property '{name}' of a {kind} is not known to the stand-in")

    def _statistic(self, project: Project, run: Run, name: str) -> str:
        if name not in ("WNS", "TNS", "WHS", "THS", "TPWS"):
            raise TclError(f"[Common 17-164] there is no statistic '{name}'")
        if project.opened_run != run.name:
            return "0.000"  # before the routed design is open, the figures are those of nothing
        figures = project.figures()
        slack = {"WNS": figures.wns, "WHS": figures.whs, "TNS": figures.wns, "THS": figures.whs, "TPWS": figures.wpws}[
            name
        ]
        if slack is None:
            return ""
        return f"{slack:.3f}" if name in ("WNS", "WHS") else f"{min(0.0, 3 * slack):.3f}"

    # ------------------------------------------------------------------------------------------------ block design

    def do_create_bd_design(self, call: Call) -> str:
        project = self.need()
        if project.design is not None:
            raise TclError("[BD 41-1] there is a block design already")
        project.design = BlockDesign(call.only())
        return f"bd_design:{project.design.name}"

    def do_current_bd_design(self, call: Call) -> str:
        return f"bd_design:{self.need().need_design().name}"

    def do_close_bd_design(self, call: Call) -> str:
        handle(call.only(), "bd_design")
        design = self.need().need_design()
        if not design.saved:
            raise TclError("[BD 41-1030] the block design has changes that are not saved")
        design.open = False
        return ""

    def do_create_bd_cell(self, call: Call) -> str:
        project = self.need()
        design = project.need_design()
        kind, name = call.need("-type"), call.only()
        if kind == "ip":
            vlnv = call.need("-vlnv")
            missing = "missing_ip" in self.faults and vlnv == catalogue.DMA
            if not catalogue.known(vlnv) or missing:
                raise TclError(f"[BD 5-390] IP definition not found for VLNV: {vlnv}")
            design.add_cell(Cell(name, vlnv))
        elif kind == "module":
            design.add_cell(Cell(name, module=project.module(call.need("-reference"))))
        else:
            raise TclError(f"[BD 41-2] a cell of type '{kind}' is not modelled")
        return f"bd_cell:/{name}"

    def do_create_bd_intf_port(self, call: Call) -> str:
        name = call.only()
        self.need().need_design().add_port(name, call.need("-mode"), call.need("-vlnv"))
        return f"bd_intf_port:/{name}"

    def do_get_bd_cells(self, call: Call) -> str:
        name = call.only().lstrip("/")
        return f"bd_cell:/{name}" if name in self.need().need_design().cells else self.none_found("cells", name)

    def do_get_bd_pins(self, call: Call) -> str:
        return self._find("pin", call)

    def do_get_bd_intf_pins(self, call: Call) -> str:
        return self._find("interface", call)

    def _find(self, what: str, call: Call) -> str:
        path = call.only().lstrip("/")
        try:
            getattr(self.need().need_design(), what)(path)
        except TclError:
            return self.none_found(f"{what} pins", path)
        return f"{'bd_pin' if what == 'pin' else 'bd_intf_pin'}:/{path}"

    def do_get_bd_intf_ports(self, call: Call) -> str:
        name = call.only().lstrip("/")
        return (
            f"bd_intf_port:/{name}"
            if name in self.need().need_design().ports
            else self.none_found("interface ports", name)
        )

    def do_get_bd_addr_spaces(self, call: Call) -> str:
        path = call.only().lstrip("/")
        known = {name for name, _, _, _ in self.need().need_design().spaces()}
        return f"bd_addr_space:/{path}" if path in known else self.none_found("address spaces", path)

    def do_get_bd_addr_segs(self, call: Call) -> str:
        path = call.only().lstrip("/")
        return (
            f"bd_addr_seg:/{path}"
            if path in self.need().need_design().segments()
            else self.none_found("address segments", path)
        )

    def do_connect_bd_net(self, call: Call) -> str:
        self.need().need_design().connect_pins([handle(word, "bd_pin").lstrip("/") for word in call.words])
        return ""

    def do_connect_bd_intf_net(self, call: Call) -> str:
        sides = [handle(word, "bd_intf_pin", "bd_intf_port").lstrip("/") for word in call.words]
        self.need().need_design().connect_interfaces(*sides)
        return ""

    def do_assign_bd_address(self, call: Call) -> str:
        space = handle(call.need("-target_address_space"), "bd_addr_space").lstrip("/")
        segment = handle(call.only(), "bd_addr_seg").lstrip("/")
        numbers = []
        for option in ("-offset", "-range"):
            try:
                numbers.append(int(call.need(option), 0))
            except ValueError:
                raise TclError(f"[BD 41-1050] '{call.options[option]}' is no address") from None
        self.need().need_design().assign(space, segment, *numbers)
        return ""

    def do_exclude_bd_addr_seg(self, call: Call) -> str:
        space = handle(call.need("-target_address_space"), "bd_addr_space").lstrip("/")
        segment = handle(call.only(), "bd_addr_seg").lstrip("/")
        design = self.need().need_design()
        if segment not in design.reachable(space):
            raise TclError(f"[BD 41-1056] '/{segment}' cannot be reached from '/{space}'")
        design.exclusions.append((space, segment))
        design.validated = design.saved = False
        return ""

    def do_validate_bd_design(self, call: Call) -> str:
        design = self.need().need_design()
        problems = design.validate()
        if problems:
            for text in problems:
                self.warnings.append(f"ERROR: {text}")
            raise TclError(f"[Common 17-39] 'validate_bd_design' failed due to earlier errors: {problems[0]}")
        design.validated = True
        design.saved = False
        return ""

    def do_save_bd_design(self, call: Call) -> str:
        design = self.need().need_design()
        if not design.validated:
            raise TclError(
                "[standin] save after validate_bd_design: validation sets parameters that belong to the file"
            )
        design.saved = True
        return ""

    def do_generate_target(self, call: Call) -> str:
        if call.words[0] != "all":
            raise TclError("[standin] only 'generate_target all' is modelled")
        handle(call.words[1], "file")
        self.need().generate()
        return ""

    def do_make_wrapper(self, call: Call) -> str:
        handle(call.need("-files"), "file")
        if not call.flag("-top"):
            raise TclError("[BD 41-1032] make_wrapper without -top makes a template for an instance, not a top")
        path = self.need().make_wrapper()
        self.need().wrapper = path
        return str(path)

    # ------------------------------------------------------------------------------------------------ runs and reports

    def do_launch_runs(self, call: Call) -> str:
        name = call.only()
        if name not in self.need().runs:
            raise TclError(f"[Common 17-161] there is no run '{name}'")
        if not call.need("-jobs").isdigit():
            raise TclError("[Common 17-163] -jobs takes a number")
        self.need().launch(name, call.options.get("-to_step", ""))
        return ""

    def do_wait_on_run(self, call: Call) -> str:
        name = call.only()
        if name not in self.need().runs:
            raise TclError(f"[Common 17-161] there is no run '{name}'")
        if not call.need("-timeout").isdigit():
            raise TclError("[standin] wait_on_run without a time limit")
        if "crash" in self.faults and name == "impl_1":
            projects.die_abnormally()
        self.need().wait(name)
        return ""

    def do_open_run(self, call: Call) -> str:
        project, name = self.need(), call.only()
        run = project.runs.get(name)
        if run is None or run.kind != "implementation" or run.progress != "100%":
            raise TclError(f"[Common 17-69] run '{name}' has not completed; its design cannot be opened")
        project.opened_run = name
        return f"design:{call.options.get('-name', name)}"

    def _report(self, call: Call) -> str:
        file = call.need("-file")
        if not Path(file).parent.is_dir():
            raise TclError(f"[Common 17-37] cannot write '{file}': its folder does not exist")
        if Path(file).exists():
            raise TclError(f"[Common 17-176] '{file}' exists; use -force")
        if call.options.get("-delay_type", "min_max") != "min_max":
            raise TclError("[standin] setup and hold both have to be reported: -delay_type min_max")
        self.need().report(call.name, call.options, file)
        return ""

    def do_get_timing_paths(self, call: Call) -> str:
        project = self.need()
        if not project.opened_run:
            raise TclError("[Common 17-53] User Exception: No open design.")
        kind = call.need("-delay_type")
        if kind not in ("max", "min"):
            raise TclError(f"[Common 17-163] -delay_type '{kind}' is not valid")
        figures = project.figures()
        slack = figures.wns if kind == "max" else figures.whs
        return "" if slack is None else f"timing_path:{slack:.3f}"

    def do_write_hw_platform(self, call: Call) -> str:
        if not (call.flag("-fixed") and call.flag("-include_bit")):
            raise TclError("[standin] write_hw_platform needs -fixed and -include_bit here")
        path = Path(call.need("-file"))
        if path.suffix != ".xsa" or not path.parent.is_dir():
            raise TclError(f"[Vivado 12-3403] cannot write '{path}'")
        self.need().write_platform(path)
        return ""
