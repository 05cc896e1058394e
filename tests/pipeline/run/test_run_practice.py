"""What a run trains on and is measured by, where its recipe names a folder of tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.harder_tasks import MADE, harder_for
from etude.pipeline.run.practice import exam, folder_of, practice
from etude.rl.schedule import task_list
from etude.tasks.errors import TaskError
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Split, Task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = TaskFolder(tmp_path / "tasks", make=True)
    splits: dict[Split, tuple[str, int]] = {"train": ("a", 12), "validation": ("b", 3), "heldout": ("c", 5)}
    for split, (project, count) in splits.items():
        for number in range(count):
            level, category = (("page", "documentation"), ("bug-injection", "debugging"))[number % 2]
            result = {"project": f"{project}-1.0"}
            made.add(
                Task(f"{split}/{number}", category, level, "do it", {}, (), "commands", split=split, metadata=result)
            )
    return made.root


def recipe(folder: Path, *more: str):
    return read_recipe([], [f'tasks.folder="{folder}"', "rl.steps=3", "rl.groups_per_step=2", *more])


@pytest.mark.parametrize("split", ["validation", "heldout"])
def test_rl_draws_training_tasks_alone_and_the_bench_none_of_them(folder: Path, split: str) -> None:
    found = recipe(folder, f'bench.split="{split}"')
    drawn = practice(found)
    ids = task_list(drawn.settings, drawn.source).task_ids
    assert len(set(ids)) == 6 and all(one.startswith("train/") for one in ids)
    asked = exam(found)
    assert asked.tasks and {task.split for task in asked.tasks} == {split}
    assert asked.folder is not None and "none of which is among the 1 projects" in asked.folder.apart(found.bench.split)


def test_the_mix_decides_how_often_a_category_is_drawn(folder: Path, tmp_path: Path) -> None:
    mix = tmp_path / "mix.toml"
    mix.write_text(
        'format = "etude-task-mix"\nversion = 1\n[categories.debugging]\nweight = 1.0\n[categories.documentation]\nweight = 0.0\n'
    )
    drawn = practice(recipe(folder, f'tasks.mix="{mix}"'))
    ids = task_list(drawn.settings, drawn.source).task_ids
    assert {drawn.source.task(one).category for one in ids} == {"debugging"}


def test_what_can_not_be_is_said_with_the_key_and_the_remedy(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="tasks.folder = .*nowhere.*there is no such folder"):
        folder_of(recipe(tmp_path / "nowhere"))
    with pytest.raises(TaskError, match="holds 12 training tasks, .* rl.steps = 9 .* takes 18: lower one of them"):
        practice(recipe(folder, "rl.steps=9"))
    with pytest.raises(TaskError, match="tasks.mix = 'x.toml' weighs the tasks of a folder"):
        folder_of(read_recipe([], ['tasks.mix="x.toml"']))
    with pytest.raises(TaskError, match="tasks.mix = .*is not a mix .*etude tasks mix"):
        folder_of(recipe(folder, 'tasks.mix="x.toml"'))


def test_without_a_folder_rl_draws_the_front_half_of_the_exercises() -> None:
    drawn = practice(read_recipe([], ["exercises.train_tasks=100"]))
    assert drawn.source.name == "exercises" and len(drawn.source.ids("train")) == 50


def test_harder_tasks_are_of_the_training_split_and_made_only_where_they_are_asked_for(
    folder: Path, tmp_path: Path
) -> None:
    drawn = practice(recipe(folder))
    plain = harder_for(recipe(folder), drawn.source, tmp_path)
    assert plain.source is drawn.source and plain.deepen is None and not (tmp_path / MADE).exists()
    asked = harder_for(recipe(folder, "rl.harder_above=0.8"), drawn.source, tmp_path)
    assert asked.deepen is not None and (tmp_path / MADE / "index.jsonl").is_file()
    assert asked.source.ids("train") == drawn.source.ids("train")
    with pytest.raises(KeyError):
        asked.siblings.template("heldout/0")
