"""Foreign tasks become a folder of tasks: each shown to be sound where it can be run here, all others named with the reason.

    OUT/tasks/<id>/       one Harbor directory a task
    OUT/imported.json     what was asked, which tasks were taken, and why others were not

Work that was killed goes on where it was (`validation/suite_build.py`). The folder appears whole or not at all. The same import again, once it is
there, answers from its report.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from etude.sandbox.protocol import Machines
from etude.tasks.errors import TaskError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.graders.script import ScriptGrader, sound
from etude.tasks.importers.terminal import in_image
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate, SuiteBuild, SuiteDecision, make_tasks, remove_build_files

REPORT = "imported.json"
Progress = Callable[[int, int, SuiteDecision], None]


@dataclass(frozen=True)
class Imported:
    """`taken`: ids; `left_out`: reasons, by id, row or folder."""

    folder: Path
    taken: tuple[str, ...]
    left_out: Mapping[str, str]


async def import_tasks(
    candidates: Sequence[Candidate],
    out: Path,
    settings: dict[str, Any],
    left_out: Mapping[str, str],
    progress: Progress = lambda done, whole, last: None,
    *,
    count: int | None = None,
    concurrency: int = 2,
) -> Imported:
    """Raises TaskError for a folder that is there already, unless the same import made it, and where nothing could be taken; InfraError."""
    if (done := _finished(out, settings)) is not None:
        remove_build_files(out)
        return done
    if out.exists():
        raise TaskError(f"{out} exists already: give another --out, or remove it first")
    workshop = SuiteBuild(out, settings)
    tasks, decided = await make_tasks(candidates, workshop, count=count, concurrency=concurrency, progress=progress)
    reasons = {**left_out, **{word.id: word.reason for word in decided if word.reason}}
    if not tasks:
        first = next((f"; {name}: {reason}" for name, reason in reasons.items()), "")
        raise TaskError(f"nothing could be imported, {len(reasons)} left out{first}")
    report = {"asked": settings, "taken": [task.id for task in tasks], "left_out": reasons}
    text = json.dumps(report, indent=1, ensure_ascii=False, default=str) + "\n"
    (workshop.folder / REPORT).write_text(text, encoding="utf-8", errors="backslashreplace")
    workshop.folder.rename(out)
    remove_build_files(out)
    return Imported(out, tuple(report["taken"]), reasons)


def _finished(out: Path, settings: dict[str, Any]) -> Imported | None:
    """What the same import left in `out`; None where it did not end, or another made the folder."""
    try:
        report = json.loads((out / REPORT).read_text(encoding="utf-8"))
        same = report["asked"] == json.loads(json.dumps(settings, default=str))
        return Imported(out, tuple(report["taken"]), dict(report["left_out"])) if same else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def foreign_candidates(tasks: Sequence[Task], images: Mapping[str, str], pool: Machines) -> list[Candidate]:
    """In the order given. A task without an image is reported with the one it needs, never run in another."""
    return [Candidate(task.id, _builder(task, images, pool)) for task in tasks]


def _builder(task: Task, images: Mapping[str, str], pool: Machines) -> Callable[[], Any]:
    async def build() -> Task:
        image = next((name for glob, name in images.items() if fnmatchcase(task.id, glob)), "")
        if not image:
            raise CandidateRejected(
                f"it runs in an image of its own ({task.metadata['image']}), which is not built or fetched here: make it with "
                f"`etude sandbox image add` or `build`, and name it with --image '{task.id}=IMAGE'"
            )
        placed = in_image(task, image)
        return await sound(replace(placed, metadata={**placed.metadata, "checked": True}), ScriptGrader(), pool)

    return build
