"""What a probe asks of a task, and how an answer is scored. Pure.

continuation   the reference's longest run of new lines: its head is shown, the share of the rest that comes back word for word is the score
paths          the request without the repository: the share of the changed files that are named

Only telling lines count (long enough, nowhere in sight), so that what every programmer would write next says nothing.
"""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from etude.tasks.protected import is_protected
from etude.tasks.task import Task

Probe = Literal["continuation", "paths"]
PROBES: tuple[Probe, ...] = get_args(Probe)
TELLING = 20  # characters of a stripped line; shorter ones are guessed by everybody
LEAST_LINES = 3  # telling lines that have to be left for an answer to say anything
HEAD = 1 / 3  # of the run of new lines that is shown
CONTEXT = 60  # lines before it


@dataclass(frozen=True)
class ContaminationQuestion:
    """`wanted`: lines, or paths, that an answer is looked through for."""

    task_id: str
    probe: Probe
    prompt: str
    wanted: tuple[str, ...]

    def score(self, answer: str) -> float:
        """The share of what was wanted that the answer holds."""
        return score_answer(self.probe, self.wanted, answer)


def score_answer(probe: Probe, wanted: Sequence[str], answer: str) -> float:
    named = {line.strip() for line in answer.splitlines()}
    if probe == "paths":
        named = {posixpath.normpath(line.strip("`-*• ")) for line in named}
    return sum(one in named for one in wanted) / len(wanted)


def questions(task: Task) -> list[ContaminationQuestion]:
    """Those that the task allows: a reference of a line or two has nothing to continue."""
    found = [continuation(task), paths(task)]
    return [one for one in found if one is not None]


def continuation(task: Task) -> ContaminationQuestion | None:
    best: tuple[str, list[str], list[str], list[str]] | None = None
    for path, after in task.solution.items():
        for before, shown, hidden in _runs(task.files.get(path, ""), after):
            wanted = _telling(hidden, "\n".join([*task.files.values(), task.instruction, *shown]))
            if best is None or len(wanted) > len(best[3]):
                best = path, before, shown, wanted
    if best is None or len(best[3]) < LEAST_LINES:
        return None
    path, before, shown, wanted = best
    text = "\n".join([*before[-CONTEXT:], *shown])
    return ContaminationQuestion(task.id, "continuation", f"{_project(task)}, file {path}\n\n{text}\n", tuple(wanted))


def paths(task: Task) -> ContaminationQuestion | None:
    """Without an origin there is nothing to remember; paths that the request itself names say nothing."""
    known = task.instruction
    changed = [path for path in {**task.solution} if not is_protected(path) and path not in known]
    if not changed or not _project(task):
        return None
    return ContaminationQuestion(task.id, "paths", f"{_project(task)}\n\n{task.instruction}", tuple(changed))


def _runs(before: str, after: str) -> Iterable[tuple[list[str], list[str], list[str]]]:
    """Of each run of new lines: the file up to it, its head, its rest."""
    old, new = before.splitlines(), after.splitlines()
    for tag, _, _, low, high in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag in ("insert", "replace"):
            cut = low + max(1, round((high - low) * HEAD))
            yield new[:low], new[low:cut], new[cut:high]


def _telling(lines: list[str], sight: str) -> list[str]:
    seen = {line.strip() for line in sight.splitlines()}
    return list(
        dict.fromkeys(line.strip() for line in lines if len(line.strip()) >= TELLING and line.strip() not in seen)
    )


def _project(task: Task) -> str:
    return str(task.metadata.get("project", ""))
