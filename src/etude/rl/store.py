"""Finished groups on disk: one compressed file per group (`core/trace/group_file.py`), written whole or not at all, so that they outlive a kill.

Next to them, `scored/` has the rollouts of groups that are not finished yet, one file each: a long group that is killed near its end goes
on there; and in `ended/` what agents left that waits for its verdict (`ungraded_store.py`). These are a saving, not a record: one that is missing or
damaged is made again.
"""

from __future__ import annotations

import os
from pathlib import Path

from etude.core.trace.group_file import DamagedGroup, pack_group, unpack_group
from etude.core.trace.segment import Rollout
from etude.rl.groups import UnfinishedGroup
from etude.rl.ungraded_store import UngradedStore


class GroupStore:
    """`groups/000123.zst` by group index. Trainer processes read the same files, so no array crosses a pipe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._scored = folder / "scored"
        self._scored.mkdir(parents=True, exist_ok=True)
        self.ended = UngradedStore(folder / "ended")

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
        """A rollout of an unfinished group that was admitted at `version`; what its agent left is needed no more."""
        target = self._scored / f"{group:06d}-{member:03d}-v{version}.zst"
        side = target.with_suffix(".tmp")
        side.write_bytes(pack_group([rollout]))
        side.rename(target)
        self.ended.forget(group, member)

    def kept(self) -> dict[int, UnfinishedGroup[Rollout]]:
        """What there is of unfinished groups. Of a group that was begun twice, the later beginning's."""
        found: dict[int, UnfinishedGroup[Rollout]] = {}
        for path in sorted(self._scored.glob("*.zst")):
            group, member, version = (int(part.removeprefix("v")) for part in path.stem.split("-"))
            if group in found and version < found[group].version:
                continue
            try:
                (rollout,) = unpack_group(path.read_bytes())
            except DamagedGroup:
                path.unlink()
                continue
            if group in found and version > found[group].version:
                found.pop(group)
            found.setdefault(group, UnfinishedGroup(version)).results[member] = rollout
        for group, (version, members) in self.ended.kept().items():
            if group not in found or version > found[group].version:
                found[group] = UnfinishedGroup(version)
            if version == found[group].version:
                scored = found[group].results
                found[group].ended |= {member: attempt for member, attempt in members.items() if member not in scored}
        return found

    def forget(self, group: int) -> None:
        """What was kept of it while it was unfinished."""
        for path in self._scored.glob(f"{group:06d}-*"):
            path.unlink()
        self.ended.forget(group)

    def load(self, group: int) -> list[Rollout]:
        """The rollouts in slot order; raises FileNotFoundError, DamagedGroup."""
        path = self.path(group)
        try:
            return unpack_group(path.read_bytes())
        except DamagedGroup as error:
            raise DamagedGroup(
                f"{path} is damaged ({error}), and the ledger says that it is finished: put it back from a copy, or remove {path.parent.parent} "
                "to start RL over"
            ) from error
