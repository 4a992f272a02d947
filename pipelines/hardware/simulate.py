"""One token late in a conversation through the RTL: the runtime's own driver, its own order of transfers, every word.

The runtime runs as it is (linked with ``hw/sim/token.c``, which lays down K and V of the positions before). Its trace
gives each group's input and result, which the golden model checks. Time is that of the simulated clock: the
processor's own computing takes none of it, register accesses and waiting do.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.base.deadline import Deadline
from pipelines.base.errors import MismatchError, ToolFailed, UsageError
from pipelines.base.figure import Figure
from pipelines.golden import attention, formats, ternary
from pipelines.golden.float32 import I8, I32
from pipelines.golden.forward import ModelShape
from pipelines.hardware.library import EngineCounters
from pipelines.model.image import Image
from pipelines.runtime.build import RELEASE_FLAGS, compile_c, host_target, runtime_sources
from pipelines.runtime.host import HostRuntime

ROOT = Path(__file__).resolve().parents[2]
TOKEN_SOURCE = ROOT / "hw" / "sim" / "token.c"

CLOCK_HZ = 125e6
MEMORY_BYTES_PER_S = 2.009e9  # measured read wall of the board
REFERENCE_MATVEC_MS = 87.3
REFERENCE_ATTENTION_MS = 22.0  # at T = 500 to 512; 5.3 at 64
WAVES_LIMIT_BYTES = 4 << 20
"""Weights of the largest model that waveforms are offered for: a VCD takes about a kilobyte a cycle."""

# The trace point that reports a group's input, and the one that reports its result.
_GROUPS = {
    "qkv": ("attn_in_code", "qkv_acc"),
    "o": ("o_in_code", "o_acc"),
    "gate_up": ("ffn_in_code", "gate_up_acc"),
    "down": ("down_in_code", "down_acc"),
    "head": ("head_in_code", "head_acc"),
}
_ATTENTION = ("q_code", "score_m", "k_code", "v_code", "attn_acc")


@dataclass
class Token:
    """What one simulated token left: traced arrays by (point, layer), counters by engine, cycles by circuit."""

    traced: dict[tuple[str, int], npt.NDArray[np.generic]]
    counters: tuple[EngineCounters, ...]
    cycles: dict[str, int]  # matvec, attention, between: from one trace point to the next
    cpu_s: float
    complaint: str

    @property
    def total_cycles(self) -> int:
        return sum(self.cycles.values())


@dataclass
class Check:
    """Result words compared with the golden model, and where the first difference is."""

    words: dict[str, int] = field(default_factory=lambda: {"matvec": 0, "attention": 0})
    mismatches: dict[str, int] = field(default_factory=lambda: {"matvec": 0, "attention": 0})
    first: str = ""

    def compare(self, circuit: str, where: str, found: I32, wanted: I32) -> None:
        wrong = np.flatnonzero(found.reshape(-1) != wanted.reshape(-1))
        self.words[circuit] += wanted.size
        self.mismatches[circuit] += wrong.size
        if wrong.size and not self.first:
            at = int(wrong[0])
            self.first = f"{where}, word {at}: {int(found.reshape(-1)[at])}, expected {int(wanted.reshape(-1)[at])}"


def build_token_library(out: Path, *, deadline: Deadline, log: Path) -> Path:
    """The runtime with ``token_fill``, for this machine."""
    return compile_c(
        host_target(),
        [*runtime_sources(), TOKEN_SOURCE],
        out,
        deadline=deadline,
        log=log,
        flags=["-shared", *RELEASE_FLAGS],
    )


def history(shape: ModelShape, positions: int, seed: int = 1) -> tuple[I8, I8]:
    """K and V of the positions before, int8[layers, heads, positions, head_dim] each, drawn once."""
    random = np.random.default_rng(seed)
    size = (shape.layers, shape.heads, positions, shape.head_dim)
    keys, values = (random.integers(-127, 128, size, dtype=np.int8) for _ in range(2))
    return keys, values


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_token(
    token_library: Path,
    pl_library: Path,
    weights: Path,
    keys: I8,
    values: I8,
    *,
    backend: str = "rtl",
    memory_wall: bool,
    token: int = 1,
    waves: Path | None = None,
) -> Token:
    """Says one token after ``keys.shape[2]`` positions and returns all that the circuits were asked and answered."""
    environment = {"TRITFORGE_RTL_OPTIONS": f"ddr={int(memory_wall)}"}
    if waves is not None:
        environment["TRITFORGE_WAVES"] = str(waves)
    positions = int(keys.shape[2])
    traced: dict[tuple[str, int], npt.NDArray[np.generic]] = {}
    cycles = {"matvec": 0, "attention": 0, "between": 0}
    last = 0

    with (
        _environment(environment),
        HostRuntime(token_library, weights, backend, pl_library=pl_library, context=positions + 1) as runtime,
    ):
        native = runtime.native
        fill = native._lib.token_fill
        fill.argtypes = [native._handle.__class__, *3 * [native._handle.__class__]]
        status = fill(
            native._handle, positions, np.ascontiguousarray(keys).ctypes.data, np.ascontiguousarray(values).ctypes.data
        )
        if status != 0:
            raise ToolFailed(f"token_fill refused {positions} positions (status {status})")

        def clock() -> int:
            return int(native.read_control(formats.REGISTERS["CYCLES_LO"]))

        results = {result for _, result in _GROUPS.values()}

        def report(point: str, layer: int, array: npt.NDArray[np.generic]) -> None:
            nonlocal last
            if point in results or point in _ATTENTION or any(point == code for code, _ in _GROUPS.values()):
                traced[point, layer] = array.copy()
            circuit = "matvec" if point in results else "attention" if point == "attn_acc" else ""
            starts = point in {code for code, _ in _GROUPS.values()} or point == "v_code"
            if circuit or starts:
                now = clock()
                cycles[circuit or "between"] += now - last & 0xFFFF_FFFF
                last = now

        # The rings are set up and the weights cleaned: only the token counts from here.
        native.read_control(formats.REGISTERS["ID"])
        last = clock()
        runtime.trace(report)
        started = time.process_time()
        runtime.forward(token)
        cpu_s = time.process_time() - started
        runtime.trace(None)
        counters = tuple(
            EngineCounters(
                **{
                    name.lower(): native.read_control(formats.ENGINE_BASE + formats.ENGINE_STRIDE * engine + offset)
                    for name, offset in formats.ENGINE_REGISTERS.items()
                }
            )
            for engine in range(len(formats.ENGINES))
        )
        return Token(traced, counters, cycles, cpu_s, native.complaint())


def check_token(token: Token, image: Image, keys: I8, values: I8, check: Check | None = None) -> Check:
    """Every result word of the token against the golden model, from the inputs that the circuits were given.

    Adds to ``check`` where one is given.
    """
    check = check or Check()
    shape = image.shape
    for layer in range(shape.layers + 1):
        for group in formats.GROUPS:
            if (group == "head") != (layer == shape.layers):
                continue
            source, result = _GROUPS[group]
            at = -1 if group == "head" else layer
            x = token.traced[source, at].astype(np.int8)
            wanted = ternary.product(image.group(layer, group), x)
            check.compare("matvec", f"layer {layer}, {group}", token.traced[result, at].astype(np.int32), wanted)
    bits = formats.probability_bits(shape.context)
    for layer in range(shape.layers):
        q, m, k, v, found = (token.traced[name, layer] for name in _ATTENTION)
        per_head = (shape.heads, shape.head_dim)
        k_all = np.concatenate([keys[layer], k.astype(np.int8).reshape(per_head)[:, None]], axis=1)
        v_all = np.concatenate([values[layer], v.astype(np.int8).reshape(per_head)[:, None]], axis=1)
        wanted = np.empty((shape.heads, shape.head_dim + 1), dtype=np.int32)
        for head in range(shape.heads):
            numerators, denominator = attention.attend(
                q.astype(np.int8).reshape(per_head)[head], k_all[head], v_all[head], int(m[head]), bits
            )
            wanted[head, :-1], wanted[head, -1] = numerators, denominator
        check.compare("attention", f"layer {layer}, attention", found.astype(np.int32), wanted)
    return check


def simulate(
    token_library: Path, pl_library: Path, weights: Path, positions: int, *, waves: Path | None = None
) -> dict[str, Any]:
    """One token at T = ``positions``, twice: against the memory wall and without. The keys of ``./inv simulate``.

    Raises MismatchError, with the same keys in its ``result``, when a word differs or the driver broke a rule.
    """
    started = time.process_time()
    image = Image.open(weights)
    shape = image.shape
    if not 1 <= positions <= shape.context:
        raise UsageError(f"--context {positions}: the image of this model has 1 to {shape.context} positions")
    if waves is not None and image.header.stream_bytes > WAVES_LIMIT_BYTES:
        raise UsageError(
            f"waveforms of a token with {image.header.stream_bytes} bytes of weights would fill the disk",
            hint="take the waveforms of a small model: --model tiny",
        )
    keys, values = history(shape, positions - 1)
    walled = run_token(token_library, pl_library, weights, keys, values, memory_wall=True, waves=waves)
    free = run_token(token_library, pl_library, weights, keys, values, memory_wall=False)
    check = check_token(walled, image, keys, values)
    for name, array in walled.traced.items():
        if not np.array_equal(array, free.traced[name]):
            check.mismatches["matvec" if name[0] != "attn_acc" else "attention"] += 1
            check.first = check.first or f"{name} differs with and without the memory wall"
    result = _result(walled, free, check, image, positions)
    result["cpu_s"] = round(time.process_time() - started, 2)
    complaint = walled.complaint or free.complaint
    if check.first or complaint:
        error = MismatchError(check.first or f"the simulated DMAs complain: {complaint}")
        error.result = result
        raise error
    return result


def _result(walled: Token, free: Token, check: Check, image: Image, positions: int) -> dict[str, Any]:
    shape = image.shape
    words = image.header.stream_bytes + 2 * shape.layers * shape.hidden * positions
    result: dict[str, Any] = {}
    for circuit, engines in (("matvec", (0, 1)), ("attention", (2, 3))):
        counters = [free.counters[engine] for engine in engines]
        busy = max(c.words_in + c.stall_in + c.stall_out + c.stall_turn for c in counters)
        result[circuit] = {
            "words": sum(c.words_in for c in counters),
            "cycles": free.cycles[circuit],
            # A port's words over the cycles in which its engine was inside a transfer.
            "words_per_cycle": round(max(c.words_in for c in counters) / busy, 4),
            "mismatches": check.mismatches[circuit],
            "results_compared": check.words[circuit],
            "result_words": sum(c.words_out for c in counters),
            "transfers": sum(c.transfers for c in counters),
            "stalls": {
                "memory_wall": _stalls(walled, engines),
                "none": _stalls(free, engines),
            },
            "ms": {
                "memory_wall": _ms(walled.cycles[circuit]).json(),
                "none": _ms(free.cycles[circuit]).json(),
                "reference": Figure(
                    REFERENCE_MATVEC_MS if circuit == "matvec" else REFERENCE_ATTENTION_MS, "ms", "reference"
                ).json(),
            },
        }
    result["context"] = positions
    result["pl_ms_at_clock"] = _ms(walled.total_cycles).json()
    result["pl_ms_without_memory_wall"] = _ms(free.total_cycles).json()
    result["driver_ms"] = _ms(walled.cycles["between"]).json()
    result["floor_ms"] = Figure(round(words / MEMORY_BYTES_PER_S * 1e3, 2), "ms", "model").json()
    result["simulated_cycles"] = walled.total_cycles + free.total_cycles
    return result


def _stalls(token: Token, engines: tuple[int, int]) -> dict[str, int]:
    return {
        cause: sum(getattr(token.counters[engine], f"stall_{cause}") for engine in engines)
        for cause in ("in", "out", "turn")
    }


def _ms(cycles: int) -> Figure:
    return Figure(round(cycles / CLOCK_HZ * 1e3, 3), "ms", "rtl")
