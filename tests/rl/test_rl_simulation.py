"""Whole runs in made-up time by the production code: the bound holds, every task is trained once, and a seed replays (promises 5 to 8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etude.rl.simulation.shape import SimulationShape, draw_shape
from etude.rl.simulation.simulate import simulate

SMALL = SimulationShape(rollouts=512, groups_per_step=8, slots=96, hosts=4)


def figures_of(figures: dict) -> dict:
    return {name: value for name, value in figures.items() if name != "real_s"}


def test_a_seed_tells_the_same_story_and_another_one_another():
    first = simulate(SMALL)
    assert figures_of(simulate(SMALL)) == figures_of(first)
    assert simulate(replace(SMALL, seed=1))["story"] != first["story"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("part", range(4))
def test_runs_of_chance_proportions_come_to_their_end_whole(part: int):
    _search(range(part * 15, part * 15 + 15))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_seeds_hold_every_promise(part: int):
    _search(range(part * 1000, part * 1000 + 1000))


def _search(seeds: range) -> None:
    """The simulation itself raises where a promise breaks: `simulate(drawn(seed))` shows it again."""
    for seed in seeds:
        shape = draw_shape(seed)
        found = simulate(shape)
        assert found["rollouts"] == shape.steps * shape.groups_per_step * shape.group_size, seed
        assert found["staleness"]["max"] <= shape.max_staleness and found["left_on_hosts"] == 0, seed


def test_deaths_and_faults_are_met_and_cost_no_rollout():
    found = simulate(replace(SMALL, deaths=6, faults=0.2, rollouts=1024))
    assert found["restarts"] >= 4 and found["faults"] > 40 and found["rollouts"] == 1024


def test_an_engine_that_hangs_is_found_by_its_silence_and_started_again():
    found = simulate(replace(SMALL, deaths=0, host_deaths=0, hangs=3))
    assert 1 <= found["restarts"] <= 3 and found["rollouts"] == 512


def test_a_region_takes_its_share_and_losing_its_link_costs_no_rollout():
    """With a lag that its link keeps, in half of all turns; cut for most of the run, in fewer."""
    far = replace(
        SMALL, regions=1, region_lag=2, max_staleness=4, engines=1, deaths=0, hangs=0, fleet=False, rollouts=1024
    )
    whole, cut = simulate(far), simulate(replace(far, outages=4, outage_s=1500.0))
    assert whole["rollouts"] == cut["rollouts"] == 1024
    assert whole["regional_turns"] > 500 and 0 < cut["regional_turns"] < whole["regional_turns"]


def test_a_region_whose_link_is_too_slow_for_the_lag_is_asked_nothing_and_holds_no_one_up():
    slow = replace(SMALL, regions=1, region_lag=0, link_share=0.001, deaths=0, hangs=0, fleet=False)
    found, alone = simulate(slow), simulate(replace(slow, regions=0))
    assert found["regional_turns"] == 0 and found["made_up_s"] < 1.5 * alone["made_up_s"]


def test_the_trainer_does_not_wait_for_what_is_published():
    """Where all wait for the trainer, a publication as long as a step costs next to nothing."""
    busy = SimulationShape(
        rollouts=2048,
        max_staleness=4,
        slots=512,
        engines=4,
        train_s=60,
        fleet=False,
        deaths=0,
        hangs=0,
        tail=3.0,
        turn_s=2.0,
    )
    times = {
        sync_s: simulate(replace(busy, sync_s=sync_s, tool_s=1.0, engine_turns=192))["made_up_s"]
        for sync_s in (1.0, 50.0)
    }
    assert times[50.0] < 1.25 * times[1.0]


@pytest.mark.nightly
def test_first_come_first_trained_waits_longer_than_whatever_is_finished():
    """Heavy tails: who may be overtaken holds the trainer up least."""
    idle = {}
    for order in ("fifo", "greedy"):
        shape = replace(SMALL, order=order, rollouts=2048, tail=1.1, train_s=30.0, fleet=False, max_staleness=4)
        idle[order] = simulate(shape)["trainer_idle"]
    assert idle["greedy"] < idle["fifo"]
