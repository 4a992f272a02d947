"""A strict pynq 3.0: the real signatures, and the traps that cost people a day each.

Registers and memory are files in FAKE_PYNQ_FOLDER that another process serves (pl_server.py). The processor's view of a
buffer is memory of its own: only xclSyncBO of the fake libxrt_core moves ranges between the two.
"""

import ctypes
import json
import mmap
import os

import numpy as np

_folder = os.environ["FAKE_PYNQ_FOLDER"]
_facts = json.load(open(os.path.join(_folder, "facts.json")))
_state = {"loaded": None, "used": 0, "buffers": []}
__version__ = "3.0.1"


def _map(name):
    descriptor = os.open(os.path.join(_folder, name), os.O_RDWR)
    try:
        return mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(descriptor)


class _Device:
    def __init__(self):
        self.handle = ctypes.c_void_p(0x71170)


_device = _Device()


class Overlay:
    def __init__(self, bitfile_name, dtbo=None, download=True, ignore_version=False, device=None, gen_cache=False):
        if "XILINX_XRT" not in os.environ:
            raise RuntimeError("No Devices Found")
        if not os.path.isabs(bitfile_name) or not os.path.exists(bitfile_name):
            raise OSError(f"Bitstream file {bitfile_name} does not exist.")
        if not os.path.exists(os.path.splitext(bitfile_name)[0] + ".hwh"):
            raise RuntimeError("Unable to find metadata for bitstream")
        if download:
            _state["loaded"] = bitfile_name


class _ClocksMeta(type):
    _value = 100.0

    @property
    def fclk0_mhz(cls):
        return _ClocksMeta._value

    @fclk0_mhz.setter
    def fclk0_mhz(cls, clk_mhz):
        if _state["loaded"] is None:
            raise AssertionError("the clock was set before the overlay, which sets it again")
        best = min((1000.0 / (a * b) for a in range(1, 64) for b in range(1, 64)), key=lambda f: abs(f - clk_mhz))
        _ClocksMeta._value = round(best * _facts.get("clock_error", 1.0), 6)

    def __setattr__(cls, name, value):
        if name != "fclk0_mhz":
            raise AttributeError(f"Clocks has no {name}")
        type.__setattr__(cls, name, value)


class Clocks(metaclass=_ClocksMeta):
    pass


class MMIO:
    def __init__(self, base_addr, length=4, device=None):
        if _state["loaded"] is None:
            raise AssertionError("registers of an overlay that is not loaded: the bus hangs")
        window = {0x43C00000: 4, **{0x40400000 + 0x10000 * i: i for i in range(4)}}[base_addr]
        assert length <= 0x10000
        self.base_addr, self.length = base_addr, length
        self._map = _map("registers")
        self.array = np.frombuffer(self._map, np.uint32, length >> 2, window * 0x10000)


class PynqBuffer(np.ndarray):
    device = None  # numpy 2 has a read-only attribute of this name

    def __new__(cls, *args, device=None, device_address=0, bo=0, coherent=False, **kwargs):
        self = super().__new__(cls, *args, **kwargs)
        self.device_address, self.coherent, self.bo, self.device = device_address, coherent, bo, device
        self.freed = False
        return self

    @property
    def physical_address(self):
        return self.device_address

    @property
    def cacheable(self):
        return not self.coherent

    @property
    def virtual_address(self):
        return self.__array_interface__["data"][0]

    def flush(self):
        raise AssertionError("flush() syncs the whole buffer")

    invalidate = flush

    def freebuffer(self):
        self.freed = True


def allocate(shape, dtype="u4", target=None, **kwargs):
    if _state["loaded"] is None:
        raise RuntimeError("Overlay is not downloaded")
    if kwargs and not _facts["knows_cacheable"]:
        raise TypeError("allocate() got an unexpected keyword argument 'cacheable'")
    cacheable = kwargs.pop("cacheable", True)
    assert not kwargs
    size = -(-int(np.prod(shape)) * np.dtype(dtype).itemsize // 4096) * 4096
    if _state["used"] + size > _facts["cma_bytes"]:
        raise RuntimeError("Allocate failed: 4294967295")
    at, _state["used"] = _state["used"], _state["used"] + size
    backing = _map("memory")
    pl = ctypes.addressof(ctypes.c_char.from_buffer(backing)) + at
    bo = len(_state["buffers"]) + 1
    if cacheable:
        raw = np.full(size, 0xA5, dtype=np.uint8)  # what lies in memory is not what the logic left there
        buffer = PynqBuffer(shape, dtype, buffer=raw, bo=bo, device=_device, device_address=_facts["base"] + at)
        xrt = ctypes.CDLL(os.path.join(os.environ["XILINX_XRT"], "lib", "libxrt_core.so"))
        xrt.fake_register(bo, ctypes.c_void_p(buffer.virtual_address), ctypes.c_void_p(pl), ctypes.c_size_t(size))
    else:
        raw = np.frombuffer(backing, np.uint8, size, at)
        buffer = PynqBuffer(
            shape, dtype, buffer=raw, bo=bo, device=_device, device_address=_facts["base"] + at, coherent=True
        )
    _state["buffers"].append((buffer, raw, backing))
    return buffer
