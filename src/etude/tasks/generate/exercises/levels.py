"""All levels by name, in the order of the report."""

from __future__ import annotations

from etude.tasks.generate.exercises import (
    docstring,
    feature,
    from_tests,
    one_bug,
    relapse,
    rename,
    two_bugs,
    write_test,
)
from etude.tasks.generate.exercises.level import Level

LEVELS: dict[str, Level] = {
    module.LEVEL.name: module.LEVEL
    for module in (one_bug, from_tests, two_bugs, rename, feature, docstring, write_test, relapse)
}
