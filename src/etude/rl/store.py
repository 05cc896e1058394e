"""Finished groups on disk: one compressed file per group (`core/trace/group_file.py`), written whole or not at all, so that they outlive a kill.

Next to them, `scored/` has the rollouts of groups that are not finished yet, one file each: a long group that is killed near its end goes
on there; and in `ended/` what agents left that waits for its verdict. These are a saving, not a record: one that is missing or
damaged is made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from etude.core.files import replace_file
from etude.core.trace.group_file import DamagedGroup, pack_group, unpack_group
from etude.core.trace.segment import Rollout
from etude.rl.groups import UnfinishedGroup
from etude.rl.rollout_state import RolloutSlot
from etude.rollout.ungraded_attempt import DamagedUngradedFile, UngradedAttempt, pack_ungraded, tags_of, unpack_ungraded
from etude.tasks.task import Task

# Rollouts whose agent was done and who had no verdict yet, one file each: `groups/ended/000123-004-a0-v7.zst` holds
# what the agent of member 4 of group 123 left in attempt 0, of a group admitted at version 7.
#
# This is the level of environments among the checkpoints: after a kill what is here goes to the graders in fresh
# sandboxes, and no agent works for it again. As with `scored/` it is a saving, not a record: what is missing, damaged
# or of another run is rolled out again.


class UngradedStore:
    """By slot; of a member the newest alone is held."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def keep(self, slot: RolloutSlot, version: int, ended: UngradedAttempt, task: Task, most_bytes: int) -> bool:
        """Whole or not at all, in the stead of an earlier attempt's; False if it would take more than `most_bytes`."""
        tags = _tags(slot.group, slot.member, slot.attempt, version)
        target = self.folder / _name(tags)
        earlier = [path for path in self._of(slot.group, slot.member) if path != target]
        packed = pack_ungraded(ended, task, tags)
        if fits := len(packed) <= most_bytes:
            replace_file(target, packed)
        for path in earlier if fits else [*earlier, target]:
            path.unlink(missing_ok=True)
        return fits

    def load(self, slot: RolloutSlot, version: int, task: Task) -> UngradedAttempt:
        """Raises FileNotFoundError, DamagedUngradedFile."""
        tags = _tags(slot.group, slot.member, slot.attempt, version)
        return unpack_ungraded((self.folder / _name(tags)).read_bytes(), task, tags)

    def read_attempts(self) -> dict[int, tuple[int, dict[int, int]]]:
        """By group the version of its admission, and by member the attempt that ended. Damaged files are removed; of a group that was begun
        twice, the later beginning's count."""
        found: dict[int, tuple[int, dict[int, int]]] = {}
        for side in self.folder.glob("*.tmp"):  # torn by a kill
            side.unlink()
        for path in sorted(self.folder.glob("*.zst")):
            try:
                tags = tags_of(path.read_bytes())
                if path.name != _name(tags):
                    raise DamagedUngradedFile(f"{path} holds the ended attempt of {_name(tags)}")
            except DamagedUngradedFile:
                path.unlink()
                continue
            version, members = found.get(tags["group"], (-1, {}))
            if tags["version"] > version:
                members = {}
            if tags["version"] >= version:
                members[tags["member"]] = max(tags["attempt"], members.get(tags["member"], 0))
                found[tags["group"]] = (tags["version"], members)
        return found

    def forget(self, group: int, member: int | None = None) -> None:
        """What was kept of a group, or of one member of it."""
        for path in self._of(group, member):
            path.unlink(missing_ok=True)

    def _of(self, group: int, member: int | None) -> Iterator[Path]:
        return self.folder.glob(f"{group:06d}-*" if member is None else f"{group:06d}-{member:03d}-*")


def _tags(group: int, member: int, attempt: int, version: int) -> dict[str, int]:
    return {"group": group, "member": member, "attempt": attempt, "version": version}


def _name(tags: dict[str, int]) -> str:
    return f"{tags['group']:06d}-{tags['member']:03d}-a{tags['attempt']}-v{tags['version']}.zst"


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
        """A reader never sees half a group."""
        replace_file(self.path(group), pack_group(rollouts), durable=True)

    def keep(self, group: int, version: int, member: int, rollout: Rollout) -> None:
        """A rollout of an unfinished group that was admitted at `version`; what its agent left is needed no more."""
        target = self._scored / f"{group:06d}-{member:03d}-v{version}.zst"
        replace_file(target, pack_group([rollout]))
        self.ended.forget(group, member)

    def unfinished_groups(self) -> dict[int, UnfinishedGroup[Rollout]]:
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
        for group, (version, members) in self.ended.read_attempts().items():
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
