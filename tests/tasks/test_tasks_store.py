"""A folder of tasks: nothing is lost on the way, nothing half-made counts, and what was changed by hand is noticed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.environment.environment import Environment
from etude.tasks.errors import TaskError
from etude.tasks.store.folder import INDEX, TaskFolder, record_of, task_of
from etude.tasks.task import Task

TREE = {"src/a.py": "a = 1\n", "src/b.py": "b = 2\n", "README": "read\n"}


@dataclass(frozen=True)
class _Project:
    environment: Environment = Environment("calc", "1.0")
    files: Mapping[str, str] = field(default_factory=lambda: TREE)
    origin: str = "sdist calc 1.0"
    licence: str = "MIT"


def _task(task_id: str = "bug/calc/1", **metadata: Any) -> Task:
    files = {"src/a.py": "a = 0\n", "src/b.py": TREE["src/b.py"]}
    return Task(
        task_id, "debugging", "one", "a is 0, it should be 1", files, ("pytest",), "commands",
        hidden={"fail_to_pass": ["t"]}, solution={"src/a.py": TREE["src/a.py"]},
        metadata={"environment": Environment("calc", "1.0").to_record(), "project": "calc-1.0", "generator": "bugs", **metadata},
    )  # fmt: skip


def test_a_task_comes_back_as_it_was_and_only_its_changes_are_kept(tmp_path: Path) -> None:
    TaskFolder(tmp_path, make=True).add(_task(), _Project())
    found = TaskFolder(tmp_path)
    assert found.task("bug/calc/1") == _task()
    (record,) = (tmp_path / "records").glob("*.json")
    recorded = json.loads(record.read_text())
    assert recorded["changed"] == {"src/a.py": "a = 0\n"} and recorded["removed"] == ["README"]
    assert found.verify() == {}


PATHS = st.text("abc/.", min_size=1, max_size=6)
TREES = st.dictionaries(PATHS, st.text(max_size=8), max_size=5)


@given(TREES, TREES)
def test_any_files_over_any_tree_are_kept_without_loss(tree: dict[str, str], files: dict[str, str]) -> None:
    task = Task("t", "debugging", "l", "do", files, (), "commands")
    assert task_of(json.loads(json.dumps(record_of(task, tree))), tree) == task


def test_a_kill_between_record_and_row_or_within_the_row_loses_that_task_alone(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path, make=True)
    folder.add(_task("one"), _Project())
    folder.add(_task("two"), _Project())
    index = tmp_path / INDEX
    index.write_bytes(index.read_bytes()[:-20])
    again = TaskFolder(tmp_path, make=True)
    assert again.ids() == ["one"]
    again.add(_task("two"), _Project())
    assert TaskFolder(tmp_path).ids() == ["one", "two"] and again.verify() == {}


def test_what_was_changed_by_hand_is_named(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path, make=True)
    for name in ("one", "two"):
        folder.add(_task(name), _Project())
    record = tmp_path / "records" / "two.json"
    record.write_text(record.read_text().replace("it should be 1", "never mind"))
    assert list(TaskFolder(tmp_path).verify()) == ["two"]
    record.unlink()
    with pytest.raises(TaskError, match=r"two\.json can't be read"):
        TaskFolder(tmp_path).task("two")


def test_a_project_with_another_tree_under_the_same_name_is_refused(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path, make=True)
    folder.add(_task("one"), _Project())
    with pytest.raises(TaskError, match="another tree"):
        folder.add(_task("two"), _Project(files={"src/a.py": "other"}))
    assert TaskFolder(tmp_path).ids() == ["one"]


def test_rows_tell_what_lists_need_and_a_removed_task_is_gone(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path, make=True)
    row = folder.add(
        _task("one", prompts={"terse": "a?", "full": "a is 0"}, style="full", changed={"lines": 2, "files": 1}),
        _Project(),
    )
    assert (row.prompts, row.lines, row.files, row.project) == ({"terse": 2, "full": 6}, 2, 1, "calc-1.0")
    assert folder.ids("train") == ["one"] and folder.ids("heldout") == []
    folder.remove("one")
    assert TaskFolder(tmp_path).ids() == []
    with pytest.raises(TaskError, match="opened to be read"):
        TaskFolder(tmp_path).add(_task("one"), _Project())


def test_a_reader_next_to_a_making_leaves_a_half_written_row_to_its_writer(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path, make=True)
    folder.add(_task("one"), _Project())
    folder.add(_task("two"), _Project())
    index = tmp_path / INDEX
    whole = index.read_bytes()
    index.write_bytes(whole[:-20])
    assert TaskFolder(tmp_path).ids() == ["one"]
    with open(index, "ab") as writer:
        writer.write(whole[-20:])
    assert TaskFolder(tmp_path).ids() == ["one", "two"]


def test_a_folder_that_is_none_and_ids_that_name_no_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no folder of tasks"):
        TaskFolder(tmp_path / "nowhere")
    with pytest.raises(TaskError, match="can't be called"):
        TaskFolder(tmp_path, make=True).add(_task("../up"), _Project())


def test_two_ids_that_would_share_a_file_are_refused(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path, make=True)
    folder.add(_task("bug/calc"), _Project())
    with pytest.raises(TaskError, match="one file"):
        folder.add(_task("bug-calc"), _Project())
    assert folder.task("bug/calc").id == "bug/calc"
