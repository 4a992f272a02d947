"""Critical warnings that are allowed, each with a reason and a date on which that ends."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pipelines.base.errors import ConfigError
from pipelines.vivado.parsers.messages import MESSAGE_ID, Message


class Allowed(BaseModel):
    """One entry of ``hw/vivado/allowed_messages.yaml``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(pattern=rf"^{MESSAGE_ID}$")]
    text: str = ""
    reason: Annotated[str, Field(min_length=15)]
    expires: datetime.date

    @field_validator("text")
    @classmethod
    def _is_a_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"text is no regular expression: {error}") from None
        return value

    def covers(self, message: Message) -> bool:
        return self.id == message.id and re.search(self.text, message.text) is not None


@dataclass(frozen=True)
class Judged:
    """A critical warning and what the list says about it."""

    message: Message
    allowed_by: Allowed | None
    expired: bool


def read(path: Path) -> list[Allowed]:
    """The list. Raises ConfigError."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        if not isinstance(raw, dict) or set(raw) - {"messages"}:
            raise ConfigError(f"{path.name}: the file holds one list, 'messages'")
        return [Allowed.model_validate(entry) for entry in raw.get("messages") or []]
    except (yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"{path.name}: {error}") from None


def judge(messages: list[Message], allowed: list[Allowed], today: datetime.date) -> list[Judged]:
    """Each critical warning with the entry that covers it, if any."""
    judged = []
    for message in messages:
        if message.severity != "CRITICAL WARNING":
            continue
        entry = next((a for a in allowed if a.covers(message)), None)
        judged.append(Judged(message, entry, entry is not None and entry.expires < today))
    return judged
