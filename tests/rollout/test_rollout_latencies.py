"""Recorded latencies are replayed: whose call it is decides how long it waits, in every mode and life of a run alike."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.message import ToolCall
from etude.rollout.latencies import Latencies, SlowCalls, read_latencies
from etude.rollout.settings import AttemptSettings

RECORDED = Path(__file__).parents[2] / "benchmarks" / "results" / "latencies.json"


@given(
    seconds=st.lists(st.floats(min_value=0, max_value=100), min_size=1, max_size=20),
    rollout=st.text(max_size=20),
    number=st.integers(min_value=0, max_value=1000),
)
def test_a_call_waits_a_recorded_latency_of_its_tool_and_always_the_same(
    seconds: list[float], rollout: str, number: int
):
    latencies = Latencies(source={}, seconds={"test": seconds, "edit": [1e9]})
    drawn = latencies.of(rollout, number, "test")
    assert drawn in seconds
    assert drawn == Latencies(source={"other": 1}, seconds={"test": seconds}).of(rollout, number, "test")


def test_rollouts_and_calls_differ_and_every_recorded_latency_is_drawn():
    latencies = Latencies(source={}, seconds={"test": [float(i) for i in range(10)]})
    by_rollout = [latencies.of(f"r{i}", 0, "test") for i in range(400)]
    by_call = [latencies.of("r", i, "test") for i in range(400)]
    for drawn in (by_rollout, by_call):
        assert set(drawn) == set(range(10))
        assert all(20 <= drawn.count(value) <= 65 for value in range(10))  # 40 each; 4 standard deviations


async def test_calls_wait_in_turn_for_what_their_number_draws(monkeypatch: pytest.MonkeyPatch):
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    latencies = Latencies(source={}, seconds={"test": [0.5, 1.0, 2.0], "edit": [0.25, 0.125]})
    approver, tools = SlowCalls(latencies, "r"), ["test", "edit", "test", "edit"]
    for tool in tools:
        assert (await approver.rule(ToolCall("c", tool, {}), "execute")).allowed
    assert waited == [latencies.of("r", number, tool) for number, tool in enumerate(tools)]


def test_a_file_without_a_tool_that_may_be_called_is_refused_by_its_name():
    with pytest.raises(ValueError, match="none for view .*edit.*benchmarks/latencies.py"):
        Latencies(source={}, seconds={"edit": [1.0]}).check({"edit", "view"})


@pytest.mark.parametrize("content", ["", '{"source": {}, "seconds": {"test": []}}', '{"seconds": {"test": [-1]}}'])
def test_a_file_that_says_something_else_is_refused_with_its_name(tmp_path: Path, content: str):
    path = tmp_path / "latencies.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="latencies.json"):
        read_latencies(path)


def test_a_call_never_waits_twice():
    with pytest.raises(ValidationError, match="keep one"):
        AttemptSettings(tool_latency_s=1.0, tool_latencies=Path("x.json"))


def test_the_committed_latencies_are_of_real_sessions_and_name_every_tool_of_the_nano_preset():
    found = read_latencies(RECORDED)
    found.check(set(preset_of(HarnessSettings()).tools) - {"done"})
    result = json.loads(RECORDED.read_text())["source"]
    assert result["suite"] == "real" and result["sessions"] == 30 and result["solved"] >= 20
    assert min(found.seconds["test"]) > max(0.05, sorted(found.seconds["view"])[len(found.seconds["view"]) // 2])
