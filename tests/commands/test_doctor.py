"""``doctor``'s exit status: the worst of what it found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipelines.base.console import Console
from pipelines.base.errors import ConfigError, ToolMissing, TritforgeError
from pipelines.boards.preflight import Check
from pipelines.commands import doctor
from pipelines.commands.context import Context

SAMPLE = Path(__file__).resolve().parents[1] / "config" / "sample"


@pytest.mark.parametrize(("tool", "kind"), [("passed", ConfigError), ("failed", ToolMissing)])
def test_a_wrong_configuration_is_2_and_a_missing_tool_beside_it_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, kind: type[TritforgeError]
) -> None:
    shutil.copytree(SAMPLE / "config", tmp_path / "config")
    monkeypatch.setattr(doctor, "host_checks", lambda *_: [Check("host tool", tool, "", "")])
    context = Context(root=tmp_path, overrides=["models.tiny.head_planes=9"], console=Console(quiet=True))
    with pytest.raises(kind, match="configuration") as caught:
        doctor.run(context)
    states = {check["name"]: check["status"] for check in caught.value.result["checks"]}
    assert states == {"host tool": tool, "configuration": "failed", "board": "skipped"}
