"""A real run with a region: its engine on a Ray node in another network namespace, behind 120 ms, 200 Mbit/s and 1% loss, with no weights but those
of its own bucket; the link is lost in mid-run (promises 5, 6, 7, 8). `benchmarks/regions.py` loses it for ten minutes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etude.rl.steps import read

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SETTINGS: dict[str, Any] = {
    "steps": 24,
    "groups_per_step": 4,
    "group_size": 4,
    "slots": 32,
    "save_every": 5,
    "solvable_tasks": 0,
    "max_staleness": 4,
    "region_lag": 2,
    "region_patience_s": 5,
    "engine_silence_s": 20,
    "attempt": {"tool_latency_s": 1.0},
}
STEPS_WITHOUT_LINK = 4


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    pytest.importorskip("boto3", reason="boto3 is not installed (the extra s3)")
    from regional.link import available
    from regional.site import two_regions

    if missing := available():
        pytest.skip(missing)
    with two_regions(tmp_path / "site") as found:
        yield found


def test_a_region_behind_a_link_that_is_lost_costs_no_sample_and_comes_back(site: Any) -> None:
    from regional import outcome
    from regional.site import REPOSITORY

    folder = site.folder / "rl"
    harness = {"max_turns": 6, "max_tokens_per_turn": 48}
    process = site.start_run(REPOSITORY / "checkpoints" / "sft-nano", SETTINGS, harness)

    def until(condition: Callable[[], bool], limit_s: float = 300) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert process.poll() is None and time.monotonic() < deadline, site.log("run")[-3000:]
            time.sleep(0.1)

    def steps() -> list[Any]:
        return read(folder / "steps.jsonl") if (folder / "steps.jsonl").exists() else []

    def away() -> bool:
        return "region far is away" in (folder / "events.jsonl").read_text()

    until(lambda: bool(steps()) and steps()[-1].values["region_far_turns"] > 20)
    copied_before, passed = site.relayed(), site.link.passed()
    site.link.cut()
    at_cut = len(steps())
    until(lambda: away() and len(steps()) >= at_cut + STEPS_WITHOUT_LINK)
    at_mend = len(steps())
    site.link.mend()
    assert process.wait(400) == 0, site.log("run")[-3000:]

    assert [one.step for one in steps()] == list(range(SETTINGS["steps"])) and at_mend < SETTINGS["steps"]
    entries, store = outcome.entries(folder), outcome.samples
    trained = outcome.groups(entries, "trained")
    assert trained == set(range(SETTINGS["steps"] * SETTINGS["groups_per_step"])) and not outcome.trained_twice(entries)
    assert store(folder, trained, SETTINGS["group_size"])["lost_rollouts"] == 0
    assert outcome.staleness(folder)["max"] <= SETTINGS["max_staleness"]
    assert json.loads((folder / "summary.json").read_text())["mismatch"]["k3"] <= 1e-9
    crossed = outcome.crossed(site.relayed())
    assert crossed["copied_twice"] == 0
    # Each shard crosses once. The rest are headers, indexes, packets sent again, and the set that was in flight at the cut.
    if "store_bytes" in passed:
        later = [event["shard_bytes"] for event in site.relayed()[len(copied_before) :] if event["event"] == "copied"]
        assert passed["store_bytes"] < 1.25 * (outcome.crossed(copied_before)["shard_bytes"] + max(later))
