"""One attempt at a task: sandbox, agent, files out, grade in a fresh sandbox. RL, bench and factory all come through here.

Promise 1: the agent is `harness.build_agent`'s. Promise 8: what the policy did wrong (malformed turns, time-outs, exploding
code, running out of tokens) stays in the rollout with the score its files earn; what we did wrong is retried with backoff
and raised as InfraFault in the end, never scored. Promise 9: the files are exported by the host, the grader gets its own
sandbox. The agent's sandbox is removed before grading starts, also when the attempt is cancelled. An `UngradedAttempt` is the
state between the two. A caller that keeps it (promise 6) can grade it later, by `attempt(..., ended=...)`, without asking the agent again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.agent import AgentOutcome, build_agent
from etude.agent.harness.approval import Approver
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.header import session_header
from etude.agent.harness.instructions import NAME, InstructionFile, fit, render_instructions
from etude.agent.harness.observer import AgentObserver, NullObserver
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.services import AgentServices
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.protocol import FatalStageError, Policy, PolicyError
from etude.core.trace.entry import Entry, SessionHeader
from etude.core.trace.segment import Rollout
from etude.core.trace.session import Recorder, Session
from etude.rollout.code_search import CodeSearch
from etude.rollout.interjection import overheard
from etude.rollout.latencies import SlowCalls, SlowSandbox, read_latencies
from etude.rollout.retry import InfraFault, delay_s
from etude.rollout.settings import AttemptSettings
from etude.rollout.ungraded_attempt import Keep, UngradedAttempt, keep_nothing
from etude.rollout.verdicts import Verdicts
from etude.sandbox.errors import CapacityExhausted, InfraError, Unsupported, UserError
from etude.sandbox.protocol import Disposable, Machines
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.workspace import open_workspace, read_workspace
from etude.tasks.grading import describe_error, graded
from etude.tasks.registry import no_grader
from etude.tasks.task import Grader, SessionGrader, Task, Verdict

# Retries sample with other seeds: a prime apart, so that they never meet the seeds of a session's later turns.
SEED_STRIDE = 1_000_003


Script = Callable[[Task, int], Policy]
# Another agent than the harness': works in the sandbox, asks the policy under this session's id; seed as in `build_agent`.
OtherAgent = Callable[[Task, Policy, Disposable, str, int | None], Awaitable[AgentOutcome]]


@dataclass(frozen=True)
class AttemptSetup:
    """What all attempts of a batch share.

    `policy` is one object for all, or, for scripted policies that follow a plan of their own, a function of (task, seed) that
    makes a fresh one for every try. `record` makes the recorder of a session (default: in memory only); `adapt` changes the
    sandbox that an agent gets (say, to bind tools read-only); with `verdicts`, files graded before are not graded again. `search`:
    the code index, if the harness offers search by meaning (`rollout/code_search.py`). `agent`: who attempts it in place of our own
    harness, for a comparison of harnesses; everything around it stays the same.
    """

    policy: Policy | Script
    pool: Machines
    graders: Mapping[str, Grader]
    harness: HarnessSettings
    renderer: Renderer | None = None
    settings: AttemptSettings = field(default_factory=AttemptSettings)
    record: Callable[[SessionHeader], Recorder] = Recorder
    adapt: Callable[[SandboxSpec], SandboxSpec] = lambda spec: spec
    verdicts: Verdicts | None = None
    search: CodeSearch | None = None
    agent: OtherAgent | None = None

    @asynccontextmanager
    async def services(self, task: Task, sandbox: Disposable) -> AsyncIterator[AgentServices]:
        """What one try may use in addition to its sandbox."""
        if self.search is None:
            yield AgentServices()
            return
        async with self.search.services(task, sandbox) as services:
            yield services

    def policy_for(self, task: Task, seed: int | None) -> Policy:
        """Who answers this try."""
        return self.policy(task, seed or 0) if callable(self.policy) else self.policy


@dataclass(frozen=True)
class Attempt:
    """What came of it. `seconds` by phase: create, agent (of it policy, tools), export, grade, all; `tries` >= 1."""

    rollout: Rollout
    verdict: Verdict
    outcome: AgentOutcome
    files: dict[str, bytes]
    seconds: dict[str, float]
    tries: int = 1


class ProgressDeadline(NullObserver):
    """Moves the end of a try on with each entry that its session records, and with each sign of life of an engine that samples its turn. So a
    slow policy, or one that many sessions share, is given all its turns, and a try that hangs ends."""

    def __init__(self, timeout: asyncio.Timeout, limit_s: float) -> None:
        self._timeout, self._limit_s = timeout, limit_s
        self.user: AgentObserver = NullObserver()  # a user in the task, who observes the session too

    def extend(self) -> None:
        """By the limit from now on; nothing where the try is over its time already."""
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._limit_s)

    def entry(self, entry: Entry) -> None:
        self.extend()
        self.user.entry(entry)

    def idle(self, reason: str, message: str) -> None:
        self.user.idle(reason, message)


AttemptPhase = Literal["sandbox", "agent", "grading"]
OnPhase = Callable[
    [AttemptPhase, str], None
]  # the phase of the current try, and the host of its sandbox where a fleet names one


def _ignore_phase(phase: AttemptPhase, where: str) -> None:
    """The default: no observer."""


async def attempt(
    task: Task,
    setup: AttemptSetup,
    *,
    name: str = "",
    seed: int | None = None,
    group: int = 0,
    on_phase: OnPhase = _ignore_phase,
    keep: Keep = keep_nothing,
    ended: UngradedAttempt | None = None,
) -> Attempt:
    """One graded attempt. `name` becomes the rollout's id; `on_phase` receives its phase, `keep` what the agent left. `ended`: what it left
    before, so that only its grading is tried. Raises InfraFault when the tries are used up, and StageError."""
    name = name or task.id
    faults: list[str] = []  # of tries that were repeated, by class
    while True:
        tries = len(faults)
        try:
            async with asyncio.timeout(setup.settings.limit_s) as timeout:
                progress = ProgressDeadline(timeout, setup.settings.limit_s)
                left_behind = ended
                if left_behind is None:
                    varied = None if seed is None else seed + SEED_STRIDE * tries
                    policy = setup.policy_for(task, seed)  # the same plan again, however often it is tried
                    left_behind = await _try(task, setup, policy, name, varied, tries + 1, on_phase, progress)
                    keep(left_behind)
                on_phase("grading", "")
                progress.extend()
                found = await _graded(left_behind, task, setup, group)
                found.rollout.info.update({"faults": faults} if faults else {})
                return found
        except FatalStageError:
            raise
        except Exception as error:  # whatever it is, it is this attempt's: tried again, or an InfraFault
            if (running := asyncio.current_task()) is not None and running.cancelling():
                raise asyncio.CancelledError from error  # it took the place of the cancellation, so no try follows
            faults.append(type(error).__name__)
            await asyncio.sleep(_wait_s(error, len(faults), setup.settings, name))


def _wait_s(error: Exception, tries: int, settings: AttemptSettings, name: str) -> float:
    """Before the next try. Raises InfraFault where there is none."""
    hint_s = error.retry_after_s if isinstance(error, CapacityExhausted) else 0.0
    final = isinstance(error, InfraError) and not error.retryable
    wait_s = None if final else delay_s(tries, settings, hint_s)
    if wait_s is None:
        reason = _reason(error, settings)
        raise InfraFault(f"{name}: {type(error).__name__} after {tries} tries: {reason}") from error
    return wait_s


def _reason(error: Exception, settings: AttemptSettings) -> str:
    """An error that nothing foresaw says where it comes from: somebody has to mend that."""
    if isinstance(error, TimeoutError):
        return str(error) or f"it hung: nothing happened for {settings.limit_s:g} s (attempt.limit_s)"
    return str(error) if isinstance(error, (InfraError, PolicyError)) else describe_error(error)


async def _sandbox(task: Task, setup: AttemptSetup, name: str) -> Disposable:
    try:
        return await open_workspace(task, setup.pool, _spec(task, name, setup.settings), setup.adapt, history=True)
    except UserError as error:  # a missing image, a bad limit: the task's environment is wrong, and no policy did that
        raise Unsupported(f"no sandbox can be made for task {task.id}: {error}") from error


async def _try(
    task: Task,
    setup: AttemptSetup,
    policy: Policy,
    name: str,
    seed: int | None,
    number: int,
    on_phase: OnPhase,
    progress: ProgressDeadline,
) -> UngradedAttempt:
    began_unix_s, start = time.time(), time.perf_counter()
    on_phase("sandbox", "")
    sandbox = await _sandbox(task, setup, name)
    host = getattr(sandbox, "host", "")  # of a fleet; else there is this machine alone
    on_phase("agent", host)
    created = time.perf_counter()
    try:
        outcome = await _run_agent(task, setup, policy, sandbox, name, number, seed, progress)
        ran = time.perf_counter()
        files, objection = await _export(sandbox, task, setup.settings)
    finally:
        await sandbox.kill()
    seconds = {
        "create": created - start,
        "agent": ran - created,
        "policy": outcome.seconds.get("policy", 0.0),
        "tools": outcome.seconds.get("tools", 0.0),
        "export": time.perf_counter() - ran,
    }
    return UngradedAttempt(name, outcome, files, objection, number, host, began_unix_s, seconds)


async def _graded(ended: UngradedAttempt, task: Task, setup: AttemptSetup, group: int) -> Attempt:
    """What the agent left, judged; the seconds of all phases are those that it took, also where another attempt waited for them."""
    start, outcome = time.perf_counter(), ended.outcome
    if ended.objection:
        verdict, shared = Verdict(0.0, reason=ended.objection), False
    else:
        verdict, shared = await _grade(task, ended.files, outcome.session, setup)
    grade_s = time.perf_counter() - start
    worked_s = sum(ended.seconds[phase] for phase in ("create", "agent", "export"))
    seconds = {**ended.seconds, "grade": grade_s, "all": worked_s + grade_s}
    info = {"end": outcome.reason, "message": outcome.message, "verdict": verdict.reason, "tries": ended.number}
    info |= {"verdict_shared": shared, "began_unix_s": round(ended.began_unix_s, 2)}
    info |= {"host": ended.host} if ended.host else {}
    info |= {"seconds": {phase: round(value, 4) for phase, value in seconds.items()}}
    rewards = {"outcome": verdict.score}
    rollout = Rollout(ended.name, task.id, group, outcome.segments, rewards, dict(outcome.counters), info)
    return Attempt(rollout, verdict, outcome, ended.files, seconds, ended.number)


def _spec(task: Task, name: str, settings: AttemptSettings) -> SandboxSpec:
    return SandboxSpec(memory_mb=settings.memory_mb, labels={"task": task.id, "rollout": name})


async def _run_agent(
    task: Task,
    setup: AttemptSetup,
    policy: Policy,
    sandbox: Disposable,
    name: str,
    number: int,
    seed: int | None,
    progress: ProgressDeadline,
) -> AgentOutcome:
    session_id = f"{name}.{number}"
    if setup.settings.tool_latency_s:
        sandbox = SlowSandbox(sandbox, setup.settings.tool_latency_s)
    if setup.agent is not None:
        return await setup.agent(task, policy, sandbox, session_id, seed)
    facts = task_facts(task)
    inbox, progress.user = overheard(task)
    header = session_header(setup.harness, policy, facts, renderer=setup.renderer, session_id=session_id)
    async with setup.services(task, sandbox) as services:
        agent = build_agent(
            setup.harness,
            policy,
            AgentDependencies(
                sandbox,
                facts,
                renderer=setup.renderer,
                recorder=setup.record(header),
                seed=seed,
                services=services,
                inbox=inbox,
                approver=_approver(setup, name),
                watcher=progress,
                on_alive=progress.extend,
            ),
        )
        return await agent.run()


def _approver(setup: AttemptSetup, name: str) -> Approver:
    """No approval is needed in a rollout; where latencies are replayed, calls wait for theirs."""
    if setup.settings.tool_latencies is None:
        return Approver()
    latencies = read_latencies(setup.settings.tool_latencies)
    latencies.check(set(preset_of(setup.harness).tools) - {"done"})  # a session's end is no call
    return SlowCalls(latencies, name)


async def _export(sandbox: Disposable, task: Task, settings: AttemptSettings) -> tuple[dict[str, bytes], str]:
    """The files the agent left, or why they can't be taken: that is the policy's doing, hence evidence."""
    try:
        return await read_workspace(sandbox, task, settings.max_export_bytes), ""
    except UserError as error:
        return {}, f"the files can't be exported: {error}"


def task_facts(task: Task) -> TaskFacts:
    """The facts that the agent gets: the request, its repository's AGENTS.md, and what the task says of the surroundings."""
    instructions = (
        render_instructions(fit([InstructionFile(NAME, task.files[NAME])]).files) if NAME in task.files else ""
    )
    surroundings = str(task.metadata.get("surroundings", ""))
    return TaskFacts(task.id, task.instruction, task.test_command, instructions, surroundings)


async def _grade(task: Task, files: dict[str, bytes], session: Session, setup: AttemptSetup) -> tuple[Verdict, bool]:
    """The verdict, and whether it is that of an earlier attempt which left the same files."""
    grader = setup.graders.get(task.grader)
    if grader is None:
        raise Unsupported(f"task {task.id}: {no_grader(task.grader, setup.graders)}")
    if isinstance(grader, SessionGrader):
        return await graded(grader, task, files, setup.pool, session), False
    if setup.verdicts is None:
        return await graded(grader, task, files, setup.pool), False
    return await setup.verdicts.of(task.id, files, lambda: graded(grader, task, files, setup.pool))
