"""The agent: ask the policy, run its calls in the sandbox, append the answers, until it is done or a limit is reached.

Promise 1: `build_agent` is the only way to one, for `etude agent`, rollouts, demonstrations and the bench alike. Promise 8:
what the policy does wrong (a malformed turn, an unknown tool, a failed edit, running out of turns) is evidence and stays;
what we do wrong (InfraError, PolicyError with `infra`) is recorded and raised, and never looks like a result.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from etude.chat.renderer import Renderer
from etude.harness.counters import Counters
from etude.harness.facts import MALFORMED
from etude.harness.flow import Ended, Malformed
from etude.harness.operations import Operations
from etude.harness.preset import Preset, harness_facts, hash_of, preset_of
from etude.harness.services import Services
from etude.harness.settings import HarnessSettings
from etude.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.harness.transcript import Transcript
from etude.harness.truncation import Shown, truncate
from etude.harness.workspace import Journal, Workspace, WorkspaceError
from etude.policy.protocol import Policy, PolicyError, Request
from etude.sandbox.protocol import InfraError
from etude.trace.entry import Header
from etude.trace.message import Message, ToolCall
from etude.trace.segment import Segment
from etude.trace.session import Recorder, Session


@dataclass(frozen=True)
class TaskFacts:
    """What the agent is told about its task. Nothing hidden belongs here (promise 10)."""

    task_id: str
    instruction: str
    test_command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a session ended. `segments` is empty for text policies without a renderer."""

    reason: str  # an EndReason
    message: str  # the final message, if there was one
    segments: list[Segment]
    counters: dict[str, float]
    session: Session
    seconds: dict[str, float] = field(default_factory=dict)  # wall seconds by "policy", "tools", "all"


class Agent:
    """One session. Build it with `build_agent`, run it once."""

    def __init__(
        self,
        settings: HarnessSettings,
        policy: Policy,
        sandbox: Operations,
        facts: TaskFacts,
        renderer: Renderer | None,
        recorder: Recorder,
        seed: int | None,
        services: Services,
        journal: Journal | None,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._facts = facts
        self._recorder = recorder
        self._seed = seed
        self._preset: Preset = preset_of(settings)
        workspace = Workspace(sandbox, journal)
        self._context = ToolContext(
            workspace, settings, facts.test_command, names=self._preset.names, services=services
        )
        self._counters = Counters(tuple(self._preset.tools))
        self._transcript = Transcript(recorder, renderer, self._preset.schemas, self._counters.output)
        self._turns = 0
        self._turns_in_segment = 0
        self._summaries = 0
        self._seconds = {"policy": 0.0, "tools": 0.0, "all": 0.0}

    async def run(self) -> Outcome:
        """Until the end. Raises InfraError and PolicyError (infra) after recording them."""
        start = time.perf_counter()
        try:
            return await self._until_ended(start)
        except (InfraError, PolicyError) as error:
            self._recorder.append("fault", {"kind": type(error).__name__, "message": str(error), "infra": True})
            raise
        finally:
            try:
                self._recorder.close()
            finally:
                await self._policy.release(self._recorder.session.header.session_id)
                await self._context.close()

    async def _until_ended(self, start: float) -> Outcome:
        try:
            self._open()
            while True:
                await self._step()
                self._recorder.flush()
        except Ended as end:
            self._seconds["all"] = time.perf_counter() - start
            counters = self._counters.report(self._context.todos, self._transcript.builder.forks)
            self._recorder.append("counters", {"counters": counters})
            self._recorder.append("end", {"reason": end.reason, "message": end.message, "seconds": self._seconds})
            segments = self._transcript.builder.segments()
            session = self._recorder.session
            return Outcome(end.reason, end.message, segments, counters, session, dict(self._seconds))

    def _open(self) -> None:
        system = [Message("system", self._preset.system)] if self._preset.system else []
        self._transcript.open([*system, Message("user", self._facts.instruction)])

    async def _step(self) -> None:
        """One turn: a self-summary if the segment is full, else act and observe."""
        if self._turns >= self._settings.max_turns:
            raise Ended("max_turns")
        await self._transcript.prompt()  # what came since the last turn counts towards the trigger
        if self._summary_due():
            return await self._summarize()
        message = await self._ask(summary=False)
        self._turns += 1
        self._turns_in_segment += 1
        try:
            if message.problem is not None:
                raise Malformed(message.problem)
            if not message.calls:
                raise Ended("message", message.text)
            for call in message.calls:
                await self._call(call)
        except Malformed as malformed:
            self._answer(Message("tool", f"malformed: {malformed}"), name="", failed=True)

    async def _ask(self, *, summary: bool) -> Message:
        """The policy's next turn, appended to the transcript and counted."""
        prompt = await self._transcript.prompt()
        left = self._settings.max_session_tokens - self._transcript.session_tokens - 1  # 1: the end of a cut-off turn
        request = Request(
            session_id=self._recorder.session.header.session_id,
            messages=tuple(self._transcript.messages),
            tools=self._preset.schemas,
            prompt_ids=prompt,
            stop_ids=self._transcript.stop_ids(),
            max_tokens=min(self._settings.max_tokens_per_turn, left),
            temperature=self._settings.temperature,
            seed=None if self._seed is None else self._seed + self._turns + self._summaries,
            extra={"summary": True} if summary else {},
        )
        if request.max_tokens < 1:
            raise Ended("max_tokens")
        start = time.perf_counter()
        try:
            answer = await self._policy.complete(request)
        except PolicyError as error:
            if error.infra:
                raise
            self._recorder.append("fault", {"kind": "PolicyError", "message": str(error), "infra": False})
            raise Ended("refused") from error
        finally:
            self._seconds["policy"] += time.perf_counter() - start
        if answer.finish == "abort":
            raise PolicyError("the policy aborted the completion; sample the session again")
        message, kinds = self._transcript.completion(answer)
        if summary:
            self._counters.summary(kinds.thinking + kinds.calling + kinds.message)
        else:
            self._counters.turn(kinds, malformed=message.problem is not None)
            self._counters.said(message)
        return message

    async def _call(self, call: ToolCall) -> None:
        """Run one call and answer it."""
        if call.name == "done" and self._valid(call) is None:
            self._counters.call(call, failed=False, facts={})
            raise Ended("done", call.arguments["message"])
        result = await self._result(call)
        self._counters.call(call, failed=result.failed, facts=dict(result.facts))
        tool = self._preset.tools.get(call.name)
        limits = self._settings
        text = result.text
        if not isinstance(text, Shown):  # what a tool has cut itself is never cut again
            keep = tool.keep if tool and not result.failed else "head"
            text = truncate(text, max_lines=limits.max_tool_lines, max_bytes=limits.max_tool_bytes, keep=keep).text
        self._answer(Message("tool", text, call_id=call.id), call.name, result.failed)

    async def _result(self, call: ToolCall) -> ToolResult:
        if (objection := self._valid(call)) is not None:
            return ToolResult(objection, failed=True, facts={MALFORMED: 1.0})
        start = time.perf_counter()
        try:
            return await self._preset.tools[call.name].run(call.arguments, self._context)
        except (ToolError, WorkspaceError) as error:
            return ToolResult(str(error), failed=True)
        finally:
            self._seconds["tools"] += time.perf_counter() - start

    def _valid(self, call: ToolCall) -> str | None:
        """What is wrong with a call, or None. Renderers parse strictly already; endpoints may send anything."""
        tool = self._preset.tools.get(call.name)
        if tool is None:
            return self._preset.unknown(call.name)
        if self._preset.skinned:
            return None  # its tools check their arguments themselves, as strictly as the settings say
        if set(call.arguments) != set(tool.parameters):
            return f"{call.name} takes {', '.join(tool.parameters) or 'no arguments'}"
        wrong = [name for name, value in call.arguments.items() if not isinstance(value, str)]
        return f"{wrong[0]} must be a string" if wrong else None

    def _answer(self, message: Message, name: str, failed: bool) -> None:
        self._transcript.result(message, name, failed)

    def _summary_due(self) -> bool:
        """A segment must have had a turn of its own, else a long request would be summarized for ever."""
        trigger = self._settings.summary_trigger_tokens
        full = 0 < trigger <= self._transcript.segment_tokens
        return full and self._turns_in_segment > 0 and self._summaries < self._settings.max_summaries

    async def _summarize(self) -> None:
        """Self-summary: query, answer, and a new segment from the request, the answer and the conversation's state."""
        self._transcript.query(Message("user", self._preset.summary_query, summary=True))
        answer = await self._ask(summary=True)
        self._summaries += 1
        self._turns_in_segment = 0
        state = [f"summary {self._summaries}", *(f"todo {item}" for item in self._context.todos.open)]
        carried = Message("user", "\n".join([answer.text, *state]), summary=True)
        data: dict[str, Any] = {"number": self._summaries, "text": answer.text, "state": state}
        self._transcript.restart(carried, data)


def build_agent(
    settings: HarnessSettings,
    policy: Policy,
    sandbox: Operations,
    facts: TaskFacts,
    *,
    renderer: Renderer | None = None,
    recorder: Recorder | None = None,
    seed: int | None = None,
    services: Services | None = None,
    journal: Journal | None = None,
) -> Agent:
    """The one constructor. A token policy needs a renderer; without a recorder the session stays in memory.

    `sandbox` may be a `LocalFolder`. `services` are what settings offer beyond it; `journal` is told of every file that a tool
    changes.

    Make the recorder's header with `session_header`, so that every session carries its harness hash and facts.
    """
    if policy.takes_tokens and renderer is None:
        raise ValueError(f"the policy {policy.name} takes tokens: give build_agent the renderer of its model")
    services = services or Services()
    services.require(codebase_search=settings.codebase_search, web=settings.web)
    recorder = recorder or Recorder(session_header(settings, policy, facts, renderer=renderer))
    return Agent(settings, policy, sandbox, facts, renderer, recorder, seed, services, journal)


def session_header(
    settings: HarnessSettings,
    policy: Policy,
    facts: TaskFacts,
    *,
    renderer: Renderer | None = None,
    session_id: str | None = None,
    recipe: dict[str, Any] | None = None,
) -> Header:
    """The first line of a session file: all that is needed to attribute and replay it."""
    known = harness_facts(settings, renderer.fingerprint if renderer else "")
    return Header(
        session_id=session_id or f"{facts.task_id}-{time.time_ns():x}",
        task_id=facts.task_id,
        harness=hash_of(known),
        harness_facts=known,
        policy=policy.name,
        takes_tokens=policy.takes_tokens,
        created_unix_s=round(time.time(), 3),
        settings=settings.model_dump(mode="json"),
        facts={"instruction": facts.instruction, "test_command": list(facts.test_command)},
        recipe=recipe or {},
    )
