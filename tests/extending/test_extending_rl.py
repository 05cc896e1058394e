"""The templates of a reward component and of an importance weight work as their pages say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from etude.cli.prepare import require_plugins
from etude.core.trace.segment import Rollout
from etude.learn.train.importance_settings import ImportanceSettings
from etude.learn.train.importance_weights import custom_weight, importance_weights
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.execute import Run
from etude.rl.rewards.component import RewardInput
from etude.rl.rewards.library import custom_component, measure_components
from etude.rl.settings import RlSettings

TURNS, ROOT = "my_rewards:many_turns", "my_weights:square_root"


@pytest.fixture
def modules(template: Callable[[str], Path]) -> Iterator[Path]:
    """Other tests have a module of the same name."""
    before = sys.modules.pop("my_rewards", None)
    custom_component.cache_clear()
    custom_weight.cache_clear()
    template("rewards")
    yield template("importance_weights")
    custom_component.cache_clear()
    custom_weight.cache_clear()
    sys.modules.pop("my_rewards", None)
    if before is not None:
        sys.modules["my_rewards"] = before


def test_the_component_is_measured(modules: Path) -> None:
    chosen = RlSettings.model_validate({"rewards": {"weights": {TURNS: 0.02}}})
    rollout = Rollout("r", "t", 0, [], {"outcome": 1.0}, {"turns": 5.0}, {})
    assert measure_components(RewardInput(rollout, chosen))[TURNS] == -2.0


def test_the_weight_is_used(modules: Path) -> None:
    logprobs, sampler = torch.tensor([-1.0, -2.0]), torch.tensor([-2.0, -1.0])
    found = importance_weights(logprobs, sampler, torch.ones(2), ImportanceSettings(kind=ROOT))
    assert torch.allclose(found, (0.5 * (logprobs - sampler)).exp())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (f'rl.rewards.weights={{"{ROOT}"=0.1}}', "rl.rewards.weights: my_weights:square_root: its kind is None"),
        ('rl.update.trust.kind="my_rewards:many_turns"', "rl.update.trust.kind: my_rewards:many_turns is ManyTurns"),
        (
            'rl.update.trust.kind="no_such_module:f"',
            "rl.update.trust.kind: no_such_module:f: the module no_such_module",
        ),
    ],
)
def test_another_kind_of_object_is_refused_before_a_stage(
    setting: str, message: str, modules: Path, tmp_path: Path
) -> None:
    run = Run(read_recipe([], [setting]), tmp_path / "run")
    with pytest.raises(RecipeError, match=message):
        require_plugins(run, ["rl"])
    require_plugins(run, ["corpus"])
