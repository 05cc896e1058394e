"""What is measured of an attempt when it is made, and kept with the rollout: its effort, the quality of its change, the judge's word.

Kept, because the files are gone when the step is trained, and because a judge asked again after a kill might say otherwise (promise 6).
"""

from __future__ import annotations

from etude.evaluate.bench.grading.judged_attempt import judged_attempt
from etude.rl.rewards.judge import RubricReward
from etude.rl.rewards.quality import quality_of
from etude.rollout.attempt import Attempt, AttemptSetup
from etude.tasks.task import Task


async def earn(attempt: Attempt, task: Task, setup: AttemptSetup, reward: RubricReward | None) -> None:
    """Add to the attempt's rollout. Raises InfraFault where the judge's endpoint stays away."""
    rollout = attempt.rollout
    rollout.info |= {
        "category": task.category,
        "effort": setup.harness.effort,
        "seconds": {"agent": attempt.seconds["agent"], **rollout.info["seconds"]},
    }
    rollout.rewards["quality"] = quality_of(task.files, attempt.files)
    if reward is not None:
        exhibit = judged_attempt(attempt.outcome.session, task.files, attempt.files)
        score = await reward.score(exhibit, rollout.id)
        if score is not None:
            rollout.rewards["judge"] = score
