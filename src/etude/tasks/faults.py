"""THE table of what is the policy's fault (score 0) and what is ours (tried again, never scored), for everything that can end a grading.

An attempt must not gain by breaking its environment so that it is dropped or retried: a run that dies in a way that both could have caused
is `doubtful`, and decided by a control: the reference is graded at once in a sandbox of its own. If the reference passes, the machine is
well, and the result of the attempt's second run is its verdict; if not, it is ours. `tests/tasks/test_tasks_faults.py` has one test a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from etude.tasks.running.testrun import RunReport

Fault = Literal["policy", "infra", "doubtful"]


@dataclass(frozen=True)
class FaultRow:
    """`sign`: by what it is known. `verdict`: the verdict of the attempt."""

    name: str
    fault: Fault
    sign: str
    verdict: str


TABLE: tuple[FaultRow, ...] = (
    FaultRow(
        "hangs",
        "policy",
        "the time limit, ten times the reference's own, is over",
        "the tests took longer than {s:.0f} s",
    ),
    FaultRow("refused", "policy", "the sandbox refuses the files: too large, too many, bad names", "{objection}"),
    FaultRow(
        "memory", "policy", "the run was killed for memory, and the reference needs less", "the tests ran out of memory"
    ),
    FaultRow(
        "silenced",
        "doubtful",
        "what runs the tests was killed, or could not start",
        "the code ended what runs its tests",
    ),
    FaultRow("forged", "policy", "an event without the right digest", "{objection}"),
    FaultRow("tampered", "policy", "a part of the runner is another object than at its start", "{objection}"),
    FaultRow("canary", "policy", "a test that must fail did not", "{objection}"),
    FaultRow("pytest 2", "policy", "pytest ended with 2: files could not be collected", "{objection}"),
    FaultRow("pytest 4", "policy", "pytest ended with 4: a named file is gone", "{objection}"),
    FaultRow("pytest 5", "policy", "pytest ended with 5: no test found", "{objection}"),
    FaultRow("pytest 3", "doubtful", "pytest ended with 3: an error of its own", "pytest itself broke on the code"),
    FaultRow(
        "pytest >5", "doubtful", "a status that pytest does not give, or death by a signal", "the tests' process died"
    ),
    FaultRow("early end", "policy", "the session's end was not reported", "{objection}"),
    FaultRow("no report", "policy", "the runner wrote none, or one that does not parse", "{objection}"),
    FaultRow(
        "unbuilt",
        "policy",
        "the runner ended with a failure and reported no test",
        "the tests did not run (status {rc})",
    ),
    FaultRow("reward", "policy", "a reward file that is no finite number, or too large", "{objection}"),
    FaultRow("machine", "infra", "InfraError: the sandbox could not be made, or died with its host", "tried again"),
    FaultRow("environment", "infra", "the snapshot, image or pinned runner of the task is missing", "tried again"),
)
ROWS = {row.name: row for row in TABLE}


def fault_of(ran: RunReport, kind: str = "pytest") -> FaultRow | None:
    """The row of a run that can't be judged by its tests; None for one that can."""
    if ran.run.timed_out:
        return ROWS["hangs"]
    if ran.silent:
        return ROWS["memory" if ran.oom else "silenced"]
    if ran.honest:
        return None if ran.run.passed or ran.run.failed else ROWS["unbuilt"]
    objection, rc = ran.objection, ran.run.rc
    if objection.startswith(("the files were refused", "no report: ")):
        return ROWS["refused"]
    if objection.startswith("the results were written by"):
        return ROWS["forged"]
    if objection.startswith("the runner was tampered"):
        return ROWS["tampered"]
    if "must fail" in objection or "must pass" in objection:
        return ROWS["canary"]
    if "report" in objection:
        return ROWS["no report"]
    if kind == "pytest" and rc in (2, 3, 4, 5):
        return ROWS[f"pytest {rc}"]
    if kind == "pytest" and (rc > 5 or rc < 0):
        return ROWS["pytest >5"]
    return ROWS["early end"]


def fault_reason(row: FaultRow, ran: RunReport) -> str:
    """The row's verdict on this run."""
    return row.verdict.format(s=ran.run.seconds, rc=ran.run.rc, objection=ran.objection or "the run can't be believed")
