"""How much of the held-out and validation tasks was seen in training: stated as a figure, compared after renaming.

Bodies are compared by `template.body_hash`: names are canonical, comments gone, constants kept. A template of these splits
shares no body with training at all; a function held out of a training template shares none, but its template.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from etude.core.bounded_python import parse_python
from etude.tasks.generate.exercises.drawing import Pool, Pools, pools
from etude.tasks.generate.exercises.instance import instance
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.exercises.template import body_hash
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.task import Split, Task


@dataclass(frozen=True)
class SplitOverlap:
    """Counts of a split's distinct bodies, and what share of each pool occurs in training."""

    function_bodies: int  # fillings of training templates
    template_bodies: int  # of templates that never occur in training
    function_overlap: float  # share of function_bodies that are training bodies
    template_overlap: float  # share of template_bodies that are training bodies

    def statement(self) -> str:
        return (
            f"{self.function_bodies} by function ({100 * self.function_overlap:.1f}% also in training) and "
            f"{self.template_bodies} by template ({100 * self.template_overlap:.1f}% also in training)"
        )


@dataclass(frozen=True)
class CatalogueOverlap:
    """The figures of the whole catalogue."""

    training_bodies: int
    heldout: SplitOverlap
    validation: SplitOverlap
    heldout_in_validation: float  # share of held-out bodies that validation has too

    def statement(self) -> str:
        """One sentence for the report."""
        return (
            f"{self.training_bodies} distinct function bodies in training; held out {self.heldout.statement()}; for "
            f"validation {self.validation.statement()}; {100 * self.heldout_in_validation:.1f}% of the held-out bodies "
            "are also in validation; all compared after renaming"
        )


def overlap(settings: ExerciseSettings) -> CatalogueOverlap:
    """The figures for these settings, over the whole catalogue (not a sample)."""
    found = pools(settings.seed, settings.holdout_share)
    validation, heldout = _unseen(found, "validation"), _unseen(found, "heldout")
    return CatalogueOverlap(
        len(_bodies(found.training)),
        _split_overlap(found, "heldout"),
        _split_overlap(found, "validation"),
        len(heldout & validation) / max(1, len(heldout)),
    )


def seen_share(source: ExerciseSource, tasks: list[Task]) -> float:
    """Share of tasks with a target body, as the reference has it, that training can show: the overlap of a sample."""
    return _share_with(_bodies(pools(source.settings.seed, source.settings.holdout_share).training), tasks)


def shared_with_validation(source: ExerciseSource, tasks: list[Task]) -> float:
    """Share of tasks with a target body on which settings may have been chosen."""
    found = pools(source.settings.seed, source.settings.holdout_share)
    return _share_with(_unseen(found, "validation"), tasks)


def target_bodies(task: Task) -> set[str]:
    """Hashes of the target functions' reference bodies, read from the task's own files."""
    files = {**task.files, **task.solution}
    bodies: set[str] = set()
    for text in files.values():
        for node in parse_python(text).body:
            if isinstance(node, ast.FunctionDef) and node.name in task.metadata["targets"]:
                bodies.add(body_hash(ast.unparse(node)))
    return bodies


def _share_with(bodies: set[str], tasks: list[Task]) -> float:
    return sum(not bodies.isdisjoint(target_bodies(task)) for task in tasks) / max(1, len(tasks))


def _split_overlap(found: Pools, split: Split) -> SplitOverlap:
    training = _bodies(found.training)
    functions, templates = _bodies(found.unseen[split, "function"]), _bodies(found.unseen[split, "template"])
    return SplitOverlap(
        len(functions),
        len(templates),
        len(functions & training) / max(1, len(functions)),
        len(templates & training) / max(1, len(templates)),
    )


def _unseen(found: Pools, split: Split) -> set[str]:
    return _bodies(*(pool for (owner, _), pool in found.unseen.items() if owner == split))


def _bodies(*pools_: Pool) -> set[str]:
    pairs: Iterable[tuple[str, list]] = itertools.chain.from_iterable(pool.items() for pool in pools_)
    return {instance(name, params).body for name, fillings in pairs for params in fillings}
