"""Runs the calls of one turn: approves, runs, counts and answers them in their order.

Read-only calls run concurrently. Any other call runs alone, after the calls before it and before those after it. Results are appended in
the order of the calls, so a session does not depend on which one was faster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from etude.agent.harness.approval import ApprovalDecision, Approver, effect_of
from etude.agent.harness.control_flow import RequestEnd
from etude.agent.harness.edits.edit_log import EditLog
from etude.agent.harness.inbox import Inbox, TurnInterrupted
from etude.agent.harness.presets.preset import Preset
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.harness.transcript import Transcript
from etude.agent.harness.truncation import FinalText, truncate
from etude.agent.metrics.facts import MALFORMED, PASSED, THOUGHT_COMMENTS
from etude.agent.metrics.wording import thought_comments
from etude.agent.workspace.workspace import WorkspaceError
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Recorder

STOPPED = "stopped by the user before it had ended"
# From this many equal failures in a row the answer says so, because the model has not read it.
REPEATED = 3


@dataclass
class RepeatedFailures:
    """Counts equal failures in a row."""

    _last: str = ""
    _count: int = 0

    def note(self, failure: str) -> str:
        """The note for the answer to a repeated failure; "" for a new one."""
        self._count = self._count + 1 if failure == self._last else 1
        self._last = failure
        if self._count < REPEATED:
            return ""
        return f"\n[this exact call has failed {self._count} times in a row with the same answer; change it, or try another way]"

    def clear(self) -> None:
        """Reset the count after a success."""
        self._last, self._count = "", 0


@dataclass
class CallRunner:
    """Runs the calls of one session."""

    preset: Preset
    context: ToolContext
    transcript: Transcript
    recorder: Recorder
    approver: Approver
    inbox: Inbox
    edits: EditLog
    last_test: str = ""  # "passed" or "failed"; a self-summary keeps it
    seconds: float = 0.0  # wall seconds in tools
    repeats: RepeatedFailures = field(default_factory=RepeatedFailures)

    async def run(self, calls: Sequence[ToolCall], result_bytes: int) -> None:
        """Run the calls; each result may hold `result_bytes`.

        Raises RequestEnd at a valid `done`. Raises TurnInterrupted, after every call has its answer, if the user stopped the turn.
        """
        answered = 0
        whole = self.context.settings
        if result_bytes != whole.max_tool_bytes:
            self.context.settings = whole.model_copy(update={"max_tool_bytes": result_bytes})
        try:
            for quiet, group in groupby(calls, lambda call: self.preset.quiet(call.name)):
                for batch in [list(group)] if quiet else [[call] for call in group]:
                    if self._ends(batch[0]):
                        raise RequestEnd("done", batch[0].arguments["message"], tuple(calls[answered:]))
                    await self._run_batch(batch)
                    answered += len(batch)
        except TurnInterrupted:
            for call in calls[answered:]:
                self._answer(call, ToolResult(STOPPED, failed=True), 0.0)
            raise
        finally:
            self.context.settings = whole

    async def _run_batch(self, batch: list[ToolCall]) -> None:
        """Run calls that may run concurrently. A single call is a batch too."""
        rulings = [await self._rule(call) for call in batch]
        start = time.perf_counter()
        try:
            done = await self.inbox.unless_stopped(self._run_together(batch, rulings))
        finally:
            wall_s = time.perf_counter() - start
            self.seconds += wall_s
        saved_s = max(0.0, sum(taken_s for _, taken_s in done) - wall_s)
        for number, (call, (result, taken_s)) in enumerate(zip(batch, done, strict=True)):
            first = len(batch) > 1 and number == 0
            self._answer(call, result, taken_s, {"saved_s": round(saved_s, 4)} if first else {})

    async def _run_together(
        self, batch: list[ToolCall], rulings: list[ApprovalDecision]
    ) -> list[tuple[ToolResult, float]]:
        if len(batch) == 1:
            return [await self._run_timed(batch[0], rulings[0])]
        tasks = [asyncio.ensure_future(self._run_timed(*pair)) for pair in zip(batch, rulings, strict=True)]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:  # an infrastructure error of one, or a stop, ends the others
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_timed(self, call: ToolCall, ruling: ApprovalDecision) -> tuple[ToolResult, float]:
        self.edits.begin(call.id)
        start = time.perf_counter()
        result = await self._result(call, ruling)
        return result, time.perf_counter() - start

    async def _result(self, call: ToolCall, ruling: ApprovalDecision) -> ToolResult:
        if (objection := self._objection(call)) is not None:
            return ToolResult(objection, failed=True, facts={MALFORMED: 1.0})
        if not ruling.allowed:
            return ToolResult(f"not allowed: {ruling.reason}" if ruling.reason else "not allowed", failed=True)
        try:
            return await self.preset.tools[call.name].run(call.arguments, self.context)
        except (ToolError, WorkspaceError) as error:
            return ToolResult(str(error), failed=True)

    async def _rule(self, call: ToolCall) -> ApprovalDecision:
        """Decide whether a call may run. The decision is recorded if the user was asked or the call was refused."""
        if self._objection(call) is not None:
            return ApprovalDecision(True)  # a malformed call never runs
        ruling = await self.inbox.unless_stopped(self.approver.rule(call, effect_of(self.preset.does(call.name))))
        if ruling.asked or not ruling.allowed:
            decision = "denied" if not ruling.allowed else "always" if ruling.remembered else "allowed"
            by = "user" if ruling.asked else "policy"
            row = {"call_id": call.id, "name": call.name, "decision": decision, "by": by, "reason": ruling.reason}
            self.recorder.append("approval", row)
        return ruling

    def _answer(self, call: ToolCall, result: ToolResult, taken_s: float, more: dict[str, float] | None = None) -> None:
        """Append a call's answer with its facts for the counters, then the call's edits."""
        changes = self.edits.changes(call.id)
        if PASSED in result.facts:
            self.last_test = "passed" if result.facts[PASSED] else "failed"
        facts = dict(result.facts)
        if changes:
            facts[THOUGHT_COMMENTS] = float(thought_comments(line for one in changes for line in one.added_lines()))
        details: dict[str, Any] = {"seconds": round(taken_s, 4), "facts": facts, **(more or {})}
        details |= {"reads": list(result.reads)} if result.reads else {}
        shown = self._shown(call, result)
        if result.failed and self.preset.skinned:  # a trained vocabulary has no such note
            shown += self.repeats.note(f"{call.name} {call.arguments} {shown}")
        elif not result.failed:
            self.repeats.clear()
        message = Message("tool", shown, call_id=call.id)
        self.transcript.result(message, call.name, result.failed, details)
        self.edits.record_changes(call.id, changes)

    def _shown(self, call: ToolCall, result: ToolResult) -> str:
        """The text that the policy sees. A text that the tool has cut itself is never cut again."""
        if isinstance(result.text, FinalText):
            return result.text
        limits, tool = self.context.settings, self.preset.tools.get(call.name)
        keep = tool.keep if tool and not result.failed else "head"
        return truncate(result.text, max_lines=limits.max_tool_lines, max_bytes=limits.max_tool_bytes, keep=keep).text

    def _ends(self, call: ToolCall) -> bool:
        """Whether this is a valid `done`, which is not answered."""
        return call.name == "done" and self._objection(call) is None

    def _objection(self, call: ToolCall) -> str | None:
        """What is wrong with a call, or None. Renderers parse strictly, but endpoints may send anything."""
        tool = self.preset.tools.get(call.name)
        if tool is None:
            return self.preset.unknown_tool_answer(call.name)
        if self.preset.skinned:
            return None  # its tools check their arguments themselves, as strictly as the settings say
        if set(call.arguments) != set(tool.parameters):
            return f"{call.name} takes {', '.join(tool.parameters) or 'no arguments'}"
        wrong = [name for name, value in call.arguments.items() if not isinstance(value, str)]
        return f"{wrong[0]} must be a string" if wrong else None
