"""A group has one effort, its prompt names it, and the shares are those of the settings."""

from collections import Counter
from types import SimpleNamespace

import pytest

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.harness.settings import HarnessSettings
from etude.rl.effort_sampling import at_effort, check_efforts
from etude.rl.settings import RlSettings
from etude.rollout.attempt import AttemptSetup

SETUP = AttemptSetup(SimpleNamespace(), SimpleNamespace(), {}, HarnessSettings())  # type: ignore[arg-type]
DRAWN = RlSettings(efforts={"low": 1.0, "high": 3.0})


def test_a_group_draws_the_same_effort_again_and_groups_by_their_shares():
    drawn = [at_effort(SETUP, group, DRAWN).harness.effort for group in range(400)]
    assert drawn == [at_effort(SETUP, group, DRAWN).harness.effort for group in range(400)]
    assert 270 <= Counter(drawn)["high"] <= 330 and set(drawn) == {"low", "high"}
    assert at_effort(SETUP, 3, RlSettings()) is SETUP


def test_an_effort_that_the_model_does_not_get_is_refused():
    renderer = NanoRenderer(byte_tokenizer())
    with pytest.raises(ValueError, match=r"rl.efforts has low, but neither the preset nano"):
        check_efforts(DRAWN, HarnessSettings(preset="nano"), renderer)
    check_efforts(DRAWN, HarnessSettings(preset="search_replace"), renderer)
    check_efforts(RlSettings(), HarnessSettings(preset="nano"), renderer)
    with pytest.raises(ValueError, match="every share"):
        check_efforts(RlSettings(efforts={"low": 0.0}), HarnessSettings(), renderer)
