"""The detector alarms as seldom as it says, finds shifts as soon as it says, and one wild step is none."""

import numpy as np
import pytest

from etude.rl.rewards.alarms import LIMIT, REFERENCE, Drift


def first_alarm(series):
    drift = Drift(1e-9)
    return next((t - REFERENCE + 1 for t, value in enumerate(series) if drift.feed(float(value))), None)


@pytest.mark.parametrize("noise", [lambda rng, n: rng.normal(size=n), lambda rng, n: rng.standard_t(3, size=n)])
def test_fewer_than_one_figure_in_a_hundred_alarms_in_a_hundred_steps_without_a_shift(noise):
    rng = np.random.default_rng(1)
    alarms = sum(first_alarm(noise(rng, REFERENCE + 100)) is not None for _ in range(1500))
    assert alarms / 1500 < 0.01


def test_a_shift_of_three_deviations_is_found_within_nine_steps_in_nine_of_ten():
    rng = np.random.default_rng(2)
    delays = []
    for sign in (-3, 3) * 100:
        series = rng.normal(size=REFERENCE + 40)
        series[REFERENCE:] += sign
        delays.append(first_alarm(series) or np.inf)
    assert np.median(delays) <= 6 and np.quantile(delays, 0.9) <= 10


def test_the_unit_and_the_zero_of_a_figure_do_not_matter():
    series = np.random.default_rng(3).normal(size=80) + np.r_[np.zeros(40), np.full(40, 4.0)]
    assert first_alarm(series) == first_alarm(1000 * series - 7) == first_alarm(-series)


def test_one_wild_step_is_no_shift():
    quiet = [0.0, 1.0] * 30
    assert first_alarm([*quiet, 1e9, *quiet]) is None


def test_a_figure_that_hardly_moves_has_the_floor_as_its_scale():
    drift = Drift(0.1)
    assert not any(drift.feed(0.5) for _ in range(REFERENCE))
    assert not any(drift.feed(0.55) for _ in range(200))
    assert any(drift.feed(1.0) == "up" for _ in range(int(LIMIT)))


def test_after_a_shift_the_figure_is_held_to_where_it_went():
    drift = Drift(0.1)
    series = [0.0] * REFERENCE + [1.0] * 60 + [0.0] * 20
    assert [shift for value in series if (shift := drift.feed(value))] == ["up", "down"]
