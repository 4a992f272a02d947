"""A checkpoint of any shape with random weights: real names, dtypes and sizes, and no meaning.

Exercises conversion, addresses, transfers and times at full size where the real checkpoint is not at hand. The weights
come from integers and one multiplication, so that a seed gives the same file on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.base import files
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolTimeout
from pipelines.model import safetensors_file
from pipelines.model.checkpoint import CONFIG, EMBEDDING, SINGLE, Architecture

F32 = npt.NDArray[np.float32]

RMS_EPS, ROPE_THETA = 1e-5, 10000.0
_PART = 1 << 22  # weights made at once
# A latent weight is one of 256 evenly spaced values in (-1, 1) times this over sqrt(columns): then each matrix keeps
# the magnitude of what it is given, as trained ones nearly do. About a quarter of the codes come out zero.
_GAIN = 1.75


def architecture(*, hidden: int, ffn: int, layers: int, heads: int, vocab: int, max_positions: int) -> Architecture:
    """The family's architecture with these sizes."""
    return Architecture(
        family="bitnet",
        hidden=hidden,
        ffn=ffn,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        vocab=vocab,
        max_positions=max_positions,
        rms_eps=RMS_EPS,
        rope_theta=ROPE_THETA,
        tied=True,
        bos=1,
        eos=2,
    )


def configuration(a: Architecture, seed: int) -> dict[str, object]:
    """``config.json`` of such a checkpoint; ``random_seed`` says what it is."""
    return {
        "architectures": ["BitnetForCausalLM"],
        "model_type": "llama",
        "vocab_size": a.vocab,
        "hidden_size": a.hidden,
        "intermediate_size": a.ffn,
        "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "max_position_embeddings": a.max_positions,
        "rms_norm_eps": a.rms_eps,
        "rope_theta": a.rope_theta,
        "hidden_act": "silu",
        "tie_word_embeddings": a.tied,
        "bos_token_id": a.bos,
        "eos_token_id": a.eos,
        "torch_dtype": "float32",
        "random_seed": seed,
    }


def write(folder: Path, a: Architecture, seed: int, deadline: Deadline) -> None:
    """Writes ``config.json`` and ``model.safetensors`` (float32) into ``folder``; DiskFull leaves neither."""
    tensors = list(a.tensors())
    with files.atomic_file(folder / SINGLE) as stream:
        safetensors_file.write_stream(
            stream,
            tensors,
            (
                part
                for number, (name, shape) in enumerate(tensors)
                for part in _values(name, shape, [seed, number], deadline)
            ),
            {"format": "pt"},
        )
    files.write_json(folder / CONFIG, configuration(a, seed))


def _values(name: str, shape: tuple[int, ...], seed: list[int], deadline: Deadline) -> Iterator[F32]:
    random = np.random.default_rng(seed)
    count = math.prod(shape)
    if len(shape) == 1:  # a norm: 0.75 to 1.25
        yield (random.integers(96, 160, count) / 128).astype(np.float32)
        return
    gain = 1.0 if name == EMBEDDING else _GAIN / math.sqrt(shape[1])
    step = np.float32(gain / 128)
    levels = (np.arange(256, dtype=np.float32) - np.float32(127.5)) * step
    for start in range(0, count, _PART):
        if deadline.expired():
            raise ToolTimeout(f"random weights: '{name}' was not finished within {deadline.seconds:.0f} s")
        yield levels[np.frombuffer(random.bytes(min(_PART, count - start)), np.uint8)]
