"""Proves bit by bit what runs on a board: circuits, token ids and logits, against the golden model and this machine.

The golden model's integers come from the checkpoint, the board's from the packed image that was deployed. On a
difference the bisector names the first wrong word and what kind of fault it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.base.errors import FormatError, MismatchError
from pipelines.boards.battery import Battery
from pipelines.boards.bisect import Bisector, Finding
from pipelines.boards.compare import Answers, Comparison, compare, expect
from pipelines.boards.damage import damaged_part, told_apart
from pipelines.boards.deploy import needs_root
from pipelines.boards.machines import Machine
from pipelines.boards.session import Session
from pipelines.config.board import Board
from pipelines.golden.forward import GoldenModel
from pipelines.model.image import Image

SECONDS_A_STEP = 120.0  # a full-size model in an emulated board; the driver's own deadline ends a hang much earlier
START_S = 300.0
FETCHED_STEPS = 8  # differing steps whose words are fetched and counted; of the others only that they differ is known


@dataclass(frozen=True)
class Other:
    """A further machine: its name, and how it runs the battery on the tokens that the board was given."""

    machine: Machine
    run: Callable[[list[list[int]]], Answers]


@dataclass
class Verification:
    """What was compared and what came out."""

    board: Machine
    comparison: Comparison
    release: str
    facts: dict[str, Any]
    machines: list[Machine] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)
    finding: Finding | None = None
    hashes: dict[str, Any] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        return self.comparison.equal and all(other["mismatches"] == 0 for other in self.others)

    def json(self) -> dict[str, Any]:
        c = self.comparison
        first = c.first.json() if c.first else None
        if self.finding is not None:
            first = {**(first or {}), **self.finding.json()}
        return {
            "release": self.release,
            "circuits": {
                "matvec_words": c.matvec_words,
                "attention_words": c.attention_words,
                "mismatches": c.circuit_mismatches,
            },
            "values": {"compared": c.other_values, "mismatches": c.other_mismatches},
            "tokens": {
                "prompt": c.tokens_prompt,
                "generated": c.tokens_generated,
                "mismatches": c.token_mismatches,
            },
            "logits": {
                "steps": c.steps,
                "compared": c.logits_compared,
                "mismatches": c.logits_mismatches,
                "first_mismatch": first,
            },
            "machines": [machine.json() for machine in [self.board, *self.machines]],
            "against": self.others,
            "board_facts": self.facts,
            "hashes": self.hashes,
        }


def board_runner(
    session: Session, board: Board, battery: Battery, on_step: Callable[[int, int], None] = lambda done, total: None
) -> Callable[[Mapping[str, Any]], Answers]:
    """How a bisector or a comparison asks this board to run the battery."""

    def run(options: Mapping[str, Any]) -> Answers:
        answers = Answers()

        def event(value: dict[str, Any]) -> None:
            answers.event(value)
            if "logits" in value:
                on_step(len(answers.logits), battery.steps)

        request = {"sequences": [run.json() for run in battery.sequences], **options}
        answers.facts = session.job(
            "verify", request, seconds=START_S + SECONDS_A_STEP * battery.steps, on_event=event, sudo=needs_root(board)
        )
        answers.facts["backend"] = board.backend_shown(answers.facts["backend"])
        return answers

    return run


def verify(
    session: Session,
    board: Board,
    release: str,
    model: GoldenModel,
    battery: Battery,
    *,
    image: Path,
    toolchain: str,
    others: Sequence[Other] = (),
    here: Callable[[Mapping[str, Any]], Answers] | None = None,
    full: bool = False,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Runs the battery on the board and compares. Raises MismatchError, its ``result`` the verification as JSON.

    ``session`` holds the lease and ``release`` is what must be current. ``image`` is the folder of the packed image on
    this machine. ``full`` fetches all logits, not their hashes only.
    """
    current = session.request("manifest")["release"]
    if current != release:
        raise MismatchError(
            f"the wrong release is current on {board.name}: {current[:12]}, not {release[:12]}",
            hint="./inv deploy",
        )
    run = board_runner(session, board, battery, on_step)
    # Every word of every step is compared, by hash: a wrong word that quantisation swallows is a fault as well.
    wanted: dict[str, Any] = {"trace": "all"}
    if full:
        wanted["full"] = "all"
    with told_apart(session, release):
        answers = run(wanted)
    golden = expect(model, battery, answers)
    comparison = compare(battery, answers, golden, model.shape.vocab)
    if not comparison.equal:
        differ = [list(at) for at in sorted(answers.traced) if answers.traced[at] != golden[at[0]].traced[at[1]]]
        again = run({"full": differ, "data": differ[:FETCHED_STEPS]})
        answers.rows, answers.data = again.rows, again.data
        comparison = compare(battery, answers, golden, model.shape.vocab)
    facts = answers.facts
    isa = str(facts.get("machine", "unknown"))
    result = Verification(
        Machine(f"{board.name} ({facts.get('backend')})", isa, toolchain), comparison, release,
        {key: facts.get(key) for key in ("backend", "machine", "circuits", "steps", "complaint")},
        machines=[Machine("golden model from the checkpoint (numpy)", "python", "numpy")],
        hashes={"logits": [answers.logits[at] for at in sorted(answers.logits)]},
    )  # fmt: skip
    tokens = [answers.said(number, run_.steps) for number, run_ in enumerate(battery.sequences)]
    for other in others:
        result.machines.append(other.machine)
        result.others.append(_against(other, answers, tokens))
    if facts.get("complaint"):
        raise MismatchError(
            f"the DMAs of {board.name} complain about the driver: {facts['complaint']}", result=result.json()
        )
    if result.equal:
        return result
    if not comparison.equal:
        result.finding = Bisector(
            model, battery, run, here, [name for name in ("model", "host") if name != facts.get("backend")],
            weights_intact=lambda: damaged_part(session, release),
            image_right=lambda: image_difference(image, model),
        ).find()  # fmt: skip
    raise MismatchError(_sentence(board.name, result), hint=_hint(result), result=result.json())


def _against(other: Other, answers: Answers, tokens: list[list[int]]) -> dict[str, Any]:
    """One further machine: steps compared, steps that differ, the first of them."""
    theirs = other.run(tokens)
    steps = sorted(answers.logits)
    wrong = [at for at in steps if theirs.logits.get(at) != answers.logits[at]]
    return {
        "name": other.machine.name,
        "steps": len(steps),
        "mismatches": len(wrong),
        "first": {"sequence": wrong[0][0], "step": wrong[0][1]} if wrong else None,
    }


def image_difference(folder: Path, model: GoldenModel) -> str:
    """What of the packed image on this machine is not what the checkpoint gives; empty when all is right."""
    try:
        packed = Image.open(folder).golden()
    except FormatError as error:
        return error.message
    for number, (ours, theirs) in enumerate(zip(packed.layers, model.layers, strict=True)):
        for name, codes in theirs.codes.items():
            wrong = (ours.codes[name] != codes).any(axis=1)
            if wrong.any():
                return f"layer {number}, matrix {name}, row {int(wrong.argmax())} is not what the checkpoint gives"
            if ours.scales[name] != theirs.scales[name]:
                return f"layer {number}, the scale of matrix {name} is not what the checkpoint gives"
        for name in ("input_norm", "post_norm", "inner_attn_norm", "ffn_norm", "k_scale", "v_scale"):
            if getattr(ours, name).tobytes() != getattr(theirs, name).tobytes():
                return f"layer {number}, {name} is not what the checkpoint gives"
    if (packed.head_codes != model.head_codes).any():
        row = int((packed.head_codes != model.head_codes).any(axis=1).argmax())
        return f"the output head's row {row} is not what the checkpoint gives"
    for name in ("head_scales", "final_norm", "embedding"):
        if getattr(packed, name).tobytes() != getattr(model, name).tobytes():
            return f"{name} is not what the checkpoint gives"
    return ""


def _sentence(board: str, result: Verification) -> str:
    c = result.comparison
    if result.finding is not None:
        return f"{board} differs from the golden model: {result.finding.sentence()}"
    if c.equal:
        wrong = next(other for other in result.others if other["mismatches"])
        return (
            f"{board} equals the golden model, but {wrong['name']} differs in {wrong['mismatches']} of "
            f"{wrong['steps']} steps, first at {wrong['first']}"
        )
    first = f", first at {c.first.json()}" if c.first else ""
    return f"{board} differed from the golden model{first}, and did not when it ran again: not repeatable"


def _hint(result: Verification) -> str:
    cause = result.finding.cause if result.finding else ""
    return {
        "weights on the board differ": "./inv deploy sends what is damaged again",
        "packed image": "the converter or its kernel is wrong: pipelines/model",
        "DMA or cache": "the driver's transfers and cache maintenance: native/src/driver.c",
        "circuit": "the circuits: ./inv simulate shows them alone",
        "circuit, DMA or cache": "./inv simulate says whether it is the circuits",
        "CPU arithmetic": "a kernel of the runtime: native/src",
    }.get(cause, "run it again; what comes and goes is timing, power or memory")
