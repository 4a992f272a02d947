"""``deploy`` says before it deploys that a model was not trained ternary, and which status several boards end with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.base.errors import BoardBusy, ToolFailed, TransferError, TritforgeError
from pipelines.commands import builds, deploy
from pipelines.engine.graph import Outcome
from pipelines.vivado.failure import VersionMismatch

WARNING = "rounded to ternary its perplexity is 146.32, against 33.56 without rounding"


def outcome(measured: dict[str, Any]) -> Outcome:
    return Outcome("a stage", artefact=SimpleNamespace(record={"measured": measured}))  # type: ignore[arg-type]  # all that is read of it


def test_the_warning_is_that_of_the_weights() -> None:
    stages = [Outcome("not built"), outcome({}), outcome({"warning": WARNING}), outcome({"warning": ""})]
    assert builds.warning(stages) == WARNING
    assert builds.warning([outcome({"warning": ""}), outcome({"packed_bytes": 3})]) == ""


@pytest.mark.parametrize("warning", [WARNING, ""])
def test_a_warning_comes_before_the_deploy(warning: str, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    class Console:
        def say(self, text: str) -> None:
            happened.append(text)

        @contextlib.contextmanager
        def activity(self, name: str) -> Iterator[Any]:
            yield SimpleNamespace(update=lambda *_: None)

    def deployed(*_: Any, **__: Any) -> Any:
        happened.append("deployed")
        return SimpleNamespace(json=lambda: {"release": "r"})

    made = SimpleNamespace(artefact=SimpleNamespace(folder=None))
    monkeypatch.setattr(builds, "made_release", lambda *_: (made, [outcome({"warning": warning})]))
    monkeypatch.setattr(deploy.LocalRelease, "read", lambda _: None)
    monkeypatch.setattr(deploy.boards_deploy, "deploy", deployed)
    site = SimpleNamespace(address=lambda _: contextlib.nullcontext(), known_hosts=None)
    monkeypatch.setattr(deploy, "Site", lambda *_: site)
    context: Any = SimpleNamespace(settings=SimpleNamespace(board=lambda _: None), state=None, console=Console())

    assert deploy.one(context, "emu1", "a-model") == {"release": "r", "warning": warning}
    assert happened == ([f"warning: {warning}", "deployed"] if warning else ["deployed"])


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (VersionMismatch("Vivado is another one"), ToolFailed, 3),  # a class that only the builder knows
        (BoardBusy("held"), BoardBusy, 4),
        (TransferError("cut"), TransferError, 5),
    ],
)
def test_several_boards_end_with_the_status_of_what_failed(
    monkeypatch: pytest.MonkeyPatch, error: TritforgeError, kind: type[TritforgeError], status: int
) -> None:
    def one(_: Any, name: str, __: str) -> dict[str, Any]:
        if name == "b":
            raise error
        return {"release": "r", "previous": None, "bytes_sent": 1, "bytes_total": 2, "seconds": 3.0}

    monkeypatch.setattr(deploy, "one", one)
    context: Any = SimpleNamespace(settings=SimpleNamespace(board_names=lambda names: names))
    with pytest.raises(kind, match="1 of 2 boards failed: b: ") as caught:
        deploy.run(context, ["a", "b"])
    assert caught.value.status == status
    assert [entry["exit_status"] for entry in caught.value.result["boards"]] == [0, status]
