"""How large a task is: what the reference changes, and how much the request says.

The report gives its own set as a median of 181 changed lines and 390 characters of prompt, against 7 to 10 lines and
1,185 to 3,055 characters of the public sets (Composer 2 report, section 5): the two figures a suite of one's own is held to.
"""

from __future__ import annotations

import difflib
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from etude.tasks.task import Task

REPORT_LINES = 181
REPORT_PROMPT_CHARS = 390


@dataclass(frozen=True)
class TaskSize:
    """`lines` are those the reference adds and removes, hidden tests not among them; `files` those it touches."""

    files: int
    lines: int
    prompt_chars: int


def shape_of(task: Task) -> TaskSize:
    """The size of any task with a reference, from any source."""
    after: dict[str, str] = {path: "" for path in task.metadata.get("removed", ())} | task.solution
    changed = {path: changed_lines(task.files.get(path, ""), text) for path, text in after.items()}
    return TaskSize(sum(n > 0 for n in changed.values()), sum(changed.values()), len(task.instruction))


def changed_lines(before: str, after: str) -> int:
    """Added and removed lines together, as `git diff --stat` counts them."""
    blocks = difflib.SequenceMatcher(a=before.splitlines(), b=after.splitlines(), autojunk=False).get_opcodes()
    return sum((i2 - i1) + (j2 - j1) for tag, i1, i2, j1, j2 in blocks if tag != "equal")


def medians(shapes: Iterable[TaskSize]) -> dict[str, Any]:
    """The medians of a suite, next to those of the report."""
    found = list(shapes)
    lines, chars = ([getattr(shape, key) for shape in found] for key in ("lines", "prompt_chars"))
    return {
        "median_changed_lines": statistics.median(lines) if found else None,
        "median_files": statistics.median(shape.files for shape in found) if found else None,
        "median_prompt_chars": statistics.median(chars) if found else None,
        "report_changed_lines": REPORT_LINES,
        "report_prompt_chars": REPORT_PROMPT_CHARS,
    }
