"""Real agents of others, unmodified, from npm and PyPI: each fixes a small repository through the endpoint, and its session is
one training sample without a fork.

    npm install --prefix DIR @anthropic-ai/claude-code @openai/codex @qwen-code/qwen-code opencode-ai
    python -m venv DIR/aider && DIR/aider/bin/pip install aider-chat
    ETUDE_CLAUDE_CODE=… ETUDE_CODEX=… ETUDE_QWEN_CODE=… ETUDE_OPENCODE=… ETUDE_AIDER=… python -m pytest tests/agent/proxy --all

Nothing but the endpoint is theirs to reach: run the tests where there is no network (`unshare -rn`, loopback up).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import pytest
from captured import Serve, TokenPolicy  # pyright: ignore[reportMissingImports]

from etude.agent.policy.protocol import Request
from etude.agent.proxy.launch import environment
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.reader import read_session
from etude.core.trace.schema import check_file

BROKEN = "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n"
STEPS = ("cat tally.py", "sed -i 's/out -= x/out += x/' tally.py", "git diff")
# What each calls its shell, and the shell's command.
SHELLS = {"exec_command": "cmd", "Bash": "command", "run_shell_command": "command", "bash": "command"}
PATCH = "tally.py\n```\n<<<<<<< SEARCH\n        out -= x\n=======\n        out += x\n>>>>>>> REPLACE\n```\n"
FILL = {"boolean": False, "integer": 1000, "number": 1000}
QUIET = {
    "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1", "IS_SANDBOX": "1", "CI": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}  # fmt: skip


@dataclass(frozen=True)
class Foreign:
    """An agent: the variable that names its program, its arguments, and the turns it asks in addition to the work."""

    variable: str
    arguments: tuple[str, ...]
    turns: int = len(STEPS) + 1
    sibling_turns: int = 0


ASKED = "Fix the sign in tally.py"
AGENTS = {
    "claude-code": Foreign("ETUDE_CLAUDE_CODE", ("-p", ASKED, "--dangerously-skip-permissions")),
    "codex": Foreign(
        "ETUDE_CODEX",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "any",
         "-c", 'model_provider="etude"', "-c",
         'model_providers.etude={name="etude",base_url="@ADDRESS/v1",env_key="OPENAI_API_KEY",wire_api="responses"}',
         ASKED),
    ),
    "qwen-code": Foreign("ETUDE_QWEN_CODE", ("--auth-type", "openai", "-m", "any", "-y", "-p", ASKED)),
    "opencode": Foreign("ETUDE_OPENCODE", ("run", ASKED), sibling_turns=1),
    "aider": Foreign(
        "ETUDE_AIDER",
        ("--no-git", "--yes-always", "--no-check-update", "--no-analytics", "--no-show-model-warnings",
         "--no-show-release-notes", "--no-detect-urls", "--model", "openai/any", "--edit-format", "diff",
         "-m", ASKED, "tally.py"),
        turns=1,
    ),
}  # fmt: skip


def script(request: Request) -> Message:
    """Looks, fixes, looks again, by whatever shell there is; without tools it writes the patch that aider reads."""
    if not request.tools:
        return Message("assistant", PATCH)
    done = sum(message.role == "tool" for message in request.messages)
    if done == len(STEPS):
        return Message("assistant", "Fixed the sign.")
    function = next(tool["function"] for tool in request.tools if tool["function"]["name"] in SHELLS)
    parameters = function["parameters"]
    given: dict[str, Any] = {
        name: FILL.get(parameters["properties"][name].get("type"), "look") for name in parameters.get("required", ())
    }
    given[SHELLS[function["name"]]] = STEPS[done]
    return Message("assistant", "I go on.", f"Step {done}.", (ToolCall("x", function["name"], given),))


@pytest.mark.nightly
@pytest.mark.timeout(180)
@pytest.mark.parametrize("family", ["qwen3", "qwen3.5", "kimi-k2.5", "gpt-oss"])
@pytest.mark.parametrize("name", AGENTS)
async def test_an_unmodified_agent_s_session_is_one_sample_a_conversation(
    served: Serve, make_renderer: Callable[..., Any], tmp_path: Path, name: str, family: str
) -> None:
    agent = AGENTS[name]
    program = os.environ.get(agent.variable)
    if not program:
        pytest.skip(f"set {agent.variable} to {name}'s program")
    work = _repository(tmp_path / "work")
    renderer = make_renderer(family)
    async with served(TokenPolicy(renderer, script), renderer) as endpoint:
        session, key = await endpoint.session()
        command = [program, *(word.replace("@ADDRESS", endpoint.address) for word in agent.arguments)]
        await _run(command, work, endpoint.address, key)
        summary = await session.end()
    assert "out += x" in (work / "tally.py").read_text()
    conversations = 1 + agent.sibling_turns
    assert (summary["turns"], summary["forks"], summary["malformed_turns"]) == (agent.turns + agent.sibling_turns, 0, 0)
    assert summary["branches"] == summary["samples"] == conversations
    assert check_file(session.path) == [] and read_session(session.path).header.recipe["capture"]["agent"]


def _repository(folder: Path) -> Path:
    folder.mkdir()
    (folder / "tally.py").write_text(BROKEN)
    for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    return folder


async def _run(command: list[str], work: Path, address: str, key: str) -> None:
    home = work.parent / "home"
    (home / ".config" / "opencode").mkdir(parents=True)
    options = {"baseURL": f"{address}/v1", "apiKey": key}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"any": {"name": "any"}}}
    settings = {"provider": {"etude": provider}, "model": "etude/any", "permission": "allow", "share": "disabled"}
    (home / ".config" / "opencode" / "opencode.json").write_text(json.dumps(settings))
    here = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "PWD": str(work)}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    child = await asyncio.create_subprocess_exec(
        *command, cwd=work, env={**kept, **environment(address, key), **QUIET, **here},
        stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr,
    )  # fmt: skip
    try:
        assert await asyncio.wait_for(child.wait(), 120) == 0
    finally:
        if child.returncode is None:
            child.kill()
