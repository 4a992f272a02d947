"""Gates of a build: what was measured on the implemented design, against its limits.

Each gate has a value, a limit and a margin; a report that is missing, stale or unreadable fails its gates, and so does
an empty slack. ``gates.json`` is written in every case; a failed gate raises GateError after that.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipelines.base.errors import GateError, ToolFailed
from pipelines.base.files import write_json
from pipelines.vivado import allowed as allow_list
from pipelines.vivado import bitfile, handoff
from pipelines.vivado.design import BitstreamDesign
from pipelines.vivado.facts import Facts
from pipelines.vivado.parsers import clocks, crossings, messages, power, route, rules, tables, timing, utilisation

SLACK_AGREES_NS = 0.0015
"""The report and the tool's own figure are both rounded to 0.001."""

REPORTS = (
    "timing_summary", "clocks", "clock_interaction", "cdc", "utilization", "utilization_hierarchical", "power", "drc",
    "methodology", "route_status",
)  # fmt: skip
WITHOUT_HEADING = ("route_status",)

SAYS_TIMING_MISSED = ("Timing 38-282", "Route 35-39")
"""Critical warnings that only repeat what the slack gates find."""

T = TypeVar("T")


@dataclass(frozen=True)
class Gate:
    """One judgement. ``margin`` is in the unit of ``value``, positive when held; None where there is no number."""

    name: str
    passed: bool
    value: float | str | None
    limit: float | str | None
    unit: str = ""
    detail: str = ""

    @property
    def margin(self) -> float | None:
        if isinstance(self.value, (int, float)) and isinstance(self.limit, (int, float)):
            return round(self.value - self.limit if self.unit == "ns" else self.limit - self.value, 6)
        return None

    def __str__(self) -> str:
        shown = "nothing" if self.value in (None, "") else f"{self.value} {self.unit}".strip()
        against = f", limit {self.limit} {self.unit}".rstrip() if self.limit not in (None, "") else ""
        return f"{self.name}: {shown}{against}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class Verdict:
    """All gates of a build and the values behind them."""

    gates: tuple[Gate, ...]
    figures: dict[str, Any]

    @property
    def passed(self) -> bool:
        return all(gate.passed for gate in self.gates)

    @property
    def failed(self) -> tuple[Gate, ...]:
        return tuple(gate for gate in self.gates if not gate.passed)

    @property
    def only_timing_missed(self) -> bool:
        """Whether another strategy could help: everything that failed is slack."""
        slack = [gate for gate in self.failed if gate.name.endswith("_slack") and gate.value is not None]
        others = [gate.name for gate in self.failed if gate not in slack]
        repeats = all(warning["id"] in SAYS_TIMING_MISSED for warning in self.figures["refused_critical_warnings"])
        return bool(slack) and (not others or (others == ["critical_warnings"] and repeats))

    def json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "gates": [{**asdict(gate), "margin": gate.margin} for gate in self.gates],
        }

    def write(self, folder: Path) -> None:
        """``gates.json`` and ``figures.json``."""
        write_json(folder / "gates.json", self.json())
        write_json(folder / "figures.json", self.figures)

    def require(self, *, log: Path | None = None) -> None:
        """Raises GateError with every failed gate, its path or resource first."""
        if self.passed:
            return
        lines = "".join(f"\n  {gate}" for gate in self.failed)
        raise GateError(
            f"{len(self.failed)} of {len(self.gates)} gates failed:{lines}",
            hint="try other directives with --sweep N"
            if self.only_timing_missed
            else "gates.json has every value; nothing was stored",
            log=log,
        )


class _Measurement:
    """Reads the files of an attempt and collects gates; a file that cannot be read becomes a failed gate."""

    def __init__(self, attempt: Path) -> None:
        self.attempt = attempt
        self.gates: list[Gate] = []
        self.figures: dict[str, Any] = {}
        self.broken: dict[str, str] = {}

    def text(self, report: str) -> str | None:
        path = self.attempt / "reports" / f"{report}.rpt"
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            self.broken[report] = "missing"
            return None

    def read(self, report: str, parser: Callable[[str], T]) -> T | None:
        text = self.text(report)
        if text is None:
            return None
        try:
            return parser(text)
        except (ToolFailed, ValueError, KeyError) as error:
            self.broken[report] = str(error)
            return None

    def gate(self, name: str, passed: bool, value: Any, limit: Any = None, unit: str = "", detail: str = "") -> None:
        self.gates.append(Gate(name, passed, value, limit, unit, detail))


def measure(
    attempt: Path,
    design: BitstreamDesign,
    *,
    content_id: int,
    allowed: list[allow_list.Allowed],
    today: datetime.date,
) -> Verdict:
    """Judges the files of a finished attempt (``reports/``, ``out/``, ``facts.tsv``, the logs of its runs)."""
    m = _Measurement(attempt)
    facts = Facts.read(attempt / "facts.tsv")
    _timing(m, design, facts)
    _clocks(m, design)
    _resources(m, design)
    _rules(m)
    _critical_warnings(m, allowed, today)
    _outputs(m, design, content_id)
    estimate = m.read("power", power.parse)
    if estimate:
        m.figures["power"] = asdict(estimate)
    _reports(m, facts)
    # A report that is not there explains the gates that have no value, so it comes first.
    return Verdict((m.gates[-1], *m.gates[:-1]), m.figures)


def _timing(m: _Measurement, design: BitstreamDesign, facts: Facts) -> None:
    report = m.read("timing_summary", timing.parse)
    limits = design.limits
    for name, limit in (
        ("setup", limits.setup_slack_ns), ("hold", limits.hold_slack_ns), ("pulse_width", limits.pulse_width_slack_ns),
    ):  # fmt: skip
        value: float | None = getattr(report, f"{name}_slack_ns") if report else None
        worst = report.worst(name) if report else None
        detail = "no path was timed" if value is None else str(worst) if worst and value < limit else ""
        m.gate(f"{name}_slack", value is not None and value >= limit, value, limit, "ns", detail)
    # The tool's own words, asked for beside the report: two sources that must agree.
    disagreements = []
    for statistic, name in (("WNS", "setup"), ("WHS", "hold")):
        found = getattr(report, f"{name}_slack_ns") if report else None
        for fact in (f"impl_1.{statistic}", f"slack.{name}"):
            said = facts.number(fact)
            if said is None or found is None or abs(said - found) > SLACK_AGREES_NS:
                disagreements.append(f"{fact} is {facts.get(fact) or 'empty'}, the report says {found}")
    m.gate("slack_agrees_with_tool", not disagreements, len(disagreements), 0, "", "; ".join(disagreements))
    unclocked = report.unclocked_registers if report else None
    m.gate("unclocked_registers", unclocked == 0, unclocked, 0, "registers")
    loops = report.combinational_loops if report else None
    m.gate("combinational_loops", loops == 0, loops, 0, "loops")
    unconstrained = report.unconstrained_endpoints if report else None
    m.gate("unconstrained_endpoints", unconstrained == 0, unconstrained, 0, "endpoints")
    if report:
        m.figures["timing"] = asdict(report)


def _clocks(m: _Measurement, design: BitstreamDesign) -> None:
    found = m.read("clocks", clocks.parse)
    wrong = [
        f"{c.name} at {c.mhz:.3f} MHz" for c in found or [] if abs(c.mhz - design.clock_mhz) > 0.001 * design.clock_mhz
    ]
    m.gate("clocks", bool(found) and not wrong, ", ".join(wrong) if found else None, f"{design.clock_mhz:g} MHz only")
    if found:
        m.figures["clocks"] = [{"name": c.name, "period_ns": c.period_ns, "mhz": round(c.mhz, 6)} for c in found]
    interaction = m.read("clock_interaction", clocks.parse_interaction)
    cdc = m.read("cdc", crossings.parse)
    unsafe = [f"{c.source} -> {c.destination} ({c.endpoints} endpoints)" for c in interaction or [] if c.unsafe]
    unsafe += [
        f"{c.source} -> {c.destination} ({c.unsafe} unsafe, {c.unknown} unknown)"
        for c in cdc or []
        if c.unsafe or c.unknown
    ]
    readable = interaction is not None and cdc is not None
    m.gate(
        "unsafe_crossings",
        readable and not unsafe,
        len(unsafe) if readable else None,
        0,
        "crossings",
        "; ".join(unsafe),
    )


def _resources(m: _Measurement, design: BitstreamDesign) -> None:
    used = m.read("utilization", utilisation.parse)
    for name in ("lut", "ff", "bram36", "dsp"):
        value = getattr(used, name) if used else None
        limit = getattr(design.limits, name)
        m.gate(name, value is not None and 0 < value <= limit, value, limit, name.upper())
    hierarchy = m.read("utilization_hierarchical", utilisation.parse_hierarchy)
    if used:
        m.figures["resources"] = asdict(used)
    if hierarchy:
        m.figures["hierarchy"] = [
            {"depth": i.depth, "instance": i.name, "module": i.module, **asdict(i.resources)} for i in hierarchy
        ]


def _rules(m: _Measurement) -> None:
    for name in ("drc", "methodology"):
        violations = m.read(name, rules.parse)
        serious = [f"{v.rule} ({v.severity}, {v.count}): {v.description}" for v in violations or [] if v.serious]
        count = None if violations is None else sum(v.count for v in violations if v.serious)
        m.gate(name, count == 0, count, 0, "violations", "; ".join(serious))
        if violations is not None:
            m.figures[name] = [asdict(v) for v in violations]
    status = m.read("route_status", route.parse)
    missing = None if status is None else max(status.routable - status.routed, status.with_errors)
    m.gate("routed", missing == 0, missing, 0, "nets")


def _critical_warnings(m: _Measurement, allowed: list[allow_list.Allowed], today: datetime.date) -> None:
    found: list[messages.Message] = []
    logs = sorted(m.attempt.rglob("runme.log"))
    logs += [path for path in (m.attempt / "vivado.log",) if path.exists()]
    for log in logs:
        found += messages.parse(log.read_text(encoding="utf-8", errors="replace"), str(log.relative_to(m.attempt)))
    judged = allow_list.judge(found, allowed, today)
    refused = [j for j in judged if j.allowed_by is None or j.expired]
    detail = "; ".join(
        f"{j.message.log}: [{j.message.id}] {j.message.text}"
        + (f" (was allowed until {j.allowed_by.expires})" if j.allowed_by else "")
        for j in refused[:5]
    )
    m.gate("critical_warnings", bool(logs) and not refused, len(refused) if logs else None, 0, "messages", detail)
    m.figures["refused_critical_warnings"] = [{"id": j.message.id, "text": j.message.text} for j in refused]
    m.figures["allowed_critical_warnings"] = [
        {"id": j.message.id, "text": j.message.text, "reason": j.allowed_by.reason}
        for j in judged
        if j.allowed_by is not None and not j.expired
    ]


def _outputs(m: _Measurement, design: BitstreamDesign, content_id: int) -> None:
    bits = sorted((m.attempt / "out").glob("*.bit"))
    try:
        problems = (
            bitfile.check(bitfile.parse(bits[0].read_bytes()), part=design.part, content_id=content_id)
            if len(bits) == 1
            else [f"there are {len(bits)} bitstreams"]
        )
    except bitfile.BitfileError as error:
        problems = [str(error)]
    m.gate("bitstream", not problems, len(problems), 0, "problems", "; ".join(problems))
    files = sorted((m.attempt / "out").glob("*.hwh"))
    try:
        wrong = (
            handoff.differences(handoff.parse(files[0].read_text(encoding="utf-8")), design, content_id)
            if len(files) == 1
            else [f"there are {len(files)} hardware handoffs"]
        )
    except ToolFailed as error:
        wrong = [str(error)]
    m.gate("handoff_is_the_design", not wrong, len(wrong), 0, "differences", "; ".join(wrong[:6]))
    platforms = len(list((m.attempt / "out").glob("*.xsa")))
    m.gate("platform", platforms == 1, platforms, 1, "files")


def _reports(m: _Measurement, facts: Facts) -> None:
    """Every report is there, readable, of this version, and not older than this build."""
    started = facts.started()
    version = facts.get("vivado_version")
    for report in REPORTS:
        text = m.text(report)
        if text is None or report in m.broken or report in WITHOUT_HEADING:
            continue
        try:
            head = tables.heading(text)
        except ToolFailed as error:
            m.broken[report] = str(error)
            continue
        if started is None or head.date < started:
            m.broken[report] = f"stale: made {head.date}, the build began {started}"
        elif head.version != version:
            m.broken[report] = f"made by Vivado {head.version}, the build by {version}"
    detail = "; ".join(f"{name}: {what}" for name, what in m.broken.items())
    m.gate("reports_are_of_this_build", not m.broken, len(m.broken), 0, "reports", detail)
