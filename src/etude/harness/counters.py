"""Hygiene counters: what the agent did, in numbers. They feed the length penalty's six quantities (thinking, calling,
tool-output and final-message tokens, calls, turns) and the behaviour rewards; a fuzzy success counts as well as a failure."""

from __future__ import annotations

import json
from collections import Counter

from etude.chat.renderer import TokenKinds
from etude.harness.todo import TodoList
from etude.trace.message import ToolCall


class Counters:
    """Grows during a session; `report` gives every name always, so that columns don't depend on what happened."""

    def __init__(self, tool_names: tuple[str, ...]) -> None:
        self._tools = tool_names
        self._n: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._edits_since_test = 0

    def turn(self, kinds: TokenKinds, *, malformed: bool) -> None:
        self._n["turns"] += 1
        self._n["malformed_turns"] += malformed
        self._n["thinking_tokens"] += kinds.thinking
        self._n["call_tokens"] += kinds.calling
        self._n["message_tokens"] += kinds.message

    def call(self, call: ToolCall, *, failed: bool, facts: dict[str, float]) -> None:
        """One call that was answered. The same call again without an edit in between counts as repeated."""
        self._n["calls"] += 1
        if call.name in self._tools:
            self._n[f"calls_{call.name}"] += 1
        self._n["failed_calls"] += failed
        key = json.dumps([call.name, call.arguments], sort_keys=True, default=str)
        self._n["repeated_calls"] += self._seen[key] > 0
        self._seen[key] += 1
        self._n["edits"] += int(facts.get("edits", 0))
        self._n["loose_edits"] += int(facts.get("loose_edits", 0))
        if facts.get("edits"):
            self._seen.clear()
            self._edits_since_test += 1
        if "passed" in facts:
            self._n["tests_run"] += 1
            self._n["tests_passed"] += int(facts["passed"])
            self._edits_since_test = 0

    def output(self, tokens: int) -> None:
        self._n["tool_output_tokens"] += tokens

    def summary(self, tokens: int) -> None:
        self._n["summaries"] += 1
        self._n["summary_tokens"] += tokens

    def report(self, todos: TodoList, forks: int) -> dict[str, float]:
        """All counters by name."""
        names = (
            "turns malformed_turns calls failed_calls repeated_calls edits loose_edits tests_run tests_passed "
            "thinking_tokens call_tokens tool_output_tokens message_tokens summaries summary_tokens"
        ).split()
        counts = {name: float(self._n[name]) for name in names}
        counts.update({f"calls_{name}": float(self._n[f"calls_{name}"]) for name in self._tools})
        counts["edits_untested"] = float(self._edits_since_test)
        counts["tested_after_last_edit"] = float(self._n["edits"] > 0 and self._edits_since_test == 0)
        counts["todos_opened"] = float(todos.opened)
        counts["todos_unfinished"] = float(len(todos.open))
        counts["forks"] = float(forks)
        return counts
