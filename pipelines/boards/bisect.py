"""From "something differs" to which token, layer, operation and word, and what kind of fault that is.

A run with a hash over all trace points finds the first step that differs, a second one fetches that step's points, and
the first of them that differs from the golden model is the operation. Which machine's parts are at fault then follows
from running the same steps with parts exchanged: functional circuits, no circuits, this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.base.errors import BoardOffline
from pipelines.boards.battery import Battery
from pipelines.boards.compare import ATTENTION_POINT, MATVEC_POINTS, Answers, differing, order_of
from pipelines.boards.reference import Key, expected
from pipelines.golden.formats import HEAD_DIM, port_rows
from pipelines.golden.forward import GoldenModel

OPERATIONS = {
    "embedding": "embedding row", "attn_in_code": "RMSNorm and quantisation before attention",
    "attn_in_scale": "RMSNorm and quantisation before attention", "qkv_acc": "matrices q, k, v",
    "q_rot": "dequantisation and RoPE of q", "k_rot": "dequantisation and RoPE of k", "q_code": "quantisation of q",
    "score_m": "score multiplier", "k_code": "quantisation of k", "v_code": "dequantisation and quantisation of v",
    "attn_acc": "attention", "attn_out": "attention output", "o_in_code": "RMSNorm and quantisation before o",
    "o_in_scale": "RMSNorm and quantisation before o", "o_acc": "matrix o", "attn_residual": "residual after o",
    "ffn_in_code": "RMSNorm and quantisation before the FFN", "ffn_in_scale": "RMSNorm and quantisation before the FFN",
    "gate_up_acc": "matrices gate, up", "ffn_hidden": "gate", "down_in_code": "RMSNorm and quantisation before down",
    "down_in_scale": "RMSNorm and quantisation before down", "down_acc": "matrix down",
    "ffn_residual": "residual after down", "head_in_code": "final RMSNorm and quantisation",
    "head_in_scale": "final RMSNorm and quantisation", "head_acc": "output head", "logits": "logits",
}  # fmt: skip

RunBoard = Callable[[Mapping[str, Any]], Answers]
"""Runs the battery on the board under test with further options of its job ``verify``."""


@dataclass(frozen=True)
class Finding:
    """The first wrong word, and why it is wrong as far as can be told."""

    sequence: int
    step: int
    token: int
    layer: int  # -1 outside the layers
    point: str
    operation: str
    place: str  # row and port, or head and element
    index: int
    found: str
    expected: str
    words: int  # how many of this point differ
    cause: str
    reason: str
    reruns: dict[str, str] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        return dict(vars(self))

    def sentence(self) -> str:
        where = f"layer {self.layer}, " if self.layer >= 0 else ""
        return (
            f"first at sequence {self.sequence}, token {self.step} (id {self.token}), {where}{self.operation}, "
            f"{self.place}: found {self.found}, expected {self.expected}; {self.cause}: {self.reason}"
        )


@dataclass
class Bisector:
    """``run`` asks the board under test, ``here`` the same image and sources on this machine, without circuits."""

    model: GoldenModel
    battery: Battery
    run: RunBoard
    here: RunBoard | None
    backends: Sequence[str]
    weights_intact: Callable[[], str]
    """Empty, or which part on the board differs from the manifest."""
    image_right: Callable[[], str]
    """Empty, or what of the packed image is not what the checkpoint gives."""

    def find(self) -> Finding | None:
        """The first wrong word, or None when everything was right this time."""
        located = self._locate(self.run, {})
        if located is None:
            return None
        sequence, step, token, key, ours, golden = located
        wrong = differing(ours, golden)
        index = int(wrong[0])
        cause, reason, reruns = self._classify(sequence, step, key, ours)
        return Finding(
            sequence=sequence,
            step=step,
            token=token,
            layer=key[0],
            point=key[1],
            operation=OPERATIONS[key[1]],
            place=self._place(key[1], index),
            index=index,
            found=_word(ours, index),
            expected=_word(golden, index),
            words=int(wrong.size),
            cause=cause,
            reason=reason,
            reruns=reruns,
        )

    def _locate(
        self, run: RunBoard, options: Mapping[str, Any]
    ) -> tuple[int, int, int, Key, npt.NDArray[Any], npt.NDArray[Any]] | None:
        """(sequence, step, token, point, the machine's array, the golden one) of the first difference."""
        runs = self.battery.sequences
        hashed = run({"trace": "all", **options})
        for number in range(len(runs)):
            tokens = hashed.said(number, runs[number].steps)
            golden = expected(self.model, tokens, traced=range(len(tokens)))
            for step in range(len(tokens)):
                if hashed.traced.get((number, step)) != golden.traced[step]:
                    return self._fetch(run, options, number, step, tokens[: step + 1])
        return None

    def _fetch(
        self, run: RunBoard, options: Mapping[str, Any], number: int, step: int, tokens: list[int]
    ) -> tuple[int, int, int, Key, npt.NDArray[Any], npt.NDArray[Any]] | None:
        """The points of one step. What came before runs again, so that a fault that counts transfers meets it again."""
        answers = run({"data": [[number, step]], **options})
        golden = expected(self.model, tokens, data=[step]).data[step]
        seen = answers.data.get((number, step), {})
        for key in sorted(golden, key=order_of):
            ours = seen.get(key)
            if ours is None or differing(ours, golden[key]).size:
                found = ours if ours is not None and ours.shape == golden[key].shape else np.zeros_like(golden[key])
                return number, step, tokens[step], key, found, golden[key]
        return None

    def _classify(self, sequence: int, step: int, key: Key, ours: npt.NDArray[Any]) -> tuple[str, str, dict[str, str]]:
        """(cause, reason, outcome of each rerun)."""
        damaged = self.weights_intact()
        if damaged:
            return "weights on the board differ", f"{damaged} is not what the manifest says", {}
        packed = self.image_right()
        if packed:
            return "packed image", packed, {}
        reruns: dict[str, str] = {}
        same: dict[str, bool] = {}

        def point_of(run: RunBoard, options: Mapping[str, Any]) -> npt.NDArray[Any] | None:
            return run({"data": [[sequence, step]], **options}).data.get((sequence, step), {}).get(key)

        again = point_of(self.run, {})
        if again is not None and differing(again, ours).size:
            return "not repeatable", "the same steps gave another result: DMA, cache, or a marginal clock", reruns
        for backend in self.backends:
            try:
                value = point_of(self.run, {"backend": backend})
            except BoardOffline:
                raise
            except Exception as error:  # a backend that cannot run says nothing about the fault
                reruns[backend] = f"not run: {error}"
                continue
            same[backend] = value is not None and not differing(value, ours).size
            reruns[backend] = "as wrong" if same[backend] else "otherwise"
        if self.here is not None:
            value = point_of(self.here, {})
            same["here"] = value is not None and not differing(value, ours).size
            reruns["here"] = "as wrong" if same["here"] else "otherwise"
        circuit = key[1] in MATVEC_POINTS or key[1] == ATTENTION_POINT
        if same.get("host"):
            where = "and so does this machine" if same.get("here") else "this machine does not"
            return "CPU arithmetic", f"the board's processor alone gives the same wrong word, {where}", reruns
        if circuit and same.get("model"):
            return "DMA or cache", "functional circuits behind the same driver give the same wrong word", reruns
        if circuit and "model" in same:
            return "circuit", "with functional circuits the word is right", reruns
        alone = "without circuits the word is right" if "host" in same else "nothing else could run on the board"
        if circuit:  # a release for a fabric has no functional circuits
            return "circuit, DMA or cache", alone, reruns
        return "CPU arithmetic", f"only the processor computes this; {alone}", reruns

    def _place(self, point: str, index: int) -> str:
        shape = self.model.shape
        if point in MATVEC_POINTS:
            group = {"qkv_acc": "qkv", "o_acc": "o", "gate_up_acc": "gate_up", "down_acc": "down"}.get(point, "head")
            (_, half), _ = port_rows(shape.group_rows(group))
            return f"row {index}, port {int(index >= half)}"
        if point == ATTENTION_POINT:
            head, element = divmod(index, HEAD_DIM + 1)
            return f"head {head}, " + (f"numerator {element}" if element < HEAD_DIM else "sum of p")
        return f"element {index}"


def _word(array: npt.NDArray[Any], index: int) -> str:
    value = array[index]
    if array.dtype.kind == "f":
        return f"{float(value)!r} (0x{int(array.view('<u4')[index]):08x})"
    return str(int(value))
