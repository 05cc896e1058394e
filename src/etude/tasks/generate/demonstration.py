"""One demonstration without a machine: the real harness and the scripted expert over a workspace in memory. Pure.

It serves learning experiments and property tests. The sessions of the sft stage come from real sandboxes (`sessions`);
both agree turn by turn.
"""

from __future__ import annotations

from typing import Any, Coroutine, TypeVar

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.agent import AgentOutcome, build_agent
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.tasks.generate.exercises.memory_sandbox import MemorySandbox
from etude.tasks.generate.scripted_policies import Expert
from etude.tasks.task import Task

T = TypeVar("T")


def demonstrate(
    task: Task, seed: int, *, competence: float, settings: HarnessSettings, renderer: Renderer | None = None
) -> tuple[AgentOutcome, dict[str, str], bool]:
    """The session's outcome, the files at its end, and whether the plan was competent."""
    sandbox = MemorySandbox(task.files)
    expert = Expert(task, seed, competence=competence, preset=preset_of(settings))
    facts = TaskFacts(task.id, task.instruction, task.test_command)
    agent = build_agent(settings, expert, AgentDependencies(sandbox, facts, renderer=renderer, seed=seed))
    return _finish(agent.run()), sandbox.files, expert.plan.competent


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never waits, without an event loop (a loop per demonstration would double its time)."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a demonstration in memory waited for something; only scripted policies may run here")
