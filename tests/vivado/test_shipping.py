"""What may leave the house: no ungated bitstream, and nothing of the stand-in's to a real board."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipelines.base.errors import GateError, Unshippable
from pipelines.vivado.shipping import require_shippable


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "bitstream"
    folder.mkdir()
    for name in ("bitstream.json", "gates.json"):
        shutil.copyfile(finished / name, folder / name)
    return folder


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_stand_in_is_for_emulated_boards_only(copy: Path) -> None:
    require_shippable(copy, stand_ins=True)
    with pytest.raises(Unshippable, match="made by the stand-in") as caught:
        require_shippable(copy, stand_ins=False)
    assert caught.value.status == 4


def test_real_toolchain_with_its_gates_may_go(copy: Path) -> None:
    rewrite(copy / "bitstream.json", toolchain="vivado")
    require_shippable(copy, stand_ins=False)


def test_a_failed_gate(copy: Path) -> None:
    rewrite(copy / "bitstream.json", toolchain="vivado")
    gates = json.loads((copy / "gates.json").read_text())
    gates["gates"][3]["passed"] = False
    (copy / "gates.json").write_text(json.dumps(gates))
    with pytest.raises(GateError, match=f"failed its gates: {gates['gates'][3]['name']}"):
        require_shippable(copy, stand_ins=False)


@pytest.mark.parametrize(
    "text",
    [None, "", "{}", '{"passed": true, "gates": []}', '{"passed": false, "gates": [{"name": "x", "passed": true}]}'],
)
def test_gates_that_are_not_there(copy: Path, text: str | None) -> None:
    rewrite(copy / "bitstream.json", toolchain="vivado")
    (copy / "gates.json").unlink()
    if text is not None:
        (copy / "gates.json").write_text(text)
    with pytest.raises(GateError):
        require_shippable(copy, stand_ins=False)


def test_origin_unknown(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="origin"):
        require_shippable(tmp_path, stand_ins=True)
