"""Forty ways to get the configuration wrong, each with the exact message that a person gets.

A case changes one text of ``sample/``, a whole configuration of this test's own, so that no edit of the project's moves a
line that a message names.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).with_name("sample")

BOARD = "boards/emu1.yaml"
ZYNQ = "boards/zynq1.yaml"
MODEL = "models/tiny.yaml"
RANDOM = "models/large-random.yaml"
DESIGN = "bitstreams/combined.yaml"
NIGHTLY = "pipelines/nightly.yaml"
MAIN = "tritforge.yaml"


@dataclass(frozen=True)
class Bad:
    name: str
    file: str
    old: str
    new: str
    message: str
    hint: str = ""
    overrides: tuple[str, ...] = ()


CASES: list[Bad] = []


def bad(name: str, file: str, old: str, new: str, message: str, hint: str = "", *overrides: str) -> None:
    CASES.append(Bad(name, file, old, new, message, hint, overrides))


bad(
    "unknown key in a board",
    BOARD,
    "cma_mib:",
    "cma_mb:",
    "config/boards/emu1.yaml:3:1: key 'cma_mib' is missing\nconfig/boards/emu1.yaml:8:1: key 'cma_mb' is not known here; did you mean 'cma_mib'? allowed are: name, kind, description, bitstream, pl, memory_mib, cma_mib, root, keep_releases, lease_s, groups, ssh, labgrid, emulator, image, stand_in",
)
bad(
    "unknown key far from all",
    BOARD,
    "cma_mib:",
    "colour: red\ncma_mib:",
    "config/boards/emu1.yaml:8:1: key 'colour' is not known here; allowed are: name, kind, description, bitstream, pl, memory_mib, cma_mib, root, keep_releases, lease_s, groups, ssh, labgrid, emulator, image, stand_in",
)
bad(
    "unknown nested key",
    BOARD,
    "  idle_minutes:",
    "  idle_minuts:",
    "config/boards/emu1.yaml:14:3: key 'idle_minuts' is not known here; did you mean 'idle_minutes'? allowed are: machine, idle_minutes, disk_gib",
)
bad(
    "duplicate key",
    BOARD,
    "memory_mib: 512",
    "memory_mib: 512\nmemory_mib: 256",
    "config/boards/emu1.yaml:8:1: key 'memory_mib' stands here a second time; the first is in line 7",
)
bad(
    "text for a number",
    BOARD,
    "cma_mib: 192",
    "cma_mib: many",
    "config/boards/emu1.yaml:8:10: 'cma_mib' is 'many'; it must be a whole number",
)
bad(
    "quoted number",
    BOARD,
    "cma_mib: 192",
    'cma_mib: "192"',
    "config/boards/emu1.yaml:8:10: 'cma_mib' is '192'; it must be a whole number",
)
bad(
    "fraction for a whole number",
    BOARD,
    "cma_mib: 192",
    "cma_mib: 192.5",
    "config/boards/emu1.yaml:8:10: 'cma_mib' is 192.5; it must be a whole number",
)
bad(
    "number below its bound",
    BOARD,
    "cma_mib: 192",
    "cma_mib: 8",
    "config/boards/emu1.yaml:8:10: 'cma_mib' is 8; allowed are 16 or more",
)
bad(
    "number above its bound",
    BOARD,
    "disk_gib: 4",
    "disk_gib: 65",
    "config/boards/emu1.yaml:15:13: 'emulator.disk_gib' is 65; allowed are 64 or less",
)
bad(
    "choice that does not exist",
    BOARD,
    "machine: vexpress-a9",
    "machine: vexpress-a15",
    "config/boards/emu1.yaml:13:12: 'emulator.machine' is 'vexpress-a15'; did you mean 'vexpress-a9'? allowed are: vexpress-a9, xilinx-zynq-a9",
)
bad("missing key", BOARD, "bitstream: combined\n", "", "config/boards/emu1.yaml:3:1: key 'bitstream' is missing")
bad(
    "dangling bitstream",
    BOARD,
    "bitstream: combined",
    "bitstream: combine",
    "config/boards/emu1.yaml:5:12: bitstream 'combine' does not exist; did you mean 'combined'? there are: combined",
)
bad(
    "emulated board without an emulator",
    BOARD,
    "emulator:\n  machine: vexpress-a9\n  idle_minutes: 30\n  disk_gib: 4\n",
    "",
    "config/boards/emu1.yaml:3:1: an emulated board needs 'emulator', or 'labgrid' when a farm has it",
)
bad(
    "fabric on a machine without one",
    BOARD,
    "pl: rtl-library",
    "pl: pynq",
    "config/boards/emu1.yaml:3:1: pl is pynq, but vexpress-a9 has no fabric to load; use rtl-library",
)
bad(
    "more contiguous memory than memory",
    BOARD,
    "memory_mib: 512",
    "memory_mib: 128",
    "config/boards/emu1.yaml:3:1: cma_mib is 192, but the board has 128 MiB of memory in all",
)
bad(
    "name that is not the file's",
    BOARD,
    "kind: emulated",
    "name: emu2\nkind: emulated",
    "config/boards/emu1.yaml:3:7: the name is 'emu2', but the file is 'emu1'",
)
bad(
    "list for a value",
    BOARD,
    "pl: rtl-library",
    "pl: [rtl-library]",
    "config/boards/emu1.yaml:6:5: 'pl' is a list; did you mean 'rtl-library'? allowed are: rtl-library, pynq, fpga-manager",
)
bad(
    "value for a mapping",
    BOARD,
    "emulator:\n  machine: vexpress-a9\n  idle_minutes: 30\n  disk_gib: 4\n",
    "emulator: vexpress-a9\n",
    "config/boards/emu1.yaml:12:11: 'emulator' is 'vexpress-a9'; it must be a mapping",
)
bad(
    "group twice",
    BOARD,
    "groups: [emulated]",
    "groups: [emulated, emulated]",
    "config/boards/emu1.yaml:10:9: 'groups': a group is named twice",
)
bad(
    "anchor",
    BOARD,
    "memory_mib: 512",
    "memory_mib: &size 512",
    "config/boards/emu1.yaml:7:13: anchors and aliases ('size') are not supported",
)
bad(
    "not YAML",
    BOARD,
    "groups: [emulated]",
    "groups: [emulated",
    "config/boards/emu1.yaml:12:9: not YAML: expected ',' or ']', but got ':' while parsing a flow sequence",
)
bad(
    "tab as indentation",
    BOARD,
    "  machine: vexpress-a9",
    "\tmachine: vexpress-a9",
    "config/boards/emu1.yaml:13:1: not YAML: found character '\\t' that cannot start any token while scanning for the next token",
)
bad(
    "a list as file",
    NIGHTLY,
    "prompts:\n",
    "- prompts:\n",
    "config/pipelines/nightly.yaml:4:1: not YAML: expected <block end>, but found '?' while parsing a block collection",
)
bad(
    "password",
    ZYNQ,
    "  user: tritforge",
    "  user: tritforge\n  password: hunter2",
    "config/boards/zynq1.yaml:15:3: 'password' would put a secret into a file",
    "name the environment variable that holds it instead: 'password_env'",
)
bad(
    "private key as a value",
    ZYNQ,
    "  user: tritforge",
    '  user: tritforge\n  key_file: "-----BEGIN OPENSSH PRIVATE KEY-----"',
    "config/boards/zynq1.yaml:15:13: this value holds a secret",
    "name a key file or an environment variable instead",
)
bad(
    "port out of range",
    ZYNQ,
    "  host: zynq1",
    "  host: zynq1\n  port: 70000",
    "config/boards/zynq1.yaml:14:9: 'ssh.port' is 70000; allowed are 65535 or less",
)
bad(
    "host key that is none",
    ZYNQ,
    "  host: zynq1",
    "  host: zynq1\n  host_key: abc",
    "config/boards/zynq1.yaml:14:13: 'ssh.host_key' is 'abc'; it must look like ^(ssh-ed25519|ecdsa-sha2-nistp256|ssh-rsa) [A-Za-z0-9+/=]+$",
)
bad(
    "a stand-in's board elsewhere",
    ZYNQ,
    "cma_mib:",
    "stand_in: true\ncma_mib:",
    "config/boards/zynq1.yaml:2:1: stand_in is for an emulated board on this machine: it needs ssh with host 127.0.0.1",
)
bad(
    "two ways to a board",
    ZYNQ,
    "ssh:\n",
    'labgrid: {coordinator: "farm:20408", place: zynq, user: me}\nssh:\n',
    "config/boards/zynq1.yaml:2:1: give exactly one of ssh, labgrid and emulator; found ssh, labgrid",
)
bad(
    "model without a source kind",
    MODEL,
    "  kind: checkpoint\n",
    "",
    "config/models/tiny.yaml:4:3: 'source.kind' is missing; allowed are: checkpoint, hub, random",
)
bad(
    "source kind that does not exist",
    MODEL,
    "kind: checkpoint",
    "kind: checkpint",
    "config/models/tiny.yaml:4:3: 'source.kind' is 'checkpint'; did you mean 'checkpoint'? allowed are: checkpoint, hub, random",
)
bad(
    "path and variable",
    MODEL,
    "  path: models/tiny",
    "  path: models/tiny\n  path_env: TINY",
    "config/models/tiny.yaml:4:3: 'source': give exactly one of path and path_env",
)
bad(
    "a branch of the hub",
    MODEL,
    "  kind: checkpoint\n  path: models/tiny",
    "  kind: hub\n  repository: somebody/a-model\n  revision: main",
    "config/models/tiny.yaml:6:13: 'source.revision' is 'main'; it must look like ^[0-9a-f]{40}$",
)
bad(
    "hidden size that is no multiple of a head",
    MODEL,
    "hidden: 192",
    "hidden: 200",
    "config/models/tiny.yaml:6:8: 'shape': hidden is 200; the attention circuit needs heads x 96 = 192",
)
bad(
    "context beyond the circuits",
    MODEL,
    "context: 256",
    "context: 4096",
    "config/models/tiny.yaml:7:10: 'context' is 4096; allowed are 2048 or less",
)
bad(
    "context beyond the bitstream",
    MODEL,
    "context: 256",
    "context: 600",
    "config/models/tiny.yaml:7:10: context is 600, but bitstream 'combined' is built for 512",
    "lower the context, or raise shell.parameters.MAX_POSITIONS of the bitstream",
)
bad(
    "scales fitted to the evaluation text",
    MODEL,
    "evaluation_text: models/tiny/evaluation.txt",
    "evaluation_text: models/tiny/calibration.txt",
    "config/models/tiny.yaml:2:1: calibration and evaluation are the same text; scales fitted to a text flatter it",
)
bad(
    "random weights without a shape",
    RANDOM,
    "shape: {layers: 24, hidden: 1536, heads: 16, ffn: 4096, vocab: 32002}\n",
    "",
    "config/models/large-random.yaml:2:1: random weights need a 'shape'",
)
bad(
    "clock that cannot be divided",
    DESIGN,
    "clock_mhz: 125",
    "clock_mhz: 130",
    "config/bitstreams/combined.yaml:5:12: 'clock_mhz': 130 MHz cannot be divided from 1000 MHz; the nearest are 125 and 142.857",
)
bad(
    "two DMAs on a port",
    DESIGN,
    "hp_port: HP2",
    "hp_port: HP0",
    "config/bitstreams/combined.yaml:29:5: 'dma.engines': matvec0 and matvec1 are both on HP0; an HP port serves one DMA",
)
bad(
    "addresses that overlap",
    DESIGN,
    "base: 0x40410000",
    "base: 0x40400000",
    "config/bitstreams/combined.yaml:3:1: the addresses of matvec0 and matvec1 overlap (0x40400000, 0x40400000)",
)
bad(
    "transfer of half a beat",
    DESIGN,
    "max_transfer_bytes: 8388600",
    "max_transfer_bytes: 8388604",
    "config/bitstreams/combined.yaml:19:23: 'dma.max_transfer_bytes': 8388604 is not a whole number of 8-byte beats",
)
bad(
    "DMA too narrow for a head",
    DESIGN,
    "max_transfer_bytes: 8388600",
    "max_transfer_bytes: 16376",
    "config/bitstreams/combined.yaml:19:23: max_transfer_bytes is 16376 (14 bits), but K of a head of model 'tiny' takes 24576 bytes at T = 256",
)
bad(
    "directive that does not exist",
    DESIGN,
    "route: AggressiveExplore",
    "route: AgressiveExplore",
    "config/bitstreams/combined.yaml:76:56: 'sweep.candidates.net_delay_high.route' is 'AgressiveExplore'; did you mean 'AggressiveExplore'? allowed are: Default, Explore, AggressiveExplore, NoTimingRelaxation, MoreGlobalIterations, HigherDelayCost, AlternateCLBRouting, RuntimeOptimized, Quick",
)
bad(
    "version that is a number",
    DESIGN,
    'release: "2024.1"',
    "release: 2024.1",
    "config/bitstreams/combined.yaml:43:12: 'vivado.release' is 2024.1; it must be a text",
)
bad(
    "stage that needs a later one",
    NIGHTLY,
    "{name: deploy, task: deploy, needs: [release]",
    "{name: deploy, task: deploy, needs: [verify]",
    "config/pipelines/nightly.yaml:2:1: stage 'deploy' needs 'verify', which comes later; put it first",
)
bad(
    "stage that needs nobody's name",
    NIGHTLY,
    "needs: [release]",
    "needs: [relase]",
    "config/pipelines/nightly.yaml:2:1: stage 'deploy' needs 'relase': stage 'relase' does not exist; did you mean 'release'? there are: build-bitstream, build-runtime, convert-weights, deploy, generate, release, report, verify",
)
bad(
    "task that does not exist",
    NIGHTLY,
    "task: verify",
    "task: verfy",
    "config/pipelines/nightly.yaml:16:26: 'stages.6.task' is 'verfy'; did you mean 'verify'? allowed are: build-bitstream, build-runtime, convert-weights, release, deploy, generate, verify, evaluate, simulate, benchmark, repro, doctor, report",
)
bad(
    "stage twice",
    NIGHTLY,
    "name: generate,",
    "name: deploy,",
    "config/pipelines/nightly.yaml:2:1: stage 'deploy' stands there twice",
)
bad(
    "no prompt",
    NIGHTLY,
    'prompts:\n  - "Once upon a time"\n',
    "prompts: []\n",
    "config/pipelines/nightly.yaml:2:10: 'prompts' is a list of 0; allowed are lists of 1 or more",
)
bad(
    "default board that does not exist",
    MAIN,
    "board: emu1",
    "board: emu2",
    "config/tritforge.yaml:2:8: board 'emu2' does not exist; did you mean 'emu1'? there are: emu1, zynq1",
)
bad(
    "default model that does not exist",
    MAIN,
    "model: tiny",
    "model: tinny",
    "config/tritforge.yaml:3:8: model 'tinny' does not exist; did you mean 'tiny'? there are: bitnet-large, large-random, tiny",
)
bad(
    "two signing keys",
    MAIN,
    "  identity: checkout@tritforge",
    "  identity: checkout@tritforge\n  key_file: a\n  key_env: B",
    "config/tritforge.yaml:9:3: 'signing': give key_file or key_env, not both",
)
bad(
    "model too large for the board",
    BOARD,
    "cma_mib: 192",
    "cma_mib: 128",
    "config/boards/emu1.yaml:8:10: cma_mib is 128, but model 'large-random' needs 182 MiB of contiguous memory (weights 141.3, K and V 36.0)",
    "raise cma= on the board's kernel line and cma_mib here to 182 or more",
    "model=large-random",
)
bad(
    "override of nothing",
    MAIN,
    "board: emu1",
    "board: emu1",
    "--set boards.emu1.cma: key 'cma' is not known here; did you mean 'cma_mib'? allowed are: name, kind, description, bitstream, pl, memory_mib, cma_mib, root, keep_releases, lease_s, groups, ssh, labgrid, emulator, image, stand_in",
    "",
    "boards.emu1.cma=64",
)
bad(
    "override without a value",
    MAIN,
    "board: emu1",
    "board: emu1",
    "--set board: it must look like key=value, such as boards.emu1.cma_mib=256",
    "",
    "board",
)
bad(
    "override of a board that does not exist",
    MAIN,
    "board: emu1",
    "board: emu1",
    "--set boards.emu9.cma_mib: board 'emu9' does not exist; did you mean 'emu1'? there are: emu1, zynq1",
    "",
    "boards.emu9.cma_mib=64",
)
bad(
    "override with a wrong type",
    MAIN,
    "board: emu1",
    "board: emu1",
    "--set boards.emu1.cma_mib: 'cma_mib' is 'lots'; it must be a whole number",
    "",
    "boards.emu1.cma_mib=lots",
)

bad(
    "option that a stage's task does not take",
    NIGHTLY,
    "tokens:",
    "tokens:",
    "--set pipelines.nightly.stages.5.options.temprature: 'stages.5.options': task 'generate' does not take 'temprature'; did you mean 'temperature'? allowed are: prompt, tokens, temperature, top-k, top-p, repetition-penalty, seed",
    "",
    "pipelines.nightly.stages.5.options.temprature=0.5",
)
bad(
    "override inside a list",
    NIGHTLY,
    "tokens:",
    "tokens:",
    "--set pipelines.nightly.stages.0.task: 'stages.0.task' is 'biuld-runtime'; did you mean 'build-runtime'? allowed are: build-bitstream, build-runtime, convert-weights, release, deploy, generate, verify, evaluate, simulate, benchmark, repro, doctor, report",
    "",
    "pipelines.nightly.stages.0.task=biuld-runtime",
)
bad(
    "override whose value has a fault inside",
    BOARD,
    "cma_mib:",
    "cma_mib:",
    "--set boards.emu1.emulator: 'emulator.disk_gib' is 'big'; it must be a whole number",
    "",
    "boards.emu1.emulator={disk_gib: big}",
)
bad(
    "override with a tag",
    BOARD,
    "cma_mib:",
    "cma_mib:",
    "--set boards.emu1.description:1:1: the tag '!x' is not supported",
    "",
    "boards.emu1.description=!x",
)
bad(
    "override with no number",
    BOARD,
    "cma_mib:",
    "cma_mib:",
    "--set boards.emu1.cma_mib:1:1: '0x_' is no number",
    "",
    "boards.emu1.cma_mib=0x_",
)
bad(
    "override of a name",
    BOARD,
    "cma_mib:",
    "cma_mib:",
    "--set boards.emu1.name: the name is that of the file and cannot be set",
    "",
    "boards.emu1.name=emu2",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The sample, to be broken."""
    shutil.copytree(SAMPLE / "config", tmp_path / "config")
    return tmp_path


def complaint(root: Path, overrides: tuple[str, ...] = ()) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Settings(root, overrides, environment={}).check()
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_message(checkout: Path, case: Bad) -> None:
    path = checkout / "config" / case.file
    text = path.read_text()
    assert text.count(case.old) >= 1, "the case no longer matches the configuration it wants to break"
    path.write_text(text.replace(case.old, case.new, 1))
    error = complaint(checkout, case.overrides)
    assert error.message == case.message
    assert error.hint == case.hint
    assert error.status == 2


def test_there_are_forty() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 40


def test_the_sample_is_good(checkout: Path) -> None:
    Settings(checkout, environment={}).check()


def test_the_repository_s_own_configuration_is_good() -> None:
    Settings(ROOT, environment={}).check()
