"""Hygiene counters: each one counts what its name says, nothing else, and the old ones are untouched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.metrics.counters import COUNTED, Counters, hides_status, runs_tests, tool_instead
from etude.agent.metrics.facts import (
    LINTS_GONE,
    LINTS_NEW,
    MALFORMED,
    PASSED,
    QUESTIONS,
    SHELL_FAILURES,
    THOUGHT_COMMENTS,
)
from etude.agent.metrics.net_change import NetChange
from etude.agent.metrics.todo import TodoList
from etude.agent.metrics.wording import asks, claims_green, thought_comments
from etude.core.trace.change import TextChange
from etude.core.trace.message import Message, ToolCall

TOOLS = ("read", "edit", "write", "grep", "list", "shell", "test", "done")


class Scene:
    """A short session; `counts` are its counters."""

    def __init__(self, *tools: str) -> None:
        self._counters = Counters(tools or TOOLS)
        self._change = NetChange()
        self._edits = 0

    def call(self, name: str, facts: dict[str, Any] | None = None, *, failed: bool = False, **arguments: Any) -> Scene:
        self._counters.call(ToolCall("c", name, arguments), failed=failed, facts=facts or {})
        return self

    def edit(self, path: str, before: str | None, after: str | None) -> Scene:
        """As the harness records it: the lines that were written are counted where they are seen."""
        change = TextChange(path, before, after)
        entry = change.to_entry("c")
        self._change.edit(self._edits, entry)
        self._edits += 1
        facts = {"edits": 1.0, THOUGHT_COMMENTS: float(thought_comments(change.added_lines()))}
        call = ToolCall("c", "edit", {"path": "elsewhere", "new": "# wait, what the journal tells comes first"})
        self._counters.call(call, failed=False, facts=facts, edits=[entry])
        return self

    def undo(self, *edits: int) -> Scene:
        self._change.undo(list(edits))
        return self

    def say(self, text: str, *, calls: bool = True) -> Scene:
        made = (ToolCall("c", "read", {}),) if calls else ()
        self._counters.count_turn(Message("assistant", text, calls=made))
        return self

    @property
    def counts(self) -> dict[str, float]:
        return self._counters.report(TodoList(), 0, self._change.size())


def test_every_counter_is_there_whatever_happened() -> None:
    idle = Scene().counts
    assert set(idle) >= {
        *COUNTED,
        "shell_share",
        "diff_added",
        "parallel_saved_s",
        "green_claims_unbacked",
        "lint_delta",
    }
    assert set(idle.values()) == {0.0}
    busy = Scene().call("shell", command="ls").edit("a", None, "x = 1\n").say("all tests pass").counts
    assert set(busy) == set(idle)


def test_malformed_and_failed_calls_are_distinguished() -> None:
    counts = Scene().call("read", {MALFORMED: 1.0}, failed=True).call("read", failed=True, path="x").counts
    assert (counts["malformed_calls"], counts["failed_calls"], counts["calls"]) == (1, 2, 2)


def test_a_read_is_repeated_only_if_it_is_identical_and_nothing_changed_in_between() -> None:
    twice = Scene().call("read", path="a").call("read", path="a")
    assert twice.counts["repeated_reads"] == 1
    assert Scene().call("read", path="a").call("read", path="a", offset=5).counts["repeated_reads"] == 0
    assert Scene().call("read", path="a").edit("a", "x", "y").call("read", path="a").counts["repeated_reads"] == 0
    assert Scene().call("read", path="a").edit("b", "x", "y").call("read", path="a").counts["repeated_reads"] == 1
    shell = Scene().call("read", path="a").call("shell", command="make").call("read", path="a")
    assert shell.counts["repeated_reads"] == 0, "a command may have changed the file"
    assert Scene().call("read", failed=True, path="a").call("read", path="a").counts["repeated_reads"] == 0
    counters = Counters(TOOLS)
    for _ in range(2):
        counters.call(ToolCall("c", "grep", {"pattern": "x"}), failed=False, facts={}, reads=("a",))
    assert counters.report(TodoList(), 0, (0, 0, 0))["repeated_reads"] == 1, "a tool may report what it showed"


def test_an_edit_without_a_read_is_one_of_a_file_the_agent_never_saw() -> None:
    assert Scene().edit("a", "x", "y").edit("a", "y", "z").counts["edits_without_read"] == 1, "then it wrote it itself"
    assert Scene().call("read", path="a").edit("a", "x", "y").counts["edits_without_read"] == 0
    assert Scene().edit("new", None, "y").edit("new", "y", "z").counts["edits_without_read"] == 0
    nano = Scene("view", "edit").call("edit", {"edits": 1.0, "loose_edits": 0.0}, path="a", old="x", new="y")
    assert nano.counts["edits_without_read"] == 1, "tools that report no paths are read by their arguments"
    appended = Scene("view", "edit").call("edit", {"edits": 1.0}, path="a", old="", new="y")
    assert appended.counts["edits_without_read"] == 0


@pytest.mark.parametrize(
    ("line", "tool"),
    [
        ("cat core.py", "read"),
        ("cd src && head -20 core.py", "read"),
        ("sed -n 1,20p core.py", "read"),
        ("cat a.py | head -5", "read"),
        ("grep -rn tally .", "search"),
        ("rg tally | sort | uniq", "search"),
        ("LC_ALL=C ls -la", "list"),
        ("find . -name '*.py'", "list"),
        ("sed -i 's/a/b/' core.py", "edit"),
        ("echo x > a.txt", "write"),
        ("cat > a.txt << 'END'\nx\nEND", "write"),
        ("curl https://example.org", "fetch"),
        ("python -m pytest -q", ""),
        ("cat a.py | python", ""),
        ("grep -c x a && make", ""),
        ("ls; rm x", ""),
        ("echo done", ""),
        ("make 2>/dev/null", ""),
        ("echo hi > /dev/null", ""),
        ("", ""),
    ],
)
def test_what_a_command_line_could_have_been_done_with(line: str, tool: str) -> None:
    assert tool_instead(line) == tool
    expected = tool not in ("", "fetch")
    assert Scene().call("shell", command=line).counts["shell_for_tool"] == expected
    assert Scene("shell", "edit").call("shell", command=line).counts["shell_for_tool"] == (tool == "edit"), (
        "only where the tool exists"
    )


def test_the_share_of_calls_through_the_shell() -> None:
    counts = (
        Scene().call("shell", command="make").call("read", path="a").call("shell", command="make").call("done").counts
    )
    assert (counts["shell_calls"], counts["shell_share"]) == (2, 0.5)


@pytest.mark.parametrize(
    "text",
    [
        "All tests pass.",
        "Fixed; the tests now pass",
        "the test suite is green",
        "I ran it: 12 passed",
        "Both tests are passing now.",
        "All 14 tests passed!",
        "Every check? The existing tests still pass.",
    ],
)
def test_a_claim_of_green_tests_is_seen(text: str) -> None:
    assert claims_green(text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Let me see if the tests pass.",
        "The tests should pass now",
        "I will make the tests pass",
        "tests do not pass",
        "until all tests pass",
        "I can't verify that the tests pass",
        "Run the tests",
        "the password test",
        "Now to ensure all tests pass, I edit it",
    ],
)
def test_a_plan_a_condition_or_a_denial_is_no_claim(text: str) -> None:
    assert claims_green(text) == 0


def test_a_turn_that_repeats_a_claim_is_counted_in_a_moment() -> None:
    """Four thousand claims in one sentence; each looks back a bounded number of characters."""
    assert claims_green("all tests pass " * 4000) == 4000
    assert claims_green("if " + "all tests pass " * 4000) == 4000 - 34  # the condition reaches 500 characters
    assert (
        claims_green("x " * 300 + "until all tests pass") == 0 and claims_green("onto " * 110 + "all tests pass") == 1
    )


def test_a_claim_is_backed_by_a_green_run_since_the_last_edit_or_later() -> None:
    green, red = {PASSED: 1.0}, {PASSED: 0.0}

    def unbacked(scene: Scene) -> float:
        return scene.counts["green_claims_unbacked"]

    assert unbacked(Scene().say("All tests pass.")) == 1
    assert unbacked(Scene().call("test", green).say("All tests pass.")) == 0
    assert unbacked(Scene().call("test", red).say("All tests pass.")) == 1
    assert unbacked(Scene().call("test", green).edit("a", "x", "y").say("All tests pass.")) == 1
    assert unbacked(Scene().say("All tests pass.").call("test", green)) == 0
    assert unbacked(Scene().say("All tests pass.").call("test", red)) == 1
    assert unbacked(Scene().call("done", message="fixed, all tests pass")) == 1
    assert Scene().call("test", green).say("All tests pass.").counts["green_claims"] == 1


def test_tests_run_by_the_shell_count_if_the_command_tells_its_status() -> None:
    ran = (
        Scene()
        .edit("a", "x", "y")
        .call("shell", {SHELL_FAILURES: 0.0}, command="python -m pytest -q")
        .say("All tests pass.")
    )
    assert (ran.counts["tests_run"], ran.counts["tests_passed"], ran.counts["green_claims_unbacked"]) == (1, 1, 0)
    assert ran.counts["edits_untested"] == 0
    failed = Scene().call("shell", {SHELL_FAILURES: 1.0}, command="npm test").counts
    assert (failed["tests_run"], failed["tests_passed"]) == (1, 0)
    assert Scene().call("shell", {SHELL_FAILURES: 0.0}, command="make").counts["tests_run"] == 0
    assert Scene().call("shell", command="pytest").counts["tests_run"] == 0, "unknown how it ended"
    hidden = (
        Scene().call("shell", {SHELL_FAILURES: 0.0}, command="pytest -q 2>&1 | tail -3").say("All tests pass.").counts
    )
    assert (hidden["tests_run"], hidden["tests_passed"], hidden["green_claims_unbacked"]) == (1, 0, 0)
    assert runs_tests("cd x && cargo test --all") and not runs_tests("echo latest")


@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        ("pytest -q", False),
        ("cd x && pytest -q 2>&1", False),
        ("pytest a && pytest b", False),
        ("pytest -q > log.txt 2>&1", False),
        ("pytest -q | tail -5", True),
        ("pytest -q; true", True),
        ("pytest || true", True),
        ("pytest -q && echo ok", False),
        ("pytest &", True),
    ],
)
def test_a_status_that_is_not_the_tests_own_is_known(line: str, hidden: bool) -> None:
    assert runs_tests(line) and hides_status(line) == hidden


def test_thinking_left_in_comments_is_counted_by_line() -> None:
    text = "x = 1  # Wait, this is wrong\n# Let me try again\n# The total of all items.\n// I think we need y\n * Hmm\n"
    assert Scene().edit("a.py", None, text).counts["thought_comments"] == 4
    assert Scene().edit("a.py", text, text + "y = 2  # Sum\n").counts["thought_comments"] == 0, "only what it wrote"
    nano = Scene("view", "edit").call("edit", {"edits": 1.0}, path="a", old="x", new="y  # actually, no")
    assert nano.counts["thought_comments"] == 1
    for line in ("# Wait for the lock.", "# Let x be the sum", "# Actual size in bytes", "# Now in UTC", "#!/bin/sh"):
        assert thought_comments([line]) == 0, line


def test_questions_are_turns_that_end_with_one_and_calls_that_ask() -> None:
    assert Scene().say("Which file do you mean?", calls=False).counts["questions"] == 1
    assert Scene().say("Done.\n\nShall I **commit**?\n", calls=False).counts["questions"] == 1
    assert Scene().say("Why? Because.", calls=False).counts["questions"] == 0
    assert Scene().say("What is in it?").counts["questions"] == 0, "it went on by itself"
    assert Scene().call("ask", {QUESTIONS: 2.0}).counts["questions"] == 2
    assert not asks("") and asks("really?`")


def test_the_change_is_measured_as_a_whole() -> None:
    scene = Scene().edit("a", "one\ntwo\n", "one\n2\n3\n").edit("a", "one\n2\n3\n", "one\n2\n").edit("b", None, "x\n")
    counts = scene.edit("c", "y\n", "z\n").edit("c", "z\n", "y\n").counts
    assert (counts["diff_files"], counts["diff_added"], counts["diff_removed"]) == (2, 2, 1)
    scene.undo(2)
    assert scene.counts["diff_files"] == 1, "a file that came and went is no change"
    assert scene.counts["edits"] == 5, "and an undo is no edit"


def test_the_lint_delta_is_what_came_minus_what_went_from_look_to_look() -> None:
    scene = Scene().call("lints", {"lints": 9.0}).call("lints", {LINTS_NEW: 3.0, LINTS_GONE: 1.0})
    assert scene.counts["lint_delta"] == 2
    assert scene.call("lints", {LINTS_NEW: 0.0, LINTS_GONE: 5.0}).counts["lint_delta"] == -3
    scene._counters.count_lints(4, 1)
    assert scene.counts["lint_delta"] == 3, "what was measured at the end replaces looks"
    scene._counters.count_lints(0, 1)
    assert scene.counts["lint_delta"] == 2, "each part of a session that was taken up again has its own"


def test_time_saved_is_what_calls_took_alone_minus_together() -> None:
    counters = Counters(TOOLS)
    counters.parallel(1.25)
    counters.parallel(0.25)
    assert counters.report(TodoList(), 0, (0, 0, 0))["parallel_saved_s"] == 1.5


@given(st.text(max_size=200))
def test_no_text_breaks_the_rules(text: str) -> None:
    assert claims_green(text) >= 0 and asks(text) in (True, False) and thought_comments(text.split("\n")) >= 0
    assert tool_instead(text) is not None and runs_tests(text) in (True, False)


arguments = st.dictionaries(
    st.sampled_from(["path", "new", "old", "command", "x"]), st.none() | st.text(max_size=8) | st.integers()
)


@given(st.lists(st.tuples(st.sampled_from([*TOOLS, "nothing"]), arguments, st.booleans()), max_size=12))
def test_shares_and_sums_hold_for_any_calls(calls: list[tuple[str, dict[str, Any], bool]]) -> None:
    scene = Scene()
    for name, given_arguments, edits in calls:
        scene._counters.call(ToolCall("c", name, given_arguments), failed=False, facts={"edits": float(edits)})
    counts = scene.counts
    assert counts["calls"] == len(calls) and 0 <= counts["shell_share"] <= 1
    assert counts["shell_for_tool"] <= counts["shell_calls"] <= counts["calls"]
    assert max(counts["repeated_reads"], counts["repeated_calls"]) <= max(0, counts["calls"] - 1)
    assert counts["edits_without_read"] <= counts["edits"]


def test_every_counter_is_explained_on_its_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "counters.md").read_text()
    result = set(
        re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `")))
    )
    assert result == set(Counters(()).report(TodoList(), 0, (0, 0, 0))), (
        "docs/counters.md names every counter and no other"
    )
