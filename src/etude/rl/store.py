"""Finished groups on disk: one compressed file per group (`trace/group_file.py`), written whole or not at all, so that they outlive a kill.

Beside them, in `scored/`, the rollouts of groups that are not finished yet, one file each: a long group that is killed near its end goes
on there. These are a saving, not a record: one that is missing or damaged is made again.
"""

from __future__ import annotations

import os
from pathlib import Path

from etude.trace.group_file import DamagedGroup, pack_group, unpack_group
from etude.trace.segment import Rollout


class GroupStore:
    """`groups/000123.zst` by group index. Trainer processes read the same files, so no array crosses a pipe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._scored = folder / "scored"
        self._scored.mkdir(parents=True, exist_ok=True)

    def path(self, group: int) -> Path:
        return self.folder / f"{group:06d}.zst"

    def groups(self) -> list[int]:
        """The numbers of the stored groups, in order."""
        return sorted(int(path.stem) for path in self.folder.glob("*.zst"))

    def save(self, group: int, rollouts: list[Rollout]) -> None:
        """Write to a side file, then rename: a reader never sees half a group."""
        target = self.path(group)
        side = target.with_suffix(".tmp")
        with open(side, "wb") as file:
            file.write(pack_group(rollouts))
            file.flush()
            os.fsync(file.fileno())
        side.rename(target)

    def keep(self, group: int, version: int, member: int, rollout: Rollout) -> None:
        """A rollout of an unfinished group that was admitted at `version`."""
        target = self._scored / f"{group:06d}-{member:03d}-v{version}.zst"
        side = target.with_suffix(".tmp")
        side.write_bytes(pack_group([rollout]))
        side.rename(target)

    def kept(self) -> dict[int, tuple[int, dict[int, Rollout]]]:
        """By group the version of its admission and its rollouts by member. Of a group that was begun twice, the later beginning's."""
        found: dict[int, tuple[int, dict[int, Rollout]]] = {}
        for path in sorted(self._scored.glob("*.zst")):
            group, member, version = (int(part.removeprefix("v")) for part in path.stem.split("-"))
            if version < found.get(group, (version,))[0]:
                continue
            try:
                (rollout,) = unpack_group(path.read_bytes())
            except DamagedGroup:
                path.unlink()
                continue
            if version > found.get(group, (version,))[0]:
                found.pop(group)
            found.setdefault(group, (version, {}))[1][member] = rollout
        return found

    def forget(self, group: int) -> None:
        """What was kept of it while it was unfinished."""
        for path in self._scored.glob(f"{group:06d}-*"):
            path.unlink()

    def load(self, group: int) -> list[Rollout]:
        """The rollouts in slot order; raises FileNotFoundError, DamagedGroup."""
        return unpack_group(self.path(group).read_bytes())
