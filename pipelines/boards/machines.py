"""Further machines that the battery runs on: this one's library, another instruction set under qemu-user."""

from __future__ import annotations

import hashlib
import platform
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.command import find_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError, ToolFailed, ToolTimeout
from pipelines.boards.battery import Battery
from pipelines.boards.compare import Answers
from pipelines.golden import float32
from pipelines.runtime.build import compile_c
from pipelines.runtime.host import HostRuntime

STEPS_SOURCE = Path(__file__).with_name("steps.c")
QEMU = {
    # target: (emulator, folder of the target's C library, CPU: the board's own, so that what it cannot do traps)
    "armv7": ("qemu-arm", "/usr/arm-linux-gnueabihf", "cortex-a9", "armv7-linux"),
    "aarch64": ("qemu-aarch64", "/usr/aarch64-linux-gnu", "cortex-a53", "aarch64-linux"),
}


@dataclass(frozen=True)
class Machine:
    """One line of verify's ``machines``."""

    name: str
    isa: str
    toolchain: str

    def json(self) -> dict[str, str]:
        return {"name": self.name, "isa": self.isa, "toolchain": self.toolchain}


def on_this_machine(
    library: Path, weights: Path, battery: Battery, options: Mapping[str, Any], *, backend: str, pl: Path | None
) -> Answers:
    """The battery with this machine's build of the runtime: the same as the board's job, without a board."""
    answers = Answers()
    chosen = options.get("backend") or backend
    extra = {"pl_library": pl} if chosen in ("model", "rtl") and pl is not None else {}
    wanted = {tuple(at) for at in options.get("data", ())}
    everything = options.get("trace") == "all"
    with HostRuntime(library, weights, chosen, **extra) as machine:
        for number, run in enumerate(battery.sequences):
            if number:
                machine.reset()
            token = run.ids[0]
            for step in range(run.steps):
                at = (number, step)
                seen: dict[tuple[int, str], Any] = {}
                if everything or at in wanted:
                    machine.trace(lambda point, layer, value, seen=seen: seen.__setitem__((layer, point), value.copy()))  # type: ignore[misc]
                row = machine.forward(token)
                machine.trace(None)
                answers.tokens[at] = token
                answers.logits[at] = hashlib.sha256(row.tobytes()).hexdigest()
                answers.rows[at] = row.tobytes()
                answers.following[at] = float32.argmax(row)
                if at in wanted:
                    answers.data[at] = seen
                if everything:
                    total = hashlib.sha256()
                    for key in sorted(seen):
                        total.update(seen[key].tobytes())
                    answers.traced[at] = total.hexdigest()
                token = run.ids[step + 1] if step + 1 < len(run.ids) else answers.following[at]
    return answers


def under_qemu(
    isa: str, runtime: Path, weights: Path, battery: Battery, tokens: list[list[int]], deadline: Deadline, log: Path
) -> Answers:
    """The battery's tokens through the library of another instruction set, by ``steps.c`` under qemu-user.

    ``runtime`` is the folder of that target's ``libtritforge.so``; ``tokens`` what each sequence was given elsewhere.
    """
    emulator, sysroot, cpu, target = QEMU[isa]
    qemu = find_tool(emulator)
    if not Path(sysroot).is_dir():
        raise ConfigError(
            f"there is no C library for {isa} in {sysroot}",
            hint=f"apt-get install {'gcc-arm-linux-gnueabihf' if isa == 'armv7' else 'gcc-aarch64-linux-gnu'}",
        )
    answers = Answers()
    with tempfile.TemporaryDirectory(prefix="tritforge-steps-") as scratch:
        program = Path(scratch) / "steps"
        compile_c(target, [STEPS_SOURCE], program, deadline=deadline, log=log, flags=[str(runtime / "libtritforge.so")])
        for number, run in enumerate(battery.sequences):
            process = subprocess.Popen(
                [str(qemu), "-L", sysroot, "-E", f"LD_LIBRARY_PATH={runtime}", str(program),
                 *(str(weights / name) for name in ("params.tfp", "weights.tfs", "embedding.f16"))],
                env={"QEMU_CPU": cpu, "PATH": "/usr/bin:/bin"},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            request = b"".join(struct.pack("<I", token) for token in tokens[number])
            try:
                out, words = process.communicate(request, timeout=deadline.remaining())
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise ToolTimeout(f"{emulator} did not end within {deadline.seconds:.0f} s", log=log) from None
            if process.returncode != 0:
                raise ToolFailed(f"steps.c under {emulator}: {words.decode(errors='replace').strip()}", log=log)
            row_bytes = len(out) // run.steps
            for step in range(run.steps):
                raw = out[step * row_bytes : (step + 1) * row_bytes]
                at = (number, step)
                answers.tokens[at] = tokens[number][step]
                answers.logits[at] = hashlib.sha256(raw).hexdigest()
                answers.rows[at] = raw
                answers.following[at] = float32.argmax(np.frombuffer(raw, dtype="<f4"))
    return answers


def this_machine(toolchain: str, backend: str) -> Machine:
    return Machine(f"this machine ({backend})", platform.machine(), toolchain)
