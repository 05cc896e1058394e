"""Which task a group of rollouts gets: the scheduled one, or a harder sibling where its template is mastered.

A template is mastered when the mean of its last WINDOW groups exceeds `above`: most of its groups are then uniform, and a uniform group
teaches nothing. Its tasks are served one step deeper from then on, and a step shallower again where the deeper ones are hardly ever solved.
Decisions are written down before they are followed (`harder.jsonl`), so that a run that was killed serves the very same tasks again
(promise 6): the schedule stays as it is, a group's task is settled when the group opens, and no task is served twice.

    {"kind": "served", "group": 12, "scheduled": "one-bug/train/000123", "task": "two-bugs/train/000123", "depth": 1}
    {"kind": "heard", "group": 12, "template": "one-bug", "depth": 1, "mean": 0.25, "uniform": false}
    {"kind": "depth", "template": "one-bug", "depth": 1, "mean": 0.91}
    {"kind": "lacking", "template": "one-bug", "depth": 2, "scheduled": "one-bug/train/000130"}        no harder sibling was left
    {"kind": "made", "template": "one-bug", "task": "..."}        a making made one (`growing.py`): it is looked for again
    {"kind": "barren", "template": "one-bug"}        a making could not: its tasks stay as they are
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.tasks.generate.service.siblings import Siblings

WINDOW = 4  # groups: of 8 rollouts each, their mean is known to about 0.09 at 0.8
BELOW = 0.1  # mean under which a deeper template is taken back: nothing is learnt from what is never solved


@dataclass
class Standing:
    """Of a template at its present depth."""

    depth: int = 0
    means: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))


class Service:
    """Belongs to one run; `scheduled` are the ids of its list, which are never served as siblings."""

    def __init__(self, siblings: Siblings, journal: Path, scheduled: Collection[str], above: float = 0.8) -> None:
        self.siblings, self.above, self.journal = siblings, above, journal
        self.standings: dict[str, Standing] = defaultdict(Standing)
        self.served: dict[int, str] = {}
        self.lacking: set[str] = set()
        self.wanted: dict[
            str, tuple[str, int]
        ] = {}  # of what is lacking and nobody has gone for: a scheduled task, and the depth
        self._taken = set(scheduled)
        self._heard: set[int] = set()
        self._asked: dict[int, tuple[str, int]] = {}  # by group: template and depth
        for row in _rows(journal):
            self._apply(row)

    def serve(self, group: int, scheduled: str) -> str:
        """The task of a group, settled at the first call."""
        if group in self.served:
            return self.served[group]
        template = self.siblings.template(scheduled)
        depth = self.standings[template].depth
        task, depth = self._deepened(scheduled, template, depth)
        self._write({"kind": "served", "group": group, "scheduled": scheduled, "task": task, "depth": depth})
        return task

    def heard(self, group: int, scores: Sequence[float]) -> None:
        """A group of rollouts is finished. Heard twice (a step trained again after a kill) it counts once."""
        if group in self._heard or group not in self._asked or not scores:
            return
        template, depth = self._asked[group]
        mean = sum(scores) / len(scores)
        row = {"kind": "heard", "group": group, "template": template, "depth": depth, "mean": round(mean, 4)}
        self._write({**row, "uniform": len(set(scores)) == 1})
        standing = self.standings[template]
        if len(standing.means) < WINDOW:
            return
        average = sum(standing.means) / WINDOW
        if average > self.above and template not in self.lacking:
            self._write({"kind": "depth", "template": template, "depth": standing.depth + 1, "mean": round(average, 4)})
        elif average < BELOW and standing.depth > 0:
            self._write({"kind": "depth", "template": template, "depth": standing.depth - 1, "mean": round(average, 4)})

    def made(self, template: str, task: str | None) -> None:
        """A making went for what a template lacked: the task that it made, which the siblings know by now, or nothing."""
        row = {"kind": "made", "template": template, "task": task} if task else {"kind": "barren", "template": template}
        self._write(row)

    def _deepened(self, scheduled: str, template: str, depth: int) -> tuple[str, int]:
        """The deepest sibling that is free, not deeper than asked."""
        for step in range(depth, 0, -1):
            for sibling in self.siblings.harder(scheduled, step):
                if sibling not in self._taken:
                    return sibling, step
            if step == depth and template not in self.lacking:
                self._write({"kind": "lacking", "template": template, "depth": depth, "scheduled": scheduled})
        return scheduled, 0

    def _write(self, row: dict[str, Any]) -> None:
        with open(self.journal, "a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
        self._apply(row)

    def _apply(self, row: dict[str, Any]) -> None:
        match row["kind"]:
            case "served":
                self.served[row["group"]] = row["task"]
                self._taken.add(row["task"])
                self._asked[row["group"]] = self.siblings.template(row["scheduled"]), row["depth"]
            case "heard":
                self._heard.add(row["group"])
                standing = self.standings[row["template"]]
                if row["depth"] == standing.depth:  # groups begun before a change say nothing of the depth after it
                    standing.means.append(row["mean"])
            case "depth":
                self.standings[row["template"]] = Standing(row["depth"])
            case "lacking":
                self.lacking.add(row["template"])
                self.wanted[row["template"]] = row["scheduled"], row["depth"]
            case "made":
                self.lacking.discard(row["template"])
                self.wanted.pop(row["template"], None)
            case "barren":
                self.wanted.pop(row["template"], None)


def _rows(journal: Path) -> list[dict[str, Any]]:
    """Whole lines; one that a kill tore was followed by nobody, and goes."""
    if not journal.is_file():
        return []
    data = journal.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        journal.write_bytes(whole)
    return [json.loads(line) for line in whole.splitlines()]
