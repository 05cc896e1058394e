"""Ways to look like a reviewer, and like one who answers a question: each must score 0 with graders `review` and `answer`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from etude.tasks.cheats.exercise import Files, nop
from etude.tasks.task import Task

TEXT = "This looks wrong, please check it again."
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)")


def silent(task: Task) -> Files:
    """Everything is approved."""
    return _commented(task, ())


def every_line(task: Task) -> Files:
    """A comment on every added line, as many as are read."""
    return _commented(task, added(task)[:200])


def every_fifth_line(task: Task) -> Files:
    """The fewest comments that are near every line."""
    return _commented(task, added(task)[2::5][:200])


def every_function(task: Task) -> Files:
    """A comment on every function."""
    places = added(task)
    lines = {path: text.splitlines() for path, text in task.files.items()}
    begins = re.compile(r"\s*(async )?def |.*\bfunction\b|.*=>")
    return _commented(task, [(p, n) for p, n in places if n <= len(lines[p]) and begins.match(lines[p][n - 1])][:200])


def every_condition(task: Task) -> Files:
    """A comment where defects are often: on every condition, loop and return."""
    lines = {path: text.splitlines() for path, text in task.files.items()}
    telling = re.compile(r"[\s}]*(if|elif|else if|while|for|return)\b")
    return _commented(
        task, [(p, n) for p, n in added(task) if n <= len(lines[p]) and telling.match(lines[p][n - 1])][:200]
    )


def wrong_places(task: Task) -> Files:
    """Comments on unchanged lines."""
    return _commented(task, [(path, 1) for path in task.files if path.endswith((".py", ".js", ".ts"))][:20])


def wordless(task: Task) -> Files:
    """Places without a word."""
    rows = [{"path": p, "line": n, "severity": "high", "text": ""} for p, n in added(task)]
    return nop(task) | {task.hidden["path"]: "".join(json.dumps(row) + "\n" for row in rows).encode()}


REVIEWED: dict[str, Callable[[Task], Files]] = {
    cheat.__name__: cheat
    for cheat in (silent, every_line, every_fifth_line, every_function, every_condition, wrong_places, wordless)
}


def answer_empty(task: Task) -> Files:
    return nop(task) | {task.hidden["path"]: b""}


def answer_everything(task: Task) -> Files:
    """Every candidate, the right one among them, on one line and on many."""
    known = [*task.metadata.get("candidates", ()), task.hidden["answer"]]
    return nop(task) | {task.hidden["path"]: "\n".join(known).encode()}


def answer_in_a_row(task: Task) -> Files:
    known = [*task.metadata.get("candidates", ()), task.hidden["answer"]]
    return nop(task) | {task.hidden["path"]: " ".join(known).encode()}


ANSWERED: dict[str, Callable[[Task], Files]] = {
    cheat.__name__: cheat for cheat in (answer_empty, answer_everything, answer_in_a_row)
}


def added(task: Task) -> list[tuple[str, int]]:
    """Lines that the changes under review add, in the tree as it is."""
    found: list[tuple[str, int]] = []
    for path in task.metadata["changes"]:
        name, at = "", 0
        for line in task.files[path].splitlines():
            if line.startswith("+++ "):
                name = line[4:].split("\t")[0].removeprefix("b/")
            elif match := _HUNK.match(line):
                at = int(match[1])
            elif line.startswith("+"):
                found.append((name, at))
                at += 1
            elif line.startswith(" "):
                at += 1
    return found


def _commented(task: Task, places: Iterable[tuple[str, int]]) -> Files:
    rows = [{"path": path, "line": line, "severity": "medium", "text": TEXT} for path, line in places]
    return nop(task) | {task.hidden["path"]: "".join(json.dumps(row) + "\n" for row in rows).encode()}
