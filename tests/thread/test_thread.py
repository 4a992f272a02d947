"""The thread from a source to the verdict: one operator, one packed byte or one cache call changed, and verify says no.

In a copy of this checkout with a board of its own, over the same commands that a person types. Short runs change the
byte and the cache call; a campaign changes the circuit too, which takes minutes to compile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.checkout import Copy

STEPS = 3


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
    "operator": Change("hw/rtl/tritforge_ternary_dot.sv", "9'(even) + 9'(odd)", "9'(even) - 9'(odd)"),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    copied = Copy.make(tmp_path_factory.mktemp("thread") / "checkout")
    try:
        yield copied
    finally:
        copied.type_it("boards", "--stop=emu1")


@pytest.mark.emulator
def test_the_unchanged_source_verifies(copy: Copy) -> None:
    status, document, said = copy.type_it("verify", "--steps", str(STEPS))
    assert status == 0, said
    assert document["status"] == "passed"
    assert document["circuits"]["matvec_words"] > 0 and document["circuits"]["attention_words"] > 0
    assert document["circuits"]["mismatches"] == document["logits"]["mismatches"] == 0
    assert document["logits"]["compared"] > 0


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["packed byte", "cache call", pytest.param("operator", marks=pytest.mark.campaign)])
def test_one_change_and_verify_exits_1(copy: Copy, name: str) -> None:
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
