"""Reward components and importance weights of a person's own, by import path (`module:name`)."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from etude.core.plugins import PluginError, import_object, is_import_path, source_digest
from etude.core.trace.segment import Rollout
from etude.learn.train.importance_settings import ImportanceSettings
from etude.learn.train.importance_weights import importance_weights
from etude.rl.ledger import RlLedger
from etude.rl.resume import require_same_sources
from etude.rl.reward_settings import RewardSettings
from etude.rl.rewards.component import RewardInput
from etude.rl.rewards.library import custom_component, measure_components
from etude.rl.rewards.mix import mix_at, mix_rewards
from etude.rl.settings import RlSettings

TURNS = "my_rewards:many_turns"


def settings(**rewards: object) -> RlSettings:
    return RlSettings.model_validate({"rewards": rewards})


def a_rollout(turns: float, outcome: float = 1.0) -> Rollout:
    return Rollout("r", "t", 0, [], {"outcome": outcome}, {"turns": turns}, {})


def test_a_component_by_import_path_is_measured_weighed_and_bounded() -> None:
    chosen = settings(weights={TURNS: 0.05})
    values = [measure_components(RewardInput(a_rollout(turns), chosen)) for turns in (2, 5, 500)]
    assert [one[TURNS] for one in values] == [0.0, -2.0, -497.0]
    values = [one | {"kl": 0.0, "length": 0.0} for one in values]
    assert [parts[TURNS] for parts in mix_rewards(values, mix_at(0, chosen))] == pytest.approx([0.0, -0.1, -0.3])


def test_a_component_of_the_schedule_is_measured_from_the_first_step() -> None:
    chosen = settings(schedule={"later": {"from_step": 3, "weights": {TURNS: 0.1}}})
    assert TURNS in measure_components(RewardInput(a_rollout(4), chosen))
    assert TURNS not in mix_at(2, chosen).weights and mix_at(3, chosen).weights[TURNS] == 0.1


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"unfinished_todo": 0.1}, "no reward component 'unfinished_todo'; did you mean unfinished_todos"),
        ({"kl": 0.1}, "no reward component 'kl'"),  # rl.kl_beta is its weight
        ({"my rewards:x": 0.1}, "no reward component 'my rewards:x'"),
        ({TURNS: -1.0}, "a weight is a number of at least 0"),
    ],
)
def test_a_weight_of_no_component_is_refused_with_the_nearest(weights: dict[str, float], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RewardSettings(weights=weights)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:x", "the module no_such_module can't be imported"),
        ("my_rewards:absent", "the module my_rewards has no absent"),
        ("my_rewards:square_root", "its kind is None"),
    ],
)
def test_a_path_that_leads_to_no_component_says_why(path: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        custom_component(path)


def test_a_penalty_above_0_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_object("my_rewards:ManyTurns"), "value", lambda self, subject: 1.0)
    with pytest.raises(ValueError, match="my_rewards:many_turns gave 1; a penalty is at most 0"):
        measure_components(RewardInput(a_rollout(1), settings(weights={TURNS: 0.1})))


def test_an_importance_weight_by_import_path_is_used() -> None:
    logprobs, sampler = torch.tensor([-1.0, -2.0]), torch.tensor([-2.0, -1.0])
    found = importance_weights(logprobs, sampler, torch.ones(2), ImportanceSettings(kind="my_rewards:square_root"))
    assert torch.allclose(found, (0.5 * (logprobs - sampler)).exp())


@pytest.mark.parametrize(
    ("name", "message"), [("short", "weights of shape"), ("negative", "a weight that is negative")]
)
def test_an_importance_weight_that_is_none_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"my_rewards:{name} gave {message}"):
        importance_weights(torch.zeros(2), torch.zeros(2), torch.ones(2), ImportanceSettings(kind=f"my_rewards:{name}"))


def test_a_misspelt_importance_weight_is_refused_by_the_recipe() -> None:
    with pytest.raises(ValidationError, match="'tiss' is none of none, tis, ppo_clip"):
        ImportanceSettings(kind="tiss")
    assert not is_import_path("tis") and not is_import_path("a:b:c") and is_import_path("a.b:c.d")


def test_a_run_is_bound_to_the_source_of_its_components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "own_reward.py"
    module.write_text(
        'kind, needs = "bonus", ()\n\n\ndef value(subject):\n    return 1.0\n\n\nitself = __import__("sys").modules[__name__]\n'
    )
    path, chosen = "own_reward:itself", settings(weights={"own_reward:itself": 0.1})
    opened(tmp_path, chosen)
    ledger = opened(tmp_path, chosen)
    assert [one for one in ledger.entries if one["kind"] == "sources"] == [
        {"kind": "sources", "digests": {path: source_digest(path)}}
    ]
    module.write_text(module.read_text() + "# changed\n")
    with pytest.raises(ValueError, match="the source of own_reward:itself has changed since the run began"):
        opened(tmp_path, chosen)
    opened(tmp_path, RlSettings())
    del sys.modules["own_reward"]


def opened(folder: Path, chosen: RlSettings) -> RlLedger:
    """As a run opens it when it starts or goes on."""
    with closing(RlLedger(folder / "ledger.jsonl")) as ledger:
        require_same_sources(ledger, chosen)
    return ledger
