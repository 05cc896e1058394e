"""All operators, by family and by name."""

from __future__ import annotations

from etude.tasks.generate.generators.bugs.families import (
    arithmetic,
    asynchrony,
    bounds,
    classes,
    comparisons,
    control,
    defaults,
    encoding,
    exceptions,
    memory,
    ordering,
    resources,
    values,
)
from etude.tasks.generate.generators.bugs.operator import Operator

FAMILIES = tuple(
    module.FAMILY
    for module in (
        *(comparisons, arithmetic, bounds, control, exceptions, defaults, values),
        *(ordering, memory, resources, asynchrony, encoding, classes),
    )
)
OPERATORS: tuple[Operator, ...] = tuple(operator for family in FAMILIES for operator in family.operators)
