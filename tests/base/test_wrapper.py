"""The wrapper ``./inv``: what it says on a bare machine, and what a second call of it does.

In a copy that has a Python and no tool: the PATH holds a handful of programs and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = "sh cat cut date dirname flock id mkdir rm sha256sum sort tail tr env".split()


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout's wrapper beside a tasks.py that says what it was asked; ``bin`` is all of the PATH."""
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found, name
        (tmp_path / "bin" / name).symlink_to(found)
    shutil.copy2(ROOT / "inv", tmp_path / "inv")
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / "tasks.py").write_text("import sys; print('asked', *sys.argv[1:])\n")
    return tmp_path


def type_it(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "inv", *arguments],
        env={"PATH": str(folder / "bin"), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def prepared(folder: Path) -> None:
    """As the first call leaves it: an environment, and the stamp of what it was made from."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    content = (folder / "requirements.lock").read_bytes() + (folder / "inv").read_bytes()
    stamp = f"{hashlib.sha256(content).hexdigest()}  -"
    (folder / ".venv" / "tritforge.all.stamp").write_text(stamp)


def test_without_system_packages_it_prints_the_one_line(bare: Path) -> None:
    done = type_it(bare, "--list", TRITFORGE_NO_SYSTEM="1")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    root = "" if os.geteuid() == 0 else "sudo "
    assert line.startswith(f"{root}apt-get install --no-install-recommends ")
    packages = line.split()
    assert {"git", "verilator", "qemu-system-arm", "python3-venv"} <= set(packages)
    assert "chromium" not in packages, "only the tests want that"
    assert done.stdout == ""


def test_the_tests_own_packages_are_asked_for_with_the_tests(bare: Path) -> None:
    done = type_it(bare, "test", TRITFORGE_NO_SYSTEM="1")
    assert "chromium" in done.stderr.splitlines()[0].split()


def test_a_machine_without_apt_says_what_is_missing_and_why(bare: Path) -> None:
    done = type_it(bare, "--list")
    assert done.returncode == 3
    assert "  verilator: turns the RTL of the circuits into C++" in done.stderr
    assert "this system has no apt-get\n  hint: " in done.stderr


def test_a_prepared_checkout_goes_straight_on(bare: Path) -> None:
    """No program but those of the second call: the shell, the stamp's hash, and the environment's Python."""
    prepared(bare)
    for name in set(PROGRAMS) - {"sh", "cat", "dirname", "sha256sum"}:
        (bare / "bin" / name).unlink()
    done = type_it(bare, "nightly", "--plan")
    assert (done.returncode, done.stdout, done.stderr) == (0, "asked nightly --plan\n", "")


def test_completion_of_what_is_not_prepared_says_and_does_nothing(bare: Path) -> None:
    done = type_it(bare, "--complete", "--", "tasks.py", "ni")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (bare / ".venv").exists() and not (bare / ".tritforge").exists()


def test_an_environment_whose_python_is_gone_is_made_again(bare: Path) -> None:
    prepared(bare)
    python = bare / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3.11")
    done = type_it(bare, "--list", TRITFORGE_NO_SYSTEM="1")
    assert done.returncode == 3 and "apt-get install" in done.stderr


def test_a_new_lock_prepares_again(bare: Path) -> None:
    prepared(bare)
    (bare / "requirements.lock").write_text("# changed\n")
    assert type_it(bare, "--list", TRITFORGE_NO_SYSTEM="1").returncode == 3
