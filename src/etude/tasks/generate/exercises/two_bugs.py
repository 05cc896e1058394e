"""Level two-bugs: two functions in two files are wrong and the request names both."""

from __future__ import annotations

from etude.tasks.generate.exercises.drawing import Drawing
from etude.tasks.generate.exercises.level import Level, compose, part
from etude.tasks.task import Task


def build(task_id: str, drawing: Drawing) -> Task:
    targets = [drawing.target(module) for module in drawing.modules[:2]]
    drawing.company(drawing.modules[0])
    drawing.shuffle()
    drawing.rng.shuffle(targets)
    for target in targets:
        drawing.break_it(target)
    return compose(
        task_id,
        drawing,
        level=LEVEL,
        names=[function.name for function in targets],
        targets=targets,
        grader="outputs",
        hidden={"parts": [part(target, drawing.repair(target)) for target in targets]},
    )


LEVEL = Level(
    "two-bugs",
    "debugging",
    build,
    words="fix {} and {}",
    sentence="The functions {} and {} do not do what the comments above them say. Find both bugs and fix them.",
)
