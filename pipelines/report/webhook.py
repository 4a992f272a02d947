"""Posts the summary to a chat or a collector, when the pipeline names a variable that holds an address. Off by default.

The address is a secret: it stands in no file and in no message.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from pipelines.base.errors import ConfigError, ToolFailed
from pipelines.config.pipeline import Webhook

TIMEOUT_S = 10.0


def post(webhook: Webhook | None, report: Mapping[str, Any], text: str) -> bool:
    """Whether something was posted: {"text", "verdict", "night", "board", "model", "release"} as JSON.

    Raises ConfigError for an address that is not http(s), ToolFailed when it does not take the message.
    """
    address = os.environ.get(webhook.url_env, "") if webhook is not None else ""
    if webhook is None or not address or (webhook.on == "failure" and report["verdict"] == "passed"):
        return False
    if not address.startswith(("https://", "http://")):
        raise ConfigError(f"the address in {webhook.url_env} must begin with https:// or http://")
    body = {"text": text, **{key: report[key] for key in ("verdict", "night", "board", "model", "release")}}
    request = urllib.request.Request(
        address, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):
            return True
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise ToolFailed(
            f"the webhook of {webhook.url_env} took no message: {reason}",
            hint="the report itself is written; unset the variable to go without",
        ) from None
