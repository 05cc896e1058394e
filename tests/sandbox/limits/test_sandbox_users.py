"""A sandbox with a range of users: root inside, no user outside."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from etude.sandbox.errors import PidsExhausted, SandboxNotFound, Unsupported, UserError
from etude.sandbox.inside.users import SIZE
from etude.sandbox.launch import uids
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

AS_USER = "import os, sys; os.setgroups([]); os.setgid({0}); os.setuid({0}); os.execvp(sys.argv[1], sys.argv[1:])"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[SandboxPool]:
    try:
        made = await open_pool(SandboxSettings(backend="local"))
    except Unsupported as error:
        pytest.skip(str(error))
    if not made.probe().uid_ranges:
        try:
            await made.create(SandboxSpec(uid_mode="range"))
        except Unsupported as error:
            await made.close()
            pytest.skip(str(error))
        pytest.fail("a range that the probe denies was given")
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def box(pool: SandboxPool) -> AsyncIterator[Sandbox]:
    made = await pool.create(SandboxSpec(uid_mode="range", files={"mine": b"1"}))
    yield made
    await made.kill()


def first(box: Sandbox) -> int:
    return box.backend_handle.uid  # type: ignore[attr-defined]


async def test_root_inside_gives_files_away_and_becomes_others_for_good(box: Sandbox) -> None:
    said = await box.run("id -u; echo 2 > given; chown 1000:1000 given; stat -c %u:%g given mine")
    assert (said.rc, said.out.split()) == (0, [b"0", b"1000:1000", b"0:0"]), said
    script = "id -u; id -G; echo 3 > given; cat given; rm -f mine; echo x > new; cat /proc/self/status"
    other = await box.run(["python3", "-c", AS_USER.format(1000), "sh", "-c", script])
    assert other.out.splitlines()[:3] == [b"1000", b"1000", b"3"] and b"CapEff:\t0000000000000000" in other.out
    assert other.err.count(b"ermission denied") == 2  # root's file, root's folder


async def test_files_on_the_host_are_never_owned_by_anybody_there(box: Sandbox) -> None:
    """Test 48 of docs/sandbox.md, second half."""
    await box.run("touch a; touch b; chown 1000 b; chmod u+s b")
    upper = box._channel.granted["upper"]  # type: ignore[attr-defined]
    owners = {name: os.stat(f"work/{name}", dir_fd=upper).st_uid for name in ("a", "b", "mine")}
    assert owners == {"a": first(box), "b": first(box) + 1000, "mine": first(box)}


async def test_setuid_programs_gain_nothing(box: Sandbox) -> None:
    """Test 48 of docs/sandbox.md, first half: neither the copy of a program nor one of the host's."""
    made = await box.run("cp /usr/bin/id id; chmod 6755 id; stat -c %a id")
    assert made.out == b"6755\n", made
    asked = await box.run(["python3", "-c", AS_USER.format(1000), "sh", "-c", "./id -u; ./id -g"])
    assert asked.out.split() == [b"1000", b"1000"], asked
    locked = await box.run("grep -E '^(NoNewPrivs|CapBnd|CapInh|CapAmb)' /proc/self/status")
    values = dict(line.split(":\t") for line in locked.out.decode().splitlines())
    assert values["NoNewPrivs"] == "1" and int(values["CapInh"], 16) == int(values["CapAmb"], 16) == 0
    kept = {number for number in range(64) if int(values["CapBnd"], 16) >> number & 1}
    assert kept == {0, 1, 3, 4, 5, 6, 7, 10}  # no SYS_ADMIN, SYS_PTRACE, MKNOD, NET_ADMIN, NET_RAW, SETFCAP, SETPCAP


@pytest.mark.parametrize(
    "attack",
    [
        "mknod disk b 8 0",
        "mount -t tmpfs none /work",
        "echo x > /proc/sys/kernel/core_pattern",
        "ls /proc/1/fd/",
        "cat /proc/1/environ",
        "hostname other",
        "unshare -U true",
        "chroot / true",
        "python3 -c 'import os; os.setpriority(os.PRIO_PROCESS, 0, -5)'",
        "echo 1 > /usr/planted",
        "chown 0 /usr/bin/env",
        "ip link add dummy0 type dummy || exit 1",
    ],
)
async def test_root_inside_is_refused_what_only_real_root_may(box: Sandbox, attack: str) -> None:
    """Tests 32 and 33 of docs/sandbox.md, as root of a range."""
    result = await box.run(attack)
    assert result.rc not in (0, 127) or b"not found" in result.err, result


async def test_ranges_of_live_sandboxes_are_disjoint(pool: SandboxPool) -> None:
    """Test 49 of docs/sandbox.md, first half: as the kernel maps them."""
    boxes = await asyncio.gather(*(pool.create(SandboxSpec(uid_mode="range", disk_mb=1)) for _ in range(4)))
    maps = [(await box.run("cat /proc/self/uid_map")).out.split() for box in boxes]
    assert [int(words[0]) for words in maps] == [0] * 4 and [int(words[2]) for words in maps] == [SIZE] * 4
    bases = sorted(map(first, boxes))
    assert all(after - before >= SIZE for before, after in zip(bases, bases[1:], strict=False))
    await asyncio.gather(*(box.kill() for box in boxes))


async def test_a_range_is_not_used_again_before_all_its_processes_are_dead(pool: SandboxPool) -> None:
    """Test 49 of docs/sandbox.md, second half: though the client lets go of it, the zygote does not."""
    box = await pool.create(SandboxSpec(uid_mode="range", disk_mb=1))
    lock = _lock_of(first(box))
    box.backend_handle.release()  # type: ignore[attr-defined]
    assert not _is_free(lock)
    await box.kill()
    end_s = time.monotonic() + 10
    while not _is_free(lock):
        assert time.monotonic() < end_s, "the zygote still holds it"
        await asyncio.sleep(0.005)


CLIENT = """
import asyncio
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

async def main():
    pool = await open_pool(SandboxSettings(backend="local"))
    box = await pool.create(SandboxSpec(uid_mode="range"))
    await box.run("for i in 1 2 3 4 5 6 7 8; do setsid sleep 1000 & done >/dev/null 2>&1")
    print(box.backend_handle.uid, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_the_range_of_a_killed_client_is_free_only_when_no_one_is_left(pool: SandboxPool) -> None:
    """Test 49 of docs/sandbox.md, after SIGKILL of the client."""
    with subprocess.Popen([sys.executable, "-c", CLIENT], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        base = int(await asyncio.to_thread(client.stdout.readline))
        assert len(_processes_of(base)) >= 9
        client.send_signal(signal.SIGKILL)
        lock = _lock_of(base)
        end_s = time.monotonic() + 20
        while not _is_free(lock):
            assert time.monotonic() < end_s, "still locked"
            await asyncio.sleep(0.002)
        assert _processes_of(base) == []


async def test_a_fork_bomb_over_many_users_is_bounded(pool: SandboxPool) -> None:
    """Test 38 of docs/sandbox.md: the kernel's own limit counts by user, the group counts all."""
    box = await pool.create(SandboxSpec(uid_mode="range", pids=16))
    # It goes on when it is full: a process of ours that ends (a file was being read) leaves a place, which is taken again.
    code = (
        "import os, time\nn = 0\nfile = open('counted', 'w')\nwhile n < 400:\n"
        " try: pid = os.fork()\n except OSError as error: print(n, error.errno, file=file, flush=True); time.sleep(0.001); continue\n"
        " if pid == 0:\n  os.setuid(n + 1); time.sleep(100)\n n += 1\ntime.sleep(100)"
    )
    bomb = asyncio.create_task(box.run(["python3", "-c", code], timeout_s=30))
    end_s = time.monotonic() + 20
    while not (counted := await _content(box, "counted")):
        assert time.monotonic() < end_s
        await asyncio.sleep(0.02)
    assert int(counted.split()[0]) <= 2 * 16 + 2 and int(counted.split()[1]) == errno.EAGAIN
    assert await _refused(box, end_s)
    await box.kill()
    with pytest.raises(SandboxNotFound):
        await bomb


async def _refused(box: Sandbox, end_s: float) -> bool:
    """Whether a command finds no place, once the bomb has taken those that were left."""
    while time.monotonic() < end_s:
        try:
            await box.run(["true"])
        except PidsExhausted:
            return True
    return False


async def _content(box: Sandbox, path: str) -> bytes:
    try:
        return await box.read(path)
    except UserError:
        return b""


def _lock_of(base: int) -> Path:
    source = uids.source()
    assert source is not None
    return uids.folder() / str((base - source.uid) // SIZE)


def _is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _processes_of(base: int) -> list[int]:
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if base <= os.stat(f"/proc/{name}").st_uid < base + SIZE:
                found.append(int(name))
        except OSError:
            continue
    return found
