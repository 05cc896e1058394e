"""The agent works against `etude serve` as against any endpoint: its calls arrive, its tools answer, a later turn extends the first prompt."""

from __future__ import annotations

from dataclasses import replace

from serve_lab import NAME, ScriptedThread, served, served_model

from etude.agent.harness.agent import build_agent
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.openai import OpenAIPolicy
from etude.core.trace.message import Message, ToolCall
from etude.tasks.generate.exercises.memory_sandbox import MemorySandbox

FILES = {"core.py": "def total(items):\n    return 0\n"}


async def test_a_session_of_the_harness_is_answered_by_the_server(make_renderer) -> None:
    renderer = make_renderer("smollm2")
    turns = [
        [ToolCall("c0", "grep", {"pattern": "def total"})],
        [ToolCall("c1", "edit", {"path": "core.py", "old": "return 0", "new": "return sum(items)"})],
        [ToolCall("c2", "done", {"message": "fixed"})],
    ]
    answers = iter([renderer.answer(Message("assistant", calls=tuple(calls))) for calls in turns])
    thread, sandbox = ScriptedThread(lambda request: next(answers)), MemorySandbox(FILES)
    async with served(replace(served_model(renderer), window=8192), thread) as (running, _):
        policy = OpenAIPolicy(NAME, base_url=f"{running.address}/v1")
        facts = TaskFacts("task", "fix total", ("python", "check.py"))
        settings = HarnessSettings(preset="nano", max_session_tokens=100_000)
        outcome = await build_agent(settings, policy, AgentDependencies(sandbox, facts)).run()
        await policy.close()
    assert outcome.reason == "done" and sandbox.files["core.py"] == "def total(items):\n    return sum(items)\n"
    first, second, third = (request.prompt_ids for request in thread.requests)
    assert second[: len(first)] == first and third[: len(second)] == second
    assert len({request.session_id for request in thread.requests}) == 1  # the server continues the session's cache
