"""Checkpoint in, packed and calibrated image out, one layer in memory at a time."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.base import files
from pipelines.base.deadline import Deadline
from pipelines.base.errors import CheckpointError, FormatError, ToolTimeout
from pipelines.golden import ternary
from pipelines.golden.formats import GROUP_MATRICES, GROUPS
from pipelines.golden.forward import GoldenLayer, ModelShape
from pipelines.model import calibration, kernel, quantise
from pipelines.model.calibration import Calibrator, Tokens
from pipelines.model.checkpoint import CONFIG, EMBEDDING, FINAL_NORM, Checkpoint, matrix_tensor, norm_tensor
from pipelines.model.image import ImageWriter, LayerParams, check_shape, norm_as_stored
from pipelines.model.kernel import Kernel
from pipelines.model.safetensors_file import read_rows

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]
Progress = Callable[[int, int], None]
"""Called with (bytes of the checkpoint done, bytes in all)."""

MAX_TRANSFER_BYTES = (8 << 20) - 8  # a DMA length register of 23 bits, whole beats
RANDOM_TOKENS = 16  # enough to exercise calibration where tokens have no meaning
_READ_BYTES = 8 << 20
_EMBEDDING_ROWS = 4096


@dataclass(frozen=True)
class Settings:
    """What the image shall be. Without a calibration text (random weights) random tokens are used."""

    model: str
    context: int
    head_planes: int = 1
    max_transfer_bytes: int = MAX_TRANSFER_BYTES
    calibration_text: Path | None = None
    calibration_tokens: int = 144


@dataclass
class Times:
    """Seconds of each part; ``pack`` contains its own reading and writing, ``calibrate`` is apart."""

    read: float = 0.0
    pack: float = 0.0
    calibrate: float = 0.0


def convert(
    source: Path,
    out: Path,
    *,
    settings: Settings,
    deadline: Deadline,
    log: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Packs the checkpoint in folder ``source`` into the empty folder ``out``.

    Returns ``packed_bytes`` (of weights.tfs), ``peak_rss_bytes`` (of this process so far), ``read_s``, ``pack_s``,
    ``calibrate_s``, ``kernel`` and ``description`` (image.json). Errors: CheckpointError for what is wrong with the
    checkpoint, DiskFull, ToolTimeout at the deadline; then nothing is left in ``out``.

    ``read_s`` is what reading the same tensors alone takes, measured just before with the file cache in the state that
    the packing meets: after one reading that is not timed.
    """
    checkpoint = Checkpoint.open(source)
    shape = shape_of(checkpoint, settings)
    tokens = _calibration_tokens(checkpoint, settings)
    if tokens.ids.max() >= shape.vocab:
        raise CheckpointError(f"{source}: the tokenizer gives token {tokens.ids.max()}, vocabulary is {shape.vocab}")
    loops = kernel.best(deadline, log)
    times = Times()
    _read_all(checkpoint, deadline)
    times.read = _read_all(checkpoint, deadline)
    run = _Conversion(checkpoint, shape, settings, tokens, loops, deadline, times, progress)
    with files.disk_errors(str(out)), ImageWriter(out, shape, settings.max_transfer_bytes) as writer:
        description = run.write(writer)
    return {
        "packed_bytes": description["files"]["weights.tfs"]["bytes"],
        "peak_rss_bytes": peak_rss_bytes(),
        "read_s": times.read,
        "pack_s": times.pack,
        "calibrate_s": times.calibrate,
        "kernel": loops.name,
        "description": description,
    }


def shape_of(checkpoint: Checkpoint, settings: Settings) -> ModelShape:
    """The shape of the image, after checking that circuits and runtime can take it."""
    a = checkpoint.architecture
    where = checkpoint.folder / CONFIG
    if a.family != "bitnet":
        raise CheckpointError(
            f"{where}: a {a.family} checkpoint was not trained ternary and cannot be packed",
            hint="'invoke evaluate' shows what rounding it to ternary does to its perplexity",
        )
    if settings.context > a.max_positions:
        raise CheckpointError(f"{where}: context {settings.context} is beyond its max_position_embeddings {a.max_positions}")
    shape = ModelShape(
        hidden=a.hidden,
        ffn=a.ffn,
        layers=a.layers,
        heads=a.heads,
        head_dim=a.head_dim,
        vocab=a.vocab,
        context=settings.context,
        head_planes=settings.head_planes,
        rms_eps=a.rms_eps,
        rope_theta=a.rope_theta,
        bos=a.bos,
        eos=a.eos,
    )
    try:
        check_shape(shape)
    except FormatError as error:
        raise CheckpointError(f"{where}: {error.message}") from error
    return shape


def _calibration_tokens(checkpoint: Checkpoint, settings: Settings) -> Tokens:
    a = checkpoint.architecture
    if settings.calibration_text is None:
        count = min(RANDOM_TOKENS, settings.calibration_tokens, settings.context)
        return calibration.from_seed(0, a.vocab, a.bos, count)
    return calibration.from_text(checkpoint.tokenizer(), settings.calibration_text, settings.calibration_tokens)


def _read_all(checkpoint: Checkpoint, deadline: Deadline) -> float:
    """Seconds that reading every tensor file takes, through a buffer and with nothing else done."""
    buffer = memoryview(bytearray(_READ_BYTES))
    started = time.perf_counter()
    for path in sorted({tensor.file for tensor in checkpoint.tensors.values()}):
        with path.open("rb", buffering=0) as stream:
            while stream.readinto(buffer):
                _check(deadline)
    return time.perf_counter() - started


def _check(deadline: Deadline) -> None:
    if deadline.expired():
        raise ToolTimeout(f"conversion did not end within {deadline.seconds:.0f} s")


def peak_rss_bytes() -> int:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB


@dataclass
class _Conversion:
    checkpoint: Checkpoint
    shape: ModelShape
    settings: Settings
    tokens: Tokens
    loops: Kernel
    deadline: Deadline
    times: Times
    progress: Progress | None
    done: int = 0

    def write(self, writer: ImageWriter) -> dict[str, Any]:
        calibrator = Calibrator(self.shape, self.tokens, self._first_states())
        layers = [self._layer(writer, number, calibrator) for number in range(self.shape.layers)]
        started = time.perf_counter()
        head = self._embedding(writer)
        planes, scales = quantise.head_planes(head, self.shape.head_planes, self.checkpoint.head_name, self.loops)
        writer.group(self.shape.layers, GROUPS[-1], [planes])
        final_norm = self._norm(FINAL_NORM)
        description = writer.finish(
            layers,
            final_norm,
            scales,
            {
                "model": self.settings.model,
                "checkpoint": {
                    "tensors": len(self.checkpoint.tensors),
                    "bytes": self.checkpoint.size_bytes,
                    "dtypes": sorted({tensor.dtype for tensor in self.checkpoint.tensors.values()}),
                },
                "scales": {
                    "weights": "absmean of the latent weights, rounded to -1, 0, 1",
                    "head": "residual expansion, each plane the absmean rounding of what the planes before leave",
                    "kv": "largest magnitude on the calibration tokens over 127",
                },
                "calibration": calibrator.description(),
            },
        )
        self.times.pack += time.perf_counter() - started
        return description

    def _first_states(self) -> F32:
        """Embedding rows of the calibration tokens, rounded to float16 as the image holds them."""
        rows = [self.checkpoint.rows(EMBEDDING, int(i), int(i) + 1)[0] for i in self.tokens.ids]
        return np.stack(rows).astype(np.float16).astype(np.float32)

    def _layer(self, writer: ImageWriter, number: int, calibrator: Calibrator) -> LayerParams:
        started = time.perf_counter()
        packed: dict[str, U8] = {}
        scales: dict[str, np.float32] = {}
        for group, names in GROUP_MATRICES.items():
            for name in names:
                tensor = matrix_tensor(number, name)
                packed[name], scales[name] = quantise.pack_matrix(self._read(tensor), tensor, self.loops)
            writer.group(number, group, [packed[name] for name in names])
        norms = {name: self._norm(norm_tensor(number, name)) for name in self.checkpoint.architecture.norms()}
        packed_at = time.perf_counter()
        self.times.pack += packed_at - started
        heads = np.ones(self.shape.heads, dtype=np.float32)
        quantised = GoldenLayer(
            codes={
                name: ternary.unpack_rows(rows, self.checkpoint.architecture.matrix_shape(name)[1])
                for name, rows in packed.items()
            },
            scales=scales,
            input_norm=norms["input"],
            post_norm=norms["post"],
            inner_attn_norm=norms["inner_attn"],
            ffn_norm=norms["ffn"],
            k_scale=heads,
            v_scale=heads,
        )
        k_scale, v_scale = calibrator.layer(quantised)
        self.times.calibrate += time.perf_counter() - packed_at
        return LayerParams(
            norms["input"], norms["post"], norms["inner_attn"], norms["ffn"], scales, k_scale, v_scale
        )

    def _embedding(self, writer: ImageWriter) -> F32:
        """Writes ``embedding.f16`` and returns the head's matrix, float32[vocab, hidden]."""
        rows = self._read(EMBEDDING)
        for start in range(0, len(rows), _EMBEDDING_ROWS):
            with np.errstate(over="ignore"):
                half = rows[start : start + _EMBEDDING_ROWS].astype(np.float16)
            if not np.isfinite(half).all():
                raise CheckpointError(f"tensor '{EMBEDDING}' has a value that is not finite in float16")
            writer.embedding(half)
        return rows if self.checkpoint.architecture.tied else self._read(self.checkpoint.head_name)

    def _norm(self, tensor: str) -> F32:
        values = self._read(tensor)
        try:
            return norm_as_stored(values, tensor)
        except FormatError as error:
            raise CheckpointError(f"tensor '{tensor}': {error.message}") from error

    def _read(self, tensor: str) -> F32:
        """A whole tensor as float32. Not checked for NaN: the sum that gives its scale is, which costs nothing more."""
        _check(self.deadline)
        info = self.checkpoint.tensors[tensor]
        values = read_rows(info, 0, info.shape[0])
        self.done += info.size_bytes
        if self.progress is not None:
            self.progress(self.done, self.checkpoint.size_bytes)
        return values
