"""Grader `docstring`: the one comment line above the function is a right one, and the code still behaves as before."""

from __future__ import annotations

from etude.sandbox.protocol import Machines
from etude.tasks.graders.outputs import behaviour
from etude.tasks.restore import restore_files, text_of
from etude.tasks.task import Task, Verdict


class DocstringGrader:
    """`hidden["path"]`, `hidden["function"]` say where; `hidden["specs"]` lists every right comment."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        graded = restore_files(task, files)
        text = text_of(graded.get(task.hidden["path"])) or ""
        above = comments_above(text, task.hidden["function"])
        # Exactly one line: a list of guesses that holds a right one is no documentation.
        right = len(above) == 1 and above[0] in task.hidden["specs"]
        return await behaviour(task, graded, pool, {"comment is right": right})


def comments_above(text: str, function: str) -> list[str]:
    """The unbroken comment lines right above `def function(`; empty if it is missing or defined twice."""
    lines = [line.strip() for line in text.splitlines()]
    places = [number for number, line in enumerate(lines) if line.startswith(f"def {function}(")]
    if len(places) != 1:
        return []
    first = places[0]
    while first > 0 and lines[first - 1].startswith("#"):
        first -= 1
    return lines[first : places[0]]
