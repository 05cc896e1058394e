"""What tools report to the hygiene counters in `ToolResult.facts`, by name, and how a call without a report is read.

A tool reports what it knows exactly; the counters never look at its words. Every name is optional. Tools of the `nano`
preset report only the first three: their paths and texts are then taken from the call's arguments.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from etude.trace.change import Change, split
from etude.trace.message import ToolCall

EDITS = "edits"  # number of edits made
LOOSE_EDITS = "loose_edits"  # of these, placed by a match that ignored blanks
PASSED = "passed"  # of a test run: 1.0 green, 0.0 red
MALFORMED = "malformed"  # 1.0: the call was refused before it ran (unknown tool, wrong arguments)
READS = "reads"  # list of paths whose text the call showed
CHANGES = "changes"  # list of trace.change.Change, in the order they were made
EXIT_CODE = "exit_code"  # of a shell command that ended by itself
LINT_DELTA = "lint_delta"  # diagnostics in the changed files now, minus those before the first edit
QUESTIONS = "questions"  # questions the call put to the user

Facts = Mapping[str, Any]

# What a tool is for, under every name the presets give it.
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("view", "read", "read_file", "open_file", "Read", "ReadFile"), "read"),
    **dict.fromkeys(("write", "write_file", "create_file", "Write", "WriteFile"), "write"),
    **dict.fromkeys(
        ("edit", "search_replace", "str_replace", "apply_patch", "patch", "Edit", "StrReplaceFile"), "edit"
    ),
    **dict.fromkeys(("grep", "search", "grep_search", "Grep"), "search"),
    **dict.fromkeys(("list", "ls", "list_dir", "glob", "glob_file_search", "find", "Glob"), "list"),
    **dict.fromkeys(("shell", "bash", "run_terminal_cmd", "terminal", "exec_command", "Bash", "Shell"), "shell"),
    **dict.fromkeys(("web_fetch", "fetch", "WebFetch", "FetchURL"), "fetch"),
}
_PATH_NAMES = ("path", "file_path", "target_file", "filePath")
_TEXT_NAMES = ("new", "new_string", "content", "contents")


def kind(name: str) -> str:
    """What a tool of this name is for; an empty string if for none of the purposes above."""
    return KINDS.get(name, "")


def command(call: ToolCall) -> str:
    """The command line of a shell call."""
    found = call.arguments.get("command", call.arguments.get("cmd", ""))
    return found if isinstance(found, str) else ""


def paths_read(call: ToolCall, facts: Facts) -> Sequence[str]:
    """The files whose text the call showed."""
    if READS in facts:
        return facts[READS]
    return _paths(call) if kind(call.name) == "read" else ()


def paths_edited(call: ToolCall, facts: Facts) -> Sequence[str]:
    """The files that the call changed and did not create."""
    if CHANGES in facts:
        return [change.path for change in facts[CHANGES] if change.before is not None]
    return _paths(call) if facts.get(EDITS) and call.arguments.get("old") != "" else ()


def added_lines(call: ToolCall, facts: Facts) -> list[str]:
    """The lines that the call wrote."""
    if CHANGES in facts:
        return [line for change in changes(facts) for line in change.added_lines()]
    texts = [call.arguments.get(name) for name in _TEXT_NAMES] if facts.get(EDITS) else []
    return [line for text in texts if isinstance(text, str) for line in split(text)]


def changes(facts: Facts) -> Sequence[Change]:
    """The changes of files that the call reported."""
    return facts.get(CHANGES, ())


def _paths(call: ToolCall) -> list[str]:
    return [call.arguments[name] for name in _PATH_NAMES if isinstance(call.arguments.get(name), str)]
