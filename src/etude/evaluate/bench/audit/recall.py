"""What models wrote from memory when they were probed: `recall.jsonl` of a bench run's folder, so that nothing is asked twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from etude.evaluate.bench.runs.folder import append_line

NAME = "recall.jsonl"


class RecallFile:
    """Answers by the hash of all that was asked and of whom. A line torn by a kill is asked again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = dict(_rows(path))

    def get(self, key: str) -> str | None:
        """What was answered before."""
        return self._known.get(key)

    def add(self, key: str, policy: str, task_id: str, answer: str) -> None:
        """Raises OSError if the disk has no room for the whole line."""
        row = {"key": key, "policy": policy, "task_id": task_id, "answer": answer}
        append_line(self.path, json.dumps(row, ensure_ascii=True))
        self._known[key] = answer


def recall_key(policy: str, task_id: str, seed: int, texts: Sequence[str]) -> str:
    """Of a question: who, of which task, with which seed, in which words."""
    return hashlib.sha256(json.dumps([policy, task_id, seed, list(texts)]).encode()).hexdigest()


def _rows(path: Path) -> list[tuple[str, str]]:
    """Raises ValueError for a whole line that is none of ours."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    found = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue  # torn by a kill, or the end of the file
        if not isinstance(row, dict) or not {"key", "answer"} <= set(row):
            raise ValueError(f"{path}:{number} is no answer of a probe; move the file away")
        found.append((row["key"], row["answer"]))
    return found
