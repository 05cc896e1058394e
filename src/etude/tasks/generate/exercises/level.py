"""What a level is: a name, a category of the report, and a function that composes a task from a Drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterable

from etude.tasks.generate.exercises.drawing import Drawing
from etude.tasks.generate.exercises.repository import CHECK_COMMAND, CHECK_PATH, ExerciseFunction, Repository
from etude.tasks.generate.settings import LevelName
from etude.tasks.task import Task


@dataclass(frozen=True)
class Level:
    """`build` makes the task of an id from its Drawing. `words` and `sentence` are the two wordings of the request, with a place for each name.
    `winnable`: whether a competent demonstration wins."""

    name: LevelName
    category: str
    build: Callable[[str, Drawing], Task]
    words: str
    sentence: str
    winnable: bool = True


def part(function: ExerciseFunction, edit: dict[str, str]) -> dict[str, str]:
    """One piece of work as the expert sees it: which function, and the exact edit."""
    return {"name": function.name, **edit}


def compose(
    task_id: str,
    drawing: Drawing,
    *,
    level: Level,
    names: Iterable[str] = (),
    targets: Iterable[ExerciseFunction],
    grader: str,
    hidden: dict[str, Any],
    files: dict[str, str] | None = None,
    solution: dict[str, str] | None = None,
    editable: Iterable[str] | None = None,
    more_calls: Iterable[dict[str, Any]] = (),
) -> Task:
    """A task around the drawing's repository. `names` are those in the request. `hidden["calls"]` is added; defaults: all modules editable, fixed
    files."""
    repository: Repository = drawing.repository
    targets = list(targets)
    files = files or repository.files()
    reference = solution or repository.files(fixed=True)
    wording = level.sentence if drawing.settings.wording == "sentences" else level.words
    return Task(
        id=task_id,
        category=level.category,
        level=level.name,
        instruction=wording.format(*names),
        files=files,
        test_command=CHECK_COMMAND,
        grader=grader,
        hidden={"calls": [*repository.hidden_calls(targets), *more_calls], **hidden},
        solution={path: text for path, text in reference.items() if files.get(path) != text},
        split=drawing.split,
        metadata={
            "editable": sorted(editable or (path for path in files if path != CHECK_PATH)),
            "targets": [function.name for function in targets],
            "templates": [function.instance.template.name for function in targets],
            **({"holdout": drawing.holdout} if drawing.holdout else {}),
        },
    )
