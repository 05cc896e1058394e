"""Same task and same files: one grading. A grading that failed for our reasons is never shared (promises 8, 9)."""

from __future__ import annotations

import asyncio

import pytest

from etude.rollout.verdicts import Verdicts
from etude.sandbox.errors import SandboxDied
from etude.tasks.task import Verdict


class Grading:
    """Takes a moment, counts itself; raises what it is given first."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.asked = 0

    async def __call__(self) -> Verdict:
        self.asked += 1
        await asyncio.sleep(0.01)
        if self.faults:
            raise self.faults.pop(0)
        return Verdict(1.0)


async def test_attempts_that_left_the_same_files_share_one_grading_also_at_the_same_time():
    verdicts, grading = Verdicts(), Grading()
    together = await asyncio.gather(*(verdicts.of("t", {"a": b"1"}, grading) for _ in range(4)))
    later = await verdicts.of("t", {"a": b"1"}, grading)
    assert grading.asked == 1 and verdicts.shared == 4
    assert sorted(shared for _, shared in together) == [False, True, True, True]
    assert later == (Verdict(1.0), True)


async def test_other_files_names_or_tasks_are_graded_on_their_own():
    verdicts, grading = Verdicts(), Grading()
    cases = [
        ("t", {"a": b"1"}),
        ("t", {"a": b"2"}),
        ("t", {"b": b"1"}),
        ("u", {"a": b"1"}),
        ("t", {}),
        ("t", {"a": b""}),
    ]
    cases += [("t", {"a": b"1", "b": b""}), ("t", {"a": b"1 0 b"}), ("t", {"a1": b"", "b": b""})]
    for task_id, files in cases:
        assert (await verdicts.of(task_id, files, grading))[1] is False
    assert grading.asked == len(cases)


async def test_a_failed_grading_is_raised_to_its_own_attempt_and_the_next_grades_again():
    verdicts, grading = Verdicts(), Grading(SandboxDied("gone"))
    first, *others = await asyncio.gather(*(verdicts.of("t", {}, grading) for _ in range(3)), return_exceptions=True)
    assert isinstance(first, SandboxDied)
    assert [verdict for verdict, _ in others] == [Verdict(1.0)] * 2 and grading.asked == 2  # type: ignore[misc]


async def test_a_cancelled_grading_passes_its_turn_on():
    verdicts, grading = Verdicts(), Grading()
    first = asyncio.create_task(verdicts.of("t", {}, grading))
    await asyncio.sleep(0)
    second = asyncio.create_task(verdicts.of("t", {}, grading))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == (Verdict(1.0), False)


async def test_memory_is_bounded():
    verdicts, grading = Verdicts(kept=3), Grading()
    for number in range(10):
        await verdicts.of(str(number), {}, grading)
    assert (await verdicts.of("9", {}, grading))[1] is True
    assert (await verdicts.of("0", {}, grading))[1] is False
