"""Learning curves of other runs or studies, drawn dashed next to this run's own: how another family or setting learned.

A file of `report.comparisons` is JSON of this form (unknown keys are refused):

    {"schema": 1,
     "caption": "MLA without QK-norm learns to copy later; three seeds, same data and budget.",
     "curves": [{"name": "MLA, seed 0", "family": "deepseek_v3", "stage": "sft", "x": "core_s", "y": "loss",
                 "points": [[3.6, 5.43], [7.3, 4.03]]}]}

`stage` is base, sft or rl; `x` is step or core_s (CPU seconds of the stage); `y` is loss or solved_percent (of tasks).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

STORED = "comparisons.json"  # in the run directory: the drawn curves, so that the report can be rebuilt anywhere
FORMER_NAME = "beside"  # of the setting, and of that file without its ending, in run directories of earlier releases


class Curve(BaseModel):
    """One learning curve."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, description="what the legend says")
    family: str = Field(description="model.family of what was trained")
    stage: Literal["base", "sft", "rl"]
    x: Literal["step", "core_s"]
    y: Literal["loss", "solved_percent"]
    points: list[tuple[float, float]] = Field(min_length=1, description="(x, y), x rising")


class ComparisonCurves(BaseModel):
    """One file of curves and what to say of them."""

    model_config = ConfigDict(extra="forbid")

    schema_: Literal[1] = Field(alias="schema")
    caption: str
    curves: list[Curve]


class ComparisonCurvesError(ValueError):
    """A file of curves is not in the form that this module's docstring gives."""


def read_comparison_curves(run: Path, names: Iterable[str]) -> tuple[list[ComparisonCurves], list[str]]:
    """What the files hold, and the names of those that are nowhere to be found (the report says so).

    A name is a path from here or from Etude's repository. What was read is kept in the run directory and is used if the
    files themselves are out of reach, for instance where the run was copied to another machine.
    """
    wanted = list(names)
    kept = run / STORED
    old = run / f"{FORMER_NAME}.json"
    source = kept if kept.is_file() else old
    texts: dict[str, str] = json.loads(source.read_text()) if source.is_file() else {}
    found = {name: path.read_text() if (path := _find(name)) else texts.get(name) for name in wanted}
    there = {name: text for name, text in found.items() if text is not None}
    if there and there != texts:
        kept.write_text(json.dumps(there) + "\n")
    return [parse(text, name) for name, text in there.items()], [name for name in wanted if name not in there]


def parse(text: str, name: str) -> ComparisonCurves:
    """Raises ComparisonCurvesError that names the file and the first thing wrong in it."""
    try:
        return ComparisonCurves.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ComparisonCurvesError(
            f"{name}: {where}: {first['msg']}; the form of these files is in etude/evaluate/report/comparison_curves.py"
        ) from error


def _find(name: str) -> Path | None:
    here, shipped = Path(name), Path(__file__).parents[4] / name
    return next((path for path in (here, shipped) if path.is_file()), None)
