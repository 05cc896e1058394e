"""Death at every level is a typed error, and takes everything below it along."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import pytest
from makers import MadePool

from etude.sandbox.errors import SandboxDied, SandboxNotFound, Unsupported, UserError
from etude.sandbox.launch.zygotes import ZygotePool
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import WORKDIR, SandboxSpec

# Sleeps of this number of seconds are this run's: another on the same machine has others.
MARK = 3_000_000_000 + 100 * os.getpid()

UidMode = Literal["single", "range"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _marked(marker: str) -> list[int]:
    """Host pids of processes whose command line holds the marker."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def _runner_of(pid: int) -> int:
    """The PID 1 (outside pid) above a process inside."""
    while True:
        lines = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
        )
        if lines["NSpid"].split()[-1] == "1":
            return pid
        pid = int(lines["PPid"])


async def _sleeper(marker: str) -> int:
    """The one process with the marker: a shell that started it in the background is back before its child has become `sleep`."""
    while len(found := _marked(marker)) != 1:
        await asyncio.sleep(0.02)
    return found[0]


async def _until_gone(marker: str, patience_s: float = 10.0) -> bool:
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        if not _marked(marker):
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.usefixtures("seen_from_outside")
async def test_kill_is_idempotent_and_returns_when_all_is_gone(pool: MadePool) -> None:
    """Test 16 of docs/sandbox.md, as far as commands go."""
    box = await pool.create(SandboxSpec())
    await box.run(f"setsid sleep {MARK + 1} >/dev/null 2>&1 &")
    await _sleeper(f"{MARK + 1}")
    await asyncio.gather(box.kill(), box.kill())
    assert _marked(f"{MARK + 1}") == []
    await box.kill()
    for call in (box.run(["true"]), box.read("x"), box.list()):
        with pytest.raises(SandboxNotFound):
            await call


@pytest.mark.usefixtures("seen_from_outside")
async def test_a_killed_runner_fails_every_pending_call(box: Sandbox) -> None:
    """Test 13 of docs/sandbox.md."""
    process = await box.exec(f"sleep {MARK + 2}")
    calls = [asyncio.create_task(box.run(f"sleep {MARK + 2}")) for _ in range(2)]
    calls.append(asyncio.create_task(process.wait()))
    while len(_marked(f"sleep {MARK + 2}")) < 3:
        await asyncio.sleep(0.02)
    os.kill(_runner_of(_marked(f"sleep {MARK + 2}")[0]), signal.SIGKILL)
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
    assert [type(result) for result in results] == [SandboxDied] * 3
    with pytest.raises(SandboxDied):
        await box.run(["true"])
    assert await _until_gone(f"{MARK + 2}")


@pytest.mark.usefixtures("seen_from_outside")
async def test_a_stopped_runner_is_given_up_in_bounded_time(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.sandbox.wire.process.GRACE_S", 0.5)
    await box.run(f"setsid sleep {MARK + 3} >/dev/null 2>&1 &")
    runner = _runner_of(await _sleeper(f"{MARK + 3}"))
    os.kill(runner, signal.SIGSTOP)
    with pytest.raises(SandboxDied):
        await asyncio.wait_for(box.run(["true"], timeout_s=0.5), 10)
    await box.kill()
    assert await _until_gone(f"{MARK + 3}")


async def test_a_dead_zygote_is_replaced_and_its_children_live_on() -> None:
    backend = ZygotePool()
    pool = await LocalPool.open(SandboxSettings(), backend)
    before = await pool.create(SandboxSpec())
    zygote = await next(iter(backend._zygotes.values()))
    os.kill(zygote._process.pid, signal.SIGKILL)
    zygote._process.wait()
    after = await pool.create(SandboxSpec())
    assert [(await one.run("echo 1")).out for one in (before, after)] == [b"1\n", b"1\n"]
    await pool.close()


CLIENT = """
import asyncio, sys
from etude.sandbox.launch.zygotes import ZygotePool
from etude.sandbox.pool import open_pool
from etude.sandbox.spec import WORKDIR, SandboxSpec
from etude.sandbox.settings import SandboxSettings
async def main():
    pool = await open_pool(SandboxSettings())
    boxes = [await pool.create(SandboxSpec()) for _ in range(3)]
    for box in boxes:
        await box.run("setsid sleep MARKER >/dev/null 2>&1 &")
    print("ready", flush=True)
    await boxes[0].run("sleep MARKER", timeout_s=1000)
asyncio.run(main())
"""


@pytest.mark.usefixtures("seen_from_outside")
async def test_the_death_of_the_client_ends_all_its_sandboxes_and_only_those(box: Sandbox) -> None:
    await box.run(f"setsid sleep {MARK + 5} >/dev/null 2>&1 &")
    client = subprocess.Popen([sys.executable, "-c", CLIENT.replace("MARKER", f"{MARK + 4}")], stdout=subprocess.PIPE)
    assert client.stdout is not None
    await asyncio.to_thread(client.stdout.readline)
    # The shell that put them into the background ends before they are what they will be.
    async with asyncio.timeout(10):
        while len(_marked(f"sleep\x00{MARK + 4}")) < 3:
            await asyncio.sleep(0.02)
    client.kill()
    client.wait()
    assert await _until_gone(f"sleep\x00{MARK + 4}")
    assert len(_marked(f"{MARK + 5}")) == 1


async def test_closing_a_pool_ends_all_it_made() -> None:
    made = await open_pool(SandboxSettings())
    box = await made.create(SandboxSpec())
    await box.run(f"setsid sleep {MARK + 6} >/dev/null 2>&1 &")
    await made.close()
    assert _marked(f"{MARK + 6}") == []
    with pytest.raises(SandboxNotFound):
        await made.create(SandboxSpec())


async def test_sandboxes_outlive_the_thread_that_asked_for_them() -> None:
    """Test 10 of docs/sandbox.md, at a size for every day: PDEATHSIG follows the thread that forked."""
    made: list[tuple[asyncio.AbstractEventLoop, SandboxPool, list[Sandbox]]] = []

    async def create() -> tuple[SandboxPool, list[Sandbox]]:
        pool = await open_pool(SandboxSettings())
        return pool, list(await asyncio.gather(*(pool.create(SandboxSpec(disk_mb=1)) for _ in range(10))))

    def thread() -> None:
        loop = asyncio.new_event_loop()
        made.append((loop, *loop.run_until_complete(create())))

    await asyncio.to_thread(lambda: thread())
    loop, pool, boxes = made[0]

    async def use() -> list[bytes]:
        outs = [(await box.run("echo alive")).out for box in boxes]
        await pool.close()
        return outs

    assert await asyncio.to_thread(lambda: loop.run_until_complete(use())) == [b"alive\n"] * 10


@pytest.mark.nightly
async def test_two_hundred_sandboxes_live_at_once_and_leave_nothing(pool: MadePool) -> None:
    egress = asyncio.Semaphore(16)

    async def one() -> Sandbox:
        async with egress:
            return await pool.create(SandboxSpec(disk_mb=1))

    boxes = await asyncio.gather(*(one() for _ in range(200)))
    outs = await asyncio.gather(*(box.run(f"echo {i}", timeout_s=60) for i, box in enumerate(boxes)))
    assert [result.out for result in outs] == [b"%d\n" % i for i in range(200)]
    files = len(os.listdir("/proc/self/fd"))
    await asyncio.gather(*(box.kill() for box in boxes))
    assert len(os.listdir("/proc/self/fd")) <= files - 400  # socket and pidfd of each


OPEN_TO_WRITING = """
import os
found = []
for folder in ("/proc/1", "/proc/1/task/1"):
    for name in os.listdir(folder) if os.path.isdir(folder) and os.access(folder, os.R_OK | os.X_OK) else ():
        if name != "timerslack_ns":  # the kernel lets everybody open it, and refuses what is written
            try:
                os.close(os.open(f"{folder}/{name}", os.O_WRONLY))
                found.append(f"{folder}/{name}")
            except OSError:
                pass
for name in ("fd", "fdinfo", "ns", "map_files", "stack", "syscall", "mem", "environ", "maps", "auxv", "pagemap", "io"):
    for folder in ("/proc/1", "/proc/1/task/1"):
        try:
            path = f"{folder}/{name}"
            if os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1):
                found.append(path)
        except OSError:
            pass
print(found)
"""


async def made_with_users(pool: MadePool, spec: SandboxSpec) -> Sandbox:
    """Skips the test where the back end has no range of users, in which a command is root inside."""
    try:
        return await pool.create(spec)
    except Unsupported as error:
        if spec.uid_mode == "single":
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("uid_mode", ["single", "range"])
async def test_what_the_kernel_keeps_about_the_runner_is_closed_to_commands(pool: MadePool, uid_mode: UidMode) -> None:
    box = await made_with_users(pool, SandboxSpec(uid_mode=uid_mode))
    user = await box.run("id -u")
    assert (user.out == b"0\n") == (uid_mode == "range")
    assert (await box.run(["python3", "-c", OPEN_TO_WRITING])).out == b"[]\n"
    for folder in ("fd", "fdinfo", "ns", "map_files", "task/1/fd", "task/1/ns"):
        listed = await box.run(["ls", f"/proc/1/{folder}"])
        assert listed.out == b"" and listed.rc != 0, folder
    await box.kill()


@pytest.mark.parametrize("uid_mode", ["single", "range"])
async def test_a_command_can_not_have_its_runner_killed_in_its_stead(pool: MadePool, uid_mode: UidMode) -> None:
    """Its own failure would become an infrastructure error, which is repeated and never scored."""
    box = await made_with_users(pool, SandboxSpec(memory_mb=96, uid_mode=uid_mode))
    for file in ("oom_score_adj", "oom_adj"):
        assert (await box.run(f"echo 1000 > /proc/1/{file}")).rc != 0
    assert (await box.run("cat /proc/1/oom_score_adj")).out != b"1000\n"
    hog = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    assert (await box.run(["python3", "-c", hog], timeout_s=20)).rc != 0
    assert (await box.run("echo here")).out == b"here\n"
    await box.kill()


@pytest.mark.parametrize("depth", [300, 2500])
async def test_a_tree_however_deep_is_no_infrastructure_error(pool: MadePool, depth: int) -> None:
    box = await pool.create(SandboxSpec())
    made = await box.run(["python3", "-c", f"import os\nfor _ in range({depth}): os.mkdir('d'); os.chdir('d')"])
    assert made.rc == 0, made
    assert (await box.run("echo here")).out == b"here\n"
    for operation in (box.list("."), box.export("."), box.get_tar(".")):
        with pytest.raises(UserError, match="deeper than 128"):
            await operation
    assert (await box.run("rm -rf d && echo gone")).out == b"gone\n"
    await box.kill()


FILL = """
import os, sys
kind, count = sys.argv[1], int(sys.argv[2])
try:
    for place in sys.argv[3:] or ("/work", "/tmp"):
        for n in range(count):
            with open(f"{place}/{kind}{n}", "wb") as file:
                file.write(b"x" * (1 << 20) if kind == "large" else b"")
except OSError as error:
    print(error.strerror)
    sys.exit(1)
import time
time.sleep(1)
"""


@pytest.mark.parametrize(("kind", "count"), [("large", 6), ("small", 1500)])
async def test_workdir_and_tmp_share_one_disk_and_one_number_of_files(pool: MadePool, kind: str, count: int) -> None:
    """disk_mb=8: 8 MiB and 2,048 entries in all, whether the file system or a watch says so."""
    box = await pool.create(SandboxSpec(disk_mb=8))
    filled = await box.run(["python3", "-c", FILL, kind, str(count)], timeout_s=60)
    assert filled.rc != 0 and (b"No space left" in filled.out or b"hold more than" in filled.err), filled
    assert (await box.run("ls /work /tmp > /dev/null && echo here")).out == b"here\n"  # what only looks goes on
    assert (await box.run(f"rm -rf {WORKDIR}/* /tmp/* && echo 1 > {WORKDIR}/a && cat {WORKDIR}/a")).out == b"1\n"
    await box.kill()


@pytest.mark.parametrize(("kind", "count"), [("large", 12), ("small", 2500)])
@pytest.mark.parametrize("place", ["/dev", "/dev/shm"])
async def test_no_other_file_system_takes_what_the_disk_refuses(
    pool: MadePool, place: str, kind: str, count: int
) -> None:
    """disk_mb=8 again: containers have file systems in memory on /dev and /dev/shm."""
    box = await pool.create(SandboxSpec(disk_mb=8))
    filled = await box.run(["python3", "-c", FILL, kind, str(count), place], timeout_s=60)
    refused = (b"No space left", b"Read-only", b"Permission denied", b"not permitted", b"No such file")
    assert filled.rc != 0 and (any(word in filled.out for word in refused) or b"hold more than" in filled.err), filled
    assert (await box.run(f"rm -f {place}/{kind}* 2>/dev/null; echo here")).out == b"here\n"
    await box.kill()
