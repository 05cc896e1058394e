"""Canaries: what the host knows is not inside, in files, environment or memory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Warm runs share the zygote's and the runner's memory. The needle is built from its bytes reversed, so that the program does not find
# itself; only its prefixed forms are counted.
SCAN = """
import ctypes
needle = b"-" + bytes(REVERSED)[::-1]
found = scanned = 0
for line in list(open("/proc/self/maps")):
    span, rights = line.split()[:2]
    low, high = (int(word, 16) for word in span.split("-"))
    if rights[0] == "r" and "w" in rights and high - low < 1 << 26:
        memory = (ctypes.c_char * (high - low)).from_address(low)
        found += sum(bytes(memory).count(prefix + needle) for prefix in (b"file", b"env", b"stdin", b"heap"))
        scanned += high - low
print(found, scanned > 1 << 20)
"""


@pytest.fixture(scope="module")
def canary() -> str:
    return "canary-" + os.urandom(8).hex()


def _scan(canary: str) -> str:
    return SCAN.replace("REVERSED", str(list(canary.encode()[::-1])))


@pytest.mark.usefixtures("own_root")
async def test_home_repository_runs_and_tmp_are_absent(box: Sandbox, tmp_path: Path, canary: str) -> None:
    """One canary for each: the home, the repository, its runs, /tmp."""
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


@pytest.mark.usefixtures("own_root")
async def test_pip_settings_and_secrets_in_etc_are_absent(box: Sandbox) -> None:
    shown = await box.run(
        "find / -name pip.conf -size +0 2>/dev/null; ls /etc/shadow /etc/ssh /etc/pip.conf /etc/environment 2>/dev/null"
    )
    assert shown.out == b""
    assert (await box.run("env")).out.count(b"PIP_") == 0


async def test_environment_and_memory_of_the_client_do_not_leak(
    monkeypatch: pytest.MonkeyPatch, pool: SandboxPool, canary: str
) -> None:
    """Test 56 of docs/sandbox.md: of a neighbour's files, variables and input nothing is left in the memory that sandboxes share."""
    monkeypatch.setenv("ETUDE_CANARY", canary)
    other = await pool.create(SandboxSpec(files={"secret": f"file-{canary}".encode()}, env={"SECRET": f"env-{canary}"}))
    await other.run(["python3", "-c", "pass"], stdin=f"stdin-{canary}".encode(), warm=True)
    box = await pool.create(SandboxSpec())
    code = _scan(canary)
    control = await other.run(["python3", "-c", code], warm=True)
    assert control.rc == 0 and int(control.out.split()[0]) > 0  # the search finds what is there: its own sandbox' files
    result = await box.run(["python3", "-c", code], warm=True)
    assert (result.rc, result.out) == (0, b"0 True\n"), result.err
    assert canary.encode() not in (await box.run("env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null")).out
    await asyncio.gather(other.kill(), box.kill())


async def test_a_zygote_born_of_a_client_full_of_secrets_knows_none(
    monkeypatch: pytest.MonkeyPatch, kind: str, canary: str, tmp_path: Path
) -> None:
    """Test 56 of docs/sandbox.md: canaries in the client's environment, memory, home and working folder before the pool is opened."""
    held = [f"heap-{canary}-{number}" for number in range(1000)]
    for name in ("ETUDE_TOKEN", "AWS_SECRET_ACCESS_KEY", "PIP_INDEX_URL", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, f"/env-{canary}")
    (tmp_path / "secret").write_text(f"file-{canary}")
    monkeypatch.chdir(tmp_path)
    pool = await open_pool(SandboxSettings(backend="bubblewrap" if kind.startswith("bubblewrap") else "local"))
    box = await pool.create(SandboxSpec(warm_python=not kind.endswith("native")))
    scanned = await box.run(["python3", "-c", _scan(canary)], warm=not kind.endswith("native"))
    assert scanned.out.split()[0] == b"0", scanned.err
    everywhere = "env; cat /proc/*/environ /proc/*/cmdline /proc/*/mountinfo; find / -xdev; grep -rs canary /etc /dev/shm /tmp /work /opt /run /var"
    shown = await box.run(everywhere + " 2>/dev/null", max_output_bytes=8 << 20)
    assert canary.encode() not in shown.out and len(shown.out) > 1000 and len(held) == 1000
    await pool.close()
