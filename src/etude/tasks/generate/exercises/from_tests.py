"""Level from-tests: one function is wrong and the request does not say which; the tests do."""

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
        targets=[target],
        grader="outputs",
        hidden={"parts": [part(target, drawing.repair(target))]},
    )


LEVEL = Level(
    "from-tests",
    "debugging",
    build,
    words="tests fail",
    sentence="The tests fail. Find the bug and fix it.",
)
