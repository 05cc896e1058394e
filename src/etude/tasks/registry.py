"""Graders by name. A task names its grader, so that a task read from disk is graded like one made by the factory."""

from __future__ import annotations

from etude.sandbox.protocol import Machines
from etude.tasks.graders.answer import AnswerGrader
from etude.tasks.graders.commands import CommandsGrader
from etude.tasks.graders.devops import DevopsGrader
from etude.tasks.graders.docstring import DocstringGrader
from etude.tasks.graders.documentation import DocumentationGrader
from etude.tasks.graders.mutants import MutantsGrader
from etude.tasks.graders.outputs import OutputsGrader
from etude.tasks.graders.refactor import RefactorGrader
from etude.tasks.graders.rename import RenameGrader
from etude.tasks.graders.review import ReviewGrader
from etude.tasks.graders.script import ScriptGrader
from etude.tasks.graders.write_test import WriteTestGrader
from etude.tasks.grading import graded
from etude.tasks.real.grader import PytestGrader
from etude.tasks.task import Grader, Task, Verdict

GRADERS: dict[str, Grader] = {
    "commands": CommandsGrader(),
    "outputs": OutputsGrader(),
    "rename": RenameGrader(),
    "docstring": DocstringGrader(),
    "write-test": WriteTestGrader(),
    "mutants": MutantsGrader(),
    "documentation": DocumentationGrader(),
    "review": ReviewGrader(),
    "devops": DevopsGrader(),
    "answer": AnswerGrader(),
    "refactor": RefactorGrader(),
    "script": ScriptGrader(),
    "pytest": PytestGrader(),
}


def grader(name: str) -> Grader:
    """The grader of this name; raises KeyError with those there are."""
    if name not in GRADERS:
        raise KeyError(f"no grader {name!r}; there are: {', '.join(GRADERS)}")
    return GRADERS[name]


async def grade(task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
    """The verdict of the task's own grader on an attempt's final files. Raises InfraError, never scores it."""
    return await graded(grader(task.grader), task, files, pool)
