"""A machine's answers to the battery, held against the golden model's: counts, and the first difference."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.base.errors import BoardUnfit
from pipelines.boards.battery import Battery
from pipelines.boards.reference import Expected, Key, expected
from pipelines.golden.formats import TRACE_POINTS
from pipelines.golden.forward import GoldenModel

DTYPES: dict[str, np.dtype[Any]] = {"f": np.dtype("<f4"), "i": np.dtype("<i4"), "b": np.dtype("i1")}
MATVEC_POINTS = ("qkv_acc", "o_acc", "gate_up_acc", "down_acc", "head_acc")
ATTENTION_POINT = "attn_acc"
ORDER = {name: number for number, (name, _) in enumerate(TRACE_POINTS)}


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


@dataclass
class Answers:
    """What one machine said: by sequence, by step."""

    tokens: dict[tuple[int, int], int] = field(default_factory=dict)
    logits: dict[tuple[int, int], str] = field(default_factory=dict)
    following: dict[tuple[int, int], int] = field(default_factory=dict)
    traced: dict[tuple[int, int], str] = field(default_factory=dict)
    rows: dict[tuple[int, int], bytes] = field(default_factory=dict)
    data: dict[tuple[int, int], dict[Key, npt.NDArray[Any]]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def event(self, value: Mapping[str, Any]) -> None:
        """One event of the job ``verify`` (``board_rt/jobs.py``)."""
        at = (int(value["sequence"]), int(value["step"]))
        if "point" in value:
            array = np.frombuffer(unpacked(value["data"]), dtype=DTYPES[value["type"]])
            self.data.setdefault(at, {})[(int(value["layer"]), str(value["point"]))] = array
            return
        self.tokens[at] = int(value["token"])
        self.logits[at] = str(value["logits"])
        self.following[at] = int(value["next"])
        if "trace" in value:
            self.traced[at] = str(value["trace"])
        if "full" in value:
            self.rows[at] = unpacked(value["full"])

    def said(self, number: int, steps: int) -> list[int]:
        """The tokens that went in, in order. Raises BoardUnfit when a step is missing: nothing may count as equal."""
        try:
            return [self.tokens[(number, step)] for step in range(steps)]
        except KeyError as error:
            raise BoardUnfit(f"the board left out step {error.args[0]} of the battery") from None


@dataclass(frozen=True)
class FirstDifference:
    """The first step at which something differs, and what."""

    sequence: int
    step: int
    token: int
    what: str

    def json(self) -> dict[str, Any]:
        return {"sequence": self.sequence, "step": self.step, "token": self.token, "what": self.what}


@dataclass
class Comparison:
    """Counts of what was compared and of what differed."""

    steps: int = 0
    logits_compared: int = 0
    logits_mismatches: int = 0  # steps whose logits differ, in single logits when they were fetched
    tokens_prompt: int = 0
    tokens_generated: int = 0
    token_mismatches: int = 0
    matvec_words: int = 0
    attention_words: int = 0
    circuit_mismatches: int = 0
    other_values: int = 0
    other_mismatches: int = 0
    first: FirstDifference | None = None

    @property
    def equal(self) -> bool:
        """True only when something was compared and nothing differed."""
        differences = self.logits_mismatches + self.token_mismatches + self.circuit_mismatches + self.other_mismatches
        return self.steps > 0 and self.logits_compared > 0 and differences == 0

    def note(self, sequence: int, step: int, token: int, what: str) -> None:
        if self.first is None or (sequence, step) < (self.first.sequence, self.first.step):
            self.first = FirstDifference(sequence, step, token, what)


def expect(model: GoldenModel, battery: Battery, answers: Answers) -> list[Expected]:
    """The golden model on the very tokens that the machine was given."""
    result = []
    for number, run in enumerate(battery.sequences):
        tokens = answers.said(number, run.steps)
        everything = range(len(tokens))
        result.append(expected(model, tokens, data=everything, traced=everything))
    return result


def compare(battery: Battery, answers: Answers, golden: list[Expected], vocab: int) -> Comparison:
    """Every step's logits and next token, and every word of every trace point, by hash where it is not at hand."""
    result = Comparison()
    for number, run in enumerate(battery.sequences):
        for step in range(run.steps):
            at = (number, step)
            token = answers.tokens[at]
            result.steps += 1
            result.logits_compared += vocab
            generated = step + 1 >= len(run.ids)
            result.tokens_prompt += step < len(run.ids)
            result.tokens_generated += generated
            if step < len(run.ids) and token != run.ids[step]:
                result.token_mismatches += 1
                result.note(number, step, token, "the prompt's token")
            if answers.logits[at] != golden[number].logits[step]:
                result.logits_mismatches += differing_logits(answers.rows.get(at), golden[number], step, vocab)
                result.note(number, step, token, "logits")
            _compare_points(result, at, answers, golden[number])
            if generated and answers.following[at] != golden[number].following[step]:
                result.token_mismatches += 1
                result.note(number, step, token, "the next token")
    return result


def differing_logits(row: bytes | None, golden: Expected, step: int, vocab: int) -> int:
    """How many logits of a step differ; at least 1, since the hashes do, and all while the row is not here."""
    if row is None or golden.rows is None:
        return vocab
    ours = np.frombuffer(row, dtype="<u4")
    theirs = np.ascontiguousarray(golden.rows[step], dtype="<f4").view("<u4")
    return max(1, int((ours != theirs).sum())) if ours.shape == theirs.shape else vocab


def _compare_points(result: Comparison, at: tuple[int, int], answers: Answers, golden: Expected) -> None:
    """All trace points of a step. A wrong word need not reach the logits: quantisation swallows small ones.

    With equal hashes every word is equal; else the words are counted, or as one when they were not fetched.
    """
    step = at[1]
    equal = answers.traced.get(at) == golden.traced[step]
    seen = answers.data.get(at)
    first = ""
    for key, value in sorted(golden.data[step].items(), key=lambda entry: order_of(entry[0])):
        wrong = 0 if equal or seen is None else differing(seen.get(key), value).size
        if key[1] in MATVEC_POINTS:
            result.matvec_words += value.size
            result.circuit_mismatches += wrong
        elif key[1] == ATTENTION_POINT:
            result.attention_words += value.size
            result.circuit_mismatches += wrong
        else:
            result.other_values += value.size
            result.other_mismatches += wrong
        if wrong and not first:
            first = key[1]
    if not equal:
        if not first:
            result.other_mismatches += 1
        result.note(at[0], at[1], answers.tokens[at], first or "a trace point")


def order_of(key: Key) -> tuple[int, int]:
    """The order of computation: what is before the layers, each layer, what is behind them."""
    layer, point = key
    if layer >= 0:
        return layer, ORDER[point]
    return (-1 if point == "embedding" else 1 << 20), ORDER[point]


def differing(ours: npt.NDArray[Any] | None, golden: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Indices whose bits differ; all when the array is missing or of another size."""
    if ours is None or ours.shape != golden.shape:
        return np.arange(golden.size)
    width = golden.dtype.itemsize
    return np.flatnonzero(ours.view(f"u{width}") != np.ascontiguousarray(golden).view(f"u{width}"))
