"""The agents that stand in every table: one that writes the reference solution, one that does nothing, and the cheating ones.

They need no model and cost nothing. The expert has to come out at 100, the others at 0: anything else says that a task, its
grader or its environment is not what it should be, before a dollar is spent on a model.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from etude.evaluate.bench.targeted.cases import scripts
from etude.agent.policy.protocol import Policy
from etude.agent.policy.scripted import ScriptedPolicy
from etude.rollout.attempt import Script
from etude.tasks.cheats import exercise as cheats
from etude.tasks.task import Task
from etude.core.trace.message import Message, ToolCall
import difflib
from etude.agent.harness.edits.matching import count_occurrences


# The edits that turn a text into another, as an agent makes them: each replaces a piece that occurs exactly once.


Edit = tuple[str, str]  # old, new


def hunks(before: str, after: str) -> list[Edit]:
    """Applied in order, each replacing its one match, they lead from `before` to `after`. Nothing if they are equal.

    Pieces are whole lines with as much context as makes them unique. Later pieces come first, so that the text above is
    still the text that was looked at. Where a piece can't be made unique, the whole text is the piece.
    """
    if before == after:
        return []
    if not before:
        return [("", after)]
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    changes = [op for op in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes() if op[0] != "equal"]
    current, edits, below = before, [], len(old)
    for _, i1, i2, j1, j2 in reversed(changes):
        edit = _piece(current, old, (i1, i2), below, "".join(new[j1:j2]))
        if edit is None:
            return [(before, after)]
        current = current.replace(*edit)
        edits.append(edit)
        below = i1
    return edits if current == after else [(before, after)]


def _piece(current: str, lines: list[str], at: tuple[int, int], below: int, text: str) -> Edit | None:
    """Lines `at` replaced by `text`: with lines above, then with those down to `below`, until the piece is the only one."""
    start, end = at
    above = [(first, end) for first in range(start, -1, -1)]
    for first, last in [*above, *((0, last) for last in range(end + 1, below + 1))]:
        old = "".join(lines[first:last])
        if old.strip() and count_occurrences(current, old) == 1:
            return old, "".join(lines[first:start]) + text + "".join(lines[end:last])
    return None


EXPERT, NOP, CHEATS = "expert", "nop", "cheats"
ONE_CHEAT = "cheat:"

_Call = tuple[str, dict[str, str]]
_DONE: _Call = ("done", {"message": "fixed"})


class UnknownCheat(ValueError):
    """A cheat by another name than those there are."""


def has_reference(task: Task) -> bool:
    """Whether the expert knows what to do: a solution, or a script of its own."""
    return bool(task.solution) or EXPERT in task.hidden.get("scripts", {})


def expert(task: Task, seed: int) -> Policy:
    """Writes the reference solution edit by edit, runs the tests, ends; a task about how one works has a script of its own."""
    if EXPERT in task.hidden.get("scripts", {}):
        return scripts(task)[EXPERT]
    return _play(EXPERT, [*edits(task, task.solution), *_removals(task)], [("test", {})], [_DONE])


def nop(task: Task, seed: int) -> Policy:
    """Declares the work done."""
    return _play(NOP, [_DONE])


def cheat(task: Task, seed: int, name: str = "") -> Policy:
    """One of the cheats that change something on this task (the named one), carried out with the edit tool."""
    chosen = name or random.Random(f"cheat {task.id} {seed}").choice(applicable(task) or sorted(cheats.CHEATS))
    return _play(f"{ONE_CHEAT}{chosen}" if name else CHEATS, [*_cheating(task, chosen), _DONE])


def script(word: str) -> Script | None:
    """What a word means; None where it names no scripted agent. Raises UnknownCheat."""
    if word.startswith(ONE_CHEAT):
        name = word.removeprefix(ONE_CHEAT)
        if name not in cheats.CHEATS:
            raise UnknownCheat(f"there is no cheat {name!r}; there are {', '.join(sorted(cheats.CHEATS))}")
        return partial(cheat, name=name)
    return {EXPERT: expert, NOP: nop, CHEATS: cheat}.get(word)


def applicable(task: Task) -> list[str]:
    """The cheats that change a file of this task; the others would only be idling under another name."""
    return [name for name in sorted(cheats.CHEATS) if _cheating(task, name)]


def edits(task: Task, texts: dict[str, str]) -> list[_Call]:
    """The calls that give the task's files these texts."""
    return [
        ("edit", {"path": path, "old": old, "new": new})
        for path, text in texts.items()
        for old, new in hunks(task.files.get(path, ""), text)
    ]


def _removals(task: Task) -> list[_Call]:
    gone = [path for path in task.metadata.get("removed", ()) if path in task.files]
    return [("shell", {"command": " ".join(["rm -f --", *(_quoted(path) for path in gone)])})] if gone else []


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"


def cheat_files(task: Task, name: str) -> dict[str, str]:
    """The texts that this cheat leaves, of files it changes and those it doesn't; nothing where it does not apply."""
    if name == cheats.aliased.__name__ and not task.metadata.get("targets"):
        return {}  # it answers to another name, and this task asks for none
    if not task.metadata.get("editable"):  # its grader takes any file
        task = replace(task, metadata={**task.metadata, "editable": [p for p in task.files if p.endswith(".py")]})
    return {path: data.decode() for path, data in cheats.CHEATS[name](task).items()}


def _cheating(task: Task, name: str) -> list[_Call]:
    return edits(task, cheat_files(task, name))


def _play(name: str, *turns: Sequence[_Call]) -> Policy:
    messages = [_turn(number, calls) for number, calls in enumerate(turns) if calls]
    return ScriptedPolicy(messages, name=name)


def _turn(number: int, calls: Sequence[_Call]) -> Message:
    return Message("assistant", calls=tuple(ToolCall(f"c{number}-{i}", *call) for i, call in enumerate(calls)))
