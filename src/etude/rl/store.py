"""Finished groups on disk: one compressed file per group (`trace/group_file.py`), written whole or not at all, so that they outlive a kill."""

from __future__ import annotations

import os
from pathlib import Path

from etude.trace.group_file import pack_group, unpack_group
from etude.trace.segment import Rollout


class GroupStore:
    """`groups/000123.zst` by group index. Trainer processes read the same files, so no array crosses a pipe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

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

    def load(self, group: int) -> list[Rollout]:
        """The rollouts in slot order; raises FileNotFoundError, DamagedGroup."""
        return unpack_group(self.path(group).read_bytes())
