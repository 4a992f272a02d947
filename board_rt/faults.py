"""Failures as the host gets to know them: a class name of its error tree, a message, a hint."""


class Fault(Exception):
    """``kind`` is the name of a class in ``pipelines/base/errors.py``; the host raises that one."""

    def __init__(self, kind, message, hint=""):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint

    def as_json(self):
        return {"class": self.kind, "message": self.message, "hint": self.hint}


def from_os_error(error, what):
    """The Fault for an OSError while doing ``what``: a full disk is the board's, everything else is unfit."""
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Fault(
            "BoardDiskFull",
            "no space left on the board while " + what,
            "keep fewer releases (keep_releases in the board's YAML), or free space on its card",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Fault(
            "BoardUnfit",
            "the board's user may not write while {}: {}".format(what, error),
            "the root folder of the board's YAML must belong to its user",
        )
    return Fault("BoardUnfit", "the board failed while {}: {}".format(what, error))
