"""The native runtime from Python: ctypes over ``native/include/tritforge.h``.

Python is for set-up; one call of :meth:`Runtime.forward` is one token, and everything inside it is C. Standard library
only, so that it runs on a board as it is.
"""

import ctypes
import os
import time

from board_rt.faults import Fault

API_VERSION = 2

BACKENDS = ("host", "rtl", "model", "mmio")
"""``host``: the circuits' integers computed by the CPU. ``rtl``: the Verilated circuits, ``model``: the same registers
with functional engines, both in ``pl_library``. ``mmio``: a board."""

PARTS = (
    "embedding", "norm", "qkv_results", "attention_results", "residual", "gate", "logits", "driver",
    "wait_qkv", "wait_o", "wait_gate_up", "wait_down", "wait_head", "wait_attention",
)  # fmt: skip
"""Parts of a token's time, in the order of ``tf_part``."""

TRACE_POINTS = (
    "embedding", "attn_in_code", "attn_in_scale", "qkv_acc", "q_rot", "k_rot", "q_code", "score_m", "k_code", "v_code",
    "attn_acc", "attn_out", "o_in_code", "o_in_scale", "o_acc", "attn_residual", "ffn_in_code", "ffn_in_scale",
    "gate_up_acc", "ffn_hidden", "down_in_code", "down_in_scale", "down_acc", "ffn_residual", "head_in_code",
    "head_in_scale", "head_acc", "logits",
)  # fmt: skip
"""Names of the trace points, in the order of ``TF_TRACE_*``."""


class RuntimeFailure(Fault):
    """A call of the native runtime failed: a Fault, so that the host raises the class of the same name."""

    name = "ToolFailed"
    advice = ""

    def __init__(self, message):
        super().__init__(self.name, message, self.advice)


class UsageFailure(RuntimeFailure):
    name = "UsageError"


class FileFailure(RuntimeFailure):
    name = "BoardUnfit"
    advice = "deploy the release again: a file of it is missing or cannot be read"


class FormatFailure(RuntimeFailure):
    name = "FormatError"
    advice = "convert the weights again; the file is damaged or of another format version"


class MemoryFailure(RuntimeFailure):
    name = "BoardUnfit"
    advice = "raise cma= on the board's kernel command line, or lower the context"


class PlUnfit(RuntimeFailure):
    name = "BoardUnfit"
    advice = "load the bitstream of the same release"


class PlTimeout(RuntimeFailure):
    name = "PlTimeout"
    advice = "run it again, which resets circuits and DMAs; the counters in the message say where the stream stopped"


class PlFault(RuntimeFailure):
    """A DMA stopped with an error."""

    name = "PlTimeout"
    advice = "run it again, which resets circuits and DMAs; DMASR in the message names the error"


class ContextFull(RuntimeFailure):
    name = "UsageError"
    advice = "start a new conversation, or build the release with a larger context"


FAILURES = {
    1: UsageFailure, 2: FileFailure, 3: FormatFailure, 4: MemoryFailure,
    5: PlUnfit, 6: PlTimeout, 7: PlFault, 8: ContextFull,
}  # fmt: skip
"""Failure classes by ``tf_status``."""


class Buffer(ctypes.Structure):
    """``tf_buffer``: memory that CPU and PL share."""

    _fields_ = [
        ("cpu", ctypes.c_void_p),
        ("physical", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("cached", ctypes.c_uint32),
        ("bo_handle", ctypes.c_uint32),
    ]


class MmioOptions(ctypes.Structure):
    """``tf_mmio_options``: what backend ``mmio`` is given."""

    _fields_ = [
        ("control", ctypes.c_void_p),
        ("dma", ctypes.c_void_p * 4),
        ("streams", Buffer),
        ("results", Buffer),
        ("sync", ctypes.c_void_p),
        ("sync_device", ctypes.c_void_p),
        ("drm_fd", ctypes.c_int32),
        ("results_padded_bytes", ctypes.c_uint32),
        ("descriptors_coherent", ctypes.c_uint32),
        ("zero", ctypes.c_uint32),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("api_version", ctypes.c_uint32),
        ("params_path", ctypes.c_char_p),
        ("stream_path", ctypes.c_char_p),
        ("embedding_path", ctypes.c_char_p),
        ("backend", ctypes.c_char_p),
        ("pl_library", ctypes.c_char_p),
        ("mmio", ctypes.POINTER(MmioOptions)),
        ("context", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("deadline_ms", ctypes.c_uint32),
        ("simple_dma", ctypes.c_uint32),
        ("plain", ctypes.c_uint32),
    ]


class MemoryPlan(ctypes.Structure):
    """``tf_memory_plan``: contiguous memory of a release, in bytes."""

    _fields_ = [
        ("total", ctypes.c_uint64),
        ("streams", ctypes.c_uint64),
        ("results", ctypes.c_uint64),
        ("weights", ctypes.c_uint64),
        ("keys_values", ctypes.c_uint64),
        ("head_slots", ctypes.c_uint64),
        ("descriptors", ctypes.c_uint64),
        ("staging", ctypes.c_uint64),
        ("embedding", ctypes.c_uint64),
        ("context", ctypes.c_uint32),
        ("transfers_per_token", ctypes.c_uint32),
    ]

    def as_dict(self):
        """Field names and values."""
        return {name: int(getattr(self, name)) for name, _ in self._fields_}


class Shape(ctypes.Structure):
    """``tf_shape``: sizes of the model."""

    _fields_ = [
        ("hidden", ctypes.c_uint32),
        ("ffn", ctypes.c_uint32),
        ("layers", ctypes.c_uint32),
        ("heads", ctypes.c_uint32),
        ("head_dim", ctypes.c_uint32),
        ("vocab", ctypes.c_uint32),
        ("context", ctypes.c_uint32),
        ("head_planes", ctypes.c_uint32),
        ("bos", ctypes.c_uint32),
        ("eos", ctypes.c_uint32),
        ("stream_bytes", ctypes.c_uint64),
    ]


class _Sampling(ctypes.Structure):
    _fields_ = [
        ("temperature", ctypes.c_float),
        ("top_k", ctypes.c_uint32),
        ("top_p_65536", ctypes.c_uint32),
        ("repetition_penalty", ctypes.c_float),
    ]


class _Profile(ctypes.Structure):
    _fields_ = [
        ("tokens", ctypes.c_uint64),
        ("nanoseconds", ctypes.c_uint64 * len(PARTS)),
        ("register_reads", ctypes.c_uint64),
        ("register_writes", ctypes.c_uint64),
        ("cleaned_bytes", ctypes.c_uint64),
        ("invalidated_bytes", ctypes.c_uint64),
        ("cache_calls", ctypes.c_uint64),
        ("score_saturations", ctypes.c_uint64),
    ]


_TRACE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int32, ctypes.c_char, ctypes.c_void_p, ctypes.c_size_t
)
_WIDTH = {b"f": 4, b"i": 4, b"b": 1}


def load(library):
    """The library at this path with the signatures of its functions set."""
    try:
        lib = ctypes.CDLL(str(library))
    except OSError as error:
        raise FileFailure("the runtime library cannot be loaded: %s" % error) from error
    runtime, status = ctypes.c_void_p, ctypes.c_int
    signatures = {
        "tf_api_version": (ctypes.c_uint32, []),
        "tf_formats_version": (ctypes.c_uint32, []),
        "tf_last_error": (ctypes.c_char_p, []),
        "tf_open": (status, [ctypes.POINTER(_Options), ctypes.POINTER(runtime)]),
        "tf_close": (None, [runtime]),
        "tf_plan": (status, [ctypes.c_char_p, ctypes.c_uint32, ctypes.POINTER(MemoryPlan)]),
        "tf_get_shape": (None, [runtime, ctypes.POINTER(Shape)]),
        "tf_reset": (status, [runtime]),
        "tf_position": (ctypes.c_uint32, [runtime]),
        "tf_forward": (status, [runtime, ctypes.c_uint32, ctypes.POINTER(ctypes.POINTER(ctypes.c_float))]),
        "tf_sample": (
            status,
            [runtime, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_size_t, ctypes.POINTER(_Sampling),
             ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32)],
        ),
        "tf_set_trace": (None, [runtime, _TRACE, ctypes.c_void_p]),
        "tf_get_profile": (None, [runtime, ctypes.POINTER(_Profile)]),
        "tf_read_control": (status, [runtime, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32)]),
        "tf_measure_clock": (status, [runtime, ctypes.c_uint32, ctypes.POINTER(ctypes.c_double)]),
        "tf_complaint": (ctypes.c_char_p, [runtime]),
        "tf_flush_to_zero": (ctypes.c_int, [ctypes.c_int]),
    }  # fmt: skip
    for name, (result, arguments) in signatures.items():
        try:
            function = getattr(lib, name)
        except AttributeError:
            raise FileFailure("%s is not a tritforge runtime: it has no %s" % (library, name)) from None
        function.restype, function.argtypes = result, arguments
    if lib.tf_api_version() != API_VERSION:
        raise UsageFailure("%s has API version %d, this is %d" % (library, lib.tf_api_version(), API_VERSION))
    return lib


def _check(lib, status):
    if status:
        text = lib.tf_last_error().decode("utf-8", "replace")
        raise FAILURES.get(status, RuntimeFailure)(text)


def memory_plan(library, params_path, context=None):
    """Contiguous memory that a release needs, from its ``params.tfp`` alone: a :class:`MemoryPlan`."""
    lib = load(library)
    plan = MemoryPlan()
    _check(lib, lib.tf_plan(os.fsencode(str(params_path)), context or 0, ctypes.byref(plan)))
    return plan


class Runtime:
    """One conversation with one model.

    ``library`` is ``libtritforge.so``; ``release_dir`` a folder with ``weights/params.tfp``, ``weights/weights.tfs``
    and ``weights/embedding.f16`` (or with the three files themselves). ``context`` None is the release's largest.
    ``mmio`` (:class:`MmioOptions`) is needed for that backend only; ``deadline_ms`` bounds each group of transfers.
    Raises a :class:`RuntimeFailure` of the class that fits. A context manager; close() may be called twice.
    """

    def __init__(self, library, release_dir, backend, pl_library=None, context=None, threads=1, mmio=None,
                 deadline_ms=None, simple_dma=False, plain=False):  # fmt: skip
        self._handle = ctypes.c_void_p()
        self._lib = load(library)
        folder = os.path.join(str(release_dir), "weights")
        if not os.path.isdir(folder):
            folder = str(release_dir)
        self.params_path = os.path.join(folder, "params.tfp")
        self._options = _Options(
            struct_bytes=ctypes.sizeof(_Options),
            api_version=API_VERSION,
            params_path=os.fsencode(self.params_path),
            stream_path=os.fsencode(os.path.join(folder, "weights.tfs")),
            embedding_path=os.fsencode(os.path.join(folder, "embedding.f16")),
            backend=backend.encode("ascii"),
            pl_library=os.fsencode(str(pl_library)) if pl_library else None,
            context=context or 0,
            threads=threads,
            deadline_ms=deadline_ms or 0,
            simple_dma=int(simple_dma),
            plain=int(plain),
        )
        self._mmio = mmio  # the C side reads it while opening only; kept so that its buffers live as long as we do
        if mmio is not None:
            self._options.mmio = ctypes.pointer(mmio)
        started = time.monotonic()
        self._call(self._lib.tf_open(ctypes.byref(self._options), ctypes.byref(self._handle)))
        self.open_s = time.monotonic() - started
        self.shape = Shape()
        self._lib.tf_get_shape(self._handle, ctypes.byref(self.shape))
        self._logits = ctypes.c_float * self.shape.vocab
        self._trace = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _call(self, status):
        _check(self._lib, status)

    def _open_handle(self):
        if not self._handle:
            raise UsageFailure("the runtime is closed")
        return self._handle

    def close(self):
        """Stops the DMAs and gives everything back."""
        if self._handle:
            self._lib.tf_close(self._handle)
            self._handle = ctypes.c_void_p()

    def reset(self):
        """Forgets the conversation; after a failure also resets DMAs and circuits."""
        self._call(self._lib.tf_reset(self._open_handle()))

    @property
    def position(self):
        """Tokens said since the last reset."""
        return self._lib.tf_position(self._open_handle())

    def forward(self, token):
        """One more token: float32[vocab] logits as a ctypes array, valid until the next call (copy it to keep it)."""
        logits = ctypes.POINTER(ctypes.c_float)()
        self._call(self._lib.tf_forward(self._open_handle(), token, ctypes.byref(logits)))
        return ctypes.cast(logits, ctypes.POINTER(self._logits)).contents

    def sample(self, logits, sampler, seen=()):
        """The next token id from logits as :meth:`forward` returns them; ``sampler`` is a :class:`Sampler`."""
        ids = (ctypes.c_uint32 * len(seen))(*seen)
        token = ctypes.c_uint32()
        self._call(
            self._lib.tf_sample(
                self._open_handle(),
                ctypes.addressof(logits),
                ids,
                len(seen),
                ctypes.byref(sampler._options),
                ctypes.byref(sampler._state),
                ctypes.byref(token),
            )  # fmt: skip
        )
        return token.value

    def trace(self, report):
        """Calls ``report(point, layer, type, data)`` at each trace point (name, -1 outside layers, f i or b, bytes).

        None ends it. An exception in ``report`` is raised by nobody: ctypes prints it.
        """
        if report is None:
            self._trace = _TRACE()
        else:

            def call(_, point, layer, kind, data, count):
                report(TRACE_POINTS[point], layer, kind.decode("ascii"), ctypes.string_at(data, count * _WIDTH[kind]))

            self._trace = _TRACE(call)
        self._lib.tf_set_trace(self._open_handle(), self._trace, None)

    def profile(self):
        """Sums since opening: ``tokens``, ``ns`` by part, register accesses, cache maintenance, saturated scores."""
        raw = _Profile()
        self._lib.tf_get_profile(self._open_handle(), ctypes.byref(raw))
        result = {name: int(getattr(raw, name)) for name, _ in _Profile._fields_ if name != "nanoseconds"}
        result["ns"] = {name: int(raw.nanoseconds[i]) for i, name in enumerate(PARTS)}
        return result

    def plan(self):
        """Contiguous memory of this release at this context: a :class:`MemoryPlan`."""
        plan = MemoryPlan()
        self._call(self._lib.tf_plan(os.fsencode(self.params_path), self.shape.context, ctypes.byref(plan)))
        return plan

    def read_control(self, offset):
        """A word of the control block (``REGISTERS`` in formats.py); not with backend host."""
        value = ctypes.c_uint32()
        self._call(self._lib.tf_read_control(self._open_handle(), offset, ctypes.byref(value)))
        return value.value

    def measure_clock(self, milliseconds=20):
        """The PL's clock in hertz, from its cycle counter over some time."""
        hertz = ctypes.c_double()
        self._call(self._lib.tf_measure_clock(self._open_handle(), milliseconds, ctypes.byref(hertz)))
        return hertz.value

    def complaint(self):
        """What the simulated DMAs hold against the driver, or ''."""
        return self._lib.tf_complaint(self._open_handle()).decode("utf-8", "replace")

    def flush_to_zero(self, on):
        """Sets (True, False) or leaves (None) flush-to-zero of this thread; returns the former state."""
        return bool(self._lib.tf_flush_to_zero(-1 if on is None else int(on)))


class Sampler:
    """How the next token is drawn, and the state of the generator. temperature 0 is greedy."""

    def __init__(self, temperature=0.0, top_k=0, top_p=1.0, repetition_penalty=1.0, seed=0):
        if not 0.0 <= top_p <= 1.0:
            raise UsageFailure("top_p is %r; it must be 0 to 1" % top_p)
        if top_k < 0:
            raise UsageFailure("top_k is %r; it must not be negative" % top_k)
        self._options = _Sampling(temperature, top_k, round(top_p * 65536), repetition_penalty)
        self._state = ctypes.c_uint64(seed & (1 << 64) - 1)
