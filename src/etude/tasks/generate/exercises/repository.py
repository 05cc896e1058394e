"""A small repository being composed: modules, named functions, bugs; its files before and after, its tests, its edits."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Iterable

from etude.tasks.generate.exercises.instance import Instance
from etude.tasks.generate.exercises.mutation import Mutation
from etude.tasks.generate.exercises.trial import literal_arguments

CHECK_PATH = "check.py"
CHECK_COMMAND = ("python", CHECK_PATH)

# Any failure, even a module that does not compile, prints the one function's name: at most two tokens of output.
CHECK_HEAD = """\
def check(place, want, *args):
    module, name = place.split()
    try:
        good = getattr(__import__(module), name)(*args) == want
    except Exception:
        good = False
    if not good:
        print("fail", name)
        raise SystemExit(1)


"""
CHECK_END = 'print("ok")\n'


@dataclass
class ExerciseFunction:
    """One function under its names. `lines` are the lines in the agent's file; the instance holds what should."""

    instance: Instance
    module: str
    name: str
    names: dict[str, str]
    mutation: Mutation | None = None
    visible: tuple[int, ...] = ()  # numbers of the inputs that check.py shows
    comment: str | None = None  # a wrong spec shown instead of the true one
    stub: bool = False  # the agent finds an empty body

    @property
    def path(self) -> str:
        return f"{self.module}.py"

    def text(self, *, fixed: bool) -> str:
        """Comment and source, as the agent finds it or as it should be."""
        lines = self.instance.lines
        if not fixed and self.mutation is not None:
            lines = self.instance.apply_mutation(self.mutation)
        elif not fixed and self.stub:
            lines = (lines[0], "    pass")
        comment = self.instance.spec if fixed or self.comment is None else self.comment
        return f"{comment}\n{self.instance.source(lines, self.names)}"

    def line(self, number: int, *, fixed: bool) -> str:
        """Source line `number` (0 is the `def`, -1 the comment)."""
        return self.text(fixed=fixed).splitlines()[number + 1]

    def check_line(self, index: int) -> str:
        """The visible test of input `index`."""
        args = literal_arguments(self.instance.inputs[index])
        return f'check("{self.module} {self.name}", {self.instance.wants[index]}, {args})\n'

    def calls(self, indices: Iterable[int]) -> list[dict[str, Any]]:
        """Hidden calls: JSON values, one expected outcome each."""
        return [
            {
                "id": f"{self.module}.{self.name}/{index}",
                "module": self.module,
                "function": self.name,
                "args": self.instance.inputs[index],
                "want": ast.literal_eval(self.instance.wants[index]),
            }
            for index in indices
        ]


@dataclass
class Repository:
    """Functions in file order. `fixed=False` is the agent's workspace, `fixed=True` the reference."""

    functions: list[ExerciseFunction] = field(default_factory=list)

    def modules(self) -> list[str]:
        return list(dict.fromkeys(function.module for function in self.functions))

    def module_text(self, module: str, *, fixed: bool) -> str:
        return "\n".join(f.text(fixed=fixed) for f in self.functions if f.module == module)

    def files(self, *, fixed: bool = False) -> dict[str, str]:
        """Every file, check.py last."""
        files = {f"{module}.py": self.module_text(module, fixed=fixed) for module in self.modules()}
        return {**files, CHECK_PATH: self.check_script()}

    def check_script(self) -> str:
        """The visible tests, in file order."""
        lines = [function.check_line(index) for function in self.functions for index in function.visible]
        return CHECK_HEAD + "".join(lines) + CHECK_END

    def hidden_calls(self, targets: Iterable[ExerciseFunction]) -> list[dict[str, Any]]:
        """All inputs of the targets that check.py does not show; two of every other function, so that nothing else breaks."""
        wanted = [id(target) for target in targets]
        calls: list[dict[str, Any]] = []
        for function in self.functions:
            unseen = [i for i in range(len(function.instance.inputs)) if i not in function.visible]
            calls += function.calls(unseen if id(function) in wanted else unseen[:2])
        return calls

    def edit(self, function: ExerciseFunction, line_number: int) -> dict[str, str]:
        """The one-line edit that turns source line `line_number` (-1: the comment) into what it should be."""
        text = self.module_text(function.module, fixed=False)
        start = text.index(function.text(fixed=False))
        before = text[:start].count("\n") + 1 + line_number
        new = function.line(line_number, fixed=True)
        return {"path": function.path, **line_edit(text, before, new)}


def line_edit(text: str, number: int, new: str) -> dict[str, str]:
    """`old` and `new` for an edit tool whose `old` must occur exactly once: the line alone, else with lines around it.

    The indent in front is left out where it can be: tokens cost time, and the first token is then the line's own word.
    """
    lines = text.splitlines()
    for above, below in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1), (4, 1)):
        first, last = max(0, number - above), min(len(lines), number + below + 1)
        old = "\n".join(lines[first:last])
        changed = "\n".join([*lines[first:number], new, *lines[number + 1 : last]])
        indent = len(old) - len(old.lstrip())
        if changed[:indent] == old[:indent] and text.count(old[indent:]) == 1:
            return {"old": old[indent:], "new": changed[indent:]}
        if text.count(old) == 1:
            return {"old": old, "new": changed}
    raise ValueError(f"line {number} of the file is not unique within four lines: {lines[number]!r}")
