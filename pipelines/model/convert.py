"""Checkpoint in, packed and calibrated image out.

Only packed weights, an eighteenth of a float32 checkpoint, are ever in memory as a whole: matrices come and go one by
one.
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.base import files
from pipelines.base.deadline import Deadline
from pipelines.base.errors import CheckpointError, FormatError, ToolTimeout
from pipelines.golden import ternary
from pipelines.golden.formats import GROUP_MATRICES, GROUPS, MATRICES, WORD_BYTES, words_for_row
from pipelines.golden.forward import GoldenLayer, ModelShape
from pipelines.model import calibration, kernel, quantise
from pipelines.model.calibration import Calibrator, Tokens
from pipelines.model.checkpoint import CONFIG, EMBEDDING, FINAL_NORM, Checkpoint, matrix_tensor, norm_tensor
from pipelines.model.image import ImageWriter, LayerParams, check_shape, group_order, norm_as_stored
from pipelines.model.kernel import Kernel
from pipelines.model.rounding import rounding_cost
from pipelines.model.safetensors_file import Visit, read_rows

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]
Progress = Callable[[int, int], None]
"""Called with (bytes of the checkpoint done, bytes in all)."""

MAX_TRANSFER_BYTES = (8 << 20) - 8  # a DMA length register of 23 bits, whole beats
RANDOM_TOKENS = 16  # enough to exercise calibration where tokens have no meaning
WORKERS = 2  # threads that read and pack; the loops and the reading leave Python's lock alone
_READ_BYTES = 8 << 20


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
class PackedMatrix:
    """Packed rows uint8[rows, 8 * ceil(n / 40)], part of their group's, and the scale of their codes."""

    layer: int
    name: str
    rows: U8
    scale: np.float32 = np.float32(0)


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
    ``calibrate_s``, ``kernel``, ``description`` (image.json), ``perplexity`` (of the calibration tokens, weights as
    they are and rounded) and ``warning`` (to be shown before a deploy; empty for a model that was trained ternary).

    Errors: CheckpointError for what is wrong with the checkpoint, DiskFull, ToolTimeout at the deadline; then nothing
    is left in ``out``.

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
        # Random tokens tell nothing about a model, and random weights are no ternary model anyway.
        cost = None if settings.calibration_text is None else rounding_cost(checkpoint, tokens.ids, deadline)
    return {
        "packed_bytes": description["files"]["weights.tfs"]["bytes"],
        "peak_rss_bytes": peak_rss_bytes(),
        "read_s": times.read,
        "pack_s": times.pack,
        "calibrate_s": times.calibrate,
        "kernel": loops.name,
        "perplexity": None if cost is None else {"plain": round(cost.plain, 2), "ternary": round(cost.rounded, 2)},
        "warning": "" if cost is None else cost.warning,
        "description": description,
    }


def shape_of(checkpoint: Checkpoint, settings: Settings) -> ModelShape:
    """The shape of the image, after checking that circuits and runtime can take it."""
    a = checkpoint.architecture
    where = checkpoint.folder / CONFIG
    if a.family != "bitnet":
        raise CheckpointError(
            f"{where}: a {a.family} checkpoint was not trained ternary and cannot be packed",
            hint="'./inv evaluate' shows what rounding it to ternary does to its perplexity",
        )
    if settings.context > a.max_positions:
        raise CheckpointError(
            f"{where}: context {settings.context} is beyond its max_position_embeddings {a.max_positions}"
        )
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
    """Packs everything first, several matrices at once, and keeps the packed rows for the calibration behind it."""

    checkpoint: Checkpoint
    shape: ModelShape
    settings: Settings
    tokens: Tokens
    loops: Kernel
    deadline: Deadline
    times: Times
    progress: Progress | None
    seen: dict[str, int] = field(default_factory=dict)  # bytes read of each tensor, for the progress
    _own: threading.local = field(default_factory=threading.local)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, writer: ImageWriter) -> dict[str, Any]:
        started = time.perf_counter()
        packed, head_scales = self._pack(writer)
        norms = [
            {name: self._norm(norm_tensor(number, name)) for name in self.checkpoint.architecture.norms()}
            for number in range(self.shape.layers)
        ]
        final_norm = self._norm(FINAL_NORM)
        packed_at = time.perf_counter()
        self.times.pack += packed_at - started
        calibrator = Calibrator(self.shape, self.tokens, self._first_states())
        layers = [self._calibrate(calibrator, packed[number], norms[number]) for number in range(self.shape.layers)]
        calibrated_at = time.perf_counter()
        self.times.calibrate += calibrated_at - packed_at
        description = writer.finish(layers, final_norm, head_scales, self._description(calibrator))
        self.times.pack += time.perf_counter() - calibrated_at
        return description

    def _pack(self, writer: ImageWriter) -> tuple[list[dict[str, PackedMatrix]], F32]:
        """Embedding, all matrices and the head, in the order of the image."""
        groups, packed = self._room()
        matrices = [packed[layer][name] for layer in range(self.shape.layers) for name in MATRICES]
        with ThreadPoolExecutor(WORKERS) as pool:
            try:
                embedding = pool.submit(self._embedding, writer)
                head = pool.submit(self._head)
                done = _ahead(pool, self._matrix, matrices)
                for layer in range(self.shape.layers):
                    for group, members in GROUP_MATRICES.items():
                        for _ in members:
                            next(done)
                        writer.group(layer, group, [groups.pop((layer, group))])
                embedding.result()
                planes, scales = head.result()
                writer.group(self.shape.layers, GROUPS[-1], [planes])
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return packed, scales

    def _room(self) -> tuple[dict[tuple[int, str], U8], list[dict[str, PackedMatrix]]]:
        """Memory for the packed rows of all layers, by group and by matrix.

        One array, which the system can back with large pages: making small ones costs as much as writing them.
        """
        order = [(layer, group) for layer, group in group_order(self.shape) if group in GROUP_MATRICES]
        sizes = [
            (self.shape.group_rows(group), words_for_row(self.shape.group_row_length(group)) * WORD_BYTES)
            for _, group in order
        ]
        whole = np.empty(sum(rows * width for rows, width in sizes), dtype=np.uint8)
        groups: dict[tuple[int, str], U8] = {}
        packed: list[dict[str, PackedMatrix]] = [{} for _ in range(self.shape.layers)]
        at = 0
        for (layer, group), (rows, width) in zip(order, sizes, strict=True):
            part = groups[layer, group] = whole[at : at + rows * width].reshape(rows, width)
            at += rows * width
            names = GROUP_MATRICES[group]
            for name, share in zip(names, np.split(part, len(names)), strict=True):
                packed[layer][name] = PackedMatrix(layer, name, share)
        return groups, packed

    def _matrix(self, matrix: PackedMatrix) -> None:
        tensor = matrix_tensor(matrix.layer, matrix.name)
        matrix.scale = quantise.pack_matrix(
            lambda visit: self._read(tensor, visit=visit), tensor, self.loops, matrix.rows
        )

    def _embedding(self, writer: ImageWriter) -> None:
        """Writes ``embedding.f16``, a file of its own, beside what the other threads do."""
        a = self.checkpoint.architecture
        half = np.empty((quantise.PART_ROWS, a.hidden), dtype=np.float16)
        for start in range(0, a.vocab, quantise.PART_ROWS):
            part = self._read(EMBEDDING, start, min(start + quantise.PART_ROWS, a.vocab))
            if not self.loops.to_half(part, half[: len(part)]):
                raise CheckpointError(f"tensor '{EMBEDDING}' has a value that is not finite in float16")
            writer.embedding(half[: len(part)])

    def _head(self) -> tuple[U8, F32]:
        a, name = self.checkpoint.architecture, self.checkpoint.head_name

        def rows(start: int, stop: int) -> F32:
            return self._read(name, start, stop)

        return quantise.head_planes(rows, (a.vocab, a.hidden), self.shape.head_planes, name, self.loops)

    def _first_states(self) -> F32:
        """Embedding rows of the calibration tokens, rounded to float16 as the image holds them."""
        rows = [self.checkpoint.rows(EMBEDDING, int(i), int(i) + 1)[0] for i in self.tokens.ids]
        return np.stack(rows).astype(np.float16).astype(np.float32)

    def _calibrate(
        self, calibrator: Calibrator, packed: dict[str, PackedMatrix], norms: Mapping[str, F32]
    ) -> LayerParams:
        """K and V scales of the next layer."""
        _check(self.deadline)
        scales = {name: matrix.scale for name, matrix in packed.items()}
        codes = {}
        for name in MATRICES:
            columns = self.checkpoint.architecture.matrix_shape(name)[1]
            codes[name] = ternary.unpack_rows(packed[name].rows, columns)
        unknown = np.ones(self.shape.heads, dtype=np.float32)
        k_scale, v_scale = calibrator.layer(
            GoldenLayer(
                codes, scales, norms["input"], norms["post"], norms["inner_attn"], norms["ffn"], unknown, unknown
            )
        )
        return LayerParams(norms["input"], norms["post"], norms["inner_attn"], norms["ffn"], scales, k_scale, v_scale)

    def _norm(self, tensor: str) -> F32:
        try:
            return norm_as_stored(self._read(tensor), tensor)  # a copy: the buffer is used again
        except FormatError as error:
            raise CheckpointError(f"tensor '{tensor}': {error.message}") from error

    def _read(self, tensor: str, start: int = 0, stop: int | None = None, visit: Visit | None = None) -> F32:
        """Rows of a tensor as float32, good until this thread reads again; ``visit`` as in ``read_rows``.

        Not checked for NaN: the sum that gives a matrix its scale is, which costs nothing more.
        """
        _check(self.deadline)
        info = self.checkpoint.tensors[tensor]
        stop = info.shape[0] if stop is None else stop
        size = info.size_bytes // info.shape[0] * (stop - start)
        buffer: U8 | None = getattr(self._own, "buffer", None)
        if buffer is None or buffer.size < size:
            buffer = self._own.buffer = np.empty(size, dtype=np.uint8)
        values = read_rows(info, start, stop, buffer, visit)
        if self.progress is not None:
            with self._lock:
                self.seen[tensor] = max(self.seen.get(tensor, 0), size * stop // (stop - start))
                done = sum(self.seen.values())
            self.progress(done, self.checkpoint.size_bytes)
        return values

    def _description(self, calibrator: Calibrator) -> dict[str, Any]:
        return {
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
        }


def _ahead(pool: ThreadPoolExecutor, work: Callable[[PackedMatrix], None], items: list[PackedMatrix]) -> Iterator[None]:
    """``work`` on each item: one step for each that is done, in order, with only a few items ahead of it."""
    waiting: deque[Future[None]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) > 2 * WORKERS:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
