"""The calls of one turn: ruled on, run, counted and answered, in the order in which they were made.

Calls that change nothing run side by side; any other runs alone, after those before it and before those behind it. Results
are appended in the order of the calls, so a session does not depend on which one was faster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from etude.agent.harness.approval import Approver, Ruling, effect_of
from etude.agent.harness.edits.edit_log import EditLog
from etude.agent.harness.flow import Ended
from etude.agent.harness.inbox import Inbox, Stopped
from etude.agent.harness.presets.preset import Preset
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.harness.transcript import Transcript
from etude.agent.harness.truncation import Shown, truncate
from etude.agent.metrics.facts import MALFORMED, PASSED, THOUGHT_COMMENTS
from etude.agent.metrics.wording import thought_comments
from etude.agent.workspace.workspace import WorkspaceError
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Recorder

STOPPED = "stopped by the user before it had ended"
# A model that repeats itself has not read the answer: from this many times on it says so.
REPEATED = 3


@dataclass
class Repeats:
    """Counts how often the same failure came in a row."""

    _last: str = ""
    _count: int = 0

    def note(self, failure: str) -> str:
        """What an answer says of it; "" for a failure that is new."""
        self._count = self._count + 1 if failure == self._last else 1
        self._last = failure
        if self._count < REPEATED:
            return ""
        return f"\n[this exact call has failed {self._count} times in a row with the same answer; change it, or try another way]"

    def clear(self) -> None:
        """Something succeeded."""
        self._last, self._count = "", 0


@dataclass
class Calls:
    """One session's."""

    preset: Preset
    context: ToolContext
    transcript: Transcript
    recorder: Recorder
    approver: Approver
    inbox: Inbox
    edits: EditLog
    last_test: str = ""  # "passed" or "failed"; what a self-summary carries on
    seconds: float = 0.0  # wall seconds in tools
    repeats: Repeats = field(default_factory=Repeats)

    async def run(self, calls: Sequence[ToolCall], result_bytes: int) -> None:
        """Each result may hold `result_bytes`. Raises Ended at a valid `done`, and Stopped, after every call has its answer, if a
        person broke the turn off."""
        answered = 0
        whole = self.context.settings
        if result_bytes != whole.max_tool_bytes:
            self.context.settings = whole.model_copy(update={"max_tool_bytes": result_bytes})
        try:
            for quiet, group in groupby(calls, lambda call: self.preset.quiet(call.name)):
                for batch in [list(group)] if quiet else [[call] for call in group]:
                    if self._ends(batch[0]):
                        raise Ended("done", batch[0].arguments["message"], tuple(calls[answered:]))
                    await self._batch(batch)
                    answered += len(batch)
        except Stopped:
            for call in calls[answered:]:
                self._answer(call, ToolResult(STOPPED, failed=True), 0.0)
            raise
        finally:
            self.context.settings = whole

    async def _batch(self, batch: list[ToolCall]) -> None:
        """Calls that may run at once; one alone is a batch too."""
        rulings = [await self._rule(call) for call in batch]
        start = time.perf_counter()
        try:
            done = await self.inbox.unless_stopped(self._together(batch, rulings))
        finally:
            wall_s = time.perf_counter() - start
            self.seconds += wall_s
        saved_s = max(0.0, sum(taken_s for _, taken_s in done) - wall_s)
        for number, (call, (result, taken_s)) in enumerate(zip(batch, done, strict=True)):
            first = len(batch) > 1 and number == 0
            self._answer(call, result, taken_s, {"saved_s": round(saved_s, 4)} if first else {})

    async def _together(self, batch: list[ToolCall], rulings: list[Ruling]) -> list[tuple[ToolResult, float]]:
        if len(batch) == 1:
            return [await self._timed(batch[0], rulings[0])]
        tasks = [asyncio.ensure_future(self._timed(*pair)) for pair in zip(batch, rulings, strict=True)]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:  # an infra fault of one, or a stop, ends the others
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _timed(self, call: ToolCall, ruling: Ruling) -> tuple[ToolResult, float]:
        self.edits.begin(call.id)
        start = time.perf_counter()
        result = await self._result(call, ruling)
        return result, time.perf_counter() - start

    async def _result(self, call: ToolCall, ruling: Ruling) -> ToolResult:
        if (objection := self._objection(call)) is not None:
            return ToolResult(objection, failed=True, facts={MALFORMED: 1.0})
        if not ruling.allowed:
            return ToolResult(f"not allowed: {ruling.reason}" if ruling.reason else "not allowed", failed=True)
        try:
            return await self.preset.tools[call.name].run(call.arguments, self.context)
        except (ToolError, WorkspaceError) as error:
            return ToolResult(str(error), failed=True)

    async def _rule(self, call: ToolCall) -> Ruling:
        """Whether it may run; recorded where somebody was asked, or it was refused."""
        if self._objection(call) is not None:
            return Ruling(True)  # it is not run at all
        ruling = await self.inbox.unless_stopped(self.approver.rule(call, effect_of(self.preset.does(call.name))))
        if ruling.asked or not ruling.allowed:
            decision = "denied" if not ruling.allowed else "always" if ruling.remembered else "allowed"
            by = "user" if ruling.asked else "policy"
            row = {"call_id": call.id, "name": call.name, "decision": decision, "by": by, "reason": ruling.reason}
            self.recorder.append("approval", row)
        return ruling

    def _answer(self, call: ToolCall, result: ToolResult, taken_s: float, more: dict[str, float] | None = None) -> None:
        """Append a call's answer with all that the counters ask for, and behind that what it edited."""
        changes = self.edits.changes(call.id)
        if PASSED in result.facts:
            self.last_test = "passed" if result.facts[PASSED] else "failed"
        facts = dict(result.facts)
        if changes:
            facts[THOUGHT_COMMENTS] = float(thought_comments(line for one in changes for line in one.added_lines()))
        told: dict[str, Any] = {"seconds": round(taken_s, 4), "facts": facts, **(more or {})}
        told |= {"reads": list(result.reads)} if result.reads else {}
        shown = self._shown(call, result)
        if result.failed and self.preset.skinned:  # a trained vocabulary has no words for it
            shown += self.repeats.note(f"{call.name} {call.arguments} {shown}")
        elif not result.failed:
            self.repeats.clear()
        message = Message("tool", shown, call_id=call.id)
        self.transcript.result(message, call.name, result.failed, told)
        self.edits.answered(call.id, changes)

    def _shown(self, call: ToolCall, result: ToolResult) -> str:
        """What the policy sees of an answer: what a tool has cut itself is never cut again."""
        if isinstance(result.text, Shown):
            return result.text
        limits, tool = self.context.settings, self.preset.tools.get(call.name)
        keep = tool.keep if tool and not result.failed else "head"
        return truncate(result.text, max_lines=limits.max_tool_lines, max_bytes=limits.max_tool_bytes, keep=keep).text

    def _ends(self, call: ToolCall) -> bool:
        """Whether this is a valid `done`, which is not answered."""
        return call.name == "done" and self._objection(call) is None

    def _objection(self, call: ToolCall) -> str | None:
        """What is wrong with a call, or None. Renderers parse strictly already; endpoints may send anything."""
        tool = self.preset.tools.get(call.name)
        if tool is None:
            return self.preset.unknown(call.name)
        if self.preset.skinned:
            return None  # its tools check their arguments themselves, as strictly as the settings say
        if set(call.arguments) != set(tool.parameters):
            return f"{call.name} takes {', '.join(tool.parameters) or 'no arguments'}"
        wrong = [name for name, value in call.arguments.items() if not isinstance(value, str)]
        return f"{wrong[0]} must be a string" if wrong else None
