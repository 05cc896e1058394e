"""The agent: ask the policy, run its calls in the sandbox, append the answers, until it is done or a limit is reached.

Promise 1: `build_agent` is the only way to one, for `etude agent`, rollouts, demonstrations and the bench alike. Promise 8:
what the policy does wrong (a malformed turn, an unknown tool, a failed edit, running out of turns) is evidence and stays;
what we do wrong (InfraError, PolicyError with `infra`) is recorded and raised, and never looks like a result.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.approval import Approver
from etude.agent.harness.budget import Budget
from etude.agent.harness.calls import Calls
from etude.agent.harness.digest import digest
from etude.agent.harness.edits.edit_log import EditLog
from etude.agent.harness.flow import Ended, Overflowed
from etude.agent.harness.header import session_header
from etude.agent.harness.inbox import Inbox, Stopped, Summarize
from etude.agent.harness.opening import opening
from etude.agent.harness.parts import Parts, fitted
from etude.agent.harness.presets.preset import Preset, harness_facts, preset_of
from etude.agent.harness.resuming import UNTOLD, changed_harness, open_answers
from etude.agent.harness.services import Services
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.harness.tools.tool import ToolContext
from etude.agent.harness.transcript import Transcript
from etude.agent.harness.watcher import AgentObserver, NullObserver
from etude.agent.harness.window import Window
from etude.agent.metrics.of_session import changes_of, counters_of, last_test, todos_of
from etude.agent.policy.protocol import ContextOverflow, Policy, PolicyError, Request
from etude.agent.workspace.workspace import Journal, Workspace
from etude.core.trace.completion import Completion
from etude.core.trace.message import CUT_OFF, EMPTY, NO_ANSWER, Delivery, Message
from etude.core.trace.segment import Segment
from etude.core.trace.session import Recorder, Session
from etude.sandbox.errors import InfraError
from etude.sandbox.protocol import Operations

# Statuses of refusals that no second try would change.
_REFUSED = (400, 413, 422)
CONTINUED = 2  # a text that the limit of a turn cut off is continued so often in a row; a model that never ends would use up every turn


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

    def __init__(self, settings: HarnessSettings, policy: Policy, parts: Parts, seed: int | None) -> None:
        self._settings = settings
        self._policy = policy
        self._parts = parts
        self._seed = seed
        self._recorder, self._inbox, self._watcher = parts.recorder, parts.inbox, parts.watcher
        self._preset: Preset = preset_of(settings, parts.services.mcp)
        self._budget = Budget.of(settings)
        self._transcript = Transcript(parts.recorder, parts.renderer, self._preset.schemas)
        edits = EditLog(parts.recorder)
        self._context = ToolContext(
            Workspace(parts.operations, parts.journal(edits)),
            settings,
            parts.facts.test_command,
            names=self._preset.names,
            services=parts.services,
        )
        self._calls = Calls(
            self._preset, self._context, self._transcript, parts.recorder, parts.approver, parts.inbox, edits
        )  # fmt: skip
        exact = policy.takes_tokens or parts.renderer is not None
        self._window = Window(policy, self._transcript, settings, exact=exact)
        self._turns = 0
        self._turns_in_request = 0
        self._turns_in_segment = 0
        self._summaries = 0
        self._unanswered = False  # the last turn was no answer
        self._cut_in_a_row = 0
        self._cut_at_tokens = 0  # where the last turn was cut off while it called no tool; 0: it was not
        self._seconds = {"policy": 0.0, "tools": 0.0, "all": 0.0}

    async def run(self) -> Outcome:
        """Until the inbox is closed and all requests are answered. Raises InfraError and PolicyError (infra) after recording them."""
        start = time.perf_counter()
        self._recorder.on_entry = self._watcher.entry
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
        asked = self._open()
        end = await (self._until_end_of(self._sum_up(asked, "queue")) if asked else self._answer_request())
        while (wish := await self._next_request(end)) is not None:
            self._turns_in_request, self._unanswered = 0, False
            for call in end.unanswered:
                self._transcript.result(Message("tool", "ok", call_id=call.id), call.name, failed=False, told=UNTOLD)
            if isinstance(wish, Summarize):
                end = await self._until_end_of(self._sum_up(wish, "queue"))
                continue
            self._transcript.hear(Message("user", wish, delivery="queue"))
            end = await self._answer_request()
        self._seconds |= {"all": time.perf_counter() - start, "tools": self._calls.seconds}
        await self._lint()
        counters = counters_of(self._recorder.session)
        self._recorder.append("counters", {"counters": counters})
        self._recorder.append("end", {"reason": end.reason, "message": end.message, "seconds": self._seconds})
        segments = self._transcript.builder.segments()
        return Outcome(end.reason, end.message, segments, counters, self._recorder.session, dict(self._seconds))

    async def _lint(self) -> None:
        """Behind the last turn, outside of any clock of the session's: what its edits changed of what linters find."""
        originals, limit_s = self._context.workspace.originals, self._settings.lint_delta_s
        if limit_s and originals:
            report = await self._context.lints.change(originals, within_s=limit_s)
            if report.ran or report.problems:
                found = {"new": len(report.new), "gone": len(report.gone)}
                self._recorder.append("lints", {**found, "ran": report.ran, "problems": report.problems})

    def _open(self) -> Summarize | None:
        """Begin or take up the conversation; the person's wish if they want a session that is taken up summed up first of all."""
        facts = self._parts.facts
        if self._parts.resumed is not None:
            self._restore(self._parts.resumed)
            if not facts.instruction and (asked := self._inbox.summary_asked()) is not None:
                return asked
            self._transcript.hear(Message("user", facts.instruction, delivery="queue"))
        else:
            self._transcript.open(opening(self._preset, self._settings, facts))
        return None

    def _restore(self, session: Session) -> None:
        """Go on where the session was, with the harness as it is now."""
        renderer = self._parts.renderer
        chat = renderer.fingerprint if renderer else ""
        changed = changed_harness(session, harness_facts(self._settings, chat, self._parts.services.mcp))
        if changed is not None:
            self._recorder.append("harness", changed.data)
        self._transcript.restore(session, anew=changed is not None and changed.offers)
        self._summaries = len(session.of("summary"))
        self._context.todos, self._calls.last_test = todos_of(session), last_test(session)
        for call, answer in open_answers(session):
            self._transcript.result(answer, call.name, failed=call.name != "done", told=UNTOLD)

    async def _answer_request(self) -> Ended:
        """Turn after turn, until the request is answered or given up."""

        async def turns() -> None:
            while True:
                await self._step()
                self._recorder.flush()

        return await self._until_end_of(turns())

    async def _until_end_of(self, work: Coroutine[Any, Any, None]) -> Ended:
        """How some work ended."""
        try:
            await work
            return Ended("message")
        except Stopped:
            self._transcript.hear(Message("user", "", delivery="stop"))
            return Ended("stopped")
        except Ended as end:
            return end

    async def _next_request(self, end: Ended) -> str | Summarize | None:
        self._recorder.flush()
        self._watcher.idle(end.reason, end.message)
        return await self._inbox.next_request()

    async def _step(self) -> None:
        """One turn: a self-summary if the segment is full, else act and observe."""
        if self._turns_in_request >= self._budget.turns:
            raise Ended("max_turns")
        for text in self._inbox.steered():
            self._transcript.hear(Message("user", text, delivery="steer"))
        if (asked := self._inbox.summary_asked()) is not None:
            return await self._sum_up(asked, "steer")
        await self._transcript.prompt()  # what came since the last turn counts towards the trigger
        if self._summary_due():
            return await self._summarize()
        try:
            message = await self._ask(summary=False)
        except Overflowed:
            return await self._summarize()
        self._turns += 1
        self._turns_in_request += 1
        self._turns_in_segment += 1
        unanswered, self._unanswered = self._unanswered, message.fault in NO_ANSWER
        self._cut_in_a_row = self._cut_in_a_row + 1 if self._cut_at_tokens else 0
        if (self._unanswered and unanswered) or self._cut_in_a_row > CONTINUED:
            raise Ended("no_answer")
        if message.fault is not None:
            answer = self._notice(message.fault)
            note = self._calls.repeats.note(f"{answer} {message.text}") if self._preset.skinned else ""
            self._transcript.result(Message("tool", answer + note), "", failed=True)
        elif not message.calls:
            raise Ended("message", message.text)
        else:
            await self._calls.run(message.calls, self._window.result_bytes(len(message.calls)))

    async def _ask(self, *, summary: bool) -> Message:
        """The policy's next turn, appended to the transcript and counted. Raises Overflowed where the conversation was too long and should
        be summed up."""
        while True:
            self._window.make_room()
            request = self._request(await self._transcript.prompt(), summary)
            if request.max_tokens < 1:
                raise Ended("max_tokens")
            start = time.perf_counter()
            try:
                answer = await self._inbox.turn(self._policy.complete(request))
            except ContextOverflow as error:
                is_shorter = self._window.refused(error)
                if not summary and (self._may_summarize() if is_shorter else self._must_summarize()):
                    raise Overflowed from error
                if not is_shorter:
                    raise (Ended("refused") if self._digests(summary) else self._gives_up(error)) from error
            except PolicyError as error:
                if error.infra:
                    raise
                raise self._gives_up(error) from error
            else:
                break
            finally:
                self._seconds["policy"] += time.perf_counter() - start
        self._window.taken()
        if answer.finish == "abort":
            raise PolicyError(answer.problem or "the policy aborted the completion; sample the session again")
        message = self._transcript.completion(answer)
        self._cut_at_tokens = self._cut_at(answer, message, request)
        return message

    def _cut_at(self, answer: Completion, message: Message, request: Request) -> int:
        """The tokens after which a turn that calls no tool was cut off; 0 for any other turn."""
        if message.problem != CUT_OFF or self._transcript.calling_tokens:
            return 0
        sampled = len(answer.tokens.ids) if answer.tokens is not None else answer.usage.output_tokens
        return sampled or request.max_tokens

    def _notice(self, fault: str) -> str:
        """What the model reads after a turn that can't be used."""
        if self._cut_at_tokens:
            limit = f"{self._cut_at_tokens:,} tokens, the limit of one turn"
            return f"your answer was cut off at {limit}; continue where it ended, or be briefer"
        return f"malformed: {fault}" + ("; say your answer, or call a tool" if self._unanswered else "")

    def _gives_up(self, error: PolicyError) -> Ended:
        self._recorder.append("fault", {"kind": "PolicyError", "message": str(error), "infra": False})
        return Ended("refused")

    def _request(self, prompt: tuple[int, ...], summary: bool) -> Request:
        left = self._budget.session_tokens - self._transcript.session_tokens - 1  # 1: the end of a cut-off turn
        wanted = self._window.answer_tokens(self._budget.turn_tokens)
        return Request(
            session_id=self._recorder.session.header.session_id,
            messages=tuple(self._transcript.messages),
            tools=self._preset.schemas,
            prompt_ids=prompt,
            stop_ids=self._transcript.stop_ids(),
            max_tokens=min(wanted, left),
            temperature=self._settings.temperature,
            seed=None if self._seed is None else self._seed + self._turns + self._summaries,
            effort=self._settings.effort,
            on_delta=None if self._parts.unwatched else self._watcher.delta,
            on_wait=None if self._parts.unwatched else self._watcher.waiting,
            extra={"summary": True} if summary else {},
        )

    def _summary_due(self) -> bool:
        """A segment must have had a turn of its own, else a long request would be summarized for ever."""
        return 0 < self._window.summary_tokens <= self._transcript.segment_tokens and self._may_summarize()

    def _may_summarize(self) -> bool:
        """Whether another summary is allowed, and there is a turn to sum up."""
        if self._settings.summary_trigger_tokens == 0:
            return False
        return self._turns_in_segment > 0 and self._summaries < self._settings.max_summaries

    def _must_summarize(self) -> bool:
        """Whether a summary is all that is left: no text can be cut, as where calls or thinking fill the window. The limit of summaries does
        not count here, since the session would end."""
        return not self._window.exact and self._transcript.has_turn

    def _digests(self, summary: bool) -> bool:
        """Whether a refused request for a summary is answered by a digest, so that its refusal ends nothing."""
        return summary and not self._window.exact

    async def _sum_up(self, asked: Summarize, manner: Delivery) -> None:
        """A summary that the person wished for. Where the segment has no turn yet there is nothing to sum up."""
        for text in (*self._inbox.steered(), asked.words):
            if text:
                self._transcript.hear(Message("user", text, delivery="steer"))
        if any(message.role == "assistant" for message in self._transcript.messages):
            await self._summarize(manner)

    async def _summarize(self, manner: Delivery | None = None) -> None:
        """Self-summary: query, answer, and a new segment from the request, the answer and the conversation's state. `manner`: the
        person wished for it."""
        self._transcript.hear(Message("user", self._preset.summary_query, summary=True, delivery=manner))
        answer = await self._summary()
        self._summaries += 1
        self._turns_in_segment = 0
        state = [f"summary {self._summaries}", *(f"todo {item}" for item in self._context.todos.open)]
        if self._preset.skinned:
            state += [f"changed {path}" for path in changes_of(self._recorder.session).paths]
            state += [f"tests {self._calls.last_test}"] if self._calls.last_test else []
        carried = Message("user", "\n".join([answer, *state]), summary=True)
        self._transcript.restart(carried, {"number": self._summaries, "text": answer, "state": state})

    async def _summary(self) -> str:
        """The policy's summary. Where an endpoint refuses to write one, or leaves it empty twice, a digest of the conversation."""
        if self._window.exact:
            return (await self._ask(summary=True)).text
        messages = list(self._transcript.messages)
        for again in (True, False):
            try:
                answer = await self._ask(summary=True)
            except Ended as end:
                if end.reason != "refused":
                    raise
                break
            except PolicyError as error:
                if error.status not in _REFUSED:
                    raise
                break
            if answer.text.strip() and answer.fault not in NO_ANSWER:
                return answer.text
            if again:
                notice = f"malformed: {answer.fault or EMPTY}; write the summary"
                self._transcript.result(Message("tool", notice), "", failed=True)
        return digest(messages)


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
    inbox: Inbox | None = None,
    approver: Approver | None = None,
    watcher: AgentObserver | None = None,
    resumed: Session | None = None,
) -> Agent:
    """The one constructor. A token policy needs a renderer; without a recorder the session stays in memory.

    `sandbox` may be a `LocalFolder`. `services` are what settings offer beyond it; `journal` is told of every file that a tool
    changes. Without an inbox nobody speaks after the request, without an approver nothing is asked. `resumed` is a session to
    go on with: `facts.instruction` is then its next request.

    Make the recorder's header with `session_header`, so that every session carries its harness hash and facts.
    """
    if policy.takes_tokens and renderer is None:
        raise ValueError(f"the policy {policy.name} takes tokens: give build_agent the renderer of its model")
    services = services or Services()
    services.require(codebase_search=settings.codebase_search, web=settings.web)
    renderer = fitted(renderer, settings) if renderer else None
    recorder = recorder or Recorder(session_header(settings, policy, facts, renderer=renderer, services=services))
    seams = (inbox or Inbox.closed(), approver or Approver(), watcher or NullObserver())
    parts = Parts(sandbox, facts, renderer, recorder, services, journal, *seams, resumed)
    return Agent(settings, policy, parts, seed)
