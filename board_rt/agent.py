"""The board's end of a session: requests on stdin, JSON lines on stdout, until the host is gone.

A frame is one line of JSON, ``{"id": 7, "do": "facts", "with": {…}}``, and, when it has ``"payload": N``, N raw bytes
behind it. Each request is answered by any number of ``{"id": 7, "event": …}`` and then one ``{"id": 7, "result": …}``
or ``{"id": 7, "fault": {class, message, hint}}``. ``stop`` (end the running job) is never answered, and ``ping`` (the
host lives) by ``{"pong": 1}`` (so does the board), whatever else goes on.

The host may die at any instant. Its connection then ends and stdin with it, or nothing is heard for as long as the
lease holds; in both cases the agent ends its job and itself, and with it the lease.
"""

import _thread  # threading and queue would be most of an agent's start: see values.py
import fcntl
import os
import sys
import time

from board_rt.faults import Fault, from_os_error
from board_rt.lease import Lease, uptime
from board_rt.releases import Releases
from board_rt.values import dumps, loads

BEAT_S = 5.0
GRACE_S = 3.0  # from the end of stdin to the hard end
JOB_POLL_S = 0.1
PIPE_BYTES = 1 << 20  # Linux' default for the largest pipe of an ordinary user; a new one holds 64 KiB
F_SETPIPE_SZ = 1031  # fcntl has it by name from Python 3.10 on
END = object()


class Handover:
    """From one thread to another, one thing at a time: who gives waits until the thing before was taken.

    So no more than two frames of an upload (256 KiB each) are in memory.
    """

    def __init__(self):
        self.thing = None
        self.room, self.filled = _thread.allocate_lock(), _thread.allocate_lock()
        self.filled.acquire()

    def put(self, thing):
        self.room.acquire()
        self.thing = thing
        self.filled.release()

    def get(self):
        self.filled.acquire()
        thing, self.thing = self.thing, None
        self.room.release()
        return thing


class Session:
    def __init__(self, root, signers, stdin=0, stdout=1):
        self.root = root
        self.signers = signers
        self.releases = Releases(root)
        self.lease = Lease(root)
        self.lease_s = 60.0
        self.stdin = stdin
        self.stdout = stdout
        self.frames = Handover()
        self.heard = uptime()
        self.closed = False
        self.stop = False
        self.writing = _thread.allocate_lock()
        self.child = None

    # ------------------------------------------------------------------------------------------------ transport

    def send(self, value):
        data = (dumps(value) + "\n").encode("utf-8")
        with self.writing:
            while data:
                data = data[os.write(self.stdout, data) :]

    def widen(self):
        """More room between sshd and us, so that they wake each other less often: half of the time of a push."""
        try:
            fcntl.fcntl(self.stdin, F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass  # a socket, or a kernel that allows less: slower, and nothing else

    def read_frames(self):
        """The reading thread: nobody else reads stdin, so the end of the connection is always seen."""
        buffer = b""
        self.widen()
        try:
            while True:
                end = buffer.find(b"\n")
                if end < 0:
                    block = os.read(self.stdin, 1 << 18)
                    if not block:
                        return
                    buffer += block
                    continue
                frame = loads(buffer[:end].decode("utf-8"))
                buffer = buffer[end + 1 :]
                need = int(frame.get("payload", 0))
                pieces, have = [buffer[:need]], min(len(buffer), need)
                buffer = buffer[need:]
                while have < need:
                    block = os.read(self.stdin, min(1 << 18, need - have))
                    if not block:
                        return
                    pieces.append(block)
                    have += len(block)
                self.heard = uptime()
                if frame.get("do") == "stop":
                    self.stop = True
                elif frame.get("do") == "ping":
                    self.pong()
                else:
                    self.frames.put((frame, pieces))
        except (OSError, ValueError):
            return
        finally:
            self.closed = True
            self.frames.put((END, []))

    def pong(self):
        """Tells the host that the board lives, unless something else just does, or nobody reads what we send."""
        import select

        if self.writing.acquire(False):
            try:
                if select.select([], [self.stdout], [], 0)[1]:
                    os.write(self.stdout, b'{"pong": 1}\n')
            finally:
                self.writing.release()

    def watch(self):
        """The watching thread: heartbeat, and the hard end of a session whose host is gone or silent."""
        beat = uptime()
        ended = None
        while True:
            time.sleep(0.25)
            now = uptime()
            if self.closed or now - self.heard > self.lease_s:
                self.stop = True
                ended = ended or now
                if now - ended > GRACE_S or now - self.heard > self.lease_s:
                    try:
                        self.end_child()
                        self.lease.release()
                    finally:
                        os._exit(1)
            elif now - beat > BEAT_S:
                beat = now
                try:
                    self.lease.beat()
                except OSError:
                    pass  # a full card must not end the session; the kernel's lock still holds

    def serve(self):
        _thread.start_new_thread(self.read_frames, ())
        _thread.start_new_thread(self.watch, ())
        try:
            while True:
                frame, payload = self.frames.get()
                if frame is END:
                    return
                self.answer(frame, payload)
        except BrokenPipeError:
            return
        finally:
            self.end_child()
            self.lease.release()

    def answer(self, frame, payload):
        number = frame.get("id")
        try:
            command = COMMANDS.get(frame.get("do"))
            if command is None:
                raise Fault("BoardUnfit", "the agent does not know {!r}".format(frame.get("do")))
            if frame.get("payload") and frame["do"] != "upload":
                raise Fault("TransferError", "data came with a command that takes none")
            options = frame.get("with") or {}
            if frame["do"] == "upload":
                result = self.upload(payload, **options)
            else:
                result = command(self, number, **options)
            self.send({"id": number, "result": result})
        except Fault as fault:
            self.send({"id": number, "fault": fault.as_json()})
        except BrokenPipeError:
            raise
        except OSError as error:
            self.send({"id": number, "fault": from_os_error(error, "serving '{}'".format(frame.get("do"))).as_json()})
        except Exception as error:  # the host must learn of any failure; the session itself can go on
            message = "the agent failed at '{}': {}: {}".format(frame.get("do"), type(error).__name__, error)
            self.send({"id": number, "fault": Fault("BoardUnfit", message).as_json()})

    # ----------------------------------------------------------------------------------------------- requests

    def need_lease(self):
        if self.lease.handle is None:
            raise Fault("BoardBusy", "this needs the board's lease, and the session has none")

    def do_facts(self, number):
        from board_rt.facts import gather

        return gather(self.root)

    def do_acquire(self, number, owner, what, lease_s):
        """The lease, clean folders, and who left a lease behind, if anyone did."""
        left = self.lease.acquire(owner, what, lease_s)
        self.lease_s = float(lease_s)
        self.releases.prepare()
        return {"left_by": left.get("owner"), "current": self.releases.current()}

    def do_release_lease(self, number):
        self.lease.release()
        return {}

    def do_unchanged(self, number, release, signature):
        """Whether this release is current, whole and signed the same: then there is nothing to do.

        ``wrong`` says what no deploy has made so: another link, or a damaged file.
        """
        self.need_lease()
        if self.releases.by_hand():
            return {"unchanged": False, "wrong": self.wrong_release()}
        if self.releases.current() != release:
            return {"unchanged": False}
        folder = self.releases.path(release)
        try:
            files, total = self.releases.check(folder, again=False)
            with open(os.path.join(folder, "manifest.json.sig"), encoding="utf-8") as stream:
                if stream.read() != signature:
                    return {"unchanged": False}
        except (OSError, Fault) as error:
            return {"unchanged": False, "wrong": str(error)}
        return {"unchanged": True, "files": files, "bytes": total}

    def wrong_release(self):
        release = self.releases.current()
        found = release[:12] if release else "what is no release"
        return "the wrong release is current: {} was made current by hand, not by a deploy".format(found)

    def do_missing(self, number, digests):
        self.need_lease()
        missing = self.releases.objects.missing(digests)
        for digest in missing:
            self.releases.objects.drop(digest)  # there, but damaged
        return {"missing": missing, "disk_free_bytes": self.free_bytes()}

    def do_make_room(self, number, digests, keep):
        """Removes what no release and no upload of ``digests`` needs, when the card is too full for them."""
        self.need_lease()
        self.releases.prune(keep, digests)
        return {"disk_free_bytes": self.free_bytes()}

    def free_bytes(self):
        disk = os.statvfs(self.root)
        return disk.f_bavail * disk.f_frsize

    def do_upload(self, number):
        raise AssertionError("handled by upload()")

    def upload(self, first, digest, bytes, offset):
        """One file: this frame and the next ones carry its bytes, until ``bytes`` are there."""
        self.need_lease()
        left = [bytes - offset]

        def chunks():
            pieces = first
            while True:
                left[0] -= sum(len(piece) for piece in pieces)  # a frame at a time: what is left is still to come
                for piece in pieces:
                    yield piece
                if left[0] <= 0:
                    return
                frame, pieces = self.frames.get()
                if frame is END:
                    raise Fault("TransferError", "the connection ended in the middle of a file")
                if frame.get("do") != "more":
                    raise Fault("TransferError", "a file's bytes were expected, not {!r}".format(frame.get("do")))

        try:
            self.releases.objects.receive(digest, bytes, offset, chunks())
        except Fault:
            self.drain(left)
            raise
        return {}

    def drain(self, left):
        """Takes what is still on its way of a refused file, so that the next request is read as one."""
        while left[0] > 0:
            frame, pieces = self.frames.get()
            if frame is END:
                self.frames.put((END, []))
                return
            left[0] -= sum(len(piece) for piece in pieces)

    def do_assemble(self, number, release, manifest, signature):
        self.need_lease()
        self.releases.assemble(release, manifest, signature)
        return {}

    def do_signature(self, number, release, identity, staged=True):
        self.need_lease()
        folder = os.path.join(self.releases.staging, release) if staged else self.releases.path(release)
        self.releases.verify_signature(folder, identity, self.signers)
        return {}

    def do_check(self, number, release, again=False, staged=True):
        """Hashes on the board. ``again``: read every byte, whatever is remembered."""
        folder = os.path.join(self.releases.staging, release) if staged else self.releases.path(release)
        files, total = self.releases.check(folder, again=again)
        return {"files": files, "bytes": total}

    def do_activate(self, number, release, keep):
        from board_rt import agents

        self.need_lease()
        self.releases.install(release)
        previous = self.releases.activate(release)
        gone, freed = [], 0
        try:
            gone, freed = self.releases.prune(keep)
            agents.prune(self.root)
        except OSError:
            pass  # the release is current: what could not be removed now, the next deploy removes
        return {"previous": previous, "removed": gone, "freed_bytes": freed}

    def do_before(self, number):
        """Which release a rollback goes to, with its manifest."""
        release = self.releases.before()
        return {"release": release, "manifest": self.releases.manifest(release)}

    def do_rollback(self, number, release):
        self.need_lease()
        if self.releases.before() != release:
            raise Fault("BoardBusy", "the board's history changed meanwhile")
        new, old = self.releases.go_back()
        return {"release": new, "previous": old}

    def do_manifest(self, number, release=None):
        release = release or self.releases.current()
        if release is None:
            raise Fault("BoardUnfit", "the board has no release", "run './inv deploy' first")
        return {"release": release, "manifest": self.releases.manifest(release)}

    def do_job(self, number, job, options, release=None, staged=False, seconds=600.0, sudo=False):
        """Runs a job with the code of a release, its lines forwarded as events, and its result returned.

        The job is a process of its own: it can hang in the PL or crash without taking the session along.
        """
        import subprocess

        self.need_lease()
        if not staged and self.releases.by_hand():
            raise Fault(
                "MismatchError", self.wrong_release(), "deploy again: the board then runs what it is said to run"
            )
        if staged:
            folder = os.path.join(self.releases.staging, release)
        else:
            release = release or self.releases.current()
            if release is None:
                raise Fault("BoardUnfit", "the board has no release", "run './inv deploy' first")
            folder = self.releases.path(release)
        argv = [sys.executable, "-m", "board_rt", "job", job]
        if sudo:
            argv = ["sudo", "-n", "/usr/local/sbin/tritforge-job", folder, job]
        environment = dict(os.environ, PYTHONPYCACHEPREFIX=os.path.join(self.root, "pycache"), PYTHONUNBUFFERED="1")
        with os.fdopen(os.memfd_create("errors"), "rb") as errors:  # a full card has no room for a file of its own
            self.child = subprocess.Popen(
                argv, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
            try:
                return self.follow(number, job, dict(options, release=release), seconds, errors)
            finally:
                self.end_child(gently=True)
                self.stop = False  # not before the job: its stop may have been read already

    def follow(self, number, job, options, seconds, errors):
        """Forwards the child's lines until it is done. Raises its fault, PlTimeout, or Interrupted."""
        import select

        child = self.child
        try:
            child.stdin.write((dumps(options) + "\n").encode("utf-8"))
            child.stdin.flush()  # and stays open: its end tells the job that nobody listens
        except BrokenPipeError:
            pass  # it ended at once; its last words say why
        end = time.monotonic() + seconds
        buffer = b""
        while True:
            if self.stop:
                raise Fault("Interrupted", "the job '{}' on the board was stopped".format(job))
            if time.monotonic() > end:
                raise Fault(
                    "PlTimeout",
                    "the job '{}' on the board did not end within {:.0f} s".format(job, seconds),
                    "'./inv doctor' reads the engines' state",
                )
            if not select.select([child.stdout], [], [], JOB_POLL_S)[0]:
                continue
            block = os.read(child.stdout.fileno(), 1 << 16)
            if not block:
                status = child.wait(timeout=10)
                errors.seek(0, os.SEEK_END)
                errors.seek(max(0, errors.tell() - 4000))
                words = errors.read().decode("utf-8", "replace").strip().splitlines()
                raise Fault(
                    "BoardUnfit",
                    "the job '{}' on the board ended with status {}: {}".format(
                        job, status, words[-1] if words else "no message"
                    ),
                )
            buffer += block
            while b"\n" in buffer:
                line, buffer = buffer.split(b"\n", 1)
                value = loads(line.decode("utf-8"))
                if "fault" in value:
                    fault = value["fault"]
                    raise Fault(fault["class"], fault["message"], fault.get("hint", ""))
                if "result" in value:
                    return value["result"]
                self.send({"id": number, "event": value})

    def end_child(self, gently=False):
        child, self.child = self.child, None
        if child is None:
            return
        import signal

        for number in (signal.SIGTERM if gently else signal.SIGKILL, signal.SIGKILL):
            try:
                child.stdin.close()
            except OSError:
                pass
            try:
                os.killpg(child.pid, number)
            except OSError:
                pass
            try:
                child.wait(timeout=1.0)
                break
            except Exception:  # subprocess.TimeoutExpired, without importing subprocess for a session without jobs
                continue
        child.stdout.close()


COMMANDS = {name[len("do_") :]: getattr(Session, name) for name in dir(Session) if name.startswith("do_")}
