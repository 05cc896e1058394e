"""Selects the task of a group of rollouts: the scheduled one, or a harder variant where its template is mastered.

A template is mastered when the mean of its last WINDOW groups exceeds `above`: most of its groups are then uniform, and
a uniform group teaches nothing. From then on its tasks are served one step deeper, and one step shallower again if the
deeper ones are hardly ever solved. Each decision is written to `harder.jsonl` before it takes effect, so that a killed
run serves the same tasks again (promise 6). The schedule stays as it is, a group's task is settled when the group
opens, and no task is served twice.

    {"kind": "served", "group": 12, "scheduled": "one-bug/train/000123", "task": "two-bugs/train/000123", "depth": 1}
    {"kind": "heard", "group": 12, "template": "one-bug", "depth": 1, "mean": 0.25, "uniform": false}        scores of a finished group
    {"kind": "depth", "template": "one-bug", "depth": 1, "mean": 0.91}
    {"kind": "lacking", "template": "one-bug", "depth": 2, "scheduled": "one-bug/train/000130"}        no harder variant was left
    {"kind": "made", "template": "one-bug", "task": "..."}        a new variant was generated (`background.py`)
    {"kind": "barren", "template": "one-bug"}        no variant could be generated: the tasks stay as they are
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.tasks.generate.harder_tasks.variants import HarderVariants

WINDOW = 4  # groups; at 8 rollouts each the standard error of their mean is about 0.09 at 0.8
BELOW = 0.1  # mean below which a template gets shallower: nothing is learnt from tasks that are never solved


@dataclass
class TemplateProgress:
    """A template's present depth and the means of its last groups at that depth."""

    depth: int = 0
    means: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))


class HarderTaskSelector:
    """Belongs to one run. `scheduled`: the ids of its list, which are never served as variants."""

    def __init__(self, variants: HarderVariants, journal: Path, scheduled: Collection[str], above: float = 0.8) -> None:
        self.variants, self.above, self.journal = variants, above, journal
        self.progress: dict[str, TemplateProgress] = defaultdict(TemplateProgress)
        self.served: dict[int, str] = {}
        self.exhausted: set[str] = set()
        # Templates without a variant that the generator has not tried yet: a scheduled task, and the depth.
        self.requests: dict[str, tuple[str, int]] = {}
        self._taken = set(scheduled)
        self._recorded: set[int] = set()
        self._served_depths: dict[int, tuple[str, int]] = {}  # by group: template and depth
        for row in _rows(journal):
            self._apply(row)

    def serve(self, group: int, scheduled: str) -> str:
        """The task of a group, settled at the first call."""
        if group in self.served:
            return self.served[group]
        template = self.variants.template(scheduled)
        depth = self.progress[template].depth
        task, depth = self._find_harder(scheduled, template, depth)
        self._write({"kind": "served", "group": group, "scheduled": scheduled, "task": task, "depth": depth})
        return task

    def record_scores(self, group: int, scores: Sequence[float]) -> None:
        """Records the scores of a finished group. A group recorded twice (a step trained again after a kill) counts
        once."""
        if group in self._recorded or group not in self._served_depths or not scores:
            return
        template, depth = self._served_depths[group]
        mean = sum(scores) / len(scores)
        row = {"kind": "heard", "group": group, "template": template, "depth": depth, "mean": round(mean, 4)}
        self._write({**row, "uniform": len(set(scores)) == 1})
        progress = self.progress[template]
        if len(progress.means) < WINDOW:
            return
        average = sum(progress.means) / WINDOW
        if average > self.above and template not in self.exhausted:
            self._write({"kind": "depth", "template": template, "depth": progress.depth + 1, "mean": round(average, 4)})
        elif average < BELOW and progress.depth > 0:
            self._write({"kind": "depth", "template": template, "depth": progress.depth - 1, "mean": round(average, 4)})

    def record_result(self, template: str, task: str | None) -> None:
        """Records what was generated for a template: a task that the variants know by now, or None."""
        row = {"kind": "made", "template": template, "task": task} if task else {"kind": "barren", "template": template}
        self._write(row)

    def _find_harder(self, scheduled: str, template: str, depth: int) -> tuple[str, int]:
        """The deepest free variant, at the requested depth or above it."""
        for step in range(depth, 0, -1):
            for sibling in self.variants.harder(scheduled, step):
                if sibling not in self._taken:
                    return sibling, step
            if step == depth and template not in self.exhausted:
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
                self._served_depths[row["group"]] = self.variants.template(row["scheduled"]), row["depth"]
            case "heard":
                self._recorded.add(row["group"])
                progress = self.progress[row["template"]]
                if row["depth"] == progress.depth:  # groups of an earlier depth say nothing about this one
                    progress.means.append(row["mean"])
            case "depth":
                self.progress[row["template"]] = TemplateProgress(row["depth"])
            case "lacking":
                self.exhausted.add(row["template"])
                self.requests[row["template"]] = row["scheduled"], row["depth"]
            case "made":
                self.exhausted.discard(row["template"])
                self.requests.pop(row["template"], None)
            case "barren":
                self.requests.pop(row["template"], None)


def _rows(journal: Path) -> list[dict[str, Any]]:
    """Complete lines. A line that a kill truncated had no effect and is removed."""
    if not journal.is_file():
        return []
    data = journal.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    if len(complete) < len(data):
        journal.write_bytes(complete)
    return [json.loads(line) for line in complete.splitlines()]
