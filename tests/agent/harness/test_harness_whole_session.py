"""A session's counters are those of all of it, however often it was taken up; its lint delta is measured behind its last turn."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from etude.agent.harness.agent import Agent, build_agent
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.header import session_header
from etude.agent.harness.replay import compare
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.metrics.of_session import counters_of
from etude.agent.policy.scripted import ScriptedPolicy
from etude.agent.workspace.local_folder import LocalFolder
from etude.core.trace.message import Message
from etude.core.trace.reader import read_session
from etude.core.trace.schema import check_file
from etude.core.trace.session import Recorder
from etude.core.trace.writer import SessionWriter
from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Operations
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

Make = Callable[..., Agent]
LARGE = HarnessSettings.full(preset="search_replace", lint_delta_s=0.0)


def script(scene: Any) -> list[Message]:
    turn = scene.turn
    return [
        turn(("todo_write", {"todos": [{"id": "a", "content": "mend", "status": "pending"}, {"id": "b", "content": "test", "status": "pending"}]})),
        turn(("read_file", {"target_file": "shop.py"}), ("read_file", {"target_file": "main.py"}), ("grep", {"pattern": "out"})),
        turn(("search_replace", {"file_path": "shop.py", "old_string": "out -= x", "new_string": "out += x"})),
        turn(("write", {"file_path": "notes.py", "contents": "x = 1  # wait, is that so\ny = 2\n"}), ("nothing", {"a": 1})),
        turn(("todo_write", {"todos": [{"id": "a", "status": "completed"}], "merge": True})),
        turn(("search_replace", {"file_path": "notes.py", "old_string": "y = 2\n", "new_string": ""}), text="All tests pass."),
        turn(("run_terminal_cmd", {"command": "cat shop.py | head -2"})),
        Message("assistant", "Shall I go on?"),
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, scene: Any) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    for name, text in scene.FILES.items():
        (root / name).write_text(text)
    return root


def lasting(counters: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in counters.items() if not name.endswith("_s")}


async def test_counters_are_those_of_the_file(agent: Make, scene: Any, folder: Path, tmp_path: Path) -> None:
    policy, path = ScriptedPolicy(script(scene)), tmp_path / "s.jsonl"
    recorder = SessionWriter(path, session_header(LARGE, policy, scene.FACTS), every="line")
    outcome = await agent(policy, LARGE, sandbox=LocalFolder(folder), recorder=recorder).run()
    assert counters_of(read_session(path)) == outcome.counters and check_file(path) == []
    expected = {
        "turns": 8, "calls": 10, "malformed_calls": 1, "edits": 3, "edits_without_read": 0, "thought_comments": 1,
        "todos_opened": 2, "todos_unfinished": 1, "green_claims_unbacked": 1, "questions": 1, "shell_for_tool": 1,
        "diff_files": 2, "diff_added": 2, "diff_removed": 1,
    }  # fmt: skip
    assert {name: outcome.counters[name] for name in expected} == expected
    assert outcome.counters["parallel_saved_s"] >= 0


@pytest.mark.parametrize("cut", range(1, 8))
async def test_a_session_taken_up_again_counts_as_if_it_had_never_stopped(
    agent: Make, scene: Any, folder: Path, cut: int
) -> None:
    """Ended after some turns; the rest is said to the next request. To-dos, reads, claims and the change go on from there."""
    whole = await agent(script(scene), LARGE, sandbox=LocalFolder(folder)).run()
    for name, text in scene.FILES.items():
        (folder / name).write_text(text)
    (folder / "notes.py").unlink()

    first = [*script(scene)[:cut], Message("assistant", "so far")]
    before = await agent(first, LARGE, sandbox=LocalFolder(folder)).run()
    recorder = Recorder(before.session.header)
    recorder.session.entries[:] = before.session.entries
    after = await agent(
        script(scene)[cut:], LARGE, sandbox=LocalFolder(folder), recorder=recorder, resumed=recorder.session,
        facts=TaskFacts("task-1", "go on"),
    ).run()  # fmt: skip
    between = {"turns": 1.0, "message_tokens": 1.0}
    assert lasting(after.counters) == {n: v + between.get(n, 0.0) for n, v in lasting(whole.counters).items()}


async def test_to_dos_outlive_the_process_that_opened_them(agent: Make, scene: Any, folder: Path) -> None:
    before = await agent([script(scene)[0], Message("assistant", "so far")], LARGE, sandbox=LocalFolder(folder)).run()
    recorder = Recorder(before.session.header)
    recorder.session.entries[:] = before.session.entries
    tick = scene.turn(("todo_write", {"todos": [{"id": "b", "status": "completed"}], "merge": True}))
    after = await agent(
        [tick, Message("assistant", "done")], LARGE, sandbox=LocalFolder(folder), recorder=recorder, resumed=recorder.session
    ).run()  # fmt: skip
    assert after.session.of("tool_result")[-1].data["text"] == "[ ] a mend\n[x] b test"
    assert (after.counters["todos_opened"], after.counters["todos_unfinished"]) == (2, 1)


# Complains about each line with the word bad; takes as long as the file LATE says.
LINTER = """#!/bin/sh
[ -e LATE ] && sleep "$(cat LATE)"
for name; do :; done
row='{"filename":"'$name'","location":{"row":&,"column":1},"code":"B1","message":"bad"}'
rows=$(grep -n bad | sed "s/:.*//; s|.*|$row|" | paste -sd, -)
echo "[$rows]"
[ -z "$rows" ]
"""


def linted(folder: Path) -> None:
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/ruff").write_text(LINTER)
    (folder / ".venv/bin/ruff").chmod(0o755)
    (folder / "ruff.toml").write_text("")
    (folder / "was.py").write_text("bad\nfine\n")


@pytest.fixture
async def machine(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Operations]:
    """A person's folder or a sandbox with the same files, its linter with them."""
    linted(folder)
    if request.param == "folder":
        yield LocalFolder(folder)
        return
    try:
        pool = await open_pool(SandboxSettings())
    except Unsupported as missing:
        pytest.skip(f"no sandbox works here: {missing}")
    files = {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    sandbox = await pool.create(SandboxSpec(files=files))
    await sandbox.run(["chmod", "755", ".venv/bin/ruff"])
    yield sandbox
    await pool.close()


def lint_script(scene: Any) -> list[Message]:
    return [
        scene.turn(("search_replace", {"file_path": "was.py", "old_string": "bad", "new_string": "good"})),
        scene.turn(("write", {"file_path": "new.py", "contents": "bad\nbad\n# bad\n"})),
        Message("assistant", "done"),
    ]


@pytest.mark.parametrize("seconds", [30.0, 0.0])
@pytest.mark.parametrize("machine", ["folder", "sandbox"], indirect=True)
async def test_the_lint_delta_is_measured_without_the_model_asking(
    agent: Make, scene: Any, machine: Operations, seconds: float
) -> None:
    settings = HarnessSettings.full(preset="search_replace", lint_delta_s=seconds)
    outcome = await agent(lint_script(scene), settings, sandbox=machine).run()
    if not seconds:
        assert not outcome.session.of("lints") and outcome.counters["lint_delta"] == 0
        return
    (entry,) = outcome.session.of("lints")
    assert entry.data == {"new": 3, "gone": 1, "ran": ["ruff"], "problems": []}
    assert outcome.counters["lint_delta"] == 2
    assert entry.id > outcome.session.of("completion")[-1].id, "behind the last turn"


async def test_linters_have_their_seconds_and_no_more_and_no_turn_pays_for_them(
    agent: Make, scene: Any, folder: Path
) -> None:
    linted(folder)
    (folder / "LATE").write_text("30")
    settings = HarnessSettings.full(preset="search_replace", lint_delta_s=0.5)
    start = time.perf_counter()
    outcome = await agent(lint_script(scene), settings, sandbox=LocalFolder(folder)).run()
    whole_s = time.perf_counter() - start
    (entry,) = outcome.session.of("lints")
    assert (entry.data["new"], entry.data["gone"], entry.data["ran"]) == (0, 0, []), "half a look counts nothing"
    assert "longer than" in entry.data["problems"][0]
    assert 0.5 < whole_s < 10 and outcome.seconds["all"] < whole_s - 0.4


async def test_measuring_lints_is_no_part_of_what_a_policy_sees(agent: Make, scene: Any, folder: Path) -> None:
    on, off = (HarnessSettings.full(preset="search_replace", lint_delta_s=s) for s in (5.0, 0.0))
    policy = ScriptedPolicy([])
    assert session_header(on, policy, scene.FACTS).harness == session_header(off, policy, scene.FACTS).harness
    one, two = [await agent(lint_script(scene), s, sandbox=LocalFolder(folder)).run() for s in (off, off)]
    assert compare(one.session, two.session) is not None, "the second found the files changed"


async def test_a_failure_that_repeats_itself_is_pointed_out_and_a_success_ends_the_count(
    folder: Path, scene: Any
) -> None:
    wrong = ("search_replace", {"file_path": "shop.py", "old_string": "nowhere", "new_string": "x"})
    other = ("search_replace", {"file_path": "shop.py", "old_string": "nowhere", "new_string": "y"})
    turns = [scene.turn(call) for call in (wrong, wrong, wrong, wrong, other, wrong, ("list_dir", {}), wrong, wrong)]
    agent = build_agent(
        LARGE,
        ScriptedPolicy([*turns, Message("assistant", "Done.")]),
        AgentDependencies(LocalFolder(folder), scene.FACTS),
    )
    texts = [entry.data["text"] for entry in (await agent.run()).session.of("tool_result")]
    assert ["times in a row" in text for text in texts] == [False, False, True, True, *[False] * 5]
    assert "has failed 3 times" in texts[2] and "has failed 4 times" in texts[3]
