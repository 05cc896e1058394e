"""Schedules start low, reach the peak, and end where they should."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.learn.train.schedule import POLICY_FLOOR, lr_factor, policy_lr_factor
from etude.learn.train.settings import LoopSettings, PolicyStepSettings, ScheduleSettings

SHAPES = st.sampled_from(["constant", "cosine", "wsd"])


@given(SHAPES, st.floats(-0.1, 1.2), st.floats(0, 0.5), st.floats(0.01, 0.5), st.floats(0, 1))
def test_the_factor_stays_between_its_floor_and_the_peak(shape, done, warmup, decay, floor):
    settings = ScheduleSettings(shape=shape, warmup_share=warmup, decay_share=decay, floor=floor)
    assert min(floor, 0.01) <= lr_factor(settings, done) <= 1.0 + 1e-9


@pytest.mark.parametrize("shape", ["cosine", "wsd"])
def test_decays_end_at_the_floor_and_never_rise(shape):
    settings = ScheduleSettings(shape=shape, warmup_share=0.1, decay_share=0.4, floor=0.2)
    factors = [lr_factor(settings, 0.1 + 0.9 * i / 50) for i in range(51)]
    assert factors[0] == 1.0 and factors[-1] == pytest.approx(0.2)
    assert all(a >= b for a, b in zip(factors, factors[1:], strict=False))


def test_wsd_stays_at_the_peak_until_the_decay():
    settings = ScheduleSettings(shape="wsd", warmup_share=0.1, decay_share=0.4, floor=0.0)
    assert [lr_factor(settings, done) for done in (0.05, 0.1, 0.59, 0.8)] == pytest.approx([0.5, 1.0, 1.0, 0.5])


def test_a_stage_without_an_end_is_refused():
    with pytest.raises(ValueError, match="set steps, budget_core_s"):
        LoopSettings()


@given(st.integers(1, 400), st.floats(0, 1), st.integers(0, 50))
def test_a_policy_warms_up_stays_and_decays_to_a_tenth_never_to_nothing(total, share, warmup):
    settings = PolicyStepSettings(decay_share=share, warmup_steps=warmup)
    factors = [policy_lr_factor(settings, step, total) for step in range(1, total + 1)]
    assert all(0 < factor <= 1 for factor in factors)
    decay = [f for step, f in enumerate(factors, 1) if step > warmup]
    assert all(a >= b for a, b in zip(decay, decay[1:], strict=False))
    if share and warmup < total:
        assert factors[-1] == pytest.approx(POLICY_FLOOR)
    assert policy_lr_factor(settings, total, None) == min(1.0, total / max(warmup, 1))
