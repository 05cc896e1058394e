"""The real mini-swe-agent, unmodified, in an environment of its own: it fixes a small repository through the endpoint, and its
session becomes training samples.

    python -m venv DIR && DIR/bin/pip install mini-swe-agent
    ETUDE_MINI_SWE_AGENT=DIR/bin/python python -m pytest tests/agent/proxy --all
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest
from captured import Serve, TokenPolicy, run  # pyright: ignore[reportMissingImports]

from etude.agent.proxy.launch import environment, launch
from etude.core.trace.message import Message
from etude.core.trace.reader import read_session
from etude.core.trace.rollout_codec import rollout_from_bytes, rollout_to_bytes
from etude.core.trace.schema import check_file
from etude.core.trace.segment import Rollout

PYTHON = os.environ.get("ETUDE_MINI_SWE_AGENT", "")
BROKEN = "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n"
TEST = "from tally import total\n\nassert total([1, 2]) == 3, total([1, 2])\nprint('passed')\n"
SCRIPT = [
    run("cat tally.py && python3 test_tally.py", "I look, and run the test."),
    Message("assistant", "No call this time."),  # mini-swe-agent objects to this turn, and leaves it out of its history
    run("sed -i 's/out -= x/out += x/' tally.py"),
    run("python3 test_tally.py", "Is it right now?"),
    run("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
]


@pytest.mark.nightly
@pytest.mark.skipif(not PYTHON, reason="set ETUDE_MINI_SWE_AGENT to a Python that has mini-swe-agent installed")
@pytest.mark.parametrize(
    ("family", "model"),
    [
        *((family, "openai/any") for family in ("qwen3", "qwen3-coder", "kimi-k2", "glm-4.5", "gpt-oss")),
        ("kimi-k2.5", "anthropic/claude-sonnet-4-20250514"),  # LiteLLM then speaks Anthropic's format
    ],
)
async def test_mini_swe_agent_runs_unmodified_and_its_session_is_training_data(
    served: Serve, make_renderer: Callable[..., Any], tmp_path: Path, family: str, model: str
) -> None:
    renderer = make_renderer(family)
    policy = TokenPolicy(renderer, lambda request: SCRIPT[len(policy.requests) - 1])
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "tally.py").write_text(BROKEN)
    (repository / "test_tally.py").write_text(TEST)
    async with served(policy, renderer) as endpoint:
        session, key = endpoint.book.open("tally")
        assert await _mini(repository, model, tmp_path, environment(endpoint.address, key)) == 0
        summary = await session.end()
    assert subprocess.run(["python3", "test_tally.py"], cwd=repository).returncode == 0, "it fixed the repository"
    assert check_file(session.path) == []
    kept = read_session(session.path)
    assert summary["turns"] == len(SCRIPT) and summary["branches"] == 2
    assert "passed" in kept.of("tool_result")[-1].data["text"]
    segments = kept.segments()
    assert sum(int(segment.sampled.sum()) for segment in segments) == summary["sampled_tokens"] > 0
    assert len(segments) == 2 + summary["forks"], "the turn that was left out is a branch of its own"
    assert max(segments, key=len).ids.tolist()[: len(policy.requests[-1].prompt_ids)] == [
        *policy.requests[-1].prompt_ids
    ]
    rollout = Rollout("r", kept.header.task_id, 0, segments, rewards={"outcome": 1.0})
    assert len(rollout_from_bytes(rollout_to_bytes(rollout)).segments) == len(segments)
    assert rollout.start_version == 1


async def _mini(repository: Path, model: str, home: Path, variables: dict[str, str]) -> int:
    command = [
        "env", "-C", str(repository), PYTHON, "-m", "minisweagent.run.mini", "--model", model, "--yolo",
        "--exit-immediately", "--task", "total() is wrong: make test_tally.py pass", "--output", str(home / "out.json"),
    ]  # fmt: skip
    own = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",  # LiteLLM knows no price of ours
        "MSWEA_GLOBAL_CONFIG_DIR": str(home / "config"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches a list of prices
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2",
        "PYTHONPATH": "",
    }
    return await launch(command, {**variables, **own})
