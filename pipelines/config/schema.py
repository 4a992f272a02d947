"""JSON Schemas of the configuration, for editors: ``python -m pipelines.config.schema`` writes ``config/schema/``.

Each YAML file names its schema in its first line, as the YAML language server reads it.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel

from pipelines.base.files import write_text
from pipelines.config.board import Board
from pipelines.config.model import ModelConfig
from pipelines.config.pipeline import Pipeline
from pipelines.config.settings import ROOT
from pipelines.config.tritforge import Tritforge
from pipelines.vivado.design import BitstreamDesign

MODELS: dict[str, type[BaseModel]] = {
    "board": Board,
    "bitstream": BitstreamDesign,
    "model": ModelConfig,
    "pipeline": Pipeline,
    "tritforge": Tritforge,
}


def schema(name: str) -> str:
    """The text of one schema file. ``name`` comes from the file's name, so no file has to say it."""
    value = MODELS[name].model_json_schema()
    if "name" in value.get("required", []):
        value["required"].remove("name")
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **value}, indent=1) + "\n"


def path_of(root: Path, name: str) -> Path:
    return root / "config" / "schema" / f"{name}.schema.json"


if __name__ == "__main__":
    for one in MODELS:
        write_text(path_of(ROOT, one), schema(one))
