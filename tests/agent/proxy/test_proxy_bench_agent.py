"""An attempt of the bench by another agent, over a checkpoint's tokens: its session is training data as our own harness' are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from captured import TokenPolicy, run  # pyright: ignore[reportMissingImports]

from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.message import Message
from etude.evaluate.bench.runs.mini_swe_agent.agent import MiniSweAgent
from etude.evaluate.bench.runs.mini_swe_agent.process import VARIABLE
from etude.pipeline.recipe.read import read_recipe
from etude.rollout.attempt import Attempt, AttemptSetup, attempt
from etude.sandbox.pool import open_pool
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.registry import GRADERS

END = run("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_renderer: Callable[..., Any]) -> Callable[..., Any]:
    """An attempt by a policy that says these turns, one after the other."""
    source = Path(__file__).parents[2] / "cli" / "bash_agent.py"
    agent = tmp_path / "python"
    agent.write_text(f"#!{sys.executable}\n{source.read_text()}")
    agent.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(agent))

    async def make(turns: list[Message], family: str = "qwen3", **settings: Any) -> tuple[Attempt, TokenPolicy]:
        renderer = make_renderer(family)
        policy = TokenPolicy(renderer, lambda request: turns[len(policy.requests) - 1])
        recipe = read_recipe([])
        task = ExerciseSource(recipe.exercises).task("one-bug/train/000003")
        limits = HarnessSettings.full(**settings)
        pool = await open_pool(recipe.sandbox)
        try:
            setup = AttemptSetup(policy, pool, GRADERS, limits, renderer, agent=MiniSweAgent(limits, renderer))
            return await attempt(task, setup, name="a", seed=40), policy
        finally:
            await pool.close()

    return make


async def test_each_turn_is_the_policys_own_tokens_asked_with_the_attempts_seeds(made: Callable[..., Any]) -> None:
    found, policy = await made([run("ls", "I look."), run("echo 1"), END])
    (segment,) = found.outcome.segments
    assert 0 < int(segment.sampled.sum()) < len(segment.ids)
    assert [request.seed for request in policy.requests] == [40, 41, 42]
    assert {request.session_id for request in policy.requests} == {"a.1"} and policy.released == ["a.1"]
    held = segment.ids.tolist()
    assert held[: len(policy.requests[-1].prompt_ids)] == [*policy.requests[-1].prompt_ids]
    assert found.outcome.reason == "done" and found.verdict.score == 0.0 and found.outcome.counters["turns"] == 3


async def test_the_effort_is_the_participants_also_where_the_family_renders_it(made: Callable[..., Any]) -> None:
    prompts = {}
    for effort in ("low", "high"):
        found, policy = await made([END], "gpt-oss", effort=effort)
        prompts[effort] = policy.requests[0].prompt_ids
        assert found.outcome.session.header.effort == effort == policy.requests[0].effort
    assert prompts["low"] != prompts["high"]


async def test_the_sessions_tokens_bound_it(made: Callable[..., Any]) -> None:
    found, policy = await made([run("ls")] * 40, max_session_tokens=700)
    assert found.outcome.reason == "max_tokens" and 1 < len(policy.requests) < 40
    assert all(len(request.prompt_ids) + request.max_tokens < 700 for request in policy.requests)
