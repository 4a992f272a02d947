"""Who runs this: the name that others find on a board or a farm's place."""

from __future__ import annotations

import getpass
import os


def user() -> str:
    """The name of this process' user, or its number where nobody has given it a name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"
