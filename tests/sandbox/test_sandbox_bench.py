"""The measurement: every key that README quotes, quantiles by their definition, peers that are not there are said to be absent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.settings import SandboxSettings
from etude.sandbox.speed import bench as measuring
from etude.sandbox.speed import peers, single
from etude.sandbox.speed.bench import bench, interleave, quantile, summary

LATENCIES = ("fork_exec_ms", "create_ms", "exec_ms", "fork_ms", "fork8_ms", "kill_ms", "warm_ms")
RATES = ("creates_per_s", "live", "idle_mib", "exec_per_s", "stream_mb_s")


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.floats(0.001, 1))
def test_a_quantile_is_the_smallest_value_that_enough_do_not_exceed(values: list[float], q: float) -> None:
    found = quantile(values, q)
    assert sum(one <= found for one in values) >= q * len(values)
    assert found in values
    assert sum(one < found for one in values) < q * len(values)


@pytest.mark.parametrize(("values", "q"), [([], 0.5), ([1.0], 0), ([1.0], 1.1)])
def test_no_quantile_of_nothing(values: list[float], q: float) -> None:
    with pytest.raises(ValueError, match="0 < q <= 1"):
        quantile(values, q)


async def test_rounds_are_interleaved_and_the_first_ones_left_out() -> None:
    order: list[str] = []

    async def whole() -> None:
        order.append("whole")

    async def part() -> float:
        order.append("part")
        return 0.25

    found = await interleave({"whole": whole, "part": part}, rounds=3, warm_up=1)
    assert order == ["whole", "part"] * 4
    assert found["part"] == [250.0] * 3 and len(found["whole"]) == 3
    assert summary(found["part"]) == {"p50": 250.0, "p99": 250.0}


async def test_every_figure_is_there_and_an_absent_peer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        peers, "PEERS", {"absent": ("no-such-tool", peers.Runc), "bubblewrap": peers.PEERS["bubblewrap"]}
    )
    monkeypatch.setattr(measuring, "COMMANDS", 40)
    monkeypatch.setattr(single, "STREAM_BYTES", 4 << 20)
    settings = SandboxSettings(backend="local", max_running=16)
    found = await bench(settings, rounds=2, live=8, with_peers=True, say=lambda text: None)
    assert all(found[key]["p50"] <= found[key]["p99"] for key in LATENCIES if found[key] is not None)
    assert all(found[key] > 0 for key in RATES if key != "idle_mib")
    assert found["peers"]["absent"] == {"reason": "no-such-tool is not installed"}
    neighbour = found["peers"]["bubblewrap"]
    assert "reason" in neighbour or neighbour["create_ratio"] > 0
