"""The agent's loop: sample a turn from the policy, run its calls in the sandbox, append the results, until it is done or hits a limit.

Promise 1: `build_agent` is the only constructor, for `etude agent`, rollouts, demonstrations and the bench. Promise 8: model errors (a
malformed turn, an unknown tool, a failed edit, running out of turns) are evidence and stay in the session. Infrastructure errors
(InfraError, PolicyError with `infra`) are recorded and raised, and never look like a result.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from etude.agent.harness.budget import Budget
from etude.agent.harness.call_runner import CallRunner
from etude.agent.harness.context_window import ContextWindow
from etude.agent.harness.control_flow import RequestEnd, WindowOverflow
from etude.agent.harness.dependencies import AgentDependencies, renderer_for
from etude.agent.harness.edits.edit_log import EditLog
from etude.agent.harness.header import session_header
from etude.agent.harness.inbox import SummaryRequest, TurnInterrupted
from etude.agent.harness.opening import opening_messages
from etude.agent.harness.presets.preset import Preset, harness_facts, preset_of
from etude.agent.harness.resume import NO_FACTS, changed_harness, open_answers
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.shortening import digest
from etude.agent.harness.tools.tool import ToolContext
from etude.agent.harness.transcript import Transcript
from etude.agent.metrics.of_session import changes_of, counters_of, last_test, todos_of
from etude.agent.policy.protocol import ContextOverflow, Policy, PolicyError, Request
from etude.agent.workspace.workspace import Workspace
from etude.core.trace.completion import Completion
from etude.core.trace.message import CUT_OFF, EMPTY, NO_ANSWER, Delivery, Message
from etude.core.trace.segment import Segment
from etude.core.trace.session import Recorder, Session
from etude.sandbox.errors import InfraError

# HTTP statuses of refusals that a retry would not change.
_REFUSED = (400, 413, 422)
MAX_CONTINUATIONS = (
    2  # turns in a row that may continue a cut-off text; a model that never ends would use up every turn
)


@dataclass(frozen=True)
class AgentOutcome:
    """How a session ended. `segments` is empty for text policies without a renderer, unless their server returns tokens."""

    reason: str  # an EndReason
    message: str  # the final message, if there was one
    segments: list[Segment]
    counters: dict[str, float]
    session: Session
    seconds: dict[str, float] = field(default_factory=dict)  # wall seconds by "policy", "tools", "all"


class Agent:
    """One session. Build it with `build_agent`, run it once."""

    def __init__(self, settings: HarnessSettings, policy: Policy, parts: AgentDependencies, recorder: Recorder) -> None:
        self._settings = settings
        self._policy = policy
        self._dependencies = parts
        self._seed = parts.seed
        self._recorder, self._inbox, self._observer = recorder, parts.inbox, parts.watcher
        self._preset: Preset = preset_of(settings, parts.services.mcp)
        self._budget = Budget.of(settings)
        self._transcript = Transcript(recorder, parts.renderer, self._preset.schemas)
        edits = EditLog(recorder)
        self._context = ToolContext(
            Workspace(parts.operations, parts.journal(edits)),
            settings,
            parts.facts.test_command,
            names=self._preset.names,
            services=parts.services,
        )
        self._calls = CallRunner(
            self._preset, self._context, self._transcript, recorder, parts.approver, parts.inbox, edits
        )  # fmt: skip
        exact = policy.takes_tokens or parts.renderer is not None
        self._window = ContextWindow(policy, self._transcript, settings, exact=exact)
        self._turns = 0
        self._turns_in_request = 0
        self._turns_in_segment = 0
        self._summaries = 0
        self._unanswered = False  # the last turn held no answer
        self._cut_in_a_row = 0
        self._cut_at_tokens = 0  # tokens after which the last turn, without a tool call, was cut off; 0: it was not
        self._seconds = {"policy": 0.0, "tools": 0.0, "all": 0.0}

    async def run(self) -> AgentOutcome:
        """Run until the inbox is closed and all requests are answered. Records InfraError and PolicyError (infra), then raises them."""
        start = time.perf_counter()
        self._recorder.on_entry = self._observer.entry
        try:
            return await self._run_session(start)
        except (InfraError, PolicyError) as error:
            self._recorder.append("fault", {"kind": type(error).__name__, "message": str(error), "infra": True})
            raise
        finally:
            try:
                self._recorder.close()
            finally:
                await self._policy.release(self._recorder.session.header.session_id)
                await self._context.close()

    async def _run_session(self, start: float) -> AgentOutcome:
        asked = self._start_conversation()
        end = await (
            self._run_until_end(self._summarize_on_request(asked, "queue")) if asked else self._answer_request()
        )
        while (wish := await self._next_request(end)) is not None:
            self._turns_in_request, self._unanswered = 0, False
            for call in end.unanswered:
                self._transcript.result(Message("tool", "ok", call_id=call.id), call.name, failed=False, facts=NO_FACTS)
            if isinstance(wish, SummaryRequest):
                end = await self._run_until_end(self._summarize_on_request(wish, "queue"))
                continue
            self._transcript.hear(Message("user", wish, delivery="queue"))
            end = await self._answer_request()
        self._seconds |= {"all": time.perf_counter() - start, "tools": self._calls.seconds}
        await self._lint()
        counters = counters_of(self._recorder.session)
        self._recorder.append("counters", {"counters": counters})
        self._recorder.append("end", {"reason": end.reason, "message": end.message, "seconds": self._seconds})
        segments = self._transcript.builder.segments()
        return AgentOutcome(end.reason, end.message, segments, counters, self._recorder.session, dict(self._seconds))

    async def _lint(self) -> None:
        """Record how the session's edits changed the linters' findings. This happens after the last turn and counts towards no time limit."""
        originals, limit_s = self._context.workspace.originals, self._settings.lint_delta_s
        if limit_s and originals:
            report = await self._context.lints.change(originals, within_s=limit_s)
            if report.ran or report.problems:
                found = {"new": len(report.new), "gone": len(report.gone)}
                self._recorder.append("lints", {**found, "ran": report.ran, "problems": report.problems})

    def _start_conversation(self) -> SummaryRequest | None:
        """Start or resume the conversation. Return the user's request for a summary if a resumed session starts with one."""
        facts = self._dependencies.facts
        if self._dependencies.resumed is not None:
            self._restore(self._dependencies.resumed)
            if not facts.instruction and (asked := self._inbox.summary_asked()) is not None:
                return asked
            self._transcript.hear(Message("user", facts.instruction, delivery="queue"))
        else:
            self._transcript.open(opening_messages(self._preset, self._settings, facts))
        return None

    def _restore(self, session: Session) -> None:
        """Resume where the session ended, with the current harness."""
        renderer = self._dependencies.renderer
        chat = renderer.fingerprint if renderer else ""
        changed = changed_harness(session, harness_facts(self._settings, chat, self._dependencies.services.mcp))
        if changed is not None:
            self._recorder.append("harness", changed.data)
        self._transcript.restore(session, tools_changed=changed is not None and changed.offers)
        self._summaries = len(session.of("summary"))
        self._context.todos, self._calls.last_test = todos_of(session), last_test(session)
        for call, answer in open_answers(session):
            self._transcript.result(answer, call.name, failed=call.name != "done", facts=NO_FACTS)

    async def _answer_request(self) -> RequestEnd:
        """Take turns until the request ends."""

        async def turns() -> None:
            while True:
                await self._step()
                self._recorder.flush()

        return await self._run_until_end(turns())

    async def _run_until_end(self, work: Coroutine[Any, Any, None]) -> RequestEnd:
        """Run some work and return how it ended."""
        try:
            await work
            return RequestEnd("message")
        except TurnInterrupted:
            self._transcript.hear(Message("user", "", delivery="stop"))
            return RequestEnd("stopped")
        except RequestEnd as end:
            return end

    async def _next_request(self, end: RequestEnd) -> str | SummaryRequest | None:
        self._recorder.flush()
        self._observer.idle(end.reason, end.message)
        return await self._inbox.next_request()

    async def _step(self) -> None:
        """Take one turn: a self-summary if the segment is full, else act and observe."""
        if self._turns_in_request >= self._budget.turns:
            raise RequestEnd("max_turns")
        for text in self._inbox.take_steering():
            self._transcript.hear(Message("user", text, delivery="steer"))
        if (asked := self._inbox.summary_asked()) is not None:
            return await self._summarize_on_request(asked, "steer")
        await self._transcript.prompt()  # messages since the last turn count towards the trigger
        if self._summary_due():
            return await self._summarize()
        try:
            message = await self._complete(summary=False)
        except WindowOverflow:
            return await self._summarize()
        self._turns += 1
        self._turns_in_request += 1
        self._turns_in_segment += 1
        unanswered, self._unanswered = self._unanswered, message.fault in NO_ANSWER
        self._cut_in_a_row = self._cut_in_a_row + 1 if self._cut_at_tokens else 0
        if (self._unanswered and unanswered) or self._cut_in_a_row > MAX_CONTINUATIONS:
            raise RequestEnd("no_answer")
        if message.fault is not None:
            answer = self._malformed_notice(message.fault)
            note = self._calls.repeats.note(f"{answer} {message.text}") if self._preset.skinned else ""
            self._transcript.result(Message("tool", answer + note), "", failed=True)
        elif not message.calls:
            raise RequestEnd("message", message.text)
        else:
            await self._calls.run(message.calls, self._window.result_bytes(len(message.calls)))

    async def _complete(self, *, summary: bool) -> Message:
        """The policy's next turn, appended to the transcript and counted. Raises Overflowed where the conversation was too long and should
        be summed up."""
        while True:
            self._window.make_room()
            request = self._request(await self._transcript.prompt(), summary)
            if request.max_tokens < 1:
                raise RequestEnd("max_tokens")
            start = time.perf_counter()
            try:
                answer = await self._inbox.turn(self._policy.complete(request))
            except ContextOverflow as error:
                is_shorter = self._window.shorten_refused(error)
                if not summary and (self._may_summarize() if is_shorter else self._must_summarize()):
                    raise WindowOverflow from error
                if not is_shorter:
                    raise (
                        RequestEnd("refused") if self._can_digest(summary) else self._record_refusal(error)
                    ) from error
            except PolicyError as error:
                if error.infra:
                    raise
                raise self._record_refusal(error) from error
            else:
                break
            finally:
                self._seconds["policy"] += time.perf_counter() - start
        self._window.on_accepted()
        if answer.finish == "abort":
            raise PolicyError(answer.problem or "the policy aborted the completion; sample the session again")
        message = self._transcript.completion(answer)
        self._cut_at_tokens = self._cut_off_tokens(answer, message, request)
        return message

    def _cut_off_tokens(self, answer: Completion, message: Message, request: Request) -> int:
        """The number of tokens after which a turn without a tool call was cut off; 0 for any other turn."""
        if message.problem != CUT_OFF or self._transcript.calling_tokens:
            return 0
        sampled = len(answer.tokens.ids) if answer.tokens is not None else answer.usage.output_tokens
        return sampled or request.max_tokens

    def _malformed_notice(self, fault: str) -> str:
        """The message to the model after a malformed turn."""
        if self._cut_at_tokens:
            limit = f"{self._cut_at_tokens:,} tokens, the limit of one turn"
            return f"your answer was cut off at {limit}; continue where it ended, or be briefer"
        return f"malformed: {fault}" + ("; say your answer, or call a tool" if self._unanswered else "")

    def _record_refusal(self, error: PolicyError) -> RequestEnd:
        self._recorder.append("fault", {"kind": "PolicyError", "message": str(error), "infra": False})
        return RequestEnd("refused")

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
            on_delta=None if self._dependencies.unwatched else self._observer.delta,
            on_wait=None if self._dependencies.unwatched else self._observer.waiting,
            on_alive=self._dependencies.on_alive,
            extra={"summary": True} if summary else {},
        )

    def _summary_due(self) -> bool:
        """Whether the segment is full. It must hold a turn, or else a long request would be summarized again and again."""
        return 0 < self._window.summary_tokens <= self._transcript.segment_tokens and self._may_summarize()

    def _may_summarize(self) -> bool:
        """Whether another summary is allowed, and there is a turn to sum up."""
        if self._settings.summary_trigger_tokens == 0:
            return False
        return self._turns_in_segment > 0 and self._summaries < self._settings.max_summaries

    def _must_summarize(self) -> bool:
        """Whether only a summary can help: no text can be cut, because calls or thinking fill the window. The limit of summaries does not
        apply here, because the session would end."""
        return not self._window.exact and self._transcript.has_turn

    def _can_digest(self, summary: bool) -> bool:
        """Whether a digest replaces a refused summary, so that the refusal does not end the session."""
        return summary and not self._window.exact

    async def _summarize_on_request(self, asked: SummaryRequest, manner: Delivery) -> None:
        """Write a summary that the user requested, unless the segment has no turn yet."""
        for text in (*self._inbox.take_steering(), asked.words):
            if text:
                self._transcript.hear(Message("user", text, delivery="steer"))
        if any(message.role == "assistant" for message in self._transcript.messages):
            await self._summarize(manner)

    async def _summarize(self, manner: Delivery | None = None) -> None:
        """Self-summary: query, answer, and a new segment from the request, the answer and the conversation's state.

        `manner` is set if the user requested it.
        """
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
        """The policy's summary, or a digest of the conversation if an endpoint refuses to write one or returns an empty one twice."""
        if self._window.exact:
            return (await self._complete(summary=True)).text
        messages = list(self._transcript.messages)
        for again in (True, False):
            try:
                answer = await self._complete(summary=True)
            except RequestEnd as end:
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


def build_agent(settings: HarnessSettings, policy: Policy, dependencies: AgentDependencies) -> Agent:
    """The only constructor of an agent. Build the recorder's header with `session_header`, so that every session carries its harness
    hash and facts. Raises ValueError if the policy takes tokens and there is no renderer."""
    renderer, services = dependencies.renderer, dependencies.services
    if policy.takes_tokens and renderer is None:
        raise ValueError(f"the policy {policy.name} takes tokens: give build_agent the renderer of its model")
    services.require(codebase_search=settings.codebase_search, web=settings.web)
    renderer = renderer_for(renderer, settings) if renderer else None
    recorder = dependencies.recorder or Recorder(
        session_header(settings, policy, dependencies.facts, renderer=renderer, services=services)
    )
    return Agent(settings, policy, replace(dependencies, renderer=renderer), recorder)
