"""``history``: a figure over the nights, as numbers and as a plot in the terminal."""

from __future__ import annotations

import shutil
from typing import Any

from pipelines.base.errors import UsageError
from pipelines.base.names import unknown
from pipelines.commands.context import Context
from pipelines.commands.report import HISTORY
from pipelines.report.history import History
from pipelines.report.html import number
from pipelines.report.regression import judge, range_text

PLOT_ROWS = 10


def run(context: Context, figure: str = "", runs: int = 30) -> dict[str, Any]:
    """Keys: without a figure ``figures`` (names), ``latest`` (each with its last value and verdict) and ``nights`` (how
    many); else ``figure`` and ``points``, each with value, unit, evidence and verdict.
    """
    if runs < 1:
        raise UsageError(f"--runs {runs}: at least one")
    with History(context.state / HISTORY) as history:
        history.take_in(context.state / "nights")
        names = history.names()
        rules = context.settings.pipeline().regression
        if not figure:
            last = {name: judge(name, history.points(name), rules)[-1] for name in names}
            return {
                "figures": names,
                "latest": [
                    {"figure": name, "night": j.point.night, **j.point.figure.json(), "verdict": j.verdict}
                    for name, j in last.items()
                ],
                "nights": len(history.nights()),
            }
        if figure not in names:
            raise UsageError(unknown("figure", figure, names), hint="'./inv history' lists them")
        judged = judge(figure, history.points(figure), rules)[-runs:]
    return {
        "figure": figure,
        "points": [
            {
                "night": j.point.night,
                **j.point.figure.json(),
                "board": j.point.board,
                "model": j.point.model,
                "commit": j.point.commit,
                "verdict": j.verdict,
                "median": j.median,
                "change_percent": j.change_percent,
                "commits": range_text(j) if j.verdict == "worse" else "",
            }
            for j in judged
        ],
    }


def plan(context: Context, figure: str = "", runs: int = 30) -> dict[str, Any]:
    return {"stages": [], "steps": [f"show {figure or 'the names of all figures'}"]}


def show(result: dict[str, Any]) -> None:
    if "figures" in result:
        width = max((len(name) for name in result["figures"]), default=0)
        for last in result["latest"]:
            value = f"{number(last['value'])} {last['unit']} [{last['evidence']}]"
            print(f"{last['figure']:<{width}}  {value:>32}  {last['verdict']}")
        print(f"{result['nights']} nights" if result["latest"] else "no figures yet: './inv nightly' makes the first")
        return
    points = result["points"]
    for point in points:
        moved = f"  {point['change_percent']:+.1f} %" if point["change_percent"] is not None else ""
        where = f"  moved in {point['commits']}" if point["commits"] else ""
        print(
            f"{point['night'][:15]}  {number(point['value']):>12} {point['unit']} [{point['evidence']}]"
            f"  {point['board']} {point['model']} {point['commit'][:12]:<12}  {point['verdict']}{moved}{where}"
        )
    if len(points) > 1:
        columns = shutil.get_terminal_size((80, 24)).columns
        print()
        print(plot([float(point["value"]) for point in points], points[0]["unit"], columns))


def plot(values: list[float], unit: str, columns: int = 80) -> str:
    """A plot of dots, one column (or more) a value, with the range at the left."""
    low, high = min(values), max(values)
    span = high - low or abs(high) * 0.1 or 1.0
    if high == low:
        low, high = low - span / 2, high + span / 2
    margin = 12
    width = max(1, min(4, (columns - margin - 2) // len(values)))
    shown = values[-((columns - margin - 2) // width) :]
    rows = [[" "] * (len(shown) * width) for _ in range(PLOT_ROWS)]
    for i, value in enumerate(shown):
        row = PLOT_ROWS - 1 - round((value - low) / (high - low) * (PLOT_ROWS - 1))
        rows[row][i * width] = "●"
    lines = []
    for i, row_text in enumerate(rows):
        level = high - (high - low) * i / (PLOT_ROWS - 1)
        label = number(level) if i in (0, PLOT_ROWS // 2, PLOT_ROWS - 1) else ""
        lines.append(f"{label:>{margin - 2}} ┤{''.join(row_text)}".rstrip())
    return "\n".join([*lines, f"{unit:>{margin - 2}} └{'─' * (len(shown) * width)}"])
