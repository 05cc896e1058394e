"""Limits that leave a rollout no room: found before the first rollout by measuring prompts, and during the run by looking at rollouts.

A rollout that ends at a limit before it samples anything has no token to learn from. If all are like that, every step succeeds and changes
nothing. So the first prompts of a sample of the scheduled tasks are measured against every limit before any process starts, and a run whose
rollouts all end at a limit of tokens before the first tool call stops and names the setting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.budget import FACTORS, Budget
from etude.agent.harness.opening import first_prompt
from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.segment import Rollout
from etude.rl.groups import RolloutGroup
from etude.rl.observer import RunObserver
from etude.rl.settings import RlSettings
from etude.rollout.attempt import task_facts
from etude.tasks.task import Task

SAMPLE = 16  # tasks, spread over the schedule: rendering one takes milliseconds
REFUSED_SHARE = 0.5  # of the sample: below it the run goes on without what these tasks could teach, and says so
LEAST_TURN = 32  # tokens: a tool call takes about as many
# Ends at a limit of tokens, and at the limit of turns, which a policy that makes no call reaches with room to spare.
TOKEN_ENDS, TURN_ENDS = ("max_tokens", "refused"), ("max_turns",)


class LimitsTooSmall(ValueError):
    """The recipe's limits leave rollouts no room; the message names the setting to change."""


@dataclass(frozen=True)
class Window:
    """The longest prompt and answer together, in tokens: `engine.max_len`, or the model's context window if that is shorter."""

    engine_tokens: int
    model_tokens: int

    @property
    def tokens(self) -> int:
        return min(self.engine_tokens, self.model_tokens)

    def remedy(self, least: int, wanted: int = 0) -> str:
        """What to change so that `least` tokens fit, and `wanted` ones as far as the model's window allows."""
        if least > self.model_tokens:
            return f"the model's context window ends at {self.model_tokens} tokens: choose tasks or a preset with shorter prompts"
        return f"set engine.max_len to at least {min(max(least, wanted), self.model_tokens)}"


def sample_of(task_ids: Sequence[str]) -> list[str]:
    """Up to SAMPLE tasks, spread evenly."""
    step = max(1, len(task_ids) / SAMPLE)
    return [task_ids[int(place * step)] for place in range(min(SAMPLE, len(task_ids)))]


async def check_prompts(
    tasks: Sequence[Task],
    settings: RlSettings,
    harness: HarnessSettings,
    window: Window,
    renderer: Renderer,
    observer: RunObserver,
) -> None:
    """Measure the first prompt of each task against all limits, at every effort that RL asks for.

    Raises NoRoom if half of them or more leave no room for a turn; says so if fewer do.
    """
    efforts = [effort for effort, share in settings.efforts.items() if share] or [harness.effort]
    too_long: list[str] = []
    for task in tasks:
        for effort in efforts:
            at = harness.model_copy(update={"effort": effort})
            prompt = len(await first_prompt(at, task_facts(task), renderer))
            if (why := _no_room(prompt, at, window)) is not None:
                too_long.append(f"the first prompt of task {task.id} has {prompt} tokens, {why}")
                break
    if not too_long:
        return
    line = f"{len(too_long)} of {len(tasks)} sampled tasks leave a rollout no room: {too_long[0]}"
    if len(too_long) >= REFUSED_SHARE * len(tasks):
        raise LimitsTooSmall(line)
    observer.note(f"{line}; their rollouts will end before the first turn")


def _no_room(prompt: int, harness: HarnessSettings, window: Window) -> str | None:
    """Which limit a prompt of `prompt` tokens leaves no room in, and the remedy."""
    needed = prompt + 1 + harness.max_tokens_per_turn
    least = min(LEAST_TURN, harness.max_tokens_per_turn)
    if prompt + least > window.tokens:
        return f"the engine holds {window.tokens}: {window.remedy(prompt + least, needed)}"
    spendable = Budget.of(harness).session_tokens
    if prompt + 1 + least > spendable:
        needed = math.ceil(needed / FACTORS[harness.effort])
        scaled = "" if harness.effort == "medium" else f" (at effort {harness.effort})"
        return f"a session may hold {spendable}{scaled}: set harness.max_session_tokens to at least {needed}"
    return None


@dataclass
class Starvation:
    """Looks at finished groups. As many in a row as a step trains on, all of whose rollouts ended at a limit before the first tool call, have
    nothing to teach: the run stops if it was a limit of tokens, and says so once if they used up their turns and each was cut off."""

    settings: RlSettings
    harness: HarnessSettings
    window: Window
    observer: RunObserver
    _starved: int = 0  # groups in a row that ended at a limit of tokens
    _cut: int = 0  # groups in a row without a tool call, whose turns were all cut off
    _noted: bool = False

    def look(self, group: RolloutGroup[Rollout]) -> None:
        """A finished group. Raises NoRoom."""
        starved = all(_ended(rollout, TOKEN_ENDS) for rollout in group.members)
        limited = all(_ended(rollout, TOKEN_ENDS + TURN_ENDS) for rollout in group.members)
        self._starved = self._starved + 1 if starved else 0
        self._cut = self._cut + 1 if limited and not starved and all(map(self._cut_off, group.members)) else 0
        if self._starved >= self.settings.groups_per_step:
            sampled = "" if any(map(_sampled, group.members)) else ", and sampled no token"
            raise LimitsTooSmall(f"{self._all(self._starved)}{sampled}: {self._remedy(group.members)}")
        if self._cut >= self.settings.groups_per_step and not self._noted:
            self._noted = True
            limit = self.harness.max_tokens_per_turn
            self.observer.note(
                f"{self._all(self._cut)}, every turn cut off at {limit} tokens: raise harness.max_tokens_per_turn"
            )

    def _all(self, groups: int) -> str:
        count = groups * self.settings.group_size
        return f"all {count} rollouts of the last {groups} groups ended at a limit before the first tool call"

    def _cut_off(self, rollout: Rollout) -> bool:
        turns = rollout.counters.get("turns", 0.0) + rollout.counters.get("summaries", 0.0)
        full = turns - (rollout.info["end"] == "max_tokens")  # the session's own limit may cut the last turn earlier
        return full > 0 and _sampled(rollout) >= full * self.harness.max_tokens_per_turn

    def _remedy(self, rollouts: Sequence[Rollout]) -> str:
        if any(rollout.info.get("end") == "refused" for rollout in rollouts):
            longer = self.window.remedy(self.window.tokens + 1)
            return f"the engine refuses prompts of {self.window.tokens} tokens and more: {longer}"
        return f"raise harness.max_session_tokens, which is {self.harness.max_session_tokens}"


def _ended(rollout: Rollout, ends: tuple[str, ...]) -> bool:
    """At one of these limits, before the first tool call."""
    return rollout.info.get("end") in ends and not rollout.counters.get("calls", 0.0)


def _sampled(rollout: Rollout) -> int:
    return sum(int(segment.sampled.sum()) for segment in rollout.segments)
