"""Circuits that are broken: each fault ends deploy or verify in its own error, none as passed. RTL, over ssh."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.base import errors
from pipelines.base.deadline import Deadline
from pipelines.boards import verify as boards_verify
from pipelines.boards.battery import Battery, battery
from pipelines.boards.compare import Answers
from pipelines.boards.connection import Connection
from pipelines.boards.damage import told_apart
from pipelines.boards.deploy import deploy
from pipelines.boards.machines import Machine, on_this_machine
from pipelines.boards.reference import golden_from_checkpoint
from pipelines.boards.release import LocalRelease
from pipelines.boards.session import Session, exclusive
from pipelines.commands.context import Context
from pipelines.commands.verify import checkpoint_of
from pipelines.golden.forward import GoldenModel
from tests.boards.bench import BenchBoard
from tests.boards.conftest import Built

PROMPTS = (("Once upon a time", 10), ("The dog", 4))


@pytest.fixture(scope="session")
def golden() -> GoldenModel:
    context = Context()
    choice = context.settings.choose("emu1", "tiny")
    return golden_from_checkpoint(*checkpoint_of(context, choice.model, choice.bitstream.dma.max_transfer_bytes))


@pytest.fixture(scope="session")
def tests_of(built: Built, golden: GoldenModel) -> Battery:
    return battery(built.weights / "tokenizer.json", golden.shape.bos, golden.shape.context, prompts=PROMPTS)


@contextlib.contextmanager
def holding(bench: BenchBoard) -> Iterator[Session]:
    connection = Connection(bench.address(), bench.folder / "known_hosts", Deadline.after(30))
    try:
        with exclusive(connection, str(bench.root), "verify", 10, Deadline.after(30)) as session:
            yield session
    finally:
        connection.close()


def prove(
    bench: BenchBoard, release: LocalRelease, built: Built, golden: GoldenModel, tests: Battery, **more: Any
) -> boards_verify.Verification:
    def here(options: Mapping[str, Any]) -> Any:
        return on_this_machine(built.runtime, release.folder / "weights", tests, options, backend="host", pl=None)

    with holding(bench) as session:
        return boards_verify.verify(
            session, bench.board(), release.id, golden, tests, image=release.folder / "weights", toolchain="zig",
            here=here, **more,
        )  # fmt: skip


def with_fault(bench: BenchBoard, fault: str) -> None:
    """From now on the board's circuits have this fault (native/include/tritforge_rtl.h)."""
    bench.stop()
    bench.start({"TRITFORGE_FAULT": fault, "TRITFORGE_PL_DEADLINE_MS": "3000"} if fault else None)


@pytest.fixture
def proven(bench: BenchBoard, built: Built, tmp_path: Path) -> tuple[BenchBoard, LocalRelease]:
    release = bench.release(tmp_path / "release", built.files())
    done = deploy(bench.board(), bench.address(), release, bench.folder / "known_hosts")
    assert done.smoke["circuit_words"] > 10_000, "the smoke run compared the circuits' words"
    return bench, release


Proven = tuple[BenchBoard, LocalRelease]


def test_all_is_equal(proven: Proven, built: Built, golden: GoldenModel, tests_of: Battery) -> None:
    bench, release = proven
    result = prove(bench, release, built, golden, tests_of).json()
    shape = golden.shape
    rows = shape.layers * (5 * shape.hidden + 2 * shape.ffn) + shape.head_planes * shape.vocab
    assert result["circuits"] == {
        "matvec_words": 14 * rows,  # every row of every matrix, at every step
        "attention_words": 14 * shape.layers * shape.heads * 97,
        "mismatches": 0,
    }
    assert result["logits"]["compared"] == 14 * shape.vocab and result["logits"]["mismatches"] == 0
    assert result["tokens"]["mismatches"] == 0 and result["tokens"]["generated"] > 0
    assert result["board_facts"]["backend"] == "rtl" and result["board_facts"]["complaint"] == ""


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("never_idle", errors.PlTimeout, "did not finish|DMASR"),
        ("stale_content_id", errors.BoardUnfit, "content id"),
        ("wrong_clock", errors.BoardUnfit, "clock"),
        ("wrong_word@matvec0", errors.MismatchError, "differs at"),
        ("halt@attention1", errors.PlTimeout, "DMA"),
    ],
)
def test_broken_circuits_are_not_made_current(
    proven: Proven, built: Built, tmp_path: Path, fault: str, kind: type[errors.TritforgeError], words: str
) -> None:
    bench, old = proven
    files = built.files()
    files["note"] = fault.encode()
    new = bench.release(tmp_path / "new", files)
    with_fault(bench, fault)
    with pytest.raises(kind, match=words) as caught:
        deploy(bench.board(), bench.address(), new, bench.folder / "known_hosts")
    assert caught.value.status == (1 if kind is errors.MismatchError else 4)
    assert bench.current() == old.id
    with_fault(bench, "")
    with holding(bench) as session:
        assert session.job("smoke", {}, seconds=60)["circuit_words"] > 0


@pytest.mark.parametrize(
    ("fault", "point", "cause"),
    [
        ("wrong_word@matvec1:30", "qkv_acc o_acc gate_up_acc down_acc head_acc", "circuit"),
        ("wrong_word@attention0:9", "attn_acc", "circuit"),
        ("wrong_input@matvec0:20", "qkv_acc o_acc gate_up_acc down_acc head_acc", "circuit"),
    ],
)
def test_verify_names_the_word(
    proven: Proven, built: Built, golden: GoldenModel, tests_of: Battery, fault: str, point: str, cause: str
) -> None:
    bench, release = proven
    with_fault(bench, fault)
    with pytest.raises(errors.MismatchError) as caught:
        prove(bench, release, built, golden, tests_of)
    first = caught.value.result["logits"]["first_mismatch"]
    assert first["point"] in point.split() and first["found"] != first["expected"]
    assert first["cause"] == cause and "functional circuits" in first["reason"], first
    with_fault(bench, "")
    assert prove(bench, release, built, golden, tests_of).equal


def test_a_third_machine_that_differs(proven: Proven, built: Built, golden: GoldenModel, tests_of: Battery) -> None:
    bench, release = proven

    def run(tokens: list[list[int]]) -> Answers:
        answers = on_this_machine(built.runtime, release.folder / "weights", tests_of, {}, backend="host", pl=None)
        assert tokens == [answers.said(number, one.steps) for number, one in enumerate(tests_of.sequences)]
        answers.logits[(1, 2)] = "0" * 64
        return answers

    other = boards_verify.Other(Machine("another board", "armv7l", "zig"), run)
    with pytest.raises(errors.MismatchError, match="golden model, but another board differs in 1 of 14") as caught:
        prove(bench, release, built, golden, tests_of, others=[other])
    theirs = caught.value.result["against"][0]
    assert theirs["mismatches"] == 1 and theirs["first"] == {"sequence": 1, "step": 2}


@pytest.mark.parametrize(("key", "value"), [("content_id", None), ("clock_mhz", None)])
def test_a_release_that_does_not_say_what_its_circuits_are(
    proven: Proven, built: Built, tmp_path: Path, key: str, value: object
) -> None:
    bench, old = proven
    files = built.files()
    facts = json.loads((built.bitstream / "bitstream.json").read_text())
    files["bitstream/bitstream.json"] = json.dumps({**facts, key: value}).encode()
    with pytest.raises(errors.BoardUnfit, match=f"says no {key}") as caught:
        deploy(bench.board(), bench.address(), bench.release(tmp_path / "new", files), bench.folder / "known_hosts")
    assert caught.value.status == 4
    assert bench.current() == old.id


def test_a_flipped_byte_of_the_weights_on_the_board(
    proven: Proven, built: Built, golden: GoldenModel, tests_of: Battery
) -> None:
    from tests.boards.test_deploy import flip_a_byte, weights_of

    bench, release = proven
    flip_a_byte(bench.root / "objects" / weights_of(release), keep_time=True)
    with pytest.raises(errors.MismatchError, match="weights on bench differ") as caught:
        prove(bench, release, built, golden, tests_of)
    assert caught.value.status == 1
    with holding(bench) as session, pytest.raises(errors.MismatchError, match="weights on bench differ") as caught:
        with told_apart(session, release.id):  # as generate and rollback run their jobs
            session.job("generate", {"prompt": "The dog", "tokens": 1}, seconds=60)
    assert "deploy" in caught.value.hint
    with holding(bench) as session, pytest.raises(errors.UsageError):
        with told_apart(session, release.id):
            raise errors.UsageError("what is not the files' fault stays what it is")


def test_another_release_than_asked_for(
    proven: Proven, built: Built, golden: GoldenModel, tests_of: Battery, tmp_path: Path
) -> None:
    bench, _ = proven
    other = bench.release(tmp_path / "other", {**built.files(), "note": b"other"})
    with pytest.raises(errors.MismatchError, match="wrong release"):
        prove(bench, other, built, golden, tests_of)


def changed_image(built: Built, golden: GoldenModel, tmp_path: Path, change: Callable[[Any], None]) -> Path:
    """A packed image, consistent in itself, whose numbers are not the checkpoint's."""
    from tests.boards.images import repack

    folder = tmp_path / "image"
    folder.mkdir()
    repack(built.weights, folder, change)
    return folder


def test_a_wrong_packed_byte(
    bench: BenchBoard, built: Built, golden: GoldenModel, tests_of: Battery, tmp_path: Path
) -> None:
    def change(image: Any) -> None:
        image.layers[2]["codes"]["down"][5, 7] = (int(image.layers[2]["codes"]["down"][5, 7]) + 2) % 3 - 1

    files = built.files(weights=changed_image(built, golden, tmp_path, change))
    release = bench.release(tmp_path / "release", files)
    deploy(bench.board(), bench.address(), release, bench.folder / "known_hosts")  # its smoke run can't know better
    with pytest.raises(errors.MismatchError) as caught:
        prove(bench, release, built, golden, tests_of)
    first = caught.value.result["logits"]["first_mismatch"]
    assert (first["layer"], first["point"], first["index"], first["cause"]) == (2, "down_acc", 5, "packed image")
    assert "layer 2, matrix down, row 5" in first["reason"]
