"""The model in ordinary floating point: what the integers are compared with.

The same family in float32 with numpy's own sums, exponentials and square roots. Each place where the board rounds can
be switched: weights (as they are, ternary), activations (float, int8 a token), attention (softmax, or one of the
circuit's approximations of it), head. Perplexities of the variants say what each of these costs.

Everything follows the type of its inputs: ``in_float64`` gives the same model without the accidents of float32 sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipelines.golden.attention import exp_table
from pipelines.golden.formats import EXP_TABLE_ENTRIES, M_MAX, MAX_CONTEXT, SCORE_SHIFT, TAU, probability_bits
from pipelines.model.checkpoint import (
    EMBEDDING,
    FINAL_NORM,
    MATRIX_TENSORS,
    Architecture,
    Checkpoint,
    matrix_tensor,
    norm_tensor,
)

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]
I64 = npt.NDArray[np.int64]
Rounding = Callable[[F32], tuple[I8, np.float32]]

Attention = Literal["softmax", "shift", "m_window", "m_fixed", "int8_softmax"]
"""softmax: float32. shift: int8 q, K, V and the score ``q.k >> 8``, blind to the scales. m_window: the circuit's
multiplier and table, K and V scales from all positions of the window. m_fixed: the same with calibrated scales.
int8_softmax: int8 q, K and V with calibrated scales, exponential not tabulated."""

FIXED_SHIFT = 8


@dataclass(frozen=True)
class Layer:
    """Matrices float32[rows, n] by name, norms float32 by name."""

    matrices: Mapping[str, F32]
    norms: Mapping[str, F32]


@dataclass(frozen=True)
class KvScales:
    """float32[layers, heads] each: what a K or V code is multiplied with."""

    k: F32
    v: F32


@dataclass
class Observer:
    """Collects what calibration needs, by layer: largest |K| and |V| of each head, and q scales."""

    k: dict[int, F32] = field(default_factory=dict)
    v: dict[int, F32] = field(default_factory=dict)
    q_scales: dict[int, F32] = field(default_factory=dict)

    def see(self, layer: int, q: F32, k: F32, v: F32) -> None:
        """q, k (after RoPE) and v, float32[windows, heads, T, head_dim]."""
        for found, value in ((self.k, k), (self.v, v)):
            largest = np.abs(value).max(axis=(0, 2, 3))
            found[layer] = np.maximum(found[layer], largest) if layer in found else largest
        scales = np.maximum(np.abs(q).max(axis=-1), np.float32(1e-5)) / np.float32(127)
        scales = scales.transpose(0, 2, 1).reshape(-1, q.shape[1])  # [tokens, heads]
        self.q_scales[layer] = np.concatenate([self.q_scales[layer], scales]) if layer in self.q_scales else scales


def load_layer(checkpoint: Checkpoint, number: int, rounding: Rounding | None = None) -> Layer:
    """One layer of a checkpoint, its matrices as they are or rounded (codes times scale)."""
    matrices = {}
    for name in MATRIX_TENSORS:
        weights = checkpoint.read(matrix_tensor(number, name))
        if rounding is not None:
            codes, scale = rounding(weights)
            weights = codes.astype(np.float32) * scale
        matrices[name] = weights
    norms = {name: checkpoint.read(norm_tensor(number, name)) for name in checkpoint.architecture.norms()}
    return Layer(matrices, norms)


@dataclass(frozen=True)
class Twin:
    """The whole model. ``int8_activations`` quantises the input of every matrix, one scale a token."""

    architecture: Architecture
    embedding: F32
    layers: tuple[Layer, ...]
    final_norm: F32
    head: F32
    int8_activations: bool
    kv_scales: KvScales | None = None

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        *,
        rounding: Rounding | None,
        int8_activations: bool,
        kv_scales: KvScales | None = None,
    ) -> Twin:
        """Reads a checkpoint; ``rounding`` is applied to the matrices of the layers, not to embedding and head."""
        embedding = checkpoint.read(EMBEDDING)
        return cls(
            checkpoint.architecture,
            embedding,
            tuple(load_layer(checkpoint, n, rounding) for n in range(checkpoint.architecture.layers)),
            checkpoint.read(FINAL_NORM),
            embedding if checkpoint.architecture.tied else checkpoint.read(checkpoint.head_name),
            int8_activations,
            kv_scales,
        )

    def in_float64(self) -> Twin:
        """The same weights, computed with in double precision: for comparisons, where a code must not hang on the order
        of a sum. Slower, and only for ordinary softmax.
        """

        def wide(values: Mapping[str, F32]) -> dict[str, Any]:
            return {name: value.astype(np.float64) for name, value in values.items()}

        return replace(
            self,
            embedding=self.embedding.astype(np.float64),
            layers=tuple(Layer(wide(layer.matrices), wide(layer.norms)) for layer in self.layers),
            final_norm=self.final_norm.astype(np.float64),
            head=self.head.astype(np.float64),
        )

    def hidden(self, tokens: npt.NDArray[np.integer], attention: Attention = "softmax") -> F32:
        """tokens int[windows, T] -> float32[windows, T, hidden], after the final norm."""
        x = self.embedding[tokens]
        for number, layer in enumerate(self.layers):
            x = self.layer(number, layer, x, attention)
        return norm(x, self.final_norm, self.architecture.rms_eps)

    def layer(
        self, number: int, layer: Layer, x: F32, attention: Attention = "softmax", observer: Observer | None = None
    ) -> F32:
        """One layer on float32[windows, T, hidden]."""
        a = self.architecture
        windows, length, _ = x.shape
        h = self._input(norm(x, layer.norms["input"], a.rms_eps))
        q, k, v = (
            (h @ layer.matrices[name].T).reshape(windows, length, -1, a.head_dim).transpose(0, 2, 1, 3)
            for name in ("q", "k", "v")
        )
        cos, sin = (table.astype(x.dtype) for table in rope_tables(length, a.head_dim, a.rope_theta))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if observer is not None:
            observer.see(number, q, k, v)
        if a.kv_heads != a.heads:
            k, v = (np.repeat(t, a.heads // a.kv_heads, axis=1) for t in (k, v))
        scales = None if self.kv_scales is None else (self.kv_scales.k[number], self.kv_scales.v[number])
        out = attend(q, k, v, attention, scales).transpose(0, 2, 1, 3).reshape(windows, length, -1)
        if "inner_attn" in layer.norms:
            out = norm(out, layer.norms["inner_attn"], a.rms_eps)
        x = x + self._input(out) @ layer.matrices["o"].T
        h = self._input(norm(x, layer.norms["post"], a.rms_eps))
        h = silu(h @ layer.matrices["gate"].T) * (h @ layer.matrices["up"].T)
        if "ffn" in layer.norms:
            h = norm(h, layer.norms["ffn"], a.rms_eps)
        return np.asarray(x + self._input(h) @ layer.matrices["down"].T)

    def _input(self, x: F32) -> F32:
        return int8_tokens(x) if self.int8_activations else x


def norm(x: F32, weight: F32, eps: float) -> F32:
    mean = np.mean(np.square(x), axis=-1, keepdims=True)
    return np.asarray(x / np.sqrt(mean + x.dtype.type(eps)) * weight)


def silu(x: F32) -> F32:
    with np.errstate(over="ignore"):
        return np.asarray(x / (1 + np.exp(-x)))


def int8_codes(x: F32) -> tuple[F32, F32]:
    """Codes (as floats) and scales [..., 1] of a per-token quantisation: clamp(round(x * 127 / max|x|), -128, 127)."""
    largest = np.maximum(np.abs(x).max(axis=-1, keepdims=True), np.float32(1e-5))
    codes = np.clip(np.rint(x * (np.float32(127) / largest)), -128, 127)
    return codes, largest / np.float32(127)


def int8_tokens(x: F32) -> F32:
    codes, scales = int8_codes(x)
    return np.asarray(codes * scales)


def rope_tables(length: int, head_dim: int, theta: float) -> tuple[F64, F64]:
    """cos and sin float64[length, head_dim / 2]."""
    angle = np.arange(length)[:, None] * theta ** (-np.arange(0, head_dim, 2) / head_dim)
    return np.cos(angle), np.sin(angle)


def rotate(x: F32, cos: F32, sin: F32) -> F32:
    """Half-split rotation of [..., T, head_dim]."""
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def attend(q: F32, k: F32, v: F32, kind: Attention, fixed: tuple[F32, F32] | None) -> F32:
    """Causal attention, all float32[windows, heads, T, head_dim]; ``fixed`` are K and V scales [heads]."""
    if kind == "softmax":
        return _weighted(_softmax_weights(q @ k.swapaxes(-1, -2) / q.dtype.type(np.sqrt(q.shape[-1]))), v)
    q_codes, q_scale = int8_codes(q)
    if kind in ("m_fixed", "int8_softmax"):
        if fixed is None:
            raise ValueError(f"attention {kind} needs calibrated scales")
        k_scale, v_scale = (scale[None, :, None, None] for scale in fixed)
    else:  # one scale a head and window, from all of its positions
        k_scale, v_scale = (
            np.maximum(np.abs(t).max(axis=(-1, -2), keepdims=True), np.float32(1e-5)) / np.float32(127) for t in (k, v)
        )
    k_codes, v_codes = (np.clip(np.rint(t / s), -128, 127) for t, s in ((k, k_scale), (v, v_scale)))
    scores = q_codes @ k_codes.swapaxes(-1, -2)  # exact in float32: below 2**24
    root = np.float32(np.sqrt(q.shape[-1]))
    if kind == "int8_softmax":
        return _weighted(_softmax_weights(scores * (q_scale * k_scale / root)), v_codes * v_scale)
    if kind == "shift":
        z = scores.astype(np.int64) >> FIXED_SHIFT
    else:
        m = np.minimum(np.rint(q_scale * k_scale * TAU / root * float(1 << SCORE_SHIFT)), M_MAX).astype(np.int64)
        z = scores.astype(np.int64) * m >> SCORE_SHIFT
    return _weighted(_table_weights(z), v_codes * v_scale)


def _seen(shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    return np.tril(np.ones(shape[-2:], dtype=bool))


def _softmax_weights(scores: F32) -> F32:
    scores = np.where(_seen(scores.shape), scores, np.float32(-np.inf))
    return np.asarray(np.exp(scores - scores.max(axis=-1, keepdims=True)))


def _table_weights(z: I64) -> F32:
    """The circuit's table at the distance from the row's maximum, 0 beyond it."""
    seen = _seen(z.shape)
    distance = np.where(seen, z, np.iinfo(np.int32).min).max(axis=-1, keepdims=True) - z
    kept = seen & (distance < EXP_TABLE_ENTRIES)
    table = exp_table(probability_bits(min(z.shape[-1], MAX_CONTEXT))).astype(np.float32)
    return np.where(kept, table[np.where(kept, distance, 0)], np.float32(0))


def _weighted(weights: F32, v: F32) -> F32:
    return np.asarray(weights @ v / weights.sum(axis=-1, keepdims=True))
