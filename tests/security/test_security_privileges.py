"""No user inside is a user outside, and nothing there gives more rights than its first process had."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from etude.sandbox.local_pool import LocalPool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

MARK = 3_300_000_000 + 100 * os.getpid()  # sleeps of this number of seconds are this run's


async def test_privileges_are_gone_for_good(box: Sandbox) -> None:
    status = _status((await box.run("cat /proc/self/status")).out.decode())
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2") and set(status["Uid"].split()) != {"0"}
    assert (await box.run("mknod /tmp/disk b 8 0")).rc != 0
    assert (await box.run("chown 0 hello.txt")).rc != 0


async def test_setuid_files_give_nothing(box: Sandbox) -> None:
    """Test 48 of docs/sandbox.md: neither the system's nor one made inside."""
    shown = await box.run(
        "for f in /usr/bin/su /usr/bin/passwd /bin/mount; do [ -u $f ] && (id -u; $f --version) ; done; id -u",
        stdin=b"",
    )
    assert b"\n0\n" not in b"\n" + shown.out
    shown = await box.run("cp /usr/bin/id /tmp/mine; chmod 6755 /tmp/mine; /tmp/mine -u; id -u")
    mine, own = shown.out.split()
    assert mine == own != b"0"


@pytest.mark.skipif(os.geteuid() != 0, reason="the question arises for root")
async def test_files_and_processes_of_a_sandbox_made_by_root_are_no_one_s_outside(pool: SandboxPool, kind: str) -> None:
    """Test 48 of docs/sandbox.md: files on the host are never owned by real root."""
    box = await pool.create(SandboxSpec(warm_python=not kind.endswith("native")))
    await box.run(f"touch file; chmod 4755 file; setsid sleep {MARK + 1} >/dev/null 2>&1 &")
    while not (found := [p for p in Path("/proc").glob("[0-9]*") if str(MARK + 1).encode() in _cmdline(p)]):
        await asyncio.sleep(0.05)  # the shell doesn't wait until the program in the background has begun
    status = _status((found[0] / "status").read_text())
    assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split()
    if isinstance(pool, LocalPool) and not kind.startswith("bubblewrap"):
        upper = box._channel.granted["upper"]  # pyright: ignore[reportAttributeAccessIssue]
        made = os.stat("work/file", dir_fd=upper)
        assert 0 not in (made.st_uid, made.st_gid) and os.fstatvfs(upper).f_flag & os.ST_NOSUID
    await box.kill()


def _status(text: str) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def _cmdline(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""  # over meanwhile
