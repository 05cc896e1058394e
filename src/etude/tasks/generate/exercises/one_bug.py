"""Level one-bug: one function of a two-file repository is wrong and the request names it."""

from __future__ import annotations

from etude.tasks.generate.exercises.drawing import Drawing
from etude.tasks.generate.exercises.level import Level, compose, part
from etude.tasks.task import Task


def build(task_id: str, drawing: Drawing) -> Task:
    first, second = drawing.modules[:2]
    target = drawing.target(first)
    drawing.company(first)
    drawing.bystander(second)
    drawing.company(second)
    drawing.shuffle()
    drawing.break_it(target)
    return compose(
        task_id,
        drawing,
        level=LEVEL,
        names=[target.name],
        targets=[target],
        grader="outputs",
        hidden={"parts": [part(target, drawing.repair(target))]},
    )


LEVEL = Level(
    "one-bug",
    "debugging",
    build,
    words="fix {}",
    sentence="The function {} does not do what the comment above it says. Find the bug and fix it.",
)
