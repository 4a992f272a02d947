"""The tasks that people type, for ``./inv`` and for ``invoke``: names, flags and one line of help each.

What a task does stands in ``pipelines/commands/``; nothing of it is imported before it is asked for, so that ``--list``
and ``--help`` answer at once.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from invoke import Argument, Collection, Context, Exit, Program, Task, main
from invoke.exceptions import CollectionNotFound, ParseError

ROOT = Path(__file__).resolve().parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

# Invoke turns byte code off, and with it a fifth of a second of every start.
sys.dont_write_bytecode = False

# A key of each group's tasks in `--list`, in the order in which a newcomer meets them.
GROUPS: dict[str, list[Task[Any]]] = {"Main": [], "Build": [], "Board": [], "Check": [], "Figures": [], "Care": []}

COMMON_HELP = {
    "plan": "show what would run, what is cached and why; change nothing",
    "json": "write the result as JSON to this file",
    "set": "override one value of the configuration, as in boards.emu1.cma_mib=256 (repeatable)",
    "debug": "show the traceback of an error",
}
BOARD_HELP = "a board of config/boards (default: tritforge.yaml, TRITFORGE_BOARD)"
BOARDS_HELP = "a board or a group of boards (repeatable)"
MODEL_HELP = "a model of config/models (default: tritforge.yaml, TRITFORGE_MODEL)"


def command(
    group: str, *, positional: tuple[str, ...] = (), optional: str = "", lists: tuple[str, ...] = (), **texts: str
) -> Callable[[Callable[..., None]], Task[Any]]:
    """Makes a task of a declaration: its parameters are the flags, its docstring the help, its body is not used.

    ``positional`` parameters must be given; the one named ``optional`` may be given without its flag. ``lists`` are
    repeatable. The work is ``pipelines/commands/<name>.py: run(context, **flags)``.
    """

    def declare(function: Callable[..., None]) -> Task[Any]:
        name = function.__name__.strip("_").replace("_", "-")

        def body(_invoke: Context, *args: Any, **flags: Any) -> None:
            bound = body.__signature__.bind(_invoke, *args, **flags)  # type: ignore[attr-defined]
            bound.apply_defaults()
            options = dict(bound.arguments)
            del options["_invoke"]
            if "context" in options:  # the flag's name for people; `run` has a context of its own
                options["context_length"] = options.pop("context")
            common = {key: options.pop(key) for key in ("plan", "json", "set", "debug")}
            from pipelines.commands.entry import execute

            status = execute(
                name,
                options,
                plan=common["plan"],
                json_file=common["json"],
                overrides=common["set"],
                debug=common["debug"],
            )
            if status:
                raise Exit(code=status)

        own = [
            # Invoke takes the kind of a flag from its default: only a list makes it repeatable.
            parameter.replace(default=[]) if parameter.name in lists else parameter
            for parameter in inspect.signature(function).parameters.values()
        ]
        extra = [("plan", False), ("json", ""), ("set", []), ("debug", False)]
        body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter("_invoke", inspect.Parameter.POSITIONAL_OR_KEYWORD), *own]
            + [inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=value) for key, value in extra]
        )
        body.__doc__ = function.__doc__
        made: Task[Any] = Task(
            body,
            name=name,
            positional=positional,
            iterable=[*lists, "set"],
            help={key.replace("_", "-"): text for key, text in {**texts, **COMMON_HELP}.items()},
            auto_shortflags=False,
        )
        made.optional_positional = optional  # type: ignore[attr-defined]
        GROUPS[group].append(made)
        return made

    return declare


# ------------------------------------------------------------------------------------------------------------ main


@command("Main", board=BOARD_HELP, model=MODEL_HELP, pipeline="a pipeline of config/pipelines")
def nightly(board="", model="", pipeline=""):
    """The main job: build, deploy, generate, verify, report."""


@command(
    "Main",
    lists=("path",),
    path="only these test files or folders (repeatable)",
    match="only tests whose name matches, as in pytest -k",
    campaign="the long campaigns too, with their full counts",
)
def test(path=(), match="", campaign=False):
    """The whole test suite, lint and type checks."""


# ----------------------------------------------------------------------------------------------------------- build


@command(
    "Build",
    board=BOARD_HELP,
    sweep="Vivado: when timing is not met, try this many strategies at once",
    development="Vivado: any version of the policy's range; the result cannot be released",
)
def build_bitstream(board="", sweep=0, development=False):
    """The bitstream for a board: Vivado for a real one, Verilator for an emulated one."""


@command("Build", board=BOARD_HELP)
def build_runtime(board=""):
    """The C runtime for a board's ABI and for this machine."""


@command("Build", model=MODEL_HELP)
def convert_weights(model=""):
    """A checkpoint into its calibrated, packed image."""


@command("Build", board=BOARD_HELP, model=MODEL_HELP)
def release(board="", model=""):
    """Joins bitstream, runtime, weights and tokenizer under one signed manifest."""


# ----------------------------------------------------------------------------------------------------------- board


@command("Board", lists=("board",), board=BOARDS_HELP, model=MODEL_HELP)
def deploy(board=(), model=""):
    """Puts a release on the board and makes it current, or changes nothing."""


@command("Board", board=BOARD_HELP)
def rollback(board=""):
    """Makes the release before the current one current again."""


@command(
    "Board",
    optional="prompt",
    board=BOARD_HELP,
    prompt="the text to continue",
    tokens="how many tokens to generate",
    temperature="0 takes the likeliest token each time",
    top_k="only the K likeliest tokens; 0 means all",
    top_p="only the likeliest tokens that make up this probability",
    repetition_penalty="above 1, tokens seen before become less likely",
    seed="of the drawing; the same seed gives the same text",
)
def generate(
    board="", prompt="", tokens=64, temperature=0.0, top_k=0, top_p=1.0, repetition_penalty=1.0, seed=0
):  # fmt: skip
    """Continues a text on the board, printed as it comes."""


@command(
    "Board",
    start="switch this emulated board on",
    stop="switch this emulated board off",
    fresh="with --start: begin with an empty disk",
    accept="show the host key that this board answers with, to be accepted as its own",
    host_key="with --accept: the key as it must be, or 'yes' to take it as it is",
)
def boards(stop="", start="", fresh=False, accept="", host_key=""):
    """Boards, their state, and who holds them."""


@command("Board", board=BOARD_HELP)
def doctor(board=""):
    """Everything that can be wrong, before it goes wrong."""


# ----------------------------------------------------------------------------------------------------------- check


@command(
    "Check",
    board=BOARD_HELP,
    model=MODEL_HELP,
    against="also other machines, with commas between: aarch64, armv7, numpy, board:NAME",
    full="fetch all logits, also where their hashes agree",
    steps="only the first so many steps of the battery",
)
def verify(board="", model="", against="", full=False, steps=0):
    """Circuits, tokens and logits, bit for bit, board against this machine."""


@command(
    "Check",
    lists=("part",),
    board=BOARD_HELP,
    model=MODEL_HELP,
    part="only this part: bitstream, runtime, weights or release (repeatable)",
)
def repro(board="", model="", part=()):
    """Builds everything twice in different folders and compares."""


@command(
    "Check",
    board=BOARD_HELP,
    model=MODEL_HELP,
    context="positions in K and V",
    waves="write the signals to this VCD file",
)
def simulate(board="", model="", context=64, waves=""):
    """One token through the RTL: words, cycles, stalls, equality."""


@command("Check", positional=("file",), file="a packed image or a manifest", offset="explain this byte (0x… too)")
def inspect_(file, offset=""):
    """What lies where in a packed image or manifest."""


# --------------------------------------------------------------------------------------------------------- figures


@command("Figures", model=MODEL_HELP, tokens="how much of the text, in whole windows (default: all of it)")
def evaluate(model="", tokens=0):
    """The perplexity table."""


@command("Figures", board=BOARD_HELP, model=MODEL_HELP, push="also push 141 MiB to the board, in turn with scp")
def benchmark(board="", model="", push=False):
    """The figures of performance, each with its evidence and its limit."""


@command("Figures", optional="figure", figure="the figure to show; all of them when left out", runs="how many nights")
def history(figure="", runs=30):
    """A figure over the nights."""


@command("Figures", out="folder for report.html, junit.xml, report.json and summary.md")
def report(out=""):
    """HTML, JUnit, JSON and Markdown of the last nightly."""


# ------------------------------------------------------------------------------------------------------------ care


@command("Care", keep="releases to keep, newest first; without it what the pipeline says")
def clean(keep=-1):
    """Removes artefacts that no release needs."""


@command("Care", steps="optimiser steps", out="folder for the new checkpoint")
def train_tiny(steps=0, out=""):
    """Trains the shipped model again (needs torch)."""


namespace = Collection(*[task for tasks in GROUPS.values() for task in tasks])


def with_flag(tokens: list[str]) -> list[str]:
    """``history FIGURE`` as ``history --figure FIGURE``: Invoke knows no positional argument that may be left out."""
    if len(tokens) < 2 or tokens[1].startswith("-"):
        return tokens
    for tasks in GROUPS.values():
        for task in tasks:
            flag = getattr(task, "optional_positional", "")
            if flag and task.name == tokens[0]:
                return [tokens[0], f"--{flag.replace('_', '-')}={tokens[1]}", *tokens[2:]]
    return tokens


SHELL_FLAGS = {
    "command-timeout", "config", "dry", "echo", "hide", "prompt-for-sudo-password", "pty", "warn-only",
}  # fmt: skip
"""Invoke's own, for the shell commands of its ``Context.run``. No task here has one, so they would promise in vain."""


class Tritforge(Program):
    """Invoke's program with our exit statuses (2 for wrong usage), suggestions, version and grouped list."""

    def core_args(self) -> list[Argument]:
        return [argument for argument in super().core_args() if argument.name not in SHELL_FLAGS]

    def update_config(self, merge: bool = True) -> None:
        """Nothing: what Invoke takes over from its flags are those that are left out."""

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:
        try:
            super().run(argv, exit)
        except KeyboardInterrupt:
            sys.exit(130)

    def parse_core(self, argv: list[str] | None) -> None:
        try:
            super().parse_core(argv)
        except ParseError as error:
            raise self.usage(error) from None
        # Invoke's parse_core has just turned byte code off again.
        sys.dont_write_bytecode = False
        self.core.unparsed[:] = with_flag(self.core.unparsed)

    def parse_tasks(self) -> None:
        try:
            super().parse_tasks()
        except (ParseError, ValueError) as error:  # ValueError: a number was wanted
            raise self.usage(error) from None

    def parse_cleanup(self) -> None:
        try:
            super().parse_cleanup()
        except (ParseError, CollectionNotFound) as error:
            raise self.usage(error) from None

    def execute(self) -> None:
        if len(self.tasks) > 1:
            names = " and ".join(task.name or "" for task in self.tasks)
            raise Exit(f"one task at a time, not {names}", code=2)
        super().execute()

    def usage(self, error: Exception) -> Exit:
        """The parser's complaint with the nearest valid name."""
        from pipelines.base.names import nearest

        message = str(error)
        unparsed = list(self.core.unparsed) if hasattr(self, "core") else []
        task = next((known for known in namespace.tasks.values() if unparsed and known.name == unparsed[0]), None)
        wrong = next((token for token in unparsed if message == f"No idea what {token!r} is!"), None)
        if wrong is None and message.startswith("No idea what '"):
            wrong = message.split("'")[1]
        if wrong is None:
            if task is not None and isinstance(error, ValueError):
                message = no_number(task, unparsed) or message
            return Exit(f"{message}\n  hint: ./inv {task.name} --help" if task else message, code=2)
        if task is not None and wrong != task.name:
            known = [flag for argument in task.get_arguments() for flag in flags_of(argument)]
            near = nearest(wrong.split("=")[0], known)
            message = f"'{task.name}' does not take '{wrong}'"
            more = f"'./inv {task.name} --help' lists what it takes"
        else:
            near = nearest(wrong, [*namespace.task_names, *self.initial_context.flags])
            message = f"there is no {'flag' if wrong.startswith('-') else 'task'} '{wrong}'"
            more = "'./inv --list' shows all tasks"
        return Exit(message + (f"; did you mean '{near}'?" if near else "") + f"\n  hint: {more}", code=2)

    def print_version(self) -> None:
        from pipelines.commands.version import text

        print(text())

    def list_flat(self) -> None:
        print("Usage: ./inv TASK [--flags]        ./inv TASK --help for its flags\n")
        width = max(len(task.name) for tasks in GROUPS.values() for task in tasks)
        for group, tasks in GROUPS.items():
            print(f"{group}:")
            for task in tasks:
                print(f"  {task.name:<{width}}  {(task.__doc__ or '').splitlines()[0]}")
            print()


def no_number(task: Task[Any], tokens: list[str]) -> str:
    """Which flag wanted a number and got none; Python's own words, which Invoke hands on, do not name it."""
    kinds = {f"--{argument.name}": argument.kind for argument in task.get_arguments()}
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        flag, given, value = token.partition("=")
        if kinds.get(flag) in (int, float):
            value = value if given else following
            try:
                kinds[flag](value)
            except ValueError:
                return f"{flag} is '{value}'; it must be {'a whole number' if kinds[flag] is int else 'a number'}"
    return ""


def flags_of(argument: Argument) -> list[str]:
    return [f"--{argument.name}"]


if __name__ == "__main__":
    Tritforge(namespace=namespace, name="tritforge", binary="./inv", version="").run()
else:
    # Bare `invoke` has parsed its own flags when it loads this file, and not yet the tasks'.
    core = getattr(main.program, "core", None)
    if core is not None:
        core.unparsed[:] = with_flag(core.unparsed)
