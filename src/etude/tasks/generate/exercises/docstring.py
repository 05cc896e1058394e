"""Level docstring: the code is right and the comment over it is wrong."""

from __future__ import annotations

from etude.tasks.generate.exercises.drawing import Drawing
from etude.tasks.generate.exercises.instance import Instance, instance
from etude.tasks.generate.exercises.level import Level, compose, part
from etude.tasks.generate.exercises.template import Params
from etude.tasks.task import Task

# On integers `x > 4` is `x >= 5`: both comments are right, whichever the code uses.
SHIFTED = {">": (">=", 1), ">=": (">", -1), "<": ("<=", -1), "<=": ("<", 1)}


def build(task_id: str, drawing: Drawing) -> Task:
    first, second = drawing.modules[:2]
    target = drawing.target(first)
    drawing.company(first)
    drawing.bystander(second)
    drawing.shuffle()
    right = right_specs(target.instance)
    target.comment = drawing.rng.choice([spec for spec in neighbour_specs(target.instance) if spec not in right])
    return compose(
        task_id,
        drawing,
        level=LEVEL,
        names=[target.name],
        targets=[target],
        grader="docstring",
        hidden={
            "parts": [part(target, drawing.repository.edit(target, -1))],
            "path": target.path,
            "function": target.name,
            "specs": right,
        },
    )


def right_specs(chosen: Instance) -> list[str]:
    """The instance's own comment, and the same condition with the constant moved by one."""
    drawn = dict(chosen.params)
    specs = [chosen.spec]
    if "$cmp $k" in chosen.template.spec and drawn["op"] in SHIFTED:
        operator, step = SHIFTED[drawn["op"]]
        moved = {**drawn, "op": operator, "k": str(int(drawn["k"]) + step)}
        specs.append(chosen.template.instantiate(tuple(sorted(moved.items())))[0])
    return specs


def neighbour_specs(chosen: Instance) -> list[str]:
    """Comments of the same template with exactly one parameter changed."""
    return [
        instance(chosen.template.name, params).spec
        for params in chosen.template.params()
        if _differences(params, chosen.params) == 1
    ]


def _differences(left: Params, right: Params) -> int:
    return sum(a != b for a, b in zip(left, right, strict=True))


LEVEL = Level(
    "docstring",
    "documentation",
    build,
    words="comment {}",
    sentence="The comment above the function {} is wrong, and the code is right. Correct the comment.",
)
