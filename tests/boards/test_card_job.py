"""``tritforge-job``, the one thing a board's user may run as root: it runs nothing but a signed, unchanged release."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from pipelines.boards.release import LocalRelease
from pipelines.config.settings import ROOT
from tests.boards.bench import IDENTITY, make_key, make_release, plain_files

SCRIPT = ROOT / "pipelines" / "boards" / "card" / "tritforge-job"


class Started(Exception):
    """What would have been executed."""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with a board's folders in ``tmp_path``."""
    loader = importlib.machinery.SourceFileLoader("tritforge_job", str(SCRIPT))
    spec = importlib.util.spec_from_loader("tritforge_job", loader)
    assert spec is not None
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    make_key(tmp_path / "key")
    make_key(tmp_path / "other")
    (tmp_path / "signers").write_text(f'{IDENTITY} namespaces="tritforge-release" {(tmp_path / "key.pub").read_text()}')
    (tmp_path / "board").mkdir()
    monkeypatch.setattr(module, "ROOT", f"{tmp_path}/board/")
    monkeypatch.setattr(module, "CHECKED", f"{tmp_path}/checked")
    monkeypatch.setattr(module, "SIGNERS", f"{tmp_path}/signers")
    monkeypatch.setattr(module, "TAKES_STAND_INS", f"{tmp_path}/takes-stand-ins")

    def execve(program: str, argv: list[str], environment: dict[str, str]) -> None:
        raise Started(os.getcwd(), argv, environment)

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.chdir(tmp_path)
    return module


def release(tmp_path: Path, name: str = "release", key: str = "key", **predicate: object) -> LocalRelease:
    return make_release(tmp_path / "board" / name, plain_files(1, size=2000), tmp_path / key, **predicate)


def test_it_runs_a_copy_that_it_has_checked(job: ModuleType, tmp_path: Path) -> None:
    made = release(tmp_path)
    with pytest.raises(Started) as started:
        job.main([str(made.folder), "smoke"])
    place, argv, environment = started.value.args
    assert place == f"{tmp_path}/checked/{made.id}" and argv[1:] == ["-m", "board_rt", "job", "smoke"]
    assert set(environment) == {"PATH", "XILINX_XRT", "PYTHONUNBUFFERED"}, "nothing of the caller's environment"
    assert os.stat(f"{tmp_path}/checked").st_mode & 0o077 == 0
    # What changes afterwards in the user's folder changes nothing of what runs.
    (made.folder / "behaviour").write_text("evil")
    with pytest.raises(Started) as started:
        job.main([str(made.folder), "generate"])
    assert (Path(started.value.args[0]) / "behaviour").read_text() == "pass"


def change(made: LocalRelease) -> None:
    (made.folder / "behaviour").write_text("evil")


def add(made: LocalRelease) -> None:
    (made.folder / "sitecustomize.py").write_text("import os")


def remove(made: LocalRelease) -> None:
    (made.folder / "common").unlink()


def link(made: LocalRelease) -> None:
    (made.folder / "common").unlink()
    (made.folder / "common").symlink_to("/etc/passwd")


def link_folder(made: LocalRelease) -> None:
    (made.folder / "more").symlink_to("/etc")


def forget_signature(made: LocalRelease) -> None:
    (made.folder / "manifest.json.sig").unlink()


def change_manifest(made: LocalRelease) -> None:
    text = (made.folder / "manifest.json").read_text()
    (made.folder / "manifest.json").write_text(text.replace('"contiguous_bytes": 1048576', '"contiguous_bytes": 1'))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (change, "'behaviour' is not what the manifest says"),
        (add, "'sitecustomize.py' is not what the manifest says"),
        (remove, "parts are missing: common"),
        (link, "Too many levels of symbolic links"),
        (forget_signature, "signature is not by an allowed signer"),
        (change_manifest, "signature is not by an allowed signer"),
    ],
)
def test_it_refuses_what_is_not_as_signed(
    job: ModuleType, tmp_path: Path, harm: Callable[[LocalRelease], None], words: str
) -> None:
    made = release(tmp_path)
    harm(made)
    with pytest.raises((SystemExit, OSError), match=words):
        job.main([str(made.folder), "smoke"])
    assert os.listdir(tmp_path / "checked") == [], "nothing unchecked is left behind"


def test_a_linked_folder_is_not_followed(job: ModuleType, tmp_path: Path) -> None:
    made = release(tmp_path)
    link_folder(made)
    with pytest.raises(Started) as started:
        job.main([str(made.folder), "smoke"])
    assert not (Path(started.value.args[0]) / "more").exists()


def test_it_refuses_other_signers(job: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not by an allowed signer"):
        job.main([str(release(tmp_path, key="other").folder), "smoke"])


def test_it_refuses_what_a_stand_in_made(job: ModuleType, tmp_path: Path) -> None:
    made = release(tmp_path, toolchains={"bitstream": "stand-in", "runtime": "zig"})
    with pytest.raises(SystemExit, match="a stand-in tool made a part of this release"):
        job.main([str(made.folder), "smoke"])
    (tmp_path / "takes-stand-ins").touch()
    with pytest.raises(Started):
        job.main([str(made.folder), "smoke"])


@pytest.mark.parametrize("arguments", [[], ["x"], ["x", "shell"], ["x", "smoke", "more"], ["-rf", "--help"]])
def test_it_knows_its_jobs_only(job: ModuleType, arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="usage"):
        job.main(arguments)


@pytest.mark.parametrize("place", ["/etc", "board/../checked", "board", "elsewhere"])
def test_it_refuses_other_places(job: ModuleType, tmp_path: Path, place: str) -> None:
    made = release(tmp_path, name="real")
    (tmp_path / "elsewhere").symlink_to(made.folder.parent)
    with pytest.raises((SystemExit, OSError)):
        job.main([str(tmp_path / place), "smoke"])


def test_it_keeps_few_copies(job: ModuleType, tmp_path: Path) -> None:
    for number in range(5):
        made = make_release(tmp_path / "board" / str(number), plain_files(number, size=100), tmp_path / "key")
        with pytest.raises(Started):
            job.main([str(made.folder), "smoke"])
        os.utime(tmp_path / "checked" / made.id, (1000 + number, 1000 + number))
    assert len(os.listdir(tmp_path / "checked")) == job.KEEP


def test_a_full_card_is_told_as_one(
    job: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = release(tmp_path)

    def copy(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(job, "copy", copy)
    assert job.guarded([str(made.folder), "smoke"]) == 1
    assert json.loads(capsys.readouterr().out)["fault"]["class"] == "BoardDiskFull"
    assert os.listdir(tmp_path / "checked") == []


def test_a_copy_is_on_the_card_before_it_has_its_name(
    job: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has its name is not read again: after a power cut it would be run as it is."""
    happened: list[str] = []
    rename = os.rename
    monkeypatch.setattr(os, "sync", lambda: happened.append("sync"))
    monkeypatch.setattr(os, "rename", lambda *paths: (happened.append("rename"), rename(*paths)))
    with pytest.raises(Started):
        job.main([str(release(tmp_path).folder), "smoke"])
    assert happened == ["sync", "rename"]


def test_what_a_cut_left_of_a_copy_goes(job: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "checked" / "tmpx1").mkdir(parents=True)
    made = release(tmp_path)
    with pytest.raises(Started):
        job.main([str(made.folder), "smoke"])
    assert os.listdir(tmp_path / "checked") == [made.id]
