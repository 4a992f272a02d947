"""A summary for the page of a CI job or a message: short, verdict first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.base.console import seconds
from pipelines.report.html import number


def render(report: Mapping[str, Any]) -> str:
    """The document of ``summary.summarise`` as Markdown."""
    mark = {"passed": "✅", "failed": "❌", "error": "❌"}.get(report["verdict"], "⚪")
    lines = [
        f"## {mark} {report['verdict']}: {report['board']}, {report['model']}",
        "",
        report["sentence"],
        "",
        "| stage | status | time |",
        "|---|---|---|",
    ]
    for stage in report["stages"]:
        took = "cached" if stage["cached"] else seconds(stage["elapsed_s"]) if stage["elapsed_s"] else ""
        optional = ", optional" if stage["optional"] else ""
        lines.append(f"| {stage['name']} | {stage['status']}{optional} | {took} |")
    for stage in report["stages"]:
        if stage["error"]:
            lines += ["", f"**{stage['name']}**: {_escaped(stage['error'].get('message', ''))}"]
            if stage["error"].get("hint"):
                lines.append(f"*{_escaped(stage['error']['hint'])}*")
    moved = [figure for figure in report["figures"] if figure["verdict"] in ("worse", "better")]
    if moved:
        lines += ["", "| figure | now | median before | change | commits |", "|---|---|---|---|---|"]
        for figure in moved:
            change = "" if figure["change_percent"] is None else f"{figure['change_percent']:+.1f} %"
            lines.append(
                f"| {_escaped(figure['name'])} ({figure['verdict']}) | {number(figure['value'])} {figure['unit']} "
                f"[{figure['evidence']}] | {number(figure['median'])} | {change} | {figure['commits']} |"
            )
    compared = [f"{c['name']}: {c['compared']:,}, {c['mismatches']:,} differ" for c in report["circuits"]]
    if compared:
        lines += ["", "Compared bit for bit: " + "; ".join(compared) + "."]
    for text in report["texts"][:1]:
        lines += ["", "> **" + _escaped(text["prompt"]) + "**" + _escaped(text["text"]).replace("\n", "\n> ")]
    if report["release"]:
        lines += ["", f"Release `{report['release'][:16]}`"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Text of tools and models is shown, not interpreted."""
    for character in "\\`*_<>|[]":
        text = text.replace(character, "\\" + character)
    return text
