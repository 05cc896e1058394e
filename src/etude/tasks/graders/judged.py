"""What is graded of an attempt's files, and what a run of its tests says of them: pure, and the same here and in an exported directory
(`export/here.py`), which carries these modules with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from etude.tasks.content import laid_over
from etude.tasks.faults import FaultRow, fault_of, fault_reason
from etude.tasks.protected import is_protected
from etude.tasks.running.testrun import RunReport, Tests

if TYPE_CHECKING:
    from etude.tasks.task import Task

MAX_FILE_BYTES = 4 << 20
XFAILED = "expected_to_fail"  # in the hidden part: names that fail by their own marker once the work is done, and count as passed then
BRIEF = "brief"  # in the hidden part of a task whose score alone is asked for
FEWEST_S, TIMES = 60.0, 10.0  # what hangs is cut off at ten times the reference's own time, a minute at least


def limit_s(seconds: float) -> float:
    """Of a run of the tests that takes the reference so long."""
    return max(FEWEST_S, TIMES * float(seconds))


@dataclass(frozen=True)
class AttemptJudgement:
    """`tests`: the expected ones by name; `reason`: why the attempt doesn't count, empty if it does; `fault`: the row of the table of faults
    for a run that can't be judged by its tests."""

    tests: dict[str, bool]
    reason: str
    fault: FaultRow | None = None


def tests_to_grade(hidden: Mapping[str, Any]) -> Tests:
    """What grading runs, by the hidden part of a task."""
    needed = frozenset((*hidden["fail_to_pass"], *hidden["pass_to_pass"])) if hidden.get(BRIEF) else frozenset()
    return Tests(tuple(hidden["tests"]), tuple(hidden["command"]), hidden.get("runner", ""), needed)


def brief(task: Task) -> Task:
    """The same task for one who asks for the score alone: a run ends at the first expected test that does not pass."""
    return replace(task, hidden={**task.hidden, BRIEF: True})


def judge_hidden_tests(hidden: Mapping[str, Any], ran: RunReport) -> AttemptJudgement:
    """By the hidden part of a task alone: only expected names count, skipped or missing is failed."""
    names = [*hidden["fail_to_pass"], *hidden["pass_to_pass"]]
    row = fault_of(ran, tests_to_grade(hidden).kind)
    if row is not None:
        return AttemptJudgement(dict.fromkeys(names, False), fault_reason(row, ran), row)
    good = ran.run.passed | (ran.run.xfailed & frozenset(hidden.get(XFAILED, ())))
    found = {name: ran.honest and name in good for name in names}
    return AttemptJudgement(found, objection(ran, found, len(hidden["fail_to_pass"]), hidden.get("universal", ())))


def graded_files(task: Task, files: dict[str, bytes]) -> dict[str, bytes]:
    """What the tests run on: the agent's sources, the base's tests and settings, the reference's tests over them. What the agent left in
    the way of a protected file, such as a link in the place of its folder, is not graded."""
    graded = {path: data for path, data in files.items() if not is_protected(path) and len(data) <= MAX_FILE_BYTES}
    graded = laid_over(graded, {path: text.encode() for path, text in task.files.items() if is_protected(path)})
    for path in task.hidden["removed"]:
        graded.pop(path, None)
    return laid_over(graded, {path: text.encode() for path, text in task.hidden["files"].items()})


def objection(ran: RunReport, found: dict[str, bool], telling: int, universal: Collection[str]) -> str:
    """Why the attempt doesn't count; empty if it does. The first `telling` names are those that the change makes pass; `universal`: the
    classes equal to anything that the reference has too."""
    if not ran.run.passed:
        return f"the tests did not run, or none passed (status {ran.run.rc})"
    if added := [name for name in ran.universal if name not in universal]:
        return f"objects of {added[0]} are equal to anything whatever: comparisons with them say nothing"
    for number, (name, good) in enumerate(found.items()):
        if not good:
            return f"{'not done' if number < telling else 'broke something else'}: failed {name}"
    return "" if telling else "no test shows the change"
