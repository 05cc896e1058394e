"""The whole fleet in made-up time. A fleet of 100,000 is in `benchmarks/fleet.py`."""

from __future__ import annotations

import pytest

from etude.sandbox.fleet.simulation.rollouts import simulate
from etude.sandbox.fleet.simulation.world import FleetShape


@pytest.mark.parametrize(("sandboxes", "hosts"), [(2_000, 100), pytest.param(10_000, 500, marks=pytest.mark.nightly)])
def test_sandboxes_on_many_hosts_with_faults_lose_no_rollout(sandboxes: int, hosts: int) -> None:
    """500 creates a second, 1 % faults, 0 lost."""
    found = simulate(FleetShape(sandboxes=sandboxes, hosts=hosts, commands=2, life_s=20.0))
    assert found["rollouts"] == {"done": sandboxes, "lost": 0, "wrong": 0}
    assert found["creates_per_s"]["min"] >= 500
    assert 0.005 <= sum(found["faults"].values()) / sandboxes <= 0.05  # they did happen
    assert {"HostLost", "SandboxDied", "AnswerLost"} <= set(found["faults"])
    assert found["left_on_hosts"] == 0


def test_one_seed_one_story() -> None:
    shape = FleetShape(sandboxes=400, hosts=20, faults=0.1, crashes=1, silences=1)
    first, again = simulate(shape), simulate(shape)
    other = simulate(FleetShape(**{**first["shape"], "seed": 1}))
    assert first["story"] == again["story"] != other["story"]
    assert first["rollouts"]["lost"] == other["rollouts"]["lost"] == 0
