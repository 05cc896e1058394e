"""From what a generator found to a task: metadata as the contract says, three prompts, and the proof that its grader can't be fooled."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.tasks.audit import check
from etude.tasks.cheats.repository import cheats_for
from etude.tasks.environment.environment import KEY as ENVIRONMENT
from etude.tasks.environment.workspace import OVERLAY, overlay
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.prompts.facts import KEY, Facts
from etude.tasks.generate.prompts.writing import template_prompts
from etude.tasks.running.testrun import Tests, visible_command
from etude.tasks.task import Task


@dataclass(frozen=True)
class ProjectTaskDraft:
    """A task to be. `demand`: what every prompt must say, the short ones too (where the result is expected, in which form)."""

    id: str
    category: str
    level: str
    generator: str
    grader: str
    facts: Facts
    demand: str
    files: Mapping[str, str]  # the agent's workspace
    solution: Mapping[str, str]
    hidden: dict[str, Any]
    editable: tuple[str, ...]
    operators: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


async def prove_draft_task(draft: ProjectTaskDraft, project: InstalledProject, bench: ProofContext) -> Task:
    """The task: reference 1, nothing 0, every cheat 0. Raises CandidateRejected with the complaint, and InfraError."""
    task = task_from_draft(draft, project)
    found = await check(task, bench.pool, cheats=cheats_for(task))
    if not found.sound:
        raise CandidateRejected(f"not sound: {found.complaint()}")
    return task


def task_from_draft(draft: ProjectTaskDraft, project: InstalledProject) -> Task:
    """The task before anything was run."""
    plan = project.environment.tests
    prompts = {
        style: f"{text.rstrip()}\n\n{draft.demand}\n" if style == "full" else f"{_stopped(text)} {draft.demand}"
        for style, text in template_prompts(draft.category, draft.facts, draft.id).items()
    }
    return Task(
        id=draft.id,
        category=draft.category,
        level=draft.level,
        instruction=prompts["full"],
        files=dict(draft.files),
        test_command=visible_command(Tests(_shown(draft, plan.files), plan.command, plan.runner)),
        grader=draft.grader,
        hidden=draft.hidden,
        solution=dict(draft.solution),
        metadata={
            ENVIRONMENT: project.environment.to_record(),
            OVERLAY: overlay(project.files, draft.files),
            "generator": draft.generator,
            "operators": list(draft.operators),
            "project": project.name,
            "origin": project.origin,
            KEY: draft.facts.to_record(),
            "prompts": prompts,
            "style": "full",
            "changed": count_changes(draft.files, draft.solution),
            "editable": list(draft.editable),
            **draft.metadata,
        },
    )


def count_changes(files: Mapping[str, str], solution: Mapping[str, str]) -> dict[str, int]:
    """Lines added and removed by the reference, and its files."""
    lines = 0
    for path, text in solution.items():
        rows = difflib.unified_diff(files.get(path, "").splitlines(), text.splitlines(), n=0, lineterm="")
        lines += sum(row[:1] in "+-" and row[:3] not in ("+++", "---") for row in rows)
    return {"lines": lines, "files": len(solution)}


def _shown(draft: ProjectTaskDraft, tests: Sequence[str]) -> tuple[str, ...]:
    """The project's test files that the agent has, and those that it is to write."""
    return tuple(path for path in tests if path in draft.files or path in draft.editable)


def _stopped(text: str) -> str:
    """So that a further sentence can follow."""
    text = text.rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
