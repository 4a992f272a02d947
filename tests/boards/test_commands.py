"""The board commands as processes, on two emulated boards: exit statuses, JSON keys, and what is on the boards after.

The tests go on from each other: the boards are booted once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from pipelines.base.deadline import Deadline
from pipelines.boards.access import Address
from pipelines.boards.connection import Connection
from pipelines.boards.session import exclusive
from pipelines.boards.site import Site
from pipelines.config.settings import Settings
from tests.checkout import Copy

pytestmark = [pytest.mark.emulator, pytest.mark.campaign]
BOTH = ("emu1", "emu2")
STEPS = 4


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    copied = Copy.make(tmp_path_factory.mktemp("commands") / "checkout")
    boards = copied.root / "config" / "boards"
    (boards / "emu2.yaml").write_text((boards / "emu1.yaml").read_text())
    try:
        yield copied
    finally:
        for board in BOTH:
            copied.type_it("boards", f"--stop={board}")


@contextlib.contextmanager
def address_of(copy: Copy, name: str) -> Iterator[Address]:
    settings = Settings(copy.root, environment={})
    with Site(settings, copy.root / ".tritforge").address(settings.board(name), start=False) as address:
        yield address


def on_board(copy: Copy, name: str, *argv: str) -> str:
    with address_of(copy, name) as address:
        with contextlib.closing(Connection(address, copy.root / "known_hosts", Deadline.after(60))) as connection:
            status, out, words = connection.run(list(argv), Deadline.after(60))
    assert status == 0, words
    return out.decode()


def entry(document: dict[str, object], name: str) -> dict[str, object]:
    listed = document["boards"]
    assert isinstance(listed, list)
    return next(found for found in listed if found.get("board", found.get("name")) == name)


def test_a_group_is_deployed_to_and_each_board_has_its_own_result(copy: Copy) -> None:
    status, document, said = copy.type_it("deploy", "--board=emulated")
    assert status == 0, said
    assert [one["board"] for one in document["boards"]] == ["emu1", "emu2"]
    for one in document["boards"]:
        assert one["status"] == "passed" and one["previous"] is None and one["smoke"]["backend"] == "rtl"
        assert one["bytes_sent"] == one["bytes_total"] > 1_000_000
        assert one["release"] == document["release"]
    assert document["bytes_sent"] == 2 * document["boards"][0]["bytes_sent"]
    for board in BOTH:
        assert on_board(copy, board, "cat", "/var/lib/tritforge/current/manifest.json")


def test_an_unchanged_release_is_not_sent(copy: Copy) -> None:
    status, document, said = copy.type_it("deploy", "--board=emu1", "--board=emu2")
    assert status == 0, said
    assert document["bytes_sent"] == 0
    assert [one["status"] for one in document["boards"]] == ["passed", "passed"]


def test_a_board_that_is_busy_fails_alone(copy: Copy) -> None:
    with address_of(copy, "emu2") as address:
        connection = Connection(address, copy.root / "known_hosts", Deadline.after(60))
        with contextlib.closing(connection):
            with exclusive(connection, "/var/lib/tritforge", "long work", 60, Deadline.after(60)):
                status, listed, said = copy.type_it("boards")
                lease = entry(listed, "emu2")["lease"]
                assert status == 0 and isinstance(lease, dict) and lease["what"] == "long work", said
                status, document, said = copy.type_it("deploy", "--board=emu1", "--board=emu2")
    assert status == 4, said
    assert document["error"]["class"] == "BoardBusy" and "long work" in document["error"]["message"]
    assert entry(document, "emu1")["status"] == "passed"
    assert entry(document, "emu2")["status"] == "failed" and entry(document, "emu2")["exit_status"] == 4
    assert "emu2: failed" in said


def test_verify_against_another_board(copy: Copy) -> None:
    status, document, said = copy.type_it("verify", "--board=emu1", "--against=board:emu2", f"--steps={STEPS}")
    assert status == 0, said
    names = [machine["name"] for machine in document["machines"]]
    assert names[0] == "emu1 (rtl)" and "board emu2" in names
    theirs = next(other for other in document["against"] if other["name"] == "board emu2")
    assert (theirs["steps"], theirs["mismatches"]) == (STEPS, 0)
    assert document["logits"]["steps"] == STEPS and document["logits"]["mismatches"] == 0
    assert document["circuits"]["matvec_words"] > 0 and document["circuits"]["mismatches"] == 0
    assert document["tokens"]["mismatches"] == 0


def test_verify_against_something_unknown(copy: Copy) -> None:
    status, document, _ = copy.type_it("verify", "--against=riscv")
    assert status == 2 and document["error"]["class"] == "UsageError"


def test_ctrl_c_in_generate_ends_the_board_s_process(copy: Copy) -> None:
    prompt = "Once upon a time"
    process = copy.start("generate", "--board=emu1", f"--prompt={prompt}", "--tokens=400")
    assert process.stdout is not None
    try:
        shown = ""
        while len(shown) < len(prompt) + 3:  # the board's own words come
            piece = process.stdout.read(1)
            assert piece, shown
            shown += piece
        assert "board_rt job generate" in on_board(copy, "emu1", "ps", "-o", "args")
        os.kill(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert copy.answer()["error"]["class"] == "Interrupted"
    assert "board_rt job" not in on_board(copy, "emu1", "ps", "-o", "args")
    _, listed, _ = copy.type_it("boards")
    assert entry(listed, "emu1")["lease"] is None


def test_a_generate_that_is_killed_leaves_no_process_and_no_lease(copy: Copy) -> None:
    process = copy.start("generate", "--board=emu1", "--prompt=The dog", "--tokens=400")
    end = time.monotonic() + 120
    while "board_rt job generate" not in on_board(copy, "emu1", "ps", "-o", "args"):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.5)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    while "board_rt" in on_board(copy, "emu1", "ps", "-o", "args"):
        assert time.monotonic() < end, "the board's processes outlived their host"
        time.sleep(0.5)
    status, document, said = copy.type_it("generate", "--board=emu1", "--prompt=The dog", "--tokens=2")
    assert status == 0, said
    assert document["tokens"] == 2 and document["prompt"] == "The dog" and document["text"]
    assert document["tokens_per_s"]["unit"] == "tok/s" and document["tokens_per_s"]["evidence"] == "model"


def test_doctor(copy: Copy) -> None:
    status, document, said = copy.type_it("doctor", "--board=emu1")
    assert status == 0, said
    checks = {check["name"]: check for check in document["checks"]}
    assert all(set(check) == {"name", "status", "found", "expected", "hint"} for check in checks.values())
    for name in ("board", "python", "glibc", "cma", "disk", "content id", "clock", "parts of the release", "lease"):
        assert checks[name]["status"] == "passed", said
    status, document, said = copy.type_it("doctor", "--board=emu1", "--set=boards.emu1.cma_mib=256")
    assert status == 4, said
    assert document["error"]["class"] == "BoardUnfit" and "cma" in document["error"]["message"]
    hidden = Copy(copy.root, {"PATH": str(copy.root / "config")})
    status, document, said = hidden.type_it("doctor", "--board=emu1")
    assert status == 3, said
    assert document["error"]["class"] == "ToolMissing"


def test_rollback(copy: Copy) -> None:
    status, document, said = copy.type_it("rollback", "--board=emu1")
    assert status == 4, said
    assert document["error"]["class"] == "BoardUnfit" and "no earlier release" in document["error"]["message"]
    agent = copy.root / "board_rt" / "__init__.py"
    agent.write_text(agent.read_text() + "\n# another release\n")
    status, put, said = copy.type_it("deploy", "--board=emu1")
    assert status == 0, said
    assert put["release"] != put["previous"] and 0 < put["bytes_sent"] < 100_000, "only what is new is sent"
    status, document, said = copy.type_it("rollback", "--board=emu1")
    assert status == 0, said
    assert (document["release"], document["previous"]) == (put["previous"], put["release"])
    _, listed, _ = copy.type_it("boards")
    assert entry(listed, "emu1")["current"] == put["previous"]
    status, _, said = copy.type_it("rollback", "--board=emu1")
    assert status == 4, said


def test_boards_start_stop_fresh(copy: Copy) -> None:
    status, document, said = copy.type_it("boards")
    assert status == 0, said
    up = entry(document, "emu2")
    assert up["reachable"] is True and up["current"] and up["lease"] is None and up["kind"] == "emulated"
    assert entry(document, "zynq1")["reachable"] is False

    assert copy.type_it("boards", "--stop=emu2")[:2][0] == 0
    status, document, _ = copy.type_it("boards", "--stop=emu2")
    assert status == 0 and document["stopped"] is None, "it was not running"
    assert entry(copy.type_it("boards")[1], "emu2")["reachable"] is False
    status, document, _ = copy.type_it("doctor", "--board=emu2")
    assert status == 0, "nothing is wrong with a board that is switched off"
    assert {check["name"]: check["status"] for check in document["checks"]}["board"] == "skipped"

    assert copy.type_it("boards", "--start=emu2")[0] == 0
    assert entry(copy.type_it("boards")[1], "emu2")["current"] == up["current"], "its disk is persistent"
    assert copy.type_it("boards", "--start=emu2", "--fresh")[0] == 0
    assert entry(copy.type_it("boards")[1], "emu2")["current"] is None
    for wrong in (["--fresh"], ["--host-key=x"], ["--accept=emu1"], ["--stop=nosuch"]):
        assert copy.type_it("boards", *wrong)[0] == 2
