"""Level write-test: a right function that no test covers; a check must be added that holds and catches mutants."""

from __future__ import annotations

import random

from etude.tasks.generate.exercises.drawing import Drawing
from etude.tasks.generate.exercises.level import Level, compose
from etude.tasks.generate.exercises.mutation import Mutation
from etude.tasks.generate.exercises.repository import CHECK_PATH, ExerciseFunction
from etude.tasks.task import Task

MUTANTS = 4
# A check on a characteristic input catches most mutants, one on an empty list few; careful tests reach half.
KILL = 2


def build(task_id: str, drawing: Drawing) -> Task:
    first, second = drawing.modules[:2]
    target = drawing.target(first)
    drawing.company(first)
    drawing.bystander(second)
    drawing.shuffle()
    target.visible = ()
    mutants = draw_mutants(target, drawing.rng)
    line = best_check(target, mutants).rstrip("\n")
    files = drawing.repository.files()
    return compose(
        task_id,
        drawing,
        level=LEVEL,
        names=[target.name],
        targets=[target],
        grader="write-test",
        hidden={
            "parts": [{"name": target.name, "path": CHECK_PATH, "look": target.path, "old": "", "new": line}],
            "path": CHECK_PATH,
            "module": target.module,
            "function": target.name,
            "reference": target.text(fixed=True),
            "mutants": [target.instance.source(target.instance.apply_mutation(m), target.names) for m in mutants],
            "kill": KILL,
        },
        solution={**files, CHECK_PATH: files[CHECK_PATH] + line + "\n"},
        editable=[CHECK_PATH],
    )


def draw_mutants(target: ExerciseFunction, rng: random.Random) -> list[Mutation]:
    """Different mutants of which one input catches at least KILL; a few draws find them."""
    while True:
        drawn = list({target.instance.draw_bug(rng): None for _ in range(MUTANTS * 3)})[:MUTANTS]
        if len(drawn) == MUTANTS and max(_caught(target, drawn)) >= KILL:
            return drawn


def best_check(target: ExerciseFunction, mutants: list[Mutation]) -> str:
    """The shortest check line among those that catch the most."""
    caught = _caught(target, mutants)
    best = [number for number, count in enumerate(caught) if count == max(caught)]
    return min((target.check_line(number) for number in best), key=len)


def _caught(target: ExerciseFunction, mutants: list[Mutation]) -> list[int]:
    """For each input, how many of the mutants it tells apart."""
    revealing = [target.instance.revealing_inputs(mutant) for mutant in mutants]
    return [sum(number in seen for seen in revealing) for number in range(len(target.instance.inputs))]


LEVEL = Level(
    "write-test",
    "tests",
    build,
    words="test {}",
    sentence="Add a test of the function {} to check.py.",
)
