"""The perplexity table: what rounding weights, head and attention costs, each with its confidence.

A text is cut into windows of the model's context that do not overlap, each begun with ``<s>``; the tokens behind the
last whole window are left out. Confidence comes from the windows taken as independent: 95 % intervals of the mean
loss, and of the difference to the row that a row is compared with, window by window.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError, ToolTimeout
from pipelines.golden import ternary
from pipelines.golden.forward import Forward, GoldenModel
from pipelines.model import quantise, rounding
from pipelines.model.bigram import FILE as BIGRAMS
from pipelines.model.bigram import BigramTable
from pipelines.model.checkpoint import Architecture, Checkpoint
from pipelines.model.twin import Attention, KvScales, Rounding, Twin, int8_tokens

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
Progress = Callable[[float, float], None]
"""Called with (parts done, parts in all)."""

TWIN = "twin"  # folder inside a checkpoint's folder: the same shape and steps, trained in float32
HEAD_PLANES = (1, 2, 3)
SHORTLISTS = (1, 4, 16, 64, 256)
CONFIDENCE = 1.959964  # standard errors of a two-sided 95 % interval
PROCESSES = 2
LARGE = 50_000_000  # parameters; beyond, only LARGE_TOKENS tokens are evaluated, one part at a time
LARGE_TOKENS = 4096
CLOSE = 0.02  # two best logits nearer than this may change places between two computations

# The battery of greedy continuations on which the integer path is held against the float simulation.
BATTERY = (
    "It was a truth",
    "Mr. Darcy",
    '"My dear Emma,"',
    "The ladies of the house",
    "Captain Wentworth had",
    "She had never been",
    "In the evening",
    "Elinor could not",
)
BATTERY_TOKENS = 48

# What the earlier work measured for bitnet_b1_58-large (hidden 1536, 24 layers), under the names of the rows here.
REFERENCE_SHAPE = (1536, 24)
REFERENCE = {
    "ternary, head fp16": 17.90,
    "ternary, head int8": 17.89,
    "ternary, head 1 plane": 35.56,
    "attention: fixed shift": 58.25,
    "attention: m, scales of the window": 35.90,
    "attention: m, calibrated scales": 35.61,
}


@dataclass(frozen=True)
class Row:
    """One line of the table. ``losses`` float64[windows, T] in nats; ``against`` names the row it is compared with."""

    name: str
    losses: F64
    against: str = ""


def windows(tokenizer: Path, text: str, length: int, bos: int) -> I32:
    """int32[n, 1 + length]: ``<s>`` and ``length`` tokens each. ConfigError if the text fills not one window."""
    from tokenizers import Tokenizer

    ids = np.array(Tokenizer.from_file(str(tokenizer)).encode(text, add_special_tokens=False).ids, dtype=np.int32)
    count = len(ids) // length
    if not count:
        raise ConfigError(f"the evaluation text has {len(ids)} tokens, fewer than one window of {length}")
    body = ids[: count * length].reshape(count, length)
    return np.concatenate([np.full((count, 1), bos, dtype=np.int32), body], axis=1)


def losses(hidden: F32, head: F32, ids: I32) -> F64:
    """Nats of each token, float64[n, T]; hidden float32[n, T, hidden], ids int[n, 1 + T]."""
    return np.stack([losses_of_logits(h @ head.T, row[1:]) for h, row in zip(hidden, ids, strict=True)])


def losses_of_logits(logits: F32, targets: I32) -> F64:
    """Nats of each target: log of the softmax' denominator minus the target's logit; logits float32[T, vocab]."""
    largest = logits.max(axis=-1, keepdims=True)
    total = np.exp(logits - largest).sum(axis=-1, dtype=np.float64)
    chosen = np.take_along_axis(logits, targets[:, None].astype(np.int64), axis=-1)[:, 0]
    return np.asarray(np.log(total) + largest[:, 0] - chosen, dtype=np.float64)


def describe(rows: Sequence[Row], reference: Mapping[str, float]) -> list[dict[str, Any]]:
    """The rows as JSON: perplexity with its 95 % interval, and the ratio to the row compared with, with its own."""
    by_name = {row.name: row for row in rows}
    described = []
    for row in rows:
        mean, error = _mean_and_error(row.losses.mean(axis=1))
        entry: dict[str, Any] = {
            "name": row.name,
            "perplexity": round(math.exp(mean), 4),
            "low": round(math.exp(mean - CONFIDENCE * error), 4),
            "high": round(math.exp(mean + CONFIDENCE * error), 4),
            "tokens": int(row.losses.size),
        }
        base = by_name.get(row.against)
        if base is not None:
            mean, error = _mean_and_error((row.losses - base.losses).mean(axis=1))
            entry["against"] = row.against
            entry["ratio"] = round(math.exp(mean), 5)
            entry["ratio_low"] = round(math.exp(mean - CONFIDENCE * error), 5)
            entry["ratio_high"] = round(math.exp(mean + CONFIDENCE * error), 5)
        if row.name in reference:
            entry["reference"] = reference[row.name]
        described.append(entry)
    return described


def _mean_and_error(values: F64) -> tuple[float, float]:
    """Mean and its standard error; an infinite error of one window says that there is no telling."""
    mean = float(values.mean())
    if values.size < 2:
        return mean, math.inf
    return mean, float(values.std(ddof=1) / math.sqrt(values.size))


@dataclass(frozen=True)
class Subject:
    """What is evaluated: a checkpoint and, for a model that can be packed, its golden form out of the image."""

    checkpoint: Checkpoint
    tokenizer: Path
    golden: GoldenModel | None
    ids: I32
    head_planes: int

    @property
    def kv_scales(self) -> KvScales | None:
        if self.golden is None:
            return None
        return KvScales(
            np.stack([layer.k_scale for layer in self.golden.layers]),
            np.stack([layer.v_scale for layer in self.golden.layers]),
        )


@dataclass(frozen=True)
class Found:
    """What one part of the evaluation yields: rows of the table, and figures beside it."""

    rows: list[Row]
    figures: dict[str, Any] = field(default_factory=dict)


Part = Callable[[], Found]


def evaluate(subject: Subject, *, deadline: Deadline, progress: Progress | None = None) -> dict[str, Any]:
    """The whole table: ``rows``, and for a packed model ``shortlist``, ``agreement``, ``saturations``; ``warning``."""
    parts = _parts(subject)
    rows: list[Row] = []
    figures: dict[str, Any] = {}
    for done, found in enumerate(_results(parts, subject, deadline), 1):
        rows += found.rows
        figures |= found.figures
        if progress is not None:
            progress(done, len(parts))
    a = subject.checkpoint.architecture
    reference = REFERENCE if (a.hidden, a.layers) == REFERENCE_SHAPE else {}
    described = describe(rows, reference)
    return {
        "rows": described,
        "windows": len(subject.ids),
        "window": subject.ids.shape[1] - 1,
        "warning": warning(described),
        **figures,
    }


def _results(parts: list[Part], subject: Subject, deadline: Deadline) -> Iterator[Found]:
    """Results in order: of a small model by two processes of one thread each, of a large one by numpy's own threads."""
    late = f"the evaluation did not end within {deadline.seconds:.0f} s"
    if parameters(subject.checkpoint.architecture) > LARGE:
        for part in parts:
            if deadline.expired():
                raise ToolTimeout(late)
            yield part()
        return
    with _environment("OPENBLAS_NUM_THREADS", "1"):  # two products at once would fight over numpy's threads
        pool = ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn"))
        try:
            for future in [pool.submit(part) for part in parts]:
                try:
                    yield future.result(timeout=deadline.remaining())
                except TimeoutError:
                    raise ToolTimeout(late) from None
        except BaseException:
            for process in list((pool._processes or {}).values()):  # they would compute on for nobody
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """A variable for the processes that are started meanwhile."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def parameters(a: Architecture) -> int:
    return sum(math.prod(shape) for _, shape in a.tensors())


def warning(rows: Sequence[Mapping[str, Any]]) -> str:
    """What to say before such a model is deployed; empty if its ternary form is not far worse."""
    found = {row["name"]: row["perplexity"] for row in rows}
    plain = found.get("not rounded", found.get("latent weights, not rounded"))
    rounded = found.get("rounded: absmean", found.get("ternary, head fp16"))
    return "" if plain is None or rounded is None else rounding.warning(plain, rounded)


def _parts(subject: Subject) -> list[Part]:
    folder = subject.checkpoint.folder
    parts: list[Part] = []
    if (folder / BIGRAMS).exists():
        parts.append(partial(_bigrams, folder / BIGRAMS, subject.ids))
    if subject.golden is None:
        return parts + _float_parts(subject.checkpoint, subject.ids, "")
    if (folder / TWIN).is_dir():
        parts += _float_parts(Checkpoint.open(folder / TWIN), subject.ids, "float twin, ")
    parts.append(partial(_not_rounded, subject))
    parts.append(partial(_heads, subject))
    attention: tuple[tuple[str, Attention], ...] = (
        ("attention: fixed shift", "shift"),
        ("attention: m, scales of the window", "m_window"),
        ("attention: m, calibrated scales", "m_fixed"),
        ("attention: int8 q, K, V, exact exponential", "int8_softmax"),
    )
    parts += [partial(_attention, subject, name, kind) for name, kind in attention]
    parts.append(partial(_integers, subject))
    parts.append(partial(_agreement, subject))
    return parts


def _bigrams(table: Path, ids: I32) -> Found:
    return Found([Row("bigram table", BigramTable.load(table).losses(ids))])


def _float_parts(checkpoint: Checkpoint, ids: I32, prefix: str) -> list[Part]:
    """A model trained in floating point: as it is, and rounded in two ways."""
    roundings: tuple[tuple[str, Rounding | None], ...] = (
        ("not rounded", None),
        ("rounded: absmean", ternary.ternarise),
        ("rounded: least squares", quantise.least_squares),
    )
    base = prefix + roundings[0][0]
    return [partial(_rounded, checkpoint, ids, prefix + name, by, base) for name, by in roundings]


def _rounded(checkpoint: Checkpoint, ids: I32, name: str, by: Rounding | None, base: str) -> Found:
    twin = Twin.load(checkpoint, rounding=by, int8_activations=by is not None)
    return Found([Row(name, losses(hidden(twin, ids), twin.head, ids), base if by else "")])


def hidden(twin: Twin, ids: I32, attention: Attention = "softmax") -> F32:
    """Final hidden states float32[n, T, hidden], a few windows at a time."""
    few = max(1, 4096 // ids.shape[1])
    return np.concatenate([twin.hidden(ids[i : i + few, :-1], attention) for i in range(0, len(ids), few)])


def ternary_twin(subject: Subject) -> Twin:
    """The float simulation: ternary weights, int8 activations, everything between in float32."""
    return Twin.load(subject.checkpoint, rounding=ternary.ternarise, int8_activations=True, kv_scales=subject.kv_scales)


def planes_head(head: F32, planes: int) -> F32:
    """The head as the board's planes represent it, float32[vocab, hidden]."""
    left, sum_ = head.copy(), np.zeros_like(head)
    for _ in range(planes):
        codes, scale = ternary.ternarise(left)
        plane = codes.astype(np.float32) * scale
        sum_ += plane
        left -= plane
    return sum_


def _planes(count: int) -> str:
    return f"{count} plane" + ("s" if count > 1 else "")


def _not_rounded(subject: Subject) -> Found:
    twin = Twin.load(subject.checkpoint, rounding=None, int8_activations=False)
    return Found([Row("latent weights, not rounded", losses(hidden(twin, subject.ids), twin.head, subject.ids))])


def _heads(subject: Subject) -> Found:
    twin = ternary_twin(subject)
    states = hidden(twin, subject.ids)
    base = "ternary, head fp16"
    rows = [
        Row(base, losses(states, twin.head, subject.ids)),
        Row("ternary, head int8", losses(states, quantise.int8_rows(twin.head), subject.ids), base),
    ]
    codes = int8_tokens(states)
    for planes in sorted({*HEAD_PLANES, subject.head_planes}):
        head = planes_head(twin.head, planes)
        rows.append(Row(f"ternary, head {_planes(planes)}", losses(codes, head, subject.ids), base))
    return Found(rows, {"shortlist": shortlist(states, codes, twin.head, planes_head(twin.head, 1))})


def shortlist(states: F32, codes: F32, head: F32, plane: F32) -> list[dict[str, Any]]:
    """How often the best token of the full head is among the K best of one ternary plane, and the worst rank."""
    ranks = []
    for full, few in zip(states, codes, strict=True):
        best = (full @ head.T).argmax(axis=-1)
        rough = few @ plane.T
        ranks.append((rough > np.take_along_axis(rough, best[:, None], axis=-1)).sum(axis=-1))
    rank = np.concatenate(ranks)
    found: list[dict[str, Any]] = [{"best_of": k, "share": round(float((rank < k).mean()), 5)} for k in SHORTLISTS]
    return [*found, {"worst_rank": int(rank.max()) + 1, "tokens": int(rank.size)}]


def _attention(subject: Subject, name: str, kind: Attention) -> Found:
    twin = ternary_twin(subject)
    head = planes_head(twin.head, subject.head_planes)
    found = losses(int8_tokens(hidden(twin, subject.ids, kind)), head, subject.ids)
    return Found([Row(name, found, f"ternary, head {_planes(subject.head_planes)}")])


def _integers(subject: Subject) -> Found:
    """The path of the board. ``Forward`` starts anew for every window."""
    assert subject.golden is not None
    forward = Forward(subject.golden)
    found = []
    for row in subject.ids:
        forward.reset()
        found.append(losses_of_logits(forward(row[:-1]), row[1:]))
    row = Row("integer path of the board", np.stack(found), "attention: m, calibrated scales")
    return Found([row], {"saturations": forward.saturations})


def _agreement(subject: Subject) -> Found:
    """Greedy tokens of the integer path and of float simulations of it, on the same contexts.

    The first simulation has the circuits' attention (calibrated scales, m, the table of exponentials); the second an
    exact exponential instead, which shows what the table's step of 1/16 does to single tokens.
    """
    from tokenizers import Tokenizer

    assert subject.golden is not None
    tokenizer = Tokenizer.from_file(str(subject.tokenizer))
    twin = ternary_twin(subject)
    head = planes_head(twin.head, subject.head_planes)
    forward = Forward(subject.golden)
    kinds: tuple[tuple[str, Attention], ...] = (
        ("float simulation of the circuits", "m_fixed"),
        ("float simulation, exact exponential", "int8_softmax"),
    )
    gaps: dict[str, list[list[F32]]] = {name: [] for name, _ in kinds}
    for prompt in BATTERY:
        ids: list[int] = tokenizer.encode(prompt).ids
        begin = len(ids)
        forward.reset()
        logits = forward(ids)
        own = []
        while len(ids) < min(begin + BATTERY_TOKENS, subject.golden.shape.context):
            own.append(logits[-1])
            ids.append(int(logits[-1].argmax()))
            logits = forward(ids[-1:])
        for name, kind in kinds:
            simulated = int8_tokens(twin.hidden(np.array([ids]), kind))[0, begin - 1 : -1] @ head.T
            gaps[name].append(_gaps(np.stack(own), simulated))
    return Found([], {"agreement": [_agreed(name, found) for name, found in gaps.items()]})


def _gaps(own: F32, simulated: F32) -> list[F32]:
    """Of each step float32[n]: own best logit minus own second, the same two in the simulation, and the simulation's
    own two best. The second is negative where the simulation likes another token better.
    """
    steps = np.arange(len(own))
    best, second = np.argsort(own, axis=-1)[:, :-3:-1].T
    theirs = np.sort(simulated, axis=-1)[:, -2:]
    return [
        own[steps, best] - own[steps, second],
        simulated[steps, best] - simulated[steps, second],
        np.where(simulated.argmax(axis=-1) == best, np.inf, theirs[:, 1] - theirs[:, 0]),
    ]


def _agreed(name: str, found: list[list[F32]]) -> dict[str, Any]:
    own, same, gap = (np.concatenate(parts) for parts in zip(*found, strict=True))
    differ = np.isfinite(gap)
    return {
        "with": name,
        "close_below": CLOSE,
        "steps": int(gap.size),
        "differ": int(differ.sum()),
        "differ_although_not_close": int((gap[differ] >= CLOSE).sum()),
        "widest_gap_that_differs": round(float(gap[differ].max(initial=0)), 4),
        # How far the gap between the two best logits lies apart in the two computations: the noise that decides.
        "gap_deviation": round(float((same - own).std()), 4),
    }
