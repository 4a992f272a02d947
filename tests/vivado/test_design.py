"""The model of the bitstream YAML, what follows from it, and the generated settings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipelines.base.errors import ConfigError
from pipelines.vivado.design import BitstreamDesign, fclk_divisors, neighbours_of_clock
from pipelines.vivado.settings import BuildInputs, settings_tcl, word, words
from tests.vivado.conftest import design_with


@pytest.mark.parametrize(
    ("override", "words_of_the_error"),
    [
        ("clock_mhz=130", "nearest are 125 and 142.857"),
        ("clock_mhz=251", "250"),
        ("part=xc7z010clg400-1", "xc7z020clg400-1"),
        ("control.base=0x43C10000", "the runtime expects it at 0x43C00000"),
        ("control.base=0x40410000", "overlap"),
        ("control.bytes=0x18000", "power of two"),
        ("dma.engines.matvec0.base=0x40410000", "the addresses of matvec0 and matvec1 overlap"),
        ("dma.engines.matvec0.base=0x40408000", "not a multiple of bytes"),
        ("dma.engines.matvec1.hp_port=HP0", "matvec0 and matvec1 are both on HP0"),
        ("dma.engines.attention0.scatter_gather=false", "attention0 needs scatter_gather"),
        ("dma.max_transfer_bytes=8388604", "whole number of 8-byte beats"),
        ("dma.max_transfer_bytes=134217728", "67108856"),
        ("dma.burst_beats=32", "16"),
        ("dma.results_port=gp", "acp"),
        ("limits.lut=60000", "53200"),
        ("vivado.release='2021.2'", "older than development_from"),
        ("vivado.development_to='2023.2'", "newer than development_to"),
        ("strategy.place=Explode", "Explore"),
        ("strategy.phys_opt=on", "off"),
        ("shell.parameters={CONTENT_ID: 7}", "CONTENT_ID is set by the build"),
        ("sweep.candidates={a: {}}", "at least one step"),
        ("sweep.cluster={kind: address}", "address must name a scheduler"),
        ("ddr.bus_bits=8", "16"),
    ],
)
def test_what_the_yaml_may_not_say(override: str, words_of_the_error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        design_with(override)
    assert words_of_the_error in caught.value.message


@pytest.mark.parametrize(
    ("most", "width"),
    [(8_388_600, 23), (16_376, 14), (64, 8), (16_777_208, 24), ((1 << 26) - 8, 26), (8_388_608, 24)],
)
def test_length_width(most: int, width: int) -> None:
    design = design_with(f"dma.max_transfer_bytes={most}")
    assert design.dma.length_width == width
    assert (1 << width) - 1 >= most


@pytest.mark.parametrize("clock", [125, 100, 142.857142857, 62.5, 200, 250])
def test_clocks_the_dividers_can_make(clock: float) -> None:
    found = fclk_divisors(clock)
    assert found is not None and 1000 / (found[0] * found[1]) == pytest.approx(clock, rel=1e-9)


def test_clocks_they_cannot_make() -> None:
    assert fclk_divisors(150) is None and neighbours_of_clock(150) == (
        pytest.approx(142.857142857),
        pytest.approx(166.666666667),
    )


@pytest.mark.parametrize(
    ("version", "release", "allowed"),
    [
        ("2024.1", True, True), ("2024.2", True, False), ("2022.1", False, True), ("2024.2", False, True),
        ("2024.2.2", False, True), ("2021.2", False, False), ("2025.1", False, False),
    ],
)  # fmt: skip
def test_version_policy(design: BitstreamDesign, version: str, release: bool, allowed: bool) -> None:
    assert design.vivado.allows(version, release=release) is allowed


def test_key_holds_what_decides_the_bits_and_nothing_else(design: BitstreamDesign) -> None:
    key = design.key()
    for harmless in ("vivado.jobs=4", "vivado.licence_wait_s=1", "vivado.run_minutes=9", "sweep.cluster.workers=7"):
        assert design_with(harmless).key() == key, harmless
    for telling in (
        "clock_mhz=100", "strategy.place=Quick", "vivado.threads=2", "dma.interrupts=true", "limits.lut=30000",
        "dma.engines.attention0.hp_port=HP1", "shell.parameters={HEAD_DIM: 64}",
    ):  # fmt: skip
        assert (design_with(telling).key() != key) is (telling != "dma.engines.attention0.hp_port=HP1"), telling


def test_sweep_candidate_changes_only_what_it_names(design: BitstreamDesign) -> None:
    changed = design.with_strategy("net_delay_high").strategy
    assert changed.model_dump() == design.strategy.model_dump() | {
        "place": "ExtraNetDelay_high", "route": "AggressiveExplore",
    }  # fmt: skip


HOSTILE = ["a b", "[exit 1]", "$tf(part)", "{", "}", 'q"q', "back\\slash", "a;b", "#x", "", "ä", "-dict", "\ttab"]


def test_words_survive_tcl() -> None:
    """Whatever a name holds, Tcl reads exactly that, and runs nothing of it."""
    script = "".join(f"set v {word(text)}\nputs -nonewline $v\\u0001\n" for text in HOSTILE)
    script += f"foreach v {words(HOSTILE)} {{ puts -nonewline $v\\u0001 }}\n"
    command = ["tclsh", "/dev/stdin"]
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command, input=script, capture_output=True, text=True, check=True, timeout=20, env=environment
    )
    assert done.stdout.split("\x01")[:-1] == HOSTILE * 2


def test_word_refuses_what_a_line_cannot_hold() -> None:
    with pytest.raises(ConfigError, match="line break"):
        word("a\nb")


def test_settings_are_the_same_for_the_same_design(design: BitstreamDesign) -> None:
    inputs = BuildInputs((Path("rtl/a.v"),), 7, "x", "2024.1")
    text = settings_tcl(design, inputs)
    assert text == settings_tcl(design, inputs)
    assert "set tf(content_id) 0x00000007" in text and "set tf(length_width) 23" in text
    with pytest.raises(ConfigError, match="32 bits"):
        settings_tcl(design, BuildInputs((), 1 << 32, "x", "2024.1"))
