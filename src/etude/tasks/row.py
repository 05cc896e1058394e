"""A task's line in the index: all that lists, statistics and draws need, so that nothing else is read for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from etude.tasks.task import Task


@dataclass(frozen=True)
class Row:
    """`prompts`: characters of each style; `lines`, `files`: what the reference changes; `digest`: SHA-256 of the task's record, its
    environment's tree among it; `difficulty` in [0, 1], None while nobody measured it; `turns`, `thinking`: of rollouts, means,
    None where there are none. `part`: the module that decided its split, empty where whole projects are split."""

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

    def told(self) -> str:
        return json.dumps(asdict(self) | {"prompts": dict(self.prompts)}, ensure_ascii=False, allow_nan=False)


def row_of(task: Task, digest: str) -> Row:
    """What a task's own metadata says of it."""
    metadata: Mapping[str, Any] = task.metadata
    prompts = metadata.get("prompts") or {metadata.get("style", "only"): task.instruction}
    changed = metadata.get("changed") or {}
    difficulty = metadata.get("difficulty") or {}
    rollouts = difficulty.get("rollouts") or {}
    return Row(
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


def digest_of(record: Mapping[str, Any], tree: str) -> str:
    """Of a record's canonical JSON and the digest of the tree that it changes."""
    text = json.dumps(record, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(f"{tree}\n{text}".encode()).hexdigest()
