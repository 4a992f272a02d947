"""The runtime on this machine, through the same Python as on the board, with failures of the host's error tree."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from board_rt import runtime
from pipelines.base import errors
from pipelines.golden.float32 import F32

TraceReport = Callable[[str, int, npt.NDArray[np.generic]], None]

_DTYPES: dict[str, np.dtype[Any]] = {"f": np.dtype("<f4"), "i": np.dtype("<i4"), "b": np.dtype("i1")}


@contextlib.contextmanager
def native_errors() -> Iterator[None]:
    """Turns a failure of the native runtime into the error of the same name; a board's words become this machine's."""
    try:
        yield
    except runtime.FileFailure as failure:
        raise errors.ToolFailed(failure.message, hint="'./inv build-runtime' or './inv convert-weights'") from failure
    except runtime.RuntimeFailure as failure:
        kind: type[errors.TritforgeError] = getattr(errors, failure.kind)
        raise kind(failure.message, hint=failure.hint) from failure


class HostRuntime:
    """A :class:`board_rt.runtime.Runtime` that speaks numpy. ``backend`` host, rtl or model."""

    def __init__(self, library: Path, weights: Path, backend: str = "host", **options: Any) -> None:
        with native_errors():
            self.native = runtime.Runtime(library, weights, backend, **options)
        self.vocab = int(self.native.shape.vocab)

    def __enter__(self) -> HostRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.native.close()

    def reset(self) -> None:
        with native_errors():
            self.native.reset()

    def forward(self, token: int) -> F32:
        """float32[vocab]: a copy of the logits after one more token."""
        with native_errors():
            return np.frombuffer(self.native.forward(token), dtype=np.float32).copy()

    def generate(self, prompt: list[int], tokens: int, sampler: runtime.Sampler | None = None) -> list[int]:
        """Up to ``tokens`` further ids; ends before with the end-of-sequence token (included) or a full context."""
        sampler = sampler or runtime.Sampler()
        said = list(prompt)
        with native_errors():
            for token in prompt:
                logits = self.native.forward(token)
            while len(said) < len(prompt) + tokens and (len(said) == len(prompt) or said[-1] != self.native.shape.eos):
                if len(said) > len(prompt):
                    if self.native.position >= self.native.shape.context:
                        break
                    logits = self.native.forward(said[-1])
                said.append(self.native.sample(logits, sampler, said))
        return said[len(prompt) :]

    def trace(self, report: TraceReport | None) -> None:
        """Reports each trace point as (name, layer, array), as ``Forward`` does for one token; None ends it."""
        if report is None:
            self.native.trace(None)
            return
        self.native.trace(lambda name, layer, kind, data: report(name, layer, np.frombuffer(data, dtype=_DTYPES[kind])))


def memory_plan(library: Path, params: Path, context: int | None = None) -> dict[str, int]:
    """Bytes of contiguous memory that a release needs, part by part, computed by the runtime from params.tfp alone."""
    with native_errors():
        return dict(runtime.memory_plan(library, params, context).as_dict())
