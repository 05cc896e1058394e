"""A person in a task who speaks while the agent works, at moments that the task fixes: by turns or edits, never by the clock, so that
an attempt replays.

`metadata["interjections"]`: a list of {after: "turns" | "edits" | "idle", count, manner, text}. `turns` counts the agent's turns, `edits`
what its tools report as edits, `idle` its answers. Words whose moment comes while the agent works are heard before its next turn; those
that it ended too early for are its next request. A moment that never comes is passed over, and the user says nothing after the last.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, get_args

from etude.agent.harness.inbox import Inbox
from etude.agent.harness.observer import AgentObserver, NullObserver
from etude.agent.metrics.facts import EDITS
from etude.core.trace.entry import Entry
from etude.tasks.task import Task

After = Literal["turns", "edits", "idle"]
Manner = Literal[
    "steer", "queue"
]  # to stop an agent takes a clock: whether a turn is broken off is up to how fast it is


@dataclass(frozen=True)
class Interjection:
    """`text` is said after `count` turns, edits or answers, in that manner."""

    after: After
    count: int
    manner: Manner
    text: str

    @classmethod
    def from_json(cls, row: dict[str, Any], task_id: str) -> Interjection:
        """Raises ValueError that names the task."""
        found = cls(row.get("after", "turns"), row.get("count", 1), row.get("manner", "steer"), row.get("text", ""))
        if found.after not in get_args(After) or found.manner not in get_args(Manner) or found.count < 1:
            raise ValueError(
                f"task {task_id}: an interjection comes after turns, edits or idle (count from 1), as steer or queue: {row}"
            )
        if not found.text.strip():
            raise ValueError(f"task {task_id}: an interjection has no text: {row}")
        return found


class Interjector(NullObserver):
    """Says the words when their moments come, and closes the inbox when none can come any more."""

    def __init__(self, words: list[Interjection], inbox: Inbox) -> None:
        self._left = words
        self._inbox = inbox
        self._seen: Counter[str] = Counter()

    def entry(self, entry: Entry) -> None:
        if entry.type == "completion":
            self._seen["turns"] += 1
        elif entry.type == "tool_result":
            self._seen["edits"] += int((entry.data.get("facts") or {}).get(EDITS, 0))
        self._say()

    def idle(self, reason: str, message: str) -> None:
        self._seen["idle"] += 1
        self._say()
        if not self._inbox.waiting:
            self._inbox.close()

    def _say(self) -> None:
        due = [one for one in self._left if self._seen[one.after] >= one.count]
        self._left = [one for one in self._left if one not in due]
        for one in due:
            self._inbox.say(one.manner, one.text)


def overheard(task: Task) -> tuple[Inbox, AgentObserver]:
    """The inbox and the person of a task in which somebody speaks; a closed inbox for the others. Raises ValueError."""
    rows = task.metadata.get("interjections")
    if not rows:
        return Inbox.closed_inbox(), NullObserver()
    inbox = Inbox()
    return inbox, Interjector([Interjection.from_json(row, task.id) for row in rows], inbox)
