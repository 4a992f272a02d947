"""A strict pynq, 3.0.1 or 3.1.1 as ``facts.json`` says: signatures and traps read from their source distributions.

What differs from numpy's and XRT's own is a trap on purpose: buffers are uncached unless asked otherwise, ``coherent``
is False and ``cacheable`` True for each of them; a buffer's memory goes with the object; 3.0 holds the device as a
ctypes pointer and buffers as numbers, 3.1 as objects of pyxrt that nothing can be cast from; 3.1 leaves a file behind.

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
_state = {"loaded": None, "used": 0, "buffers": 0}
__version__ = _facts["pynq"]
_pyxrt = __version__ >= "3.1"


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


class _Pyxrt:
    """A device or buffer of pyxrt: nothing that ctypes takes."""


class _Device:
    def __init__(self):
        # xclOpen's result type is POINTER(c_void_p): an instance of that, not a number and not a c_void_p
        handle = ctypes.cast(0x71170, ctypes.POINTER(ctypes.c_void_p))
        self.handle = _Pyxrt() if _pyxrt else handle


_device = _Device()


class Overlay:
    def __init__(self, bitfile_name, dtbo=None, download=True, ignore_version=False, device=None, gen_cache=False):
        if not isinstance(bitfile_name, str):
            raise TypeError("Bitstream name has to be a string.")
        if "XILINX_XRT" not in os.environ:
            raise RuntimeError("No Devices Found")
        if not os.path.isabs(bitfile_name) or not os.path.exists(bitfile_name):
            raise OSError(f"Bitstream file {bitfile_name} does not exist.")
        if not os.path.exists(os.path.splitext(bitfile_name)[0] + ".hwh"):
            raise RuntimeError("Unable to find metadata for bitstream")
        self.device = _device
        if download:
            _state["loaded"] = bitfile_name
            if _pyxrt:
                with open("loaded.xclbin", "wb") as stream:
                    stream.write(b"xclbin2")
            if "server" in _facts:
                _bring_up(os.path.splitext(bitfile_name)[0] + ".hwh")


def _bring_up(handoff):
    """The logic as a process that ends with this one, or when another bitstream is loaded."""
    if "logic" in _state:
        _state["logic"].stdin.close()
        _state["logic"].wait()
    for name, size in (("registers", 5 * 0x10000), ("memory", _facts.get("memory_file_bytes", _facts["cma_bytes"]))):
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
    def __init__(self, base_addr, length=4, device=None, **kwargs):
        if _state["loaded"] is None:
            raise AssertionError("registers of an overlay that is not loaded: the bus hangs")
        window = {0x43C00000: 4, **{0x40400000 + 0x10000 * i: i for i in range(4)}}[base_addr]
        assert length <= 0x10000
        self.base_addr, self.length = base_addr, length
        self._map = _map("registers")
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map)) + window * 0x10000
        self.array = _Array(self._map, address, (length >> 2,), "<u4")


class PynqBuffer(_Array):
    coherent = False
    cacheable = True

    def __init__(self, owner, address, shape, typestr, bo, device_address):
        super().__init__(owner, address, shape, typestr)
        self.bo, self.device_address, self.device, self.offset = bo, device_address, _device, 0
        self.freed = False

    @property
    def physical_address(self):
        return self.device_address

    @property
    def virtual_address(self):
        return self.__array_interface__["data"][0]

    @property
    def nbytes(self):
        return self.shape[0] * int(self.__array_interface__["typestr"][2:])

    def flush(self):
        raise AssertionError("flush() syncs the whole buffer")

    invalidate = sync_to_device = sync_from_device = flush

    def freebuffer(self):
        """The real one unmaps: who still looks there crashes. Here it finds nothing that makes sense."""
        if not self.freed:
            self.freed = True
            ctypes.memset(self.virtual_address, 0xDE, self.nbytes)

    def __del__(self):
        self.freebuffer()


def allocate(shape, dtype="u4", target=None, **kwargs):
    if _state["loaded"] is None:
        raise RuntimeError("Overlay is not downloaded")
    return _allocate(shape, dtype, **kwargs)


def _allocate(shape, dtype, cacheable=0, pointer=None, cache=None):
    assert pointer is None and cache is None
    width = {"u1": 1, "u4": 4}[dtype]
    size = -(-shape[0] * width // 4096) * 4096
    if _state["used"] + size > _facts["cma_bytes"]:
        raise RuntimeError("Allocate failed: 4294967295")
    at, _state["used"] = _state["used"], _state["used"] + size
    owner = backing = _map("memory")
    address = pl = ctypes.addressof(ctypes.c_char.from_buffer(backing)) + at
    _state["buffers"] += 1
    bo = _state["buffers"]
    descriptors = bo == 1 and _facts.get("descriptors_coherent")
    if cacheable and not _facts.get("results_coherent") and not descriptors:
        raw = (ctypes.c_uint8 * (size + 4096))()
        ctypes.memset(raw, 0xA5, len(raw))  # what lies in memory is not what the logic left there
        address, owner = -(-ctypes.addressof(raw) // 4096) * 4096, (raw, backing)
    # Through a coherent port the logic's writes are seen at once; to invalidate would lose them: an error here.
    if not (cacheable and _facts.get("results_coherent")):
        xrt = ctypes.CDLL(os.path.join(os.environ["XILINX_XRT"], "lib", "libxrt_core.so"))
        xrt.fake_register(bo, ctypes.c_void_p(address), ctypes.c_void_p(pl), ctypes.c_size_t(size), bool(descriptors))
    return PynqBuffer(owner, address, shape, "<" + dtype, _Pyxrt() if _pyxrt else bo, _facts["base"] + at)
