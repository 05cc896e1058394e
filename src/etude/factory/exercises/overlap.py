"""How much of the held-out tasks was seen in training: stated as a figure, compared after renaming.

Bodies are compared by `template.body_hash`: names are canonical, comments gone, constants kept. A held-out template shares
no body with training at all; a function held out by hash shares none by the split's construction, but its template.
"""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass

from etude.factory.exercises.drawing import pools
from etude.factory.exercises.instance import instance
from etude.factory.exercises.source import ExerciseSource
from etude.factory.exercises.template import Params, body_hash
from etude.factory.settings import ExerciseSettings
from etude.tasks.task import Task


@dataclass(frozen=True)
class Overlap:
    """Counts of distinct bodies, and what share of each held-out pool occurs in training."""

    training_bodies: int
    function_bodies: int  # held out by hash, templates known
    template_bodies: int  # of templates that never occur in training
    function_overlap: float  # share of function_bodies that are training bodies
    template_overlap: float  # share of template_bodies that are training bodies

    def statement(self) -> str:
        """One sentence for the report."""
        return (
            f"{self.training_bodies} training bodies; held out: {self.function_bodies} by function "
            f"({100 * self.function_overlap:.1f}% also in training), {self.template_bodies} by template "
            f"({100 * self.template_overlap:.1f}% also in training), compared after renaming"
        )


def overlap(settings: ExerciseSettings) -> Overlap:
    """The figures for these settings, over the whole catalogue (not a sample)."""
    split = pools(settings.seed, settings.holdout_share)
    training, functions, templates = (
        _bodies(pool) for pool in (split.training, split.held_functions, split.held_templates)
    )
    return Overlap(
        len(training),
        len(functions),
        len(templates),
        len(functions & training) / max(1, len(functions)),
        len(templates & training) / max(1, len(templates)),
    )


def seen_share(source: ExerciseSource, tasks: list[Task]) -> float:
    """Share of tasks with a target body, as the reference has it, that training can show: the overlap of a sample."""
    split = pools(source.settings.seed, source.settings.holdout_share)
    training = _bodies(split.training)
    seen = sum(any(body in training for body in target_bodies(task)) for task in tasks)
    return seen / max(1, len(tasks))


def target_bodies(task: Task) -> set[str]:
    """Hashes of the target functions' reference bodies, read from the task's own files."""
    files = {**task.files, **task.solution}
    bodies: set[str] = set()
    for text in files.values():
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name in task.metadata["targets"]:
                bodies.add(body_hash(ast.unparse(node)))
    return bodies


def _bodies(pool: dict[str, list[Params]]) -> set[str]:
    pairs = itertools.chain.from_iterable(((name, params) for params in fillings) for name, fillings in pool.items())
    return {instance(name, params).body for name, params in pairs}
