"""What the real stages depend on: the files that make them, and nothing that does not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pipelines.base.errors import CheckpointError, ConfigError, TritforgeError
from pipelines.base.files import HashCache
from pipelines.config.model import HubSource
from pipelines.config.settings import ROOT, Settings
from pipelines.stages.runtime import runtime_stage
from pipelines.stages.sources import sources
from pipelines.stages.verilator import verilator_stage
from pipelines.stages.versions import Versions
from pipelines.stages.vivado import content_id_of, vivado_stage
from pipelines.stages.weights import checkpoint_folder, weights_stage
from pipelines.stages.workshop import Workshop


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(ROOT, Settings(environment={}), tmp_path, Versions(tmp_path / "versions.json"))


@pytest.fixture
def hashes(tmp_path: Path) -> HashCache:
    return HashCache(tmp_path / "hashes.json")


def test_every_source_of_the_circuits_is_an_input(shop: Workshop, hashes: HashCache) -> None:
    design = shop.settings.bitstreams["combined"].model
    rtl = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "hw" / "rtl").iterdir() if path.suffix in (".sv", ".v")
    }
    simulated = {path.relative_to(ROOT).as_posix() for path in (ROOT / "hw" / "sim").iterdir() if path.suffix != ".c"}
    shared = {"native/src/ternary.c", "native/src/ternary.h", "native/src/pool.c", "native/src/pool.h"}
    assert rtl | simulated | shared <= set(verilator_stage(shop, design, hashes).files)
    assert rtl <= set(vivado_stage(shop, design, hashes).files)
    tcl = {path.relative_to(ROOT).as_posix() for path in (ROOT / "hw" / "vivado").glob("*.tcl")}
    assert tcl <= set(vivado_stage(shop, design, hashes).files)


def test_every_source_of_the_runtime_is_an_input(shop: Workshop) -> None:
    native = {path.relative_to(ROOT).as_posix() for path in (ROOT / "native" / "src").iterdir() if path.is_file()}
    headers = {path.relative_to(ROOT).as_posix() for path in (ROOT / "native" / "include").glob("*.h")}
    assert native | headers <= set(runtime_stage(shop).files)


def test_checkpoint_text_and_arithmetic_are_inputs_of_the_weights(shop: Workshop) -> None:
    stage = weights_stage(shop, shop.settings.model("tiny"), 8388600)
    assert {
        "checkpoint/config.json", "checkpoint/model.safetensors", "checkpoint/tokenizer.json", "calibration text",
        "pipelines/golden/ternary.py", "pipelines/model/convert.py",
    } <= set(stage.files)  # fmt: skip


def test_a_checkpoint_that_is_not_there(shop: Workshop, tmp_path: Path) -> None:
    model = shop.settings.model("bitnet-large")
    with pytest.raises(CheckpointError, match="the variable TRITFORGE_BITNET_LARGE is not set"):
        weights_stage(shop, model, 8388600, {})
    with pytest.raises(CheckpointError, match="there is no folder"):
        weights_stage(shop, model, 8388600, {"TRITFORGE_BITNET_LARGE": str(tmp_path / "no")})
    (tmp_path / "model").mkdir()
    with pytest.raises(CheckpointError, match="holds no .safetensors file"):
        weights_stage(shop, model, 8388600, {"TRITFORGE_BITNET_LARGE": str(tmp_path / "model")})


@pytest.mark.parametrize(("key", "kind"), [("calibration.text", ConfigError), ("source.path", CheckpointError)])
def test_a_path_that_leads_nowhere_is_said_where_it_stands(
    tmp_path: Path, key: str, kind: type[TritforgeError]
) -> None:
    settings = Settings(overrides=[f"models.tiny.{key}=/nowhere"], environment={})
    shop = Workshop(ROOT, settings, tmp_path, Versions(tmp_path / "versions.json"))
    with pytest.raises(kind, match=f"^--set models.tiny.{key}: .*there is no (file|folder) /nowhere"):
        weights_stage(shop, settings.model("tiny"), 8388600, {})


def test_a_checkpoint_of_the_hub_is_known_by_its_commit(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning fetches nothing; the folder that running it takes is the one of that commit, in the state folder."""
    asked: list[tuple[str, str, Path]] = []

    def fetch(repository: str, revision: str, cache: Path, **_: object) -> Path:
        asked.append((repository, revision, cache))
        return ROOT / "models" / "tiny"

    monkeypatch.setattr("pipelines.model.checkpoint.fetch", fetch)
    stages = []
    for commit in ("a" * 40, "b" * 40):
        source = HubSource(kind="hub", repository="somebody/a-model", revision=commit)
        model = shop.settings.model("tiny").model_copy(update={"source": source})
        stages.append(weights_stage(shop, model, 8388600))
    assert asked == []
    assert not any(name.startswith("checkpoint/") for name in stages[0].files)
    assert stages[0].values["hub"]["revision"] == "a" * 40 and stages[0].values != stages[1].values
    assert checkpoint_folder(shop, model, source, {}) == ROOT / "models" / "tiny"
    assert asked == [("somebody/a-model", "b" * 40, shop.state / "hub")]


def test_the_content_id_is_of_what_decides_the_bits() -> None:
    first = content_id_of({"a": "1"}, {"clock": 125})
    assert 0 <= first < 1 << 32
    assert first == content_id_of({"a": "1"}, {"clock": 125})
    assert len({first, content_id_of({"a": "2"}, {"clock": 125}), content_id_of({"a": "1"}, {"clock": 100})}) == 3


def test_sources_are_no_leftovers(tmp_path: Path) -> None:
    for name in ("a.py", ".hidden.py", "b.py~", "c.pyc", "__pycache__/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert set(sources(tmp_path, "**/*")) == {"a.py"}
    with pytest.raises(ConfigError, match="no file matches"):
        sources(tmp_path, "*.sv")


def test_versions_are_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "tool"
    tool.parent.mkdir()
    count = tmp_path / "asked"
    tool.write_text(f"#!/bin/sh\necho x >> {count}\necho tool 1.$(wc -l < {count})\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    assert Versions(tmp_path / "versions.json").of("tool") == "tool 1.1"
    assert Versions(tmp_path / "versions.json").of("tool") == "tool 1.1"
    tool.write_text("#!/bin/sh\necho another tool\n")
    assert Versions(tmp_path / "versions.json").of("tool") == "another tool"
    assert Versions(tmp_path / "versions.json").of("no-such-tool") == "missing"
    assert "python" in Versions(tmp_path / "versions.json").of(sys.executable).lower()
