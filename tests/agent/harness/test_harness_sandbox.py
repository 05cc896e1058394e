"""The harness in a real sandbox: the tools' seam holds, patterns can't explode, sessions replay in a fresh one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from etude.agent.chat.nano import NanoRenderer
from etude.agent.harness.agent import build_agent
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.presets.preset import preset
from etude.agent.harness.replay import replay
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.harness.tools.tool import ToolContext, ToolError
from etude.agent.policy.scripted import ScriptedPolicy
from etude.agent.workspace.workspace import Workspace, WorkspaceError
from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

CHECK = "from shop import total\nassert total([1, 2]) == 3, f'total([1, 2]) is {total([1, 2])}'\n"
FACTS = TaskFacts("task-1", "fix total", ("python", "check.py"))


@pytest.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    try:
        pool = await open_pool(SandboxSettings())
    except Unsupported as missing:
        pytest.skip(f"no sandbox works here: {missing}")
    yield pool
    await pool.close()


async def fresh(pool: SandboxPool, files: dict[str, str]) -> Sandbox:
    return await pool.create(SandboxSpec(files={path: text.encode() for path, text in files.items()}))


async def test_a_scripted_session_replays_in_a_fresh_sandbox(
    pool: SandboxPool, renderer: NanoRenderer, scene: Any
) -> None:
    files = {**scene.FILES, "check.py": CHECK}
    ask = [
        *scene.GOOD[:2],
        scene.turn(("view", {"path": "/home/someone/.ssh/id"}), ("view", {"path": "no.py"})),
        *scene.GOOD[2:],
    ]
    agent = build_agent(
        scene.ROOMY, ScriptedPolicy(ask), AgentDependencies(await fresh(pool, files), FACTS, renderer=renderer)
    )
    outcome = await agent.run()
    texts = [entry.data["text"] for entry in outcome.session.of("tool_result")]
    assert texts[0].startswith("check.py:1 from shop import total\n") and "check.py" not in texts[1]
    assert texts[2].endswith("AssertionError: total([1, 2]) is -3\nfail") and texts[-1] == "pass"
    assert texts[3:5] == ["no file /home/someone/.ssh/id", "no file no.py"]
    assert await replay(outcome.session, await fresh(pool, files), renderer=renderer) is None


async def test_a_catastrophic_pattern_is_ended_by_its_time_limit(pool: SandboxPool) -> None:
    sandbox = await fresh(pool, {"a.txt": "a" * 40 + "b\n", "b.py": "def f():\n    return 1\n"})
    context = ToolContext(Workspace(sandbox), HarnessSettings.full(tool_timeout_s=0.5), ())
    grep = preset("full").tools["grep"]
    start = time.perf_counter()
    with pytest.raises(ToolError, match="search timed out"):
        await grep.run({"pattern": "(a+)+$"}, context)
    assert time.perf_counter() - start < 5
    assert (await grep.run({"pattern": r"def \w+"}, context)).text == "b.py:1 def f():"
    with pytest.raises(ToolError, match="^bad pattern: "):
        await grep.run({"pattern": "("}, context)


async def test_a_folder_a_binary_and_an_escape_are_reported_not_raised(pool: SandboxPool) -> None:
    sandbox = await fresh(pool, {"d/a.py": "x\n"})
    await sandbox.write("blob", b"\xff\xfe")
    workspace = Workspace(sandbox)
    for path, words in (("d", "no file d"), ("blob", "blob is not text"), ("/etc/shadow", "no file /etc/shadow")):
        with pytest.raises(WorkspaceError, match=words):
            await workspace.read(path)
    for path in ("/etc/x", "d"):
        with pytest.raises(WorkspaceError, match=f"cannot write {path}"):
            await workspace.write(path, "y")


async def test_nano_tools_answer_in_milliseconds(pool: SandboxPool, scene: Any) -> None:
    """The bar is 3 ms for grep on a quiet machine; the best of many, with room for a loaded one."""
    context = ToolContext(Workspace(await fresh(pool, scene.FILES)), scene.ROOMY, ())
    best = 1.0
    for _ in range(30):
        start = time.perf_counter()
        await preset("nano").tools["grep"].run({"pattern": "total"}, context)
        best = min(best, time.perf_counter() - start)
    assert best < 0.006
