"""Promise 1, golden: one scripted policy in a person's folder, in a sandbox, and in the attempt that bench and RL make gives the
same tool results byte for byte and the same token ids, in the laptop's chat format and in those of large models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from etude.chat.byte_tokenizer import byte_tokenizer
from etude.chat.nano import NanoRenderer
from etude.harness.agent import build_agent
from etude.harness.local_folder import LocalFolder
from etude.harness.replay import compare
from etude.harness.settings import HarnessSettings
from etude.harness.task_facts import TaskFacts
from etude.policy.scripted import ScriptedPolicy
from etude.rollout.attempt import Setup, attempt
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool, SandboxSpec, Unsupported
from etude.sandbox.settings import SandboxSettings
from etude.tasks.task import Task, Verdict
from etude.trace.message import Message, ToolCall
from etude.trace.session import Session

TASK = Task(
    id="t1",
    category="debugging",
    level="one-bug",
    instruction="total subtracts",
    files={"shop.py": "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n"},
    test_command=("python", "-c", "import shop; assert shop.total([1, 2]) == 3"),
    grader="any",
)


def turn(*calls: tuple[str, dict[str, Any]], text: str = "") -> Message:
    return Message("assistant", text, calls=tuple(ToolCall(f"c{i}", *call) for i, call in enumerate(calls)))


NANO = [
    turn(("grep", {"pattern": "total"}), ("view", {"path": "shop.py"})),
    turn(("test", {})),
    turn(("edit", {"path": "shop.py", "old": "out -= x", "new": "out += x"}), ("test", {})),
    turn(("view", {"path": "nowhere.py"}), ("done", {"message": "it adds now"})),
]
LARGE = [
    turn(("grep", {"pattern": "total"}), ("read_file", {"target_file": "shop.py"}), text="Let me look.\n"),
    turn(("run_terminal_cmd", {"command": "python -c 'import shop; print(shop.total([1, 2]))'; ls nowhere"})),
    turn(("search_replace", {"file_path": "shop.py", "old_string": "out -= x", "new_string": "out  += x"})),
    turn(("search_replace", {"file_path": "shop.py", "old_string": "out -= x", "new_string": "y"}), ("read_file", {})),
    Message("assistant", "It adds now: é → 😀 <|im_end|> </tool_call>"),
]


class Anything:
    async def grade(self, task: Task, files: dict[str, bytes], pool: SandboxPool) -> Verdict:
        return Verdict(1.0)


@pytest.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    try:
        pool = await open_pool(SandboxSettings())
    except Unsupported as missing:
        pytest.skip(f"no sandbox works here: {missing}")
    yield pool
    await pool.close()


def same(one: Session, other: Session) -> None:
    assert compare(one, other) is None
    assert one.header.harness == other.header.harness
    assert [s.ids.tolist() for s in one.segments()] == [s.ids.tolist() for s in other.segments()]


@pytest.mark.parametrize("family", ["nano", "qwen3", "qwen3-coder", "kimi-k2.5", "deepseek-v3.1", "glm-4.5", "gpt-oss"])
async def test_a_folder_a_sandbox_and_an_attempt_give_the_same_session(
    pool: SandboxPool, tmp_path: Path, make_renderer: Callable[..., Any], family: str
) -> None:
    nano = family == "nano"
    renderer = NanoRenderer(byte_tokenizer()) if nano else make_renderer(family)
    roomy = {"max_session_tokens": 100_000, "max_tokens_per_turn": 4000}
    settings = HarnessSettings(**roomy) if nano else HarnessSettings.full(preset="search_replace", **roomy)
    script, facts = NANO if nano else LARGE, TaskFacts(TASK.id, TASK.instruction, TASK.test_command)

    for path, text in TASK.files.items():
        (tmp_path / path).write_text(text)
    sandbox = await pool.create(SandboxSpec(files={path: text.encode() for path, text in TASK.files.items()}))
    machines = [LocalFolder(tmp_path), sandbox]
    ran = [await build_agent(settings, ScriptedPolicy(script), m, facts, renderer=renderer).run() for m in machines]
    setup = Setup(lambda task, seed: ScriptedPolicy(script), pool, {"any": Anything()}, settings, renderer)
    benched = (await attempt(TASK, setup)).outcome

    assert b"out += x" in await sandbox.read("shop.py") if nano else b"out  += x" in await sandbox.read("shop.py")
    assert ran[0].reason == ("done" if nano else "message") and ran[0].segments
    same(ran[0].session, ran[1].session)
    same(ran[0].session, benched.session)
