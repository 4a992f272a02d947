"""The figures of a night: what is kept over the nights, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.base.figure import Evidence, Figure
from pipelines.report.night import Night

MORE_IS_BETTER = (
    "tok/s", "words/cycle", "MB/s", "GB/s", "×", "%", "words", "tokens", "logits", "machines",
)  # fmt: skip
"""Units of which less is worse: rates, how much was compared. Of all others (s, ms, bytes, mismatches,
perplexity, LUT) more is worse."""

COUNTED = ("instructions", "cycles/entry")
"""Units of what is counted in a program: it changes with the code and with nothing else."""


@dataclass(frozen=True)
class Named:
    """A figure under the name by which history knows it, such as ``generate.tokens_per_s``, and how it was obtained."""

    name: str
    figure: Figure
    how: str


def more_is_better(unit: str) -> bool:
    return unit in MORE_IS_BETTER


def of_night(night: Night) -> list[Named]:
    """Every figure that the stages of a night gave. A stage that did not run, or was cached, gives none of its time."""
    found: list[Named] = []
    for stage in night.stages:
        if stage["status"] == "passed" and not stage["cached"] and stage.get("elapsed_s"):
            found.append(
                Named(f"stage.{stage['name']}_s", Figure(stage["elapsed_s"], "s", "model"), "clock of this machine")
            )
    cached = {stage["name"] for stage in night.stages if stage["cached"]}
    for name, result in night.results.items():
        reader = READERS.get(str(result.get("task")))
        if reader is not None and name not in cached and result.get("status") in ("passed", "failed"):
            found += reader(result, name)
    return found


def of_json(value: Mapping[str, Any]) -> Figure:
    return Figure(value["value"], value["unit"], value["evidence"])


def evidence_of(verified: Mapping[str, Any]) -> Evidence:
    """Of what a ``verify`` compared: which circuits the board computed with."""
    backend = verified.get("board_facts", {}).get("backend")
    return "silicon" if backend == "mmio" else "rtl" if backend == "rtl" else "model"


def _generate(result: Mapping[str, Any], stage: str) -> list[Named]:
    rate = result.get("tokens_per_s")
    if not rate:
        return []
    how = "clock of the emulated board" if rate["evidence"] == "model" else "clock of the board"
    return [Named(f"{stage}.tokens_per_s", of_json(rate), how)]


def _convert(result: Mapping[str, Any], stage: str) -> list[Named]:
    units = {"packed_bytes": "bytes", "peak_rss_bytes": "bytes", "read_s": "s", "pack_s": "s"}
    return _plain(result, stage, units, "model", "this machine")


def _deploy(result: Mapping[str, Any], stage: str) -> list[Named]:
    found = _plain(result, stage, {"bytes_total": "bytes"}, "model", "counted")
    sent, took = result.get("bytes_sent"), result.get("seconds")
    if sent and took and sent > 1 << 20:  # less says more about ssh's start than about the transfer
        found.append(Named(f"{stage}.push_rate", Figure(round(sent / took / 1e6, 3), "MB/s", "model"), "this machine"))
    return found


def _verify(result: Mapping[str, Any], stage: str) -> list[Named]:
    if "circuits" not in result:
        return []
    evidence = evidence_of(result)
    figures: list[tuple[str, int, str]] = [
        ("matvec_words", result["circuits"]["matvec_words"], "words"),
        ("attention_words", result["circuits"]["attention_words"], "words"),
        ("circuit_mismatches", result["circuits"]["mismatches"], "mismatches"),
        ("token_mismatches", result["tokens"]["mismatches"], "mismatches"),
        ("logits", result["logits"]["compared"], "logits"),
        ("logits_mismatches", result["logits"]["mismatches"], "mismatches"),
        ("machines", len(result["machines"]), "machines"),
    ]
    return [Named(f"{stage}.{name}", Figure(value, unit, evidence), "compared") for name, value, unit in figures]


def _simulate(result: Mapping[str, Any], stage: str) -> list[Named]:
    found = []
    for engine in ("matvec", "attention"):
        part = result.get(engine)
        if part:
            rate = part["words_per_cycle"]
            value = float(rate["value"] if isinstance(rate, Mapping) else rate)
            found.append(Named(f"{stage}.{engine}_words_per_cycle", Figure(value, "words/cycle", "rtl"), "counted"))
            mismatches = Figure(int(part["mismatches"]), "mismatches", "rtl")
            found.append(Named(f"{stage}.{engine}_mismatches", mismatches, "compared"))
    return found


def _evaluate(result: Mapping[str, Any], stage: str) -> list[Named]:
    return [
        Named(f"{stage}.{row['name']}", Figure(float(row["perplexity"]), "perplexity", "model"), "computed")
        for row in result.get("rows", [])
    ]


def _benchmark(result: Mapping[str, Any], stage: str) -> list[Named]:
    return [
        Named(f"{stage}.{entry['name']}", of_json(entry["figure"]), str(entry.get("how", "")))
        for entry in result.get("figures", [])
        if entry["figure"]["evidence"] != "reference"
    ]


def _plain(
    result: Mapping[str, Any], stage: str, units: Mapping[str, str], evidence: Evidence, how: str
) -> list[Named]:
    return [
        Named(f"{stage}.{key}", Figure(result[key], unit, evidence), how)
        for key, unit in units.items()
        if isinstance(result.get(key), (int, float))
    ]


READERS = {
    "generate": _generate,
    "convert-weights": _convert,
    "deploy": _deploy,
    "verify": _verify,
    "simulate": _simulate,
    "evaluate": _evaluate,
    "benchmark": _benchmark,
}
