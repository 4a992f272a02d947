"""``doctor``'s exit status, the worst of what it found; and what it tells of a board that goes away."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.base.console import Console
from pipelines.base.errors import BoardBusy, BoardOffline, ConfigError, ToolMissing, TransferError, TritforgeError
from pipelines.boards import doctor as boards_doctor
from pipelines.boards.preflight import Check
from pipelines.commands import doctor
from pipelines.commands.context import Context
from pipelines.config.settings import Settings

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


@pytest.mark.parametrize(("running", "state", "fails"), [(False, "skipped", False), (True, "failed", True)])
def test_an_emulated_board_that_runs_and_does_not_answer_is_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: bool, state: str, fails: bool
) -> None:
    shutil.copytree(SAMPLE / "config", tmp_path / "config")

    @contextlib.contextmanager
    def session(*_: object, **__: object) -> Iterator[None]:
        raise BoardOffline("emu1 does not answer", hint="look at its console")
        yield

    monkeypatch.setattr(doctor, "host_checks", lambda *_: [])
    monkeypatch.setattr(doctor.Site, "session", session)
    monkeypatch.setattr(doctor, "runs", lambda *_: running)
    context = Context(root=tmp_path, console=Console(quiet=True))
    if fails:
        with pytest.raises(BoardOffline) as caught:
            doctor.run(context, "emu1")
        result = caught.value.result
    else:
        result = doctor.run(context, "emu1")
    assert {check["name"]: check["status"] for check in result["checks"]}["board"] == state


class Board:
    """The agent's answers to a doctor; an error is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def request(self, command: str, *_: object, **__: object) -> Any:
        answer = self.answers.get(command, {})
        if isinstance(answer, Exception):
            raise answer
        return answer

    def job(self, command: str, *_: object, **__: object) -> Any:
        return self.request(command)


FACTS = {
    "kernel": "6.1", "machine": "armv7l", "python": "3.11.2", "glibc": "2.36", "image": "emulated", "tokenizers": True,
    "cma_total_kib": 196_608, "cma_free_kib": 1024, "cma_argument": "192M", "disk_free_bytes": 1 << 30,
    "load_1min": 0.1, "cpus": 2, "current": "a" * 64, "current_by_hand": False, "lease": None,
}  # fmt: skip
MANIFEST = {"release": "a" * 64, "manifest": {"predicate": {"memory": {"contiguous_bytes": 8 << 20}}}}
PROBE = {"content_id": 1, "clock_mhz": 100.0}


@pytest.mark.parametrize(
    ("answers", "states", "lost"),
    [
        ({}, {"content id": "passed"}, False),
        ({"acquire": BoardBusy("held by a nightly")}, {"circuits": "skipped", "disk": "passed"}, False),
        ({"manifest": TransferError("no readable manifest")}, {"parts of the release": "failed"}, False),
        ({"check": BoardOffline("lost"), "release_lease": BoardOffline("lost")}, {"disk": "passed"}, True),
    ],
)
def test_what_a_board_said_stays_said(answers: dict[str, Any], states: dict[str, str], lost: bool) -> None:
    told = {"facts": FACTS, "manifest": MANIFEST, "check": {"files": 1, "bytes": 2}, "probe": PROBE, **answers}
    session: Any = Board(**told)
    found: list[Check] = []
    try:
        found.extend(boards_doctor.board_checks(session, Settings(SAMPLE, environment={}).board("emu1")))
    except BoardOffline:
        assert lost
    by_name = {check.name: check.status for check in found}
    assert by_name | states == by_name
    if not lost and "manifest" not in answers:
        assert by_name["cma free"] == "failed", "1 MiB is free, the current release takes 8"
