"""Back end `process`: what Landlock, seccomp and rlimits keep when there is no namespace. Skipped, with the reason, where they can't."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from etude.sandbox.errors import DiskFull, InfraError, PidsExhausted, Unsupported, UserError
from etude.sandbox.inside import frames, keeper, landlock
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import WORKDIR, SandboxSpec

# Sleeps of this number of seconds are this run's: another on the same machine has others.
MARK = 3_000_000_000 + 100 * os.getpid()

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alone() -> AsyncIterator[SandboxPool]:
    try:
        made = await open_pool(SandboxSettings(backend="process"))
    except Unsupported as error:
        pytest.skip(str(error))
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def bare(alone: SandboxPool) -> AsyncIterator[Sandbox]:
    made = await alone.create(SandboxSpec(files={"hello.txt": b"hello\n"}, env={"COLOUR": "blue"}))
    yield made
    await made.kill()


@pytest.fixture
def canary() -> Iterator[Path]:
    """A file anybody may read, in the machine's /tmp."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "canary").write_text("canary")
        (Path(name) / "canary").chmod(0o644)
        yield Path(name)


def _marked(marker: str) -> list[int]:
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if marker in _command(pid)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""  # gone


async def _python(box: Sandbox, code: str) -> str:
    """The program's output, the same warm and cold."""
    cold, warm = [await box.run(["python", "-c", code], warm=warm) for warm in (False, True)]
    assert (cold.rc, warm.rc) == (0, 0), (cold.err, warm.err)
    assert cold.out == warm.out
    return cold.out.decode().strip()


async def test_it_is_named_and_refuses_whoever_demands_more(alone: SandboxPool) -> None:
    assert (alone.probe().backend, alone.probe().isolation) == ("process", "process")
    with pytest.raises(Unsupported, match="namespace"):
        await alone.create(SandboxSpec(isolation_min="namespace"))
    with pytest.raises(Unsupported, match="mount namespace"):
        await alone.create(SandboxSpec(read_only_binds=(("/usr/share", "/opt/share"),)))


async def test_commands_and_files_work_as_elsewhere(bare: Sandbox) -> None:
    result = await bare.run("cat hello.txt; echo err >&2; echo $COLOUR > out; exit 7")
    assert (result.rc, result.out, result.err) == (7, b"hello\n", b"err\n")
    await bare.write("a/b.bin", b"\0\xff", mode=0o600)
    await bare.write("/tmp/other", b"2")
    assert await bare.read(f"{WORKDIR}/a/b.bin") == b"\0\xff" and (await bare.run('cat "$TMPDIR/other"')).out == b"2"
    assert await bare.export() == {"a/b.bin": b"\0\xff", "hello.txt": b"hello\n", "out": b"blue\n"}
    assert await _python(bare, "print(open('hello.txt').read())") == "hello"
    big = b"0123456789" * 30_000
    assert (await bare.run(["cat"], stdin=big, max_output_bytes=len(big))).out == big
    assert [(await bare.run([name])).rc for name in ("no-such-command", "./hello.txt")] == [127, 126]
    both = await asyncio.gather(bare.run("sleep 0.2; echo 1"), bare.run("sleep 0.2; echo 2"))
    assert [one.out for one in both] == [b"1\n", b"2\n"]


async def test_nothing_of_the_host_can_be_read_listed_or_written(bare: Sandbox, canary: Path) -> None:
    repository = Path(__file__).resolve().parents[2]
    for folder in (
        canary,
        repository,
        repository / "runs",
        Path.home(),
        Path("/tmp"),
        Path("/"),
        Path("/var/log"),
        Path("/proc"),
    ):
        assert (await bare.run(["ls", "-A", str(folder)])).out == b"", folder
    own = Path.home() / ".config/pip/pip.conf"
    for file in (
        canary / "canary",
        Path(__file__),
        own,
        Path("/etc/passwd"),
        Path("/etc/pip.conf"),
        Path("/proc/1/environ"),
    ):
        assert (await bare.run(["cat", str(file)])).rc != 0, file
        with pytest.raises(UserError):
            await bare.read(str(file))
    for file in (canary / "new", Path("/tmp/etude-new"), Path("/usr/new")):
        assert (await bare.run(f"echo x > {file}")).rc != 0 and not file.exists()
    with pytest.raises(UserError):
        await bare.write("/usr/new", b"x")
    await bare.write("/tmp/etude-new", b"x")  # the sandbox' own /tmp
    assert not Path("/tmp/etude-new").exists()
    assert (await bare.run(f"rm -rf {canary}; mv {canary} stolen; ln {canary}/canary linked")).rc != 0
    assert (canary / "canary").read_text() == "canary"


async def test_no_socket_can_be_created_but_a_connected_pair(bare: Sandbox) -> None:
    code = """
import socket
tried = [(socket.AF_UNIX, 1, 0), (socket.AF_INET, 1, 0), (socket.AF_INET6, 2, 0), (16, 3, 0), (17, 3, 0), (38, 5, 0), (40, 1, 0)]
for family, kind, protocol in tried:
    try:
        socket.socket(family, kind, protocol).close()
        print("created", family)
    except OSError as error:
        print(error.errno, end=" ")
one, other = socket.socketpair()
one.send(b"x")
print(other.recv(1).decode(), end=" ")
try:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
except OSError as error:
    print(error.errno)
"""
    assert (await _python(bare, code)).split() == ["1"] * 7 + ["x", "1"]


@pytest.mark.parametrize(
    "code",
    ["os.chmod('hello.txt', 0o777)", "os.utime('hello.txt', (0, 0))", "os.setxattr('hello.txt', 'user.x', b'1')", "os.chown('x', 0, 0)",
     "os.setpriority(os.PRIO_PROCESS, 0, 19)", "resource.prlimit(os.getppid(), resource.RLIMIT_CPU)", "os.memfd_create('x')"],
)  # fmt: skip
async def test_what_landlock_does_not_mediate_is_refused(bare: Sandbox, code: str) -> None:
    result = await bare.run(["python", "-c", f"import os, resource\n{code}"], warm=True)
    assert result.rc == 1 and b"PermissionError" in result.err


async def test_no_signal_reaches_host_runner_or_other_commands(bare: Sandbox) -> None:
    server = asyncio.create_task(bare.run("sleep 1.0; echo alive"))
    await asyncio.sleep(0.2)
    tried = await bare.run(f"kill -9 {os.getpid()}; kill -9 $PPID; kill -0 1; kill -9 -1; echo not reached")
    assert tried.out.count(b"alive") == 0
    assert (await server).out == b"alive\n" and (await bare.run("echo here")).out == b"here\n"


async def test_a_time_out_kills_double_forked_daemons_and_nothing_else(bare: Sandbox) -> None:
    innocent = asyncio.create_task(bare.run("sleep 1.2; echo fine", timeout_s=30))
    await asyncio.sleep(0.1)
    daemon = f"(setsid sh -c 'setsid sleep {MARK + 1} & setsid sleep {MARK + 1}' >/dev/null 2>&1 &) ; sleep {MARK + 1}"
    assert (await bare.run(daemon, timeout_s=0.5)).timed_out
    assert _marked(f"sleep {MARK + 1}") == []
    assert (await innocent).out == b"fine\n"
    assert (await bare.run(daemon, timeout_s=0.5)).timed_out  # now the only one: one signal for all
    assert _marked(f"sleep {MARK + 1}") == []


@pytest.mark.parametrize("victim", ["client", "runner", "keeper"])
async def test_whoever_dies_everything_inside_dies_and_the_folder_goes(alone: SandboxPool, victim: str) -> None:
    box = await alone.create(SandboxSpec())
    folder = Path((await box.run("pwd")).out.decode().strip()).parent
    await box.run(f"mkdir -m 0 shut; mkdir -p d/e; (setsid sleep {MARK + 2} >/dev/null 2>&1 &)")
    runner = _parent(await _asleep(MARK + 2))
    if victim != "client":
        os.kill(runner if victim == "runner" else _parent(runner), signal.SIGKILL)
    else:
        await box.kill()
    end_s = time.monotonic() + 10
    while (_marked(f"sleep {MARK + 2}") or (folder.exists() and victim != "keeper")) and time.monotonic() < end_s:
        await asyncio.sleep(0.02)
    assert _marked(f"sleep {MARK + 2}") == []
    assert victim == "keeper" or not folder.exists()
    await box.kill()


async def test_what_a_killed_keeper_left_goes_with_its_pool(alone: SandboxPool) -> None:
    pool = await open_pool(SandboxSettings(backend="process"))
    box = await pool.create(SandboxSpec())
    await box.run(f"mkdir -p shut/er; chmod 0 shut; (setsid sleep {MARK + 4} >/dev/null 2>&1 &)")
    work = Path((await box.run("pwd")).out.decode().strip())
    os.kill(_parent(_parent(await _asleep(MARK + 4))), signal.SIGKILL)
    with pytest.raises(InfraError):
        await box.run("true")
    assert (work / "shut").is_dir()
    await pool.close()
    assert not work.parent.parent.exists()


async def _asleep(seconds: int) -> int:
    """The process that sleeps for so long, as soon as the command's child has become `sleep`."""
    end_s = time.monotonic() + 60
    while not (asleep := [pid for pid in _marked(f"sleep {seconds}") if _command(pid).startswith("sleep")]):
        assert time.monotonic() < end_s
        await asyncio.sleep(0.01)
    return asleep[0]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_limits_hold(alone: SandboxPool) -> None:
    box = await alone.create(SandboxSpec(memory_mb=64, disk_mb=4, pids=8))
    hog = await box.run(["python", "-c", "import time; x = b'x' * (200 << 20); time.sleep(20)"], warm=True)
    assert hog.rc != 0 and (b"MemoryError" in hog.err or hog.oom)
    assert (await box.run("head -c 9000000 /dev/zero > big")).rc != 0
    await box.remove("big")
    many = "for i in 1 2 3; do head -c 3000000 /dev/zero > big$i; done; sleep 5"
    assert b"hold more than disk_mb=4" in (await box.run(many)).err  # watched, not bounded
    with pytest.raises(DiskFull):
        await box.write("more", b"x")
    await box.run("rm big*")
    await box.write("more", b"x")
    bomb = "import os, time\nwhile True:\n try: os.fork()\n except OSError: time.sleep(0.01)\n"
    ended = await box.run(["python", "-c", bomb], timeout_s=0.7, warm=True)
    assert ended.timed_out or b"processes" in ended.err
    assert (await box.run(["true"])).rc == 0
    await box.kill()


@pytest.mark.sample(1)
@pytest.mark.parametrize(("depth", "rc"), [(300, 0), (2500, 0), pytest.param(6000, 137, marks=pytest.mark.nightly)])
async def test_a_tree_however_deep_is_the_command_s_own_doing(alone: SandboxPool, depth: int, rc: int) -> None:
    """Below 4,096 folders it is counted; a deeper one is more than the disk allows, and ends the command that makes it."""
    box = await alone.create(SandboxSpec())
    deep = f"import os, time\nfor _ in range({depth}): os.mkdir('d'); os.chdir('d')\nif {rc}: time.sleep(20)"
    assert (await box.run(["python", "-c", deep], timeout_s=30)).rc == rc
    with pytest.raises(UserError, match="deeper than 128"):
        await box.export(".")
    await box.kill()


@pytest.mark.parametrize("mask", ["377", "277"])
async def test_a_folder_closed_to_its_owner_ends_no_sandbox(alone: SandboxPool, mask: str) -> None:
    box = await alone.create(SandboxSpec())
    assert (await box.run(f"(umask {mask}; mkdir d); sleep 0.7; echo survived")).out == b"survived\n"
    await box.write("more", b"x")
    await box.kill()


@pytest.mark.parametrize("mode", ["0o300", "0o400", "0o000"])
async def test_no_mode_hides_files_from_the_disk_limit(alone: SandboxPool, mode: str) -> None:
    box = await alone.create(SandboxSpec(disk_mb=8))
    code = f"""import os, time
os.mkdir('d')
fd = os.open('d', os.O_RDONLY)
open('d/1', 'wb').write(bytes(1 << 20))
os.fchmod(fd, {mode})
time.sleep(20)"""
    for _ in range(2):
        ended = await box.run(["python", "-c", code], timeout_s=30)
        assert ended.rc == 137 and b"folder 'd' hides" in ended.err
        code = "import time; time.sleep(20)"
    with pytest.raises(DiskFull):
        await box.write("more", b"x")
    await box.kill()


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only a sandbox made by root has a user, and so a count of processes, of its own"
)
async def test_no_process_left_is_a_typed_error(alone: SandboxPool) -> None:
    box = await alone.create(SandboxSpec(pids=4))
    bomb = asyncio.create_task(box.run("for i in 1 2 3 4 5 6 7 8; do sleep 5 & done; wait", timeout_s=2))
    await asyncio.sleep(0.5)
    answers = await asyncio.gather(*(box.run(["sleep", "1"]) for _ in range(12)), return_exceptions=True)
    assert any(isinstance(answer, PidsExhausted) for answer in answers)
    await bomb
    await box.kill()


NO_LANDLOCK = """
import asyncio, struct
from etude.sandbox.inside import syscalls
from etude.sandbox.pool import open_pool
from etude.sandbox.errors import Unsupported
from etude.sandbox.settings import SandboxSettings
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
syscalls.install_filter(b"".join(struct.pack("HBBI", *rule) for rule in rules))
try:
    asyncio.run(open_pool(SandboxSettings(backend="process")))
except Unsupported as error:
    print("refused:", error)
"""


async def test_without_landlock_it_refuses_with_the_reason() -> None:
    command = [sys.executable, "-c", NO_LANDLOCK]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("refused: back end process") and "no Landlock" in done.stdout, done.stderr


async def test_a_landlock_without_signal_scopes_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 5)
    with pytest.raises(OSError, match="version 6 is Linux 6.12"):
        keeper.keep(socket.socketpair()[0], frames.Frame(frames.SPEC, 0, {"place": {}}, b""))  # type: ignore[arg-type]
