"""A folder as training and benches draw from it: by split and category, and never a project for both."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.rl.schedule import task_list
from etude.rl.settings import RlSettings
from etude.tasks.errors import TaskError
from etude.tasks.store.folder import TaskFolder
from etude.tasks.store.opened import open_tasks
from etude.tasks.store.source import FolderTaskSource, require_apart
from etude.tasks.task import SPLITS, Task
from etude.tasks.task_row import TaskRow

KINDS = {"bug-injection": "debugging", "log-debugging": "debugging", "page": "documentation"}


class Rows:
    """A folder by its index alone."""

    def __init__(self, rows: list[TaskRow]) -> None:
        self.name, self.rows = "made", {row.id: row for row in rows}

    def ids(self, split=None, *, level=None):
        return [r.id for r in self.rows.values() if split in (None, r.split) and level in (None, r.level)]

    def task(self, task_id: str) -> Task:
        raise AssertionError("a draw reads no record")


def rows(counts: dict[str, int], split: str = "train", project: str = "click-8.1.7") -> list[TaskRow]:
    return [
        TaskRow(f"{level}/{split}/{n}", KINDS[level], level, split, project=project)
        for level, count in counts.items()
        for n in range(count)
    ]


COUNTS = st.fixed_dictionaries(dict.fromkeys(KINDS, st.integers(1, 40)))


@given(COUNTS, st.floats(0.05, 1), st.floats(0.05, 1))
def test_categories_are_drawn_by_their_weights_and_tasks_of_one_are_alike(
    counts: dict[str, int], debugging: float, documentation: float
) -> None:
    weights = {"debugging": debugging, "documentation": documentation}
    levels = FolderTaskSource(Rows(rows(counts)), weights).levels("train")
    assert sum(levels.values()) == pytest.approx(1)
    own = levels["bug-injection"] + levels["log-debugging"]
    assert own == pytest.approx(debugging / (debugging + documentation))
    assert levels["bug-injection"] / counts["bug-injection"] == pytest.approx(
        levels["log-debugging"] / counts["log-debugging"]
    )


@given(COUNTS)
def test_without_weights_every_task_is_alike(counts: dict[str, int]) -> None:
    assert FolderTaskSource(Rows(rows(counts))).levels("train") == counts


def test_a_schedule_takes_the_shares_of_the_mix_without_reading_a_record() -> None:
    source = FolderTaskSource(Rows(rows(dict.fromkeys(KINDS, 40))), {"debugging": 1.0, "documentation": 3.0})
    settings = RlSettings(steps=4, groups_per_step=10, levels=source.levels("train"))
    drawn = Counter(task.split("/")[0] for task in task_list(settings, source).task_ids)
    assert drawn == {"bug-injection": 5, "log-debugging": 5, "page": 30}


@pytest.mark.parametrize("other", ["click-8.1.7", "click-8.0.0", "Click-9"])
def test_a_project_that_is_trained_on_is_not_measured_by_whatever_its_release(other: str) -> None:
    mixed = [*rows({"page": 2}), *rows({"page": 2}, "heldout", other)]
    with pytest.raises(TaskError, match="the project click has tasks to be trained on and measured by .*remove those"):
        FolderTaskSource(Rows(mixed))
    require_apart([*rows({"page": 2}), *rows({"page": 2}, "heldout", "parso-0.8.4")], "made")


def test_a_split_without_tasks_says_what_there_is_and_what_to_do() -> None:
    with pytest.raises(TaskError, match=r"no heldout task \(there are 3 train\).*--heldout"):
        FolderTaskSource(Rows(rows({"page": 3}))).levels("heldout")


def test_a_record_that_claims_another_split_than_its_row_is_no_task(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path, make=True)
    for split in SPLITS:
        folder.add(Task(f"t-{split}", "debugging", "made", "mend it", {"a.py": ""}, (), "commands", split=split))
    source = FolderTaskSource(open_tasks(tmp_path))
    assert [source.task(source.ids(split)[0]).split for split in SPLITS] == list(SPLITS)
    (place,) = [file for file in (tmp_path / "records").iterdir() if "heldout" in file.name]
    place.write_text(json.dumps({**json.loads(place.read_text()), "split": "train"}))
    with pytest.raises(TaskError, match="is of the split train, its row says heldout"):
        source.task("t-heldout")
