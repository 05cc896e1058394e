"""What a level draws from: functions of the right split, fresh names, modules. One `Drawing` per task, seeded by its id."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from etude.tasks.generate.exercises.catalogue import HELD_OUT, TRAINING, VALIDATION
from etude.tasks.generate.exercises.instance import Instance, instance
from etude.tasks.generate.exercises.repository import ExerciseFunction, Repository
from etude.tasks.generate.exercises.template import Params
from etude.tasks.generate.exercises.words import FUNCTIONS, MODULES, VARIABLES
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.task import Split

Holdout = Literal["function", "template"]

# One visible test for each sound function, two for a bugged one: check.py stays short, a bug is always seen.
SOUND_TESTS = 1


Pool = dict[
    str, list[Params]
]  # template name -> parameter fillings; a template is drawn first, which keeps the mix even


@dataclass(frozen=True)
class Pools:
    """What each split draws its functions from. No body occurs in two of the five (compared after renaming)."""

    training: Pool
    unseen: dict[tuple[Split, Holdout], Pool]  # of validation and of the held-out split


@lru_cache(maxsize=8)
def pools(seed: int, share: float) -> Pools:
    """Divides the catalogue. A training template's body goes to validation by its hash (names ignored, constants kept)."""
    training: Pool = {}
    by_hash: Pool = {}
    for template in TRAINING:
        for params in template.params():
            chosen = random.Random(f"split {seed} {instance(template.name, params).body}").random() < share
            (by_hash if chosen else training).setdefault(template.name, []).append(params)
    return Pools(
        training,
        {
            ("validation", "function"): by_hash,
            ("validation", "template"): {template.name: list(template.params()) for template in VALIDATION},
            ("heldout", "function"): {t.name: list(t.fresh_params()) for t in TRAINING if t.fresh},
            ("heldout", "template"): {template.name: list(template.params()) for template in HELD_OUT},
        },
    )


class Drawing:
    """Random choices of one task. `target` draws what the task is about, `bystander` what else lies around."""

    def __init__(self, task_id: str, split: Split, settings: ExerciseSettings) -> None:
        self.rng = random.Random(f"{settings.seed} {task_id}")
        self.settings = settings
        self.split: Split = split
        self.pools = pools(settings.seed, settings.holdout_share)
        self.holdout: Holdout | None = None
        if split != "train":
            self.holdout = "template" if self.rng.random() < settings.template_share else "function"
        self.repository = Repository()
        self._functions = self.rng.sample(FUNCTIONS, 8)
        self.modules = self.rng.sample(MODULES, 4)

    def fresh_name(self) -> str:
        """A function name not yet used in this repository."""
        return self._functions.pop()

    def target(self, module: str) -> ExerciseFunction:
        """A function from this task's side of the split, added to the repository."""
        pool = self.pools.unseen[self.split, self.holdout] if self.holdout else self.pools.training
        return self._add(pool, module)

    def bystander(self, module: str) -> ExerciseFunction:
        """A sound function from the training side, added to the repository."""
        return self._add(self.pools.training, module)

    def company(self, module: str) -> None:
        """Sometimes one more function in a module."""
        if self.rng.random() < self.settings.two_function_share:
            self.bystander(module)

    def shuffle(self) -> None:
        """Random order of functions; modules follow the first of theirs."""
        self.rng.shuffle(self.repository.functions)

    def show(self, function: ExerciseFunction, count: int) -> None:
        """Draws `count` inputs for the visible tests."""
        function.visible = tuple(self.rng.sample(range(len(function.instance.inputs)), count))

    def repair(self, function: ExerciseFunction) -> dict[str, str]:
        """The edit that mends what `break_it` broke."""
        assert function.mutation is not None
        return self.repository.edit(function, function.mutation.line)

    def break_it(self, function: ExerciseFunction) -> None:
        """Puts a bug into `function` and shows an input that reveals it; another that does so stays hidden."""
        function.mutation = function.instance.draw_bug(self.rng)
        revealing = function.instance.revealing_inputs(function.mutation)
        shown = self.rng.choice(revealing)
        other = self.rng.choice([i for i in range(len(function.instance.inputs)) if i != shown])
        if set(revealing) <= {shown, other}:
            other = next(i for i in range(len(function.instance.inputs)) if i not in revealing)
        function.visible = (other, shown)

    def _add(self, pool: Pool, module: str) -> ExerciseFunction:
        chosen = self._instance(pool)
        function = ExerciseFunction(chosen, module, self.fresh_name(), self._names(chosen))
        function.names["f"] = function.name
        self.show(function, SOUND_TESTS)
        self.repository.functions.append(function)
        return function

    def _instance(self, pool: Pool) -> Instance:
        used = {function.instance.body for function in self.repository.functions}
        while True:
            name = self.rng.choice(list(pool))
            chosen = instance(name, self.rng.choice(pool[name]))
            if chosen.body not in used:  # two equal bodies would make lines ambiguous
                return chosen

    def _names(self, chosen: Instance) -> dict[str, str]:
        names: dict[str, str] = {}
        for slot in chosen.slots:
            names[slot] = self.rng.choice([word for word in VARIABLES[slot] if word not in names.values()])
        return names
