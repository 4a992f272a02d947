"""A night beside the nights before it, as one JSON document: what HTML, JUnit and Markdown are written from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.base.files import read_json
from pipelines.config.pipeline import Regression
from pipelines.report import benchmark
from pipelines.report.figures import evidence_of, of_night
from pipelines.report.history import History, Point
from pipelines.report.night import WENT_WRONG, Night
from pipelines.report.reference import reference
from pipelines.report.regression import judge, range_text

REPORT_VERSION = 1
NIGHTS_SHOWN = 60
CIRCUITS = {"matvec": "the matrix circuit", "attention": "the attention circuit"}

SENTENCES = {
    "passed": "Everything that ran tonight passed.",
    "failed": "A check failed.",
    "error": "A stage could not do its work.",
    "offline": "The board did not answer; what needs no board is below.",
    "incomplete": "Not all stages ran.",
}


def summarise(night: Night, before: Night | None, history: History, rules: Regression) -> dict[str, Any]:
    """The whole report as data. ``before`` is the last night for the same board and model."""
    figures = [_figure(history, named.name, night.name, rules, named.how) for named in of_night(night)]
    worse = [figure for figure in figures if figure["verdict"] == "worse"]
    verdict = night.status
    sentence = SENTENCES[verdict]
    beside = [s["name"] for s in night.stages if s["name"] in night.optional and s["status"] in WENT_WRONG]
    if verdict == "passed" and beside:
        sentence = f"Everything that decides passed; optional, and not well: {', '.join(beside)}."
    if worse:
        sentence += f" {len(worse)} figure{'s are' if len(worse) > 1 else ' is'} worse than before."
    bench = night.of_task("benchmark")
    return {
        "report_version": REPORT_VERSION,
        "night": night.name,
        "started": night.started.isoformat(),
        "verdict": verdict,
        "sentence": sentence,
        "board": night.board,
        "model": night.model,
        "release": night.release,
        "commit": night.commit,
        "machine": night.machine,
        "facts": _facts(night),
        "stages": [
            {**stage, "optional": stage["name"] in night.optional, "error": _error(night, stage["name"])}
            for stage in night.stages
        ],
        "changes": _changes(night, before, figures),
        "figures": figures,
        "time_model": benchmark.model_against_reference(reference()),
        "own_model": bench.get("own_model", {}),
        "table": bench.get("table", []),
        "waterfall": bench.get("waterfall", []),
        "benchmark": bench.get("figures", []),
        "perplexity": night.of_task("evaluate").get("rows", []),
        "perplexity_warning": night.of_task("evaluate").get("warning", ""),
        "gates": _gates(night),
        "circuits": _circuits(night),
        "machines": _machines(night),
        "provenance": _provenance(night),
        "texts": list(night.document.get("texts", [])),
    }


def _figure(history: History, name: str, night: str, rules: Regression, how: str) -> dict[str, Any]:
    judged = judge(name, history.points(name), rules)
    mine = next(judgement for judgement in judged if judgement.point.night == night)
    series = [j.point for j in judged if j.point.kind == mine.point.kind and j.point.night <= night][-NIGHTS_SHOWN:]
    return {
        "name": name,
        **mine.point.figure.json(),
        "how": how,
        "verdict": mine.verdict,
        "median": mine.median,
        "change_percent": mine.change_percent,
        "threshold_percent": mine.threshold_percent,
        "since": mine.since,
        "commits": range_text(mine) if mine.verdict == "worse" else "",
        "series": _series(series),
    }


def _series(points: Sequence[Point]) -> list[dict[str, Any]]:
    return [{"night": point.night, "value": point.figure.value} for point in points]


def _error(night: Night, stage: str) -> Mapping[str, Any]:
    error: Mapping[str, Any] = night.results.get(stage, {}).get("error", {})
    return error


def _changes(night: Night, before: Night | None, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if before is None:
        return {"first": True, "stages": [], "figures": [], "release": None, "commits": ""}
    was = {stage["name"]: stage["status"] for stage in before.stages}
    stages = [
        {"name": stage["name"], "before": was.get(stage["name"], "not there"), "now": stage["status"]}
        for stage in night.stages
        if was.get(stage["name"]) != stage["status"]
    ]
    moved = [
        {key: figure[key] for key in ("name", "value", "unit", "verdict", "median", "change_percent", "commits")}
        for figure in figures
        if figure["verdict"] in ("worse", "better")
    ]
    changed = before.release != night.release
    return {
        "first": False,
        "night": before.name,
        "stages": stages,
        "figures": moved,
        "release": {"before": before.release, "now": night.release} if changed else None,
        "commits": f"{before.commit[:12]}..{night.commit[:12]}" if before.commit != night.commit else "",
    }


def _facts(night: Night) -> list[dict[str, str]]:
    """What the night is worth in a few lines, each with its evidence."""
    found = []
    verified = night.of_task("verify")
    if "circuits" in verified:
        circuits, logits, tokens = verified["circuits"], verified["logits"], verified["tokens"]
        words = circuits["matvec_words"] + circuits["attention_words"]
        parts = (circuits, logits, tokens, verified.get("values", {}))  # the last: what the processor computes between
        differ = sum(part.get("mismatches", 0) for part in parts)
        found.append(
            {
                "text": f"{words:,} result words of the circuits and {logits['compared']:,} logits compared on "
                f"{len(verified['machines'])} machines: {f'{differ:,} differ' if differ else 'equal in every bit'}.",
                "evidence": evidence_of(verified),
            }
        )
    generated = night.of_task("generate")
    if generated.get("tokens_per_s") and generated.get("tokens"):
        rate = generated["tokens_per_s"]
        found.append(
            {"text": f"{generated['tokens']} tokens written at {rate['value']:.2f} {rate['unit']}"
             + (" by an emulated processor." if rate["evidence"] == "model" else "."), "evidence": rate["evidence"]}
        )  # fmt: skip
    return found


def _gates(night: Night) -> list[dict[str, Any]]:
    """Gates of a Vivado build, or of the circuits' synthesis: value, limit, margin."""
    found: list[dict[str, Any]] = []
    for gate in _gates_of_vivado(night):
        keys = ("name", "passed", "value", "limit", "unit", "margin")
        found.append({**{key: gate.get(key) for key in keys}, "evidence": "model"})
    for entry in night.of_task("benchmark").get("figures", []):
        figure, limit = entry["figure"], entry.get("limit")
        if limit and figure["unit"] in ("LUT", "DSP", "BRAM36", "ns", "% of LUTs"):
            margin = round(limit["value"] - figure["value"], 3)
            found.append(
                {"name": entry["name"], "passed": margin >= 0, "value": figure["value"], "limit": limit["value"],
                 "unit": figure["unit"], "margin": margin, "evidence": figure["evidence"]}
            )  # fmt: skip
    return found


def _gates_of_vivado(night: Night) -> list[Mapping[str, Any]]:
    folder = night.of_task("build-bitstream").get("bitstream")
    try:
        gates: list[Mapping[str, Any]] = read_json(Path(str(folder)) / "gates.json")["gates"] if folder else []
    except (OSError, ValueError, KeyError):  # an emulated board's bitstream has none
        return []
    return gates


def _circuits(night: Night) -> list[dict[str, Any]]:
    """Result words compared, by check."""
    found: list[dict[str, Any]] = []
    verified = night.of_task("verify")
    if "circuits" in verified:
        circuits, evidence = verified["circuits"], evidence_of(verified)
        matrices, attention = circuits["matvec_words"], circuits["attention_words"]
        found.append(
            {"name": f"result words of the circuits on board ({matrices:,} of matrices, {attention:,} of attention)",
             "compared": matrices + attention, "mismatches": circuits["mismatches"]}
        )  # fmt: skip
        tokens, logits = verified["tokens"], verified["logits"]
        found.append({"name": "token ids", "compared": tokens["generated"], "mismatches": tokens["mismatches"]})
        found.append({"name": "logits", "compared": logits["compared"], "mismatches": logits["mismatches"]})
        found = [{**line, "evidence": evidence} for line in found]
    simulated = night.of_task("simulate")
    for key in CIRCUITS:
        if key in simulated:
            part = simulated[key]
            found.append(
                {"name": f"result words of {CIRCUITS[key]} in simulation",
                 "compared": part.get("results_compared", part["words"]), "mismatches": part["mismatches"],
                 "evidence": "rtl"}
            )  # fmt: skip
    return found


def _machines(night: Night) -> dict[str, Any]:
    """Who computed the same logits as whom. All are compared with the board, so equality goes on from there."""
    verified = night.of_task("verify")
    if "machines" not in verified:
        return {}
    machines = verified["machines"]
    differ = {entry["name"]: entry["mismatches"] for entry in verified.get("against", [])}
    golden = verified["logits"]["mismatches"]
    wrong = [0 if i == 0 else differ.get(m["name"], golden) for i, m in enumerate(machines)]
    return {
        "machines": machines,
        "mismatches": wrong,
        "steps": verified["logits"]["steps"],
        "equal": [[_equal(a, b, wrong) for b in range(len(machines))] for a in range(len(machines))],
    }


def _equal(a: int, b: int, wrong: Sequence[int]) -> bool | None:
    """None for two that both differ from the board: nobody compared them with each other."""
    if a == b:
        return True
    return None if wrong[a] and wrong[b] else not (wrong[a] or wrong[b])


def _provenance(night: Night) -> dict[str, Any]:
    release = night.of_task("release")
    manifest: dict[str, Any] = {}
    try:
        manifest = read_json(Path(str(release["manifest"])))["predicate"]
    except (OSError, ValueError, KeyError, TypeError):
        manifest = {}
    return {
        "release": night.release,
        "signed_by": release.get("signed_by", ""),
        "parts": release.get("parts", []),
        "toolchains": manifest.get("toolchains", {}),
        "artefacts": manifest.get("artefacts", {}),
    }
