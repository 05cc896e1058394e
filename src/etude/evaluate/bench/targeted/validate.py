"""Does a targeted task measure what it says? Its scripted expert must score 1; every script that misbehaves in just one way, and one that
does nothing, must score 0. Real attempts: the harness, a sandbox, the grader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.message import Message, ToolCall
from etude.evaluate.bench.targeted.cases import scripts
from etude.evaluate.bench.targeted.grader import NAME, TargetedGrader
from etude.rollout.attempt import Attempt, AttemptSetup, attempt
from etude.rollout.settings import AttemptSettings
from etude.sandbox.protocol import Machines
from etude.tasks.task import Task

EXPERT, NOP = "expert", "nop"


async def play(task: Task, name: str, pool: Machines, harness: HarnessSettings) -> Attempt:
    """One attempt by a scripted agent of the task, or by the one that does nothing."""
    done = Message("assistant", calls=(ToolCall("c0", "done", {"message": "fixed"}),))
    policy = ScriptedPolicy([done] * 4, name=NOP) if name == NOP else scripts(task)[name]
    setup = AttemptSetup(policy, pool, {NAME: TargetedGrader()}, harness, settings=AttemptSettings())
    return await attempt(task, setup, name=f"{task.id}#{name}", seed=0)


async def unsound(tasks: Sequence[Task], pool: Machines, harness: HarnessSettings) -> list[str]:
    """What is wrong, in words; empty if all tasks measure what they say. Raises InfraFault."""
    jobs = [(task, name) for task in tasks for name in (*scripts(task), NOP)]
    slots = asyncio.Semaphore(4)

    async def one(task: Task, name: str) -> str:
        async with slots:
            made = await play(task, name, pool, harness)
        wanted = float(name == EXPERT)
        said = f"{task.id}: {name} scores {made.verdict.score:g}, not {wanted:g}: {made.verdict.reason or made.verdict.tests}"
        return "" if made.verdict.score == wanted else said

    return [said for said in await asyncio.gather(*(one(*job) for job in jobs)) if said]
