"""Pages written from the code are up to date, links lead somewhere, and templates are what their tools can read."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines.boards.rootfs import PYTHON_VERSION

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_reference_is_what_the_code_says() -> None:
    """In a process of its own: Invoke hands out a task's help texts once, and other tests may have taken them."""
    script = "import json, runpy; pages = runpy.run_path('docs/generate.py')['pages']; print(json.dumps(pages()))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=120, check=True
    )
    made = json.loads(done.stdout)
    for name, text in made.items():
        written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
        assert written == text, f"docs/reference/{name} is out of date: run python docs/generate.py"
    assert {path.name for path in (ROOT / "docs" / "reference").iterdir()} == set(made)


def test_every_task_is_described() -> None:
    import tasks

    text = (ROOT / "docs" / "reference" / "tasks.md").read_text(encoding="utf-8")
    results = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    for task in tasks.namespace.tasks.values():
        assert f"### {task.name}\n" in text and f"## {task.name}\n" in results


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tasks_and_flags_in_the_pages_exist(page: Path) -> None:
    import tasks

    flags = {task.name: {f"--{a.name}" for a in task.get_arguments()} for task in tasks.namespace.tasks.values()}
    text = page.read_text(encoding="utf-8")
    for name, rest in re.findall(r"(?:\./inv|invoke) ([a-z][a-z-]+)((?: +[^`\n#|&;]+)?)", text):
        if name not in flags and not re.search(rf"\./inv {name}", text):
            continue  # prose about the tool 'invoke'
        assert name in flags, f"{page.name}: there is no task '{name}'"
        for flag in re.findall(r"(?<=\s)--[a-z][a-z-]*", rest):
            assert flag in flags[name] | {"--help"}, f"{page.name}: '{name}' has no {flag}"


def test_templates_can_be_read() -> None:
    folder = ROOT / "docs" / "ci"
    github = yaml.safe_load((folder / "github.yml").read_text())
    steps = github["jobs"]["nightly"]["steps"]
    assert any("./inv nightly" in step.get("run", "") for step in steps)
    kept = [step for step in steps if step.get("uses", "").startswith("actions/cache/save")]
    assert [step["if"] for step in kept] == ["always()"], "a night that failed is part of the history"
    gitlab = yaml.safe_load((folder / "gitlab.yml").read_text())
    assert gitlab["nightly"]["script"] == ["./inv nightly"] and gitlab["nightly"]["cache"]["when"] == "always"
    # The host is a new one every night; under its own name no figure would have a past.
    assert github["env"]["TRITFORGE_MACHINE"] and gitlab["nightly"]["variables"]["TRITFORGE_MACHINE"]
    # Its Python is the emulated board's, which byte code is made for.
    images = {job["container"] for job in github["jobs"].values()} | {gitlab["default"]["image"]}
    assert images == {"debian:12"} and PYTHON_VERSION == "3.11"
    for name, section in (("tritforge.service", "Service"), ("tritforge.timer", "Timer")):
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read(folder / name)
        assert section in unit
    lines = [line for line in (folder / "crontab").read_text().splitlines() if line and line[0].isdigit()]
    assert len(lines) == 1 and len(lines[0].split(maxsplit=5)) == 6


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_tasks_and_flags(tmp_path: Path) -> None:
    inv = tmp_path / "inv"
    inv.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "tasks.py"}" "$@"\n')
    inv.chmod(0o755)
    script = """
        source "$1/docs/completion/inv.bash"
        ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tritforge_inv "$1" "${@: -1}" ""; echo "${COMPREPLY[@]}"; }
        ask "$2" gen
        ask "$2" deploy --bo
    """
    done = subprocess.run(
        ["bash", "-c", script, "bash", str(ROOT), str(inv)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["generate", "--board"]


OTHER_SHELLS = {
    "fish": 'source docs/completion/inv.fish; complete -C "$INV gen"; complete -C "$INV deploy --bo"',
    # What zsh's completion system would provide: a list of words, the place of the definition, and where matches go.
    "zsh": "compdef() { :; }; compadd() { shift; print -l -- $@; }; source docs/completion/inv.zsh;"
    " words=($INV gen); _tritforge_inv | grep ^gen; words=($INV deploy --bo); _tritforge_inv | grep ^--bo",
}


@pytest.mark.parametrize("shell", sorted(OTHER_SHELLS))
def test_other_shells_complete_too(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")
    inv = tmp_path / "inv"
    inv.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "tasks.py"}" "$@"\n')
    inv.chmod(0o755)
    script = OTHER_SHELLS[shell].replace("complete -c inv", f"complete -c {inv}")
    if shell == "fish":  # completion belongs to the command's name
        script = script.replace("; complete", f"; complete -c {inv} -f -a '(__tritforge_inv)'; complete", 1)
    done = subprocess.run(
        [shell, "-c", script], cwd=ROOT, env={**os.environ, "INV": str(inv)}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["generate", "--board"], done.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [(["nigthly"], "did you mean 'nightly'"), (["deploy", "--bord=x"], "did you mean '--board'")],
)
def test_mistyped_names_get_the_nearest_one(words: list[str], wanted: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tasks.py"), *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and wanted in done.stderr
