"""A session with a person in it: requests that follow, words on the way, stops, rulings, and sessions taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etude.agent.harness.agent import Agent
from etude.agent.harness.approval import Answer, ApprovalAnswer, Approver, Effect
from etude.agent.harness.header import session_header
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.replay import replay
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.protocol import Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.entry import Entry
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.reader import read_session
from etude.core.trace.writer import SessionWriter
from etude.sandbox.errors import SandboxDied

Make = Callable[..., Agent]
SAY = [Message("assistant", "first answer"), Message("assistant", "second answer")]


def heard(outcome: Any) -> list[tuple[str | None, str]]:
    """User messages with how they arrived."""
    rows = [entry.data for entry in outcome.session.of("message")]
    return [(row.get("delivery"), row["text"]) for row in rows if row["role"] == "user"]


def queued(*texts: str) -> Inbox:
    inbox = Inbox()
    for text in texts:
        inbox.say("queue", text)
    inbox.close()
    return inbox


async def test_requests_follow_one_another_in_one_session(agent: Make, make_sandbox: Any) -> None:
    outcome = await agent(SAY, inbox=queued("and now?")).run()
    assert heard(outcome) == [(None, "fix total"), ("queue", "and now?")]
    assert outcome.message == "second answer"
    assert await replay(outcome.session, make_sandbox()) is None


async def test_a_request_after_done_finds_the_call_answered(agent: Make, scene: Any, make_sandbox: Any) -> None:
    outcome = await agent([scene.done("one"), scene.done("two")], inbox=queued("more")).run()
    assert [entry.data["text"] for entry in outcome.session.of("tool_result")] == ["ok"]
    assert await replay(outcome.session, make_sandbox()) is None


async def test_turns_are_limited_by_request(agent: Make, scene: Any) -> None:
    look = scene.turn(("grep", {"pattern": "total"}))
    settings = HarnessSettings(max_turns=2, max_session_tokens=8000)
    outcome = await agent([look, look, look, scene.done()], settings, inbox=queued("go on")).run()
    assert (outcome.reason, outcome.counters["turns"]) == ("done", 4)


async def test_steering_is_heard_before_the_next_turn_and_replays(agent: Make, scene: Any, make_sandbox: Any) -> None:
    inbox = Inbox()
    seen: list[str] = []

    def answer(request: Request) -> Message:
        seen.append(request.messages[-1].text)
        if len(seen) == 1:
            inbox.say("steer", "use sum()")
            inbox.close()
            return scene.turn(("grep", {"pattern": "total"}))
        return scene.done()

    outcome = await agent(ScriptedPolicy(answer), inbox=inbox).run()
    assert seen[1] == "use sum()"
    assert heard(outcome)[1] == ("steer", "use sum()")
    assert await replay(outcome.session, make_sandbox()) is None


async def test_stop_breaks_off_a_turn_and_the_next_request_is_answered(agent: Make, make_sandbox: Any) -> None:
    inbox = Inbox()

    class Slow(ScriptedPolicy):
        async def complete(self, request: Request) -> Any:
            if len(request.messages) == 1:
                inbox.say("stop")
                inbox.say("queue", "something else")
                inbox.close()
                await asyncio.sleep(60)
            return await super().complete(request)

    outcome = await agent(Slow(SAY), inbox=inbox).run()
    assert heard(outcome) == [(None, "fix total"), ("stop", ""), ("queue", "something else")]
    assert (outcome.reason, outcome.message) == ("message", "first answer")
    assert await replay(outcome.session, make_sandbox()) is None


async def test_a_stopped_tool_leaves_every_call_answered(agent: Make, scene: Any, make_sandbox: Any) -> None:
    inbox = Inbox()
    sandbox = make_sandbox()

    async def hang(argv: Any, **options: Any) -> Any:
        inbox.say("stop")
        inbox.close()
        await asyncio.sleep(60)

    sandbox.run = hang
    outcome = await agent([scene.turn(("test", {}), ("grep", {"pattern": "x"}))], sandbox=sandbox, inbox=inbox).run()
    answers = [entry.data["text"] for entry in outcome.session.of("tool_result")]
    assert outcome.reason == "stopped" and len(answers) == 2
    assert all("stopped by the user" in text for text in answers)


async def test_calls_that_change_nothing_run_side_by_side_and_answer_in_order(
    agent: Make, scene: Any, make_sandbox: Any
) -> None:
    sandbox, waiting, both = make_sandbox(), 0, asyncio.Event()
    read = sandbox.read

    async def meet(path: str, **options: Any) -> bytes:
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 5)  # one after the other would wait for ever
        return await read(path, **options)

    sandbox.read = meet
    views = scene.turn(("view", {"path": "shop.py"}), ("view", {"path": "main.py"}))
    outcome = await agent([views, scene.done()], sandbox=sandbox).run()
    first, second = (entry.data["text"] for entry in outcome.session.of("tool_result"))
    assert first.startswith("def total") and second.startswith("from shop")


async def test_an_infra_fault_of_one_call_ends_those_next_to_it(agent: Make, scene: Any, make_sandbox: Any) -> None:
    sandbox, ended = make_sandbox(), asyncio.Event()

    async def read(path: str, **options: Any) -> bytes:
        if path == "shop.py":
            await asyncio.sleep(0)
            raise SandboxDied("gone")
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return b""

    sandbox.read = read
    views = scene.turn(("view", {"path": "shop.py"}), ("view", {"path": "main.py"}))
    with pytest.raises(SandboxDied):
        await agent([views], sandbox=sandbox).run()
    assert ended.is_set()


@pytest.mark.parametrize(("answer", "decision"), [("once", "allowed"), ("session", "always"), ("deny", "denied")])
async def test_what_a_person_rules_is_recorded_obeyed_and_replayed(
    agent: Make, scene: Any, make_sandbox: Any, answer: Answer, decision: str
) -> None:
    async def ask(call: ToolCall, effect: Effect) -> ApprovalAnswer:
        return ApprovalAnswer(answer, "because")

    edit = scene.turn(("edit", {"path": "new.txt", "old": "", "new": "1"}))
    sandbox = make_sandbox()
    outcome = await agent([edit, scene.done()], sandbox=sandbox, approver=Approver("writes", ask)).run()
    (approval,) = outcome.session.of("approval")
    assert (approval.data["decision"], approval.data["by"]) == (decision, "user")
    assert ("new.txt" in sandbox.files) == (decision != "denied")
    assert await replay(outcome.session, make_sandbox()) is None


async def test_an_edit_is_recorded_behind_its_answer(agent: Make, scene: Any) -> None:
    mend = scene.turn(("edit", {"path": "shop.py", "oldText": "out -= x", "newText": "out += x"}))
    outcome = await agent([mend, Message("assistant", "mended")], HarnessSettings.full(preset="minimal")).run()
    (edit,) = outcome.session.of("edit")
    assert outcome.session.entries[edit.id - 1].type == "tool_result"
    assert (edit.data["path"], edit.data["added"], edit.data["removed"]) == ("shop.py", 1, 1)
    assert outcome.counters["diff_added"] == outcome.counters["diff_removed"] == 1


@pytest.mark.parametrize("tokens", [False, True])
async def test_a_session_is_taken_up_where_it_ended(
    agent: Make, scene: Any, renderer: Any, make_sandbox: Any, tmp_path: Path, tokens: bool
) -> None:
    path, sandbox = tmp_path / "s.jsonl", make_sandbox()
    prompts: list[tuple[int, ...]] = []

    def policy(script: Any) -> Any:
        inner = scene.token_policy(renderer, script) if tokens else ScriptedPolicy(script)
        complete = inner.complete

        async def listening(request: Request) -> Any:
            prompts.append(request.prompt_ids)
            return await complete(request)

        inner.complete = listening
        return inner

    given = {"renderer": renderer} if tokens else {}
    first = policy([scene.turn(("grep", {"pattern": "total"})), Message("assistant", "found")])
    header = session_header(scene.ROOMY, first, scene.FACTS, **given)
    before = await agent(first, sandbox=sandbox, recorder=SessionWriter(path, header, every="line"), **given).run()
    facts = TaskFacts("task-1", "now fix it")
    resumed = read_session(path)
    after = await agent(
        policy([Message("assistant", "fixed")]),
        sandbox=sandbox,
        recorder=SessionWriter.resume(path, every="line"),
        resumed=resumed,
        facts=facts,
        **given,
    ).run()
    assert heard(after) == [(None, "fix total"), ("queue", "now fix it")]
    whole = read_session(path)
    assert [e.type for e in whole.entries] == [e.type for e in after.session.entries]
    if tokens:
        (held,), (longer,) = before.segments, after.segments
        assert list(prompts[-1][: len(held)]) == held.ids.tolist()
        assert longer.ids[: len(held)].tolist() == held.ids.tolist()
        assert [s.ids.tolist() for s in whole.segments()] == [longer.ids.tolist()]
        assert longer.sampled.sum() > held.sampled.sum()


async def test_a_summary_is_made_when_the_person_wishes_and_replays(agent: Make, scene: Any, make_sandbox: Any) -> None:
    """Of an agent at work before its next turn, of one that waits at once; the session goes on from it."""
    inbox = Inbox()
    last: list[str] = []

    def answer(request: Request) -> Message:
        last.append(request.messages[-1].text)
        if len(last) == 1:
            inbox.summarize("keep the names")
            return scene.turn(("grep", {"pattern": "total"}))
        if len(last) == 3:
            asyncio.get_running_loop().call_soon(inbox.summarize)
            asyncio.get_running_loop().call_later(0.05, inbox.close)
        return Message("assistant", f"turn {len(last)}")

    settings = HarnessSettings.full(preset="minimal")
    outcome = await agent(ScriptedPolicy(answer), settings, inbox=inbox).run()
    rows = [e.data for e in outcome.session.of("message") if e.data["role"] == "user"]
    assert [(row.get("delivery"), row.get("summary", False)) for row in rows] == [
        (None, False), ("steer", False), ("steer", True), ("queue", True)
    ]  # fmt: skip
    assert rows[1]["text"] == "keep the names" and len(last) == 4
    assert [e.data["text"] for e in outcome.session.of("summary")] == ["turn 2", "turn 4"]
    assert last[2].startswith("turn 2")  # the next turn goes on from the summary
    assert await replay(outcome.session, make_sandbox()) is None


async def test_a_summary_of_nothing_is_not_made(agent: Make) -> None:
    inbox = queued()
    inbox._closed = False
    inbox.summarize()
    inbox.close()
    outcome = await agent(SAY, inbox=inbox).run()
    assert outcome.session.of("summary") == [] and outcome.message == "first answer"


@pytest.mark.parametrize("tokens", [False, True])
async def test_a_session_taken_up_with_other_tools_says_so_and_its_prompt_holds_them(
    tokens: bool, agent: Make, scene: Any, tmp_path: Path, make_renderer: Any
) -> None:
    path = tmp_path / "s.jsonl"
    given = {"renderer": make_renderer("qwen3", "all")} if tokens else {}
    before = HarnessSettings.full(preset="search_replace", tools_off=("lints",))
    policy = ScriptedPolicy(SAY)
    header = session_header(before, policy, scene.FACTS, **given)
    await agent(policy, before, recorder=SessionWriter(path, header, every="line"), **given).run()
    for after, entries in ((before, 0), (HarnessSettings.full(preset="search_replace"), 1)):
        resumed = read_session(path)
        recorder = SessionWriter.resume(path, every="line")
        await agent(ScriptedPolicy(SAY), after, recorder=recorder, resumed=resumed, **given).run()
        whole = read_session(path)
        assert len(whole.of("harness")) == entries
    assert whole.of("harness")[0].data["harness"] == session_header(after, policy, scene.FACTS, **given).harness
    assert len(whole.of("fork")) == int(tokens)


@pytest.mark.parametrize(("effort", "turns"), [("low", 2), ("medium", 4), ("high", 8)])
async def test_effort_is_asked_for_and_honoured_by_the_budget(agent: Make, scene: Any, effort: Any, turns: int) -> None:
    asked: list[str] = []

    def answer(request: Request) -> Message:
        asked.append(request.effort)
        return scene.turn(("grep", {"pattern": "total"}))

    settings = HarnessSettings(max_turns=4, max_session_tokens=80_000, effort=effort)
    outcome = await agent(ScriptedPolicy(answer), settings).run()
    assert (outcome.reason, asked) == ("max_turns", [effort] * turns)
    assert outcome.session.header.effort == effort


async def test_project_instructions_stand_in_the_system_prompt_and_replay(agent: Make, make_sandbox: Any) -> None:
    facts = TaskFacts("t", "go", instructions="<instructions>tabs only</instructions>")
    outcome = await agent([Message("assistant", "ok")], HarnessSettings.full(preset="minimal"), facts=facts).run()
    system = outcome.session.entries[0].data
    assert system["role"] == "system" and "tabs only" in system["text"]
    assert await replay(outcome.session, make_sandbox()) is None


async def test_whoever_watches_sees_every_entry_and_each_answer(agent: Make, scene: Any) -> None:
    class Watcher:
        def __init__(self) -> None:
            self.entries: list[Entry] = []
            self.idles: list[tuple[str, str]] = []

        def delta(self, part: str, piece: str) -> None: ...
        def waiting(self, wait: object) -> None: ...
        def entry(self, entry: Entry) -> None:
            self.entries.append(entry)

        def idle(self, reason: str, message: str) -> None:
            self.idles.append((reason, message))

    watcher = Watcher()
    outcome = await agent(SAY, inbox=queued("more"), watcher=watcher).run()
    assert watcher.entries == outcome.session.entries
    assert watcher.idles == [("message", "first answer"), ("message", "second answer")]
