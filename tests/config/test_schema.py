"""The schemas in ``config/schema`` are those of the models, and every file names its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.config import schema

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", sorted(schema.MODELS))
def test_the_schema_file_is_generated(name: str) -> None:
    assert schema.path_of(ROOT, name).read_text() == schema.schema(name), "run: python -m pipelines.config.schema"


@pytest.mark.parametrize("path", sorted((ROOT / "config").rglob("*.yaml")), ids=lambda path: path.stem)
def test_each_file_names_its_schema(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    named = path.parent / first.removeprefix("# yaml-language-server: $schema=")
    kind = path.parent.name.removesuffix("s") if path.parent.name != "config" else "tritforge"
    assert named.resolve() == schema.path_of(ROOT, kind)
