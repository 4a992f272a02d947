"""Whether a built bitstream may go to a board: asked by the release before it signs, and by deploy before it loads."""

from __future__ import annotations

from pathlib import Path

from pipelines.base.errors import GateError, Unshippable
from pipelines.base.files import read_json

STAND_IN = "stand-in"
SIMULATION = "verilator"


def require_shippable(folder: Path, *, stand_ins: bool) -> None:
    """Checks the folder of a bitstream (``bitstream.json``, ``gates.json``).

    ``stand_ins``: the board takes what is no real bitstream, which only an emulated one does. Raises GateError when it
    has no gates or a failed one; Unshippable when it is no real bitstream and the board does not take that.
    """
    try:
        about = read_json(folder / "bitstream.json")
        toolchain = about["toolchain"]
    except (OSError, ValueError, KeyError, TypeError):
        raise GateError(
            f"{folder} holds no bitstream whose origin is known", hint="build it with './inv build-bitstream'"
        ) from None
    if toolchain == STAND_IN and not stand_ins:
        raise Unshippable(
            "this bitstream was made by the stand-in for Vivado; it is for tests and does nothing on a board",
            hint="build with a real Vivado: './inv doctor' says what is missing",
        )
    if toolchain == SIMULATION and not stand_ins:
        raise Unshippable(
            "this bitstream is a simulation of the circuits; only an emulated board can run it",
            hint="build it for this board: './inv build-bitstream --board …'",
        )
    if toolchain == SIMULATION:
        return  # a library; it has no gates of implementation
    try:
        gates = read_json(folder / "gates.json")
        failed = [gate["name"] for gate in gates["gates"] if not gate["passed"]]
        complete = bool(gates["gates"]) and gates["passed"] is True
    except (OSError, ValueError, KeyError, TypeError):
        raise GateError(
            f"{folder} holds a bitstream that was never gated", hint="build it with './inv build-bitstream'"
        ) from None
    if failed or not complete:
        raise GateError(f"the bitstream failed its gates: {', '.join(failed) or 'none passed'}", hint="build it again")
