"""Work that rests on Ray ends with Ray, and never waits for ever (promise 6: a run that is stopped goes on when it is run again)."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from etude.rl import local_ray
from etude.rl.run import RayLost, stop_if_ray_is_lost

LOOK_S = 0.01


class Lost:
    """Ray's raylet, which dies on request."""

    name = ""

    def __call__(self) -> str:
        return self.name


async def test_work_that_waits_for_ever_ends_when_ray_is_lost_and_cleans_up_first() -> None:
    lost, cleaned = Lost(), []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append(True)

    asyncio.get_running_loop().call_later(0.05, setattr, lost, "name", "raylet")
    with pytest.raises(RayLost, match="process raylet has ended.*run again"):
        await stop_if_ray_is_lost(work(), lost, LOOK_S)
    assert cleaned


async def test_an_error_that_ray_caused_is_reported_as_its_loss_and_any_other_as_itself() -> None:
    lost = Lost()

    async def work(gone: str) -> None:
        lost.name = gone
        raise ValueError("an actor died")

    with pytest.raises(RayLost) as raised:
        await stop_if_ray_is_lost(work("gcs_server"), lost, LOOK_S)
    assert isinstance(raised.value.__cause__, ValueError)
    lost.name = ""
    with pytest.raises(ValueError, match="an actor died"):
        await stop_if_ray_is_lost(work(""), lost, LOOK_S)


async def test_a_result_is_given_back_even_if_ray_is_lost_with_the_last_word() -> None:
    lost = Lost()

    async def work() -> int:
        lost.name = "raylet"
        return 7

    assert await stop_if_ray_is_lost(work(), lost, LOOK_S) == 7


async def test_cancelling_the_wait_cancels_the_work() -> None:
    begun, ended = asyncio.Event(), []

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(True)
            raise

    waits = asyncio.ensure_future(stop_if_ray_is_lost(work(), Lost(), LOOK_S))
    await begun.wait()
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert ended


def test_a_process_of_rays_own_is_missed_as_soon_as_it_is_killed(tmp_path, monkeypatch) -> None:
    """A zombie, as which it stays below its parent, counts as dead."""
    monkeypatch.setattr(local_ray, "NEEDED", ("sleep",))
    ray = local_ray.LocalRay(tmp_path / "ray.json")
    process = subprocess.Popen(["sleep", "60"])
    try:
        ray.look_for_needed()
        assert ray.lost() == ""
        process.kill()
        while process.poll() is None and not ray.lost():
            pass
        assert ray.lost() == "sleep"
    finally:
        process.kill()
        process.wait()
