"""The scripted expert's moves as calls of a preset's tools.

A plan has six moves: grep, view, edit, test, todo, done. The presets `nano` and `full` have tools of these names. Every other preset has other
names, arguments and sometimes no tool of the kind: a search is then a shell command, an edit is a patch, and the end is a message without calls.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from etude.agent.harness.presets.presented_tool import PresentedTool
from etude.agent.harness.presets.preset import Preset
from etude.tasks.generate.plan import FIXED, Call
from etude.tasks.task import Task

SpokenCall = tuple[str, dict[str, Any]]
# What a plan does, and the tools that can do it. A preset without a to-do tool is sound: the expert keeps no list then.
NEEDS: dict[str, tuple[str, ...]] = {
    "search": ("grep", "shell"),
    "read a file": ("read", "shell"),
    "edit a file": ("edit", "multi_edit", "apply_patch", "write"),
    "append to a file": ("shell",),
    "run the tests": ("shell",),
}


class NoSuchMove(ValueError):
    """A preset has no tool for a move of the expert; the message names both and the remedy."""


def require_moves(preset: Preset) -> None:
    """Raises NoSuchMove for a preset in which the expert could not carry out its plans."""
    if not preset.skinned:
        return
    offered = {preset.does(name) for name in preset.tools}
    for purpose, tools in NEEDS.items():
        if offered.isdisjoint(tools):
            raise _missing(preset.name, purpose)


def _missing(preset: str, purpose: str) -> NoSuchMove:
    return NoSuchMove(
        f"the scripted expert has to {purpose}, and the preset {preset} offers no tool for it: take that tool out of harness.tools_off, "
        'choose another preset, or train on collected sessions alone (sft.collected, and "sessions" in run.without)'
    )


class ExpertCalls:
    """The calls of one session. Edits are followed in `files`, as a patch needs the lines around the piece that it replaces."""

    def __init__(self, preset: Preset | None, task: Task) -> None:
        self._own = preset is None or not preset.skinned
        self._preset = "" if preset is None else preset.name
        tools = () if preset is None else preset.tools.values()
        self._tools = {tool.implementation.name: tool for tool in tools if isinstance(tool, PresentedTool)}
        self._test = shlex.join(task.test_command)
        self._files = dict(task.files)
        self._todos: dict[str, str] = {}
        self._changed: dict[str, None] = {}

    def of_turn(self, calls: Iterable[Call]) -> tuple[str, list[SpokenCall]]:
        """The text and the calls of a turn. Both empty: the preset has no tool for what the turn does, and it can be left out. Raises NoSuchMove."""
        if self._own:
            return "", list(calls)
        text, spoken = "", []
        for name, arguments in calls:
            if name == "done":
                text = self._farewell(arguments["message"])
            elif (call := self._moves[name](self, arguments)) is not None:
                spoken.append(call)
        return text, spoken

    def summary(self, done: list[str], left: list[str]) -> str:
        """What the next segment starts from."""
        if self._own:
            words = [f"done {' '.join(done)}"] if done else []
            return " ".join([*words, *([f"left {' '.join(left)}"] if left else [])])
        return f"Done: {', '.join(done) or 'nothing yet'}. Left: {', '.join(left) or 'nothing'}."

    def _grep(self, arguments: Mapping[str, str]) -> SpokenCall:
        pattern = arguments["pattern"]
        if "grep" in self._tools:
            return self._call("grep", pattern=pattern)
        return self._shell(f"grep -rn -e {shlex.quote(pattern)} .", "search")

    def _view(self, arguments: Mapping[str, str]) -> SpokenCall:
        if "read" in self._tools:
            return self._call("read", path=arguments["path"])
        return self._shell(f"cat {shlex.quote(arguments['path'])}", "read a file")

    def _edit(self, arguments: Mapping[str, str]) -> SpokenCall:
        """An edit without `old` text appends to a file that is there, and creates one that isn't."""
        path, old, new = arguments["path"], arguments["old"], arguments["new"]
        before = self._files.get(path)
        self._changed[path] = None
        if before and not old:
            self._files[path] = f"{before}{new}\n"
            return self._shell(f"printf '%s\\n' {shlex.quote(new)} >> {shlex.quote(path)}", "append to a file")
        after = self._files[path] = (before or "").replace(old, new, 1)
        if "edit" in self._tools:
            return self._call("edit", path=path, old=old, new=new)
        if "multi_edit" in self._tools:
            return self._call("multi_edit", path=path, edits=[{"old": old, "new": new}])
        if "apply_patch" in self._tools:
            return self._call("apply_patch", patch=_patch(path, before, after))
        if "write" in self._tools:
            return self._call("write", path=path, contents=after)
        raise _missing(self._preset, "edit a file")

    def _run_tests(self, arguments: Mapping[str, str]) -> SpokenCall:
        return self._shell(self._test, "run the tests")

    def _todo(self, arguments: Mapping[str, str]) -> SpokenCall | None:
        """`add NAME` or `done NAME`: the whole list each time, which every to-do tool takes."""
        kind, _, name = arguments["text"].partition(" ")
        self._todos[name] = "completed" if kind == "done" else "pending"
        if "todo" not in self._tools:
            return None
        shown = self._tools["todo"].presented
        rows = [
            {key: value for key, value in (("id", name), ("content", f"change {name}"), ("status", status))
             if f"todos.{key}" in shown}
            for name, status in self._todos.items()
        ]  # fmt: skip
        return self._call("todo", todos=rows)

    def _shell(self, command: str, purpose: str) -> SpokenCall:
        if "shell" not in self._tools:
            raise _missing(self._preset, purpose)
        return self._call("shell", command=command)

    def _call(self, implementation: str, **canonical: Any) -> SpokenCall:
        """Canonical arguments under the names that the preset shows."""
        tool = self._tools[implementation]
        return tool.name, {tool.presented[key]: _shown(tool, key, value) for key, value in canonical.items()}

    def _farewell(self, message: str) -> str:
        if message != FIXED:
            return "I stopped before the work was complete."
        return f"I changed {', '.join(self._changed)}." if self._changed else "The work is done."

    _moves: dict[str, Callable[[ExpertCalls, Mapping[str, str]], SpokenCall | None]] = {
        "grep": _grep,
        "view": _view,
        "edit": _edit,
        "test": _run_tests,
        "todo": _todo,
    }


def _shown(tool: PresentedTool, path: str, value: Any) -> Any:
    """A value with the names that the preset gives to the fields of its objects."""
    if not isinstance(value, list):
        return value
    return [{tool.presented[f"{path}.{key}"]: field for key, field in row.items()} for row in value]


def _patch(path: str, before: str | None, after: str) -> str:
    """The envelope of `apply_patch` with the changed lines and three lines of context on both sides. None: the file is new."""
    if before is None:
        rows = [f"+{row}" for row in after.splitlines()]
        return "\n".join(["*** Begin Patch", f"*** Add File: {path}", *rows, "*** End Patch"])
    old, new = before.splitlines(), after.splitlines()
    first = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    rest = min(len(old), len(new)) - first
    same = next((n for n in range(rest) if old[-1 - n] != new[-1 - n]), rest)
    rows = [f" {row}" for row in old[max(0, first - 3) : first]]
    rows += [f"-{row}" for row in old[first : len(old) - same]]
    rows += [f"+{row}" for row in new[first : len(new) - same]]
    rows += [f" {row}" for row in old[len(old) - same :][:3]]
    return "\n".join(["*** Begin Patch", f"*** Update File: {path}", "@@", *rows, "*** End Patch"])
