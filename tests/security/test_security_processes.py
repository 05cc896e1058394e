"""What one process inside learns of others and of the host, and what it can do to its runner."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from etude.sandbox import interpreter
from etude.sandbox.errors import CapacityExhausted
from etude.sandbox.inside import root
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import WORKDIR, SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

Python = Callable[[str], Awaitable[str]]
MARK = 3_200_000_000 + 100 * os.getpid()  # sleeps of this number of seconds are this run's


async def test_the_runner_survives_its_inside(box: Sandbox) -> None:
    """Test 14 of docs/sandbox.md."""
    for line in ("kill -9 1", "kill -9 -1", "kill -TERM 1; kill -INT 1; kill -STOP 1; kill -SEGV 1; kill -CHLD 1"):
        await box.run(line, timeout_s=5)
        assert (await box.run("echo here")).out == b"here\n"


async def test_the_runner_s_memory_descriptors_and_socket_are_closed_to_its_inside(box: Sandbox) -> None:
    """Test 43 of docs/sandbox.md."""
    for path in ("mem", "environ", "fd/3", "root/etc", "maps", "cwd/x", "exe"):
        assert (await box.run(f"cat /proc/1/{path}")).rc != 0
    assert (await box.run("ls /proc/1/fd")).out == b""
    assert (await box.run("ls /proc/self/fd")).out.split() == [b"0", b"1", b"2", b"3"]  # 3 is ls reading the folder
    assert (await box.run("cat /proc/1/cmdline")).out.count(f"{WORKDIR}/".encode()) == 0


async def test_no_descriptor_is_inherited_and_none_can_be_taken(python: Python) -> None:
    """Test 43 of docs/sandbox.md: neither by ptrace nor by pidfd_getfd, which would reach the control socket."""
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
held = []
for fd in range(3, 4096):
    try:
        held.append(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        pass
pidfd = os.pidfd_open(1)
taken = [libc.syscall(438, pidfd, number, 0) for number in range(16)]
print(held, set(taken), ctypes.get_errno(), libc.ptrace(16, 1, 0, 0))
"""
    assert await python(code) == "[] {-1} 1 -1"


async def test_processes_of_the_host_and_of_neighbours_are_invisible(pool: SandboxPool, box: Sandbox) -> None:
    """Test 42 of docs/sandbox.md."""
    other = await pool.create(SandboxSpec())
    await other.run(f"setsid sleep {MARK + 1} >/dev/null 2>&1 &")
    assert f"{MARK + 1}".encode() not in (await box.run("cat /proc/[0-9]*/cmdline")).out
    assert int((await box.run("ls -d /proc/[0-9]* | wc -l")).out) <= 5
    await other.kill()


async def test_host_paths_do_not_show_in_processes_and_mounts(box: Sandbox) -> None:
    """Test 42 of docs/sandbox.md."""
    repository = str(Path(__file__).resolve().parents[2]).encode()
    shown = await box.run("cat /proc/*/cmdline /proc/*/mountinfo /proc/*/environ 2>/dev/null", max_output_bytes=1 << 20)
    assert shown.out and repository not in shown.out


@pytest.mark.usefixtures("own_root")
async def test_the_list_of_mounts_names_system_folders_alone(box: Sandbox, kind: str) -> None:
    """Test 42 of docs/sandbox.md: where a mount lies on its file system is a path of the host; these may show."""
    allowed = {"/", *root.SYSTEM, *root.ETC, *(f"/{name}" for name in root.DEVICES), interpreter.find().prefix}
    ours = re.compile(r"/(\.cell.*|sys|work|tmp|upper/.*|newroot.*|bindfile\w+|etc/.*)")
    lines = (await box.run("cat /proc/self/mountinfo", max_output_bytes=1 << 20)).out.decode().splitlines()
    roots = {os.path.normpath(line.split()[3]) for line in lines}
    assert not {one for one in roots - allowed if not ours.fullmatch(one) and not one.startswith("/usr/")}


async def test_chroot_and_root_links_lead_nowhere(box: Sandbox) -> None:
    shown = await box.run(
        "ls -L /proc/self/root; cd /; cd ../../..; ls .old oldroot put_old .ground .cell 2>/dev/null; pwd"
    )
    assert shown.out.endswith(b"/\n")
    mounts = (await box.run("cat /proc/self/mountinfo")).out.decode().splitlines()
    assert {line.split(" - ")[1].split()[0] for line in mounts if line.split()[4] == "/"} == {"tmpfs"}  # its own root


@pytest.mark.parametrize("warm", [True, False], ids=["python3", "native"])
async def test_no_one_inside_can_make_the_runner_unable_or_slow(pool: SandboxPool, warm: bool) -> None:
    """Test 14 of docs/sandbox.md: a command that takes the runner's files or time from it would turn its own failure into a fault of ours."""
    code = """
import ctypes, os, resource
libc, IOPRIO_SET = ctypes.CDLL(None, use_errno=True), {"x86_64": 251, "aarch64": 30}[os.uname().machine]
def of_the_disk(which, who, priority):
    if libc.syscall(IOPRIO_SET, which, who, priority) < 0:
        raise PermissionError(ctypes.get_errno())
IDLE, BEST_EFFORT_7, PROCESS, GROUP, USER = 3 << 13, (2 << 13) | 7, 1, 2, 3  # ioprio_set(2)
tries = [lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0)), lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)),
         lambda: os.setpriority(os.PRIO_PROCESS, 1, 19), lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
         lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(1), 19), lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
         lambda: os.sched_setaffinity(1, {0}), lambda: of_the_disk(PROCESS, 1, IDLE), lambda: of_the_disk(PROCESS, 1, BEST_EFFORT_7),
         lambda: of_the_disk(GROUP, os.getpgid(1), IDLE), lambda: of_the_disk(GROUP, 0, IDLE), lambda: of_the_disk(USER, os.getuid(), IDLE)]
done = []
for number, attempt in enumerate(tries):
    try:
        attempt()
        done.append(number)
    except PermissionError:
        pass
resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.setpriority(os.PRIO_PROCESS, 0, 5); os.sched_setaffinity(0, os.sched_getaffinity(0))
of_the_disk(PROCESS, 0, IDLE)
print(done)
"""
    box = await pool.create(SandboxSpec(warm_python=warm))
    done = await box.run(["python3", "-c", code])
    assert (done.out, done.err) == (b"[]\n", b""), "oneself one may limit"
    assert (await box.run("echo here")).out == b"here\n"
    await box.kill()


_FLOOD = """
import resource, socket, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = []
try:
    while True:
        held += (pair := socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        pair[0].setblocking(False)
        try:
            while True:
                socket.send_fds(pair[0], [b"x"], [0] * 253)
        except BlockingIOError:
            continue
except OSError:
    print("full", flush=True)
time.sleep(1000)
"""


async def _flooded(pool: SandboxPool, spec: SandboxSpec) -> Sandbox:
    """One whose user has as many descriptors in flight as the kernel lets it."""
    box = await pool.create(spec)
    flood = await box.exec(["python3", "-c", _FLOOD])
    async for chunk in flood.stream():
        assert chunk.data == b"full\n"
        break
    return box


async def test_descriptors_in_flight_end_no_runner(pool: SandboxPool) -> None:
    """Test 14 of docs/sandbox.md. A separate range: no other user's descriptors are counted with these."""
    if not pool.probe().uid_ranges or not isinstance(pool, LocalPool):
        pytest.skip("no ranges of users here, and other users of this machine would feel it")
    box = await _flooded(pool, SandboxSpec(uid_mode="range"))
    await box.exec(
        ["python3", "-c", "import socket, time; s = socket.create_server(('127.0.0.1', 8000)); time.sleep(1000)"]
    )
    while (await box.run("grep -q :1F40 /proc/net/tcp")).rc:
        continue
    try:
        (await box.connect(8000)).close()  # the native runner's limit is above all that its commands may have
    except CapacityExhausted as error:
        assert "on their way" in str(error)
    assert (await box.run("echo here")).out == b"here\n"
    await box.kill()


@pytest.mark.nightly
async def test_descriptors_in_flight_end_no_zygote(pool: SandboxPool) -> None:
    """By night, since whatever else runs as that user on this machine feels it."""
    box = await _flooded(pool, SandboxSpec())
    other = await pool.create(SandboxSpec())
    assert (await other.run("echo here")).out == b"here\n"
    await box.kill()
    await other.kill()
