"""The escapes that matter, tried from inside, cold and warm. No socket here is ever connected."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import WORKDIR, SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

SYSCALL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    return "ok" if result >= 0 else os.strerror(ctypes.get_errno())
"""
X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="system call numbers of x86_64")


async def _python(box: Sandbox, code: str) -> str:
    """The program's output, the same warm and cold."""
    cold, warm = [await box.run(["python", "-c", code], warm=warm) for warm in (False, True)]
    assert (cold.rc, warm.rc) == (0, 0), (cold.err, warm.err)
    assert cold.out == warm.out
    return cold.out.decode().strip()


@pytest.mark.parametrize(
    "path",
    ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/sys/kernel/uevent_helper", "/usr/bin/x",
     "/etc/passwd", "/dev/sda", "/x", "/proc/1/oom_score_adj"],
)  # fmt: skip
async def test_nothing_of_the_host_can_be_written(box: Sandbox, path: str) -> None:
    host = Path("/proc/sys/kernel/core_pattern").read_text()
    assert (await box.run(f"echo '|/bin/evil' > {path}")).rc != 0
    assert Path("/proc/sys/kernel/core_pattern").read_text() == host


@X86
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("ptrace", "101, 0, 0, 0, 0"), ("process_vm_readv", "310, 1, 0, 0, 0, 0, 0"), ("keyctl", "250, 0, -3, 0"),
        ("add_key", "248, b'user', b'x', b'y', 1, -3"), ("bpf", "321, 0, 0, 0"), ("io_uring_setup", "425, 8, 0"),
        ("userfaultfd", "323, 0"), ("perf_event_open", "298, 0, 0, -1, -1, 0"), ("kexec_load", "246, 0, 0, 0, 0"),
        ("finit_module", "313, 0, b'', 0"), ("mount", "165, b'none', b'/tmp', b'tmpfs', 0, 0"), ("umount2", "166, b'/work', 2"),
        ("pivot_root", "155, b'.', b'.'"), ("chroot", "161, b'/tmp'"), ("open_tree", "428, -100, b'/', 1"),
        ("move_mount", "429, -100, b'/', -100, b'/tmp', 0"), ("fsopen", "430, b'tmpfs', 0"),
        ("mount_setattr", "442, -100, b'/', 0, 0, 0"), ("open_by_handle_at", "304, -100, 0, 0"), ("setns", "308, 0, 0"),
        ("reboot", "169, 0, 0, 0, 0"), ("unshare user", "272, 0x10000000"), ("unshare all", "272, 0x7e020000"),
        ("clone user", "56, 0x10000011, 0, 0, 0, 0"), ("pidfd_getfd", "438, 0, 0, 0"), ("memfd_create", "319, b'x', 0"),
        ("sethostname", "170, b'x', 1"), ("swapon", "167, b'/x', 0"), ("syslog", "103, 3, 0, 0"),
    ],
)  # fmt: skip
async def test_dangerous_system_calls_are_refused(box: Sandbox, name: str, call: str) -> None:
    assert await _python(box, f"{SYSCALL}\nprint(call({call}))") == "Operation not permitted"


@X86
async def test_clone3_is_absent_and_the_x32_door_closed(box: Sandbox) -> None:
    assert await _python(box, f"{SYSCALL}\nprint(call(435, 0, 0), '|', call(0x40000000 + 39))") == " | ".join(
        ["Function not implemented"] * 2
    )


async def test_socket_families_beyond_the_usual_cannot_be_created(box: Sandbox) -> None:
    code = """
import socket
for family, kind, protocol in [(40, 1, 0), (17, 3, 0), (38, 5, 0), (16, 3, 4), (16, 3, 9), (31, 3, 0), (29, 3, 1), (21, 5, 0), (44, 3, 0)]:
    try:
        socket.socket(family, kind, protocol).close()
        print("created", family)
    except OSError as error:
        print(error.errno, end=" ")
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
    socket.socket(family, socket.SOCK_STREAM).close()
"""
    assert (await _python(box, code)).split() == ["1"] * 9


async def test_there_is_no_network_but_the_own_loopback(box: Sandbox) -> None:
    assert [
        line.split(":")[0].strip() for line in (await box.run("tail -n +3 /proc/net/dev")).out.decode().splitlines()
    ] == ["lo"]
    assert (await box.run("tail -n +2 /proc/net/route")).out == b""
    code = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"hi")).start()
print(socket.create_connection(server.getsockname()).recv(2).decode())
"""
    assert await _python(box, code) == "hi"


async def test_privileges_are_gone_for_good(box: Sandbox) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in (await box.run("cat /proc/self/status")).out.decode().splitlines()
        if ":\t" in line
    )
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2") and set(status["Uid"].split()) != {"0"}
    assert (await box.run("mknod /tmp/disk b 8 0")).rc != 0
    setuid = await box.run(
        "for f in /usr/bin/su /usr/bin/passwd /bin/mount; do [ -u $f ] && (id -u; $f --version) ; done; id -u",
        stdin=b"",
    )
    assert b"\n0\n" not in b"\n" + setuid.out
    assert (await box.run("chown 0 hello.txt")).rc != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="the question arises for root")
async def test_a_sandbox_made_by_root_is_nobody_on_the_host(box: Sandbox) -> None:
    await box.run("setsid sleep 31537001 >/dev/null 2>&1 &")
    found = [p for p in Path("/proc").glob("[0-9]*") if b"31537001" in (p / "cmdline").read_bytes()]
    status = dict(line.split(":\t", 1) for line in (found[0] / "status").read_text().splitlines() if ":\t" in line)
    assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split()


async def test_the_runner_survives_its_inside(box: Sandbox) -> None:
    for line in ("kill -9 1", "kill -9 -1", "kill -TERM 1; kill -INT 1; kill -STOP 1; kill -SEGV 1; kill -CHLD 1"):
        await box.run(line, timeout_s=5)
        assert (await box.run("echo here")).out == b"here\n"


async def test_the_runner_s_memory_descriptors_and_socket_are_closed_to_its_inside(box: Sandbox) -> None:
    for path in ("mem", "environ", "fd/3", "root/etc", "maps", "cwd/x"):
        assert (await box.run(f"cat /proc/1/{path}")).rc != 0
    assert (await box.run("ls /proc/1/fd")).out == b""
    assert (await box.run("ls /proc/self/fd")).out.split() == [b"0", b"1", b"2", b"3"]  # 3 is ls reading the folder
    assert (await box.run("cat /proc/1/cmdline")).out.count(f"{WORKDIR}/".encode()) == 0


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> str:
    return "canary-" + os.urandom(8).hex()


async def test_home_repository_runs_and_tmp_are_absent(box: Sandbox, tmp_path: Path, canary: str) -> None:
    (tmp_path / canary).write_text(canary)
    repository = Path(__file__).resolve().parents[2]
    for path in (
        tmp_path,
        repository,
        repository / "runs",
        Path.home(),
        Path("/home"),
        Path.home() / ".ssh",
        Path("/var/log"),
        Path("/sys"),
    ):
        shown = await box.run(["ls", "-A", str(path)])
        assert shown.out == b"", path
    assert (await box.run("find / -xdev -name 'canary-*' 2>/dev/null")).out == b""
    assert set((await box.run("ls /tmp /home /root /mnt /srv /var/tmp 2>/dev/null | grep -v ':'")).out.split()) == set()


async def test_pip_settings_and_secrets_in_etc_are_absent(box: Sandbox) -> None:
    shown = await box.run(
        "find / -name pip.conf -size +0 2>/dev/null; ls /etc/shadow /etc/ssh /etc/pip.conf /etc/environment 2>/dev/null"
    )
    assert shown.out == b""
    assert (await box.run("env")).out.count(b"PIP_") == 0


async def test_environment_and_memory_of_the_client_do_not_leak(
    monkeypatch: pytest.MonkeyPatch, pool: SandboxPool, canary: str
) -> None:
    monkeypatch.setenv("ETUDE_CANARY", canary)
    other = await pool.create(SandboxSpec(files={"secret": f"file-{canary}".encode()}, env={"SECRET": f"env-{canary}"}))
    await other.run(["python", "-c", "pass"], stdin=f"stdin-{canary}".encode(), warm=True)
    box = await pool.create(SandboxSpec())
    # Warm runs share the zygote's and the runner's memory; the needle is built reversed, and only its prefixed forms are counted.
    code = f"""
import ctypes
needle = b"-" + bytes({list(canary.encode()[::-1])})[::-1]
found = scanned = 0
for line in list(open("/proc/self/maps")):
    span, rights = line.split()[:2]
    low, high = (int(word, 16) for word in span.split("-"))
    if rights[0] == "r" and "w" in rights and high - low < 1 << 26:
        memory = (ctypes.c_char * (high - low)).from_address(low)
        found += bytes(memory).count(b"file" + needle) + bytes(memory).count(b"env" + needle) + bytes(memory).count(b"stdin" + needle)
        scanned += high - low
print(found, scanned > 1 << 20)
"""
    control = await other.run(["python", "-c", code], warm=True)
    assert control.rc == 0 and int(control.out.split()[0]) > 0  # the search finds what is there: its own sandbox' files
    result = await box.run(["python", "-c", code], warm=True)
    assert (result.rc, result.out) == (0, b"0 True\n"), result.err
    assert canary.encode() not in (await box.run("env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null")).out
    await asyncio.gather(other.kill(), box.kill())


async def test_host_paths_do_not_show_in_processes_and_mounts(box: Sandbox) -> None:
    repository = str(Path(__file__).resolve().parents[2]).encode()
    shown = await box.run("cat /proc/*/cmdline /proc/*/mountinfo /proc/*/environ 2>/dev/null", max_output_bytes=1 << 20)
    assert shown.out and repository not in shown.out


async def test_processes_of_the_host_and_of_neighbours_are_invisible(pool: SandboxPool, box: Sandbox) -> None:
    other = await pool.create(SandboxSpec())
    await other.run("setsid sleep 31537002 >/dev/null 2>&1 &")
    assert b"31537002" not in (await box.run("cat /proc/[0-9]*/cmdline")).out
    assert int((await box.run("ls -d /proc/[0-9]* | wc -l")).out) <= 5
    await other.kill()


async def test_abstract_sockets_and_shared_memory_of_the_host_are_out_of_reach(box: Sandbox) -> None:
    assert len((await box.run("cat /proc/net/unix")).out.splitlines()) <= 1 + 0
    assert (await box.run("ls /dev/shm; cat /proc/sysvipc/shm | tail -n +2")).out == b""


async def test_chroot_and_root_links_lead_nowhere(box: Sandbox) -> None:
    assert (
        await box.run("ls -L /proc/self/root; cd /; cd ../../..; ls .old oldroot put_old 2>/dev/null; pwd")
    ).out.endswith(b"/\n")
    shown = (await box.run("cat /proc/self/mountinfo")).out.decode().splitlines()
    assert {line.split(" - ")[1].split()[0] for line in shown if line.split()[4] == "/"} == {"tmpfs"}  # its own root


@pytest.mark.skipif(os.geteuid() != 0, reason="root tries to be an ordinary user")
@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_an_ordinary_user_has_the_same_sandboxes() -> None:
    """The suites once more as nobody, by the system's Python: the one that runs this may lie in a closed home."""
    repository = Path(__file__).resolve().parents[2]
    packages = sysconfig.get_paths()["purelib"]
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = shutil.which(f"python{version}", path="/usr/bin:/usr/local/bin") or ""
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-m", "pytest", "-q", "-x"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": f"{packages}:{repository / 'src'}"}
    if not python or shutil.which("setpriv") is None:
        pytest.skip(f"needs setpriv and a python{version} of the system")
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, "-p", "no:cacheprovider", "tests/security", "tests/sandbox"],
        cwd=repository,
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:].decode() + done.stderr[-2000:].decode()
