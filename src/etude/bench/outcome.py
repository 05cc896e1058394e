"""What one attempt of a bench came to, and the append-only file that lets a killed bench go on without counting one twice."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """One attempt (one pass at one task) by one policy."""

    task_id: str
    attempt: int  # 0-based pass number
    category: str
    level: str
    score: float  # in [0, 1], from the grader
    tokens: int  # produced by the policy
    tool_calls: int
    turns: int
    seconds: float
    reason: str = ""
    holdout: str = ""  # how the task is kept from training: by function, by template, or unknown


class OutcomeFile:
    """JSON lines, one outcome each. A torn last line (the run was killed while writing) is cut off when opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.outcomes = self._load()

    def _load(self) -> dict[tuple[str, int], Outcome]:
        if not self.path.exists():
            return {}
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with open(self.path, "r+b") as file:
                file.truncate(len(whole))
        found = [Outcome(**json.loads(line)) for line in whole.splitlines()]
        return {(o.task_id, o.attempt): o for o in found}

    def add(self, outcome: Outcome) -> None:
        key = (outcome.task_id, outcome.attempt)
        if key in self.outcomes:
            raise ValueError(f"attempt {outcome.attempt} at {outcome.task_id} is already in {self.path}")
        line = (json.dumps(asdict(outcome)) + "\n").encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError(f"{self.path}: the disk is full; free space and run again, the bench goes on from here")
        finally:
            os.close(descriptor)
        self.outcomes[key] = outcome
