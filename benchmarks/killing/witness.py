"""Who writes down every grading of a run, next to it: so that a reward can be traced to a verdict, and the verdict be made again in peace."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from etude.sandbox.protocol import Machines
from etude.tasks.registry import GRADERS
from etude.tasks.task import Grader, Task, Verdict


class Witness:
    """A grader that tells. `graded.jsonl`: one line a grading; `graded/KEY.json`: the files, by their digest."""

    def __init__(self, grader: Grader, folder: Path) -> None:
        self._grader, self._folder = grader, folder
        (folder / "graded").mkdir(parents=True, exist_ok=True)

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        text = json.dumps({path: data.decode("latin-1") for path, data in sorted(files.items())})
        key = hashlib.sha256(f"{task.id}\0{text}".encode()).hexdigest()[:24]
        began = time.time()
        grading: dict[str, Any] = {"task": task.id, "key": key, "began_unix_s": began}
        try:
            verdict = await self._grader.grade(task, files, pool)
        except Exception as error:
            self._tell(grading | {"fault": f"{type(error).__name__}: {error}", "ended_unix_s": time.time()})
            raise
        kept = self._folder / "graded" / f"{key}.json"
        if not kept.exists():
            side = kept.with_suffix(f".{os.getpid()}")
            side.write_text(text)
            os.replace(side, kept)
        self._tell(grading | {"score": verdict.score, "reason": verdict.reason, "ended_unix_s": time.time()})
        return verdict

    def _tell(self, grading: dict[str, Any]) -> None:
        with open(self._folder / "graded.jsonl", "ab", buffering=0) as file:
            file.write(json.dumps(grading).encode() + b"\n")  # one call, so a kill leaves it whole or out


def witnessed(folder: Path) -> dict[str, Grader]:
    return {name: Witness(grader, folder) for name, grader in GRADERS.items()}


def gradings(folder: Path) -> list[dict[str, Any]]:
    """All lines of `graded.jsonl`, in order."""
    path = folder / "graded.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def files_of(folder: Path, key: str) -> dict[str, bytes]:
    held: dict[str, str] = json.loads((folder / "graded" / f"{key}.json").read_text())
    return {path: text.encode("latin-1") for path, text in held.items()}
