"""The report as one HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from pipelines.base.console import seconds
from pipelines.report import svg
from pipelines.report.reference import reference
from pipelines.report.svg import Series

HISTORY_PLOTS = 12
FEWEST_NIGHTS = 2
SECTIONS = (
    "changes", "stages", "text", "equality", "time", "perplexity", "gates", "history", "figures", "provenance",
)  # fmt: skip


PARTS = {"matrices": "matrices", "attention": "attention", "cpu": "CPU"}


def render(report: Mapping[str, Any]) -> str:
    """The document of ``summary.summarise`` as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pipelines.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["number"] = number
    environment.filters["seconds"] = seconds
    plots = {"time": _time_plots(report), "history": _history_plots(report["figures"])}
    missing = _missing(report, plots)
    absent = {id for id, _, _ in missing}
    steps = report["waterfall"]
    cpu_evidence = next((step["evidence"] for step in steps if step["name"] == "CPU"), "reference")
    return environment.get_template("report.html.j2").render(
        r=report, plots=plots, cpu_evidence=cpu_evidence,
        shown=[id for id in SECTIONS if id not in absent], missing=[(what, how) for _, what, how in missing],
    )  # fmt: skip


def _missing(report: Mapping[str, Any], plots: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(section, what is not there, why) of what this night has nothing to say about."""
    found = []
    if not report["texts"]:
        found.append(("text", "text", "no 'generate' passed"))
    if not report["circuits"] and not report["machines"]:
        found.append(("equality", "equality of words and logits", "no 'verify' or 'simulate' ended"))
    if not report["table"]:
        found.append(("", "this project's own line of time per token", "no 'benchmark' passed"))
    if not report["perplexity"]:
        found.append(("perplexity", "perplexity", "no 'evaluate' passed"))
    if not report["gates"]:
        found.append(("gates", "gates of a build", "neither Vivado nor 'benchmark' passed"))
    if not plots["history"]:
        found.append(("history", "plots over the nights", "no second night to compare with"))
    return found


def number(value: object) -> str:
    """Four significant digits, whole numbers in full, nothing for None."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def _plot(title: str, drawn: str) -> dict[str, Any]:
    return {"title": title, "svg": Markup(drawn)}


def _time_plots(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = reference()
    own, model = report["table"], report["time_model"]["rows"]
    labels = [f"T={row.t}" for row in given.table]
    plots = []
    if own:
        parts = [Series(PARTS[key], [row[key] for row in own]) for key in PARTS]
        parts.append(Series("hand-over", [row["hand_over_reference"] for row in own]))
        said = ", ".join(f"T = {row['t']}: {row['total_with_hand_over']} ms" for row in own)
        plots.append(
            _plot(
                "This project, ms a token [model: RTL cycles + CPU + reference's hand-over]",
                svg.stacked(
                    "Time per token by context", said, labels, parts, [row["total_with_hand_over"] for row in own], "ms"
                ),
            )
        )
    parts = [Series(PARTS[key], [getattr(row, key) for row in given.table]) for key in PARTS]
    said = ", ".join(f"T = {row.t}: {row.total} ms" for row in given.table)
    plots.append(
        _plot(
            "The earlier work, ms a token [reference]",
            svg.stacked(
                "Time per token by context, reference", said, labels, parts, [row.total for row in given.table], "ms"
            ),
        )
    )
    series = []
    if own:
        series.append(Series("RTL + CPU", [row["tok_per_s"] for row in own]))
        series.append(Series("with hand-over", [1000 / row["total_with_hand_over"] for row in own]))
    series.append(Series("reference", [row.tok_per_s for row in given.table], dashed=True))
    series.append(Series("time model", [row["tok_per_s"] for row in model], dashed=True))
    said = "; ".join(f"{s.name} {s.values[0]:.2f} to {s.values[-1]:.2f}" for s in series)
    plots.append(
        _plot(
            "Tokens per second by T [model, reference]", svg.lines("Tokens per second", said, labels, series, "tok/s")
        )
    )
    if report["waterfall"]:
        steps = [(step["name"], float(step["ms"])) for step in report["waterfall"]]
    else:
        steps = [("forecast from parts", given.forecast_ms), ("rest", given.rest_ms)]
    marks = [("the reference's forecast", given.forecast_ms), ("the reference", given.table[-1].total)]
    said = ", ".join(f"{name} {value} ms" for name, value in steps)
    tag = "model" if report["waterfall"] else "reference"
    plots.append(_plot(f"Budget at T = 512, ms [{tag}]", svg.waterfall("Budget at T = 512", said, steps, marks, "ms")))
    return plots


def _history_plots(figures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Figures that became worse first, then those that move, then the rest as they come."""
    plotted = [figure for figure in figures if len(figure["series"]) >= FEWEST_NIGHTS]
    rank = {"worse": 0, "better": 1}
    plotted.sort(
        key=lambda f: (
            rank.get(f["verdict"], 2),
            len({point["value"] for point in f["series"]}) == 1,
            "stage." in f["name"],
        )
    )
    plots = []
    for figure in plotted[:HISTORY_PLOTS]:
        values = [point["value"] for point in figure["series"]]
        labels = [f"{point['night'][4:6]}-{point['night'][6:8]}" for point in figure["series"]]
        said = f"{len(values)} nights, from {number(values[0])} to {number(values[-1])} {figure['unit']}"
        series = [Series(figure["name"], values)]
        if figure["median"] is not None:
            series.append(Series("median before", [figure["median"]] * len(values), dashed=True))
        title = f"{figure['name']} [{figure['evidence']}]"
        plots.append(_plot(title, svg.lines(figure["name"], said, labels, series, figure["unit"])))
    return plots
