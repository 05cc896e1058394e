"""The last step before a task is taken: its three prompts, their checks, which of them it asks by, and the static leak audit.

A generator that gives `metadata["facts"]` has its prompts written here, whatever stood in for them while the task was proved; one that gives
`metadata["prompts"]` alone wrote them itself. Either
way they are checked, and a task whose prompts give the solution away, or whose full prompt leaves out a name that the tests need, is none.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from etude.agent.policy.protocol import Policy, PolicyError
from etude.core.trace.completion import Usage
from etude.sandbox.errors import InfraError
from etude.tasks.audit import leaks
from etude.tasks.generate.generator import Installed
from etude.tasks.generate.prompts.checks import needed_names, objections, words
from etude.tasks.generate.prompts.facts import KEY, Facts, facts_of
from etude.tasks.generate.prompts.interface import with_interface
from etude.tasks.generate.prompts.writer import worded
from etude.tasks.generate.prompts.writing import STYLES, Style, written
from etude.tasks.generate.sources.workspaces import concerned, workspaces
from etude.tasks.proof import LeftOut
from etude.tasks.task import Task

# How often a task asks by each: most of what people type is terse (Composer 2 technical report: median prompt 390 characters).
SHARES: dict[Style, float] = {"terse": 0.5, "ambiguous": 0.2, "full": 0.3}


async def finish(
    task: Task,
    project: Installed,
    writer: Policy | None = None,
    dollars: Callable[[Usage], float | None] = lambda usage: None,
) -> Task:
    """`writer`: a policy that words the prompts of tasks with facts, in the rules' stead. Raises LeftOut, and InfraError where the writer is
    gone."""
    task = _placed(task, project)
    facts = facts_of(task.metadata)
    if writer is not None and facts is not None:
        prompts, told = await _worded(task, facts, writer, dollars)
        task = replace(task, metadata={**task.metadata, **told})
    else:
        prompts = prompts_of(task)
    if wrong := objections(task, prompts):
        raise LeftOut(f"its prompts: {'; '.join(wrong[:3])}")
    style = style_of(task, prompts)
    task = replace(
        task, instruction=prompts[style], metadata={**task.metadata, "prompts": dict(prompts), "style": style}
    )
    if found := leaks(task):
        raise LeftOut(f"it leaks: {'; '.join(found[:3])}")
    return task


def _placed(task: Task, project: Installed) -> Task:
    """Of a project of several workspaces, which of them the task is about: in its metadata, and told where its reference is in one alone."""
    folders = workspaces(project.files)
    found = concerned([*task.solution, *task.metadata.get("removed", ())], folders)
    if not found:
        return task
    told: dict[str, Any] = {"workspaces": found}
    facts = facts_of(task.metadata)
    if facts is not None and len(found) == 1 and found[0] not in f"{facts.headline} {facts.place}":
        place = f"`{found[0]}`, one of the {len(folders)} workspaces{f': {facts.place}' if facts.place else ''}"
        told[KEY] = replace(facts, place=place).told()
    return replace(task, metadata={**task.metadata, **told})


async def _worded(
    task: Task, facts: Facts, writer: Policy, dollars: Callable[[Usage], float | None]
) -> tuple[dict[str, str], dict[str, Any]]:
    try:
        found = await worded(task, facts, writer)
    except PolicyError as error:
        raise InfraError(f"who words the prompts can't be asked: {error}") from error
    paid = [dollars(usage) for usage in found.usages]
    tokens = sum(usage.input_tokens + usage.output_tokens for usage in found.usages)
    cost: dict[str, Any] = {"tokens": tokens}
    if all(one is not None for one in paid):
        cost["dollars"] = round(sum(one or 0.0 for one in paid), 6)
    return found.prompts, {"prompts_by": found.by, "cost": cost}


def prompts_of(task: Task) -> dict[str, str]:
    """Written from the generator's facts; where it gives none, what it wrote itself."""
    facts = facts_of(task.metadata)
    if facts is not None:
        return {
            str(style): text for style, text in written(task.category, with_interface(task, facts), task.id).items()
        }
    own = task.metadata.get("prompts")
    if isinstance(own, Mapping) and all(own.get(style) for style in STYLES):
        return {style: str(own[style]) for style in STYLES}
    raise LeftOut(
        f"its generator {task.metadata.get('generator', '?')} gave neither metadata.facts nor all of metadata.prompts"
    )


def style_of(task: Task, prompts: Mapping[str, str]) -> Style:
    """Drawn by the task's id; a short prompt that lacks a name which hidden tests need, or which the generator says must be told
    (`metadata.must_say`: the place that something moves to), is out of the draw."""
    needed = needed_names(task) | frozenset(task.metadata.get("must_say", ()))
    able: list[Style] = [style for style in STYLES if style == "full" or needed <= words(prompts[style])]
    return random.Random(f"style {task.id}").choices(able, [SHARES[style] for style in able])[0]
