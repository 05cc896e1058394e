"""What a reader of a task's request can't know: names and lines of its hidden parts that appear nowhere in sight."""

from __future__ import annotations

import builtins
import json
import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass

from etude.tasks.task import Task

# Shorter names and lines are guessed by everybody.
LEAST_NAME, LEAST_LINE = 5, 20
# Hidden parts that are words about the task and no code of it: anybody would write them so.
PROSE = frozenset({"check", "scripts"})
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{{LEAST_NAME - 1},}}")


@dataclass(frozen=True)
class HiddenContent:
    """A task as the probe asks it: the request and the head of a file in sight, and what should not come to anybody's mind."""

    task_id: str
    prompt: str
    names: frozenset[str]
    lines: frozenset[str]

    @property
    def empty(self) -> bool:
        return not self.names and not self.lines


def hidden_content(task: Task) -> HiddenContent:
    """Of one task: the reference's changed lines and all hidden texts are secret, less all that the agent can see."""
    sight = "\n".join([task.instruction, *task.files, *task.files.values()])
    hidden = [text for path, text in task.solution.items() if text != task.files.get(path)]
    hidden += [text for key, value in task.hidden.items() if key not in PROSE for text in _texts(value)]
    seen_names, seen_lines = set(_NAME.findall(sight)), {line.strip() for line in sight.splitlines()}
    names = {name for text in hidden for name in _NAME.findall(text)} - seen_names
    lines = {line.strip() for text in hidden for line in text.splitlines()} - seen_lines
    names = {name for name in names if not keyword.iskeyword(name) and not hasattr(builtins, name)}
    return HiddenContent(
        task.id, _prompt(task), frozenset(names), frozenset(line for line in lines if len(line) >= LEAST_LINE)
    )


def recalled_share(riddle: HiddenContent, answer: str) -> float:
    """Share of the riddle's secrets that an answer holds; names and lines count alike, each by its own share."""
    words, lines = set(_NAME.findall(answer)), {line.strip() for line in answer.splitlines()}
    shares = [len(riddle.names & words) / len(riddle.names)] if riddle.names else []
    shares += [len(riddle.lines & lines) / len(riddle.lines)] if riddle.lines else []
    return sum(shares) / len(shares)


def _prompt(task: Task) -> str:
    """The request, the paths, and the first half of a file that the reference changes, as it is in sight."""
    path = next((path for path in task.solution if path in task.files), next(iter(task.files), ""))
    lines = task.files.get(path, "").splitlines()
    head = "\n".join(lines[: max(1, len(lines) // 2)])
    listed = ", ".join(sorted(task.files)[:20])
    return f"Request: {task.instruction}\n\nFiles: {listed}\n\n{path} begins:\n{head}"


def _texts(value: object) -> Iterable[str]:
    """The texts in a JSON value; of what is none, its spelling."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    else:
        yield json.dumps(value)
