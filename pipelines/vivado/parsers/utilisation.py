"""``report_utilization``: resources of the whole design, and by hierarchy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipelines.vivado.parsers.tables import ReportError, box_table


@dataclass(frozen=True)
class Resources:
    """Counts; block RAM in tiles of 36 Kbit, where a half is half a tile."""

    lut: int
    ff: int
    bram36: float
    dsp: int


@dataclass(frozen=True)
class Instance:
    """One line of the hierarchy; ``depth`` 0 is the top."""

    depth: int
    name: str
    module: str
    resources: Resources


def parse(text: str) -> Resources:
    """Totals of a 7-series device; the tables have a column ``Prohibited`` from 2021 on::

    | Slice LUTs       | 27172 |     0 |     63400 | 42.86 |
    | Slice Registers  | 33246 |     0 |    126800 | 26.22 |
    | Block RAM Tile   |  69.5 |     0 |       135 | 51.48 |
    | DSPs             |     1 |     0 |       240 |  0.42 |
    """
    rows: dict[str, float] = {}
    for name, used in re.findall(r"^\|\s*([\w /]+?)\*?\s*\|\s*([\d.]+)\s*\|", text, re.M):
        rows.setdefault(name, float(used))  # a name can stand in several tables, with the same number
    try:
        return Resources(
            lut=int(rows["Slice LUTs"]),
            ff=int(rows["Slice Registers"]),
            bram36=rows["Block RAM Tile"],
            dsp=int(rows["DSPs"]),
        )
    except KeyError as error:
        raise ReportError(f"the utilisation report has no line {error}") from None


def parse_hierarchy(text: str) -> list[Instance]:
    """Lines of the hierarchy, two spaces a level::

    |           Instance            |   Module  | Total LUTs | Logic LUTs | … |  FFs  | RAMB36 | RAMB18 | DSP Blocks |
    | tritforge_system_wrapper      |     (top) |      17000 |      16000 | … | 19000 |     26 |      1 |         34 |
    |   tritforge_system_i          | …
    """
    instances = []
    for row in box_table(text, "Instance"):
        name = row["Instance"]
        if name.strip().startswith("("):
            continue  # what lies in an instance itself, beside its children
        dsp = row.get("DSP Blocks", row.get("DSP48 Blocks"))
        if dsp is None:
            raise ReportError("the hierarchy has no column of DSP blocks")
        instances.append(
            Instance(
                depth=(len(name) - len(name.lstrip())) // 2,
                name=name.strip(),
                module=row["Module"],
                resources=Resources(
                    lut=int(row["Total LUTs"]),
                    ff=int(row["FFs"]),
                    bram36=int(row["RAMB36"]) + int(row["RAMB18"]) / 2,
                    dsp=int(dsp),
                ),
            )
        )
    if not instances:
        raise ReportError("the hierarchy is empty")
    return instances
