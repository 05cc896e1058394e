"""A campaign: each job once whatever interrupts it, bounded, fair, within its budget, and whole lines on disk."""

from __future__ import annotations

import asyncio
import errno
import json
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy.protocol import FatalStageError
from etude.core.files import append_lines
from etude.rollout.campaign import (
    BudgetDecision,
    CampaignJob,
    CampaignSummary,
    NullCampaignObserver,
    run_campaign,
    take_turns,
)
from etude.rollout.retry import InfraFault

Job = CampaignJob[int]


class Disk:
    """Records as lines of a file; `full_at`: the number of lines that fit."""

    def __init__(self, path: Path, full_at: int | None = None) -> None:
        self.path, self.full_at = path, full_at

    def append(self, job: Job, result: str) -> str:
        if self.full_at is not None and len(self.keys()) >= self.full_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        append_lines(self.path, json.dumps([job.key, result]).encode() + b"\n", durable=False)
        return result

    def keys(self) -> list[str]:
        data = self.path.read_bytes() if self.path.exists() else b""
        assert not data or data.endswith(b"\n")
        return [json.loads(line)[0] for line in data.splitlines()]


@dataclass
class Attempts:
    """Attempts that take `work` turns of the event loop; those of `broken` keys raise."""

    broken: dict[str, Exception] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    in_flight: int = 0
    most: int = 0

    async def __call__(self, job: Job) -> str:
        self.begun.append(job.key)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            for _ in range(job.work):
                await asyncio.sleep(0)
            if job.key in self.broken:
                raise self.broken[job.key]
            return f"result of {job.key}"
        finally:
            self.in_flight -= 1


class Observer(NullCampaignObserver):
    """Writes down what it receives."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def on_start(self, job: Job) -> None:
        self.events.append(("started", job.key))

    def on_finish(self, job: Job, record: str) -> None:
        assert record == f"result of {job.key}"
        self.events.append(("finished", job.key))

    def on_failure(self, job: Job, fault: InfraFault) -> None:
        self.events.append(("failed", job.key))

    def on_stop(self, reason: str) -> None:
        self.events.append(("stopped", reason))


class DollarBudget:
    """Stops at `cap`; an attempt's cost is known when it ends."""

    def __init__(self, cap: int, costs: dict[str, int]) -> None:
        self.cap, self.costs, self.spent, self.in_flight = cap, costs, 0, set[str]()

    def decide(self, key: str) -> BudgetDecision:
        return BudgetDecision.stop if self.spent >= self.cap else BudgetDecision.go

    def start(self, key: str) -> None:
        self.in_flight.add(key)

    def end(self, key: str) -> None:
        self.in_flight.remove(key)
        self.spent += self.costs[key]

    def stop_reason(self, key: str) -> str:
        return f"{self.spent} of {self.cap} are spent"


class OneAtATime(DollarBudget):
    """Waits while an attempt is in flight."""

    def decide(self, key: str) -> BudgetDecision:
        return BudgetDecision.wait if self.in_flight else super().decide(key)


jobs_of_groups = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=25
).map(lambda rows: [CampaignJob(f"job {place}", work, group) for place, (group, work) in enumerate(rows)])  # fmt: skip


@given(jobs_of_groups, st.integers(1, 6), st.lists(st.integers(0, 12), max_size=4), st.sets(st.integers(0, 24)))
def test_each_job_is_recorded_once_whenever_the_campaign_is_interrupted(
    jobs: list[Job], workers: int, interruptions: list[int], before: set[int]
) -> None:
    async def interrupted(disk: Disk, turns: int) -> None:
        attempts = Attempts()
        running = asyncio.create_task(
            run_campaign(jobs, attempts, done={*disk.keys()}, append=disk.append, workers=workers)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert attempts.in_flight == 0

    async def scenario(disk: Disk) -> None:
        for job in jobs:
            if int(job.key.split()[1]) in before:
                disk.append(job, "of an earlier run")
        for turns in interruptions:
            await interrupted(disk, turns)
        attempts, missing = Attempts(), {job.key for job in jobs} - {*disk.keys()}
        summary = await run_campaign(jobs, attempts, done={*disk.keys()}, append=disk.append, workers=workers)
        assert sorted(attempts.begun) == sorted(missing) and summary == CampaignSummary(made=len(missing))
        assert attempts.most <= workers

    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder) / "records.jsonl")
        asyncio.run(scenario(disk))
        assert sorted(disk.keys()) == sorted(job.key for job in jobs)


@given(jobs_of_groups)
def test_groups_take_turns_and_keep_their_own_order(jobs: list[Job]) -> None:
    ordered = take_turns(jobs)
    assert Counter(ordered) == Counter(jobs)
    sizes = Counter(job.group for job in jobs)
    for end in range(len(ordered) + 1):
        begun = Counter(job.group for job in ordered[:end])
        for group in sizes:
            others = max((begun[other] for other in sizes), default=0)
            assert begun[group] >= min(
                sizes[group], others - 1
            )  # no group is more than one job behind, unless it has none left
    for group in sizes:
        assert [job for job in ordered if job.group == group] == [job for job in jobs if job.group == group]


@given(jobs_of_groups, st.integers(1, 6))
def test_the_campaign_starts_jobs_in_fair_order(jobs: list[Job], workers: int) -> None:
    attempts = Attempts()
    asyncio.run(run_campaign(jobs, attempts, append=lambda job, result: result, workers=workers))
    assert attempts.begun == [job.key for job in take_turns(jobs)]


@given(jobs_of_groups, st.integers(1, 6), st.integers(0, 40), st.sampled_from([DollarBudget, OneAtATime]), st.data())
def test_the_budget_is_passed_by_no_more_than_what_was_in_flight(
    jobs: list[Job], workers: int, cap: int, kind: type[DollarBudget], data: st.DataObject
) -> None:
    costs = {job.key: data.draw(st.integers(0, 9)) for job in jobs}
    budget, attempts, observer = kind(cap, costs), Attempts(), Observer()
    recorded: list[str] = []
    summary = asyncio.run(
        run_campaign(
            jobs, attempts, append=lambda job, result: recorded.append(job.key) or result, workers=workers, budget=budget, observer=observer
        )
    )  # fmt: skip
    width = min(workers, len(jobs)) if kind is DollarBudget else 1
    assert attempts.most <= width and not budget.in_flight
    assert sorted(recorded) == sorted(attempts.begun)  # attempts in flight ended and were recorded
    ended, spent = [key for event, key in observer.events if event == "finished"], 0
    for key in ended[: max(0, len(ended) - width)]:
        spent += costs[key]
    assert spent < max(cap, 1)  # only the last ones in flight may pass it
    stops = [text for event, text in observer.events if event == "stopped"]
    assert bool(summary.stopped) == (len(recorded) < len(jobs)) and stops == (
        [summary.stopped] if summary.stopped else []
    )


def test_a_stopped_campaign_goes_on_with_a_higher_budget(tmp_path: Path) -> None:
    jobs = [CampaignJob(str(number), 1, number) for number in range(6)]
    disk, costs = Disk(tmp_path / "r.jsonl"), {job.key: 1 for job in jobs}

    def run(cap: int) -> CampaignSummary:
        return asyncio.run(
            run_campaign(
                jobs, Attempts(), done={*disk.keys()}, append=disk.append, workers=1, budget=DollarBudget(cap, costs)
            )
        )

    assert run(2) == CampaignSummary(2, {}, "2 of 2 are spent") and run(100) == CampaignSummary(4)
    assert disk.keys() == ["0", "1", "2", "3", "4", "5"]


def test_an_attempt_that_raises_is_reported_and_the_campaign_goes_on(tmp_path: Path) -> None:
    jobs = [CampaignJob(key, 1) for key in "abcd"]
    attempts, observer = Attempts({"b": InfraFault("b: no sandbox"), "c": KeyError("x")}), Observer()
    disk = Disk(tmp_path / "r.jsonl")
    summary = asyncio.run(run_campaign(jobs, attempts, append=disk.append, workers=1, observer=observer))
    assert disk.keys() == ["a", "d"] and summary.made == 2
    assert str(summary.faults["b"]) == "b: no sandbox"
    assert str(summary.faults["c"]).startswith("c: KeyError: 'x' (test_rollout_campaign.py:")
    assert isinstance(summary.faults["c"].__cause__, KeyError)
    assert observer.events[2:6] == [("started", "b"), ("failed", "b"), ("started", "c"), ("failed", "c")]
    attempts.broken.clear()
    assert asyncio.run(run_campaign(jobs, attempts, done={*disk.keys()}, append=disk.append, workers=1)).made == 2


@given(st.integers(0, 6), st.integers(1, 4), st.integers(0, 4))
def test_a_full_disk_ends_the_campaign_and_the_next_run_goes_on(full_at: int, workers: int, work: int) -> None:
    jobs = [CampaignJob(str(number), work) for number in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        disk, attempts = Disk(Path(folder) / "r.jsonl", full_at), Attempts()
        with pytest.raises(OSError, match="No space left"):
            asyncio.run(run_campaign(jobs, attempts, append=disk.append, workers=workers))
        assert len(disk.keys()) == full_at and attempts.in_flight == 0
        assert len(attempts.begun) <= full_at + workers  # nothing starts after the error
        disk.full_at = None
        asyncio.run(run_campaign(jobs, Attempts(), done={*disk.keys()}, append=disk.append, workers=workers))
        assert sorted(disk.keys()) == [job.key for job in jobs]


def test_an_error_that_ends_the_stage_ends_the_campaign_and_cancels_the_others() -> None:
    jobs = [CampaignJob("a", 1), CampaignJob("b", 1_000_000), CampaignJob("c", 1)]
    attempts = Attempts({"a": FatalStageError("the endpoint is gone")})
    with pytest.raises(FatalStageError, match="^the endpoint is gone$"):
        asyncio.run(run_campaign(jobs, attempts, append=lambda job, result: result, workers=2))
    assert attempts.begun == ["a", "b"] and attempts.in_flight == 0


def test_an_error_of_the_observer_ends_the_campaign() -> None:
    class EndsAtTheFirstFault(NullCampaignObserver):
        def on_failure(self, job: Job, fault: InfraFault) -> None:
            raise fault

    attempts = Attempts({"a": InfraFault("a: no sandbox")})
    jobs = [CampaignJob(key, 1) for key in "abc"]
    with pytest.raises(InfraFault, match="a: no sandbox"):
        asyncio.run(
            run_campaign(jobs, attempts, append=lambda job, result: result, workers=1, observer=EndsAtTheFirstFault())
        )
    assert attempts.begun == ["a"]


@pytest.mark.parametrize("ending", ["returns", "raises"])
async def test_an_attempt_that_swallows_its_cancellation_is_the_last_one(ending: str) -> None:
    begun, recorded = [], []

    async def stubborn(job: Job) -> str:
        begun.append(job.key)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if ending == "raises":
                raise OSError("a clean-up that fails") from None
        return "late"

    jobs, observer = [CampaignJob(key, 1) for key in "abc"], Observer()
    running = asyncio.create_task(
        run_campaign(
            jobs, stubborn, append=lambda job, result: recorded.append(job.key), workers=1, observer=NullCampaignObserver()
        )
    )  # fmt: skip
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert begun == ["a"] and recorded == (["a"] if ending == "returns" else [])
    assert not observer.events


def test_a_job_that_is_no_longer_needed_is_skipped() -> None:
    kept: list[str] = []
    jobs = [CampaignJob(f"{group}{number}", 1, group) for group in "xy" for number in range(3)]
    asyncio.run(
        run_campaign(
            jobs, Attempts(), append=lambda job, result: kept.append(job.key), workers=1,
            needed=lambda job: not any(key[0] == job.group for key in kept),
        )
    )  # fmt: skip
    assert kept == ["x0", "y0"]


def test_two_jobs_of_one_key_and_no_worker_are_refused() -> None:
    job = CampaignJob("a", 1)
    with pytest.raises(ValueError, match="two jobs of a campaign have the key 'a'"):
        asyncio.run(run_campaign([job, job], Attempts(), append=lambda job, result: result, workers=1))
    with pytest.raises(ValueError, match="at least 1 worker, got 0"):
        asyncio.run(run_campaign([job], Attempts(), append=lambda job, result: result, workers=0))


def test_a_budget_that_waits_for_nothing_is_an_error_and_no_deadlock() -> None:
    class Waits(DollarBudget):
        def decide(self, key: str) -> BudgetDecision:
            return BudgetDecision.wait

    with pytest.raises(RuntimeError, match="none is in flight"):
        asyncio.run(
            run_campaign(
                [CampaignJob("a", 1)], Attempts(), append=lambda job, result: result, workers=1, budget=Waits(1, {})
            )
        )
