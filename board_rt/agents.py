"""The agents on the board, ``agent/<hash>``: one for each version of a host that was here."""

import os

from board_rt.files import remove_tree

KEPT = 4


def prune(root, keep=KEPT):
    """Removes the agents used least lately, down to ``keep``, and what is left of one that never arrived whole.

    The one that runs this is kept, and so is each that a process was started with: a session that only reads needs no
    lease, and loads modules as it goes. A session that starts right now finds its agent gone, and its host sends it.
    """
    home = os.path.join(root, "agent")
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.dirname(own) == os.path.abspath(home):
        os.utime(own)
    whole, gone = [], []
    for name in os.listdir(home):
        (gone if "." in name else whole).append(name)
    whole.sort(key=lambda name: os.stat(os.path.join(home, name)).st_mtime_ns, reverse=True)
    gone += whole[keep:]
    commands = command_lines() if gone else b""
    for name in gone:
        path = os.path.join(home, name)
        if os.path.join(os.fsencode(home), os.fsencode(name.partition(".")[0])) in commands:
            continue
        if "." not in name:  # never half an agent under a name that is started
            os.rename(path, path + ".old")
            path += ".old"
        remove_tree(path)


def command_lines():
    """The arguments of every process that may be read, in one."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/{}/cmdline".format(name), "rb") as stream:
                    found.append(stream.read())
            except OSError:
                continue
    return b"\0".join(found)
