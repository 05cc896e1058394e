"""The facts about its task that the agent reads in addition to its preset's prompts. Nothing hidden belongs here (promise 10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TaskFacts:
    """`instruction` is the first request. `instructions` (AGENTS.md files) and `surroundings` (folder, system, date) join the
    system prompt, which no self-summary drops; a task of the bench has neither unless its repository does."""

    task_id: str
    instruction: str
    test_command: tuple[str, ...] = ()
    instructions: str = ""
    surroundings: str = ""

    def to_json(self) -> dict[str, Any]:
        """The facts as a session's header keeps them."""
        row: dict[str, Any] = {"instruction": self.instruction, "test_command": list(self.test_command)}
        more = {"instructions": self.instructions, "surroundings": self.surroundings}
        return row | {key: text for key, text in more.items() if text}

    @classmethod
    def from_json(cls, task_id: str, row: dict[str, Any]) -> TaskFacts:
        return cls(
            task_id,
            row["instruction"],
            tuple(row["test_command"]),
            row.get("instructions", ""),
            row.get("surroundings", ""),
        )
