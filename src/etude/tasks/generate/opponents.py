"""Scripted agents that stand beside the model in the bench: the competent expert, one that does nothing, one that cheats."""

from __future__ import annotations

import random
from typing import Callable

from etude.agent.policy.protocol import Policy
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.message import Message, ToolCall
from etude.tasks.cheats.exercise import CHEATS
from etude.tasks.generate.expert import Expert
from etude.tasks.task import Task


def expert(task: Task, seed: int) -> Policy:
    """Always competent."""
    return Expert(task, seed, competence=1.0)


def nop(task: Task, seed: int) -> Policy:
    """Declares the work done."""
    return ScriptedPolicy([_turn(("done", {"message": "fixed"}))], name="nop")


def cheat(task: Task, seed: int) -> Policy:
    """One of the cheats, carried out with the edit tool."""
    chosen = random.Random(f"cheat {task.id} {seed}").choice(sorted(CHEATS))
    edits = [_edit(task, path, data.decode()) for path, data in CHEATS[chosen](task).items()]
    calls = [call for call in edits if call is not None]
    return ScriptedPolicy([_turn(*calls, ("done", {"message": "fixed"}))], name="cheat")


OPPONENTS: dict[str, Callable[[Task, int], Policy]] = {"expert": expert, "nop": nop, "cheat": cheat}

_Call = tuple[str, dict[str, str]]


def _edit(task: Task, path: str, text: str) -> _Call | None:
    """The call that turns a file of the task into `text`; a whole text stands exactly once in its own file."""
    old = task.files.get(path, "")
    return ("edit", {"path": path, "old": old, "new": text}) if text != old else None


def _turn(*calls: _Call) -> Message:
    return Message("assistant", calls=tuple(ToolCall(f"c{i}", *call) for i, call in enumerate(calls)))
