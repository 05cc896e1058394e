"""What Etude trains on and is measured by lies in a folder like any other: one verb writes it, the others read it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from etude.cli.tasks.own import own_exercises, own_real
from etude.cli.tasks.source import exercises
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.practice import exam, practice
from etude.rl.schedule import task_list
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.cheats.exercise import nop
from etude.tasks.checking.check import check_folder
from etude.tasks.real.source import RealPackages
from etude.tasks.registry import grade
from etude.tasks.running.pin import PackagesUnavailable, default_cache
from etude.tasks.solved import reference_files
from etude.tasks.store.folder import TaskFolder


def test_the_exercises_of_a_recipe_are_a_folder_that_training_and_bench_read(tmp_path: Path) -> None:
    asked = {"train": 12, "validation": 3, "heldout": 40, "recipe": "laptop"}
    assert own_exercises(tmp_path, **asked).document["written"] == 55
    assert own_exercises(tmp_path, **asked).document["written"] == 0
    folder, source = TaskFolder(tmp_path), exercises("laptop", None)
    assert Counter(row.split for row in folder.rows.values()) == {"train": 12, "validation": 3, "heldout": 40}
    one = folder.ids("train")[0]
    made, kept = source.task(one), folder.task(one)
    assert (kept.files, kept.hidden, kept.solution) == (made.files, made.hidden, made.solution)
    assert kept.metadata["changed"]["lines"] > 0 and made.metadata.items() <= kept.metadata.items()
    recipe = read_recipe([], [f'tasks.folder="{tmp_path}"', "rl.steps=3", "rl.groups_per_step=4", "bench.tasks=12"])
    drawn = practice(recipe)
    assert set(task_list(drawn.settings, drawn.source).task_ids) == set(source.ids("train")[:12])
    assert {task.split for task in exam(recipe).tasks} == {"heldout"}


async def test_they_are_sound_by_the_check_that_every_folder_has(tmp_path: Path) -> None:
    own_exercises(tmp_path, train=3, validation=0, heldout=0, recipe="laptop")
    pool = await open_pool(SandboxSettings())
    try:
        rows = await check_folder(tmp_path, pool)
    finally:
        await pool.close()
    assert len(rows) == 3 and all(row.good for row in rows)


@pytest.mark.nightly
async def test_a_bug_in_a_real_package_is_graded_from_its_folder(tmp_path: Path) -> None:
    source = RealPackages(default_cache())
    try:
        source.task(source.ids("heldout")[0])
    except PackagesUnavailable as error:
        pytest.skip(f"the pinned releases: {error}")
    own_real(tmp_path, count=1)
    folder = TaskFolder(tmp_path)
    task = folder.task(folder.ids("heldout")[0])
    pool = await open_pool(SandboxSettings())
    try:
        assert [(await grade(task, files, pool)).score for files in (reference_files(task), nop(task))] == [1.0, 0.0]
    finally:
        await pool.close()
