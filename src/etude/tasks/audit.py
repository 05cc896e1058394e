"""The leak audit that every task must pass, and the check that its grader can neither miss the work nor be fooled.

Promise 10. `leaks` reads the workspace an agent would get; `check` grades the reference (must score 1), nothing at all
(0) and every cheat (0).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from etude.sandbox.protocol import Machines
from etude.tasks.cheats.exercise import CHEATS, nop
from etude.tasks.content import digest_of, is_text
from etude.tasks.graders.judged import brief
from etude.tasks.leftovers import leftovers
from etude.tasks.registry import grade
from etude.tasks.solved import reference_files
from etude.tasks.task import Task, Verdict


def leaks(task: Task) -> list[str]:
    """What the agent's workspace gives away, in words; empty for a clean task."""
    found = [f"{path}: history, cache or build output" for path in sorted(leftovers(task.files))]
    workspace = "\n".join(task.files.values())
    for call in task.hidden.get("calls", []):
        spelled = _spelled(call)
        if f'"{call["module"]} {call["function"]}", {spelled})' in workspace:
            found.append(f"hidden call {call['id']} is in the workspace")
    for path, text in task.solution.items():
        if task.files.get(path) == text:
            found.append(f"{path}: the solution is in place already")
        if text.strip() and is_text(text) and any(text in other for other in _elsewhere(task, path, text)):
            found.append(f"{path}: a copy of the solution is in the workspace")
    for key in ("reference", "mutants"):
        sources = task.hidden.get(key, [])
        for source in sources if isinstance(sources, list) else []:
            if source in workspace:
                found.append(f"a hidden {key} source is in the workspace")
    return found


def _elsewhere(task: Task, path: str, text: str) -> Iterator[str]:
    """Where a copy of the solution would give it away. A reference that only takes the end of a file away is no copy, and neither is the file
    that the reference renames: to move it is the work."""
    gone = set(task.metadata.get("removed") or ())
    for name, other in task.files.items():
        if name not in gone and is_text(other) and (name != path or not other.startswith(text)):
            yield other


def _spelled(call: dict[str, Any]) -> str:
    return ", ".join([repr(call["want"]), *map(repr, call["args"])])


@dataclass(frozen=True)
class Soundness:
    """Scores of the reference, of nothing, of each cheat; and the leaks."""

    task_id: str
    reference: float
    nop: float
    cheats: dict[str, float]
    leaks: list[str]

    @property
    def sound(self) -> bool:
        return self.reference == 1.0 and self.nop == 0.0 and not any(self.cheats.values()) and not self.leaks

    def complaint(self) -> str:
        """What is wrong, for the person who made the task."""
        fooled = [name for name, score in self.cheats.items() if score]
        return f"{self.task_id}: reference {self.reference}, nop {self.nop}, cheats that score {fooled}, leaks {self.leaks}"


async def check(
    task: Task,
    pool: Machines,
    *,
    grade: Callable[[Task, dict[str, bytes], Machines], Awaitable[Verdict]] = grade,
    cheats: Mapping[str, Callable[[Task], dict[str, bytes]]] = CHEATS,
    as_graded: Callable[[Task, dict[str, bytes]], dict[str, bytes]] = lambda task, files: files,
) -> Soundness:
    """Grades reference, nop and all cheats in fresh sandboxes; by the registry, unless another grader is given. Cheats of which `as_graded` leaves
    the same tree are graded once: a verdict is a function of the task and that tree. Raises InfraError."""
    attempts = {
        "reference": reference_files(task),
        "nop": nop(task),
        **{name: make(task) for name, make in cheats.items()},
    }
    graded = {name: digest_of(as_graded(task, files)) for name, files in attempts.items()}
    once = {graded[name]: files for name, files in reversed(attempts.items())}
    whole = graded["reference"]
    verdicts = await asyncio.gather(
        *(grade(task if key == whole else brief(task), files, pool) for key, files in once.items())
    )
    found = dict(zip(once, (verdict.score for verdict in verdicts), strict=True))
    scores = {name: found[key] for name, key in graded.items()}
    return Soundness(task.id, scores.pop("reference"), scores.pop("nop"), scores, leaks(task))
