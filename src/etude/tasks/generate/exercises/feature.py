"""Level feature: a function is only described, by a comment over an empty body."""

from __future__ import annotations

from etude.tasks.generate.exercises.drawing import Drawing
from etude.tasks.generate.exercises.level import Level, compose
from etude.tasks.task import Task


def build(task_id: str, drawing: Drawing) -> Task:
    first, second = drawing.modules[:2]
    target = drawing.target(first)
    drawing.company(first)
    drawing.bystander(second)
    drawing.shuffle()
    lines = target.text(fixed=True).splitlines()[2:]
    target.stub = True
    drawing.show(target, 2)
    edit = {"path": target.path, "old": "pass", "new": "\n".join(lines).lstrip()}
    return compose(
        task_id,
        drawing,
        level=LEVEL,
        names=[target.name],
        targets=[target],
        grader="outputs",
        hidden={"parts": [{"name": target.name, **edit}]},
    )


LEVEL = Level(
    "feature",
    "features",
    build,
    words="write {}",
    sentence="Write the body of the function {}, which does what the comment above it says.",
)
