"""The one place where a grader is asked, and where whatever it raises becomes a verdict or a fault of that attempt (promise 8).

A grader reads what an agent left. An exception that it did not foresee is either the agent's doing or a defect of grader or task, and the
control says which: the grader is asked about the task's own files, untouched. Where that works, what the agent left made the grader fail, and
the attempt has a score of 0 with the reason. Where it fails as well, no attempt can be judged, and the task is reported as defective.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace

from etude.core.trace.session import Session
from etude.core.trace.unicode import is_whole, whole
from etude.sandbox.errors import InfraError, SandboxError
from etude.sandbox.protocol import Machines
from etude.tasks.errors import TaskDefective
from etude.tasks.task import Grader, SessionGrader, Task, Verdict

Grade = Callable[[dict[str, bytes]], Awaitable[Verdict]]


async def graded(
    grader: Grader, task: Task, files: dict[str, bytes], pool: Machines, session: Session | None = None
) -> Verdict:
    """The verdict on an attempt's final files. Raises InfraError and TimeoutError, and nothing else."""
    if session is not None and isinstance(grader, SessionGrader):
        by_session: SessionGrader = grader
        return await verdict_of(task, files, lambda left: by_session.grade_session(task, left, session, pool))
    return await verdict_of(task, files, lambda left: grader.grade(task, left, pool))


async def verdict_of(task: Task, files: dict[str, bytes], grade: Grade) -> Verdict:
    """As `graded`, of any way to judge a task's files."""
    try:
        return _checked(await grade(files))
    except (InfraError, TimeoutError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends this attempt at most
        await _possible(task, grade, error)
        return Verdict(0.0, reason=f"grader {task.grader} can't judge what the attempt left: {describe_error(error)}")


def _checked(verdict: Verdict) -> Verdict:
    """Reasons and tests name an agent's files, and a name need not be text. Raises ValueError for a score that is no number from 0 to 1."""
    if not isinstance(verdict, Verdict):  # pyright: ignore[reportUnnecessaryIsInstance] - a grader by import path may return anything
        raise TypeError(f"it gave {type(verdict).__name__}; a grader gives a Verdict (etude.tasks.task)")
    if not 0.0 <= verdict.score <= 1.0:  # false of NaN, too
        raise ValueError(f"it gave the score {verdict.score!r}; a score is a number from 0 to 1")
    if is_whole(verdict.reason) and all(map(is_whole, verdict.tests)):
        return verdict
    return replace(verdict, reason=whole(verdict.reason), tests=whole(verdict.tests))


async def _possible(task: Task, grade: Grade, error: Exception) -> None:
    """Raises InfraError where the task's own files can't be graded either."""
    try:
        _checked(await grade({path: text.encode() for path, text in task.files.items()}))
    except (InfraError, TimeoutError):
        raise
    except Exception as control:  # noqa: BLE001 - the same, of the control
        raise TaskDefective(
            f"task {task.id}: grader {task.grader} fails on the task's own files ({describe_error(control)}); before that, on what an attempt "
            f"left: {describe_error(error)}. Mend or remove the task: etude tasks check"
        ) from error


def describe_error(error: BaseException) -> str:
    """Kind, words and place of an exception, in a line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    words = whole(" ".join(str(error).split())[:300])
    bare = isinstance(error, SandboxError)  # says of itself what is wrong
    return (
        words
        if bare and words
        else f"{type(error).__name__}: {words}{place}"
        if words
        else f"{type(error).__name__}{place}"
    )
