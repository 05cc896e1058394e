"""The official SDKs of both makers, in an environment of their own, against the endpoint.

python -m venv DIR && DIR/bin/pip install openai anthropic
ETUDE_SDKS=DIR/bin/python python -m pytest tests/agent/proxy --all
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Callable

import pytest
from captured import Endpoint, Serve, TokenPolicy, run  # pyright: ignore[reportMissingImports]

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.message import Message
from etude.core.trace.reader import read_session

PYTHON = os.environ.get("ETUDE_SDKS", "")
DRIVER = Path(__file__).with_name("sdk_driver.py")
MAKERS = ("openai", "anthropic")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not PYTHON, reason="set ETUDE_SDKS to a Python that has openai and anthropic installed"),
]


def steps(request: Request) -> Message:
    """Looks, then is done."""
    looked = any(message.role == "tool" for message in request.messages)
    return Message("assistant", "Done.") if looked else run("ls", "I look first.")


async def drive(endpoint: Endpoint, maker: str, key: str, how: str) -> dict[str, Any]:
    command = (PYTHON, str(DRIVER), maker, endpoint.address, key, how)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    child = await asyncio.create_subprocess_exec(*command, env=clean, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(child.communicate(), 60)
    assert child.returncode == 0
    return json.loads(out)


@pytest.mark.parametrize("how", ["whole", "stream"])
@pytest.mark.parametrize("maker", MAKERS)
async def test_an_agent_on_a_maker_s_sdk_is_one_sample(
    served: Serve, make_renderer: Callable[..., Any], maker: str, how: str
) -> None:
    renderer = make_renderer("qwen3")
    policy = TokenPolicy(renderer, steps)
    async with served(policy, renderer) as endpoint:
        session, key = await endpoint.session()
        result = await drive(endpoint, maker, key, how)
        summary = await session.end()
    assert (summary["samples"], summary["turns"], summary["forks"]) == (1, 2, 0)
    assert result["usage"] and result["models"] == ["scripted-tokens"] and result["model"] == "any"
    first, last = result["answers"]
    if maker == "anthropic":
        assert [block["type"] for block in first["content"]] == ["thinking", "tool_use"]
        assert first["content"][-1]["input"] == {"command": "ls"} and first["stop"] == "tool_use"
        assert last["content"] == [{"type": "text", "text": "Done."}]
        assert result["counted"] == result["beta_counted"] == len(policy.requests[0].prompt_ids)
    else:
        assert first["items"] == ["reasoning", "function_call"] and last["text"] == "Done."
    assert (first["pieces"] > 1) == (how == "stream")


@pytest.mark.parametrize("maker", MAKERS)
async def test_a_maker_s_sdk_that_times_out_gets_the_first_sampling_s_answer(
    served: Serve, make_renderer: Callable[..., Any], maker: str
) -> None:
    renderer = make_renderer("qwen3")
    policy = TokenPolicy(renderer, steps)
    policy.gate = asyncio.Event()
    async with served(policy, renderer) as endpoint:
        session, key = await endpoint.session()
        asyncio.get_running_loop().call_later(4.0, policy.gate.set)
        result = await drive(endpoint, maker, key, "slow")
        summary = await session.end()
    assert len(result["answers"]) == 1 and len(policy.requests) == summary["turns"] == 1
    assert summary["joined"] + summary["replayed"] >= 1 and summary["cancelled"] == 0


@pytest.mark.parametrize("maker", MAKERS)
async def test_a_maker_s_sdk_asks_again_after_an_infra_fault(
    served: Serve, make_renderer: Callable[..., Any], maker: str
) -> None:
    renderer = make_renderer("qwen3")
    faults = [PolicyError("engine restarting")]

    def script(request: Request) -> Message:
        if faults:
            raise faults.pop()
        return steps(request)

    async with served(TokenPolicy(renderer, script), renderer) as endpoint:
        session, key = await endpoint.session()
        await drive(endpoint, maker, key, "whole")
        summary = await session.end()
    assert summary["turns"] == 2 and summary["forks"] == 0
    assert len(read_session(session.path).of("fault")) == 1
