"""What holds for the whole checkout (``config/tritforge.yaml``): defaults, and with which key releases are signed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from pipelines.config.board import Name, PathText
from pipelines.config.validation import Strict


class Signing(Strict):
    """Who signs releases.

    Without ``key_file`` or ``key_env`` a key of this checkout is made on first use, under ``.tritforge/``; emulated
    boards accept it, real ones only what ``allowed_signers`` lists.
    """

    identity: Annotated[str, Field(pattern=r"^[A-Za-z0-9._@+-]+$")] = "checkout@tritforge"
    key_file: PathText | None = None
    key_env: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")] | None = None  # a variable that holds the key's path
    allowed_signers: PathText | None = None  # in the format of ssh-keygen(1), ALLOWED SIGNERS

    @model_validator(mode="after")
    def _one_key(self) -> Signing:
        if self.key_file is not None and self.key_env is not None:
            raise ValueError("give key_file or key_env, not both")
        return self


class Tritforge(Strict):
    """Defaults of every task."""

    board: Name = "emu1"
    model: Name = "tiny"
    pipeline: Name = "nightly"
    signing: Signing = Signing()
