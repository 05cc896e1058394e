"""Promise 1 at the tools: the same calls over a person's folder and in a sandbox are answered with the same bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from etude.agent.harness.agent import build_agent
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.scripted import ScriptedPolicy
from etude.agent.workspace.local_folder import LocalFolder
from etude.core.trace.message import Message, ToolCall
from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

FILES = {
    "shop.py": b"def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n",
    "main.py": b"from shop import total\n\nprint(total([1, 2]))\n",
    "docs/win.txt": b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n",
    "docs/long.txt": "".join(f"line {i}\n" for i in range(1, 101)).encode(),
    "blob.bin": b"\x00\x01\x02",
    "latin.txt": b"caf\xe9\n",
    "empty": b"",
    ".gitignore": b"build/\n*.log\n",
    "build/out.py": b"total\n",
    "run.log": b"total\n",
}
SEARCH_REPLACE: list[tuple[str, dict[str, Any]]] = [
    ("list_dir", {}),
    ("list_dir", {"target_directory": "docs"}),
    ("list_dir", {"target_directory": "nowhere"}),
    ("glob_file_search", {"glob_pattern": "*.py"}),
    ("glob_file_search", {"glob_pattern": "docs/**"}),
    ("glob_file_search", {"glob_pattern": "*.rs"}),
    ("grep", {"pattern": "total"}),
    ("grep", {"pattern": r"def \w+", "-C": 1}),
    ("grep", {"pattern": "TOTAL", "-i": True, "output_mode": "count"}),
    ("grep", {"pattern": "line", "path": "docs", "head_limit": 3}),
    ("grep", {"pattern": "total", "glob": "main.*", "output_mode": "files"}),
    ("grep", {"pattern": "x", "path": "missing.py"}),
    ("read_file", {"target_file": "shop.py"}),
    ("read_file", {"target_file": "docs/long.txt", "offset": 5, "limit": 2}),
    ("read_file", {"target_file": "docs/long.txt"}),
    ("read_file", {"target_file": "docs/long.txt", "offset": -2}),
    ("read_file", {"target_file": "docs/long.txt", "offset": 101}),
    ("read_file", {"target_file": "docs/win.txt"}),
    ("read_file", {"target_file": "blob.bin"}),
    ("read_file", {"target_file": "latin.txt"}),
    ("read_file", {"target_file": "empty"}),
    ("read_file", {"target_file": "docs"}),
    ("read_file", {"target_file": "shp.py"}),
    ("read_file", {"target_file": "../shop.py"}),
    ("read_file", {"target_file": ""}),
    ("read_file", {"target_file": "a\0b"}),
    ("read_file", {"file": "shop.py"}),
    ("read_file", {"target_file": "shop.py", "offset": "2"}),
    ("search_replace", {"file_path": "shop.py", "old_string": "out -= x", "new_string": "out += x"}),
    ("search_replace", {"file_path": "shop.py", "old_string": "out *= x", "new_string": "y"}),
    ("search_replace", {"file_path": "shop.py", "old_string": "out", "new_string": "y"}),
    ("search_replace", {"file_path": "shop.py", "old_string": "out", "new_string": "acc", "replace_all": True}),
    ("search_replace", {"file_path": "main.py", "old_string": "print( total([1, 2]) )", "new_string": "print(total([3]))"}),
    ("search_replace", {"file_path": "main.py", "old_string": "print(total([1,  2]))", "new_string": "print(total([3]))"}),
    ("multi_edit", {"file_path": "docs/win.txt", "edits": [{"old_string": "one", "new_string": "1\nuno"},
                                                          {"old_string": "nine", "new_string": "9"}]}),
    ("multi_edit", {"file_path": "docs/win.txt", "edits": [{"old_string": "one", "new_string": "1\nuno"}]}),
    ("write", {"file_path": "new/deep/a.py", "contents": "a = 1\n"}),
    ("write", {"file_path": "../x", "contents": "a = 1\n"}),
    ("write", {"file_path": "docs", "contents": "a = 1\n"}),
    ("delete_file", {"target_file": "empty"}),
    ("delete_file", {"target_file": "empty"}),
    ("delete_file", {"target_file": "docs"}),
    ("run_terminal_cmd", {"command": "cat main.py; echo oops >&2; cd docs; export COLOUR=red; exit 3"}),
    ("run_terminal_cmd", {"command": "echo $COLOUR; ls; unset COLOUR; cd .."}),
    ("run_terminal_cmd", {"command": "echo [$COLOUR]; true"}),
    ("run_terminal_cmd", {"command": "seq 1 500"}),
    ("read_file", {"target_file": "$OUTPUTS/1.txt", "offset": 499}),
    ("run_terminal_cmd", {"command": "tail -1 $OUTPUTS/1.txt"}),
    ("run_terminal_cmd", {"command": "echo 'unbalanced"}),
    ("run_terminal_cmd", {"command": "trap '' TERM; echo going; sleep 60", "timeout_s": 1}),
    ("run_terminal_cmd", {"command": " "}),
    ("run_terminal_cmd", {"command": "echo started; sleep 30", "is_background": True}),
    ("terminal_output", {"job": 1, "wait_s": 2}),
    ("kill_terminal", {"job": 1}),
    ("run_terminal_cmd", {"command": "echo done; exit 4", "is_background": True}),
    ("terminal_output", {"job": 2, "wait_s": 20}),
    ("terminal_output", {"job": 7}),
    ("run_terminal_cmd", {"command": "ln -s shop.py link.py; ln -s docs folder; ln -s /etc/hosts out; ln -s nowhere broken; chmod 755 shop.py"}),
    ("read_file", {"target_file": "link.py", "limit": 1}),
    ("read_file", {"target_file": "folder/win.txt", "limit": 1}),
    ("read_file", {"target_file": "broken"}),
    ("search_replace", {"file_path": "link.py", "old_string": "acc = 0", "new_string": "acc = 1"}),
    ("search_replace", {"file_path": "out", "old_string": "localhost", "new_string": "x"}),
    ("write", {"file_path": "folder/more.txt", "contents": "more"}),
    ("list_dir", {"target_directory": "folder"}),
    ("list_dir", {}),
    ("grep", {"pattern": "acc = 1"}),
    ("run_terminal_cmd", {"command": "stat -c '%A %N' shop.py link.py docs/win.txt docs/more.txt; sed -n 2p shop.py"}),
    ("todo_write", {"todos": [{"id": "a", "content": "look", "status": "in_progress"}, {"content": "fix", "status": "pending"}]}),
    ("todo_write", {"merge": True, "todos": [{"id": "a", "status": "completed"}]}),
    ("read_lints", {}),
    ("red_file", {"target_file": "shop.py"}),
]  # fmt: skip
PATCH: list[tuple[str, dict[str, Any]]] = [
    ("apply_patch", {"input": "*** Begin Patch\n*** Update File: shop.py\n@@ def total(items):\n     for x in items:\n"
                              "-        out -= x\n+        out += x\n*** Add File: new.py\n+a = 1\n*** Delete File: empty\n*** End Patch"}),
    ("apply_patch", {"input": "*** Begin Patch\n*** Update File: main.py\n-print(totl([1, 2]))\n+print()\n*** End Patch"}),
    ("apply_patch", {"input": "*** Begin Patch\n*** Update File: docs/win.txt\n*** Move to: docs/unix.txt\n one\n-two\n+2\n*** End Patch"}),
    ("apply_patch", {"input": "nonsense"}),
    ("update_plan", {"plan": [{"step": "look", "status": "completed"}]}),
    ("exec_command", {"cmd": "od -c docs/unix.txt; cat new.py; ls"}),
]  # fmt: skip


async def answers(machine: Any, name: str, calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
    settings = HarnessSettings.full(preset=name, max_tool_lines=20, max_turns=len(calls) + 2)
    turns = [Message("assistant", calls=(ToolCall(f"c{i}", name, given),)) for i, (name, given) in enumerate(calls)]
    policy = ScriptedPolicy([*turns, Message("assistant", "done")])
    outcome = await build_agent(settings, policy, AgentDependencies(machine, TaskFacts("t", "do it"))).run()
    assert outcome.reason == "message"
    return [entry.data["text"] for entry in outcome.session.of("tool_result")]


@pytest.fixture(params=["local", "bubblewrap"])
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[SandboxPool]:
    try:
        pool = await open_pool(SandboxSettings(backend=request.param))
    except Unsupported as missing:
        pytest.skip(f"no sandbox works here: {missing}")
    yield pool
    await pool.close()


def folder(path: Path) -> LocalFolder:
    for name, data in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return LocalFolder(path)


@pytest.mark.parametrize(("name", "calls"), [("search_replace", SEARCH_REPLACE), ("patch", PATCH)])
async def test_the_same_calls_answer_the_same_bytes_in_a_folder_and_in_a_sandbox(
    pool: SandboxPool, tmp_path: Path, name: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    local = folder(tmp_path)
    here = await answers(local, name, calls)
    sandbox = await pool.create(SandboxSpec(files=FILES))
    inside = await answers(sandbox, name, calls)
    for call, ours, theirs in zip(calls, here, inside, strict=True):
        assert ours == theirs, call
    assert await local.export() == await sandbox.export()
    await local.kill()
