"""Boards of a farm, against a real labgrid coordinator and exporter: who has the place, and that it is given back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.base import errors
from pipelines.boards.access import Address, reachable
from pipelines.boards.deploy import Deployed, deploy
from pipelines.boards.labgrid import Place, address
from pipelines.boards.release import LocalRelease
from pipelines.config.board import Board
from pipelines.config.settings import ROOT
from tests.boards.bench import BenchBoard, plain_files
from tests.boards.farm import Farm
from tests.checkout import Copy

BENCH = "bench"


@pytest.fixture(scope="module")
def bench_board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BenchBoard]:
    board = BenchBoard(tmp_path_factory.mktemp("bench") / "bench")
    yield board
    board.stop()


@pytest.fixture(scope="module")
def farm(bench_board: BenchBoard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A farm with three places: a bench board, one of nothing, and one of a board that nobody exports."""
    made = Farm(tmp_path_factory.mktemp("labgrid") / "farm", {BENCH: bench_board.port})
    try:
        made.place(BENCH, BENCH)
        made.place("empty")
        made.place("absent", "absent")
        yield made
    finally:
        made.stop()


@pytest.fixture(autouse=True)
def _client(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{farm.bin}:{os.environ['PATH']}")
    monkeypatch.setenv("LG_USERNAME", "tester")


def configured(bench: BenchBoard, coordinator: str, place: str = BENCH) -> Board:
    """A bench board's configuration that names a place instead of an emulator."""
    found = bench.address()
    return bench.board(
        emulator=None,
        labgrid={
            "coordinator": coordinator, "place": place, "user": found.user, "key_file": str(found.key_file),
            "host_key": found.host_key,
        },
    )  # fmt: skip


def put(bench: BenchBoard, board: Board, release: LocalRelease, state: Path, **more: Any) -> Deployed:
    with reachable(board, state) as where:
        # What a bench board has elsewhere than a card: this process' Python, and its own signers.
        own = Address(
            where.board, where.host, where.port, where.user, where.key_file, where.host_key,
            python=sys.executable, signers=str(bench.signers),
        )  # fmt: skip
        return deploy(board, own, release, state / "known_hosts", **more)


def test_a_deploy_acquires_the_place_and_gives_it_back(
    farm: Farm, bench_board: BenchBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = configured(bench_board, farm.coordinator)
    release = bench_board.release(tmp_path / "one", plain_files(1))
    seen: list[str | None] = []

    def on_phase(phase: str) -> None:
        if phase == "upload":
            seen.append(farm.holder(BENCH))

    assert put(bench_board, board, release, tmp_path / "state", on_phase=on_phase).release == release.id
    assert bench_board.current() == release.id
    assert seen[0] is not None and "/tester.tritforge-" in seen[0]
    assert farm.holder(BENCH) is None


def test_a_deploy_that_fails_gives_the_place_back(farm: Farm, bench_board: BenchBoard, tmp_path: Path) -> None:
    board = configured(bench_board, farm.coordinator)
    good = bench_board.release(tmp_path / "good", plain_files(1))
    put(bench_board, board, good, tmp_path / "state")
    broken = bench_board.release(tmp_path / "broken", plain_files(2, behaviour="fault PlTimeout"))
    with pytest.raises(errors.PlTimeout):
        put(bench_board, board, broken, tmp_path / "state")
    assert bench_board.current() == good.id
    assert farm.holder(BENCH) is None


def test_a_place_that_somebody_has_is_busy_and_stays_theirs(
    farm: Farm, bench_board: BenchBoard, tmp_path: Path
) -> None:
    board = configured(bench_board, farm.coordinator)
    for user in ("alice", "tester"):  # a person's own hand counts as somebody else too
        farm.client("-p", BENCH, "acquire", user=user)
        try:
            with (
                pytest.raises(errors.BoardBusy, match=f"already acquired by .*/{user}") as caught,
                reachable(board, tmp_path),
            ):
                pytest.fail("reached a board that somebody else has")
            assert caught.value.status == 4 and "who" in caught.value.hint
            assert (farm.holder(BENCH) or "").endswith(f"/{user}")
        finally:
            farm.client("-p", BENCH, "release", user=user)


HOLD = """
import sys, time
from pathlib import Path
from pipelines.boards.labgrid import Place
with Place(sys.argv[1], sys.argv[2], Path(sys.argv[3])).acquired():
    print("held", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_process_left_is_taken_over(farm: Farm, bench_board: BenchBoard, tmp_path: Path) -> None:
    """labgrid notices no dead process: the place stays acquired, under our name, until the next command."""
    board = configured(bench_board, farm.coordinator)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, farm.coordinator, BENCH, str(tmp_path / "labgrid")],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with pytest.raises(errors.BoardBusy, match=f"held by process {process.pid} ") as caught, reachable(board, tmp_path):
        pytest.fail("two processes of a checkout have the place")
    assert caught.value.status == 4
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = farm.holder(BENCH)
    assert left is not None and "/tester.tritforge-" in left
    with pytest.raises(errors.BoardBusy, match="already acquired"), reachable(board, tmp_path / "another checkout"):
        pytest.fail("another checkout took it over")
    with reachable(board, tmp_path) as where:
        assert where.port == bench_board.port
    assert farm.holder(BENCH) is None


def test_a_place_without_an_address(farm: Farm, bench_board: BenchBoard, tmp_path: Path) -> None:
    board = configured(bench_board, farm.coordinator, "empty")
    with pytest.raises(errors.BoardUnfit, match="no NetworkService") as caught, reachable(board, tmp_path):
        pytest.fail("reached nothing")
    assert caught.value.status == 4 and "add-match" in caught.value.hint
    assert farm.holder("empty") is None


def test_a_board_that_nobody_exports_and_a_place_that_is_not_there(
    farm: Farm, bench_board: BenchBoard, tmp_path: Path
) -> None:
    for place, message in (("absent", "nobody exports"), ("nowhere", "has no place 'nowhere'")):
        board = configured(bench_board, farm.coordinator, place)
        with pytest.raises(errors.BoardOffline, match=message), reachable(board, tmp_path):
            pytest.fail("reached nothing")


def test_a_coordinator_that_is_down(bench_board: BenchBoard, tmp_path: Path) -> None:
    board = configured(bench_board, "127.0.0.1:1")
    with pytest.raises(errors.BoardOffline, match=r"coordinator at 127\.0\.0\.1:1 does not answer") as caught:
        with reachable(board, tmp_path):
            pytest.fail("reached a board without a coordinator")
    assert caught.value.status == 4


def test_without_labgrid_the_client_is_named(
    bench_board: BenchBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.ToolMissing, match="labgrid-client") as caught:
        with Place("127.0.0.1:1", BENCH, tmp_path).acquired():
            pytest.fail("acquired without a client")
    assert "docs/boards.md" in caught.value.hint


def test_a_proxy_is_not_supported() -> None:
    shown = (
        "Place 'b':\n  acquired: m/u\nAcquired resource 'net' (farm/b/NetworkService/NetworkService):\n"
        "  {'acquired': 'b',\n   'params': {'address': 'b',\n"
        "              'extra': {'proxy': 'gate', 'proxy_required': True},\n              'username': 'u'}}\n"
    )
    with pytest.raises(errors.BoardUnfit, match="through the proxy gate only"):
        address(shown, "b")
    assert address(shown.replace("True", "False"), "b") == ("b", 22)


@pytest.mark.emulator
@pytest.mark.campaign
def test_an_emulated_board_of_a_farm_is_deployed_to_and_writes(tmp_path: Path) -> None:
    """``emu1`` as a farm has it: exported, and named by its place in another board's YAML."""
    checkout = Copy.make(tmp_path / "checkout")
    farms: list[Farm] = []
    try:
        started = checkout.typed("boards", "--start=emu1")
        farms.append(Farm(tmp_path / "farm", {"rack": started["port"]}))
        farms[0].place("rack-1", "rack")
        emulated = (checkout.root / "config/boards/emu1.yaml").read_text()
        assert emulated.count("emulator:") == 1
        (checkout.root / "config/boards/farm1.yaml").write_text(
            emulated[: emulated.index("emulator:")]
            + f"labgrid:\n  coordinator: {farms[0].coordinator}\n  place: rack-1\n  user: tritforge\n"
            f"  key_file: {started['key_file']}\n"
        )
        refused = checkout.typed("deploy", "--board=farm1", status=4)  # nobody has accepted its key
        assert refused["error"]["class"] == "HostKeyChanged"
        checkout.typed("boards", "--accept=farm1", "--host-key=yes")
        release = checkout.typed("deploy", "--board=farm1")["release"]
        written = checkout.typed("generate", "--board=farm1", "--prompt=Once upon a time", "--tokens=3")
        assert written["tokens"] == 3 and written["text"]
        shown = {entry["name"]: entry for entry in checkout.typed("boards")["boards"]}
        assert shown["emu1"]["current"] == release and shown["farm1"]["reason"].endswith(": free")
        assert farms[0].holder("rack-1") is None
    finally:
        checkout.typed("boards", "--stop=emu1", status=None)
        for made in farms:
            made.stop()
