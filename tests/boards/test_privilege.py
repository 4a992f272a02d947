"""Who builds the emulated board's image: root, root of a namespace, or root through sudo."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolFailed
from pipelines.boards import privilege, rootfs


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of its own in front, this user no root, and a build that only notes that it was called here."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def build(out: Path, *_: Any, **__: Any) -> None:
        (out / "built here").write_text("")

    monkeypatch.setattr(rootfs, "build", build)
    return tmp_path


def program(machine: Path, name: str, body: str) -> None:
    path = machine / "bin" / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def build(machine: Path) -> list[str]:
    out = machine / "out"
    out.mkdir()
    privilege.build_image(out, Deadline.after(60), machine / "log", disk_gib=4, mirror="http://mirror.invalid")
    return sorted(path.name for path in out.iterdir())


def test_in_a_namespace_where_there_are_some(machine: Path) -> None:
    program(machine, "unshare", "exit 0")
    program(machine, "sudo", "exit 1")
    assert build(machine) == ["built here"]


def test_through_sudo_where_there_are_none(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sudo is asked to run: the builder with this environment's index and proxies, then the chown."""
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.invalid/with space")
    monkeypatch.setenv("https_proxy", "http://proxy.invalid")
    monkeypatch.setenv("TRITFORGE_BOARD", "emu1")
    program(machine, "unshare", "exit 1")
    program(machine, "sudo", f'for word; do printf "%s\\n" "$word"; done >> {machine}/asked')
    assert build(machine) == []
    asked = (machine / "asked").read_text().splitlines()
    assert {"PIP_INDEX_URL=https://index.invalid/with space", "https_proxy=http://proxy.invalid"} <= set(asked)
    assert not any(word.startswith("TRITFORGE_") for word in asked)
    assert asked[-4:] == ["chown", "-R", f"{os.getuid()}:{os.getgid()}", str(machine / "out")]
    assert asked[:5] == ["-n", "true", "-n", "env", "PYTHONDONTWRITEBYTECODE=1"]
    assert {"4", "http://mirror.invalid", str(machine / "out")} <= set(asked)


def test_what_the_builder_is_asked_is_python(machine: Path) -> None:
    compile(privilege.CODE, "CODE", "exec")


def test_with_neither_it_says_what_to_do(machine: Path) -> None:
    program(machine, "unshare", "exit 1")
    program(machine, "sudo", "exit 1")
    with pytest.raises(ToolFailed, match="must be built by root") as caught:
        build(machine)
    assert "user namespaces" in caught.value.hint
