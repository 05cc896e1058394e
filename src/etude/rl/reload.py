"""Processes replaced while a run goes on: for code that was changed, or with other settings of the engine. `etude reload` asks for it.

`reload.json` is the request, there until it is answered; `reloads.jsonl` keeps the answers, and what they changed holds for every later
start of the run. Engines are replaced one after the other: turns in flight end first, new ones go to the others. One that does not come up
with the new settings is begun again with the old ones, and the rest stay. The trainer is replaced after the step that it is at, with a
checkpoint.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from etude.learn.engine.settings import EngineSettings
from etude.rl.settings import RlSettings

REQUEST, ANSWERS = "reload.json", "reloads.jsonl"


class Reload(BaseModel):
    """What is asked for."""

    model_config = ConfigDict(extra="forbid")

    id: str
    engines: bool = True
    trainer: bool = True
    settings: dict[str, Any] = Field(default_factory=dict)  # of the engine, by name


class ReloadResult(Reload):
    """What came of it."""

    seconds: float
    error: str = ""  # then `settings` are not in force


class ReloadRefused(Exception):
    """What is asked for can't be."""


def ask(folder: Path, reload: Reload) -> None:
    """Raises ReloadRefused while an earlier request has no answer."""
    path = folder / REQUEST
    draft = path.with_suffix(f".{reload.id}")
    draft.write_text(reload.model_dump_json())
    try:
        os.link(draft, path)
    except FileExistsError:
        raise ReloadRefused(
            f"{path} waits for its answer already; wait for that (it is in {ANSWERS} then), or remove the file"
        ) from None
    finally:
        draft.unlink()


def answers(folder: Path) -> list[ReloadResult]:
    """In order; a line torn by a kill has its request still there."""
    path = folder / ANSWERS
    lines = path.read_text().splitlines() if path.exists() else []
    return [ReloadResult.model_validate_json(line) for line in lines if line.endswith("}")]


def in_force(folder: Path, engine: EngineSettings) -> EngineSettings:
    """The recipe's settings with what reloads of this run have changed."""
    changes: dict[str, Any] = {}
    for answer in answers(folder):
        changes |= {} if answer.error else answer.settings
    return changed_settings(engine, changes)


def fitted_to(rl: RlSettings, engine: EngineSettings) -> EngineSettings:
    """As the run's processes take it: a slot for each rollout at least, and the threads of the rl section."""
    threads = rl.engine_threads or rl.threads
    return engine.model_copy(update={"max_slots": max(engine.max_slots, rl.slots), "threads": threads})


def changed_settings(engine: EngineSettings, settings: dict[str, Any]) -> EngineSettings:
    """Raises ValidationError."""
    return EngineSettings.model_validate(engine.model_dump() | settings)
