"""Whether a built bitstream may go to a board: asked by the release before it signs, and by deploy before it loads."""

from __future__ import annotations

from pathlib import Path

from pipelines.base.errors import GateError, Unshippable
from pipelines.base.files import read_json


def require_shippable(folder: Path, *, emulated: bool) -> None:
    """Checks the folder of a bitstream (``bitstream.json``, ``gates.json``).

    Raises GateError when it has no gates or a failed one; Unshippable when a stand-in made it and the board is real.
    """
    try:
        about = read_json(folder / "bitstream.json")
        toolchain = about["toolchain"]
    except (OSError, ValueError, KeyError, TypeError):
        raise GateError(
            f"{folder} holds no bitstream whose origin is known", hint="build it with 'invoke build-bitstream'"
        ) from None
    if toolchain == "stand-in" and not emulated:
        raise Unshippable(
            "this bitstream was made by the stand-in for Vivado; it is for tests and does nothing on a board",
            hint="build with a real Vivado: 'invoke doctor' says what is missing",
        )
    if toolchain == "verilator":
        return  # a library for an emulated board; it has no gates of implementation
    try:
        gates = read_json(folder / "gates.json")
        failed = [gate["name"] for gate in gates["gates"] if not gate["passed"]]
        complete = bool(gates["gates"]) and gates["passed"] is True
    except (OSError, ValueError, KeyError, TypeError):
        raise GateError(
            f"{folder} holds a bitstream that was never gated", hint="build it with 'invoke build-bitstream'"
        ) from None
    if failed or not complete:
        raise GateError(f"the bitstream failed its gates: {', '.join(failed) or 'none passed'}", hint="build it again")
