"""Other agents than our harness, by name: what their sessions depend on, and which suites they can be asked."""

from __future__ import annotations

from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.dependencies import renderer_for
from etude.agent.harness.presets.preset import harness_hash
from etude.agent.harness.settings import HarnessSettings
from etude.evaluate.bench.runs.mini_swe_agent.agent import NAME, MiniSweAgent
from etude.evaluate.bench.runs.mini_swe_agent.process import find_installation
from etude.evaluate.bench.suites.suite import Suite, label
from etude.pipeline.run.policy_options import UnknownPolicy
from etude.rollout.attempt import OtherAgent
from etude.tasks.task import SessionGrader

OURS = "etude"
AGENTS = {OURS: "", NAME: NAME}  # the word on the command line -> the name in a run


def open_agent(agent: str, settings: HarnessSettings, renderer: Renderer | None = None) -> OtherAgent | None:
    """Who attempts the tasks; None: our harness."""
    return MiniSweAgent(settings, renderer) if agent == NAME else None


def harness_of(agent: str, settings: HarnessSettings, renderer: Renderer | None = None) -> tuple[str, dict[str, Any]]:
    """The hash of all text that it gives a policy, and what else its attempts depend on. Raises NoMiniSweAgent."""
    if agent == NAME:
        found = find_installation()
        return found.digest, {"agent_version": found.version}
    return harness_hash(settings, renderer_for(renderer, settings).fingerprint if renderer else ""), {}


def fits(agent: str, suite: Suite) -> None:
    """Raises UnknownPolicy where a suite is decided by what only our harness records or does."""
    if not agent:
        return
    for task_id in suite.ids:
        task = suite.task(task_id)
        if isinstance(suite.graders.get(task.grader), SessionGrader) or task.metadata.get("interjections"):
            raise UnknownPolicy(
                f"{agent} can't be asked {label(suite)}: {task_id} is decided by the log of our own harness, with its tools"
            )
