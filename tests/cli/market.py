"""What the tests of `etude bench run` share: the exercises of the ci recipe, a price, and the reading of a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from etude.evaluate.bench.suite import choose_tasks
from etude.pipeline.recipe.read import find_recipe, read_recipe
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.task import Task

TASKS = 8  # one of each level
PRICES = """
[[prices]]
model = "*"
from = 2026-01-01
input = 10.0
cache_read = 1.0
cache_write = 10.0
output = 20.0
"""
TURN = (600 * 10 + 400 * 1 + 100 * 20) / 1e6  # what a turn of the lab costs


def exercises() -> list[Task]:
    recipe = read_recipe([find_recipe("ci")])
    weights = {str(level): weight for level, weight in recipe.exercises.levels.items()}
    return choose_tasks(ExerciseSource(recipe.exercises), weights, TASKS, recipe.bench.seed)


def prices(folder: Path) -> str:
    path = folder / "prices.toml"
    path.write_text(PRICES)
    return str(path)


def report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text())


def row(found: dict[str, Any], key: str) -> dict[str, Any]:
    (entry,) = [entry for entry in found["policies"] if entry["key"] == key]
    return entry
