"""A task's line in the index of a folder: what lists, statistics and draws need, so that they read nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from etude.tasks.task import Task


@dataclass(frozen=True)
class TaskRow:
    """One task in the index.

    `prompts`: characters of each style. `lines`, `files`: size of the reference's change. `difficulty`: in [0, 1], None
    before it is measured. `digest`: SHA-256 of the task's record together with the tree of its environment. `turns`,
    `thinking`: means over rollouts, None without rollouts. `part`: the module that decided the split, empty where whole
    projects are split.
    """

    id: str
    category: str
    level: str
    split: str
    generator: str = ""
    project: str = ""
    language: str = ""
    style: str = ""
    prompts: Mapping[str, int] = field(default_factory=dict)
    lines: int = 0
    files: int = 0
    difficulty: float | None = None
    digest: str = ""
    turns: float | None = None
    thinking: float | None = None
    part: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"prompts": dict(self.prompts)}, ensure_ascii=False, allow_nan=False)


def row_of(task: Task, digest: str) -> TaskRow:
    """The row of a task, from its metadata."""
    metadata: Mapping[str, Any] = task.metadata
    prompts = metadata.get("prompts") or {metadata.get("style", "only"): task.instruction}
    changed = metadata.get("changed") or {}
    difficulty = metadata.get("difficulty") or {}
    rollouts = difficulty.get("rollouts") or {}
    return TaskRow(
        id=task.id,
        category=task.category,
        level=task.level,
        split=task.split,
        generator=str(metadata.get("generator", "")),
        project=str(metadata.get("project", "")),
        language=str((metadata.get("environment") or {}).get("language", "")),
        style=str(metadata.get("style", "only")),
        prompts={style: len(text) for style, text in prompts.items()},
        lines=int(changed.get("lines", 0)),
        files=int(changed.get("files", len(task.solution))),
        difficulty=difficulty.get("score"),
        digest=digest,
        turns=rollouts.get("turns"),
        thinking=rollouts.get("thinking_tokens"),
        part=str(metadata.get("part", "")),
    )


def record_digest(record: Mapping[str, Any], tree: str) -> str:
    """SHA-256 of the record's canonical JSON and the digest of the tree that it changes."""
    text = json.dumps(record, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(f"{tree}\n{text}".encode()).hexdigest()
