"""``generate``: text from a board, shown as it is computed."""

from __future__ import annotations

import sys
from typing import Any

from pipelines.base.errors import UsageError
from pipelines.base.figure import Figure
from pipelines.boards.damage import told_apart
from pipelines.boards.deploy import needs_root
from pipelines.boards.site import Site
from pipelines.commands.context import Context

SECONDS_A_TOKEN = 120.0  # the 0.7 B model in an emulated board; a hung circuit ends at the driver's own deadline
START_S = 300.0


def run(
    context: Context,
    board: str = "",
    prompt: str = "",
    tokens: int = 64,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    repetition_penalty: float = 1.0,
    seed: int = 0,
) -> dict[str, Any]:
    """Keys: ``board``, ``prompt``, ``text``, ``tokens``, ``tokens_per_s`` (a figure), ``prefill_s``."""
    _check(prompt, tokens, temperature, top_k, top_p, repetition_penalty)
    chosen = context.settings.board(board or None)
    site = Site(context.settings, context.state, context.console.say)
    pieces: list[str] = []

    def event(value: dict[str, Any]) -> None:
        pieces.append(value["text"])
        sys.stdout.write(value["text"])
        sys.stdout.flush()

    options = {
        "prompt": prompt, "tokens": tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
        "repetition_penalty": repetition_penalty, "seed": seed,
    }  # fmt: skip
    with site.session(chosen, what="generate") as session:
        sys.stdout.write(prompt)
        sys.stdout.flush()
        try:
            with told_apart(session, session.request("manifest")["release"]):
                done = session.job(
                    "generate", options, seconds=START_S + SECONDS_A_TOKEN * tokens, on_event=event,
                    sudo=needs_root(chosen),
                )  # fmt: skip
        finally:
            sys.stdout.write("\n")
    count = len(done["ids"])
    # An emulated board's circuits are the RTL, its processor an emulator: its speed is no figure of a board.
    evidence = "model" if chosen.takes_stand_ins else "silicon"
    rate = Figure(round(count / done["decode_s"], 3) if done["decode_s"] else 0.0, "tok/s", evidence)  # type: ignore[arg-type]
    return {
        "board": chosen.name,
        "prompt": prompt,
        "text": "".join(pieces),
        "tokens": count,
        "tokens_per_s": rate.json(),
        "prefill_s": round(done["prefill_s"], 3),
        "prompt_tokens": done["prompt_tokens"],
        "ids": done["ids"],
        "backend": chosen.backend_shown(done["backend"]),
        "profile": done["profile"],
    }


def _check(prompt: str, tokens: int, temperature: float, top_k: int, top_p: float, repetition_penalty: float) -> None:
    if not prompt:
        raise UsageError("a prompt is needed", hint='./inv generate --prompt "Once upon a time"')
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise UsageError("the prompt is not UTF-8", hint="is the terminal's encoding UTF-8?") from None
    for name, good, allowed in (
        ("tokens", tokens >= 1, "1 or more"),
        ("temperature", temperature == 0 or 0.001 <= temperature <= 1000, "0 (greedy) or 0.001 to 1000"),
        ("top_k", top_k >= 0, "0 (all) or more"),
        ("top_p", 0 < top_p <= 1, "above 0, at most 1"),
        ("repetition_penalty", 0.001 <= repetition_penalty <= 1000, "0.001 to 1000"),
    ):
        if not good:
            raise UsageError(f"--{name.replace('_', '-')} is out of range; allowed is {allowed}")


def plan(context: Context, board: str = "", **_: Any) -> dict[str, Any]:
    return {"stages": [], "steps": [f"generate on {context.settings.board(board or None).name}"]}


def show(result: dict[str, Any]) -> None:
    rate = result["tokens_per_s"]
    print(f"{result['tokens']} tokens, {rate['value']:.2f} {rate['unit']} [{rate['evidence']}]", file=sys.stderr)
