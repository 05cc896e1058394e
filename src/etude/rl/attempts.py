"""What happens in a slot: the group's task is attempted and graded, or what its agent left before a kill is graded, and a rollout comes out.

What the agent left is on disk before its grading begins and until the rollout is (`store.py`), so a kill in between costs the grading alone.

Effort, quality of the change and the judge's score are measured when the attempt is made, and kept with the rollout: the files are gone when
the step is trained, and a judge asked again after a kill might answer differently (promise 6).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from etude.agent.harness.dependencies import renderer_for
from etude.agent.policy.protocol import FatalStageError
from etude.core.trace.segment import Rollout
from etude.rl.effort_sampling import at_effort
from etude.rl.harder_tasks import HarderTasks
from etude.rl.hints.rules import kept_hints
from etude.rl.reconciler import Reconciler
from etude.rl.rewards.judge import AttemptJudge
from etude.rl.rewards.quality import quality_of
from etude.rl.rollout_state import RolloutPhase, RolloutSlot
from etude.rl.run_context import RunContext
from etude.rl.sessions import KeptSessions
from etude.rl.store import UngradedStore
from etude.rollout.attempt import Attempt, AttemptPhase, AttemptSetup, attempt
from etude.rollout.retry import InfraFault
from etude.rollout.ungraded_attempt import DamagedUngradedFile, UngradedAttempt
from etude.tasks.grading import describe_error
from etude.tasks.task import Task

# Seeds of two rollouts differ in more than what a session adds to its own turn by turn.
SEED_STRIDE = 7919
PHASES: dict[AttemptPhase, RolloutPhase] = {
    "sandbox": RolloutPhase.PLACED,
    "agent": RolloutPhase.ROLLING,
    "grading": RolloutPhase.GRADING,
}


@dataclass(frozen=True)
class RolloutAttempts:
    """`controller.Attempt`: call it with a slot. `harder` serves harder tasks, `judge` scores attempts."""

    run: RunContext
    setup: AttemptSetup
    ended: UngradedStore
    sessions: KeptSessions
    reconciler: Reconciler[Rollout]
    harder: HarderTasks | None = None
    judge: AttemptJudge | None = None

    async def __call__(self, slot: RolloutSlot) -> Rollout:
        """Raises InfraFault; nothing of the attempt is kept then."""
        run, harder = self.run, self.harder
        task = run.source.task(harder.serve(slot.group, slot.task_id) if harder else slot.task_id)
        setup = at_effort(self.setup, slot.group, run.settings)
        try:
            found = await self._attempted(slot, task, setup)
            await add_rewards(found, task, setup, self.judge)
            if run.settings.feedback.weight and setup.renderer is not None:
                renderer = renderer_for(setup.renderer, setup.harness)
                found.rollout.info["hints"] = kept_hints(found.outcome.session, renderer)
        except (InfraFault, FatalStageError):
            self.ended.forget(slot.group, slot.member)
            raise
        except Exception as error:
            self.ended.forget(slot.group, slot.member)
            raise InfraFault(f"{task.id}#{slot.group}.{slot.member}: {describe_error(error)}") from error
        self.sessions.take(slot, found, task.level)
        return found.rollout

    async def _attempted(self, slot: RolloutSlot, task: Task, setup: AttemptSetup) -> Attempt:
        settings = self.run.settings
        version = self.reconciler.groups[slot.group].version
        ended, notes = self._left(slot, version, task), {}
        place = (slot.group * settings.group_size + slot.member) * (settings.max_faults + 2) + slot.attempt

        def keep(ended: UngradedAttempt) -> None:
            most = settings.keep_ended_bytes
            notes["ended_too_large"] = bool(most) and not self.ended.keep(slot, version, ended, task, most)

        found = await attempt(
            task,
            setup,
            name=f"{task.id}#{slot.group}.{slot.member}",
            seed=(settings.seed << 40) + place * SEED_STRIDE,
            group=slot.group,
            on_phase=lambda phase, host: self.reconciler.note(slot, PHASES[phase], time.monotonic(), host),
            keep=keep,
            ended=ended,
        )
        found.rollout.info |= {
            name: True for name, true in (notes | {"handed_over": ended is not None}).items() if true
        }
        return found

    def _left(self, slot: RolloutSlot, version: int, task: Task) -> UngradedAttempt | None:
        """What the slot's agent left in an earlier life of the run, if that can still be read and is of this task."""
        if not slot.ended:
            return None
        try:
            return self.ended.load(slot, version, task)
        except (FileNotFoundError, DamagedUngradedFile) as error:
            self.run.observer.note(f"rollout {slot.group}.{slot.member} is rolled out again: {error}")
            self.ended.forget(slot.group, slot.member)
            return None


async def add_rewards(attempt: Attempt, task: Task, setup: AttemptSetup, judge: AttemptJudge | None) -> None:
    """Add to the attempt's rollout. Raises InfraFault where the judge's endpoint stays away."""
    rollout = attempt.rollout
    rollout.info |= {
        "category": task.category,
        "effort": setup.harness.effort,
        "seconds": {"agent": attempt.seconds["agent"], **rollout.info["seconds"]},
    }
    rollout.rewards["quality"] = quality_of(task.files, attempt.files)
    if judge is not None:
        score = await judge.score(attempt, task)
        if score is not None:
            rollout.rewards["judge"] = score
