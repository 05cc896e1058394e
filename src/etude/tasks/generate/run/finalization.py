"""The last step before a task is taken: its three prompts, their checks, the choice of one of them, and the leak
audits.

A generator that gives `metadata["facts"]` has its prompts written here and replaced whatever it used during the proof.
One that gives only `metadata["prompts"]` wrote them itself. Both kinds are checked. A task is rejected if a prompt
gives the solution away, or if its full prompt lacks a name that the tests need.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from etude.agent.policy.protocol import Policy, PolicyError
from etude.core.trace.completion import Usage
from etude.sandbox.errors import InfraError
from etude.sandbox.protocol import SandboxPool
from etude.tasks.audit import leaks
from etude.tasks.auditing.secrecy import require_secret
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject
from etude.tasks.generate.prompts.checks import needed_names, objections, words
from etude.tasks.generate.prompts.facts import KEY, Facts, facts_of
from etude.tasks.generate.prompts.interface import with_interface
from etude.tasks.generate.prompts.writer import write_prompts
from etude.tasks.generate.prompts.writing import STYLES, Style, template_prompts
from etude.tasks.generate.protocols import FinalizeFunction
from etude.tasks.generate.sources.workspaces import concerned_workspaces, workspaces
from etude.tasks.task import Task

# Shares of the styles. Most requests that people type are terse (Composer 2 technical report: median prompt 390 characters).
SHARES: dict[Style, float] = {"terse": 0.5, "ambiguous": 0.2, "full": 0.3}


async def finalize_task(
    task: Task,
    project: InstalledProject,
    writer: Policy | None = None,
    dollars: Callable[[Usage], float | None] = lambda usage: None,
) -> Task:
    """The task with its prompts. `writer`: a policy that words the prompts of tasks with facts instead of the rules.

    Raises CandidateRejected, and InfraError where the writer is unavailable.
    """
    task = _with_workspaces(task, project)
    facts = facts_of(task.metadata)
    if writer is not None and facts is not None:
        prompts, metadata = await _write_prompts(task, facts, writer, dollars)
        task = replace(task, metadata={**task.metadata, **metadata})
    else:
        prompts = rule_prompts(task)
    if complaints := objections(task, prompts):
        raise CandidateRejected(f"its prompts: {'; '.join(complaints[:3])}")
    style = draw_style(task, prompts)
    task = replace(
        task, instruction=prompts[style], metadata={**task.metadata, "prompts": dict(prompts), "style": style}
    )
    if leaked := leaks(task):
        raise CandidateRejected(f"it leaks: {'; '.join(leaked[:3])}")
    return task


def _with_workspaces(task: Task, project: InstalledProject) -> Task:
    """In a project of several workspaces, records which of them the task is about.

    The prompts name the workspace if the reference changes only one.
    """
    folders = workspaces(project.files)
    found = concerned_workspaces([*task.solution, *task.metadata.get("removed", ())], folders)
    if not found:
        return task
    added: dict[str, Any] = {"workspaces": found}
    facts = facts_of(task.metadata)
    if facts is not None and len(found) == 1 and found[0] not in f"{facts.headline} {facts.place}":
        place = f"`{found[0]}`, one of the {len(folders)} workspaces{f': {facts.place}' if facts.place else ''}"
        added[KEY] = replace(facts, place=place).to_record()
    return replace(task, metadata={**task.metadata, **added})


async def _write_prompts(
    task: Task, facts: Facts, writer: Policy, dollars: Callable[[Usage], float | None]
) -> tuple[dict[str, str], dict[str, Any]]:
    try:
        prompts = await write_prompts(task, facts, writer)
    except PolicyError as error:
        raise InfraError(f"the prompt writer is unavailable: {error}") from error
    dollars_by_call = [dollars(usage) for usage in prompts.usages]
    tokens = sum(usage.input_tokens + usage.output_tokens for usage in prompts.usages)
    cost: dict[str, Any] = {"tokens": tokens}
    if all(amount is not None for amount in dollars_by_call):
        cost["dollars"] = round(sum(amount or 0.0 for amount in dollars_by_call), 6)
    return prompts.prompts, {"prompts_by": prompts.by, "cost": cost}


def rule_prompts(task: Task) -> dict[str, str]:
    """The prompts written from the generator's facts; without facts, the generator's own prompts."""
    facts = facts_of(task.metadata)
    if facts is not None:
        return {
            str(style): text
            for style, text in template_prompts(task.category, with_interface(task, facts), task.id).items()
        }
    prompts = task.metadata.get("prompts")
    if isinstance(prompts, Mapping) and all(prompts.get(style) for style in STYLES):
        return {style: str(prompts[style]) for style in STYLES}
    raise CandidateRejected(
        f"its generator {task.metadata.get('generator', '?')} gave neither metadata.facts nor all of metadata.prompts"
    )


def draw_style(task: Task, prompts: Mapping[str, str]) -> Style:
    """Draws the style by the task's id.

    A short prompt is excluded if it lacks a name that hidden tests need or that the generator requires
    (`metadata.must_say`: the place that something moves to).
    """
    needed = needed_names(task) | frozenset(task.metadata.get("must_say", ()))
    eligible: list[Style] = [style for style in STYLES if style == "full" or needed <= words(prompts[style])]
    return random.Random(f"style {task.id}").choices(eligible, [SHARES[style] for style in eligible])[0]


def with_leak_search(finish: FinalizeFunction, pool: SandboxPool) -> FinalizeFunction:
    """Also searches the task's sandbox, as an agent gets it, for its reference and hidden tests. Rejects a task whose
    sandbox holds its answer.

    A search takes about a second. Generators that prove a change search before the expensive part of the proof. The
    others do not, and the prompts are new since.
    """

    async def finalize(task: Task, project: InstalledProject) -> Task:
        done = await finish(task, project)
        await require_secret(done, pool)
        return done

    return finalize
