"""Etude trains and measures coding agents, whole and in the open. `docs/architecture.md` is the map of the code.

The names below are the public API (`docs/api.md`). Each is imported from its module when it is first used, so `import etude` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude.agent.harness.agent import build_agent as build_agent
    from etude.agent.harness.dependencies import AgentDependencies as AgentDependencies
    from etude.agent.harness.settings import HarnessSettings as HarnessSettings
    from etude.agent.policy.openai import OpenAIPolicy as OpenAIPolicy
    from etude.agent.policy.protocol import Policy as Policy
    from etude.agent.policy.protocol import PolicyError as PolicyError
    from etude.agent.policy.protocol import Request as Request
    from etude.core.trace.completion import Completion as Completion
    from etude.core.trace.reader import read_session as read_session
    from etude.core.trace.session import Session as Session
    from etude.evaluate.report.collect import collect as load_run
    from etude.learn.engine.policy import EnginePolicy as EnginePolicy
    from etude.learn.model.checkpoint import load_checkpoint as load_checkpoint
    from etude.pipeline.recipe.read import read_recipe as read_recipe
    from etude.pipeline.recipe.recipe import Recipe as Recipe
    from etude.rollout.attempt import attempt as attempt
    from etude.rollout.batch import run_batch as run_batch
    from etude.sandbox.errors import InfraError as InfraError
    from etude.sandbox.pool import open_pool as open_pool
    from etude.sandbox.protocol import Sandbox as Sandbox
    from etude.sandbox.protocol import SandboxPool as SandboxPool
    from etude.sandbox.settings import SandboxSettings as SandboxSettings
    from etude.sandbox.spec import SandboxSpec as SandboxSpec
    from etude.tasks.harbor import read_task as read_task
    from etude.tasks.harbor import write_task as write_task
    from etude.tasks.registry import grade as grade
    from etude.tasks.task import Grader as Grader
    from etude.tasks.task import Task as Task
    from etude.tasks.task import TaskSource as TaskSource
    from etude.tasks.task import Verdict as Verdict

__version__ = "0.1.0"

# Public name -> where it is: `module`, or `module:name` where it has another name there.
_PUBLIC = {
    "AgentDependencies": "etude.agent.harness.dependencies",
    "Completion": "etude.core.trace.completion",
    "EnginePolicy": "etude.learn.engine.policy",
    "Grader": "etude.tasks.task",
    "HarnessSettings": "etude.agent.harness.settings",
    "InfraError": "etude.sandbox.errors",
    "OpenAIPolicy": "etude.agent.policy.openai",
    "Policy": "etude.agent.policy.protocol",
    "PolicyError": "etude.agent.policy.protocol",
    "Recipe": "etude.pipeline.recipe.recipe",
    "Request": "etude.agent.policy.protocol",
    "Sandbox": "etude.sandbox.protocol",
    "SandboxPool": "etude.sandbox.protocol",
    "SandboxSettings": "etude.sandbox.settings",
    "SandboxSpec": "etude.sandbox.spec",
    "Session": "etude.core.trace.session",
    "Task": "etude.tasks.task",
    "TaskSource": "etude.tasks.task",
    "Verdict": "etude.tasks.task",
    "attempt": "etude.rollout.attempt",
    "build_agent": "etude.agent.harness.agent",
    "grade": "etude.tasks.registry",
    "load_checkpoint": "etude.learn.model.checkpoint",
    "load_run": "etude.evaluate.report.collect:collect",
    "open_pool": "etude.sandbox.pool",
    "read_recipe": "etude.pipeline.recipe.read",
    "read_session": "etude.core.trace.reader",
    "read_task": "etude.tasks.harbor",
    "run_batch": "etude.rollout.batch",
    "write_task": "etude.tasks.harbor",
}

__all__ = [
    "__version__",
    "AgentDependencies",
    "Completion",
    "EnginePolicy",
    "Grader",
    "HarnessSettings",
    "InfraError",
    "OpenAIPolicy",
    "Policy",
    "PolicyError",
    "Recipe",
    "Request",
    "Sandbox",
    "SandboxPool",
    "SandboxSettings",
    "SandboxSpec",
    "Session",
    "Task",
    "TaskSource",
    "Verdict",
    "attempt",
    "build_agent",
    "grade",
    "load_checkpoint",
    "load_run",
    "open_pool",
    "read_recipe",
    "read_session",
    "read_task",
    "run_batch",
    "write_task",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'etude' has no attribute {name!r}; public names: {', '.join(_PUBLIC)}")
    module, _, other = _PUBLIC[name].partition(":")
    found = globals()[name] = getattr(import_module(module), other or name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
