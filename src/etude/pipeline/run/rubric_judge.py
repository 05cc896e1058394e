"""The judge component: the share of a rubric's points that a model gives an attempt, asked once when the attempt is made.

The `Judge` is the bench's: one criterion a call, blind to author and tests, its answers kept in a file so that nothing is asked
twice. A fault of the endpoint is ours: asked again with growing waits, then an InfraFault after which the attempt is repeated
(promise 8). A criterion that the judge would not decide leaves the rollout without a score, never with a made-up one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from etude.agent.policy.openai import OpenAIPolicy
from etude.agent.policy.protocol import PolicyError
from etude.evaluate.bench.grading.endpoint import client_of
from etude.evaluate.bench.grading.judge import Judge
from etude.evaluate.bench.grading.judged_attempt import JudgedAttempt, judged_attempt
from etude.evaluate.bench.grading.judgement import Judgement, JudgementFile, combine_judgements
from etude.evaluate.bench.grading.rubric import Rubric, read_rubric
from etude.evaluate.bench.targeted.cases import RUBRICS
from etude.rl.reward_settings import RewardSettings
from etude.rollout.attempt import Attempt
from etude.rollout.retry import InfraFault, delay_s
from etude.rollout.settings import AttemptSettings
from etude.tasks.task import Task


class RubricJudge:
    """`rl.rewards.judge.AttemptJudge`: `score` may run many at once; the judge bounds how many questions are open."""

    def __init__(
        self, judge: Judge, rubric: Rubric, retries: AttemptSettings, client: OpenAIPolicy | None = None
    ) -> None:
        """`client`: the endpoint's, closed with the judge."""
        self._judge, self._client = judge, client
        self._rubric = rubric
        self._retries = retries

    async def score(self, attempt: Attempt, task: Task) -> float | None:
        """Of what the attempt left, and its session. Raises InfraFault."""
        judged = judged_attempt(attempt.outcome.session, task.files, attempt.files)
        return await self.score_exhibit(judged, attempt.rollout.id)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def score_exhibit(self, exhibit: JudgedAttempt, subject: str) -> float | None:
        """Weighted mean of the criteria, in [0, 1]; None if one was not decided. Raises InfraFault."""
        return combine_judgements(self._rubric, await self._asked(exhibit, subject)).total

    async def _asked(self, exhibit: JudgedAttempt, subject: str) -> list[Judgement]:
        failed = 0
        while True:
            try:
                return await self._judge.rubric(self._rubric, exhibit, subject)
            except PolicyError as error:
                failed += 1
                wait_s = delay_s(failed, self._retries)
                if wait_s is None:
                    raise InfraFault(
                        f"{subject}: the judge {self._judge.name} failed {failed} times: {error}"
                    ) from error
                await asyncio.sleep(wait_s)


def rubric_judge(settings: RewardSettings, retries: AttemptSettings, folder: Path) -> RubricJudge | None:
    """The judge that the settings name, its answers in `folder/judged.jsonl`; None if they name none. Raises NoJudge, RubricError."""
    if not settings.judge:
        return None
    rubric = read_rubric(Path(settings.rubric) if settings.rubric else RUBRICS / "quality.toml")
    client = client_of(settings.judge, settings.judge_key_env, option="rl.rewards.judge")
    return RubricJudge(Judge(client, JudgementFile(folder / "judged.jsonl")), rubric, retries, client)
