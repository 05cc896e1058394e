"""What the agent did, in numbers: free and exact, computed from turns, calls, results and reported facts. `of_session.py` tells them.

They feed the length penalty's six quantities (thinking, calling, tool-output and final-message tokens, calls, turns) and
the behaviour rewards; a fuzzy success counts as well as a failure. What each name means is `docs/counters.md`. Names that
end in `_s` are wall seconds: they differ from run to run, so a replay does not compare them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Sequence

from etude.agent.metrics import facts as fact
from etude.agent.metrics.todo import TodoList
from etude.agent.metrics.tokens import TurnTokens
from etude.agent.metrics.wording import asks, claims_green, thought_comments
from etude.core.trace.message import Message, ToolCall

# What a command line is for, as far as its first words tell: reading, searching, listing, editing, running tests.


_FOR = {
    **dict.fromkeys(("cat", "head", "tail", "less", "more", "nl", "bat"), "read"),
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg", "ag", "ack"), "search"),
    **dict.fromkeys(("ls", "find", "fd", "tree", "dir"), "list"),
    **dict.fromkeys(("curl", "wget"), "fetch"),
}
# What may stand behind the first command of a pipe without making it a job of its own.
_FILTERS = frozenset((*_FOR, "wc", "sort", "uniq", "cut", "sed"))
_CHANGES_PLACE = re.compile(r"^(?:cd\s+[^;&|]+&&\s*|[A-Z_][A-Z0-9_]*=\S*\s+)+")
_SED_EDITS = re.compile(r"^(?:sed|perl)\b[^|;&]*\s-(?:\w*i|-in-place)")
_INTO_FILE = re.compile(r"^(?:echo|printf|cat)\b[^|;&]*>{1,2}\s*(?!/dev/|&)[\w./~-]")
_TESTS = re.compile(
    r"\b(?:pytest|py\.test|tox|nox|unittest|nose2|jest|vitest|mocha|rspec|phpunit|ctest|go test|cargo (?:test|nextest)|"
    r"(?:npm|yarn|pnpm|bun)(?: run)? test|mvn [\w ]{0,80}test|gradlew? [\w ]{0,80}test|make [\w ]{0,80}(?:test|check)|dotnet test)\b"
)


def tool_instead(line: str) -> str:
    """The kind of tool (see facts.KINDS) that does what this command line does; an empty string if none does."""
    bare = _CHANGES_PLACE.sub("", line.strip())
    if _SED_EDITS.search(bare):
        return "edit"
    if _INTO_FILE.search(bare):
        return "write"
    if re.search(r"&&|;|\|\||\n|`|\$\(", bare):
        return ""  # a job of several steps is a shell's purpose
    words = [part.split(None, 1)[0] for part in bare.split("|") if part.strip()]
    if not words or any(word not in _FILTERS for word in words[1:]):
        return ""
    if words[0] == "sed" and " -n" in bare:
        return "read"
    return _FOR.get(words[0], "")


def runs_tests(line: str) -> bool:
    """Whether a command line runs a test suite."""
    return _TESTS.search(line) is not None


def hides_status(line: str) -> bool:
    """Whether something follows the last test command that gives the line another status (`&&` keeps a red one)."""
    last = max((match.end() for match in _TESTS.finditer(line)), default=0)
    return re.search(r"[|;\n]|(?<!&)&(?![&>0-9])", line[last:].strip().replace(">&", "")) is not None


COUNTED = (
    "turns malformed_turns calls failed_calls repeated_calls edits loose_edits tests_run tests_passed "
    "thinking_tokens call_tokens tool_output_tokens message_tokens summaries summary_tokens broken_summaries "
    "malformed_calls repeated_reads edits_without_read shell_calls shell_for_tool green_claims thought_comments questions"
).split()


class Counters:
    """Grows during a session; `report` gives every name always, so that columns don't depend on what happened."""

    def __init__(self, tool_names: tuple[str, ...]) -> None:
        self._tools = tool_names
        self._kinds = {fact.kind(name) for name in tool_names}
        self._n: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._edits_since_test = 0
        self._known: set[str] = set()  # files whose text the agent has seen or written
        self._shown: dict[str, set[str]] = {}  # path -> read calls answered since it last changed
        self._green = False  # the last test run was not red and nothing was edited since
        self._unbacked = 0  # claims of green tests that no green run has backed yet
        self._looks_delta = 0.0  # of one look of the lints tool to the next
        self._lint_delta: float | None = None  # measured at the end
        self._saved_s = 0.0

    def turn(self, tokens: TurnTokens, *, malformed: bool) -> None:
        self._n["turns"] += 1
        self._n["malformed_turns"] += malformed
        self._n["thinking_tokens"] += tokens.thinking
        self._n["call_tokens"] += tokens.calling
        self._n["message_tokens"] += tokens.message

    def count_turn(self, message: Message) -> None:
        """What a turn says, before its calls run."""
        self._claim(message.text)
        if not message.calls and message.problem is None:
            self._n["questions"] += asks(message.text)

    def call(
        self,
        call: ToolCall,
        *,
        failed: bool,
        facts: fact.Facts,
        reads: Sequence[str] = (),
        edits: Sequence[dict[str, Any]] = (),
    ) -> None:
        """One call that was answered. The same call again without an edit in between counts as repeated.

        `reads` are files whose text was shown, `edits` what the session's `edit` entries say of it.
        """
        self._n["calls"] += 1
        if call.name in self._tools:
            self._n[f"calls_{call.name}"] += 1
        self._n["failed_calls"] += failed
        self._n["malformed_calls"] += int(facts.get(fact.MALFORMED, 0))
        self._n["questions"] += int(facts.get(fact.QUESTIONS, 0))
        key = json.dumps([call.name, call.arguments], sort_keys=True, default=str)
        self._n["repeated_calls"] += self._seen[key] > 0
        self._seen[key] += 1
        if call.name == "done":
            self._claim(str(call.arguments.get("message", "")))
        self._shell(call)
        if not failed:
            self._read(fact.paths_read(call, reads), key)
        self._edit(call, facts, edits)
        self._test(call, facts)
        self._looks_delta += facts.get(fact.LINTS_NEW, 0.0) - facts.get(fact.LINTS_GONE, 0.0)

    def count_lints(self, new: int, gone: int) -> None:
        """Measured against the files as they were; each part of a session that was taken up again has its own."""
        self._lint_delta = (self._lint_delta or 0.0) + new - gone

    def parallel(self, saved_s: float) -> None:
        """Calls ran side by side: what they took each, minus what they took together."""
        self._saved_s += saved_s

    def output(self, tokens: int) -> None:
        self._n["tool_output_tokens"] += tokens

    def summary(self, tokens: int, *, broken: bool) -> None:
        self._n["summaries"] += 1
        self._n["summary_tokens"] += tokens
        self._n["broken_summaries"] += broken

    def report(self, todos: TodoList, forks: int, diff: tuple[int, int, int]) -> dict[str, float]:
        """All counters by name."""
        counts = {name: float(self._n[name]) for name in COUNTED}
        counts.update({f"calls_{name}": float(self._n[f"calls_{name}"]) for name in self._tools})
        counts["edits_untested"] = float(self._edits_since_test)
        counts["tested_after_last_edit"] = float(self._n["edits"] > 0 and self._edits_since_test == 0)
        counts["todos_opened"] = float(todos.opened)
        counts["todos_unfinished"] = float(len(todos.open))
        counts["forks"] = float(forks)
        counts["green_claims_unbacked"] = float(self._unbacked)
        counts["shell_share"] = self._n["shell_calls"] / self._n["calls"] if self._n["calls"] else 0.0
        counts["lint_delta"] = self._looks_delta if self._lint_delta is None else self._lint_delta
        counts |= dict(zip(("diff_files", "diff_added", "diff_removed"), map(float, diff), strict=True))
        counts["parallel_saved_s"] = round(self._saved_s, 4)
        return counts

    def _claim(self, text: str) -> None:
        claims = claims_green(text)
        self._n["green_claims"] += claims
        self._unbacked += 0 if self._green else claims

    def _shell(self, call: ToolCall) -> None:
        if fact.kind(call.name) != "shell":
            return
        self._n["shell_calls"] += 1
        self._n["shell_for_tool"] += tool_instead(fact.command(call)) in self._kinds - {"", "shell"}
        self._shown.clear()  # it may have changed any file: to read one again is no repetition

    def _read(self, paths: Sequence[str], key: str) -> None:
        self._n["repeated_reads"] += bool(paths) and all(key in self._shown.get(path, ()) for path in paths)
        for path in paths:
            self._known.add(path)
            self._shown.setdefault(path, set()).add(key)

    def _edit(self, call: ToolCall, facts: fact.Facts, edits: Sequence[dict[str, Any]]) -> None:
        self._n["loose_edits"] += int(facts.get(fact.LOOSE_EDITS, 0))
        self._n["edits"] += int(facts.get(fact.EDITS, 0))
        if facts.get(fact.EDITS):
            self._seen.clear()
            self._edits_since_test += 1
            self._green = False
        edited = {e["path"] for e in edits if e["kind"] != "create"} if edits else {*fact.paths_edited(call, facts)}
        said = facts.get(fact.THOUGHT_COMMENTS)
        self._n["edits_without_read"] += len(edited - self._known)
        self._n["thought_comments"] += thought_comments(fact.new_lines(call, facts)) if said is None else int(said)
        for path in edited | {edit["path"] for edit in edits}:
            self._known.add(path)
            self._shown.pop(path, None)

    def _test(self, call: ToolCall, facts: fact.Facts) -> None:
        """A run of the tests: by the tool for it, or by a shell command that runs them and reports its status."""
        if fact.PASSED in facts:
            passed = bool(facts[fact.PASSED])
        elif fact.SHELL_FAILURES in facts and runs_tests(fact.command(call)):
            passed = None if hides_status(fact.command(call)) else not facts[fact.SHELL_FAILURES]
        else:
            return
        self._n["tests_run"] += 1
        self._n["tests_passed"] += passed is True
        self._edits_since_test = 0
        self._green = passed is not False  # what a pipe hides can't be held against a claim
        if self._green:
            self._unbacked = 0
