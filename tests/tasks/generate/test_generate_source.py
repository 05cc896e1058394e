"""Tasks are made lazily and purely, from a closed vocabulary, fast enough to be made when asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from etude.tasks.generate.exercises.source import LEVELS, ExerciseSource
from etude.tasks.generate.exercises.words import FUNCTIONS, MODULES, VARIABLES
from etude.tasks.generate.settings import ExerciseSettings

DIGEST = """
import hashlib, json
from dataclasses import asdict
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
source = ExerciseSource(ExerciseSettings())
rows = [asdict(source.task(i)) for split in ("heldout", "validation", "train") for i in source.ids(split)[40:80]]
print(hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest())
"""


def test_the_same_id_gives_the_same_task_in_every_process() -> None:
    digests = {
        subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True).stdout
        for _ in range(2)  # another process has another hash seed
    }
    assert len(digests) == 1


@pytest.mark.parametrize("level", LEVELS)
def test_a_task_does_not_depend_on_the_tasks_made_before_it(source: ExerciseSource, level: str) -> None:
    ids = source.ids("train", level=level)
    alone = ExerciseSource(source.settings).task(ids[7])
    for number in range(7):
        source.task(ids[number])
    assert source.task(ids[7]) == alone


def test_another_seed_gives_other_tasks(source: ExerciseSource) -> None:
    other = ExerciseSource(ExerciseSettings(seed=1))
    task_id = source.ids("train", level="one-bug")[0]
    assert source.task(task_id).files != other.task(task_id).files


def test_ids_are_lazy_and_the_mix_follows_the_weights() -> None:
    source = ExerciseSource(ExerciseSettings(levels={"one-bug": 3, "rename": 1, "feature": 0}))
    ids = source.ids("train")
    assert len(ids) == 1_000_000
    counts = Counter(task_id.split("/")[0] for task_id in ids[:4000])
    assert set(counts) == {"one-bug", "rename"}
    assert counts["one-bug"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert ids[-1] == ids[len(ids) - 1]
    assert len(set(ids[:4000])) == 4000
    with pytest.raises(IndexError):
        ids[len(ids)]


def test_membership_makes_no_other_id(source: ExerciseSource) -> None:
    small = ExerciseSource(source.settings.model_copy(update={"train_tasks": 50})).ids("train")
    assert all(task_id in small for task_id in small)
    others = [small[3].replace("000003", number) for number in ("000050", "3", "-00003", "x", "9" * 5000, "")]
    others += [f"absent/{small[3].partition('/')[2]}", small[3].replace("train", "heldout"), "", 3, None]
    assert [name for name in others if name in small] == []


@pytest.mark.parametrize("task_id", ["one-bug/test/000001", "no-level/train/000001", "one-bug/train/x", "one-bug", ""])
def test_a_foreign_id_is_refused_with_the_shape_of_ours(source: ExerciseSource, task_id: str) -> None:
    with pytest.raises(KeyError, match="LEVEL/train"):
        source.task(task_id)


def test_an_unknown_level_is_refused_with_the_known_ones(source: ExerciseSource) -> None:
    with pytest.raises(ValueError, match="relapse"):
        source.ids("train", level="nine-bugs")


def test_levels_cover_five_categories_of_the_report() -> None:
    categories = {level.category for level in LEVELS.values()}
    assert {"debugging", "features", "refactors", "documentation", "tests"} <= categories
    assert set(LEVELS) == set(ExerciseSettings().levels)


@pytest.mark.parametrize("level", LEVELS)
def test_a_task_has_two_or_more_short_files_and_a_terse_request(source: ExerciseSource, level: str) -> None:
    for task_id in source.ids("train", level=level)[:30]:
        task = source.task(task_id)
        assert len([path for path in task.files if path != "check.py"]) >= 2
        assert all(len(text.splitlines()) <= 24 for path, text in task.files.items() if path != "check.py")
        assert len(task.instruction.split()) <= 4
        assert task.category == LEVELS[level].category


def test_every_word_of_the_exercises_comes_from_a_closed_vocabulary(source: ExerciseSource) -> None:
    words: set[str] = set()
    for task_id in source.ids("train")[:400]:
        task = source.task(task_id)
        shown = [task.instruction, *(text for path, text in task.files.items() if path != "check.py")]
        words |= set(re.findall(r"[A-Za-z_]+", "\n".join(shown)))
    print(f"{len(words)} distinct words in 400 tasks")
    assert len(words) < 230
    assert not any("_" in word for word in words)


def test_no_function_name_is_part_of_another_word() -> None:
    """A search for a fixed string must find the function and nothing else."""
    words = [*FUNCTIONS, *MODULES, *(word for words in VARIABLES.values() for word in words)]
    clashes = [(name, word) for name in FUNCTIONS for word in words if name != word and name in word]
    assert not clashes
    assert len(set(FUNCTIONS) & {word for words in VARIABLES.values() for word in words}) == 0
    assert not set(MODULES) & sys.stdlib_module_names
