"""What a stage is, and what its body is given.

A body is a function `(context) -> None` in `etude.pipeline.run.stages`. It may be killed at any instruction and is then called again
with the same folder, so it keeps its own progress there; a changed recipe gives it an empty folder instead.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.core.events.finite import dumps, without_nan
from etude.core.events.log import EventLog
from etude.core.files import replace_file
from etude.pipeline.recipe.recipe import Recipe


class StageError(Exception):
    """A stage can't go on, for a reason that the person can act on; the message says what and how."""


@dataclass(frozen=True)
class Stage:
    """One node of the graph. `body` is "module:function", imported only when the stage runs: bodies load torch and Ray."""

    name: str
    after: tuple[str, ...]  # stages whose output it reads
    reads: tuple[str, ...]  # recipe sections, or dotted keys, that decide its output
    body: str
    processes: str  # what runs, for the plan
    always: bool = False  # cheap, and rebuilt at every run
    also: tuple[str, ...] = ()  # stages whose output it reads if they are finished, and does without otherwise
    share: float = (
        1.0  # of the machine's cores; stages that don't need each other run together as long as the sum is at most 1
    )
    nice: int = 0  # how far it yields to concurrent stages: sandboxes take more cores than their stage's share
    # A stage of `after`: the recipe key that names what is read instead of its output, where it is set.
    stand_ins: dict[str, str] = field(default_factory=dict)
    spared_by: tuple[str, ...] = ()  # of the stages after it, those that can do without it (`run.without`)
    substitute: str = ""  # the recipe key that names what is read where this stage is left out; needed then

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"stage {self.name} asks for {self.share} of the machine; a share is above 0, at most 1")

    def load(self) -> Callable[[Context], None]:
        """The body."""
        module, _, function = self.body.partition(":")
        return getattr(importlib.import_module(module), function)


@dataclass(frozen=True)
class Context:
    """What a body works with. `resumed` is True if an earlier call was cut short and left `folder` as it is."""

    recipe: Recipe
    run: Path
    stage: str
    log: EventLog
    resumed: bool = False

    @property
    def folder(self) -> Path:
        """This stage's own folder; nothing else writes there."""
        return self.run / self.stage

    def of(self, stage: str) -> Path:
        """The folder of an earlier stage, to read from."""
        return self.run / stage

    def summarize(self, summary: dict[str, Any]) -> None:
        """Writes `<stage>/summary.json`, which the report reads."""
        write_json(self.folder / "summary.json", summary)


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all: a kill leaves the old file or the new one. Strict JSON, as `events.finite` has it."""
    text = (
        dumps(value, indent=1) if isinstance(value, dict) else json.dumps(without_nan(value), indent=1, allow_nan=False)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text + "\n")
