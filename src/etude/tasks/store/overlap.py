"""How much of what measures was trained on: by projects and modules, and by the code of the references.

A figure for each split that measures: of the 13-grams of its tasks' references (FracMinHash, as in `tasks.splits`), those that are also
among the references of training tasks. The files of a project that is split by module are in every task of it and are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from etude.tasks.splits import Marks, marks_of
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import SPLITS, Task


def overlap(folder: TaskFolder) -> dict[str, Any]:
    """By split: tasks, projects, modules (0 where whole projects are split) and, but for training, `shared_projects` and
    `reference_overlap` in [0, 1], null where there is too little code to compare."""
    found: dict[str, Any] = {}
    trained = [row for row in folder.rows.values() if row.split == "train"]
    known = _references(folder.task(row.id) for row in trained)
    projects = {row.project for row in trained}
    for split in SPLITS:
        rows = [row for row in folder.rows.values() if row.split == split]
        own = {row.project for row in rows if row.project}
        found[split] = {
            "tasks": len(rows),
            "projects": len(own),
            "modules": len({(row.project, row.part) for row in rows if row.part}),
        }
        if split != "train":
            marks = _references(folder.task(row.id) for row in rows)
            share = round(len(marks & known) / len(marks), 4) if marks else None
            found[split] |= {"shared_projects": len(own & projects), "reference_overlap": share}
    return found


def statement(document: dict[str, Any]) -> str:
    """For people: a line for each split that measures."""
    lines = []
    for split, row in document.items():
        if split == "train" or not row["tasks"]:
            continue
        modules = f" and {row['modules']} modules" if row["modules"] else ""
        share = row["reference_overlap"]
        share_text = (
            "too little code to compare" if share is None else f"{share:.1%} of their references' code is trained on"
        )
        lines.append(
            f"{split}: {row['tasks']} tasks of {row['projects']} projects{modules}, {row['shared_projects']} projects shared with "
            f"training; {share_text}"
        )
    return "\n".join(lines)


def _references(tasks: Iterable[Task]) -> Marks:
    """Of changed lines alone: a reference holds whole files, and most of each is the project's."""
    found: set[int] = set()
    for task in tasks:
        before = {line.strip() for path in task.solution for line in task.files.get(path, "").splitlines()}
        changed = {
            path: "\n".join(line for line in text.splitlines() if line.strip() not in before)
            for path, text in task.solution.items()
        }
        found |= marks_of(changed)
    return frozenset(found)
