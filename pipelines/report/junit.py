"""The night as JUnit XML: a test case a stage, and one a figure that can become worse."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Any

from pipelines.report.night import WENT_WRONG


def render(report: Mapping[str, Any]) -> str:
    """The document of ``summary.summarise`` as XML, with one suite for the stages and one for the figures."""
    root = ElementTree.Element("testsuites", name=f"tritforge {report['night']}")
    stages = _suite(root, "stages", report["started"])
    for stage in report["stages"]:
        case = _case(stages, "stages", stage["name"], stage["elapsed_s"])
        error = stage["error"]
        message = error.get("message", stage["reason"])
        if stage["optional"] and stage["status"] in WENT_WRONG:
            _child(case, "skipped", f"optional, {stage['status']}: {message}", error)
        elif stage["status"] == "failed":
            _child(case, "failure", message, error)
        elif stage["status"] == "error":
            _child(case, "error", message, error)
        elif stage["status"] in ("offline", "skipped", ""):
            # JUnit has no word for a board that does not answer; it is no failure of what was built.
            _child(case, "skipped", f"{stage['status'] or 'not run'}: {message}", error)
    figures = _suite(root, "figures", report["started"])
    for figure in report["figures"]:
        case = _case(figures, "figures", figure["name"], 0)
        if figure["verdict"] == "worse":
            _child(
                case, "failure",
                f"{figure['value']:g} {figure['unit']} [{figure['evidence']}], median {figure['median']:g};"
                f" it moved in {figure['commits']}", {},
            )  # fmt: skip
    for suite in (stages, figures):
        for key in ("failure", "error", "skipped"):
            name = {"failure": "failures", "error": "errors", "skipped": "skipped"}[key]
            suite.set(name, str(len(suite.findall(f"testcase/{key}"))))
        suite.set("tests", str(len(suite.findall("testcase"))))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, name: str, timestamp: str) -> ElementTree.Element:
    return ElementTree.SubElement(root, "testsuite", name=name, timestamp=timestamp[:19])


def _case(suite: ElementTree.Element, group: str, name: str, elapsed_s: float) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=f"tritforge.{group}", name=name, time=f"{elapsed_s:.3f}")


def _child(case: ElementTree.Element, kind: str, message: str, error: Mapping[str, Any]) -> None:
    child = ElementTree.SubElement(case, kind, message=_printable(message), type=str(error.get("class", kind)))
    child.text = _printable("\n".join(str(error[key]) for key in ("message", "hint", "log") if error.get(key)))


def _printable(text: str) -> str:
    """Without the control characters that no XML may hold, such as those of a tool's coloured output."""
    return "".join(c for c in text if c in "\n\t" or c >= " ")
