"""What tools report to the hygiene counters in `ToolResult.facts`, by name, and how a call is read that reports less.

A tool reports numbers; the counters never look at its words. Files that a call showed (`ToolResult.reads`) and files that it
changed (the workspace's journal) are recorded too. Where they are not, as in the string presets, the call's own arguments
tell the paths and the new text.
"""

from __future__ import annotations

import shlex
from typing import Mapping, Sequence

from etude.core.trace.change import split
from etude.core.trace.message import ToolCall

EDITS = "edits"  # number of edits made
LOOSE_EDITS = "loose_edits"  # of these, placed by a match that ignored blanks
PASSED = "passed"  # of a test run: 1.0 green, 0.0 red
MALFORMED = "malformed"  # 1.0: the call was refused before it ran (unknown tool, wrong arguments)
SHELL_FAILURES = "shell_failures"  # of a shell command that ended: 1.0 if its exit status was not 0
LINTS_NEW = "lints_new"  # diagnostics that the last look at the same files did not have
LINTS_GONE = "lints_gone"  # diagnostics that it had and this one has not
QUESTIONS = "questions"  # questions the call put to the user
THOUGHT_COMMENTS = (
    "thought_comments"  # lines written whose comment talks to itself; the harness adds it where it saw the lines
)

Facts = Mapping[str, float]

# What a tool is for, by implementation and under the names that presets and other agents give it.
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("view", "read", "read_file", "Read", "ReadFile"), "read"),
    **dict.fromkeys(("write", "write_file", "create_file", "Write", "WriteFile"), "write"),
    **dict.fromkeys(
        ("edit", "multi_edit", "apply_patch", "search_replace", "str_replace", "delete", "delete_file", "Edit"), "edit"
    ),
    **dict.fromkeys(("grep", "grep_files", "grep_search", "search", "Grep"), "search"),
    **dict.fromkeys(
        ("list", "list_folder", "list_dir", "glob", "glob_file_search", "find_files", "ls", "Glob"), "list"
    ),
    **dict.fromkeys(("shell", "bash", "exec_command", "run_terminal_cmd", "terminal", "Bash", "Shell"), "shell"),
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
    if isinstance(found, list):  # an argument vector; of a shell's, what it is given to run
        words = [word for word in found if isinstance(word, str)]
        return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else shlex.join(words)
    return found if isinstance(found, str) else ""


def assume_facts(call: ToolCall, *, failed: bool) -> Facts:
    """Of a call whose tool reported nothing, as those of other agents: what its name and its failing tell."""
    purpose = kind(call.name)
    if purpose in ("edit", "write"):
        return {} if failed else {EDITS: 1.0}
    return {SHELL_FAILURES: float(failed)} if purpose == "shell" else {}


def paths_read(call: ToolCall, reads: Sequence[str]) -> Sequence[str]:
    """The files whose text the call showed."""
    return reads or (_paths(call) if kind(call.name) == "read" else ())


def paths_edited(call: ToolCall, facts: Facts) -> Sequence[str]:
    """The files that the call changed, by its arguments; one that it may have created is left out."""
    return _paths(call) if facts.get(EDITS) and call.arguments.get("old") != "" else ()


def new_lines(call: ToolCall, facts: Facts) -> list[str]:
    """The lines that the call wrote, by its arguments."""
    texts = [call.arguments.get(name) for name in _TEXT_NAMES] if facts.get(EDITS) else []
    return [line for text in texts if isinstance(text, str) for line in split(text)]


def _paths(call: ToolCall) -> list[str]:
    return [call.arguments[name] for name in _PATH_NAMES if isinstance(call.arguments.get(name), str)]
