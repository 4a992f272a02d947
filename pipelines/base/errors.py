"""The one error tree, and the one table from error to exit status.

Every error says what happened (``message``), what to do next (``hint``) and where the full
story is (``log``). ``tasks.py`` prints these three and exits with ``status``; nobody else exits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


class TritforgeError(Exception):
    """Base of all errors that a user may meet. ``status`` is the process exit status.

    ``result`` holds what was found before it failed: the JSON keys of the task, such as a verify's mismatches.
    """

    status = 3

    def __init__(
        self, message: str, *, hint: str = "", log: Path | None = None, result: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.result = result or {}
        self.message = message
        self.hint = hint
        self.log = log

    def __str__(self) -> str:
        return self.message  # which may have been told where it happened since it was made


# 1: a check failed
class CheckFailed(TritforgeError):
    """Something was measured and is not as it must be."""

    status = 1


class GateError(CheckFailed):
    """A build result does not hold its limits (timing, resources, warnings)."""


class MismatchError(CheckFailed):
    """Two machines, or a circuit and the golden model, disagree on a bit."""


# 2: wrong usage or configuration
class ConfigError(TritforgeError):
    """A YAML value, flag or environment variable is wrong; ``file:line:column`` in the message."""

    status = 2


class UsageError(ConfigError):
    """A command was called with arguments that cannot be."""


class CheckpointError(ConfigError):
    """A model checkpoint is not what it must be; names the tensor or file."""


class FormatError(ConfigError):
    """A packed image, manifest or stream is not in the format; names offset and field."""


# 3: a tool is missing or failed
class ToolMissing(TritforgeError):
    """A program that a step needs is not there."""

    status = 3


class ToolFailed(TritforgeError):
    """A program ended with an error; carries the first error line and the last lines."""

    status = 3


class ToolTimeout(ToolFailed):
    """A program did not end within its deadline."""


class OutOfMemory(ToolFailed):
    """A program was ended by the kernel's out-of-memory killer."""


class DiskFull(ToolFailed):
    """No space left on this machine."""


class LicenceError(ToolFailed):
    """A licensed tool got no licence within its bound."""


class StoreError(ToolFailed):
    """An artefact in the store is damaged or cannot be written."""


# 4: the board is offline, busy or not fit
class BoardError(TritforgeError):
    """Something about the board keeps the job from running."""

    status = 4


class BoardOffline(BoardError):
    """The board does not answer."""


class BoardBusy(BoardError):
    """Somebody else holds the board's lease, or a lock on this machine."""


class LockHeld(BoardBusy):
    """Another tritforge process on this machine holds the lock."""


class BoardUnfit(BoardError):
    """The board answers, but cannot run this release (CMA, disk, Python, clock …)."""


class BoardDiskFull(BoardUnfit):
    """No space left on the board."""


class HostKeyChanged(BoardError):
    """The board's ssh host key is not the pinned one."""


class SignatureError(BoardError):
    """A release manifest's signature is missing or not by an allowed signer."""


class Unshippable(BoardError):
    """A release built by a stand-in tool was meant for a board that is not emulated."""


class PlTimeout(BoardError):
    """The programmable logic did not finish; carries DMASR, CURDESC and the counters."""


# 5: a transfer failed
class TransferError(TritforgeError):
    """A file did not reach the board whole."""

    status = 5


# 130: interrupted
class Interrupted(TritforgeError):
    """Ctrl-C; what was finished stays finished, the rest can be run again."""

    status = 130


def worst_status(statuses: list[int]) -> int:
    """Exit status of a job with several results: interrupted, else a failed check, else the largest."""
    if 130 in statuses:
        return 130
    if 1 in statuses:
        return 1
    return max(statuses, default=0)
