"""Questions at once: in order, and a failing one ends the others instead of being waited for by each."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.bench.grading.together import gather_all


@given(st.lists(st.integers(0, 3), max_size=8))
def test_results_come_in_the_order_of_the_questions(waits: list[int]) -> None:
    async def after(place: int, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return place

    async def go() -> list[int]:
        return await gather_all(after(place, turns) for place, turns in enumerate(waits))

    assert asyncio.run(go()) == list(range(len(waits)))


def test_a_failing_one_ends_the_others_and_raises_its_own_error() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise OSError("no route")

    async def nested() -> None:
        await gather_all([waits(), fails()])

    async def go() -> None:
        await gather_all([waits(), nested()])

    with pytest.raises(OSError, match="no route"):
        asyncio.run(go())
    assert ended == ["waits", "waits"]
