"""A judge's word is asked for once, its endpoint's faults are ours, and where it is silent there is no score."""

import asyncio
from types import SimpleNamespace

import pytest

from etude.agent.policy.protocol import PolicyError
from etude.core.trace.completion import Completion
from etude.core.trace.message import Message
from etude.core.trace.session import Recorder, SessionHeader
from etude.evaluate.bench.grading.endpoint import NoJudge
from etude.evaluate.bench.grading.judge import Judge
from etude.evaluate.bench.grading.judged_attempt import JudgedAttempt
from etude.evaluate.bench.grading.judgement import JudgementFile
from etude.evaluate.bench.grading.rubric import rubric_of
from etude.pipeline.run.rubric_judge import RubricJudge, rubric_judge
from etude.rl.reward_settings import RewardSettings
from etude.rollout.retry import InfraFault
from etude.rollout.settings import AttemptSettings

RUBRIC = rubric_of({"criteria": [{"name": "clear", "question": "Is it?", "choices": ["no", "partly", "yes"]}]}, "test")
EXHIBIT = JudgedAttempt("do it", "+x = 1", "done")


class Endpoint:
    """Gives these answers in order; an exception is raised."""

    name, takes_tokens = "judge", False

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    async def complete(self, request):
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Completion(Message("assistant", answer))

    async def release(self, session_id):
        pass


def reward(endpoint, tmp_path, attempts=3):
    judge = Judge(endpoint, JudgementFile(tmp_path / "judged.jsonl"))
    return RubricJudge(judge, RUBRIC, AttemptSettings(attempts=attempts, first_delay_s=0.0, max_delay_s=0.0))


SAID = '{"reason": "so", "choice": "partly"}'


def test_the_score_is_the_rubrics_and_is_asked_for_once(tmp_path):
    endpoint = Endpoint(SAID)
    assert asyncio.run(reward(endpoint, tmp_path).score_exhibit(EXHIBIT, "a")) == 0.5
    assert (
        asyncio.run(reward(Endpoint(), tmp_path).score_exhibit(EXHIBIT, "b")) == 0.5
    )  # of another life: from the file
    assert endpoint.asked == 1


def test_a_fault_of_the_endpoint_is_retried_and_in_the_end_an_infra_fault(tmp_path):
    endpoint = Endpoint(PolicyError("gone"), PolicyError("gone"), SAID)
    assert asyncio.run(reward(endpoint, tmp_path).score_exhibit(EXHIBIT, "a")) == 0.5 and endpoint.asked == 3
    with pytest.raises(InfraFault, match="the judge judge failed 2 times: gone"):
        asyncio.run(reward(Endpoint(*[PolicyError("gone")] * 2), tmp_path / "b", 2).score_exhibit(EXHIBIT, "a"))


def test_a_judge_that_does_not_decide_gives_no_score(tmp_path):
    assert asyncio.run(reward(Endpoint("well", "hm", "perhaps"), tmp_path).score_exhibit(EXHIBIT, "a")) is None


def test_an_attempt_is_shown_to_the_judge_as_the_files_it_changed(tmp_path):
    endpoint = Endpoint(SAID)
    seen: list[str] = []
    complete = endpoint.complete

    async def watched(request):
        seen.append(request.messages[-1].text)
        return await complete(request)

    endpoint.complete = watched
    session = Recorder(SessionHeader("s")).session
    outcome, rollout = SimpleNamespace(session=session), SimpleNamespace(id="a")
    attempt = SimpleNamespace(outcome=outcome, rollout=rollout, files={"x.py": b"total = 2\n"})
    task = SimpleNamespace(files={"x.py": "total = 1\n"})
    assert asyncio.run(reward(endpoint, tmp_path).score(attempt, task)) == 0.5
    assert "-total = 1" in seen[0] and "+total = 2" in seen[0]


def test_settings_without_a_judge_give_none_and_named_ones_close_their_client(tmp_path):
    retries = AttemptSettings()
    assert rubric_judge(RewardSettings(), retries, tmp_path) is None
    judge = rubric_judge(RewardSettings(judge="http://127.0.0.1:9/v1#m", weights={"judge": 0.1}), retries, tmp_path)
    assert judge is not None
    asyncio.run(judge.close())
    with pytest.raises(NoJudge, match="rl.rewards.judge nonsense"):
        rubric_judge(RewardSettings(judge="nonsense", weights={"judge": 0.1}), retries, tmp_path)
