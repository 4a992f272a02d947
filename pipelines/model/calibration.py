"""K and V scales, fixed for each layer and head, from a text that is not the evaluation text.

A scale taken from all positions of a conversation would look into the future and could not be kept while K and V rows
are appended, so it is fixed beforehand: the largest magnitude on the calibration text over 127. What lies beyond is
clipped.

The tokens run through the golden arithmetic, layer by layer as conversion comes by, and never through a float model:
the scales, and with them the image, are then the same bits on every machine.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.base.errors import ConfigError
from pipelines.golden import float32
from pipelines.golden.formats import M_MAX
from pipelines.golden.forward import Forward, GoldenLayer, GoldenModel, ModelShape

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Tokens:
    """What a model is calibrated on: token ids int32[n], and where they came from."""

    ids: I32
    source: str


def from_text(tokenizer: Path, text: Path, count: int) -> Tokens:
    """The first ``count`` tokens of a text, ``<s>`` included. ConfigError if the text has fewer."""
    from tokenizers import Tokenizer

    try:
        ids = Tokenizer.from_file(str(tokenizer)).encode(text.read_text(encoding="utf-8")).ids[:count]
    except OSError as error:
        raise ConfigError(f"calibration text {text}: {error.strerror or error}") from error
    if len(ids) < count:
        raise ConfigError(f"calibration text {text} has {len(ids)} tokens; {count} are asked for")
    return Tokens(np.array(ids, dtype=np.int32), text.name)


def from_seed(seed: int, vocab: int, bos: int, count: int) -> Tokens:
    """Tokens without meaning, for weights without meaning."""
    ids = np.random.default_rng(seed).integers(0, vocab, count).astype(np.int32)
    ids[0] = bos
    return Tokens(ids, f"random tokens from seed {seed}")


@dataclass
class Calibrator:
    """Carries the calibration tokens through the layers. ``layer`` once for each, in order."""

    shape: ModelShape
    tokens: Tokens
    states: F32  # float32[n, hidden]
    m_smallest: int = M_MAX
    m_largest: int = 0
    saturations: int = 0
    layers: list[dict[str, list[float]]] = field(default_factory=list)

    def layer(self, quantised: GoldenLayer) -> tuple[F32, F32]:
        """K and V scales float32[heads] of the next layer, whose own scales are ignored; moves the tokens behind it."""
        shape = dataclasses.replace(self.shape, layers=1, context=len(self.tokens.ids))
        seen: dict[str, npt.NDArray[Any]] = {}
        Pass(shape, quantised, seen).attention(self.states)
        k_scale = _scales(seen["k_rot"], shape)
        v = float32.dequantise(
            seen["qkv_acc"][:, 2 * shape.hidden :], np.asarray(seen["attn_in_scale"] * quantised.scales["v"])
        )
        v_scale = _scales(v, shape)
        run = Pass(shape, dataclasses.replace(quantised, k_scale=k_scale, v_scale=v_scale), seen)
        self.states = run.ffn(run.attention(self.states))
        m = seen["score_m"]
        self.m_smallest = min(self.m_smallest, int(m.min()))
        self.m_largest = max(self.m_largest, int(m.max()))
        self.saturations += run.saturations
        self.layers.append({"k_scale": k_scale.astype(float).tolist(), "v_scale": v_scale.astype(float).tolist()})
        return k_scale, v_scale

    def description(self) -> dict[str, Any]:
        """For ``image.json``: source, tokens, range of m against the circuit's 18 bits signed, and the scales."""
        return {
            "source": self.tokens.source,
            "tokens": len(self.tokens.ids),
            "token_ids_sha256": _digest(self.tokens.ids),
            "m": {"smallest": self.m_smallest, "largest": self.m_largest, "limit": M_MAX},
            "m_saturations": self.saturations,
            "layers": self.layers,
        }


class Pass:
    """One layer of the golden arithmetic on states that come from the layer before."""

    def __init__(self, shape: ModelShape, layer: GoldenLayer, seen: dict[str, npt.NDArray[Any]]) -> None:
        model = GoldenModel(
            shape=shape,
            embedding=np.zeros((0, shape.hidden), dtype=np.float16),
            layers=(layer,),
            final_norm=np.ones(shape.hidden, dtype=np.float32),
            head_codes=np.zeros((0, shape.hidden), dtype=np.int8),
            head_scales=np.zeros(0, dtype=np.float32),
        )
        self._forward = Forward(model, trace=lambda name, _, value: seen.__setitem__(name, value))

    def attention(self, states: F32) -> F32:
        return self._forward.attention_block(0, states, 0)

    def ffn(self, states: F32) -> F32:
        return self._forward.ffn_block(0, states)

    @property
    def saturations(self) -> int:
        return self._forward.saturations


def _scales(values: F32, shape: ModelShape) -> F32:
    """float32[heads]: max(max|x|, 1e-5) / 127 over all tokens of each head; values float32[n, hidden]."""
    largest = np.abs(values.reshape(-1, shape.heads, shape.head_dim)).max(axis=(0, 2))
    return np.asarray(np.maximum(largest, float32.QUANT_FLOOR) / float32.QUANT_MAX, dtype=np.float32)


def _digest(ids: I32) -> str:
    from pipelines.base.files import sha256_bytes

    return sha256_bytes(ids.astype("<i4").tobytes())
