"""The board's content-addressed files: ``objects/<sha256>``, complete and checked, read-only.

An upload grows in ``staging/<sha256>.part`` and becomes an object when its hash is right; a cut upload goes on where
it stopped. What was checked once is known by size, mtime and inode in ``checked.json``, so an unchanged release is not
read again at each deploy.
"""

import os

from board_rt.faults import Fault, from_os_error
from board_rt.files import hash_file, is_hex, read_json, write_json


def checked_digest(digest):
    """The digest itself, once it is sure that it can only name a file of ours."""
    if not is_hex(digest, 64, 64):
        raise Fault("TransferError", "not a SHA-256: {!r}".format(digest))
    return digest


class Objects:
    def __init__(self, root):
        self.folder = os.path.join(root, "objects")
        self.staging = os.path.join(root, "staging")
        self.memory_path = os.path.join(root, "checked.json")
        self._memory = None

    def path(self, digest):
        return os.path.join(self.folder, checked_digest(digest))

    def part(self, digest):
        return os.path.join(self.staging, checked_digest(digest) + ".part")

    def missing(self, digests):
        """{digest: bytes already in staging} of those that are not there whole. A damaged object is dropped."""
        found = {}
        for digest in digests:
            if not self.intact(digest):
                part = self.part(digest)
                found[digest] = os.path.getsize(part) if os.path.exists(part) else 0
        self.remember()
        return found

    def intact(self, digest, again=False):
        """Whether the object is there with the right hash. Read only when it changed since it was last read.

        ``again`` reads it in any case: a bit that flipped on the card changes no timestamp.
        """
        path = self.path(digest)
        try:
            stamp = _stamp(path)
        except OSError:
            return False
        if not again and self._known().get(digest) == stamp:
            return True
        if hash_file(path) != digest:
            self._known().pop(digest, None)
            self._memory_changed = True
            return False
        if self._known().get(digest) != stamp:
            self._known()[digest] = stamp
            self._memory_changed = True
        return True

    def drop(self, digest):
        path = self.path(digest)
        if os.path.lexists(path):
            os.unlink(path)

    def receive(self, digest, total, offset, chunks):
        """Appends ``chunks`` (an iterable of bytes, ``total - offset`` in all) and checks the whole; 0 begins anew.

        Not synced to the card here, once for all files is enough (``settle``): what a power cut leaves of them is not
        in ``checked.json`` and is read and, if need be, sent again.
        Raises TransferError when the hash is wrong: the upload is then thrown away, as no byte of it can be trusted.
        """
        import hashlib

        part = self.part(digest)
        try:
            have = os.path.getsize(part) if os.path.exists(part) else 0
            if offset not in (0, have):
                raise Fault("TransferError", "the upload is at byte {}, not {}".format(have, offset))
            running = hashlib.sha256()
            with open(part, "ab" if offset else "wb", buffering=0) as stream:
                if offset:
                    with open(part, "rb") as begun:
                        while True:
                            block = begun.read(1 << 20)
                            if not block:
                                break
                            running.update(block)
                for chunk in chunks:
                    view = memoryview(chunk)
                    while view:
                        view = view[stream.write(view) :]
                    running.update(chunk)
            if os.path.getsize(part) != total or running.hexdigest() != digest:
                os.unlink(part)
                raise Fault(
                    "TransferError",
                    "what arrived on the board has another hash than {}…".format(digest[:12]),
                    "run the same command again; if it happens again, the card or the connection is damaged",
                )
            os.chmod(part, 0o444)
            os.replace(part, self.path(digest))
        except OSError as error:
            fault = from_os_error(error, "receiving a file")
            if fault.kind == "BoardDiskFull" and os.path.exists(part):
                os.unlink(part)  # half a file helps nobody who has no space for the whole
            raise fault from error
        self._known()[digest] = _stamp(self.path(digest))
        self._memory_changed = True

    def settle(self):
        """Everything received so far is on the card, and known to be right."""
        os.sync()
        self.remember()

    def remember(self):
        """Keeps which objects were checked. Losing this costs one reading of them, so a full card is no fault here."""
        if self._memory is not None and self._memory_changed:
            try:
                write_json(self.memory_path, self._memory)
            except OSError:
                return
            self._memory_changed = False

    def collect(self, wanted=None):
        """Removes objects that no release links to (a hard link each), and uploads older than a day.

        With ``wanted`` (digests) these stay, and every other upload goes. Returns the bytes of the objects.
        """
        import time

        removed = 0
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            try:
                status = os.lstat(path)
                if name in (wanted or ()) or status.st_nlink > 1:
                    continue
                os.unlink(path)
            except OSError:  # one that cannot be removed keeps none of the others
                continue
            removed += status.st_size
            if self._known().pop(name, None):
                self._memory_changed = True
        for name in os.listdir(self.staging):
            path = os.path.join(self.staging, name)
            if name.endswith(".part"):
                if wanted is None:
                    useless = time.time() - os.path.getmtime(path) > 86400
                else:
                    useless = name[: -len(".part")] not in wanted
                if useless:
                    os.unlink(path)
        self.remember()
        return removed

    def _known(self):
        if self._memory is None:
            loaded = read_json(self.memory_path)
            self._memory = loaded if isinstance(loaded, dict) else {}
            self._memory_changed = False
        return self._memory


def _stamp(path):
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ino]
