"""Behaviour from the harness' counters (`docs/counters.md`). Unfinished to-dos, thinking left in comments and the collapse to the
terminal are those that the report names; the weights are ours.

Units: items, lines, reads and calls are counted; an untested last edit is one; shell_only is a share of the calls.
"""

from __future__ import annotations

from etude.rl.rewards.component import Measure, RewardInput


def _minus(name: str, *counters: str) -> Measure:
    return Measure(name, "penalty", counters, lambda subject: -sum(subject.counter(one) for one in counters))


def _untested(subject: RewardInput) -> float:
    return -float(subject.counter("edits_untested") > 0)


def _shell_only(subject: RewardInput) -> float:
    """Share of the calls that are shell commands which a tool of the preset is for. To build and to test by the shell is no fault."""
    calls = subject.counter("calls")
    return -subject.counter("shell_for_tool") / calls if calls else 0.0


def _added_lint(subject: RewardInput) -> float:
    return -max(0.0, subject.counter("lint_delta"))


BEHAVIOUR = (
    _minus("unfinished_todos", "todos_unfinished"),
    Measure("untested_edit", "penalty", ("edits_untested",), _untested),
    _minus("thought_comments", "thought_comments"),
    Measure("shell_only", "penalty", ("shell_for_tool", "calls"), _shell_only),
    _minus("repeated_reads", "repeated_reads"),
    _minus("broken_calls", "malformed_calls", "malformed_turns"),
    Measure("added_lint", "penalty", ("lint_delta",), _added_lint),
)
