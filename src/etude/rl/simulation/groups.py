"""Finished groups in memory: what `rl.store` has on disk."""

from __future__ import annotations

import hashlib

from etude.core.trace.segment import Rollout
from etude.rl.groups import UnfinishedGroup


class GroupsInMemory:
    """As `rl.store.GroupStore`; a group that was trained and is no longer needed can be dropped."""

    def __init__(self) -> None:
        self._held: dict[int, list[Rollout]] = {}

    def save(self, group: int, rollouts: list[Rollout]) -> None:
        self._held[group] = rollouts

    def keep(self, group: int, version: int, member: int, rollout: Rollout) -> None:
        """The simulated controller does not die, so what is unfinished is in its memory."""

    def forget(self, group: int) -> None:
        """Nothing was kept."""

    def kept(self) -> dict[int, UnfinishedGroup[Rollout]]:
        return {}

    def load(self, group: int) -> list[Rollout]:
        return self._held[group]

    def digest(self, group: int) -> str:
        """Of what the group's tokens are and which versions sampled them."""
        contents = [(one.id, [segment.versions.tolist() for segment in one.segments]) for one in self._held[group]]
        return hashlib.sha256(repr(contents).encode()).hexdigest()[:8]
