"""The thread from a source to the verdict: one operator, one packed byte or one cache call changed, and verify says no.

In a copy of this checkout with a board of its own, over the same commands that a person types. First the copy, as it
is, must pass a whole night; then its plan must say that nothing is to be done, and after an edit what and why; then
each change must be caught.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.checkout import Copy

STEPS = 3
PIPELINE = f"""\
# The nightly's stages with as little work for the board as shows anything.
prompts: ["It was a truth"]
tokens: 4
fresh_hours: 24
stages:
  - {{name: build-bitstream, task: build-bitstream, deadline_minutes: 30}}
  - {{name: build-runtime, task: build-runtime, deadline_minutes: 20}}
  - {{name: convert-weights, task: convert-weights, deadline_minutes: 20}}
  - {{name: release, task: release, needs: [build-bitstream, build-runtime, convert-weights], deadline_minutes: 5}}
  - {{name: deploy, task: deploy, needs: [release], deadline_minutes: 30}}
  - {{name: generate, task: generate, needs: [deploy], deadline_minutes: 20}}
  - name: verify
    task: verify
    needs: [deploy]
    after: [generate]
    options: {{steps: {STEPS}}}
    deadline_minutes: 30
  - {{name: report, task: report, after: [generate, verify], deadline_minutes: 5}}
"""
STAGES = ["build-bitstream", "build-runtime", "convert-weights", "release", "deploy", "generate", "verify", "report"]
RTL = "hw/rtl/tritforge_ternary_dot.sv"


@dataclass(frozen=True)
class Change:
    file: str
    old: str
    new: str


CHANGES = {
    "packed byte": Change(
        "pipelines/model/image.py",
        "        length = self.shape.group_row_length(group)\n        if rows.shape",
        "        length = self.shape.group_row_length(group)\n"
        "        if layer == 0 and group == 'o':\n"
        "            rows = rows.copy()\n"
        "            rows[0, 0] = 0 if rows[0, 0] else 242\n"
        "        if rows.shape",
    ),
    "cache call": Change(
        "native/src/driver.c",
        "TRY(clean(d, CALL_CLEAN_KEY, kv_row(d, d->layout.keys, layer, head, positions - 1), shape->head_dim));",
        "",
    ),
    "operator": Change(RTL, "9'(even) + 9'(odd)", "9'(even) - 9'(odd)"),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    copied = Copy.make(tmp_path_factory.mktemp("thread") / "checkout")
    (copied.root / "config" / "pipelines" / "thread.yaml").write_text(PIPELINE)
    try:
        yield copied
    finally:
        copied.type_it("boards", "--stop=emu1")


@pytest.fixture(scope="module")
def passed(copy: Copy) -> dict[str, Any]:
    """What a night of the unchanged copy says. Every test stands on it: what fails later fails by its change."""
    status, document, said = copy.type_it("nightly", "--pipeline=thread")
    assert status == 0, said
    return document


def planned(copy: Copy) -> dict[str, dict[str, Any]]:
    status, document, said = copy.type_it("nightly", "--pipeline=thread", "--plan")
    assert status == 0, said
    return {stage["name"]: stage for stage in document["stages"]}


@pytest.mark.emulator
def test_the_unchanged_copy_passes(passed: dict[str, Any]) -> None:
    assert passed["status"] == "passed"
    assert {stage["name"]: stage["status"] for stage in passed["stages"]} == dict.fromkeys(STAGES, "passed")
    assert passed["texts"][0]["text"].strip(), "text in, text out"
    verify = passed["results"]["verify"]
    assert verify["circuits"]["matvec_words"] > 0 and verify["circuits"]["attention_words"] > 0
    assert verify["circuits"]["mismatches"] == verify["tokens"]["mismatches"] == verify["logits"]["mismatches"] == 0
    assert verify["logits"]["compared"] > 0


@pytest.mark.emulator
def test_the_plan_says_what_would_run_and_why(copy: Copy, passed: dict[str, Any]) -> None:
    assert [name for name, stage in planned(copy).items() if stage["cached"]] == STAGES
    path = copy.root / RTL
    text = path.read_text()
    os.utime(path)
    assert [name for name, stage in planned(copy).items() if stage["cached"]] == STAGES, "touched is not changed"
    before = hashlib.sha256(text.encode()).hexdigest()[:12]
    changed = text.replace("e", "E", 1)  # one character
    path.write_text(changed)
    try:
        plan = planned(copy)
    finally:
        path.write_text(text)
    after = hashlib.sha256(changed.encode()).hexdigest()[:12]
    assert [name for name, stage in plan.items() if stage["cached"]] == ["build-runtime", "convert-weights"]
    reason = plan["build-bitstream"]["reason"]
    assert f"{RTL} changed from {before} to {after}" in reason
    assert plan["release"]["reason"] == "it stands on 'bitstream-combined-verilator', which would run"
    assert plan["deploy"]["reason"] == "it stands on 'release', which would run"
    assert plan["verify"]["reason"] == "it stands on 'deploy', which would run"
    assert [name for name, stage in planned(copy).items() if stage["cached"]] == STAGES, "and back again"


@pytest.mark.emulator
@pytest.mark.parametrize("name", CHANGES)
def test_one_change_and_verify_exits_1(copy: Copy, passed: dict[str, Any], name: str) -> None:
    change = CHANGES[name]
    path = copy.root / change.file
    text = path.read_text()
    assert text.count(change.old) == 1, "the change no longer fits the source"
    path.write_text(text.replace(change.old, change.new))
    try:
        status, document, said = copy.type_it("verify", "--steps", str(STEPS))
    finally:
        path.write_text(text)
    assert status == 1, said
    assert document["status"] == "failed"
    assert document["error"]["class"] == "MismatchError", document["error"]
