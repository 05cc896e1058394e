"""The resume ledger: what was decided, in an append-only file; read back it gives the point to go on from (promise 6).

    {"kind": "plan", "digest": ...}                         the schedule this ledger belongs to
    {"kind": "sources", "digests": {...}}                   of modules that settings name by import path, if any
    {"kind": "store", "url": ...}                           where its weights go, if not to the run's folder; it was empty then
    {"kind": "admitted", "group": 3, "version": 7}
    {"kind": "fault", "group": 3, "member": 0, "attempt": 0, "reason": ...}    infra faults ate an attempt; it is made again
    {"kind": "completed", "group": 3, "version": 7}         its rollouts are in `groups/` already
    {"kind": "set_aside", "group": 4, "version": 7}         so are its, but it is not trained
    {"kind": "batch", "step": 8, "groups": [3, ...]}        written before the step is trained
    {"kind": "trained", "step": 8, "digest": ...}           weights after it
    {"kind": "saved", "step": 9}                            a checkpoint that holds the first 9 steps

A batch is a decision: once written, its groups are trained at that step and at no other. After a kill the trainer starts
from the last checkpoint and trains the batches written since, on the rollouts on disk. The result is the same weights (the
digests are compared), the versions of finished but untrained groups keep their meaning, and generation goes on from there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.core.events.finite import dumps


@dataclass
class Progress:
    """The state that the entries add up to."""

    plan: str | None = None
    batches: dict[int, list[int]] = field(default_factory=dict)  # step -> groups
    complete: dict[int, int] = field(default_factory=dict)  # untrained group -> version at admission
    aside: set[int] = field(default_factory=set)
    unreachable: dict[int, str] = field(default_factory=dict)  # group given up -> a line with the reason
    digests: dict[int, str] = field(default_factory=dict)  # step -> weights after it
    saved: int = 0  # steps in the last checkpoint

    @property
    def next_step(self) -> int:
        return len(self.batches)

    @property
    def trained(self) -> set[int]:
        return {group for groups in self.batches.values() for group in groups}


def fold(entries: Iterable[dict[str, Any]]) -> Progress:
    """Add the entries up; raises ValueError on a contradiction (a group trained twice, a step left out)."""
    progress = Progress()
    for entry in entries:
        kind = entry["kind"]
        if kind == "plan":
            progress.plan = entry["digest"]
        elif kind == "completed":
            progress.complete[entry["group"]] = entry["version"]
        elif kind == "set_aside":
            progress.aside.add(entry["group"])
        elif kind == "unreachable":
            progress.unreachable[entry["group"]] = entry["text"]
        elif kind == "batch":
            _take_batch(progress, entry["step"], entry["groups"])
        elif kind == "trained":
            progress.digests[entry["step"]] = entry["digest"]
        elif kind == "saved":
            progress.saved = max(progress.saved, entry["step"])
    return progress


def _take_batch(progress: Progress, step: int, groups: list[int]) -> None:
    if step != progress.next_step:
        raise ValueError(f"the ledger trains step {step} after step {progress.next_step - 1}")
    missing = [group for group in groups if group not in progress.complete]
    if missing:
        raise ValueError(
            f"the ledger trains groups {missing} at step {step}, which are not complete or trained already"
        )
    for group in groups:
        del progress.complete[group]
    progress.batches[step] = groups


class RlLedger:
    """The file. A torn last line (killed while writing) is cut off on opening; earlier damage is an error."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        _cut_torn_line(path)
        self.entries = entries_of(path)
        self._file = open(path, "a", encoding="utf-8")

    def write(self, kind: str, **values: Any) -> None:
        """Append one entry and bring it to the disk: the run acts on it right after."""
        self.note(kind, **values)
        self._file.flush()
        os.fsync(self._file.fileno())

    def note(self, kind: str, **values: Any) -> None:
        """Append one entry that nothing depends on; it reaches the disk with the next `write`."""
        self._file.write(dumps({"kind": kind, **values}) + "\n")

    def close(self) -> None:
        self._file.close()


def entries_of(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a ledger, which may be open for writing; a last line without an end is left out. Raises ValueError for earlier damage."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    entries = []
    for number, line in enumerate(data[:whole].splitlines(), 1):
        try:
            entries.append(json.loads(line))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(
                f"{path} line {number} is damaged ({error}); remove the rl folder to start over"
            ) from error
    return entries


def _cut_torn_line(path: Path) -> None:
    """Cuts off what a kill left of a last line, so that the next entry begins a line."""
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        with open(path, "r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)
