"""Time, room and keys, of real sandboxes; the pure classes are tested separately with virtual clocks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from leaks import census, grown

from etude.sandbox.cleanup.ledger import CleanupLedger
from etude.sandbox.errors import CapacityExhausted, InfraError, SandboxNotFound, Unsupported, UserError
from etude.sandbox.launch.zygotes import ZygotePool
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec, ServiceSpec
from etude.sandbox.wire.live import LiveSandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _until_dead(box, patience_s: float = 10.0) -> None:
    end_s = time.monotonic() + patience_s
    while box.state != "dead":
        assert time.monotonic() < end_s
        await asyncio.sleep(0.01)


async def test_a_ttl_ends_a_sandbox_and_a_call_reports_why(cells: LocalPool) -> None:
    """Test 23 of docs/sandbox.md."""
    before = census(cells)
    box = await cells.create(SandboxSpec(ttl_s=0.4))
    assert 0 < (box.deadline_s or 0) <= 0.4
    with pytest.raises(SandboxNotFound, match="its ttl_s of 0.4 is over"):
        await box.run("sleep 60", timeout_s=60)
    with pytest.raises(SandboxNotFound, match="its ttl_s of 0.4 is over"):
        await box.heartbeat()
    assert box not in cells.list()
    assert await grown(cells, before) == {}


async def test_heartbeats_and_running_commands_keep_an_idle_sandbox_and_silence_ends_it(cells: LocalPool) -> None:
    """Test 23 of docs/sandbox.md."""
    box = await cells.create(SandboxSpec(idle_ttl_s=0.5))
    await box.run("sleep 1")
    for _ in range(4):
        await asyncio.sleep(0.2)
        await box.heartbeat()
    assert box.state == "running"
    await _until_dead(box)
    with pytest.raises(SandboxNotFound, match="a heartbeat is a use"):
        await box.run("true")


async def test_a_service_that_runs_is_no_use(cells: LocalPool) -> None:
    service = ServiceSpec("clock", ("/bin/sh", "-c", "while :; do sleep 0.1; echo tick; done"))
    box = await cells.create(SandboxSpec(idle_ttl_s=0.5, services=(service,)))
    assert (await box.services())[0].healthy
    await _until_dead(box)


async def test_extend_gives_an_end_or_moves_it(cells: LocalPool) -> None:
    box = await cells.create(SandboxSpec(ttl_s=0.3))
    await box.extend(60)
    await asyncio.sleep(0.4)
    assert box.state == "running" and 59 < (box.deadline_s or 0) <= 60
    await box.extend(0.05)
    await _until_dead(box)
    with pytest.raises(UserError, match="ttl_s=0"):
        await cells.create(SandboxSpec(ttl_s=0))


async def test_a_leap_of_the_wall_clock_ends_nothing(cells: LocalPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test 24 of docs/sandbox.md."""
    box = await cells.create(SandboxSpec(ttl_s=60, idle_ttl_s=60))
    with monkeypatch.context() as leap:
        leap.setattr(time, "time", lambda now=time.time: now() + 3600)
        assert await cells.reap() == []
        assert (await box.run("echo 1")).out == b"1\n"
    await box.kill()


async def test_what_lives_is_found_by_its_labels_and_is_in_the_ledger(cells: LocalPool, ledger: Path) -> None:
    box = await cells.create(SandboxSpec(labels={"task": "a", "run": "1"}))
    other = await cells.create(SandboxSpec(labels={"task": "b", "run": "1"}))
    assert cells.list({"task": "a"}) == [box] and len(cells.list({"run": "1"})) == 2
    entries = {name: entry for one in CleanupLedger(ledger).journal_states() for name, entry in one.entries.items()}
    assert entries[box.id].labels == {"task": "a", "run": "1"}
    assert [way.kind for way in entries[box.id].undo] == ["process"]
    await asyncio.gather(box.kill(), other.kill())
    assert box.id not in {name for one in CleanupLedger(ledger).journal_states() for name in one.entries}


async def test_one_key_is_one_sandbox_while_it_lives(cells: LocalPool) -> None:
    """Test 29 of docs/sandbox.md."""
    made = cells.stats().created
    first, second = await asyncio.gather(*(cells.create(SandboxSpec(), key="k") for _ in range(2)))
    assert first is second is await cells.create(SandboxSpec(), key="k")
    assert cells.stats().created == made + 1
    with pytest.raises(UserError, match="another spec"):
        await cells.create(SandboxSpec(pids=3), key="k")
    await first.kill()
    again = await cells.create(SandboxSpec(), key="k")
    assert again is not first
    await again.kill()


async def test_a_key_whose_birth_failed_is_free(cells: LocalPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test 29 of docs/sandbox.md."""
    before = census(cells)

    def fail(step: str) -> None:
        raise InfraError("injected")

    with monkeypatch.context() as broken:
        broken.setattr(cells._creator, "before", fail)
        asked = await asyncio.gather(*(cells.create(SandboxSpec(), key="f") for _ in range(2)), return_exceptions=True)
        assert [str(error) for error in asked] == ["injected"] * 2
    box = await cells.create(SandboxSpec(), key="f")
    await box.kill()
    assert await grown(cells, before) == {}


async def test_no_room_is_waited_for_in_order_and_refused_with_when_to_come_again(tmp_path: Path) -> None:
    """Test 25 of docs/sandbox.md: no partial state, first come first served."""
    settings = SandboxSettings(
        backend="local", max_live=2, max_waiting=3, patience_s=0.3, ledger=str(tmp_path / "ledger")
    )
    pool = await LocalPool.open(settings, ZygotePool())
    boxes = [await pool.create(SandboxSpec()) for _ in range(2)]
    before = census(pool)
    with pytest.raises(CapacityExhausted, match="none became free") as refused:
        await pool.create(SandboxSpec())
    assert refused.value.retry_after_s > 0 and await grown(pool, before) == {}
    pool._lifecycle.queue._patience_s = 60.0

    async def one(name: str) -> LiveSandbox:
        return await pool.create(SandboxSpec(labels={"name": name}))

    waiting = [asyncio.create_task(one(name)) for name in "abc"]
    await asyncio.sleep(0)
    assert pool.stats().waiting == 3
    with pytest.raises(CapacityExhausted, match="3 creates wait already"):
        await pool.create(SandboxSpec())
    for box, task in zip(boxes, waiting, strict=False):
        await box.kill()
        await task
    assert pool.stats().waiting == 1 and {box.spec.labels["name"] for box in pool.list()} == {"a", "b"}
    waiting[2].cancel()
    await asyncio.wait(waiting)
    assert pool.stats().waiting == 0
    await pool.close()


async def test_closing_ends_those_who_wait_and_those_being_born(tmp_path: Path) -> None:
    settings = SandboxSettings(backend="local", max_live=3, ledger=str(tmp_path / "ledger"))
    pool = await LocalPool.open(settings, ZygotePool())
    asked = [asyncio.create_task(pool.create(SandboxSpec())) for _ in range(6)]
    await asyncio.sleep(0.005)
    await pool.close()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(answer, InfraError) or getattr(answer, "state", "") == "dead" for answer in answers)
    assert list((tmp_path / "ledger").iterdir()) == []


async def test_a_ledger_that_cannot_be_written_makes_no_sandbox(cells: LocalPool, monkeypatch) -> None:
    before = census(cells)
    with monkeypatch.context() as full:
        full.setattr(
            cells._journal, "_write", lambda lines: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        )
        with pytest.raises(InfraError, match="No space left on device.*sandbox.ledger"):
            await cells.create(SandboxSpec())
    assert await grown(cells, before) == {}


async def test_a_pool_without_a_ledger_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unsupported, match="no ledger can be kept.*sandbox.ledger"):
        await LocalPool.open(SandboxSettings(backend="local", ledger=str(tmp_path / "file" / "ledger")), ZygotePool())


async def test_a_disk_that_fills_up_in_the_middle_of_a_birth_leaves_nothing(
    cells: LocalPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test 26 of docs/sandbox.md."""
    before, live = census(cells), cells.stats().live
    with monkeypatch.context() as full, pytest.raises(InfraError, match="recorded in the ledger"):
        full.setattr(cells._journal, "add", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        await cells.create(SandboxSpec())
    assert cells.stats().live == live and await grown(cells, before) == {}
