"""``report``: HTML, JUnit, JSON and Markdown of the last nightly, history over all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.base.errors import ConfigError, TritforgeError, UsageError
from pipelines.base.files import write_json, write_text
from pipelines.commands.context import Context
from pipelines.report import html, junit, markdown, webhook
from pipelines.report.history import History
from pipelines.report.night import Night, nights, read
from pipelines.report.summary import summarise

HISTORY = "history.sqlite"


def run(context: Context, out: str = "") -> dict[str, Any]:
    """Keys: ``html``, ``junit``, ``report``, ``markdown`` (files), ``verdict``, ``night``, ``worse``, ``posted``.

    A night that went wrong makes a report like any other: this task fails only when there is nothing to report.
    """
    night, before = last_nights(context)
    with History(context.state / HISTORY) as history:
        faults = history.take_in(context.state / "nights")
        history.check()
        pipeline = context.settings.pipeline(night.pipeline if night.pipeline in context.settings.pipelines else None)
        report = summarise(night, before, history, pipeline.regression)
    folder = Path(out) if out else context.state / "report"
    text = markdown.render(report)
    write_text(folder / "report.html", html.render(report))
    write_text(folder / "junit.xml", junit.render(report))
    write_text(folder / "summary.md", text)
    write_json(folder / "report.json", report)
    posted, complaint = False, ""
    try:
        posted = webhook.post(pipeline.webhook, report, text)
    except TritforgeError as error:
        complaint = error.message
    return {
        "html": str(folder / "report.html"),
        "junit": str(folder / "junit.xml"),
        "report": str(folder / "report.json"),
        "markdown": str(folder / "summary.md"),
        "verdict": report["verdict"],
        "night": night.name,
        "worse": [figure["name"] for figure in report["figures"] if figure["verdict"] == "worse"],
        "unreadable": [fault.message for fault in faults],
        "posted": posted,
        "webhook_error": complaint,
    }


def last_nights(context: Context) -> tuple[Night, Night | None]:
    """The newest night that can be read, and the one before it for the same board and model."""
    newest: Night | None = None
    for path in reversed(nights(context.state / "nights")):
        try:
            night = read(path)
        except ConfigError:
            continue
        if newest is None:
            newest = night
        elif (night.board, night.model, night.pipeline) == (newest.board, newest.model, newest.pipeline):
            return newest, night
    if newest is None:
        raise UsageError("there is no night to report yet", hint="./inv nightly")
    return newest, None


def plan(context: Context, out: str = "") -> dict[str, Any]:
    return {"stages": [], "steps": [f"write the report of the last night to {out or context.state / 'report'}"]}


def show(result: dict[str, Any]) -> None:
    print(f"{result['verdict']}: {result['night']}")
    for name in result["worse"]:
        print(f"  worse: {name}")
    for fault in [*result["unreadable"], result["webhook_error"]]:
        if fault:
            print(f"  {fault}")
    print(f"report: {result['html']}")
