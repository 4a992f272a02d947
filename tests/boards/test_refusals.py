"""What the tasks of boards refuse before anything is built or any board is asked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.base.errors import BoardOffline, BoardUnfit, ConfigError, TransferError, TritforgeError, UsageError
from pipelines.boards import damage, labgrid
from pipelines.boards.session import owner
from pipelines.commands import boards, generate, rollback, verify
from pipelines.commands.context import Context
from pipelines.config.settings import ROOT


def test_a_board_is_no_third_machine_to_itself() -> None:
    """It would wait for the lease that this very task holds."""
    with pytest.raises(UsageError, match="the board itself"):
        verify.run(Context(), board="emu1", against="armv7,board:emu1")


def test_an_unknown_third_machine_is_named_at_once() -> None:
    with pytest.raises(UsageError, match="aarch65"):
        verify.run(Context(), against="aarch65")
    with pytest.raises(ConfigError, match="nowhere"):
        verify.run(Context(), against="board:nowhere")


def test_a_prompt_that_is_no_text() -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        generate.run(Context(), prompt="caf\udce9")  # as Python takes a byte of another encoding from its arguments


def test_a_key_that_the_configuration_pins_is_not_accepted_beside_it() -> None:
    pinned = Context(overrides=["boards.zynq1.ssh.host_key=ssh-ed25519 AAAA"])
    with pytest.raises(UsageError, match="pinned"):
        boards.run(pinned, accept="zynq1")


def test_a_rollback_from_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A link that leads nowhere counts as no release; going back from it works, and is said."""
    rollback.show({"board": "emu1", "release": "ab" * 32, "previous": None})
    assert capsys.readouterr().out == "emu1: release abababababababab is current again\n"


@pytest.mark.parametrize(
    ("error", "said"), [(TransferError("'weights' is not"), "'weights' is not"), (BoardOffline("lost"), "")]
)
def test_weights_that_could_not_be_read_again_are_not_called_wrong(error: TritforgeError, said: str) -> None:
    class Gone:
        def request(self, *_: Any, **__: Any) -> dict[str, Any]:
            raise error

    session: Any = Gone()
    if said:
        assert damage.damaged_part(session, "r") == said
    else:
        with pytest.raises(BoardOffline):
            damage.damaged_part(session, "r")


def test_a_farm_s_coordinator_that_takes_a_call_and_says_nothing_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = tmp_path / "labgrid-client"
    client.write_text("#!/bin/sh\nexec sleep 60\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(labgrid, "CLIENT_S", 0.5)
    with pytest.raises(BoardOffline, match="farm:20408 does not answer") as caught:
        labgrid.Place("farm:20408", "rack-1", tmp_path).holder()
    assert caught.value.status == 4


@pytest.mark.parametrize("facts", ["  {'params': {'port': 22}}", "  {'params': {'address': ", "  {'params': None}"])
def test_a_farm_s_board_that_does_not_say_where_it_is(facts: str) -> None:
    shown = f"Acquired resource 'NetworkService' (farm/emu1/NetworkService/NetworkService):\n{facts}\n"
    with pytest.raises(BoardUnfit, match="does not say where"):
        labgrid.address(shown, "rack-1")


@pytest.mark.parametrize(
    "flags",
    [
        {"stop": "emu1", "fresh": True},
        {"accept": "zynq1", "fresh": True},
        {"start": "emu1", "host_key": "yes"},
        {"fresh": True},
        {"host_key": "yes"},
        {"stop": "emu1", "start": "emu1"},
        {"start": "emu1", "accept": "zynq1"},
    ],
)
def test_flags_that_do_not_go_together_do_nothing(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "emulator_of", lambda *_: pytest.fail("a board was touched"))
    for task in (boards.run, boards.plan):
        with pytest.raises(UsageError):
            task(Context(), **flags)


def test_a_board_that_hangs_up_shows_no_traceback(tmp_path: Path) -> None:
    """As one does whose network is up before its ssh server. In a process of its own: pytest takes what is logged."""
    script = """
import sys
from pathlib import Path
from pipelines.base.deadline import Deadline
from pipelines.boards.access import Address
from pipelines.boards.connection import Connection
address = Address("b", "127.0.0.1", int(sys.argv[1]), "nobody", None, None)
Connection(address, Path(sys.argv[2]), Deadline.after(20))
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(server.getsockname()[1]), str(tmp_path / "known_hosts")],
            cwd=ROOT, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        server.accept()[0].close()
        _, said = process.communicate(timeout=60)
    assert "BoardOffline: b (127.0.0.1:" in said and "Exception (client)" not in said


def test_a_user_without_a_name_can_hold_a_board(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", nobody)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert owner().startswith("uid4711@")
