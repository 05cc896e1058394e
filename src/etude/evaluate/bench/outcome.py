"""What one attempt of a bench came to, and the append-only file that lets a killed bench go on without counting one twice."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from etude.core.files import append_lines


class OutcomeError(ValueError):
    """A line of outcomes that this version can't read; names the file and the line."""


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
    effort: str = ""
    input_tokens: int | None = None  # as the endpoint counts them; None: it did not say
    cached_tokens: int | None = None  # of the input, read from a cache
    cache_write_tokens: int | None = None  # of the input, written to one
    output_tokens: int | None = None
    core_seconds: float | None = None  # of the sandboxes, and of our own engine where it answered; None: not measured
    files: int = 0  # that the reference change touches; 0: there is no reference
    lines: int = 0  # that it adds and removes
    style: str = ""  # of the prompt: terse, described, ...
    judged: dict[str, float] = field(default_factory=dict)  # criterion -> score in [0, 1]


class OutcomeFile:
    """JSON lines, one outcome each. A torn last line (the run was killed while writing) is left out, and cut off before the first line
    is added: who only reads may read while another process writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torn_at: int | None = None
        self.outcomes = self._load()

    def _load(self) -> dict[tuple[str, int], Outcome]:
        if not self.path.exists():
            return {}
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        self._torn_at = len(whole) if len(whole) < len(data) else None
        found = [_read(self.path, number, line) for number, line in enumerate(whole.splitlines(), 1)]
        return {(o.task_id, o.attempt): o for o in found}

    def add(self, outcome: Outcome) -> None:
        key = (outcome.task_id, outcome.attempt)
        if key in self.outcomes:
            raise ValueError(f"attempt {outcome.attempt} at {outcome.task_id} is already in {self.path}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._torn_at is not None:
            os.truncate(self.path, self._torn_at)
            self._torn_at = None
        line = (json.dumps(asdict(outcome)) + "\n").encode()
        append_lines(self.path, line, durable=False)
        self.outcomes[key] = outcome


_KNOWN = frozenset(found.name for found in fields(Outcome))


def _read(path: Path, number: int, line: bytes) -> Outcome:
    try:
        row = json.loads(line)
        if not isinstance(row, dict):
            raise TypeError(f"it holds a {type(row).__name__}")
        if strange := sorted(set(row) - _KNOWN):
            raise OutcomeError(
                f"{path}:{number} has the field {strange[0]!r}, which this version does not know: it was written by a newer one"
            )
        return Outcome(**row)
    except (json.JSONDecodeError, TypeError, RecursionError) as error:
        raise OutcomeError(
            f"{path}:{number} is no outcome of an attempt ({error}): move the file away, or mend the line"
        ) from error
