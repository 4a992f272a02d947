"""Parsers of reports and logs, on texts of several versions (fixtures/reports/README.md)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from pipelines.vivado.parsers import (
    clocks,
    crossings,
    messages,
    phases,
    power,
    route,
    rules,
    tables,
    timing,
    utilisation,
)
from pipelines.vivado.parsers.tables import ReportError
from tests.vivado.conftest import FIXTURES

REPORTS = FIXTURES / "reports"


def text(name: str) -> str:
    return (REPORTS / name).read_text()


@pytest.mark.parametrize(
    ("name", "version", "date", "design"),
    [
        ("timing_summary_2018.3.rpt", "2018.3", datetime(2019, 3, 5, 8, 9, 10), "camera"),
        ("drc_2019.2.rpt", "2019.2", datetime(2020, 2, 15, 21, 32, 1), "filter"),
        ("power_2020.2.rpt", "2020.2", datetime(2021, 10, 25, 11, 47, 54), "filter_wrapper"),
        ("timing_summary_2021.2.rpt", "2021.2", datetime(2022, 2, 7, 23, 59, 1), "filter"),
        ("utilization_2022.1.rpt", "2022.1", datetime(2022, 7, 1, 3, 4, 5), "filter"),
        ("cdc_2023.2_none.rpt", "2023.2", datetime(2023, 11, 1, 1, 2, 3), "filter"),
        ("timing_summary_2024.1.rpt", "2024.1", datetime(2024, 8, 31, 12, 0, 0), "filter"),
        ("drc_2024.2.rpt", "2024.2", datetime(2024, 12, 12, 10, 11, 12), "filter_wrapper"),
    ],
)
def test_heading(name: str, version: str, date: datetime, design: str) -> None:
    heading = tables.heading(text(name))
    assert (heading.version, heading.date, heading.design) == (version, date, design)
    assert heading.command.startswith("report_")


def test_timing_that_is_missed() -> None:
    found = timing.parse(text("timing_summary_2018.3.rpt"))
    assert (found.setup_slack_ns, found.hold_slack_ns, found.pulse_width_slack_ns) == (-1.482, 0.041, -0.417)
    assert (found.failing_endpoints, found.endpoints) == (320, 14077)
    assert (found.unclocked_registers, found.unconstrained_endpoints, found.combinational_loops) == (25, 51, 2)
    worst = found.worst("setup")
    assert worst is not None
    assert str(worst) == "scale/product_reg[2]/C -> scale/sum_reg[31]/D, 14 levels of logic"
    assert [p.slack_ns for p in found.paths] == [-1.482, -1.377, 0.041]
    hold = found.worst("hold")
    assert hold is not None and hold.destination == "frame/fifo/memory_reg_0_31/RAMA/WADR1"


def test_timing_that_is_met() -> None:
    found = timing.parse(text("timing_summary_2021.2.rpt"))
    assert (found.setup_slack_ns, found.hold_slack_ns, found.pulse_width_slack_ns) == (1.204, 0.033, 3.02)
    assert (found.unclocked_registers, found.unconstrained_endpoints, found.combinational_loops) == (0, 0, 0)


def test_timing_without_any_path() -> None:
    found = timing.parse(text("timing_summary_2024.1.rpt"))
    assert found.setup_slack_ns is found.hold_slack_ns is found.pulse_width_slack_ns is None
    assert found.paths == ()


def test_resources() -> None:
    assert utilisation.parse(text("utilization_2018.3.rpt")) == utilisation.Resources(7214, 9120, 20.5, 12)
    assert utilisation.parse(text("utilization_2022.1.rpt")) == utilisation.Resources(18011, 24117, 31, 0)


@pytest.mark.parametrize("version", ["2019.2", "2023.2"])
def test_hierarchy(version: str) -> None:
    found = utilisation.parse_hierarchy(text(f"utilization_hierarchical_{version}.rpt"))
    assert [(i.depth, i.name) for i in found] == [
        (0, "filter_wrapper"),
        (1, "filter_i"),
        (2, "axi_dma_0"),
        (2, "taps_0"),
    ]
    assert found[0].resources == utilisation.Resources(3012, 4101, 3.5, 5)
    assert found[3].resources == utilisation.Resources(1310, 1689, 0.5, 5)
    assert found[2].module == "filter_dma_0_0"


def test_power() -> None:
    assert power.parse(text("power_2020.2.rpt")) == power.Power(1.702, 1.559, 0.143, 44.6, "Low")


def test_clocks() -> None:
    found = clocks.parse(text("clocks_2018.3.rpt"))
    assert [(c.name, c.mhz) for c in found] == [("clk_fpga_0", 125.0), ("sensor_clk", 800.0), ("sensor_clk_div", 200.0)]


def test_clock_interaction_with_names_over_two_lines() -> None:
    found = clocks.parse_interaction(text("clock_interaction_2022.1.rpt"))
    assert [(c.source, c.destination, c.endpoints, c.unsafe) for c in found] == [
        ("clk_fpga_0", "clk_fpga_0", 9122, False),
        ("clk_fpga_0", "sensor_clk", 17, True),
        ("sensor_clk", "clk_fpga_0", 9, False),
    ]


def test_crossings() -> None:
    found = crossings.parse(text("cdc_2020.2.rpt"))
    assert found[1] == crossings.Cdc("Critical", "sensor_clk_div", "clk_fpga_0", 4, 1)
    assert [(c.unsafe, c.unknown) for c in found] == [(0, 0), (4, 1), (0, 0)]
    assert crossings.parse(text("cdc_2023.2_none.rpt")) == []


def test_design_rules() -> None:
    found = rules.parse(text("drc_2019.2.rpt"))
    assert [(v.rule, v.count, v.serious) for v in found] == [
        ("NSTD-1", 1, True),
        ("DPIP-1", 2, False),
        ("RTSTAT-10", 1, False),
    ]
    assert rules.parse(text("drc_2024.2.rpt")) == []


def test_route_status() -> None:
    found = route.parse(text("route_status_2020.2.rpt"))
    assert found == route.RouteStatus(routable=43292, routed=43290, with_errors=2) and not found.complete


def test_messages() -> None:
    found = messages.parse(text("runme_2020.2.log"), "impl_1/runme.log")
    assert [(m.severity, m.id) for m in found] == [
        ("CRITICAL WARNING", "Common 17-55"),
        ("ERROR", "Route 35-9"),
        ("CRITICAL WARNING", "Timing 38-282"),
        ("ERROR", ""),
    ]
    assert found[1].text == "The router encountered an error"


@pytest.mark.parametrize(
    ("line", "id_", "words"),
    [
        ("ERROR: [BD 5-390] IP definition not found", "BD 5-390", "IP definition not found"),
        ("CRITICAL WARNING: [PSU-1]  Parameter : X has negative value", "PSU-1", "Parameter : X has negative value"),
        ("ERROR: [xilinx.com:ip:axi_dma:7.1-1] /dma: it failed", "xilinx.com:ip:axi_dma:7.1-1", "/dma: it failed"),
        ("ERROR: [Synth 8-6156] failed synthesizing module 'a' [a.v:20]", "Synth 8-6156", "failed synthesizing module"),
        ('ERROR: [HDL 9-806] Syntax error near "[". [a.v:2]', "HDL 9-806", "Syntax error near"),
        ("ERROR: [tritforge] run x stopped", "tritforge", "run x stopped"),
        ("ERROR: no id", "", "no id"),
    ],
)
def test_ids_of_messages(line: str, id_: str, words: str) -> None:
    (found,) = messages.parse(line)
    assert found.id == id_ and found.text.startswith(words)


def test_phases() -> None:
    found = phases.parse(text("runme_2020.2.log"))
    assert [str(p) for p in found] == [
        "opt_design: Retarget", "opt_design: Constant propagation", "opt_design: end of Logic Optimization Task",
        "place_design: Placer Initialization Netlist Sorting",
        "place_design: IO Placement/ Clock Placement/ Build Placer Device", "place_design: Placer Initialization",
        "place_design: end of Placer Task", "route_design: Build RT Design", "route_design: Create Timer",
        "route_design: Router Initialization",
    ]  # fmt: skip
    assert found[7].checksum == "98765432"


PARSERS = {
    "timing_summary": timing.parse,
    "utilization_hierarchical": utilisation.parse_hierarchy,
    "utilization": utilisation.parse,
    "power": power.parse,
    "clocks": clocks.parse,
    "clock_interaction": clocks.parse_interaction,
    "cdc": crossings.parse,
    "drc": rules.parse,
    "route_status": route.parse,
}


@pytest.mark.parametrize("path", sorted(REPORTS.glob("*.rpt")), ids=lambda path: path.stem)
def test_a_report_cut_off_anywhere_never_looks_better(path: Path) -> None:
    """Cut after any line, a report is refused or says the same as the whole one; it never says less silently."""
    name = path.stem.rpartition("_20")[0]
    parser = PARSERS[name]
    whole = parser(path.read_text())  # type: ignore[operator]
    lines = path.read_text().splitlines(keepends=True)
    refused = 0
    for end in range(0, len(lines), 2):
        try:
            found = parser("".join(lines[:end]))  # type: ignore[operator]
        except (ReportError, ValueError, KeyError):
            refused += 1
            continue
        if name == "timing_summary":  # the details of paths come after the verdict
            found, expected = found.__dict__ | {"paths": ()}, whole.__dict__ | {"paths": ()}  # type: ignore[attr-defined]
            assert found == expected, end
        elif name in ("cdc", "clock_interaction", "clocks", "utilization_hierarchical") and found != whole:
            # A table has no count of its rows; the gate on freshness and the tool's exit guard against a cut here.
            assert whole[: len(found)] == found, end  # type: ignore[index, arg-type]
        else:
            assert found == whole, end
    assert refused > 0


def test_a_text_that_is_no_report() -> None:
    for name, parser in PARSERS.items():
        with pytest.raises(ReportError):
            parser("")  # type: ignore[operator]
        with pytest.raises(ReportError):
            parser(f"ERROR: no such command {name}\n")  # type: ignore[operator]
    with pytest.raises(ReportError):
        tables.heading("hello")
