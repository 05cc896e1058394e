"""The cheats of tasks that are not graded by the project's own tests, by their grader."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from etude.tasks.cheats.documented import DOCUMENTED
from etude.tasks.cheats.exercise import Files
from etude.tasks.cheats.refactored import REFACTORED
from etude.tasks.cheats.repaired import REPAIRED
from etude.tasks.cheats.reviewed import ANSWERED, REVIEWED
from etude.tasks.cheats.written_tests import WRITTEN_TESTS
from etude.tasks.task import Task

BY_GRADER: Mapping[str, Mapping[str, Callable[[Task], Files]]] = {
    "mutants": WRITTEN_TESTS,
    "documentation": DOCUMENTED,
    "review": REVIEWED,
    "answer": ANSWERED,
    "devops": REPAIRED,
    "refactor": REFACTORED,
}
