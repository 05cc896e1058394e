"""The recipe of a snapshot is found again by the snapshot's name, and by nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from etude.pipeline.run.task_exporting import recipe_of
from etude.tasks.environment.environment import TestPlan
from etude.tasks.generate.install.recipe import InstallRecipe


def test_a_snapshots_recipe_is_the_one_that_made_it(tmp_path: Path):
    first = InstallRecipe("a", "1", "python", "0" * 64, ("true",), TestPlan())
    for number, recipe in enumerate((first, replace(first, version="2"))):
        place = tmp_path / "environments" / f"sdist-a-{number}"
        place.mkdir(parents=True)
        (place / "recipe.toml").write_text(recipe.to_toml())
    assert recipe_of(first.snapshot, tmp_path) == first
    assert recipe_of(replace(first, version="3").snapshot, tmp_path) is None
    assert recipe_of("another", tmp_path) is None and recipe_of(first.snapshot, tmp_path / "none") is None
