"""A token, from embedding row to logits: the integer path of the board, in numpy.

``Forward`` holds the KV cache of one conversation. It takes any number of tokens at once and yields the same bits as
one token at a time, so that perplexity over a text is as fast as numpy allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipelines.golden import attention, float32, rope
from pipelines.golden.float32 import F32, I8, I32
from pipelines.golden.formats import GROUP_MATRICES, probability_bits

F16 = npt.NDArray[np.float16]
Trace = Callable[[str, int, npt.NDArray[np.generic]], None]
"""Called with (trace point, layer, array[tokens, …]); layer is -1 for points outside the layers."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a model of the family; ``context`` is the largest T of this release."""

    hidden: int
    ffn: int
    layers: int
    heads: int
    head_dim: int
    vocab: int
    context: int
    head_planes: int = 1
    rms_eps: float = 1e-5
    rope_theta: float = 10000.0
    bos: int = 1
    eos: int = 2

    def group_rows(self, group: str) -> int:
        """Rows of a group of matrices (``GROUPS``)."""
        return {
            "qkv": 3 * self.hidden,
            "o": self.hidden,
            "gate_up": 2 * self.ffn,
            "down": self.hidden,
            "head": self.head_planes * self.vocab,
        }[group]

    def group_row_length(self, group: str) -> int:
        """Trits of a row of a group."""
        return self.ffn if group == "down" else self.hidden


@dataclass(frozen=True)
class GoldenLayer:
    """One layer, quantised. ``codes`` and ``scales`` by matrix name; K and V scales float32[heads]."""

    codes: Mapping[str, I8]
    scales: Mapping[str, np.float32]
    input_norm: F32
    post_norm: F32
    inner_attn_norm: F32
    ffn_norm: F32
    k_scale: F32
    v_scale: F32

    def group(self, name: str) -> I8:
        """int8[rows, n]: the matrices of a group, one below the other."""
        return np.concatenate([self.codes[matrix] for matrix in GROUP_MATRICES[name]])


@dataclass(frozen=True)
class GoldenModel:
    """A whole model, quantised. ``head_codes`` are the planes one below the other, ``head_scales`` float32[planes]."""

    shape: ModelShape
    embedding: F16
    layers: tuple[GoldenLayer, ...]
    final_norm: F32
    head_codes: I8
    head_scales: F32


def score_coefficients(layer: GoldenLayer, head_dim: int) -> F32:
    """float32[heads]: what a q scale is multiplied with to get m."""
    return np.array([attention.score_coefficient(float(sk), head_dim) for sk in layer.k_scale], dtype=np.float32)


@dataclass
class Forward:
    """The state of one conversation: position, K and V codes int8[heads, T, head_dim] of each layer."""

    model: GoldenModel
    trace: Trace | None = None
    keys: list[I8] = field(default_factory=list)
    values: list[I8] = field(default_factory=list)
    saturations: int = 0
    """How often m was cut at M_MAX."""

    def __post_init__(self) -> None:
        shape = self.model.shape
        self._cos, self._sin = rope.rope_tables(shape.context, shape.head_dim, shape.rope_theta)
        self._coefficients = [score_coefficients(layer, shape.head_dim) for layer in self.model.layers]
        self._matrices: dict[tuple[int, str], F32] = {}
        self.reset()

    def reset(self) -> None:
        """Forget everything said so far."""
        shape = self.model.shape
        empty = np.zeros((shape.heads, 0, shape.head_dim), dtype=np.int8)
        self.keys = [empty] * shape.layers
        self.values = [empty] * shape.layers

    @property
    def position(self) -> int:
        return int(self.keys[0].shape[1])

    def _report(self, name: str, layer: int, value: npt.NDArray[np.generic]) -> None:
        if self.trace is not None:
            self.trace(name, layer, value)

    def _product(self, layer: int, group: str, codes: Callable[[], I8], x: I8) -> I32:
        """``ternary.product`` with the float32 copy of the codes kept from call to call."""
        matrix = self._matrices.get((layer, group))
        if matrix is None:
            matrix = self._matrices[layer, group] = np.ascontiguousarray(codes().T, dtype=np.float32)
        return np.asarray(x.astype(np.float32) @ matrix).astype(np.int32)

    def __call__(self, tokens: npt.NDArray[np.integer] | list[int]) -> F32:
        """Logits float32[n, vocab] after each of n further tokens.

        Raises ValueError when the context is full or a token is outside the vocabulary.
        """
        shape, model = self.model.shape, self.model
        ids = np.asarray(tokens, dtype=np.int64)
        start, count = self.position, ids.size
        if start + count > shape.context:
            raise ValueError(f"{start} + {count} tokens do not fit the context of {shape.context}")
        if count and (ids.min() < 0 or ids.max() >= shape.vocab):
            raise ValueError(f"a token is outside 0 to {shape.vocab - 1}")
        x = model.embedding[ids].astype(np.float32)
        self._report("embedding", -1, x)
        for number in range(shape.layers):
            x = self.attention_block(number, x, start)
            x = self.ffn_block(number, x)
        h = float32.rms_norm(x, model.final_norm, np.float32(shape.rms_eps))
        code, scale = float32.quantise(h)
        self._report("head_in_code", -1, code)
        self._report("head_in_scale", -1, scale[:, None])
        acc = self._product(-1, "head", lambda: model.head_codes, code)
        self._report("head_acc", -1, acc)
        logits = np.zeros((count, shape.vocab), dtype=np.float32)
        for plane in range(shape.head_planes):
            part = acc[:, plane * shape.vocab : (plane + 1) * shape.vocab]
            value = float32.dequantise(part, (scale * model.head_scales[plane])[:, None])
            logits = value if plane == 0 else logits + value
        self._report("logits", -1, logits)
        return logits

    def attention_block(self, number: int, x: F32, start: int) -> F32:
        """Layer ``number`` up to the residual behind attention, of float32[n, hidden] at positions from ``start``.

        Appends to the layer's keys and values.
        """
        shape, layer = self.model.shape, self.model.layers[number]
        count, heads, dim, hidden = x.shape[0], shape.heads, shape.head_dim, shape.hidden
        code, scale = float32.quantise(float32.rms_norm(x, layer.input_norm, np.float32(shape.rms_eps)))
        self._report("attn_in_code", number, code)
        self._report("attn_in_scale", number, scale[:, None])
        acc = self._product(number, "qkv", lambda: layer.group("qkv"), code)
        self._report("qkv_acc", number, acc)
        q, k, v = (
            float32.dequantise(acc[:, i * hidden : (i + 1) * hidden], (scale * layer.scales[name])[:, None])
            for i, name in enumerate(GROUP_MATRICES["qkv"])
        )
        cos = self._cos[start : start + count, None, :]
        sin = self._sin[start : start + count, None, :]
        q = rope.rotate(q.reshape(count, heads, dim), cos, sin)
        k = rope.rotate(k.reshape(count, heads, dim), cos, sin)
        self._report("q_rot", number, q.reshape(count, hidden))
        self._report("k_rot", number, k.reshape(count, hidden))
        q_code, q_scale = float32.quantise(q)
        m, saturated = attention.multiplier(q_scale, self._coefficients[number])
        self.saturations += int(saturated.sum())
        k_code = float32.quantise_fixed(k, (np.float32(1) / layer.k_scale)[None, :, None])
        v_code = float32.quantise_fixed(v.reshape(count, heads, dim), (np.float32(1) / layer.v_scale)[None, :, None])
        self._report("q_code", number, q_code.reshape(count, hidden))
        self._report("score_m", number, m)
        self._report("k_code", number, k_code.reshape(count, hidden))
        self._report("v_code", number, v_code.reshape(count, hidden))
        self.keys[number] = np.concatenate([self.keys[number], k_code.transpose(1, 0, 2)], axis=1)
        self.values[number] = np.concatenate([self.values[number], v_code.transpose(1, 0, 2)], axis=1)
        bits = probability_bits(shape.context)
        sums = np.empty((count, heads, dim + 1), dtype=np.int32)
        for head in range(heads):
            sums[:, head, :dim], sums[:, head, dim] = attention.attend_causal(
                q_code[:, head], self.keys[number][head], self.values[number][head], m[:, head], bits, start
            )
        self._report("attn_acc", number, sums.reshape(count, -1))
        out = attention.attention_output(sums[..., :dim], sums[..., dim], layer.v_scale).reshape(count, hidden)
        self._report("attn_out", number, out)
        code, scale = float32.quantise(float32.rms_norm(out, layer.inner_attn_norm, np.float32(shape.rms_eps)))
        self._report("o_in_code", number, code)
        self._report("o_in_scale", number, scale[:, None])
        acc = self._product(number, "o", lambda: layer.group("o"), code)
        self._report("o_acc", number, acc)
        x = x + float32.dequantise(acc, (scale * layer.scales["o"])[:, None])
        self._report("attn_residual", number, x)
        return x

    def ffn_block(self, number: int, x: F32) -> F32:
        """The other half of layer ``number``, of float32[n, hidden]."""
        shape, layer = self.model.shape, self.model.layers[number]
        code, scale = float32.quantise(float32.rms_norm(x, layer.post_norm, np.float32(shape.rms_eps)))
        self._report("ffn_in_code", number, code)
        self._report("ffn_in_scale", number, scale[:, None])
        acc = self._product(number, "gate_up", lambda: layer.group("gate_up"), code)
        self._report("gate_up_acc", number, acc)
        gate = float32.dequantise(acc[:, : shape.ffn], (scale * layer.scales["gate"])[:, None])
        up = float32.dequantise(acc[:, shape.ffn :], (scale * layer.scales["up"])[:, None])
        h = float32.silu_gate(gate, up)
        self._report("ffn_hidden", number, h)
        code, scale = float32.quantise(float32.rms_norm(h, layer.ffn_norm, np.float32(shape.rms_eps)))
        self._report("down_in_code", number, code)
        self._report("down_in_scale", number, scale[:, None])
        acc = self._product(number, "down", lambda: layer.group("down"), code)
        self._report("down_acc", number, acc)
        x = x + float32.dequantise(acc, (scale * layer.scales["down"])[:, None])
        self._report("ffn_residual", number, x)
        return x
