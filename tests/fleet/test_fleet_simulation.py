"""The whole fleet in made-up time. A fleet of 100,000 is in `benchmarks/fleet.py`."""

from __future__ import annotations

from etude.fleet.simulation.rollouts import simulate
from etude.fleet.simulation.world import Shape


def test_ten_thousand_sandboxes_on_500_hosts_with_faults_lose_no_rollout() -> None:
    """500 creates a second, 1 % faults, 0 lost."""
    found = simulate(Shape(sandboxes=10_000, commands=2, life_s=20.0))
    assert found["rollouts"] == {"done": 10_000, "lost": 0, "wrong": 0}
    assert found["creates_per_s"]["min"] >= 500
    assert 0.005 <= sum(found["faults"].values()) / 10_000 <= 0.05  # they did happen
    assert {"HostLost", "SandboxDied", "AnswerLost"} <= set(found["faults"])
    assert found["left_on_hosts"] == 0
    assert found["decision_ms"]["p99"] < 5  # 1 on a quiet machine; the target is measured by the benchmark


def test_one_seed_one_story() -> None:
    shape = Shape(sandboxes=400, hosts=20, faults=0.1, crashes=1, silences=1)
    first, again = simulate(shape), simulate(shape)
    other = simulate(Shape(**{**first["shape"], "seed": 1}))
    assert first["story"] == again["story"] != other["story"]
    assert first["rollouts"]["lost"] == other["rollouts"]["lost"] == 0
