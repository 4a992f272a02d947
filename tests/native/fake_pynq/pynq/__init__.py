"""A strict pynq 3.0: the real signatures, and the traps that cost people a day each.

Registers and memory are files in a folder, FAKE_PYNQ_FOLDER or the board's own, that another process serves
(pl_server.c). ``facts.json`` there describes the board; with ``server`` in it (a command), loading a bitstream starts
that process, and the content id is the loaded bitstream's. The processor's view of a buffer is memory of its own: only
xclSyncBO of the fake libxrt_core moves ranges between the two. No numpy: arrays are what a caller may use of one.
"""

import ctypes
import json
import mmap
import os
import re
import subprocess

_folder = os.environ.get("FAKE_PYNQ_FOLDER", "/var/lib/fake-pynq")
_facts = json.load(open(os.path.join(_folder, "facts.json")))
_state = {"loaded": None, "used": 0, "buffers": []}
__version__ = "3.0.1"


def _map(name):
    descriptor = os.open(os.path.join(_folder, name), os.O_RDWR)
    try:
        return mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(descriptor)


class _Array:
    """Bytes at an address, as numpy describes them to others."""

    def __init__(self, owner, address, shape, typestr):
        self._owner, self.shape = owner, shape
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": typestr, "version": 3}


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
            if "server" in _facts:
                _bring_up(os.path.splitext(bitfile_name)[0] + ".hwh")


def _bring_up(handoff):
    """The logic as a process that ends with this one, or when another bitstream is loaded."""
    if "logic" in _state:
        _state["logic"].stdin.close()
        _state["logic"].wait()
    for name, size in (("registers", 5 * 0x10000), ("memory", _facts["cma_bytes"])):
        with open(os.path.join(_folder, name), "wb") as stream:
            stream.truncate(size)
    # The driver's deadline is a real board's; a simulation on a busy machine keeps no real time.
    os.environ.setdefault("TRITFORGE_PL_DEADLINE_MS", "120000")
    content_id = re.search(r'NAME="CONTENT_ID" VALUE="(0x[0-9A-Fa-f]+)"', open(handoff).read()).group(1)
    server, library = _facts["server"]
    _state["logic"] = subprocess.Popen(
        [server, _folder, library, str(_facts["base"]), str(_facts["cma_bytes"]), content_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    if _state["logic"].stdout.readline() != b"ready\n":
        raise RuntimeError("the logic did not come up")


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
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map)) + window * 0x10000
        self.array = _Array(self._map, address, (length >> 2,), "<u4")


class PynqBuffer(_Array):
    def __init__(self, owner, address, shape, typestr, bo, device_address, coherent):
        super().__init__(owner, address, shape, typestr)
        self.bo, self.device_address, self.coherent, self.device = bo, device_address, coherent, _device
        self.freed = False

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
    width = {"u1": 1, "u4": 4}[dtype]
    size = -(-shape[0] * width // 4096) * 4096
    if _state["used"] + size > _facts["cma_bytes"]:
        raise RuntimeError("Allocate failed: 4294967295")
    at, _state["used"] = _state["used"], _state["used"] + size
    backing = _map("memory")
    pl = ctypes.addressof(ctypes.c_char.from_buffer(backing)) + at
    bo, typestr, device_address = len(_state["buffers"]) + 1, "<" + dtype, _facts["base"] + at
    if cacheable and _facts.get("results_coherent"):
        # The logic writes through the coherent port: the processor sees it at once, and to sync is an error here.
        buffer = PynqBuffer(backing, pl, shape, typestr, bo, device_address, coherent=False)
    elif cacheable:
        raw = (ctypes.c_uint8 * (size + 4096))()
        ctypes.memset(raw, 0xA5, len(raw))  # what lies in memory is not what the logic left there
        address = -(-ctypes.addressof(raw) // 4096) * 4096
        xrt = ctypes.CDLL(os.path.join(os.environ["XILINX_XRT"], "lib", "libxrt_core.so"))
        xrt.fake_register(bo, ctypes.c_void_p(address), ctypes.c_void_p(pl), ctypes.c_size_t(size))
        buffer = PynqBuffer((raw, backing), address, shape, typestr, bo, device_address, coherent=False)
    else:
        buffer = PynqBuffer(backing, pl, shape, typestr, bo, device_address, coherent=True)
    _state["buffers"].append(buffer)
    return buffer
