"""What the board is and how it stands, read without changing anything. The host judges it."""

import os
import sys

from board_rt.files import hash_file
from board_rt.lease import boot_id, holder, uptime
from board_rt.releases import Releases

SYSTEM = os.environ.get("TRITFORGE_SYSROOT", "")
"""In front of the system's paths; empty on a board. Tests describe a board by a folder."""

PACKAGES = (
    "/usr/lib/python3/dist-packages",
    "/usr/local/lib/python3*/dist-packages",
    "/usr/local/lib/python3*/site-packages",
    "/usr/local/share/pynq-venv/lib/python3*/site-packages",
)
"""Where Python packages of Debian, Ubuntu and the PYNQ image lie. The agent itself runs without them."""


def read_text(path):
    try:
        with open(SYSTEM + path, encoding="utf-8", errors="replace") as stream:
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


DRIVERS = {
    "fpga_manager": "/sys/class/fpga_manager/fpga0",  # loads a bitstream
    "zocl": "/dev/dri/renderD128",  # contiguous memory
    "devmem": "/dev/mem",  # registers
}
"""What a board with a fabric needs of its kernel, by where it shows."""


def package(name):
    """The newest ``name`` that is installed, as a path of the file system, or an empty text. Nothing is imported."""
    import glob

    found = [path for place in PACKAGES for path in glob.glob(SYSTEM + place + "/" + name)]
    return found[-1] if found else ""


def pynq_version():
    return os.path.basename(package("pynq-*.dist-info"))[len("pynq-") : -len(".dist-info")]


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


def card_job():
    """SHA-256 of the one program that the user may run as root, or an empty text."""
    try:
        return hash_file(SYSTEM + "/usr/local/sbin/tritforge-job")
    except OSError:
        return ""


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
        "drivers": {name: os.path.exists(SYSTEM + path) for name, path in DRIVERS.items()},
        "card_job": card_job(),
        "tokenizers": bool(package("tokenizers")),
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
        "current_by_hand": releases.by_hand(),
        "releases": releases.installed(),
        "history": releases.history(),
        "lease": holder(root),
    }
