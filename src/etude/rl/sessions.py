"""Sessions of RL's rollouts as files: of every step's share of the schedule the first groups, all rollouts of each.

`sessions/step-003/000048-0.jsonl` is rollout 0 of group 48, in the harness' own format: messages, and per token its logprob
and policy version. `step-003` is the group's place in the schedule; batches form as groups finish, so the step that
trained it may be a neighbour: it is in the last entry, with the reward's components and the advantage.
After a kill a group that is made again replaces its files, so the files here are the trained ones (promise 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etude.core.trace.segment import Rollout
from etude.core.trace.vocabulary import write_vocabulary
from etude.core.trace.writer import add_verdict
from etude.rl.controller import StepResult
from etude.rl.groups import RolloutGroup
from etude.rl.observer import STAGE
from etude.rl.rollout_state import RolloutSlot
from etude.rl.settings import RlSettings
from etude.rollout.attempt import Attempt
from etude.rollout.keep import keep_session


class KeptSessions:
    """`take` belongs to the attempt, `trained` to the step."""

    def __init__(self, folder: Path, settings: RlSettings, vocabulary: list[str]) -> None:
        self._folder = folder
        self._settings = settings
        if settings.keep_sessions:
            write_vocabulary(folder, vocabulary)

    def path(self, group: int, member: int) -> Path | None:
        """Where this rollout's session lies; None if its group is not one of those kept."""
        step, place = divmod(group, self._settings.groups_per_step)
        if place >= self._settings.keep_sessions:
            return None
        return self._folder / f"step-{step:03d}" / f"{group:06d}-{member}.jsonl"

    def take(self, slot: RolloutSlot, attempt: Attempt, level: str) -> None:
        """Write the session of a finished attempt, if it is to be kept. `level`: of its task, which may be a harder one than the slot's."""
        path = self.path(slot.group, slot.member)
        if path is not None:
            facts = {"stage": STAGE, "level": level, "group": slot.group, "member": slot.member}
            keep_session(path, attempt, facts)

    def record_step(self, step: StepResult, groups: Sequence[RolloutGroup[Rollout]]) -> None:
        """Add what the step made of its rollouts. Called again after a kill it changes nothing."""
        places = [(group.index, member) for group in groups for member in sorted(group.results)]
        for (group, member), parts, advantage in zip(places, step.components, step.advantages, strict=True):
            path = self.path(group, member)
            if path is not None and path.is_file():  # absent if keep_sessions was raised after this group was made
                reward = sum(parts.values())
                add_verdict(path, {"step": step.step, "reward": reward, "components": parts, "advantage": advantage})
