"""All levels by name, in the order of the report."""

from __future__ import annotations

from etude.factory.exercises import one_bug
from etude.factory.exercises.level import Level

LEVELS: dict[str, Level] = {level.name: level for level in (one_bug.LEVEL,)}
