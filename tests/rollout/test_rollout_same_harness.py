"""Promise 1, golden: one scripted policy in a person's folder, in a sandbox, and in the attempt that bench and RL make gives the
same tool results byte for byte and the same token ids, in the laptop's chat format and in those of large models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.code_index.index import Index
from etude.agent.harness.agent import build_agent
from etude.agent.harness.code_index import FolderIndex
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.replay import compare
from etude.agent.harness.services import AgentServices
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.scripted import ScriptedPolicy
from etude.agent.workspace.local_folder import LocalFolder
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Session
from etude.rollout.attempt import AttemptSetup, attempt
from etude.rollout.code_search import code_search
from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.task import Task, Verdict

TASK = Task(
    id="t1",
    category="debugging",
    level="one-bug",
    instruction="total subtracts",
    files={"shop.py": "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n"},
    # No traceback: its text depends on the version, and a folder and a sandbox may have different ones.
    test_command=(
        "python",
        "-c",
        "import shop, sys; got = shop.total([1, 2]); sys.exit(0 if got == 3 else f'total is {got}')",
    ),
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
    ran = [
        await build_agent(settings, ScriptedPolicy(script), AgentDependencies(m, facts, renderer=renderer)).run()
        for m in machines
    ]
    setup = AttemptSetup(lambda task, seed: ScriptedPolicy(script), pool, {"any": Anything()}, settings, renderer)
    benched = (await attempt(TASK, setup)).outcome

    assert b"out += x" in await sandbox.read("shop.py") if nano else b"out  += x" in await sandbox.read("shop.py")
    assert ran[0].reason == ("done" if nano else "message") and ran[0].segments
    same(ran[0].session, ran[1].session)
    same(ran[0].session, benched.session)


REPOSITORY = {
    **TASK.files,
    "pkg/store.py": 'class Store:\n    """Keeps orders on the disk."""\n\n    def size(self):\n        return 1\n',
    "pkg/.gitignore": "made_*.py\n",
    "old/notes.md": "# Discounts\n\nMembers pay less.\n",
    "data.bin": "\0\1",
}


def search(query: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return ("codebase_search", {"query": query, **more})


def command(text: str) -> tuple[str, dict[str, Any]]:
    return ("run_terminal_cmd", {"command": text})


SEARCHING = [
    turn(search("total of items"), search("where are orders kept", target_directory="pkg")),
    turn(("write", {"file_path": "member.py", "contents": "def member_discount(price):\n    return price * 0.9\n"})),
    turn(search("member discount")),
    # What commands do is seen as well: new, moved, ignored and deleted files, and rules that changed.
    turn(command("mv old/notes.md notes.md; rm member.py; echo 'def made_up(): return 1' | tee pkg/made_up.py > made_up.py")),
    turn(search("member discount"), search("made up"), search("Members pay less")),
    turn(command("rm pkg/.gitignore; echo /shop.py > .gitignore; mkdir -p node_modules/x && echo 'def made_up(): 0' > node_modules/x/a.py")),
    turn(search("made up"), search("total of items")),
    turn(search("…"), search("x", target_directory="nowhere")),
    Message("assistant", "found"),
]  # fmt: skip


async def test_search_by_meaning_finds_the_same_in_a_folder_and_in_an_attempt(
    pool: SandboxPool, tmp_path: Path, make_renderer: Callable[..., Any]
) -> None:
    """A person's index walks the folder; a rollout's is an overlay behind a socket over a base that it never saw on a disk."""
    task, folder, renderer = replace(TASK, files=REPOSITORY), tmp_path / "folder", make_renderer("qwen3")
    settings = HarnessSettings.full(preset="search_replace", codebase_search=True)
    for path, text in task.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    facts = TaskFacts(task.id, task.instruction, task.test_command)
    services = AgentServices(code_index=FolderIndex(Index(folder, tmp_path / "store")))
    persons = await build_agent(
        settings,
        ScriptedPolicy(SEARCHING),
        AgentDependencies(LocalFolder(folder), facts, renderer=renderer, services=services),
    ).run()
    async with code_search(settings) as found:
        setup = AttemptSetup(ScriptedPolicy(SEARCHING), pool, {"any": Anything()}, settings, renderer, search=found)
        rollout = (await attempt(task, setup)).outcome

    same(persons.session, rollout.session)
    texts = [entry.data["text"] for entry in rollout.session.of("tool_result")]
    assert texts[1].startswith("pkg/store.py:1-") and texts[3].startswith("member.py:1-2 member_discount")
    assert "member.py" not in texts[5] and texts[6].startswith("made_up.py:1-1") and "pkg/made_up" not in texts[6]
    assert texts[7].startswith("notes.md:") and "node_modules" not in texts[9]
    assert {"pkg/made_up.py:1-1", "made_up.py:1-1"} == {hit.split()[0] for hit in texts[9].split("\n\n")}
    assert "shop.py" not in texts[10] and "no word" in texts[11] and "nowhere" in texts[12]
