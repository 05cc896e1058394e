"""The function templates of each split. Those of validation and of the held-out split never occur in training.

Each is a few short lines whose spec comment says everything a repair needs; none has a `while`, so that few mutants loop.
A block's first line is `name | spec | kinds of the arguments | values of the parameters`, then, for some of the training
templates, `| further values`, which only held-out functions have.
"""

from __future__ import annotations

from etude.tasks.generate.exercises import heldout_functions, training_functions, validation_functions
from etude.tasks.generate.exercises.template import ExerciseTemplate
from etude.tasks.task import Split


def _values(space: str) -> dict[str, tuple[str, ...]]:
    """`op=>,< k=2,3` as a mapping; the values themselves may hold `=`."""
    return {slot: tuple(listed.split(",")) for slot, _, listed in (item.partition("=") for item in space.split())}


def _parse(text: str, split: Split) -> tuple[ExerciseTemplate, ...]:
    templates = []
    for block in text.strip().split("\n\n"):
        head, _, source = block.partition("\n")
        name, spec, takes, space, *fresh = (part.strip() for part in head.split("|"))
        further = _values(fresh[0]) if fresh else {}
        templates.append(ExerciseTemplate(name, spec, source, tuple(takes.split()), _values(space), split, further))
    return tuple(templates)


TRAINING = _parse(training_functions.TEXT, "train")
VALIDATION = _parse(validation_functions.TEXT, "validation")
HELD_OUT = _parse(heldout_functions.TEXT, "heldout")
BY_NAME = {template.name: template for template in (*TRAINING, *VALIDATION, *HELD_OUT)}
