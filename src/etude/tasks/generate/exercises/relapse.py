"""Level relapse, the discovery level: a second bug that the tests show only after the first is mended.

The request is that of from-tests. The winning move, to edit again after a test failed behind an edit, occurs in no
demonstration of any level; reinforcement learning can find it, imitation can't.
"""

from __future__ import annotations

from etude.tasks.generate.exercises.drawing import Drawing
from etude.tasks.generate.exercises.level import Level, compose, part
from etude.tasks.task import Task


def build(task_id: str, drawing: Drawing) -> Task:
    for module in drawing.modules[:2]:
        drawing.target(module)
    drawing.shuffle()
    targets = list(drawing.repository.functions)  # in the order in which check.py meets them
    for target in targets:
        drawing.break_it(target)
    return compose(
        task_id,
        drawing,
        level=LEVEL,
        targets=targets,
        grader="outputs",
        hidden={"parts": [part(target, drawing.repair(target)) for target in targets]},
    )


LEVEL = Level(
    "relapse",
    "debugging",
    build,
    words="tests fail",
    sentence="The tests fail. Find the reason and fix it.",
    winnable=False,
)
