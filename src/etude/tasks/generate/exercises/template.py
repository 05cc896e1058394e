"""A function template: source lines with `$slots`, a spec comment, and the parameters that may fill it.

Slots named in `words.VARIABLES` (and `$f`) are identifiers, drawn again for each use; the others are parameters and change
what the function does. `$cmp` in a spec is the parameter `$op` in words.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
from dataclasses import dataclass, field
from typing import Iterator, Mapping

from etude.tasks.generate.exercises.words import COMPARISONS, VARIABLES
from etude.tasks.task import Split

SLOT = re.compile(r"\$([a-z]+)")

Params = tuple[tuple[str, str], ...]  # sorted (slot, text) pairs: hashable, the identity of a filled template


@dataclass(frozen=True)
class ExerciseTemplate:
    """One function. `takes` names the kind of each argument, `space` the values of each parameter.

    `fresh` has further values of some parameters: fillings with one of them belong to the held-out split.
    """

    name: str
    spec: str
    source: str
    takes: tuple[str, ...]
    space: Mapping[str, tuple[str, ...]]
    split: Split = "train"
    fresh: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def params(self) -> Iterator[Params]:
        """Every filling whose parameters differ from each other (two equal constants hide a swap)."""
        yield from _fillings(self.space)

    def fresh_params(self) -> Iterator[Params]:
        """Every filling with exactly one fresh value: a neighbour of a known function, itself never seen."""
        for slot, values in self.fresh.items():
            yield from _fillings({**self.space, slot: values})

    def instantiate(self, params: Params) -> tuple[str, tuple[str, ...]]:
        """Spec comment and source lines with the parameters in place; name slots stay."""
        values = dict(params)
        values["cmp"] = COMPARISONS.get(values.get("op", ""), "")
        return "# " + fill(self.spec, values), tuple(fill(self.source, values).splitlines())


def _fillings(space: Mapping[str, tuple[str, ...]]) -> Iterator[Params]:
    slots = sorted(space)
    for values in itertools.product(*(space[slot] for slot in slots)):
        if len(set(values)) == len(values):
            yield tuple(zip(slots, values, strict=True))


def fill(text: str, names: Mapping[str, str]) -> str:
    """`text` with the slots that `names` knows replaced, the others left."""
    return SLOT.sub(lambda match: names.get(match[1], match[0]), text)


def name_slots(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The variable slots of a function in order of appearance, without `$f`."""
    found = dict.fromkeys(SLOT.findall("\n".join(lines)))
    unknown = [slot for slot in found if slot != "f" and slot not in VARIABLES]
    if unknown:
        raise ValueError(f"template slots {unknown} are neither parameters nor listed in words.VARIABLES")
    return tuple(slot for slot in found if slot != "f")


def body_hash(source: str) -> str:
    """A hash of the first function in `source` that ignores every local name, comment and layout, but no constant."""
    tree = ast.parse(source)
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    local = {function.name} | {a.arg for a in function.args.args}
    local |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    order: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef):
            node.name = "f"
        elif isinstance(node, ast.arg):
            node.arg = order.setdefault(node.arg, f"v{len(order)}")
        elif isinstance(node, ast.Name) and node.id in local:
            node.id = order.setdefault(node.id, f"v{len(order)}")
    return hashlib.sha256(ast.dump(function).encode()).hexdigest()[:16]
