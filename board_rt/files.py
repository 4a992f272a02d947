"""Files on the board that are there whole or not at all, also after a power cut."""

import os

from board_rt.values import dumps, loads

CHUNK_BYTES = 1 << 20
HEX = frozenset("0123456789abcdef")


def is_hex(text, shortest, longest):
    """Whether it is a text of that many lower-case hexadecimal digits. (No pattern: see ``values``.)"""
    return isinstance(text, str) and shortest <= len(text) <= longest and HEX.issuperset(text)


def sync_folder(path):
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def temporary(path):
    """What this process calls ``path`` until it is whole."""
    return "{}.{}.tmp".format(path, os.getpid())


def is_temporary(name):
    stem, _, last = name.rpartition(".")
    return last == "tmp" and stem.rpartition(".")[2].isdigit()


def write_json(path, value, sync=True):
    """Temp file, fsync, rename, fsync of the folder; without ``sync`` for what a power cut may take."""
    begun = temporary(path)
    try:
        with open(begun, "w", encoding="utf-8") as stream:
            stream.write(dumps(value) + "\n")
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
        os.replace(begun, path)
    except BaseException:
        if os.path.lexists(begun):
            os.unlink(begun)
        raise
    if sync:
        sync_folder(os.path.dirname(path))


def read_json(path):
    """The value, or None when there is no such file or it is no JSON."""
    try:
        with open(path, encoding="utf-8") as stream:
            return loads(stream.read())
    except (OSError, ValueError):
        return None


def read_note(path):
    """A JSON object, or an empty one when there is none."""
    value = read_json(path)
    return value if isinstance(value, dict) else {}


def make_link(path, target):
    """A symbolic link beside ``path``, to be renamed over it: (its name, what identifies it)."""
    made = temporary(path)
    if os.path.lexists(made):
        os.unlink(made)
    os.symlink(target, made)
    return made, link_stamp(made)


def link_stamp(path):
    """Inode and time of a link itself: another one with the same target has others. None when there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return [status.st_ino, status.st_mtime_ns]


def hash_file(path):
    """SHA-256 of a file, in hex."""
    import hashlib

    digest = hashlib.sha256()
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as stream:
        while True:
            count = stream.readinto(buffer)
            if not count:
                return digest.hexdigest()
            digest.update(view[:count])


def remove_tree(path):
    """Removes a folder with all that is in it, as far as it is there and can be removed."""
    import shutil  # with its compressors a sixth of the agent's start, and most sessions remove nothing

    shutil.rmtree(path, ignore_errors=True)
