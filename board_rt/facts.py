"""What the board is and how it stands, read without changing anything. The host judges it."""

import os
import sys

from board_rt.lease import boot_id, holder, uptime
from board_rt.releases import Releases


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def memory_kib():
    """/proc/meminfo as {name: KiB}."""
    values = {}
    for line in read_text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()
        if number and number[0].isdigit():
            values[name] = int(number[0])
    return values


def kernel_cma():
    """The ``cma=`` word of the kernel's command line, or an empty text."""
    for word in read_text("/proc/cmdline").split():
        if word.startswith("cma="):
            return word[4:]
    return ""


def image_version():
    """The system image: of an emulated board from its own file, of a PYNQ board from its REVISION file."""
    own = read_text("/etc/tritforge-image").strip()
    if own:
        return own
    for line in read_text("/home/xilinx/REVISION").splitlines():
        if line.startswith("Release"):
            return line.strip()
    return ""


def pynq_version():
    """Version of the pynq package, found without importing it (that takes seconds and needs root)."""
    import glob

    places = sys.path + ["/usr/local/share/pynq-venv/lib/python3.10/site-packages"]
    for place in places:
        for found in glob.glob(os.path.join(place or ".", "pynq-*.dist-info")):
            return os.path.basename(found)[len("pynq-") : -len(".dist-info")]
    return ""


def xrt():
    """XILINX_XRT as a login would have it."""
    if os.environ.get("XILINX_XRT"):
        return os.environ["XILINX_XRT"]
    for path in ("/etc/environment", "/etc/profile.d/xrt_setup.sh", "/etc/profile.d/pynq_venv.sh"):
        for line in read_text(path).splitlines():
            _, found, value = line.partition("XILINX_XRT=")
            if found:
                return value.strip().strip("\"'")
    return ""


def has_tokenizers():
    import importlib.util

    return importlib.util.find_spec("tokenizers") is not None


def gather(root):
    """The facts as JSON values; sizes in the unit of their name."""
    memory = memory_kib()
    disk = os.statvfs(root)
    releases = Releases(root)
    load = read_text("/proc/loadavg").split()
    return {
        "hostname": os.uname().nodename,
        "machine": os.uname().machine,
        "kernel": os.uname().release,
        "python": ".".join(str(number) for number in sys.version_info[:3]),
        "glibc": (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc ", ""),
        "image": image_version(),
        "pynq": pynq_version(),
        "xrt": xrt(),
        "fpga_manager": os.path.isdir("/sys/class/fpga_manager/fpga0"),
        "tokenizers": has_tokenizers(),
        "disk_free_bytes": disk.f_bavail * disk.f_frsize,
        "memory_kib": memory.get("MemTotal", 0),
        "memory_available_kib": memory.get("MemAvailable", 0),
        "cma_total_kib": memory.get("CmaTotal", 0),
        "cma_free_kib": memory.get("CmaFree", 0),
        "cma_argument": kernel_cma(),
        "cpus": os.cpu_count() or 0,
        "load_1min": float(load[0]) if load else 0.0,
        "uptime_s": uptime(),
        "boot_id": boot_id(),
        "current": releases.current(),
        "releases": releases.installed(),
        "history": releases.history(),
        "lease": holder(root),
    }
