"""A template with its parameters chosen: reference behaviour, test inputs, mutants that matter. Names are still open.

Everything here depends on (template, parameters) alone, so it is computed once and shared by all tasks that use it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from etude.tasks.generate.exercises.catalogue import BY_NAME
from etude.tasks.generate.exercises.mutation import Mutation, mutations
from etude.tasks.generate.exercises.template import ExerciseTemplate, Params, body_hash, fill, name_slots
from etude.tasks.generate.exercises.trial import is_plain, outcomes

# Ten inputs tell a boundary slip apart almost surely and keep a check under a millisecond.
INPUTS = 10


@dataclass(frozen=True)
class Instance:
    """One function up to renaming. `lines` hold name slots; `spec` is its true comment."""

    template: ExerciseTemplate
    params: Params
    spec: str
    lines: tuple[str, ...]
    _verdicts: dict[Mutation, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def slots(self) -> tuple[str, ...]:
        return name_slots(self.lines)

    @cached_property
    def canonical(self) -> str:
        """Source under the slots' own names, with the function called `f`."""
        return self.source(self.lines)

    @cached_property
    def body(self) -> str:
        """Identity of the body up to renaming."""
        return body_hash(self.canonical)

    @cached_property
    def inputs(self) -> list[list[Any]]:
        """Distinct argument lists, drawn near the parameters so that boundaries are met."""
        rng = random.Random(f"inputs {self.template.name} {self.params}")
        digits = [int(value) for _, value in self.params if value.isdigit()]
        found: dict[str, list[Any]] = {}
        while len(found) < INPUTS:
            args = [_argument(kind, digits, rng) for kind in self.template.takes]
            found.setdefault(repr(args), args)
        return list(found.values())

    @cached_property
    def wants(self) -> list[str]:
        """What the reference returns for each input, as literals."""
        wants = outcomes(self.canonical, "f", self.inputs)
        if any(want.startswith("!") for want in wants):
            raise ValueError(
                f"template {self.template.name} fails on its own inputs: {wants}; mend its block in the catalogue"
            )
        return wants

    @cached_property
    def mutations(self) -> tuple[Mutation, ...]:
        return mutations(self.lines)

    @cached_property
    def kinds(self) -> dict[str, list[Mutation]]:
        """The mutations by operator family."""
        by_kind: dict[str, list[Mutation]] = {}
        for mutation in self.mutations:
            by_kind.setdefault(mutation.kind, []).append(mutation)
        return by_kind

    def source(self, lines: tuple[str, ...] | list[str], names: dict[str, str] | None = None) -> str:
        """`lines` under `names` (default: the slots' own)."""
        return fill("\n".join(lines), names or {slot: slot for slot in (*self.slots, "f")}) + "\n"

    def apply_mutation(self, mutation: Mutation) -> tuple[str, ...]:
        """The lines with one of them replaced."""
        return (*self.lines[: mutation.line], mutation.text, *self.lines[mutation.line + 1 :])

    def revealing_inputs(self, mutation: Mutation) -> tuple[int, ...]:
        """Numbers of the inputs on which the mutant behaves otherwise; empty if it runs away or does not compile."""
        if mutation not in self._verdicts:
            self._verdicts[mutation] = self._compare(mutation)
        return self._verdicts[mutation]

    def _compare(self, mutation: Mutation) -> tuple[int, ...]:
        try:
            ends = outcomes(self.source(self.apply_mutation(mutation)), "f", self.inputs)
        except SyntaxError:
            return ()
        if "! Runaway" in ends:
            return ()
        return tuple(i for i, (end, want) in enumerate(zip(ends, self.wants, strict=True)) if end != want)

    def draw_bug(self, rng: random.Random) -> Mutation:
        """A mutation that at least two inputs reveal: one for the visible tests, one for the hidden ones."""
        for _ in range(200):
            mutation = rng.choice(self.kinds[rng.choice(list(self.kinds))])
            if len(self.revealing_inputs(mutation)) >= 2:
                return mutation
        raise ValueError(
            f"no mutation of {self.template.name} {self.params} shows on two inputs; mend its block in the catalogue"
        )


@cache  # at most the catalogue's fillings, about 1,900
def instance(name: str, params: Params) -> Instance:
    """The one shared Instance of a template name and its parameters."""
    template = BY_NAME[name]
    spec, lines = template.instantiate(params)
    return Instance(template, params, spec, lines)


def _argument(kind: str, digits: list[int], rng: random.Random) -> Any:
    near = [*digits, *(digit + 1 for digit in digits), *(digit - 1 for digit in digits if digit)] or [1]

    def number() -> int:
        return rng.choice(near) if rng.random() < 0.5 else rng.randrange(10)

    def word() -> str:
        return "".join(rng.choice("abcde") for _ in range(rng.randint(1, 4)))

    value = {
        "number": lambda: rng.randrange(13) if rng.random() < 0.5 else number(),
        "ints": lambda: [number() for _ in range(rng.choice((0, 2, 3, 4, 5, 6)))],
        "text": lambda: "".join(rng.choice("abcde") for _ in range(rng.randint(0, 7))),
        "words": lambda: [rng.choice(("a", "b", word(), word())) for _ in range(rng.randint(0, 5))],
        "pairs": lambda: [rng.choice("abcde") + rng.choice("abcde") for _ in range(rng.randint(0, 6))],
        "table": lambda: {key: rng.randrange(10) for key in rng.sample("abcde", 3)},
        "word": lambda: rng.choice("abcde"),
    }[kind]()
    if not is_plain(value):
        raise ValueError(f"argument kind {kind!r} made {value!r}, which does not survive JSON")
    return value
