"""Does the net hold? Seeded mistakes in the Tcl, the generated settings and the YAML, and who notices each.

    python -m tests.vivado.mutants [--seed N] [--count N] [--list]
    python -m tests.vivado.mutants --write-golden      (after a change of the design, to be reviewed)

Each mutant is one small change. It is caught by the first of: the configuration model (``config``), the stand-in's
rules (``standin``), the gates of the build (``gates``), the comparison of the handoff with the YAML (``handoff``),
builds that must fail in a certain way (``failing``), the comparison with the reviewed dump (``golden``). The first two
are "rules alone". Survivors are listed with the reason
why they do no harm; one without a reason fails the campaign, as do rates below the bounds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError
from pipelines.config.reader import read_yaml
from pipelines.config.settings import Settings
from pipelines.config.validation import validate
from pipelines.vivado import allowed, attempt, build, gates, leftovers
from pipelines.vivado.design import BitstreamDesign
from pipelines.vivado.facts import Facts

ROOT = Path(__file__).resolve().parents[2]
TCL = ROOT / "hw" / "vivado"
YAML = ROOT / "config" / "bitstreams" / "combined.yaml"
GOLDEN = Path(__file__).parent / "golden"
RTL = ROOT / "hw" / "rtl"
STANDIN = Path(__file__).parent / "standin" / "bin"
CONTENT_ID = 0xCAFE1234

RULES_AT_LEAST = 0.85
GOLDEN_AT_LEAST = 0.95
DEFAULT_SEED, DEFAULT_COUNT = 6, 200

DESIGNS: dict[str, tuple[str, ...]] = {
    "combined": (),
    "every_option": (
        "dma.results_port=acp", "dma.descriptors_port=acp", "dma.interrupts=true",
        "dma.engines.matvec0.scatter_gather=false", "dma.engines.matvec1.scatter_gather=false",
    ),
}  # fmt: skip
"""The shipped design, and one with every option the other way, so that no branch of the Tcl goes unrun."""

VERILOG = ("acp_port.v", "tritforge_shell.v")
CODE = ("build.tcl", "project.tcl", "block_design.tcl", "reports.tcl", "facts.tcl")


@dataclass(frozen=True)
class Mutant:
    """One change: the file (a name in hw/vivado, ``settings.tcl`` or the YAML), the line, what it becomes."""

    kind: str
    file: str
    line: int  # from 1
    text: str  # the new line; "" deletes it
    was: str

    def __str__(self) -> str:
        became = self.text.strip() or "(deleted)"
        return f"{self.kind:<9} {self.file}:{self.line}: {self.was.strip()[:70]}  =>  {became[:70]}"


def changed(lines: list[str], mutant: Mutant) -> str:
    if lines[mutant.line - 1] != mutant.was:
        raise RuntimeError(f"{mutant.file} was edited while the campaign ran; start it again")
    if mutant.kind == "swap":
        i = mutant.line - 1
        return "\n".join([*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]]) + "\n"
    return "\n".join([*lines[: mutant.line - 1], mutant.text, *lines[mutant.line :]]) + "\n"


# ---------------------------------------------------------------------------------------------------- where to mutate


def _statements(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Lines that are a whole statement: no block opening, no continuation, no comment, no text for people."""
    continued = False
    for i, line in enumerate(lines):
        plain = line.strip()
        whole = not continued and bool(plain) and not plain.startswith("#") and not plain.endswith(("{", "\\"))
        continued = plain.endswith("\\")
        if whole and plain[0] not in "}" and not re.match(r"(proc|error|puts|return|exit|set argv|global)\b", plain):
            yield i, line


def _code(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Lines of code, text for people left out."""
    for i, line in enumerate(lines):
        plain = line.strip()
        if plain and not plain.startswith("#") and not re.match(r"(error|puts|fact failed)\b", plain):
            yield i, line


def typos(name: str, lines: list[str]) -> Iterator[Mutant]:
    """A letter lost in a word: names of commands, options, pins, CONFIG parameters, variables."""
    for i, line in _code(lines):
        for match in re.finditer(r"[A-Za-z][A-Za-z0-9_]{4,}", line):
            if match[0] in ("global", "clock_mhz") or line.lstrip().startswith("global"):
                continue  # a lost letter in `global` fails at once in any Tcl; nothing to learn
            middle = match.start() + len(match[0]) // 2
            yield Mutant("typo", name, i + 1, line[:middle] + line[middle + 1 :], line)


def deletions(name: str, lines: list[str]) -> Iterator[Mutant]:
    """A statement lost: a connection, a step, a setting."""
    for i, line in _statements(lines):
        yield Mutant("delete", name, i + 1, "", line)


# What only collects or notes something, and may stand before or after its neighbour.
_BOOKKEEPING = r"fact |clocked_by|reset_by|set |lappend |file mkdir|close "

# Calls and settings that stand beside each other without needing each other; found by looking at survivors.
_ANY_ORDER = (
    r"fact |clocked_by|reset_by|connect_interface|connect_bd_intf_net|optional_step|set_property|set |report_|lappend "
    r"|assign_segment|source |create_interconnect|create_bd_|add_files|set_param|config_ip_cache"
)


def swaps(name: str, lines: list[str]) -> Iterator[Mutant]:
    """Two neighbouring statements the other way round, unless their order can mean nothing."""
    statements = dict(_statements(lines))
    for i, line in statements.items():
        following = statements.get(i + 1)
        if following is None or any(re.match(_BOOKKEEPING, text.strip()) for text in (line, following)):
            continue
        if re.match(_ANY_ORDER, line.strip()) and re.match(_ANY_ORDER, following.strip()):
            continue
        if len(line) - len(line.lstrip()) == len(following) - len(following.lstrip()):
            yield Mutant("swap", name, i + 1, following, line)


def versions(name: str, lines: list[str]) -> Iterator[Mutant]:
    """Another version, vendor or core."""
    for i, line in _code(lines):
        for old, new in (
            (":5.5", ":5.4"), (":7.1", ":7.0"), (":2.1", ":2.2"), (":5.0", ":4.0"),
            ("xilinx.com:ip", "xilinx.com:user"), ("axi_dma:", "axi_cdma:"), ("axi_interconnect:", "smartconnect:"),
            (":ddrx_rtl:1.0", ":ddr4_rtl:1.0"),
        ):  # fmt: skip
            if "xilinx.com" in line and old in line:
                yield Mutant("vlnv", name, i + 1, line.replace(old, new), line)


def numbers(name: str, lines: list[str]) -> Iterator[Mutant]:
    """Another width, flag, count or value."""
    for i, line in _code(lines):
        for match in re.finditer(r"(?<![\w.%:$])(\d+)(?![\w.%])", line):
            value = int(match[1])
            for other in {0: (1,), 1: (0, 2), 64: (32, 128)}.get(value, (value * 2, value + 1)):
                yield Mutant("number", name, i + 1, line[: match.start()] + str(other) + line[match.end() :], line)


def streams(name: str, lines: list[str]) -> Iterator[Mutant]:
    """Directions and sides exchanged."""
    pairs = [("s_axis_", "m_axis_"), ("MM2S", "S2MM"), ("mm2s", "s2mm"), ("M_AXI", "S_AXI"), ("S00", "M00")]
    for i, line in _code(lines):
        for a, b in pairs:
            for old, new in ((a, b), (b, a)):
                if old in line and ("connect" in line or "clocked" in line or "lappend" in line or "introut" in line):
                    yield Mutant("stream", name, i + 1, line.replace(old, new, 1), line)


def ps7(name: str, lines: list[str]) -> Iterator[Mutant]:
    """Facts of the board: another value, or the line lost."""
    for i, line in _code(lines):
        match = re.match(r"(\s+)(PCW_\w+)(\s+)(\{[^}]*\}|\S+)( \\)?$", line)
        if not match:
            continue
        value = match[4].strip("{}")
        others = {
            "LVCMOS 3.3V": ("LVCMOS 1.8V",), "LVCMOS 1.8V": ("LVCMOS 2.5V",), "enabled": ("on", ), "slow": ("slowly",),
            "1": ("0",), "0": ("1",), "MT41J256M16 RE-125": ("MT41J128M16 HA-125", "MT41J256M8 HX-15E"),
            "16 Bit": ("32 Bit",), "525": ("533", "600"), "650": ("667", "700"), "50": ("33.333333", "100"),
            "0x1FFFFFFF": ("0x3FFFFFFF",), "DDR 3": ("DDR 2",), "115200": ("9600",),
            "1000 Mbps": ("100 Mbps", "1000"), "Active Low": ("active low",),
        }.get(value, ())  # fmt: skip
        moved = re.match(r"MIO (\d+)(.*)", value)
        if moved:
            others = (f"MIO {int(moved[1]) + 2}{moved[2]}",)
        for other in others:
            shown = f"{{{other}}}" if " " in other else other
            yield Mutant("ps7", name, i + 1, f"{match[1]}{match[2]}{match[3]}{shown}{match[5] or ''}", line)
        if match[5]:
            yield Mutant("ps7", name, i + 1, match[1] + "\\", line)


# What somebody may write who knows another tool, or knew this one once.
_WRONG_OPTIONS = {
    "-to_step": "-step", "-jobs": "-threads", "-vlnv": "-ip", "-reference": "-module", "-offset": "-base",
    "-range": "-size", "-target_address_space": "-address_space", "-fileset": "-set", "-norecurse": "-no_recurse",
    "-top": "-make_top", "-file": "-output", "-files": "-file", "-delay_type": "-type", "-timeout": "-time",
    "-hierarchical_depth": "-depth", "-report_unconstrained": "-unconstrained", "-fixed": "-fix",
    "-include_bit": "-bit", "-dict": "-list", "-part": "-device", "-disable_cache": "-off", "-net": "-name",
    "-type": "-kind", "-mode": "-direction", "-short": "-s", "-max_paths": "-paths", "-nworst": "-worst",
}  # fmt: skip
_FLAGS = ("-norecurse", "-top", "-fixed", "-include_bit", "-report_unconstrained", "-disable_cache", "-hierarchical")


def options(name: str, lines: list[str]) -> Iterator[Mutant]:
    """Another option than the command has, one lost, or another command, step or object."""
    for i, line in _code(lines):
        for match in re.finditer(r"(?<=\s)-[a-z_]{3,}\b", line):
            if match[0] in _WRONG_OPTIONS:
                new = _WRONG_OPTIONS[match[0]]
                yield Mutant("option", name, i + 1, line[: match.start()] + new + line[match.end() :], line)
            if match[0] in _FLAGS:
                yield Mutant("option", name, i + 1, line[: match.start()].rstrip() + line[match.end() :], line)
        for old, new in (
            ("launch_runs impl_1", "launch_runs synth_1"), ("launch_runs impl_1", "launch_run impl_1"),
            (" -to_step write_bitstream", ""), ("write_bitstream -jobs", "route_design -jobs"),
            ("wait_on_run", "wait_on_runs_all"), ("open_run impl_1", "open_run synth_1"),
            ("open_run impl_1 -name impl_1", "open_project impl_1"), ("get_runs impl_1", "get_runs synth_1"),
            ("write_hw_platform", "write_hwdef"), ("make_wrapper", "create_wrapper"),
            ("generate_target all", "generate_target simulation"),
            ("checkpoint_mode None", "checkpoint_mode Hierarchical"),
            ("STATS.", "STAT."), ("AUTO_INCREMENTAL_CHECKPOINT 0", "AUTO_INCREMENTAL_CHECKPOINT 1"),
            ("ARGS.DIRECTIVE", "DIRECTIVE"), ("STEPS.PLACE_DESIGN", "STEPS.PLACE"), ("sources_1", "sim_1"),
            ("get_bd_intf_pins", "get_bd_pins"), ("get_bd_pins", "get_pins"), ("-type module", "-type hier"),
            ("connect_bd_intf_net", "connect_bd_net"), ("create_bd_cell -type ip", "create_bd_cell -type module"),
            ("min_max", "max"),
            ('"100%"', '"10%"'), ("USR_ACCESS $", "USERID $"), ("USR_ACCESS $tf(content_id)", "USR_ACCESS TIMESTAMP"),
        ):  # fmt: skip
            if old in line:
                yield Mutant("option", name, i + 1, line.replace(old, new, 1), line)


def verilog(name: str, lines: list[str]) -> Iterator[Mutant]:
    """Mistakes in what Vivado infers interfaces from, and in the constants that make an access coherent."""
    for i, line in enumerate(lines):
        if line.strip().startswith("//"):
            continue
        for old, new in (
            ("4'b1111", "4'b0011"), ("5'b11111", "5'b11110"), ("= COHERENT_CACHE", "= s_axi_awcache"),
            ("= COHERENT_USER", "= 5'b00000"), ("ID_WIDTH = 3", "ID_WIDTH = 6"), ("AXI3", "AXI4"), ("[63:0]", "[31:0]"),
            ("ASSOCIATED_BUSIF s_axi", "ASSOCIATED_BUSIF m_axi"), (":m_axis_mv1", ""), (":s_axis_at0", ""),
            ("tlast", "tlst"), ("tready", "trdy"), ("AXI4LITE", "AXI4"), ("DATA_WIDTH 32", "DATA_WIDTH 64"),
            ("input  wire", "output wire"), ("output wire", "input  wire"), ("parameter [31:0]", "parameter [15:0]"),
            ("CONTENT_ID = 32", "CONTENT = 32"),
        ):  # fmt: skip
            # Of the module's body only the constants reach what the tool sees; its logic is simulated elsewhere.
            if old in line and not line.lstrip().startswith((".", "wire", "reg")):
                constant = old.startswith(("4'b", "5'b", "= COH"))
                if constant or not line.lstrip().startswith("assign"):
                    yield Mutant("verilog", name, i + 1, line.replace(old, new, 1), line)


def generated(name: str, lines: list[str]) -> Iterator[Mutant]:
    """Mistakes of the generator: values of settings.tcl."""
    for i, line in enumerate(lines):
        match = re.match(r"set tf\((\S+)\) (.*)$", line)
        if not match or match[1] in ("attempt", "jobs", "run_minutes", "threads"):
            continue
        key, value = match[1], match[2]
        others: list[str] = [""]  # the line lost
        if re.fullmatch(r"0x[0-9A-F]+", value):
            number = int(value, 16)
            others += [f"0x{other:X}" for other in (number + 0x1000, number * 2, number ^ 0x10000) if other != number]
        elif re.fullmatch(r"\d+", value):
            others += {"0": ["1"], "1": ["0"]}.get(value, [str(int(value) * 2), str(int(value) - 1)])
        elif re.fullmatch(r"(mv|at)[01]", value):
            others += [value[:2] + str(1 - int(value[2])), {"mv": "at", "at": "mv"}[value[:2]] + value[2]]
        elif re.fullmatch(r"HP[0-3]", value):
            others += [f"HP{(int(value[2]) + 1) % 4}", "HP4", "ACP"]
        elif value.startswith("[list ") and value.count(" ") > 1:
            items = value[6:-1].split()
            others.append(f"[list {' '.join(items[:-1])}]")
            if key == "dmas":  # of the other lists the order means nothing
                others.append(f"[list {' '.join(items[1:] + items[:1])}]")
        elif key.startswith("strategy."):
            others += ["Fastest"]
        else:
            others += [value[:-1] + "x"]
        for other in others:
            yield Mutant("settings", name, i + 1, f"set tf({key}) {other}" if other else "", line)


def yaml(name: str, lines: list[str]) -> Iterator[Mutant]:
    """Values, names and lines of the YAML."""
    for i, line in enumerate(lines):
        if not line.strip() or line.lstrip().startswith("#") or "candidates" in line or "cluster" in line:
            continue
        if re.match(r"    \w+: \{(place|route|phys_opt|post_route_phys_opt)", line):
            continue  # candidates of a sweep do not take part in a build
        if re.match(r"\s+(jobs|run_minutes|licence_wait_s): ", line):
            continue  # decides how long a build takes, not what it makes: not part of BitstreamDesign.key()
        for match in re.finditer(r"0x[0-9A-Fa-f]+|\b\d{2,}\b", line):
            value = int(match[0], 0)
            for other in (value + 4096, value * 2, value - 1):
                text = f"0x{other:X}" if match[0].startswith("0x") else str(other)
                yield Mutant("yaml", name, i + 1, line[: match.start()] + text + line[match.end() :], line)
        for a, b in (
            ("HP0", "HP2"), ("HP1", "HP4"), ("true", "false"), ("false", "true"), (": hp", ": gp"),
            ("Explore", "Explode"), ("xc7z020", "xc7z010"), ("RE-125", "RE-15E"), ("MT41J256M16", "MT41J128M16"),
            ("tritforge_shell", "tritforge_top"), ("scatter_gather", "scatter"), ("hp_port", "port"),
            ("matvec0", "matvec2"),
        ):  # fmt: skip
            if a in line:
                yield Mutant("yaml", name, i + 1, line.replace(a, b, 1), line)
        yield Mutant("yaml", name, i + 1, "", line)


QUOTAS: dict[str, tuple[float, Callable[[str, list[str]], Iterator[Mutant]], tuple[str, ...]]] = {
    "typo": (0.17, typos, CODE),
    "delete": (0.13, deletions, CODE),
    "swap": (0.06, swaps, CODE),
    "vlnv": (0.05, versions, ("block_design.tcl",)),
    "number": (0.08, numbers, ("block_design.tcl",)),
    "stream": (0.08, streams, ("block_design.tcl",)),
    "option": (0.10, options, CODE),
    "verilog": (0.08, verilog, VERILOG),
    "ps7": (0.08, ps7, ("ps7_pynq_z1.tcl",)),
    "settings": (0.09, generated, ("settings.tcl",)),
    "yaml": (0.08, yaml, ("combined.yaml",)),
}
"""Share of the mutants, where they come from, and the files they go into."""


def choose(seed: int, count: int) -> list[Mutant]:
    """``count`` mutants, the same for the same seed and sources."""
    texts = {name: _path(name).read_text().splitlines() for name in (*CODE, *VERILOG, "ps7_pynq_z1.tcl")}
    texts["combined.yaml"] = YAML.read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        prepared = _prepare(Path(folder) / "a", _design(), TCL)
        texts["settings.tcl"] = (prepared / "settings.tcl").read_text().splitlines()
    random_source = random.Random(seed)
    chosen: list[Mutant] = []
    for share, operator, files in QUOTAS.values():
        every = sorted(
            {m for name in files for m in operator(name, texts[name])}, key=lambda m: (m.file, m.line, m.text)
        )
        quota = min(len(every), max(1, round(share * count)))
        shuffled = random_source.sample(every, len(every))
        chosen += list(islice((m for m in shuffled if not _means_the_same(m, texts)), quota))
    return chosen


def _means_the_same(mutant: Mutant, texts: dict[str, list[str]]) -> bool:
    """Whether a change of the YAML changes nothing, such as the loss of a line that repeats a default."""
    if mutant.file != "combined.yaml":
        return False
    try:
        return _design(text=changed(texts[mutant.file], mutant)) == _design()
    except ConfigError:
        return False


# ---------------------------------------------------------------------------------------------------- who notices


def _design(name: str = "combined", text: str | None = None) -> BitstreamDesign:
    """One of DESIGNS, from the YAML or from this changed text of it. Raises ConfigError."""
    overrides = [f"bitstreams.combined.{override}" for override in DESIGNS[name]]
    if text is None:
        return Settings(overrides=overrides, environment={}).bitstreams["combined"].model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "combined.yaml"
        path.write_text(text)
        document = read_yaml(path, "combined.yaml")
        document.values.setdefault("name", "combined")
        return validate(document, BitstreamDesign)


def _path(name: str) -> Path:
    """Where a file of the Tcl or of the Verilog stands."""
    return TCL / name if (TCL / name).exists() else RTL / name


def _prepare(folder: Path, design: BitstreamDesign, scripts: Path, sources: Path = RTL) -> Path:
    return attempt.prepare(
        folder, design, sources=sources, content_id=CONTENT_ID, vivado_version="2024.1", scripts=scripts
    ).folder


ORDER = ("config", "standin", "gates", "handoff", "failing", "golden", "survived")

FAILING: dict[str, Callable[[Facts, gates.Verdict | None], bool]] = {
    # The branches of the Tcl that only a failing build runs: they must end the way they are meant to.
    "negative_slack": lambda facts, verdict: (
        verdict is not None and {g.name for g in verdict.failed} == {"setup_slack", "critical_warnings"}
    ),
    "run_not_complete": lambda facts, verdict: "impl_1 stopped at 50%" in facts.get("failed") and verdict is None,
    "run_overtime": lambda facts, verdict: "impl_1 was still running" in facts.get("failed") and verdict is None,
    "version_changes": lambda facts, verdict: "Vivado is version 2022.2" in facts.get("failed") and verdict is None,
}
"""Fault of the stand-in -> whether the build ended as it must."""


def first_to_notice(mutant: Mutant | None, folder: Path) -> tuple[str, str]:
    """(who, their words) over all of DESIGNS: the first of ORDER. None is the unchanged design."""
    best = ("survived", "")
    # A change of the YAML or of generated settings is one of the shipped design.
    names = ["combined"] if mutant and mutant.file in ("combined.yaml", "settings.tcl") else list(DESIGNS)
    for name in names:
        found = _notice(mutant, name, folder / name)
        best = min(best, found, key=lambda result: ORDER.index(result[0]))
        if ORDER.index(best[0]) <= ORDER.index("standin"):
            break
    if best[0] in ("golden", "survived") and not (mutant and mutant.file in ("combined.yaml", "settings.tcl")):
        for fault, ended_well in FAILING.items():
            folder_of_fault = folder / fault
            facts, verdict = _build(mutant, "combined", folder_of_fault, fault)
            if not ended_well(facts, verdict):
                return "failing", f"with {fault}: {facts.get('failed') or 'no reason given'}"
    return best


def _build(mutant: Mutant | None, name: str, folder: Path, fault: str = "") -> tuple[Facts, gates.Verdict | None]:
    """Runs one build; no verdict when it did not come to its end. Raises ConfigError."""
    design, work = _prepared(mutant, name, folder)
    result = run_tool(
        [STANDIN / "vivado", *attempt.ARGUMENTS],
        cwd=work,
        deadline=Deadline.after(60),
        log=folder / "log",
        check=False,
        env={"STANDIN_VIVADO_FAULT": fault},
    )
    leftovers.end_processes_in(work)
    facts = Facts.read(work / "facts.tsv")
    if result.status != 0 or not facts.finished:
        return facts, None
    permitted = allowed.read(build.ALLOWED_MESSAGES)
    return facts, gates.measure(work, design, content_id=CONTENT_ID, allowed=permitted, today=datetime.date.today())


def _prepared(mutant: Mutant | None, name: str, folder: Path) -> tuple[BitstreamDesign, Path]:
    """The design and the folder of an attempt at it, changed by the mutant. Raises ConfigError."""
    text = None
    scripts, sources = TCL, RTL
    if mutant and mutant.file == "combined.yaml":
        text = changed(YAML.read_text().splitlines(), mutant)
    elif mutant and mutant.file != "settings.tcl":
        scripts, sources = folder / "tcl", folder / "rtl"
        shutil.copytree(TCL, scripts)
        shutil.copytree(RTL, sources)
        place = scripts if (TCL / mutant.file).exists() else sources
        (place / mutant.file).write_text(changed(_path(mutant.file).read_text().splitlines(), mutant))
    design = _design(name, text)
    work = _prepare(folder / "attempt", design, scripts, sources)
    if mutant and mutant.file == "settings.tcl":
        settings = work / "settings.tcl"
        settings.write_text(changed(settings.read_text().splitlines(), mutant))
    return design, work


def _notice(mutant: Mutant | None, name: str, folder: Path) -> tuple[str, str]:
    try:
        facts, verdict = _build(mutant, name, folder)
    except ConfigError as error:
        return "config", error.message.splitlines()[0]
    if verdict is None:
        return "standin", facts.get("failed") or "it says what was left out"
    others = [gate for gate in verdict.failed if gate.name != "handoff_is_the_design"]
    if others:
        return "gates", str(others[0])
    if verdict.failed:
        return "handoff", str(verdict.failed[0])
    text = changed(YAML.read_text().splitlines(), mutant) if mutant and mutant.file == "combined.yaml" else None
    difference = golden_difference(name, dump_of(folder / "attempt", _design(name, text)))
    return ("golden", difference) if difference else ("survived", "")


def dump_of(work: Path, design: BitstreamDesign) -> object:
    """What was asked for, and what the stand-in understood of it."""
    built = json.loads((work / "project" / "tritforge.design.json").read_text())
    return {"asked": design.key(), "built": built}


def golden_text(dump: object) -> str:
    return json.dumps(dump, indent=1, sort_keys=True) + "\n"


def golden_difference(name: str, dump: object) -> str:
    """Where a dump and the reviewed one part; empty when they are equal."""
    golden = (GOLDEN / f"{name}.json").read_text().splitlines()
    found = golden_text(dump).splitlines()
    for a, b in zip(golden, found, strict=False):
        if a != b:
            return f"golden has {a.strip()}, found {b.strip()}"
    return "" if len(golden) == len(found) else "one is longer than the other"


# Why a survivor does no harm. A pattern is searched in the mutant as it is printed.
HARMLESS: tuple[tuple[str, str], ...] = (
    (r"acp_masters\)\] > 0} \{  =>  .*> 1}", "with the coherent port there are never fewer than two masters on it"),
    (r"check_version  =>  create_tritforge_project", "in either order the build stops before anything is built"),
    (
        r"fact (\$name\.(status|progress)|part|attempt) ",
        "a fact for people who look for a cause; nothing decides by it",
    ),
    (r"(clock_and_reset|create_shell|control_bus)  =>  create_", "these cells are connected later; any order will do"),
    (r"connect_clocks_and_resets  =>  assign_addresses", "neither needs the other; both come before validation"),
    (r"write_reports  =>  write_platform", "both read the finished run; any order will do"),
    (r"set (resets|clocked) \{\}  =>  \(deleted\)", "lappend makes the list when it is not there"),
    (r"set config \{\}  =>  \(deleted\)", "lappend makes the list when it is not there"),
)


def reason_for(mutant: Mutant) -> str:
    return next((reason for pattern, reason in HARMLESS if re.search(pattern, str(mutant))), "")


def campaign(mutants: list[Mutant], say: Callable[[str], None]) -> tuple[Counter[str], list[Mutant]]:
    """Runs them all; returns who noticed how many, and the survivors."""
    noticed: Counter[str] = Counter()
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        who, words = first_to_notice(None, base / "unchanged")
        if who != "survived":
            raise SystemExit(f"the unchanged design is refused by {who}: {words}")
        for i, mutant in enumerate(mutants):
            place = base / str(i)
            place.mkdir()
            who, words = first_to_notice(mutant, place)
            shutil.rmtree(place)
            noticed[who] += 1
            if who == "survived":
                survivors.append(mutant)
            say(f"{who:<9} {mutant}" + (f"\n            {words[:140]}" if words else ""))
    return noticed, survivors


def rates(noticed: Counter[str]) -> tuple[float, float]:
    """(rules alone, with everything) as shares."""
    total = sum(noticed.values())
    rules = noticed["config"] + noticed["standin"]
    return rules / total, 1 - noticed["survived"] / total


def write_golden() -> None:
    """Writes the golden files anew; what changed in them is then reviewed like any other change."""
    with tempfile.TemporaryDirectory() as folder:
        for name in DESIGNS:
            design = _design(name)
            work = _prepare(Path(folder) / name, design, TCL)
            run_tool([STANDIN / "vivado", *attempt.ARGUMENTS], cwd=work, deadline=Deadline.after(60))
            (GOLDEN / f"{name}.json").write_text(golden_text(dump_of(work, design)))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--count", type=int, default=DEFAULT_COUNT)
    parser.add_argument("--list", action="store_true", help="print each mutant and who noticed it")
    parser.add_argument("--write-golden", action="store_true", help="write the golden dumps anew")
    options = parser.parse_args(arguments)
    for name in list(os.environ):
        if name.startswith("STANDIN_VIVADO_"):
            del os.environ[name]
    if options.write_golden:
        write_golden()
        return 0
    mutants = choose(options.seed, options.count)
    noticed, survivors = campaign(mutants, print if options.list else lambda text: None)
    rules, everything = rates(noticed)
    total = sum(noticed.values())
    print(f"{total} mutants, seed {options.seed}: " + ", ".join(f"{who} {n}" for who, n in noticed.most_common()))
    build_checks = 1 - (noticed["golden"] + noticed["survived"]) / total
    print(f"rules alone (config, standin): {rules:.1%}, at least {RULES_AT_LEAST:.0%}")
    print(f"with the build's own checks (gates, handoff) and builds that must fail: {build_checks:.1%}")
    print(f"with the golden dump: {everything:.1%}, at least {GOLDEN_AT_LEAST:.0%}")
    unexplained = [m for m in survivors if not reason_for(m)]
    for mutant in survivors:
        print(f"survivor: {mutant}\n          {reason_for(mutant) or 'UNEXPLAINED'}")
    return 0 if rules >= RULES_AT_LEAST and everything >= GOLDEN_AT_LEAST and not unexplained else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
