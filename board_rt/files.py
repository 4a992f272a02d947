"""Files on the board that are there whole or not at all, also after a power cut."""

import json
import os

CHUNK_BYTES = 1 << 20


def sync_folder(path):
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path, value, sync=True):
    """Temp file, fsync, rename, fsync of the folder; without ``sync`` for what a power cut may take."""
    temporary = "{}.{}.tmp".format(path, os.getpid())
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(value, stream, ensure_ascii=False, sort_keys=True)
            stream.write("\n")
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise
    if sync:
        sync_folder(os.path.dirname(path))


def read_json(path):
    """The value, or None when there is no such file or it is no JSON."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def read_note(path):
    """A JSON object, or an empty one when there is none."""
    value = read_json(path)
    return value if isinstance(value, dict) else {}


def make_link(path, target):
    """A symbolic link beside ``path``, to be renamed over it: (its name, what identifies it)."""
    temporary = "{}.{}.tmp".format(path, os.getpid())
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(target, temporary)
    return temporary, link_stamp(temporary)


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
