"""Checkpoints of the Hugging Face hub: the real library against a small hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolMissing, TransferError, UsageError
from pipelines.model import checkpoint, random
from pipelines.model.checkpoint import Checkpoint
from tests.model import hub
from tests.model.hub import REPOSITORY, REVISION, Hub

ROOT = Path(__file__).parents[2]
SMALL = random.architecture(hidden=96, ffn=64, layers=1, heads=1, vocab=320, max_positions=64)
FETCH_S = 120.0
# A process of its own, since the library reads HF_ENDPOINT when it is imported.
FETCH = """
import json, sys
from pathlib import Path
from pipelines.base.errors import TritforgeError
from pipelines.model import checkpoint
try:
    print(json.dumps({"folder": str(checkpoint.fetch(sys.argv[1], sys.argv[2], Path(sys.argv[3]), timeout_s=5))}))
except TritforgeError as error:
    print(json.dumps({"error": type(error).__name__, "status": error.status, "message": error.message}))
"""


@pytest.fixture
def served(tmp_path: Path) -> Any:
    folder = tmp_path / "repository"
    random.write(folder, SMALL, seed=7, deadline=Deadline.after(60))
    (folder / "tokenizer.json").write_text("{}")
    for name in ("pytorch_model.bin", "modeling_bitnet.py", "README.md"):
        (folder / name).write_text("not asked for")
    with hub.serve(folder) as running:
        yield running


def fetch(running: Hub, cache: Path, revision: str = REVISION) -> dict[str, Any]:
    environment = {**os.environ, "HF_ENDPOINT": running.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(cache / "home")}
    found = subprocess.run(
        [sys.executable, "-c", FETCH, REPOSITORY, revision, cache],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=FETCH_S,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return dict(json.loads(found.stdout))


def test_a_checkpoint_is_fetched_once_and_no_code_with_it(served: Hub, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = Path(fetch(served, cache)["folder"])
    assert {p.name for p in folder.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json"}
    assert folder.is_relative_to(cache)
    assert Checkpoint.open(folder).architecture == SMALL
    assert (folder / "model.safetensors").read_bytes() == (served.folder / "model.safetensors").read_bytes()
    assert not any(name in line for line in served.asked for name in (".bin", ".py", "README"))
    served.asked.clear()
    assert fetch(served, cache) == {"folder": str(folder)}
    assert served.asked == []


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_damage_on_the_way_is_not_believed(name: str, served: Hub, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    served.corrupt = name
    found = fetch(served, cache)
    assert (found["error"], found["status"]) == ("TransferError", 5)
    assert f"{name}: its hash is" in found["message"]
    served.corrupt = ""
    assert Checkpoint.open(Path(fetch(served, cache)["folder"])).architecture == SMALL


def test_a_commit_that_is_not_there(served: Hub, tmp_path: Path) -> None:
    found = fetch(served, tmp_path / "cache", "f" * 40)
    assert (found["error"], found["status"]) == ("TransferError", 5)
    assert f"{REPOSITORY} at {'f' * 40}" in found["message"]


def test_a_branch_is_refused(tmp_path: Path) -> None:
    for revision in ("main", "0" * 39, "G" * 40):
        with pytest.raises(UsageError, match="not a full commit hash"):
            checkpoint.fetch(REPOSITORY, revision, tmp_path)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ToolMissing, match="huggingface_hub.*not installed") as raised:
        checkpoint.fetch(REPOSITORY, REVISION, tmp_path)
    assert raised.value.status == 3
    assert "pip install huggingface_hub" in raised.value.hint


def test_errors_of_the_library_become_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def offline(repository: str, **options: Any) -> str:
        raise OSError("no route to host")

    library = types.ModuleType("huggingface_hub")
    library.snapshot_download = offline  # type: ignore[attr-defined]
    utils = types.ModuleType("huggingface_hub.utils")
    utils.disable_progress_bars = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    monkeypatch.setitem(sys.modules, "huggingface_hub.utils", utils)
    with pytest.raises(TransferError, match="no route to host"):
        checkpoint.fetch(REPOSITORY, REVISION, tmp_path)
