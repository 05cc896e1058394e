"""An attempt keeps the policy's faults as evidence and never turns ours into a score (promises 1, 8, 9)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import PolicyError, Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion
from etude.core.trace.message import Message, ToolCall
from etude.rollout.attempt import AttemptSetup, attempt
from etude.rollout.batch import AttemptJob, run_batch
from etude.rollout.retry import InfraFault, delay_s
from etude.rollout.settings import AttemptSettings
from etude.sandbox.errors import DiskFull, SandboxDied, Unsupported, UserError
from etude.sandbox.spec import ExecResult, FileEntry, SandboxSpec
from etude.tasks.task import Task, Verdict

TASK = Task(
    id="t1",
    category="debugging",
    level="one-bug",
    instruction="fix add",
    files={"calc.py": "def add(a, b):\n    return a - b\n"},
    test_command=("python", "test.py"),
    grader="plus",
)


class MemorySandbox:
    """A sandbox that is a dict; `fails` are raised by create, run or export, one each time."""

    def __init__(self, spec: SandboxSpec, pool: MemoryPool) -> None:
        self.id = f"s{pool.created}"
        self.spec = spec
        self.pool = pool
        self.files = dict(spec.files)
        self.alive = True

    async def run(self, argv: Any, **options: Any) -> ExecResult:
        self.pool.fault("run")
        return ExecResult(0, b"ok", b"")

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        return self.files[path]

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self.files[path] = data

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[FileEntry]:
        return [FileEntry(name, "file", len(data), 0o644) for name, data in self.files.items()]

    async def remove(self, path: str) -> None:
        del self.files[path]

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        self.pool.fault("export")
        return dict(self.files)

    async def kill(self) -> None:
        self.pool.live.discard(self.id)


class MemoryPool:
    def __init__(self, **faults: list[Exception]) -> None:
        self.faults = faults
        self.created = 0
        self.live: set[str] = set()

    def fault(self, where: str) -> None:
        if self.faults.get(where):
            raise self.faults[where].pop(0)

    async def create(self, spec: SandboxSpec) -> Any:
        self.fault("create")
        self.created += 1
        sandbox = MemorySandbox(spec, self)
        self.live.add(sandbox.id)
        return sandbox

    async def close(self) -> None: ...

    def probe(self) -> Any: ...


class Plus:
    """Passes if the file adds; counts how often it was asked and with which live sandboxes."""

    def __init__(self) -> None:
        self.asked = 0
        self.faults: list[Exception] = []

    async def grade(self, task: Task, files: dict[str, bytes], pool: Any) -> Verdict:
        if self.faults:
            raise self.faults.pop(0)
        self.asked += 1
        assert not pool.live, "the agent's sandbox has to be gone before grading"
        passed = b"a + b" in files.get("calc.py", b"")
        return Verdict(float(passed), {"add": passed})


def call(name: str, **arguments: str) -> Message:
    return Message("assistant", calls=(ToolCall("c", name, dict(arguments)),))


FIX = [call("edit", path="calc.py", old="a - b", new="a + b"), call("done", message="fixed")]
FAST = AttemptSettings(attempts=3, first_delay_s=0.0, limit_s=5.0)


def setup(pool: MemoryPool, script: Any = FIX, **changes: Any) -> AttemptSetup:
    return replace(
        AttemptSetup(ScriptedPolicy(script), pool, {"plus": Plus()}, HarnessSettings(), settings=FAST), **changes
    )


async def test_a_good_attempt_is_graded_on_the_exported_files():
    pool = MemoryPool()
    result = await attempt(TASK, setup(pool), name="t1.0", group=4)
    assert result.verdict.passed and result.rollout.rewards == {"outcome": 1.0}
    assert (result.rollout.id, result.rollout.task_id, result.rollout.group) == ("t1.0", "t1", 4)
    assert result.rollout.counters["turns"] == 2 and result.rollout.info["end"] == "done"
    assert not pool.live and result.tries == 1
    assert result.seconds["all"] >= result.seconds["agent"]


async def test_policy_faults_stay_as_evidence_with_the_score_they_earn():
    loud = Message("assistant", text="I give up")
    result = await attempt(TASK, setup(MemoryPool(), [loud]))
    assert result.verdict.score == 0.0 and result.rollout.info["end"] == "message"
    refused = await attempt(TASK, setup(MemoryPool(), [FIX[0]]))  # the script runs dry after a good edit
    assert refused.rollout.info["end"] == "refused" and refused.verdict.passed


async def test_files_that_cannot_be_exported_are_the_policys_doing():
    pool = MemoryPool(export=[DiskFull("too many bytes")])
    result = await attempt(TASK, setup(pool))
    assert result.verdict.score == 0.0 and "too many bytes" in result.verdict.reason and result.tries == 1


@pytest.mark.parametrize("where", ["create", "run", "export"])
async def test_infra_faults_are_retried_and_leave_no_mark_on_the_score(where):
    pool = MemoryPool(**{where: [SandboxDied("gone"), SandboxDied("gone again")]})
    result = await attempt(TASK, setup(pool, [call("test"), *FIX]))
    assert result.verdict.passed and result.tries == 3 and not pool.live


async def test_infra_faults_while_grading_are_retried_too():
    grader = Plus()
    grader.faults = [SandboxDied("gone")]
    result = await attempt(TASK, setup(MemoryPool(), graders={"plus": grader}))
    assert result.verdict.passed and result.tries == 2


async def test_a_fault_beyond_the_bound_is_raised_and_never_scored():
    pool = MemoryPool(run=[SandboxDied("gone")] * 9)
    graders = {"plus": Plus()}
    with pytest.raises(InfraFault, match="t1: SandboxDied after 3 tries: gone"):
        await attempt(TASK, setup(pool, [call("test"), *FIX], graders=graders))
    assert graders["plus"].asked == 0 and not pool.live


async def test_what_retrying_cannot_mend_is_raised_at_once():
    pool = MemoryPool(create=[Unsupported("no user namespaces here")] * 3)
    with pytest.raises(InfraFault, match="after 1 tries"):
        await attempt(TASK, setup(pool))


async def test_an_environment_that_cannot_be_made_is_a_fault_with_the_tasks_name_and_no_score():
    pool = MemoryPool(create=[UserError("image 'gone' is not in the layer store")] * 3)
    with pytest.raises(InfraFault, match=f"after 1 tries: no sandbox can be made for task {TASK.id}: image 'gone'"):
        await attempt(TASK, setup(pool))


async def test_a_policy_that_is_down_is_infra_and_retries_use_other_seeds():
    seeds: list[int | None] = []

    def flaky(request: Request) -> Message:
        seeds.append(request.seed)
        if len(seeds) < 3:
            raise PolicyError("engine restarts", infra=True)
        return call("done", message="")

    result = await attempt(TASK, setup(MemoryPool(), flaky), seed=7)
    assert result.tries == 3 and len(set(seeds)) == 3


async def test_a_hanging_policy_becomes_an_infra_fault_with_a_reason():
    class Hangs(ScriptedPolicy):
        async def complete(self, request: Request) -> Completion:
            await asyncio.sleep(60)
            raise AssertionError

    pool = MemoryPool()
    limits = FAST.model_copy(update={"limit_s": 0.05, "attempts": 2})
    with pytest.raises(InfraFault, match="it hung: nothing happened for 0.05 s"):
        await attempt(TASK, setup(pool, policy=Hangs([]), settings=limits))
    assert not pool.live


async def test_a_slow_policy_has_the_limit_for_each_turn_and_not_for_the_whole_try():
    class Slow(ScriptedPolicy):
        async def complete(self, request: Request) -> Completion:
            await asyncio.sleep(0.9)
            return await super().complete(request)

    turns = [call("bash", command="true") for _ in range(4)] + [call("done", message="over")]
    limits = FAST.model_copy(update={"limit_s": 3.0, "attempts": 1})
    found = await attempt(TASK, setup(MemoryPool(), policy=Slow(turns), settings=limits))
    assert found.tries == 1 and found.outcome.reason == "done" and found.seconds["agent"] > 3.0


async def test_a_turn_that_an_engine_of_ours_computes_may_take_longer_than_the_limit():
    class Working(ScriptedPolicy):
        async def complete(self, request: Request) -> Completion:
            assert request.on_alive is not None
            for _ in range(8):
                await asyncio.sleep(0.25)
                request.on_alive()
            return await super().complete(request)

    limits = FAST.model_copy(update={"limit_s": 1.5, "attempts": 1})
    policy = Working([call("done", message="over")])
    found = await attempt(TASK, setup(MemoryPool(), policy=policy, settings=limits))
    assert found.tries == 1 and found.outcome.reason == "done" and found.seconds["agent"] > 1.5


async def test_a_batch_keeps_order_bounds_concurrency_and_names_faults():
    pool = MemoryPool(create=[Unsupported("no")])
    running, most = 0, 0

    async def answer(request: Request) -> Completion:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return Completion(message=call("done", message=request.session_id))

    policy = ScriptedPolicy([])
    policy.complete = answer  # type: ignore[method-assign]
    seen: list[int] = []
    jobs = [AttemptJob(TASK, f"t1.{i}") for i in range(9)]
    grader = Plus()
    grader.grade = lambda *_: asyncio.sleep(0, Verdict(1.0))  # type: ignore[assignment,method-assign]
    batch = await run_batch(
        jobs,
        setup(pool, policy=policy, graders={"plus": grader}),
        concurrency=3,
        progress=lambda done, total, _: seen.append(done),
    )
    assert [a.rollout.id for a in batch.attempts] == [f"t1.{i}" for i in range(1, 9)]
    assert list(batch.faults) == ["t1.0"]
    assert most == 3 and seen == list(range(1, 10))


async def test_cancelling_a_batch_leaves_no_sandbox():
    pool = MemoryPool()
    policy = ScriptedPolicy([])
    policy.complete = lambda _: asyncio.sleep(60)  # type: ignore[assignment,method-assign]
    task = asyncio.create_task(
        run_batch([AttemptJob(TASK, str(i)) for i in range(5)], setup(pool, policy=policy), concurrency=2)
    )
    await asyncio.sleep(0.02)
    assert len(pool.live) == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not pool.live


async def test_a_cancelled_attempt_is_not_tried_again_whatever_error_ends_it(monkeypatch):
    async def failing(self: MemorySandbox) -> None:
        raise SandboxDied("gone")

    monkeypatch.setattr(MemorySandbox, "kill", failing)
    pool = MemoryPool()
    policy = ScriptedPolicy([])
    policy.complete = lambda _: asyncio.sleep(60)  # type: ignore[assignment,method-assign]
    task = asyncio.create_task(attempt(TASK, setup(pool, policy=policy)))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert task.cancelled() and pool.created == 1


def test_backoff_grows_to_its_cap_and_ends():
    settings = AttemptSettings(attempts=5, first_delay_s=0.1, max_delay_s=2.0)
    assert [delay_s(n, settings) for n in range(1, 6)] == pytest.approx([0.1, 0.4, 1.6, 2.0, None])
    assert delay_s(1, settings, hint_s=1.0) == 1.0


async def test_calls_of_an_attempt_wait_their_recorded_latencies(tmp_path: Path):
    tools = ("grep", "view", "edit", "test", "todo")
    path = tmp_path / "latencies.json"
    path.write_text(json.dumps({"source": {}, "seconds": {tool: [0.2] for tool in tools}}))
    found = await attempt(TASK, setup(MemoryPool(), settings=FAST.model_copy(update={"tool_latencies": path})))
    assert found.verdict.passed
    calls = len(found.outcome.session.of("tool_result"))
    assert calls >= 1 and found.seconds["agent"] >= 0.2 * calls
    path = tmp_path / "fewer.json"
    path.write_text(json.dumps({"source": {}, "seconds": {"edit": [0.2]}}))
    with pytest.raises(ValueError, match="none for grep, test, todo, view"):
        await attempt(TASK, setup(MemoryPool(), settings=FAST.model_copy(update={"tool_latencies": path})))
