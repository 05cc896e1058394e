"""Advantages in a person's own package: `rl.baseline` names the function by import path."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from etude.cli.prepare import require_plugins
from etude.core.plugins import import_object
from etude.core.trace.segment import Rollout
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.execute import Run
from etude.rl.baseline import custom_advantages, from_function
from etude.rl.learner import Learner
from etude.rl.ledger import RlLedger
from etude.rl.resume import require_same_sources
from etude.rl.settings import RlSettings

PATH = "my_advantages:leave_one_out"


@pytest.fixture
def module(template: Callable[[str], Path]) -> Path:
    custom_advantages.cache_clear()
    return template("advantages") / "my_advantages.py"


def rollout(group: int) -> Rollout:
    return Rollout(f"r{group}", "t", group, [], {"outcome": 0.0}, {}, {})


def advantages(rewards: list[float], sizes: tuple[int, ...]) -> list[float]:
    """As the trainer asks for them."""
    batch = [[rollout(group)] * size for group, size in enumerate(sizes)]
    learner = SimpleNamespace(settings=RlSettings(baseline=PATH))
    return Learner._advantages(learner, rewards, batch)  # type: ignore[arg-type]


def test_the_trainer_takes_the_function_of_the_template(module: Path) -> None:
    assert advantages([1.0, 0.0, 0.0, 1.0, 0.0], (3, 2)) == pytest.approx([1.0, -0.5, -0.5, 1.0, -1.0])


def test_a_group_with_a_broken_reward_never_reaches_it(module: Path) -> None:
    found = advantages([math.nan, 0.0, 1.0, 0.0], (2, 2))
    assert all(map(math.isnan, found[:2])) and found[2:] == [1.0, -1.0]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([0.0], "gave 1 advantages for 2 rollouts"),
        (None, "gave NoneType advantages for 2 rollouts"),
        ([0.0, math.inf], "gave the advantage inf; an advantage is a finite number"),
        ([0.0, "1"], "gave the advantage '1'"),
    ],
)
def test_what_is_no_advantage_is_refused_by_name(
    result: object, message: str, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_object("my_advantages:leave_one_out").__module__ + ".leave_one_out", lambda *a: result)
    with pytest.raises(ValueError, match=re.escape(f"{PATH} {message}")):
        from_function(PATH, [1.0, 0.0], [0, 0], [rollout(0)] * 2)


def test_what_is_no_function_is_refused_before_a_stage(module: Path, tmp_path: Path) -> None:
    run = Run(read_recipe([], ['rl.baseline="my_advantages:Rollout"']), tmp_path / "run")
    with pytest.raises(
        RecipeError, match="rl.baseline: my_advantages:Rollout is a class; rl.baseline needs a function"
    ):
        require_plugins(run, ["rl"])
    with pytest.raises(ValidationError, match="'groups' is none of group, category"):
        RlSettings(baseline="groups")


def test_a_run_is_bound_to_the_source(module: Path, tmp_path: Path) -> None:
    def opened() -> None:
        with closing(RlLedger(tmp_path / "ledger.jsonl")) as ledger:
            require_same_sources(ledger, RlSettings(baseline=PATH))

    opened()
    opened()
    module.write_text(module.read_text() + "# changed\n")
    with pytest.raises(ValueError, match=f"the source of {PATH} has changed since the run began"):
        opened()
