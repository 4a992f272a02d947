"""Who has the board: a kernel lock that dies with its holder, and a file that says who that is.

``lease.lock`` is locked by the agent for as long as it serves an exclusive session, so a killed agent or a reboot
frees the board at once. ``lease.json`` names the owner and carries a heartbeat in seconds of uptime (a board has no
clock worth trusting). A holder whose heartbeat is older than its lease has lost the board and is ended.
"""

import _thread
import fcntl
import os
import time

from board_rt.faults import Fault, from_os_error
from board_rt.files import read_note, write_json

TAKE_OVER_S = 5.0  # how long a holder that lost its lease may take to die


def uptime():
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def boot_id():
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""


class Lease:
    """The lease of one root folder."""

    def __init__(self, root):
        self.path = os.path.join(root, "lease.json")
        self.lock_path = os.path.join(root, "lease.lock")
        self.handle = None
        self.note = None
        self._writing = _thread.allocate_lock()  # the heart beats in a thread of its own

    def acquire(self, owner, what, lease_s):
        """Takes the board or raises BoardBusy, naming the holder. Returns what was found of a dead holder."""
        try:
            self.handle = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise from_os_error(error, "taking the lease") from error
        if not self._lock():
            self._end_silent_holder()
            end = time.monotonic() + TAKE_OVER_S
            while not self._lock():
                if time.monotonic() > end:
                    self._refuse()
                time.sleep(0.05)
        left = read_note(self.path)
        note = {
            "owner": owner,
            "what": what,
            "pid": os.getpid(),
            "boot_id": boot_id(),
            "since": time.time(),
            "lease_s": lease_s,
        }
        with self._writing:
            self.note = note
        try:
            self.beat()
        except OSError:  # a full card: the lock holds without a note, and another holder's must not stand for ours
            self._forget()
        return left

    def beat(self):
        """Says that the holder lives. Not synced: no lease outlives a power cut, and a slow card may take its time."""
        with self._writing:
            if self.note is not None:
                self.note["heartbeat"] = uptime()
                write_json(self.path, self.note, sync=False)

    def release(self):
        if self.handle is not None:
            with self._writing:
                self.note = None
                self._forget()
            os.close(self.handle)
            self.handle = None

    def _forget(self):
        try:
            os.unlink(self.path)
        except OSError:  # not there; or a card that can only be read, whose lock is freed all the same
            pass

    def _lock(self):
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _end_silent_holder(self):
        note = read_note(self.path)
        if silent_for(note) is None or silent_for(note) <= note.get("lease_s", 0):
            self._refuse()
        import signal

        pid = note.get("pid")
        # The number may be another program's by now: only an agent of ours is ended.
        try:
            with open("/proc/{}/cmdline".format(int(pid)), "rb") as stream:
                ours = b"board_rt" in stream.read()
        except (OSError, TypeError, ValueError):
            ours = False
        if ours:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass

    def _refuse(self):
        note = read_note(self.path)
        os.close(self.handle)
        self.handle = None
        raise Fault(
            "BoardBusy",
            "the board is held by {} ({})".format(note.get("owner", "another session"), note.get("what", "?")),
            "wait until it has ended; a holder that dies frees the board at once, a silent one after {} s".format(
                note.get("lease_s", "?")
            ),
        )


def silent_for(note):
    """Seconds since the holder's last heartbeat, None when that is of another boot or not known."""
    if note.get("boot_id") != boot_id() or not isinstance(note.get("heartbeat"), (int, float)):
        return None
    return max(0.0, uptime() - note["heartbeat"])


def holder(root):
    """The lease as it stands: None when nobody has the board. Read-only."""
    path = os.path.join(root, "lease.lock")
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            note = read_note(os.path.join(root, "lease.json"))
            return {
                "owner": note.get("owner", ""),
                "what": note.get("what", ""),
                "since": note.get("since"),
                "silent_s": silent_for(note),
            }
        return None
    finally:
        os.close(handle)
