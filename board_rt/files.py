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


def write_json(path, value):
    """Temp file, fsync, rename, fsync of the folder."""
    temporary = "{}.{}.tmp".format(path, os.getpid())
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(value, stream, ensure_ascii=False, sort_keys=True)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(path))


def read_json(path):
    """The value, or None when there is no such file or it is no JSON."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def point_link(path, target):
    """Makes the symbolic link at ``path`` point to ``target``, in one step."""
    temporary = "{}.{}.tmp".format(path, os.getpid())
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(target, temporary)
    os.replace(temporary, path)
    sync_folder(os.path.dirname(path))


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
