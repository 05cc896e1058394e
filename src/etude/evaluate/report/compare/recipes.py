"""How the settings of two runs differ: keys of recipe, conditions and versions whose values differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.core import bounded_toml
from etude.core.events.finite import read_file
from etude.evaluate.report.rows.lines import flat

ABSENT = "not set"
SOURCES = ("recipe", "conditions", "machine")


def recipe_rows(run: Path) -> dict[str, dict[str, Any]]:
    """By source, the flat keys of the run's settings and of where it ran."""
    recipe = run / "recipe.toml"
    return {
        "recipe": flat(bounded_toml.loads(recipe.read_text())) if recipe.is_file() else {},
        "conditions": flat(_json(run / "conditions.json")),
        "machine": flat(_json(run / "machine.json")),
    }


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Keys that differ, in order: key, a, b. A key that one side lacks is marked as missing."""
    keys = dict.fromkeys([*a, *b])
    rows = [{"key": key, "a": a.get(key, ABSENT), "b": b.get(key, ABSENT)} for key in keys]
    return [row for row in rows if row["a"] != row["b"] or type(row["a"]) is not type(row["b"])]


def all_differences(a: Path, b: Path) -> dict[str, list[dict[str, Any]]]:
    """By source; one that is equal on both sides is left out."""
    ours, theirs = recipe_rows(a), recipe_rows(b)
    found = {source: differences(ours[source], theirs[source]) for source in SOURCES}
    return {source: rows for source, rows in found.items() if rows}


def _json(path: Path) -> dict[str, Any]:
    return read_file(path) if path.is_file() else {}
