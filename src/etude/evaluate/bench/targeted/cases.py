"""Targeted tasks as data: `cases/<behaviour>.toml`, read into tasks.

about = "what the behaviour is"

[[tasks]]
id = "why-zero"                          # the task is <behaviour>/<id>
request = "..."
test = ["python", "check.py"]            # what the agent's test tool runs
calls = [["calc", "add", [1, 2], 3]]     # hidden calls: module, function, arguments, value
rubric = "answer"                        # rubrics/<name>.toml, where checks can't say
surroundings = "..."                     # joins the system prompt
[tasks.files]                            # "AGENTS.md" among them joins it too
"calc.py" = "..."
[tasks.long]                             # files of many lines: `line` with {n}, and other lines `at` some numbers
"a.log" = { lines = 80, line = "{n:03} idle", at = { 40 = "40 done" } }
[tasks.check]                            # see `checks`
untouched = true
[[tasks.interjections]]                  # see `rollout.interjection`
text = "..."
[tasks.scripts]                          # turns of scripted agents: `expert` must score 1, every other 0
expert = [[{ view = "calc.py" }], [{ done = "..." }]]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core import bounded_toml
from etude.core.trace.message import Message, ToolCall
from etude.evaluate.bench.targeted.checks import CHECKS
from etude.evaluate.bench.targeted.grader import NAME, TargetedGrader
from etude.rollout.attempt import Attempt, AttemptSetup, attempt
from etude.rollout.campaign import CampaignJob, run_campaign
from etude.rollout.settings import AttemptSettings
from etude.sandbox.protocol import Machines
from etude.tasks.task import Task

FOLDER = Path(__file__).parent / "cases"
RUBRICS = Path(__file__).parent / "rubrics"
_KEYS = frozenset(
    "id request test calls rubric surroundings files long check interjections scripts editable solution".split()
)


class CaseError(ValueError):
    """A case that can't be used; names it and what is wrong."""


def behaviours() -> list[str]:
    """The targeted evals that there are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def about(behaviour: str) -> str:
    """What it is about, in a sentence."""
    return str(_read(behaviour)["about"])


def harness(behaviour: str) -> dict[str, Any]:
    """The limits that its tasks pin."""
    return dict(_read(behaviour).get("harness", {}))


def cases(behaviour: str) -> list[Task]:
    """Its tasks. Raises CaseError."""
    return [_task(behaviour, row) for row in _read(behaviour)["tasks"]]


def scripts(task: Task) -> dict[str, ScriptedPolicy]:
    """The scripted agents of a task by name: `expert` behaves, each other one misbehaves in the way it is named for."""
    return {name: _scripted(name, turns) for name, turns in task.hidden.get("scripts", {}).items()}


@cache
def _read(behaviour: str) -> dict[str, Any]:
    path = FOLDER / f"{behaviour}.toml"
    if not path.is_file():
        raise CaseError(f"there is no targeted eval {behaviour!r}; there are {', '.join(behaviours())}")
    return bounded_toml.loads(path.read_text(encoding="utf-8"))


def _task(behaviour: str, row: dict[str, Any]) -> Task:
    place = f"{behaviour}/{row.get('id', '?')}"
    if strange := (set(row) - _KEYS) | ({"id", "request", "files", "check", "scripts"} - set(row)):
        raise CaseError(f"{place}: {min(strange)!r} is no key of a case, or missing")
    if strange := set(row["check"]) - set(CHECKS):
        raise CaseError(f"{place}: there is no check {min(strange)!r}; there are {', '.join(CHECKS)}")
    calls = [
        {"id": f"{module}.{function} {number}", "module": module, "function": function, "args": args, "want": want}
        for number, (module, function, args, want) in enumerate(row.get("calls", ()))
    ]
    test = tuple(row.get("test", ()))
    editable = row.get("editable", [path for path in row["files"] if path.endswith(".py") and path not in test])
    metadata: dict[str, Any] = {"editable": editable, "behaviour": behaviour}
    metadata |= {key: row[key] for key in ("surroundings", "interjections", "rubric") if key in row}
    hidden: dict[str, Any] = {"check": row["check"], "scripts": row["scripts"]} | ({"calls": calls} if calls else {})
    return Task(
        place, "targeted", behaviour, row["request"].strip(), {**row["files"], **_long(row)}, test, NAME, hidden,
        dict(row.get("solution", {})), "heldout", metadata,
    )  # fmt: skip


def _long(row: dict[str, Any]) -> dict[str, str]:
    files = {}
    for path, spec in row.get("long", {}).items():
        at = {int(number): text for number, text in spec.get("at", {}).items()}
        files[path] = "".join(f"{at.get(n, spec['line'].format(n=n))}\n" for n in range(1, spec["lines"] + 1))
    return files


def _scripted(name: str, turns: list[list[dict[str, Any]]]) -> ScriptedPolicy:
    """For one session. Rows `{ summary = "..." }` are what it says when it is asked to sum up, in order, the last one again."""
    summaries = [row["summary"] for rows in turns for row in rows if "summary" in row] or [""]
    left = [_turn(n, rows) for n, rows in enumerate(turns) if not any("summary" in row for row in rows)]

    def answer(request: Request) -> Message:
        if request.extra.get("summary"):
            return Message("assistant", summaries.pop(0) if len(summaries) > 1 else summaries[0])
        return left.pop(0) if left else Message("assistant", "nothing more")

    return ScriptedPolicy(answer, name=name)


def _turn(number: int, rows: list[dict[str, Any]]) -> Message:
    """`view`, `edit`, `test`, `shell`, `todo`, `grep`, `done`, and `say` for words without a call."""
    said = " ".join(row["say"] for row in rows if "say" in row)
    calls = [ToolCall(f"c{number}-{place}", *_call(row)) for place, row in enumerate(rows) if "say" not in row]
    return Message("assistant", said, calls=tuple(calls))


def _call(row: dict[str, Any]) -> tuple[str, dict[str, str]]:
    ((name, value),) = row.items()
    match name:
        case "edit":
            return name, dict(zip(("path", "old", "new"), value, strict=True))
        case "test":
            return name, {}
        case _:
            return name, {
                {"view": "path", "grep": "pattern", "shell": "command", "todo": "text", "done": "message"}[name]: value
            }


# Does a targeted task measure what it says? Its scripted expert must score 1; every script that misbehaves in just
# one way, and one that does nothing, must score 0. Real attempts: the harness, a sandbox, the grader.


EXPERT, NOP = "expert", "nop"


async def play(task: Task, name: str, pool: Machines, harness: HarnessSettings) -> Attempt:
    """One attempt by a scripted agent of the task, or by the one that does nothing."""
    done = Message("assistant", calls=(ToolCall("c0", "done", {"message": "fixed"}),))
    policy = ScriptedPolicy([done] * 4, name=NOP) if name == NOP else scripts(task)[name]
    setup = AttemptSetup(policy, pool, {NAME: TargetedGrader()}, harness, settings=AttemptSettings())
    return await attempt(task, setup, name=f"{task.id}#{name}", seed=0)


async def unsound(tasks: Sequence[Task], pool: Machines, harness: HarnessSettings) -> list[str]:
    """What is wrong, in words; empty if all tasks measure what they say. Raises InfraFault."""
    jobs = [CampaignJob(f"{task.id}#{name}", (task, name)) for task in tasks for name in (*scripts(task), NOP)]
    found: dict[str, str] = {}

    async def make_attempt(job: CampaignJob[tuple[Task, str]]) -> Attempt:
        return await play(*job.work, pool, harness)

    def keep(job: CampaignJob[tuple[Task, str]], made: Attempt) -> None:
        (task, name), verdict = job.work, made.verdict
        expected = float(name == EXPERT)
        if verdict.score != expected:
            reason = verdict.reason or verdict.tests
            found[job.key] = f"{task.id}: {name} scores {verdict.score:g}, not {expected:g}: {reason}"

    summary = await run_campaign(jobs, make_attempt, append=keep, workers=4)
    for fault in summary.faults.values():
        raise fault
    return [found[job.key] for job in jobs if job.key in found]
