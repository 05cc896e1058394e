"""RL's rollouts: finished groups from `rl/groups/`, what a training step made of them from `rl/steps.jsonl`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etude.core.trace.group_file import DamagedGroup, unpack_group
from etude.evaluate.report.board.change import Problems, RowChange
from etude.evaluate.report.board.json_lines import GrowingJsonLines
from etude.evaluate.report.board.sources.figures import of_rollout

SOURCE = "rl"
TICK_NS = 2 * 10**9  # coarser than any file system's clock


class RlRollouts:
    """`known`: groups that a stored index holds already, files newer than `known_until_ns` excepted."""

    def __init__(self, run: Path, problems: Problems, known: set[int], known_until_ns: int) -> None:
        self.folder = run / "rl"
        self._run = run
        self._problems = problems
        self._seen: dict[int, int] = {group: known_until_ns for group in known}  # group -> newest time it was read at
        self._tasks: dict[tuple[int, int], str] = {}  # of a group's member, for the steps
        self._steps = GrowingJsonLines(self.folder / "steps.jsonl", problems)
        self._folder_ns, self._settled = -1, False
        self._waiting: list[dict[str, Any]] = []

    def news(self) -> Iterator[list[RowChange]]:
        """A group at a time, in order; then the steps since."""
        for group, path in self._new_groups():
            found = self._read(group, path)
            if found is not None:
                yield found
        yield from self._trained()

    def remember(self, group: int, member: int, task: str) -> None:
        """A row that a stored index holds."""
        self._tasks[group, member] = task

    def session_file(self, step_place: Path) -> str:
        """The file's name in the run, or empty."""
        return str(step_place.relative_to(self._run)) if step_place.is_file() else ""

    def _new_groups(self) -> list[tuple[int, Path]]:
        """A file is renamed into its place, which changes the folder's time: without that there is nothing to look for. A folder
        that changed a moment before the last look may have changed again within the same tick of the file system's clock."""
        groups = self.folder / "groups"
        if not groups.is_dir() or ((changed := groups.stat().st_mtime_ns) == self._folder_ns and self._settled):
            return []
        self._folder_ns, self._settled = changed, time.time_ns() - changed > TICK_NS
        found = [(int(path.stem), path) for path in groups.glob("*.zst") if path.stem.isdigit()]
        return sorted(pair for pair in found if pair[1].stat().st_mtime_ns > self._seen.get(pair[0], -1))

    def _read(self, group: int, path: Path) -> list[RowChange] | None:
        name = str(path.relative_to(self._run))
        try:
            self._seen[group] = path.stat().st_mtime_ns
            rollouts = unpack_group(path.read_bytes())
        except (DamagedGroup, OSError) as error:
            self._problems.record(name, error)
            return None
        self._problems.clear(name)
        kept = {path.name: path for path in (self.folder / "sessions").glob(f"step-*/{group:06d}-*.jsonl")}
        changes = []
        for member, rollout in enumerate(rollouts):
            self.remember(group, member, rollout.task_id)
            session = kept.get(f"{group:06d}-{member}.jsonl")
            values = of_rollout(rollout) | {"file": self.session_file(session) if session else ""}
            changes.append(RowChange((SOURCE, SOURCE, rollout.task_id, group, member), values))
        return changes

    def _trained(self) -> Iterator[list[RowChange]]:
        waiting, self._waiting = self._waiting + self._steps.news(), []
        for record in waiting:
            members = self._members(record)
            if members is None:  # its groups are not read yet
                self._waiting.append(record)
                continue
            yield [
                RowChange((SOURCE, SOURCE, self._tasks[place], *place), self._step_values(record, row), only_known=True)
                for row, place in enumerate(members)
            ]

    def _members(self, record: dict[str, Any]) -> list[tuple[int, int]] | None:
        """(group, member) of the record's rollouts: those of its groups, in the record's order."""
        if not {"step", "groups", "components", "advantages"} <= record.keys():
            self._problems.record("rl/steps.jsonl", f"a step without groups or advantages: keys {', '.join(record)}")
            return []
        wanted = len(record["advantages"])
        size = wanted // max(1, len(record["groups"]))
        places = [(group, member) for group in record["groups"] for member in range(size)]
        return places if all(place in self._tasks for place in places) else None

    def _step_values(self, record: dict[str, Any], row: int) -> dict[str, Any]:
        parts = [math.nan if value is None else value for value in record["components"][row].values()]
        return {
            "step": record["step"],
            "advantage": math.nan if (found := record["advantages"][row]) is None else found,
            "reward": sum(parts),
        }
