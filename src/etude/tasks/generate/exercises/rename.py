"""Level rename: a function is renamed where it is defined and in every other file that calls it."""

from __future__ import annotations

import ast
from typing import Any

from etude.tasks.generate.exercises.drawing import Drawing
from etude.tasks.generate.exercises.level import Level, compose
from etude.tasks.generate.exercises.repository import CHECK_PATH, ExerciseFunction
from etude.tasks.generate.exercises.trial import literal_arguments
from etude.tasks.task import Task

# A second caller in a third file: more of the same work, where stopping early shows.
THIRD_FILE_SHARE = 0.3


class Caller:
    """A function of another module that pairs the target's value with a constant, and says so."""

    def __init__(self, drawing: Drawing, target: ExerciseFunction, module: str) -> None:
        self.target, self.module, self.name = target, module, drawing.fresh_name()
        self.constant = drawing.rng.randrange(10)
        self.shown = drawing.rng.randrange(len(target.instance.inputs))

    @property
    def path(self) -> str:
        return f"{self.module}.py"

    def text(self, callee: str) -> str:
        """The whole module, calling the target by the name `callee`."""
        return f"import {self.target.module}\n\n# pair of that value and {self.constant}\n{self._head()}\n{self.use(callee, 4)}\n"

    def use(self, callee: str, indent: int = 0) -> str:
        """The line that calls the target."""
        return f"{' ' * indent}return [{self.target.module}.{callee}({self._arguments()}), {self.constant}]"

    def check_line(self) -> str:
        args = literal_arguments(self.target.instance.inputs[self.shown])
        return f'check("{self.module} {self.name}", {self._want(self.shown)!r}, {args})\n'

    def calls(self) -> list[dict[str, Any]]:
        """Two hidden calls."""
        numbers = [number for number in range(len(self.target.instance.inputs)) if number != self.shown][:2]
        return [
            {
                "id": f"{self.module}.{self.name}/{number}",
                "module": self.module,
                "function": self.name,
                "args": self.target.instance.inputs[number],
                "want": self._want(number),
            }
            for number in numbers
        ]

    def _head(self) -> str:
        return f"def {self.name}({self._arguments()}):"

    def _arguments(self) -> str:
        return self.target.line(0, fixed=True).partition("(")[2].removesuffix("):")

    def _want(self, number: int) -> list[Any]:
        return [ast.literal_eval(self.target.instance.wants[number]), self.constant]


def build(task_id: str, drawing: Drawing) -> Task:
    target = drawing.target(drawing.modules[0])
    drawing.company(drawing.modules[0])
    drawing.shuffle()
    count = 2 if drawing.rng.random() < THIRD_FILE_SHARE else 1
    callers = [Caller(drawing, target, module) for module in drawing.modules[1 : 1 + count]]
    old, new = target.name, drawing.fresh_name()
    head = target.line(0, fixed=True)
    parts = [{"name": target.path, "path": target.path, "old": head, "new": head.replace(old, new, 1)}]
    parts += [{"name": c.path, "path": c.path, "old": c.use(old), "new": c.use(new)} for c in callers]
    before = _files(drawing, target, callers, old)
    target.name = target.names["f"] = new
    after = _files(drawing, target, callers, new)
    # The tests ask for the new name from the start.
    before[CHECK_PATH] = after[CHECK_PATH]
    return compose(
        task_id,
        drawing,
        level=LEVEL,
        names=[old, new],
        targets=[target],
        grader="rename",
        hidden={"parts": sorted(parts, key=lambda part: part["path"]), "old": old},
        more_calls=[call for caller in callers for call in caller.calls()],
        files=before,
        solution=after,
    )


def _files(drawing: Drawing, target: ExerciseFunction, callers: list[Caller], name: str) -> dict[str, str]:
    files = drawing.repository.files()
    check = files.pop(CHECK_PATH)
    files.update({caller.path: caller.text(name) for caller in callers})
    body, end, rest = check.rpartition('print("ok")')
    return {**files, CHECK_PATH: body + "".join(caller.check_line() for caller in callers) + end + rest}


LEVEL = Level(
    "rename",
    "refactors",
    build,
    words="rename {} to {}",
    sentence="In all files, rename the function {} to {}.",
)
