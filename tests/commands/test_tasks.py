"""What people type: statuses, suggestions, lazy imports, and flags that reach the tasks."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import tasks  # noqa: E402

# As the commands' contract lists them; the order is that of its table.
CONTRACT = (
    "nightly test build-bitstream build-runtime convert-weights release deploy rollback generate verify evaluate"
    " simulate benchmark repro doctor boards history inspect train-tiny clean report"
).split()


HELP = {name: set(task.help) for name, task in tasks.namespace.tasks.items()}
"""Flags with a line of help; taken now, since Invoke consumes them as it lists arguments."""


def type_it(*arguments: str, program: tuple[str, ...] = ("tasks.py",)) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITFORGE_")}
    return subprocess.run(
        [sys.executable, *program, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_every_task_of_the_contract_is_there() -> None:
    assert set(tasks.namespace.task_names) == set(CONTRACT)
    listed = type_it("--list")
    assert listed.returncode == 0
    for name in CONTRACT:
        assert f"\n  {name} " in listed.stdout


@pytest.mark.parametrize("name", CONTRACT)
def test_every_task_takes_the_common_flags(name: str) -> None:
    task = tasks.namespace[name]
    flags = {argument.name for argument in task.get_arguments()}
    assert {"plan", "json", "set", "debug"} <= flags
    assert (task.__doc__ or "").strip(), "one line of help"
    assert HELP[name] >= {flag.replace("_", "-") for flag in flags}


@pytest.mark.parametrize("name", CONTRACT)
def test_flags_are_what_the_task_s_function_takes(name: str) -> None:
    module = importlib.import_module(f"pipelines.commands.{name.replace('-', '_')}")
    common = {"plan", "json", "set", "debug"}
    flags = {argument.name.replace("-", "_") for argument in tasks.namespace[name].get_arguments()} - common
    flags = {"context_length" if flag == "context" else flag for flag in flags}
    for function in (module.run, module.plan):
        parameters = inspect.signature(function).parameters
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            assert set(parameters) - {"context"} == flags, function


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("deplyo", "there is no task 'deplyo'; did you mean 'deploy'?"),
        ("deploy --bord emu1", "'deploy' does not take '--bord'; did you mean '--board'?"),
        ("deploy extra", "'deploy' does not take 'extra'"),
        ("--lsit", "there is no flag '--lsit'; did you mean '--list'?"),
        ("--help deplyo", "there is no task 'deplyo'; did you mean 'deploy'?"),
        ("inspect", "'inspect' did not receive required positional arguments: 'file'"),
        ("generate --tokens many", "--tokens is 'many'; it must be a whole number"),
        ("generate --temperature=hot", "--temperature is 'hot'; it must be a number"),
        ("nightly --dry", "'nightly' does not take '--dry'"),
        ("build-bitstream --sweep=-1", "--sweep -1: 0 for none"),
        ("build-bitstream --board emu1 --development", "board 'emu1' is emulated"),
        ("verify --steps=-1", "--steps -1: 0 for the whole battery"),
        ("clean --keep=-2", "--keep -2: at least one release must stay"),
        ("generate hello --tokens", "needed value and was not given one"),
        ("clean nightly", "one task at a time, not clean and nightly"),
        ("build-runtime --board emu2", "board 'emu2' does not exist; did you mean 'emu1'?"),
        ("build-runtime --set boards.emu1.cma=3", "--set boards.emu1.cma: key 'cma' is not known here"),
    ],
)
def test_wrong_usage_is_2_and_says_what_was_meant(typed: str, message: str) -> None:
    done = type_it(*typed.split())
    assert message in done.stderr
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_positional_argument_that_may_be_left_out() -> None:
    assert tasks.with_flag(["history", "tokens_per_s", "--runs=3"]) == ["history", "--figure=tokens_per_s", "--runs=3"]
    assert tasks.with_flag(["history"]) == ["history"]
    assert tasks.with_flag(["history", "--runs", "3"]) == ["history", "--runs", "3"]
    assert tasks.with_flag(["generate", "--prompt", "x"]) == ["generate", "--prompt", "x"]
    assert tasks.with_flag(["deploy", "x"]) == ["deploy", "x"]


@pytest.mark.parametrize(
    ("typed", "step"),
    [
        ("", "look at the boards"),
        ("--stop emu1", "stop emu1"),
        ("--start emu1 --fresh", "start emu1 with an empty disk"),
        ("--accept zynq1", "ask zynq1 for its host key"),
    ],
)
def test_a_plan_of_boards_says_what_would_be_done(typed: str, step: str) -> None:
    assert type_it("boards", "--plan", *typed.split()).stdout == f"would {step}\n"


def test_version() -> None:
    done = type_it("--version")
    assert done.returncode == 0 and done.stdout.startswith("tritforge 0.1.0")


def test_bare_invoke_knows_the_tasks() -> None:
    done = type_it("--list", program=("-m", "invoke"))
    assert done.returncode == 0 and "build-bitstream" in done.stdout


@pytest.mark.parametrize("arguments", [["--list"], ["deploy", "--help"]])
def test_lists_and_help_import_nothing_heavy(arguments: list[str]) -> None:
    """What makes them quick; their time itself is a figure of `benchmark`."""
    code = (
        "import sys; sys.argv = ['tasks.py', *sys.argv[1:]]\n"
        "import runpy\n"
        "try:\n"
        "    runpy.run_path('tasks.py', run_name='__main__')\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('LOADED', sorted({name.split('.')[0] for name in sys.modules}"
        " & {'numpy', 'pydantic', 'rich', 'fabric', 'paramiko', 'dask', 'tokenizers', 'jinja2'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "LOADED []"


def imports_of(path: Path) -> set[str]:
    """Packages of the project that a file imports, ``pipelines.x`` as ``x``; imports inside functions count too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module] if node.module != "pipelines" else [f"pipelines.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "pipelines" and len(parts) > 1:
                found.add(parts[1])
            elif parts[0] == "board_rt":
                found.add("board_rt")
    return found


LAYERS = [
    {"base"}, {"golden"}, {"model", "hardware", "runtime", "vivado", "config"}, {"engine"}, {"stages"}, {"boards"},
    {"report"}, {"commands"},
]  # fmt: skip
"""Low to high, as docs/architecture.md has it."""


def test_a_lower_layer_imports_no_higher_one() -> None:
    height = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    wrong = []
    for path in sorted((ROOT / "pipelines").rglob("*.py")):
        own = path.relative_to(ROOT / "pipelines").parts[0]
        if own not in height:
            continue
        for other in imports_of(path):
            if other in height and height[other] > height[own]:
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong


def test_the_board_s_python_imports_nothing_of_the_host() -> None:
    for path in sorted((ROOT / "board_rt").rglob("*.py")):
        assert imports_of(path) <= {"board_rt"}, path


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ("deploy --board=emu1 --board zynq1 --model tiny", {"board": ["emu1", "zynq1"], "model": "tiny"}),
        ("deploy", {"board": [], "model": ""}),
        (
            "generate hello --tokens 3 --temperature 0.5",
            {"prompt": "hello", "tokens": 3, "temperature": 0.5, "seed": 0},
        ),
        ("simulate --context 512", {"context_length": 512, "model": ""}),
        ("inspect some/file --offset 0x40", {"file": "some/file", "offset": "0x40"}),
        ("clean --keep 3", {"keep": 3}),
        ("nightly", {"board": "", "model": "", "pipeline": ""}),
    ],
)
def test_flags_reach_the_task(typed: str, options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.commands import entry

    got: list[tuple[str, dict[str, object], dict[str, object]]] = []

    def execute(name: str, given: dict[str, object], **common: object) -> int:
        got.append((name, given, common))
        return 0

    monkeypatch.setattr(entry, "execute", execute)
    program = tasks.Tritforge(namespace=tasks.namespace, name="tritforge", binary="./inv", version="")
    program.run(["./inv", *typed.split(), "--set", "a.b.c=1", "--set=model=x", "--json", "out.json"], exit=False)
    ((name, given, common),) = got
    assert name == typed.split()[0]
    assert {key: given[key] for key in options} == options
    assert common == {"plan": False, "json_file": "out.json", "overrides": ["a.b.c=1", "model=x"], "debug": False}
