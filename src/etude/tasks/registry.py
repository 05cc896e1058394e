"""Graders by name. A task names its grader, so that a task read from disk is graded like one made by the factory.

A task may name a grader by import path. Such a grader is imported only where a person allows the path (`tasks.plugins`), never because a
task file names it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, cast

from etude.core.plugins import PluginError, import_object, is_import_path
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


def grader(name: str, graders: Mapping[str, Grader] = GRADERS) -> Grader:
    """The grader of this name; raises KeyError with those there are."""
    if name not in graders:
        raise KeyError(no_grader(name, graders))
    return graders[name]


def graders_with(allowed: Iterable[str]) -> dict[str, Grader]:
    """The built-in graders, and those at the import paths that a person allows task files to name. Raises PluginError."""
    return {**GRADERS, **{path: custom_grader(path) for path in allowed}}


@cache
def custom_grader(path: str) -> Grader:
    """The grader at an import path. Raises PluginError where it does not follow `Grader`."""
    found: Any = import_object(path)
    if isinstance(found, type):
        raise PluginError(f"{path} is a class; a grader is an object, so name an instance of it (docs/extending.md)")
    if not inspect.iscoroutinefunction(getattr(found, "grade", None)):
        raise PluginError(f"{path} has no method `async def grade(task, files, pool)`; see docs/extending.md")
    return cast(Grader, found)


def no_grader(name: str, graders: Iterable[str]) -> str:
    """Why a task's grader is none of `graders`, and the remedy."""
    if not is_import_path(name):
        return f"no grader {name!r}; there are: {', '.join(graders)}"
    return (
        f"no grader {name!r}: a task file may not name code that was not allowed. If you trust that module, add it to the setting "
        f"tasks.plugins (--set 'tasks.plugins=[\"{name}\"]'), or to the option --plugin of `etude tasks check`"
    )


async def grade(
    task: Task, files: dict[str, bytes], pool: Machines, graders: Mapping[str, Grader] = GRADERS
) -> Verdict:
    """The verdict of the task's own grader on an attempt's final files. Raises InfraError, never scores it; KeyError where it is none of
    `graders`."""
    return await graded(grader(task.grader, graders), task, files, pool)
