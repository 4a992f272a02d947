"""The configuration as a whole: defaults, overrides, groups, memory plans, and YAML as people write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.memory import memory_plan
from pipelines.config.model import Shape
from pipelines.config.reader import read_yaml, scalar
from pipelines.config.settings import Settings

SAMPLE = Path(__file__).with_name("sample")
LARGE = Shape(layers=24, hidden=1536, heads=16, ffn=4096, vocab=32002)


def test_defaults_and_what_overrides_them() -> None:
    assert Settings(SAMPLE, environment={}).board().name == "emu1"
    environment = {"TRITFORGE_BOARD": "zynq1", "TRITFORGE_MODEL": "large-random"}
    settings = Settings(SAMPLE, environment=environment)
    assert (settings.board().name, settings.model().name) == ("zynq1", "large-random")
    assert Settings(SAMPLE, ["board=emu1"], environment).board().name == "emu1"
    assert Settings(SAMPLE, ["boards.emu1.cma_mib=256"], {}).board("emu1").cma_mib == 256
    with pytest.raises(ConfigError, match="^TRITFORGE_BOARD: board 'emu2' does not exist; did you mean 'emu1'"):
        Settings(SAMPLE, environment={"TRITFORGE_BOARD": "emu2"}).board()


def test_groups_are_boards() -> None:
    settings = Settings(SAMPLE, environment={})
    assert settings.board_names([]) == ["emu1"]
    assert settings.board_names(["silicon", "zynq1", "emu1"]) == ["zynq1", "emu1"]
    with pytest.raises(ConfigError, match="board 'silicone' does not exist; did you mean 'silicon'"):
        settings.board_names(["silicone"])


def test_the_full_size_model_takes_what_the_layout_says() -> None:
    """24 layers of (4 * 1536 + 2 * 4096) rows of 39 words and 1536 of 103, the head, headers and x: 141.27 MiB."""
    plan = memory_plan(LARGE, context=512, head_planes=1, max_transfer_bytes=(8 << 20) - 8)
    words = 24 * ((4 * 1536 + 2 * 4096) * 39 + 1536 * 103) + 32002 * 39
    assert words == 18_463_566
    # Header and x of each group, on both ports: three groups a layer with 1536 entries of x, one with 4096; the head.
    extra = 24 * (3 * 2 * (1 + 192) + 2 * (1 + 512)) + 2 * (1 + 192)
    exact = (words + extra) * 8
    assert exact <= plan.weights_bytes <= exact + 64 * (24 * 8 + 2)
    assert round(plan.weights_bytes / 2**20, 2) == pytest.approx(141.27, abs=0.02)
    assert plan.kv_bytes == 73_728 * 512
    assert plan.total_bytes >> 20 < 192


def test_a_small_transfer_cuts_a_group_into_pieces() -> None:
    whole = memory_plan(LARGE, context=64, head_planes=1, max_transfer_bytes=(8 << 20) - 8)
    cut = memory_plan(LARGE, context=64, head_planes=1, max_transfer_bytes=1 << 20)
    assert cut.largest_transfer_bytes <= 1 << 20 < whole.largest_transfer_bytes
    assert 0 < cut.weights_bytes - whole.weights_bytes < 64 * 1000
    with pytest.raises(ValueError, match="holds no row"):
        memory_plan(LARGE, context=64, head_planes=1, max_transfer_bytes=1024)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8), ("0x10", 16), ("010", "010"), ("4:00", "4:00"), ("no", "no"), ("on", "on"), ("true", True),
        ("1e3", 1000.0), (".5", 0.5), ("2024.1", 2024.1), ('"2024.1"', "2024.1"), ("~", None), ("", None),
        ("[a, 1]", ["a", 1]), ("1_000", 1000), ("-3", -3), ("12:30:45", "12:30:45"), ("[", "["),
    ],
)  # fmt: skip
def test_scalars_are_yaml_1_2(text: str, value: object) -> None:
    assert scalar(text) == value and type(scalar(text)) is type(value)


def test_positions(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\nb:\n  - c: 2\n    d: {e: 3}\n")
    document = read_yaml(path, "x.yaml")
    assert document.values == {"a": 1, "b": [{"c": 2, "d": {"e": 3}}]}
    assert str(document.position(("b", 0, "d", "e"))) == "x.yaml:4:12"
    assert str(document.position(("b", 0, "d", "e"), of_key=True)) == "x.yaml:4:9"
    assert str(document.position(("b", 0, "missing"))) == "x.yaml:3:5"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: \xff", "x.yaml: byte 3 is not UTF-8"),
        (b"a: \x00", "x.yaml: not YAML: "),
        (b"a: !!python/object:os.system {}", "the tag"),
        (b"a: &x 1\nb: *x", "anchors and aliases"),
        (b"- 1", "a configuration file is a mapping"),
        (b"? [1]\n: 2", "a key is a single word"),
    ],
)
def test_what_is_no_configuration(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        document = read_yaml(path, "x.yaml")
        assert document.values == "never reached"
    assert message in caught.value.message
