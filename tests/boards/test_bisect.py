"""A seeded wrong word anywhere: the bisector names the token, the layer and the operation.

Twelve cases here, sixty in the campaign: ``python -m pytest --campaign tests/boards/test_bisect.py``.
The machine under test is this one, with the Verilated circuits; where the words come from makes no difference to the
bisector, and test_faults.py does the same over ssh.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import BoardOffline, BoardUnfit
from pipelines.boards.battery import Battery, battery
from pipelines.boards.bisect import Bisector, Finding
from pipelines.boards.compare import Answers
from pipelines.boards.machines import on_this_machine
from pipelines.boards.reference import expected
from pipelines.boards.verify import image_difference
from pipelines.golden import float32
from pipelines.golden.formats import GROUP_MATRICES
from pipelines.golden.forward import Forward, GoldenModel
from pipelines.runtime import build as runtime_build
from tests.boards.conftest import Built
from tests.boards.images import Numbers, repack
from tests.boards.test_faults import golden  # noqa: F401  a fixture

CASES, CAMPAIGN_CASES = 12, 60
NAMED_RIGHT = 0.95
KINDS = ("weight", "scale", "x", "row result", "numerator", "kernel")
POINTS = {"qkv": "qkv_acc", "o": "o_acc", "gate_up": "gate_up_acc", "down": "down_acc", "head": "head_acc"}
GROUP_OF = {matrix: group for group, matrices in GROUP_MATRICES.items() for matrix in matrices}
X_POINT = {"qkv": "attn_in_code", "o": "o_in_code", "gate_up": "ffn_in_code", "down": "down_in_code"}
SCALE_SHOWS = {"q": "q_rot", "k": "k_rot", "o": "attn_residual", "gate": "ffn_hidden", "up": "ffn_hidden",
               "down": "ffn_residual"}  # fmt: skip
# Kernel of the runtime, the plain-C version: (what is replaced, by what, the points that may show it)
KERNELS = {
    "kernel_rotate.c": ("low * cosine[i] -", "low * cosine[i] * 1.001f -", "q_rot"),
    "kernel_gate.c": ("exp_one(-g))) * u;", "exp_one(-g))) * u * 1.001f;", "ffn_hidden"),
    "kernel_norm.c": ("* r) * weight[i];", "* r) * weight[i] * 1.001f;", "attn_in_code attn_in_scale"),
    "kernel_dequantise.c": ("(float)acc[i] * scale;", "(float)acc[i] * scale * 1.001f;", "q_rot"),
}


@dataclass(frozen=True)
class Case:
    """Where the wrong word is, and how to make it."""

    kind: str
    step: int
    layer: int
    points: str  # of which one must be named
    cause: str
    fault: str = ""
    change: Callable[[Numbers], None] | None = None
    kernel: str = ""


@pytest.fixture(scope="session")
def short(built: Built, golden: GoldenModel) -> Battery:  # noqa: F811
    prompts = (("Once upon a time", 8),)
    return battery(built.weights / "tokenizer.json", golden.shape.bos, golden.shape.context, prompts=prompts)


def greedy(model: GoldenModel, tests: Battery) -> list[int]:
    """The tokens that the battery's only sequence goes through."""
    run, forward = tests.sequences[0], Forward(model)
    said = [run.ids[0]]
    while len(said) < run.steps:
        row = forward([said[-1]])[0]
        said.append(run.ids[len(said)] if len(said) < len(run.ids) else float32.argmax(row))
    return said


def case_of(number: int, model: GoldenModel, tokens: list[int]) -> Case:
    """Case ``number``; kinds take turns."""
    source = random.Random(1000 + number)
    kind = KINDS[number % len(KINDS)]
    shape = model.shape
    layer = source.randrange(shape.layers)
    if kind == "weight":
        matrix = source.choice(list(GROUP_OF))
        group = GROUP_OF[matrix]
        rows, columns = model.layers[layer].codes[matrix].shape
        row, column = source.randrange(rows), source.randrange(columns)
        x = expected(model, tokens, data=range(len(tokens))).data
        # Seen first where the entry of x that this weight meets is not zero.
        steps = [step for step in range(len(tokens)) if x[step][(layer, X_POINT[group])][column]]
        if not steps:
            return case_of(number + 1000 * len(KINDS), model, tokens)

        def change_weight(numbers: Numbers) -> None:
            codes = numbers.layers[layer]["codes"][matrix]
            codes[row, column] = (int(codes[row, column]) + 2) % 3 - 1

        return Case(kind, steps[0], layer, POINTS[group], "packed image", change=change_weight)
    if kind == "scale":
        matrix = source.choice(list(SCALE_SHOWS))

        def change_scale(numbers: Numbers) -> None:
            numbers.layers[layer]["scales"][matrix] *= np.float32(1.01)

        return Case(kind, 0, layer, SCALE_SHOWS[matrix], "packed image", change=change_scale)
    if kind in ("x", "row result"):
        token = source.randrange(len(tokens))
        at = source.randrange(4 * shape.layers + 1)  # groups of a token, the head last; one transfer each and port
        group = "head" if at == 4 * shape.layers else list(GROUP_MATRICES)[at % 4]
        name = "wrong_input" if kind == "x" else "wrong_word"
        fault = f"{name}@matvec{source.randrange(2)}:{token * (4 * shape.layers + 1) + at + 1}"
        return Case(kind, token, -1 if group == "head" else at // 4, POINTS[group], "circuit", fault=fault)
    if kind == "numerator":
        token = source.randrange(len(tokens))
        fault = f"wrong_word@attention{source.randrange(2)}:{token * shape.layers + layer + 1}"
        return Case(kind, token, layer, "attn_acc", "circuit", fault=fault)
    kernel = sorted(KERNELS)[number // len(KINDS) % len(KERNELS)]
    return Case(kind, 0, 0, KERNELS[kernel][2], "CPU arithmetic", kernel=kernel)


def broken_runtime(kernel: str, folder: Path) -> Path:
    """The runtime with one product of a kernel a thousandth too large."""
    sources = folder / "src"
    shutil.copytree(runtime_build.NATIVE / "src", sources)
    path = sources / kernel
    text = path.read_text()
    before, after, _ = KERNELS[kernel]
    assert before in text, f"{kernel} has changed; change the mutation with it"
    path.write_text(text.replace(before, after))
    library = folder / "libtritforge.so"
    runtime_build.compile_c(
        runtime_build.host_target(), sorted(sources.glob("*.c")), library, deadline=Deadline.after(300),
        log=folder / "log", flags=["-shared", f"-I{sources}"],
    )  # fmt: skip
    return library


def find(
    case: Case, built: Built, model: GoldenModel, tests: Battery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Finding | None:
    weights, runtime = built.weights, built.runtime
    if case.change is not None:
        weights = tmp_path / "image"
        weights.mkdir()
        repack(built.weights, weights, case.change)
    if case.kernel:
        runtime = broken_runtime(case.kernel, tmp_path)

    def run(options: Mapping[str, Any]) -> Any:
        monkeypatch.setenv("TRITFORGE_FAULT", case.fault)
        backend = options.get("backend") or "rtl"
        pl = built.rtl if backend == "rtl" else built.model
        if backend != "rtl":
            monkeypatch.setenv("TRITFORGE_FAULT", "")  # the fault is the circuits', not the driver's
        return on_this_machine(runtime, weights, tests, options, backend=backend, pl=pl)

    return Bisector(
        model, tests, run, None, ("model", "host"), weights_intact=lambda: "",
        image_right=lambda: image_difference(weights, model),
    ).find()  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="ctypes libraries of Linux")
def test_seeded_wrong_words_are_named(
    built: Built,
    golden: GoldenModel,  # noqa: F811
    short: Battery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    full_campaigns: bool,
) -> None:
    tokens = greedy(golden, short)
    wrong: list[str] = []
    cases = CAMPAIGN_CASES if full_campaigns else CASES
    for number in range(cases):
        case = case_of(number, golden, tokens)
        folder = tmp_path / str(number)
        folder.mkdir()
        found = find(case, built, golden, short, folder, monkeypatch)
        named = found is not None and (found.step, found.layer) == (case.step, case.layer)
        if not (named and found is not None and found.point in case.points.split() and found.cause == case.cause):
            wrong.append(f"{number}: {case} was found as {found}")
        print(number, case.kind, "named" if not wrong or not wrong[-1].startswith(f"{number}:") else "WRONG")
    assert len(wrong) <= cases * (1 - NAMED_RIGHT), "\n".join(wrong)


def test_nothing_wrong_finds_nothing(
    built: Built,
    golden: GoldenModel,  # noqa: F811
    short: Battery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert find(Case("none", 0, 0, "", ""), built, golden, short, tmp_path, monkeypatch) is None


@pytest.mark.parametrize(
    ("runs", "cause", "reason"),
    [
        ({"model": "right", "host": "right"}, "circuit", "with functional circuits the word is right"),
        ({"model": "wrong", "host": "right"}, "DMA or cache", "functional circuits behind the same driver"),
        ({"host": "right"}, "circuit, DMA or cache", "without circuits the word is right"),
        ({}, "circuit, DMA or cache", "nothing else could run"),
        ({"host": "wrong"}, "CPU arithmetic", "processor alone"),
        ({"model": "gone"}, "", ""),
    ],
)
def test_what_did_not_run_proves_nothing(runs: dict[str, str], cause: str, reason: str) -> None:
    """A release for a fabric has no functional circuits; and a board that goes away is not said to have wrong ones."""
    key, right, wrong = (0, "o_acc"), np.zeros(4, dtype=np.int32), np.ones(4, dtype=np.int32)

    def run(options: Mapping[str, Any]) -> Answers:
        how = runs.get(options.get("backend", ""), "cannot") if "backend" in options else "wrong"
        if how == "cannot":
            raise BoardUnfit("this release has no functional circuits")
        if how == "gone":
            raise BoardOffline("the connection was lost")
        return Answers(data={(0, 1): {key: wrong if how == "wrong" else right}})

    nothing: Any = None
    bisector = Bisector(nothing, nothing, run, None, ("model", "host"), lambda: "", lambda: "")
    if not cause:
        with pytest.raises(BoardOffline):
            bisector._classify(0, 1, key, wrong)
        return
    found, why, _ = bisector._classify(0, 1, key, wrong)
    assert found == cause and reason in why
