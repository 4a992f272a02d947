"""What a plan loads before it can say anything: its time is a figure of `benchmark`, its causes stand here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "numpy", "asyncio", "filelock", "rich", "jinja2", "fabric", "paramiko", "tokenizers", "pipelines.model.convert",
}  # fmt: skip


def test_a_plan_loads_nothing_that_only_a_build_needs() -> None:
    code = (
        "import sys\n"
        "import pipelines.commands.entry, pipelines.commands.nightly, pipelines.commands.release\n"
        f"print('LOADED', sorted(set(sys.modules) & set({sorted(HEAVY)!r})))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "LOADED []\n"
