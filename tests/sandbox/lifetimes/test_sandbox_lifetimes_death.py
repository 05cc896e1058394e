"""Whatever dies, in the middle of whatever: nothing is left, and no other sandbox loses anything."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from leaks import census, grown

from etude.sandbox.cleanup.ledger import CleanupLedger
from etude.sandbox.cleanup.process import ProcessIdentity
from etude.sandbox.cleanup.undo import KillProcess, RemoveGroup
from etude.sandbox.creation import STEPS
from etude.sandbox.errors import InfraError, SandboxError, SandboxNotFound
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Network, SandboxSpec
from etude.sandbox.wire.channel import ControlChannel

# Sleeps of this number of seconds are this run's: another on the same machine has others.
MARK = 5_000_000_000 + 100 * os.getpid()

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _marked(mark: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path(f"/proc/{name}/cmdline").read_bytes() == b"sleep\0%d\0" % mark:
                found.append(int(name))
        except OSError:
            continue
    return found


async def _until(condition, patience_s: float = 20.0) -> None:
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.02)


_CLIENT = """
import asyncio, sys
from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.spec import SandboxSpec
from etude.sandbox.settings import SandboxSettings
async def main():
    backend, ledger, mark = sys.argv[1:]
    try:
        pool = await open_pool(SandboxSettings(backend=backend, ledger=ledger))
    except Unsupported as error:
        print(error, flush=True)
        return
    boxes = [await pool.create(SandboxSpec(labels={"n": str(n)})) for n in range(2)]
    for box in boxes:
        await box.run(f"setsid sleep {mark} >/dev/null 2>&1 &")
    print("ready", flush=True)
    await boxes[0].run(f"sleep {mark}", timeout_s=1000)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "backend",
    [
        "local",
        "bubblewrap",
        "runc",
        pytest.param("gvisor", marks=pytest.mark.nightly),
        pytest.param("podman", marks=pytest.mark.nightly),
    ],
)
async def test_after_sigkill_of_a_client_one_reap_leaves_nothing_of_it_and_all_of_the_others(
    backend: str, cells: LocalPool, ledger: Path
) -> None:
    """Tests 11 and 12 of docs/sandbox.md."""
    words = [sys.executable, "-c", _CLIENT, backend, str(ledger), str(MARK + 1)]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert client.stdout is not None
    try:
        said = await asyncio.to_thread(client.stdout.readline)
        if said != "ready\n":
            pytest.skip(said or f"back end {backend} does not work here")
        (theirs,) = [one for one in CleanupLedger(ledger).journal_states() if one.owner.process.pid == client.pid]
        box = await cells.create(SandboxSpec())
        await box.run(f"setsid sleep {MARK} >/dev/null 2>&1 &")
        await _until(lambda: len(_marked(MARK)) == 1)
    finally:
        client.kill()
        client.wait()
    assert {entry.labels.get("n") for entry in theirs.entries.values()} >= {"0", "1"}
    assert not any("still there" in line for line in await cells.reap())
    await _until(lambda: not _marked(MARK + 1))
    ways = [way for entry in theirs.entries.values() for way in entry.undo]
    assert not [way for way in ways if way.kind in ("group", "folder") and os.path.exists(way.line()[1])]
    assert not theirs.path.exists()
    assert len(_marked(MARK)) == 1 and (await box.run("echo 1")).out == b"1\n"
    assert await cells.reap() == []
    await box.kill()


@pytest.mark.parametrize("step", STEPS)
async def test_a_birth_that_fails_at_any_step_leaves_nothing(
    step: str, cells: LocalPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test 15 of docs/sandbox.md, the client's steps; those inside are the next test's."""
    await (await cells.create(SandboxSpec())).kill()
    before = census(cells)

    def fail(at: str) -> None:
        if at == step:
            raise InfraError(f"injected before {at}")

    with monkeypatch.context() as broken:
        broken.setattr(cells._creator, "before", fail)
        spec = SandboxSpec(files={"a": b"x"}, network=Network("allowlist"))
        answers = await asyncio.gather(*(cells.create(spec) for _ in range(3)), return_exceptions=True)
    if not (step in ("hello", "group") and not cells._groups.available):
        assert [str(answer) for answer in answers] == [f"injected before {step}"] * 3
    else:
        await asyncio.gather(*(box.kill() for box in cells.list()))
    assert await grown(cells, before) == {}
    assert cells.stats().live == 0 and cells._lifecycle.queue.admission.live == 0


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.002, 0.004, 0.008, 0.016])
async def test_a_birth_that_is_given_up_at_any_moment_leaves_nothing(delay_s: float, cells: LocalPool) -> None:
    """Test 15 of docs/sandbox.md."""
    before = census(cells)
    born = [asyncio.create_task(cells.create(SandboxSpec(files={"a": b"x" * 1000}))) for _ in range(4)]
    await asyncio.sleep(delay_s)
    for task in born:
        task.cancel()
    for answer in await asyncio.gather(*born, return_exceptions=True):
        if not isinstance(answer, BaseException):
            await answer.kill()
    assert await grown(cells, before) == {}
    assert cells._lifecycle.queue.admission.live == 0


async def test_a_birth_that_fails_inside_leaves_nothing(cells: LocalPool) -> None:
    """Test 15 of docs/sandbox.md: the inside's own steps (its ground, its files), by demands that can't be met."""
    before = census(cells)
    for spec in (
        SandboxSpec(files={"a/b": b"", "a": b""}),
        SandboxSpec(files={"big": b"x" * (2 << 20)}, disk_mb=1),
        SandboxSpec(files={"../../outside": b""}),
    ):
        with pytest.raises(SandboxError):
            await cells.create(spec)
    assert await grown(cells, before) == {}


@pytest.mark.parametrize("step", ["group", "spec", "ready"])
async def test_a_runner_killed_while_it_is_born_is_a_typed_error_and_leaves_nothing(
    step: str, cells: LocalPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not cells._groups.available:
        pytest.skip("without control groups the first process is not known before it is ready")
    before = census(cells)
    channels: list[ControlChannel] = []

    def watched(sock, name: str) -> ControlChannel:
        channels.append(ControlChannel(sock, name))
        return channels[-1]

    def kill(at: str) -> None:
        if at == step:
            signal.pidfd_send_signal(channels[-1].pidfd, signal.SIGKILL)

    with monkeypatch.context() as broken:
        broken.setattr("etude.sandbox.creation.ControlChannel", watched)
        broken.setattr(cells._creator, "before", kill)
        with pytest.raises(InfraError):
            box = await asyncio.wait_for(cells.create(SandboxSpec()), 20)
            await box.run("true")  # it may have been ready before the signal came: then the first caller gets the error
    assert await grown(cells, before) == {}


async def test_kill_is_idempotent_and_safe_next_to_everything_else(cells: LocalPool) -> None:
    """Test 16 of docs/sandbox.md."""
    before = census(cells)
    for delay_s in (0.0, 0.002, 0.01, 0.03):
        box = await cells.create(SandboxSpec(files={"a": b"x"}))
        calls = [
            box.run("sleep 60", timeout_s=60),
            box.run(["python", "-c", "while True: pass"], warm=True, timeout_s=60),
            box.write("b", b"y" * 100_000),
            box.read("a"),
            box.list("/"),
            box.exec("cat", stdin=None),
            box.get_tar("/work"),
            box.snapshot(),
            box.fork(2),
            box.pause(),
            box.extend(5),
        ]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(delay_s)
        await asyncio.gather(box.kill(), box.kill())
        answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
        assert not [one for one in answers if isinstance(one, BaseException) and not isinstance(one, SandboxError)]
        children = [one for answer in answers if isinstance(answer, list) for one in answer]
        await asyncio.gather(*(one.kill() for one in children if hasattr(one, "kill")))
        await box.kill()
        with pytest.raises(SandboxNotFound):
            await box.run("true")
    assert await grown(cells, before) == {}


async def test_a_runner_that_dies_by_itself_gives_its_room_back(cells: LocalPool) -> None:
    before = census(cells)
    box = await cells.create(SandboxSpec())
    signal.pidfd_send_signal(box.pidfd, signal.SIGKILL)
    await _until(lambda: cells._lifecycle.queue.admission.live == 0)
    assert await grown(cells, before) == {}


@pytest.mark.parametrize("threads, each", [(8, 6), pytest.param(16, 13, marks=pytest.mark.nightly)])
async def test_sandboxes_outlive_the_threads_that_asked_for_them(threads: int, each: int, tmp_path: Path) -> None:
    """Test 10 of docs/sandbox.md: PDEATHSIG follows the thread that forked."""
    settings = SandboxSettings(ledger=str(tmp_path / "ledger"))
    made = []

    def thread() -> None:
        loop = asyncio.new_event_loop()

        async def create():
            pool = await open_pool(settings)
            return pool, await asyncio.gather(*(pool.create(SandboxSpec(disk_mb=1)) for _ in range(each)))

        made.append((loop, *loop.run_until_complete(create())))

    await asyncio.gather(*(asyncio.to_thread(thread) for _ in range(threads)))

    async def use(pool, boxes) -> list[bytes]:
        outs = [(await box.run("echo alive")).out for box in boxes]
        await pool.close()
        return outs

    for loop, pool, boxes in made:
        assert await asyncio.to_thread(loop.run_until_complete, use(pool, boxes)) == [b"alive\n"] * each
        loop.close()
    assert list((tmp_path / "ledger").iterdir()) == []


_BUSY = """
import asyncio, sys
from etude.sandbox.pool import open_pool
from etude.sandbox.spec import SandboxSpec
from etude.sandbox.settings import SandboxSettings
async def live(pool, mark):
    while True:
        box = await pool.create(SandboxSpec(files={"a": b"x"}))
        await box.run(f"setsid sleep {mark} >/dev/null 2>&1 &")
        await box.kill()
async def main():
    pool = await open_pool(SandboxSettings(backend="local", ledger=sys.argv[1]))
    print("ready", flush=True)
    await asyncio.gather(*(live(pool, sys.argv[2]) for _ in range(4)))
asyncio.run(main())
"""


@pytest.mark.parametrize("moment_s", [0.05, 0.2])
async def test_a_client_killed_in_the_middle_of_births_and_deaths_leaves_nothing(
    moment_s: float, cells: LocalPool, ledger: Path
) -> None:
    """Test 12 of docs/sandbox.md."""
    words = [sys.executable, "-c", _BUSY, str(ledger), str(MARK + 2)]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    try:
        assert await asyncio.to_thread(client.stdout.readline) == "ready\n"
        await asyncio.sleep(moment_s)
    finally:
        client.kill()
        client.wait()
    (theirs,) = [one for one in CleanupLedger(ledger).journal_states() if one.owner.process.pid == client.pid]
    assert not any("still there" in line for line in await cells.reap())
    await _until(lambda: not _marked(MARK + 2))
    ways = [way for entry in theirs.entries.values() for way in entry.undo]
    assert any(way.kind == "group" for way in ways) or not cells._groups.available
    assert not [way for way in ways if isinstance(way, RemoveGroup) and os.path.exists(way.path)]
    assert not [way for way in ways if isinstance(way, KillProcess) and ProcessIdentity(way.pid, way.start_ticks).alive]
    assert not theirs.path.exists()
