"""What the tests of the Vivado part share: the stand-in on the PATH, the design from its YAML, one finished build."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.base.deadline import Deadline
from pipelines.config.settings import Settings
from pipelines.vivado.build import build
from pipelines.vivado.design import BitstreamDesign

HERE = Path(__file__).parent
STANDIN = HERE / "standin" / "bin"
FIXTURES = HERE / "fixtures"
RTL = HERE.parents[1] / "hw" / "rtl"
CONTENT_ID = 0xCAFE1234


@pytest.fixture(autouse=True)
def _standin_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test finds the stand-in as `vivado`, and nothing it could have been told by the caller's environment."""
    monkeypatch.setenv("PATH", f"{STANDIN}{os.pathsep}{os.environ['PATH']}")
    for name in list(os.environ):
        if name.startswith("STANDIN_VIVADO_") or name == "TRITFORGE_VIVADO":
            monkeypatch.delenv(name)


def design_with(*overrides: str) -> BitstreamDesign:
    """The shipped design, with ``key=value`` changes below ``bitstreams.combined``."""
    settings = Settings(overrides=[f"bitstreams.combined.{text}" for text in overrides], environment={})
    return settings.bitstreams["combined"].model


@pytest.fixture(scope="session")
def design() -> BitstreamDesign:
    return design_with()


Builder = Callable[..., Path]


@pytest.fixture
def run_build(tmp_path: Path, design: BitstreamDesign) -> Builder:
    """Builds into a folder of the test's own; returns ``out``."""

    def run(name: str = "one", chosen: BitstreamDesign | None = None, **options: Any) -> Path:
        folder = tmp_path / name
        arguments: dict[str, Any] = {
            "deadline": Deadline.after(60),
            "log": folder / "vivado.log",
            "sources": RTL,
            "content_id": CONTENT_ID,
            "work": folder / "work",
        }
        build(chosen or design, folder / "out", **(arguments | options))
        return folder / "out"

    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, design: BitstreamDesign) -> Iterator[Path]:
    """One build that passed, with its attempt in ``work/combined-0001`` beside it; for reading only."""
    folder = tmp_path_factory.mktemp("finished")
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{STANDIN}{os.pathsep}{path}"
    try:
        build(
            design,
            folder / "out",
            deadline=Deadline.after(60),
            log=folder / "vivado.log",
            sources=RTL,
            content_id=CONTENT_ID,
            work=folder / "work",
        )
    finally:
        os.environ["PATH"] = path
    yield folder / "out"
